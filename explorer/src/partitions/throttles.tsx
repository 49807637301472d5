// Why requests were throttled: the latest ones with their causes, and what would help.
import type { Throttle } from '../api/shapes';
import * as format from '../ui/format';
import { Notice, Table } from '../ui/parts';

/** What the latest throttled requests have in common, and what to do about it. */
export function explainThrottles(events: Throttle[], partitions: number, total: number): string | null {
  if (events.length === 0) return null;
  const hot = events.filter((event) => event.keySharePercent >= 50);
  if (hot.length * 2 >= events.length && hot[0]?.partitionKey) {
    const key = hot[0].partitionKey;
    const partition = hot[0].partition;
    if (partitions > 1) {
      return `Most of the load of partition ${partition} is one key, ${key}. Throughput is divided evenly: this partition gets ${format.count(hot[0].budgetPerSecond)} of ${format.count(total)} RU/s, however idle the others are. More throughput helps little and a split not at all; choose a partition key that spreads these items. The advisor measures candidates.`;
    }
    return `Most of the load is one key, ${key}. The container has one partition with ${format.count(hot[0].budgetPerSecond)} RU/s: more throughput helps until it needs more partitions; beyond that, choose a partition key that spreads these items. The advisor measures candidates.`;
  }
  const bucket = events.filter((event) => event.cause.includes('bucket')).length;
  if (bucket * 2 >= events.length) return 'The requests use a throughput bucket whose share was spent. Increase its share in the settings, or let these requests wait.';
  const priority = events.filter((event) => event.cause.includes('priority')).length;
  if (priority * 2 >= events.length) return 'Low-priority requests were throttled in favour of high-priority ones, as intended.';
  const places = new Set(events.map((event) => event.partition));
  if (places.size === 1 && partitions > 1) return `All were in partition ${events[0]!.partition}, over several keys. A split divides its keys, and its load, over two partitions.`;
  return `The load is spread over ${format.plural(places.size, 'partition')} and many keys, and together they need more than the ${format.count(total)} RU/s of the container. More throughput helps.`;
}

export function Throttles({ events, partitions, total }: { events: Throttle[]; partitions: number; total: number }) {
  const verdict = explainThrottles(events, partitions, total);
  return (
    <section class="card stack">
      <h2>Why was I throttled?</h2>
      {verdict === null ? (
        <p class="muted">No request to this container was throttled recently.</p>
      ) : (
        <>
          <Notice kind="warning">{verdict}</Notice>
          <Table label="Throttled requests" columns={['Time', 'Partition', 'Key', { numeric: 'Its share of the load' }, 'Cause', { numeric: 'Budget' }, { numeric: 'Retry after' }]}>
            {events.slice(0, 12).map((event, at) => (
              <tr key={`${event.atMs}/${at}`}>
                <td>{format.timeOfDay(event.atMs)}</td>
                <td>{event.partition}</td>
                <td class="code">{event.partitionKey ?? 'several'}</td>
                <td class="numeric">{event.keySharePercent} %</td>
                <td>{event.cause}</td>
                <td class="numeric">{format.count(event.budgetPerSecond)} RU/s</td>
                <td class="numeric">{event.retryAfterMs} ms</td>
              </tr>
            ))}
          </Table>
        </>
      )}
    </section>
  );
}
