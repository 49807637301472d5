// The advisor: keys measured on the container's own items, or a file's; a recorded workload; and the way to another key.
import { useEffect, useState } from 'preact/hooks';
import { SYSTEM_PROPERTIES, queryItems } from '../api/calls';
import { ApiError, get, post } from '../api/client';
import type { Recording } from '../api/shapes';
import { itemsOf } from '../items/files';
import type { ContainerProps } from '../resources/container';
import * as format from '../ui/format';
import { Button, Confirm, Dialog, Field, Notice, Spinner, say, useEvery } from '../ui/parts';

interface Candidate {
  rank: number;
  name: string;
  kind: string;
  partitionKey: unknown;
  definition: unknown;
  score: number;
  for: string[];
  against: string[];
  distinctValues: number;
  largestKey: { share: number; bytes: number; daysUntilFull: number | null };
  spread: { items: number[]; bytes: number[]; unevenness: number };
  reads: { pointShare: number; singlePartitionShare: number; fanOutShare: number };
  requestUnitsPerSecondByPartition: number[];
  hotFactor: number;
  throttled: { requests: number; share: number };
  neededThroughput: { now: number; inAYear: number };
}

interface Report {
  data: { items: number; itemsTotal: number; sampleItems: number };
  throughput: number;
  partitions: number;
  workload: { given: boolean; requests: number };
  candidates: Candidate[];
  notes: string[];
}

interface Repartition {
  phase: string;
  items: number;
  copied: number;
  compared: number;
  message?: string;
  keptAs?: string;
}

const SAMPLES = [1000, 5000, 20_000];

export function AdvisorPage({ place, definition, usage, reload, shown }: ContainerProps & { shown: boolean }) {
  const [file, setFile] = useState<File | null>(null);
  const [most, setMost] = useState(5000);
  const [throughput, setThroughput] = useState(40_000);
  const [extra, setExtra] = useState('');
  const [useRecording, setUseRecording] = useState(false);
  const [recording, setRecording] = useState<Recording | null>(null);
  const [busy, setBusy] = useState<string | null>(null);
  const [items, setItems] = useState<unknown[] | null>(null);
  const [report, setReport] = useState<Report | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [chosen, setChosen] = useState<Candidate | null>(null);
  const [open, setOpen] = useState<string | null>(null);
  const [progress, setProgress] = useState<Repartition | null>(null);
  const names = { database: place.database, container: place.container };
  const query = `database=${encodeURIComponent(place.database)}&container=${encodeURIComponent(place.container)}`;

  useEvery(
    2000,
    async () => {
      if (!shown) return;
      const list = (await get<Recording[]>('/_orrery/recordings')).body;
      setRecording(list.find((one) => one.database === place.database && one.container === place.container) ?? null);
      try {
        const status = (await get<Repartition>(`/_orrery/repartition?${query}`)).body;
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
        current: file ? [] : definition.partitionKey.paths,
        candidates: extra.split('\n').map((line) => line.trim()).filter(Boolean),
        ...(file ? {} : { itemsTotal: Math.max(usage.items, sample.length) }),
      };
      setReport((await post<Report>('/_orrery/advise', body)).body);
    } catch (failure) {
      setError((failure as Error).message);
    }
    setBusy(null);
  };
  // The slider asks again, about the items that are read already.
  useEffect(() => {
    if (!report || !items || report.throughput === throughput) return;
    const timer = setTimeout(() => void advise(items), 400);
    return () => clearTimeout(timer);
  }, [throughput]);

  const running = progress && !['done', 'failed', 'aborted'].includes(progress.phase);
  return (
    <div class="scrolls">
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
          <Field label={`What if it had ${format.count(throughput)} RU/s?`} hint={`${format.plural(Math.ceil(throughput / 10_000), 'partition')} at least.`}>
            {(id, hint) => <input id={id} aria-describedby={hint} type="range" min={1000} max={200_000} step={1000} value={throughput} onInput={(event) => setThroughput(Number(event.currentTarget.value))} />}
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
      {report && (
        <section class="stack" aria-label="Report">
          <h2>
            {format.plural(report.candidates.length, 'key')} over {format.plural(report.partitions, 'partition')}, {format.count(report.data.items)} items, {report.workload.given ? 'with the recorded workload' : 'with an assumed workload'}
          </h2>
          {report.candidates.slice(0, 12).map((candidate) => (
            <CandidateCard
              key={candidate.name}
              candidate={candidate}
              current={!file && candidate.name === definition.partitionKey.paths.join(',')}
              open={open === candidate.name}
              onToggle={() => setOpen(open === candidate.name ? null : candidate.name)}
              onTake={file || running ? null : () => setChosen(candidate)}
            />
          ))}
          {report.notes.map((note) => (
            <p key={note} class="muted">
              {note}
            </p>
          ))}
        </section>
      )}
      {chosen && <TakeKey place={place} candidate={chosen} onClose={() => setChosen(null)} />}
    </div>
  );
}

