// The advisor: keys measured on the container's own items, or a file's; a recorded workload; and the way to another key.
import { useEffect, useRef, useState } from 'preact/hooks';
import { SYSTEM_PROPERTIES, queryItems } from '../api/calls';
import { ApiError, get, post } from '../api/client';
import type { Advice, Candidate, Recording, RepartitionStatus } from '../api/shapes';
import { itemsOf } from '../items/files';
import type { ContainerProps } from '../resources/container';
import * as format from '../ui/format';
import { Button, Confirm, Dialog, Field, Notice, Spinner, say, useEvery } from '../ui/parts';
import { Report } from './report';

const SAMPLES = [1000, 5000, 20_000];
/** Partitions of a new container, as the service divides throughput. */
const partitionsFor = (throughput: number): number => (throughput <= 10_000 ? 1 : Math.ceil(throughput / 6000));
/** Factors on the rates of reads and writes. */
const RATES = [0.1, 0.25, 0.5, 1, 2, 5, 10];
const ratesTitle = (factor: number, what: string): string => (factor === 1 ? `What if there were more or fewer ${what}?` : `What if there were ${factor} times the ${what}?`);
/** How much more data there may be. */
const GROWTH = [1, 2, 5, 10, 100, 1000];

export function AdvisorPage({ place, definition, usage, reload, shown }: ContainerProps & { shown: boolean }) {
  const [file, setFile] = useState<File | null>(null);
  const [most, setMost] = useState(5000);
  const [throughput, setThroughput] = useState(40_000);
  const [growth, setGrowth] = useState(1);
  const [reads, setReads] = useState(1);
  const [writes, setWrites] = useState(1);
  const [partitions, setPartitions] = useState(0);
  const [extra, setExtra] = useState('');
  const [useRecording, setUseRecording] = useState(false);
  const [recording, setRecording] = useState<Recording | null>(null);
  const [busy, setBusy] = useState<string | null>(null);
  const [items, setItems] = useState<unknown[] | null>(null);
  const [report, setReport] = useState<Advice | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [chosen, setChosen] = useState<Candidate | null>(null);
  const [progress, setProgress] = useState<RepartitionStatus | null>(null);
  /** What the report was made for. */
  const measured = useRef('');
  const names = { database: place.database, container: place.container };
  const query = `database=${encodeURIComponent(place.database)}&container=${encodeURIComponent(place.container)}`;

  useEvery(
    2000,
    async () => {
      if (!shown) return;
      const list = (await get<Recording[]>('/_orrery/recordings')).body;
      setRecording(list.find((one) => one.database === place.database && one.container === place.container) ?? null);
      try {
        const status = (await get<RepartitionStatus>(`/_orrery/repartition?${query}`)).body;
        setProgress((before) => {
          if (before && before.phase !== 'done' && status.phase === 'done') reload();
          return status;
        });
      } catch (failure) {
        if (failure instanceof ApiError && failure.status !== 404) setError(failure.message);
      }
    },
    [shown],
  );

  const record = async (what: '' | '/stop' | '/discard') => {
    try {
      const answer = await post<Recording>(`/_orrery/recordings${what}`, names);
      setRecording(what === '/discard' ? null : answer.body);
      if (what === '/stop') setUseRecording(true);
    } catch (failure) {
      setError((failure as Error).message);
    }
  };

  const gather = async (): Promise<unknown[]> => {
    const found: unknown[] = [];
    if (file) {
      for await (const item of itemsOf(file, () => {})) {
        found.push(item);
        if (found.length >= most) break;
      }
      return found;
    }
    let continuation: string | null = null;
    do {
      const page = await queryItems(place, { query: 'SELECT * FROM c' }, { pageSize: 1000, continuation });
      for (const row of page.rows as Record<string, unknown>[]) {
        for (const name of SYSTEM_PROPERTIES) delete row[name];
        found.push(row);
      }
      setBusy(`Reading items: ${format.count(found.length)}`);
      continuation = page.continuation;
    } while (continuation && found.length < most);
    return found.slice(0, most);
  };

  /** What the answer depends on, besides items and workload. */
  const asked = [throughput, growth, reads, writes, partitions].join(' ');
  const advise = async (known: unknown[] | null) => {
    setError(null);
    setBusy('Reading items');
    try {
      const sample = known ?? (await gather());
      setItems(sample);
      setBusy('Measuring keys');
      const workload = useRecording && recording ? (await get<string>(`/_orrery/recordings/download?${query}`, { asText: true })).body : undefined;
      const body = {
        items: sample,
        workload,
        throughput,
        reads,
        writes,
        ...(partitions > 0 ? { partitions } : {}),
        current: file ? [] : definition.partitionKey.paths,
        candidates: extra.split('\n').map((line) => line.trim()).filter(Boolean),
        itemsTotal: (file ? sample.length : Math.max(usage.items, sample.length)) * growth,
      };
      setReport((await post<Advice>('/_orrery/advise', body)).body);
      measured.current = asked;
    } catch (failure) {
      setError((failure as Error).message);
    }
    setBusy(null);
  };
  // The what-if controls ask again, about the items that are read already.
  useEffect(() => {
    if (!report || !items || measured.current === asked) return;
    const timer = setTimeout(() => void advise(items), 400);
    return () => clearTimeout(timer);
  }, [asked]);

  const running = progress && !['done', 'failed', 'aborted'].includes(progress.phase);
  return (
    <div class="scrolls advisor">
      {progress && <RepartitionProgress progress={progress} onAbort={() => void post('/_orrery/repartition/abort', names).then(() => say('It was given up; nothing has changed.'), (failure: Error) => say(failure.message, 'error'))} />}
      <section class="card stack">
        <h2>Which key would be best?</h2>
        <p class="muted">The advisor maps items and the requests of a workload onto the partitions that the throughput implies, for every plausible key, and ranks the keys with reasons.</p>
        <div class="form-grid">
          <Field label="Items" hint={file ? file.name : `From the container, ${format.plural(usage.items, 'item')} in all.`}>
            {(id, hint) => (
              <div class="row">
                <select id={id} aria-describedby={hint} class="short" value={most} onChange={(event) => setMost(Number(event.currentTarget.value))}>
                  {SAMPLES.map((count) => (
                    <option key={count} value={count}>
                      the first {format.count(count)}
                    </option>
                  ))}
                </select>
                <label class="button">
                  {file ? 'Another file' : 'From a file…'}
                  <input type="file" class="visually-hidden" accept=".json,.jsonl,.ndjson,.csv" onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)} />
                </label>
                {file && (
                  <Button kind="quiet" onClick={() => setFile(null)}>
                    From the container
                  </Button>
                )}
              </div>
            )}
          </Field>
          <Field label={`What if it had ${format.count(throughput)} RU/s?`} hint={`A new container has ${format.plural(partitionsFor(throughput), 'partition')}, more where there is much data.`}>
            {(id, hint) => <input id={id} aria-describedby={hint} type="range" min={1000} max={200_000} step={1000} value={throughput} onInput={(event) => setThroughput(Number(event.currentTarget.value))} />}
          </Field>
          <Field label={growth === 1 ? 'What if there were more data?' : `What if there were ${format.count(growth)} times the data?`} hint={`${format.count((file ? (items?.length ?? 0) : usage.items) * growth)} items in all.`}>
            {(id, hint) => <input id={id} aria-describedby={hint} type="range" min={0} max={GROWTH.length - 1} value={GROWTH.indexOf(growth)} onInput={(event) => setGrowth(GROWTH[Number(event.currentTarget.value)]!)} />}
          </Field>
          <Field label={partitions > 0 ? `What if there were ${format.plural(partitions, 'partition')}?` : 'What if there were another number of partitions?'} hint="At 0, as many as the throughput implies.">
            {(id, hint) => <input id={id} aria-describedby={hint} type="range" min={0} max={200} value={partitions} onInput={(event) => setPartitions(Number(event.currentTarget.value))} />}
          </Field>
          <Field label={ratesTitle(reads, 'reads')} hint="As a factor on the workload.">
            {(id, hint) => <input id={id} aria-describedby={hint} type="range" min={0} max={RATES.length - 1} value={RATES.indexOf(reads)} onInput={(event) => setReads(RATES[Number(event.currentTarget.value)]!)} />}
          </Field>
          <Field label={ratesTitle(writes, 'writes')} hint="As a factor on the workload.">
            {(id, hint) => <input id={id} aria-describedby={hint} type="range" min={0} max={RATES.length - 1} value={RATES.indexOf(writes)} onInput={(event) => setWrites(RATES[Number(event.currentTarget.value)]!)} />}
          </Field>
          <Field label="Additional keys to measure" hint="One per line: a path, several separated by commas for levels, or a definition in JSON.">
            {(id, hint) => <textarea id={id} aria-describedby={hint} class="code" rows={2} value={extra} placeholder="/tenantId,/userId" onInput={(event) => setExtra(event.currentTarget.value)} />}
          </Field>
          <div class="field">
            <span class="field-title">Workload</span>
            <div class="row">
              {recording?.running ? (
                <Button kind="danger" icon="stop" onClick={() => void record('/stop')}>
                  Stop recording
                </Button>
              ) : (
                <Button icon="play" onClick={() => void record('')}>
                  {recording ? 'Record again' : 'Record'}
                </Button>
              )}
              {recording && (
                <span role="status">
                  {format.plural(recording.requests, 'request')}
                  {recording.running ? ' so far' : ' recorded'}
                </span>
              )}
              {recording && !recording.running && (
                <label class="check">
                  <input type="checkbox" checked={useRecording} onChange={(event) => setUseRecording(event.currentTarget.checked)} /> use it
                </label>
              )}
            </div>
            <p class="hint">Without one, writes at 70 % of the throughput are assumed. Recordings contain requests, never item bodies.</p>
          </div>
        </div>
        {error && <Notice kind="error">{error}</Notice>}
        <div class="row">
          <Button kind="primary" icon="play" disabled={busy !== null} onClick={() => void advise(null)}>
            Measure
          </Button>
          {busy && (
            <>
              <Spinner label={busy} /> <span role="status">{busy}</span>
            </>
          )}
        </div>
      </section>
      {report && <Report report={report} current={file ? null : definition.partitionKey.paths.join(' then ')} onTake={file || running ? null : setChosen} />}
      {chosen && <TakeKey place={place} candidate={chosen} onClose={() => setChosen(null)} />}
    </div>
  );
}

