// Writes many items: bulk requests of a hundred, a few concurrently, retried when throttled.
import { type ContainerDefinition, type Place, containerPath, keyOf } from '../api/calls';
import { post, sleep } from '../api/client';

export interface LoadProgress {
  done: number;
  failed: number;
  throttled: number;
  charge: number;
  /** The first failures, as messages. */
  failures: string[];
}

interface Result {
  statusCode: number;
  requestCharge: number;
  retryAfterMilliseconds?: number;
  resourceBody?: { message?: string };
}

const BATCH = 100;
const LANES = 4;

export async function loadItems(
  place: Place,
  definition: ContainerDefinition,
  items: Iterator<Record<string, unknown>> | AsyncIterator<Record<string, unknown>>,
  onProgress: (progress: LoadProgress) => void,
  signal?: AbortSignal,
): Promise<LoadProgress> {
  const progress: LoadProgress = { done: 0, failed: 0, throttled: 0, charge: 0, failures: [] };
  let ended = false;
  // Lanes take turns at the source: an iterator gives one thing at a time.
  let turn: Promise<unknown> = Promise.resolve();
  const take = (): Promise<Record<string, unknown>[]> => {
    const taken = turn.then(async () => {
      const batch: Record<string, unknown>[] = [];
      while (!ended && batch.length < BATCH) {
        const next = await items.next();
        if (next.done) ended = true;
        else batch.push(next.value);
      }
      return batch;
    });
    turn = taken.catch(() => {});
    return taken;
  };
  const lane = async () => {
    for (let batch = await take(); batch.length > 0; batch = await take()) {
      let left = batch;
      while (left.length > 0) {
        signal?.throwIfAborted();
        const operations = left.map((item) => ({ operationType: 'Upsert', partitionKey: JSON.stringify(keyOf(definition, item)), resourceBody: item }));
        const headers = { 'x-ms-cosmos-is-batch-request': 'true', 'x-ms-cosmos-batch-atomic': 'false', 'x-ms-cosmos-batch-continue-on-error': 'true', 'x-ms-cosmos-populate-content-response-on-write': 'false' };
        const answer = await post<Result[]>(containerPath(place, 'docs'), operations, { headers, signal });
        const again: Record<string, unknown>[] = [];
        let wait = 0;
        answer.body.forEach((result, at) => {
          progress.charge += result.requestCharge ?? 0;
          if (result.statusCode < 400) progress.done++;
          else if (result.statusCode === 429) {
            again.push(left[at]!);
            progress.throttled++;
            wait = Math.max(wait, result.retryAfterMilliseconds ?? 100);
          } else {
            progress.failed++;
            if (progress.failures.length < 5) progress.failures.push(`${String(left[at]?.id ?? '?')}: ${explainStatus(result)}`);
          }
        });
        onProgress({ ...progress });
        left = again;
        if (left.length > 0) await sleep(wait, signal);
      }
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  return progress;
}

function explainStatus(result: Result): string {
  const message = result.resourceBody?.message;
  if (message) return message;
  return { 400: 'not a legal item', 403: 'a limit is reached', 409: 'breaks a unique key', 413: 'too large (2 MB at most)' }[result.statusCode] ?? `status ${result.statusCode}`;
}
