// A picture of how a query was executed: partitions, access path, items read and rows returned.
import type { Explained, ExplainedCharge } from '../api/shapes';
import * as format from '../ui/format';
import { Notice } from '../ui/parts';
import { isRow } from '../ui/values';
import { partName } from './part-name';

const ROUTED: Record<string, string> = {
  partitionKey: 'Routed by the partition key.',
  syntheticKey: 'Routed by the synthetic key’s source properties.',
  everywhere: 'No partition key in the filter: every partition must be queried.',
};

export function Plan({ explained }: { explained: Explained }) {
  const { rows } = explained;
  const stages: [string, number, string][] = [
    ['Index entries read', rows.indexEntriesRead, ''],
    ['Items read', rows.itemsRead, format.bytes(rows.itemBytesRead)],
    ['Rows returned', rows.returned, format.bytes(rows.bytesReturned)],
  ];
  const most = Math.max(1, ...stages.map(([, count]) => count));
  const visited = new Set(explained.partitionsVisited);
  const scanned = rows.itemsRead > 20 && rows.itemsRead > rows.returned * 5 && /\bWHERE\b/i.test(explained.query);
  const times = Object.entries(explained.timesMs).filter(([name, ms]) => name !== 'total' && ms > 0);
  const slowest = Math.max(0.01, ...times.map(([, ms]) => ms));
  const cells = Math.min(explained.partitions, 240);
  return (
    <div class="plan">
      <section class="plan-step">
        <h2>1 · Where</h2>
        <p>
          <strong>
            {visited.size} of {format.plural(explained.partitions, 'partition')}
          </strong>{' '}
          visited{explained.isComplete ? '' : ' for this page'}. {ROUTED[explained.routedBy]}
        </p>
        <div class="plan-partitions" role="img" aria-label={`${visited.size} of ${explained.partitions} partitions visited`}>
          {Array.from({ length: cells }, (_, at) => (
            <span key={at} class={at < Math.ceil((visited.size / explained.partitions) * cells) ? 'visited' : ''} />
          ))}
        </div>
        {explained.logicalPartitions !== null && <p class="muted">{format.plural(explained.logicalPartitions, 'logical partition')}</p>}
      </section>
      <section class="plan-step">
        <h2>2 · How</h2>
        <ul class="plan-ways">
          {(explained.considered.length > 0 ? explained.considered : [{ access: explained.access, chosen: true }]).map((way) => (
            <li key={way.access} class={way.chosen ? 'chosen' : ''}>
              <span class="plan-mark">{way.chosen ? 'chosen' : 'not chosen'}</span>
              <code>{way.access}</code>
              {way.estimatedRows !== undefined && (
                <span class="muted">
                  {way.isLowerBound ? 'at least ' : 'about '}
                  {format.plural(way.estimatedRows, 'row')}
                </span>
              )}
            </li>
          ))}
        </ul>
      </section>
      <section class="plan-step">
        <h2>3 · How much</h2>
        <div class="funnel">
          {stages.map(([title, count, size]) => (
            <div key={title} class="funnel-row">
              <span>{title}</span>
              <span class="funnel-track">
                <span class="funnel-bar" style={{ width: `${count === 0 ? 0 : Math.max(1, (count / most) * 100)}%` }} />
              </span>
              <span class="funnel-count">
                {format.count(count)} {size && <span class="muted">{size}</span>}
              </span>
            </div>
          ))}
        </div>
        {scanned && <Notice kind="warning">{format.count(rows.itemsRead)} items were read to return {format.count(rows.returned)}. A filter on indexed paths, or an index on these paths, would read fewer.</Notice>}
      </section>
      <section class="plan-step">
        <h2>4 · How long</h2>
        <div class="funnel">
          {times.map(([name, ms]) => (
            <div key={name} class="funnel-row">
              <span>{name}</span>
              <span class="funnel-track">
                <span class="funnel-bar time" style={{ width: `${Math.max(1, (ms / slowest) * 100)}%` }} />
              </span>
              <span class="funnel-count">{format.duration(ms)}</span>
            </div>
          ))}
        </div>
        <p class="muted">{format.duration(explained.timesMs.total)} in the server for one page.</p>
      </section>
      <Indexes metrics={explained.indexes} />
      {explained.advice.length > 0 && (
        <section class="plan-step">
          <h2>Query advice</h2>
          <ul class="bullets">
            {explained.advice.map((advice) => (
              <li key={advice.id + advice.function}>
                <code>{advice.id}</code> about <code>{advice.function}</code>
              </li>
            ))}
          </ul>
        </section>
      )}
    </div>
  );
}