function TakeKey({ place, candidate, onClose }: { place: ContainerProps['place']; candidate: Candidate; onClose: () => void }) {
  const keep = `${place.container}-before`;
  return (
    <Confirm
      title={`Repartition ${place.container}?`}
      typed={place.container}
      action="Repartition"
      onClose={onClose}
      text={
        <div class="stack">
          <p>
            All items are copied into a new container with the key <code>{candidate.name}</code>, changes are followed, both sides are compared, and then the new container takes over the name.
          </p>
          <ul class="bullets">
            <li>Clients that use the old partition key get errors after the cut-over: update them first.</li>
            <li>The copy uses throughput and, while it lasts, twice the space.</li>
            <li>
              The original stays as <code>{keep}</code> until you delete it.
            </li>
            <li>Continuation tokens and change feed positions of the old container become invalid.</li>
          </ul>
        </div>
      }
      onConfirm={async () => {
        await post('/_orrery/repartition', { ...place, partitionKey: candidate.partitionKey, ...(candidate.definition ? { syntheticKey: candidate.definition } : {}), keepAs: keep });
        say('The repartitioning has started.');
      }}
    />
  );
}

function RepartitionProgress({ progress, onAbort }: { progress: RepartitionStatus; onAbort: () => void }) {
  const [asking, setAsking] = useState(false);
  const over = ['done', 'failed', 'aborted'].includes(progress.phase);
  const share = progress.items > 0 ? (progress.phase === 'copying' ? progress.copied : progress.compared) / progress.items : over ? 1 : 0;
  return (
    <section class="card stack" aria-label="Repartitioning">
      <div class="section-head">
        <h2>Repartitioning: {progress.phase}</h2>
        {!over && <Button onClick={() => setAsking(true)}>Abort…</Button>}
      </div>
      <progress aria-label="Repartitioning" max={1} value={Math.min(1, progress.phase === 'done' ? 1 : share)} />
      <p class="muted">
        {format.count(progress.copied)} of {format.plural(progress.items, 'item')} copied, {format.count(progress.compared)} compared. {progress.message}
        {progress.keptAs && ` What was there before is ${progress.keptAs}.`}
      </p>
      {asking && (
        <Dialog
          title="Abort the repartitioning?"
          onClose={() => setAsking(false)}
          footer={
            <>
              <Button onClick={() => setAsking(false)}>Continue</Button>
              <Button
                kind="danger"
                onClick={() => {
                  setAsking(false);
                  onAbort();
                }}
              >
                Abort
              </Button>
            </>
          }
        >
          <p>The copy is discarded; the container is unchanged.</p>
        </Dialog>
      )}
    </section>
  );
}