function CandidateCard({ candidate, current, open, onToggle, onTake }: { candidate: Candidate; current: boolean; open: boolean; onToggle: () => void; onTake: (() => void) | null }) {
  const load = candidate.requestUnitsPerSecondByPartition;
  const most = Math.max(1e-9, ...load);
  return (
    <article class="card candidate">
      <div class="section-head">
        <h3>
          <span class="rank">{candidate.rank}</span> <code>{candidate.name}</code> {current && <span class="badge">in use</span>}
        </h3>
        <div class="row">
          <Button kind="quiet" class="small" aria-expanded={open} onClick={onToggle}>
            {open ? 'Less' : 'More'}
          </Button>
          {onTake && !current && (
            <Button class="small" onClick={onTake}>
              Use this key…
            </Button>
          )}
        </div>
      </div>
      <div class="bars" role="img" aria-label={`Load by partition: the busiest has ${format.short(candidate.hotFactor)} times the average`}>
        {load.slice(0, 200).map((units, at) => (
          <span key={at} style={{ height: `${Math.max(2, (units / most) * 100)}%` }} />
        ))}
      </div>
      <ul class="facts">
        <li>{format.plural(candidate.distinctValues, 'value')}</li>
        <li>busiest partition {candidate.hotFactor.toFixed(1)} × the average</li>
        <li class={candidate.throttled.share > 0.01 ? 'bad-text' : ''}>{format.percent(candidate.throttled.share)} throttled</li>
        <li>needs {format.count(candidate.neededThroughput.now)} RU/s</li>
      </ul>
      {open && (
        <div class="reasons">
          <div>
            <h4>For</h4>
            <ul class="bullets">{candidate.for.map((reason) => <li key={reason}>{reason}</li>)}</ul>
          </div>
          <div>
            <h4>Against</h4>
            <ul class="bullets">{candidate.against.map((reason) => <li key={reason}>{reason}</li>)}</ul>
          </div>
          <dl class="pairs">
            <dt>Largest key</dt>
            <dd>
              {format.percent(candidate.largestKey.share)} of the data, {format.bytes(candidate.largestKey.bytes)}
              {candidate.largestKey.daysUntilFull !== null && `, full in ${format.count(candidate.largestKey.daysUntilFull)} days`}
            </dd>
            <dt>Reads</dt>
            <dd>
              {format.percent(candidate.reads.pointShare)} by id, {format.percent(candidate.reads.singlePartitionShare)} in one partition, {format.percent(candidate.reads.fanOutShare)} everywhere
            </dd>
            <dt>In a year</dt>
            <dd>{format.count(candidate.neededThroughput.inAYear)} RU/s</dd>
          </dl>
        </div>
      )}
    </article>
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

function RepartitionProgress({ progress, onAbort }: { progress: Repartition; onAbort: () => void }) {
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