interface IndexEntry {
  IndexSpec?: string;
  IndexSpecs?: string[];
  IndexImpactScore?: string;
  FilterExpression?: string;
}

/** Which indexes were used, and which would help. */
function Indexes({ metrics }: { metrics: unknown }) {
  if (!isRow(metrics)) return null;
  const gather = (group: string): IndexEntry[] => {
    const found = metrics[group];
    if (Array.isArray(found)) return found as IndexEntry[];
    return isRow(found) ? (Object.values(found).filter(Array.isArray).flat() as IndexEntry[]) : [];
  };
  const groups: [string, IndexEntry[]][] = [
    ['Used', [...gather('UtilizedIndexes'), ...gather('UtilizedSingleIndexes'), ...gather('UtilizedCompositeIndexes')]],
    ['Would help', [...gather('PotentialIndexes'), ...gather('PotentialSingleIndexes'), ...gather('PotentialCompositeIndexes')]],
  ];
  if (groups.every(([, entries]) => entries.length === 0)) return null;
  return (
    <section class="plan-step">
      <h2>Indexes</h2>
      {groups.map(
        ([title, entries]) =>
          entries.length > 0 && (
            <div key={title} class="index-group">
              <span class="muted">{title}</span>
              <ul class="bullets">
                {entries.map((entry, at) => (
                  <li key={at}>
                    <code>{entry.IndexSpec ?? entry.IndexSpecs?.join(', ')}</code>
                    {entry.IndexImpactScore && <span class="muted"> impact {entry.IndexImpactScore.toLowerCase()}</span>}
                  </li>
                ))}
              </ul>
            </div>
          ),
      )}
    </section>
  );
}

const SHADES = ['--accent', '--hot', '--good', '--brass', '--code-keyword', '--code-constant'];

/** The components of a charge. */
export function ChargeParts({ explained }: { explained: ExplainedCharge }) {
  const parts = explained.parts.filter((part) => part.charge > 0);
  const sum = parts.reduce((total, part) => total + part.charge, 0) || 1;
  return (
    <div class="charge-parts">
      <p>
        <strong>{format.units(explained.charge)} RU</strong> for one page of the query
      </p>
      <div class="charge-bar" role="img" aria-label={parts.map((part) => `${partName(part.what)}: ${format.units(part.charge)}`).join('; ')}>
        {parts.map((part, at) => (
          <span key={part.what} style={{ width: `${(part.charge / sum) * 100}%`, background: `var(${SHADES[at % SHADES.length]})` }} />
        ))}
      </div>
      <table class="table">
        <thead>
          <tr>
            <th>Part</th>
            <th class="numeric">Quantity</th>
            <th class="numeric">RU</th>
            <th class="numeric">Share</th>
          </tr>
        </thead>
        <tbody>
          {parts.map((part, at) => (
            <tr key={part.what}>
              <td>
                <span class="swatch" style={{ background: `var(${SHADES[at % SHADES.length]})` }} /> {partName(part.what)}
              </td>
              <td class="numeric">{format.count(part.quantity)}</td>
              <td class="numeric">{format.units(part.charge)}</td>
              <td class="numeric">{format.percent(part.charge / sum)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
