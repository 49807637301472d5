// The server: version, health, requests, and test controls if enabled.
import { useMemo, useRef, useState } from 'preact/hooks';
import { type Region, readMetrics, readRegions, readServer, readStore } from '../api/calls';
import { call, get, post } from '../api/client';
import type { Clock, Health, ServerInfo, StoreInfo } from '../api/shapes';
import { Editor } from '../editor/editor';
import { Stat } from '../partitions/page';
import { Chart } from '../ui/chart';
import * as format from '../ui/format';
import { Button, Notice, Spinner, Table, say, useEvery, useLoaded } from '../ui/parts';
import { type OperationStats, operationsOf, parseMetrics } from './metrics';
import { Background, Regions } from './places';

interface Seen {
  times: number[];
  requests: number[];
  errors: number[];
}

const KEPT = 150;
/** The store's servers are queried for it: seldom. */
const STORE_EVERY_MS = 15_000;

export function ServerPage() {
  const [info, setInfo] = useState<ServerInfo | null>(null);
  const [operations, setOperations] = useState<OperationStats[]>([]);
  const [connections, setConnections] = useState(0);
  const [partitions, setPartitions] = useState(0);
  const [waiting, setWaiting] = useState(0);
  const [health, setHealth] = useState<Health | null>(null);
  const [seen, setSeen] = useState<Seen>({ times: [], requests: [], errors: [] });
  const [error, setError] = useState<string | null>(null);
  const [regions, setRegions] = useState<Region[]>([]);
  const [store, setStore] = useState<StoreInfo | null>(null);
  const before = useRef<{ at: number; requests: number; errors: number } | null>(null);
  useEvery(
    2000,
    async () => {
      try {
        const [server, text] = await Promise.all([readServer(), readMetrics()]);
        setInfo(server);
        const samples = parseMetrics(text);
        const found = operationsOf(samples);
        setOperations(found);
        const one = (name: string) => samples.find((sample) => sample.name === name)?.value ?? 0;
        setConnections(one('orrery_connections_open'));
        setPartitions(one('orrery_partitions'));
        setWaiting(one('orrery_store_oldest_write_wait_seconds'));
        const now = {
          at: Date.now() / 1000,
          requests: found.reduce((sum, operation) => sum + operation.requests, 0),
          errors: found.reduce((sum, operation) => sum + operation.statuses.reduce((failed, [status, count]) => (Number(status) >= 400 ? failed + count : failed), 0), 0),
        };
        const last = before.current;
        before.current = now;
        if (last) {
          const seconds = Math.max(0.1, now.at - last.at);
          setSeen((known) => ({
            times: [...known.times, now.at].slice(-KEPT),
            requests: [...known.requests, (now.requests - last.requests) / seconds].slice(-KEPT),
            errors: [...known.errors, (now.errors - last.errors) / seconds].slice(-KEPT),
          }));
        }
        setHealth(await get<Health>('/_orrery/health').then((answer) => answer.body, () => ({ status: 'impaired', store: server.store })));
        setError(null);
      } catch (failure) {
        setError((failure as Error).message);
      }
    },
    [],
  );
  useEvery(
    STORE_EVERY_MS,
    async () => {
      setRegions(await readRegions());
      setStore(await readStore());
    },
    [],
  );
  const series = useMemo(
    () => [
      { title: 'requests/s', values: seen.requests, colour: '--accent', fill: true },
      { title: 'errors/s', values: seen.errors, colour: '--bad' },
    ],
    [seen],
  );
  if (!info) return <div class="page scrolls">{error ? <Notice kind="error">{error}</Notice> : <Spinner />}</div>;
  const rate = seen.requests.at(-1) ?? 0;
  return (
    <div class="page scrolls" tabIndex={0} role="region" aria-label="Server">
      <div class="section-head">
        <h1>Server</h1>
        <span class="muted">{location.origin}</span>
      </div>
      {error && <Notice kind="error">{error}</Notice>}
      {health && health.status !== 'ready' && (
        <Notice kind="error">
          The store is {health.status}. {health.reason} {health.advice}
        </Notice>
      )}
      <div class="stat-row">
        <Stat title="Version" value={info.version} note={`${info.store} store`} />
        <Stat title="Up for" value={format.duration(info.nowMs - info.startedMs)} />
        <Stat title="Memory" value={info.memoryBytes === null ? 'unknown' : format.bytes(info.memoryBytes)} note={format.plural(info.processors, 'processor')} />
        <Stat title="Requests" value={`${format.short(rate)} /s`} note={format.plural(connections, 'connection')} />
        <Stat title="Partitions" value={format.count(partitions)} note={waiting > 0.5 ? `a write has waited ${format.duration(waiting * 1000)}` : 'no write is waiting'} bad={waiting > 5} />
        <Stat title="Consistency" value={info.consistency.defaultConsistencyLevel} />
      </div>
      <section class="card">
        <h2>Requests</h2>
        {seen.times.length > 1 ? <Chart label="Requests and errors by second" kind="time" x={seen.times} series={series} height={190} /> : <p class="muted">Gathering…</p>}
      </section>
      <section class="card stack">
        <h2>By operation, since the start</h2>
        <Table label="Operations" columns={['Operation', { numeric: 'Requests' }, { numeric: 'Request units' }, { numeric: 'p50' }, { numeric: 'p95' }, { numeric: 'p99' }, 'Statuses']}>
          {operations.map((one) => (
            <tr key={`${one.resource}/${one.operation}`}>
              <td>
                {one.operation.replaceAll('_', ' ')} {one.resource.replaceAll('_', ' ')}
              </td>
              <td class="numeric">{format.count(one.requests)}</td>
              <td class="numeric">{format.short(one.charge)}</td>
              {[one.p50, one.p95, one.p99].map((value, at) => (
                <td key={at} class="numeric">
                  {value === null ? '' : format.duration(value * 1000)}
                </td>
              ))}
              <td>
                {one.statuses.map(([status, count]) => (
                  <span key={status} class={`status ${Number(status) >= 400 ? 'bad' : ''}`}>
                    {status} <span class="muted">{format.short(count)}</span>
                  </span>
                ))}
              </td>
            </tr>
          ))}
        </Table>
      </section>
      <Background tasks={info.background} />
      <Regions regions={regions} store={store} />
      {info.testControls ? <TestControls /> : <p class="muted">Faults and the clock can be set on servers that were started with <code>--test-controls</code>.</p>}
    </div>
  );
}

