// OpenMetrics text, read as far as the page needs it.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

export function parseMetrics(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const match = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const labels: Record<string, string> = {};
    for (const pair of (match[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[pair[1]!] = pair[2]!.replaceAll('\\"', '"').replaceAll('\\\\', '\\');
    samples.push({ name: match[1]!, labels, value: Number(match[3]) });
  }
  return samples;
}

export interface OperationStats {
  resource: string;
  operation: string;
  requests: number;
  /** By status, the largest first. */
  statuses: [string, number][];
  charge: number;
  /** Seconds by quantile. */
  p50: number | null;
  p95: number | null;
  p99: number | null;
}

/** A quantile from cumulative buckets, in a straight line inside one. */
export function quantile(buckets: [number, number][], share: number): number | null {
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total === 0) return null;
  const wanted = total * share;
  let below = 0;
  let from = 0;
  for (const [limit, count] of buckets) {
    if (count >= wanted) {
      if (!Number.isFinite(limit)) return from;
      return count === below ? limit : from + ((limit - from) * (wanted - below)) / (count - below);
    }
    below = count;
    from = Number.isFinite(limit) ? limit : from;
  }
  return from;
}

export function operationsOf(samples: Sample[]): OperationStats[] {
  const found = new Map<string, { resource: string; operation: string; statuses: Map<string, number>; charge: number; buckets: [number, number][] }>();
  const at = ({ labels }: Sample) => {
    const key = `${labels.resource}/${labels.operation}`;
    let known = found.get(key);
    if (!known) found.set(key, (known = { resource: labels.resource!, operation: labels.operation!, statuses: new Map(), charge: 0, buckets: [] }));
    return known;
  };
  for (const sample of samples) {
    if (sample.name === 'orrery_requests_total') at(sample).statuses.set(sample.labels.status!, sample.value);
    else if (sample.name === 'orrery_request_units_total') at(sample).charge = sample.value;
    else if (sample.name === 'orrery_request_duration_seconds_bucket') at(sample).buckets.push([sample.labels.le === '+Inf' ? Number.POSITIVE_INFINITY : Number(sample.labels.le), sample.value]);
  }
  return [...found.values()]
    .map(({ resource, operation, statuses, charge, buckets }) => {
      buckets.sort((a, b) => a[0] - b[0]);
      const requests = [...statuses.values()].reduce((sum, count) => sum + count, 0);
      return { resource, operation, requests, charge, statuses: [...statuses].sort((a, b) => b[1] - a[1]), p50: quantile(buckets, 0.5), p95: quantile(buckets, 0.95), p99: quantile(buckets, 0.99) };
    })
    .sort((a, b) => b.requests - a.requests);
}