const EXAMPLE_RULE = { status: 429, percentage: 20, operations: ['create'], resource: 'item' };

function TestControls() {
  const faults = useLoaded(() => get<{ rules: Record<string, unknown>[] }>('/_orrery/faults').then((answer) => answer.body.rules), []);
  const clock = useLoaded(() => get<Clock>('/_orrery/clock').then((answer) => answer.body), []);
  const [rule, setRule] = useState(JSON.stringify(EXAMPLE_RULE, null, 2));
  const [error, setError] = useState<string | null>(null);
  const act = async (work: () => Promise<unknown>, done: string) => {
    try {
      await work();
      setError(null);
      say(done);
      faults.reload();
      clock.reload();
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  return (
    <section class="card stack">
      <h2>Test controls</h2>
      {clock.value && (
        <div class="row">
          <span>
            The clock says <strong>{new Date(clock.value.nowMs).toISOString().replace('T', ' ').slice(0, 19)} UTC</strong>
            {clock.value.frozen && ', and stands still'}
            {clock.value.offsetMs !== 0 && `, ${format.duration(Math.abs(clock.value.offsetMs))} ${clock.value.offsetMs > 0 ? 'ahead' : 'behind'}`}
          </span>
          {[
            ['1 minute', 60_000],
            ['1 hour', 3_600_000],
            ['1 day', 86_400_000],
          ].map(([title, ms]) => (
            <Button key={title} class="small" onClick={() => void act(() => post('/_orrery/clock', { advanceMs: ms }), `The clock was advanced by ${title}.`)}>
              + {title}
            </Button>
          ))}
          <Button class="small" onClick={() => void act(() => post('/_orrery/clock', { freeze: !clock.value!.frozen }), clock.value!.frozen ? 'The clock is running again.' : 'The clock is stopped.')}>
            {clock.value.frozen ? 'Let it go on' : 'Stop it'}
          </Button>
          <Button class="small" onClick={() => void act(() => post('/_orrery/clock', { offsetMs: 0, freeze: false }), 'The clock was reset.')}>
            Set it right
          </Button>
        </div>
      )}
      <h3>Fault injection rules</h3>
      {faults.value?.length === 0 && <p class="muted">None.</p>}
      <ul class="plain-list">
        {faults.value?.map((one) => (
          <li key={String(one.id)} class="row">
            <code>{JSON.stringify(one)}</code>
            <Button icon="trash" kind="quiet" label={`Remove the rule ${String(one.id)}`} onClick={() => void act(() => call('DELETE', `/_orrery/faults/${encodeURIComponent(String(one.id))}`), 'The rule was removed.')} />
          </li>
        ))}
      </ul>
      <div class="edit-box low">
        <Editor language="json" label="A new rule" value={rule} onChange={setRule} />
      </div>
      {error && <Notice kind="error">{error}</Notice>}
      <div>
        <Button icon="plus" onClick={() => void act(async () => post('/_orrery/faults', JSON.parse(rule)), 'The rule is active.')}>
          Add the rule
        </Button>
      </div>
    </section>
  );
}
