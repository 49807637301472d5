// Queries: the editor above, results below.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { type QueryPage as Page, type QueryText, explain, explainCharge, pathSegments, queryItems } from '../api/calls';
import { ApiError } from '../api/client';
import type { Explained, ExplainedCharge } from '../api/shapes';
import { Editor } from '../editor/editor';
import { csvOf, saveFile } from '../items/download';
import { parseKeyPart } from '../items/page';
import type { ContainerProps } from '../resources/container';
import { handover } from '../state/route';
import { isAdmin } from '../state/session';
import * as format from '../ui/format';
import { Grid } from '../ui/grid';
import { lazy } from '../ui/lazy';
import { Button, Dialog, Empty, Field, Menu, MenuItem, Notice, Spinner, Tabs, say } from '../ui/parts';
import { Icon } from '../ui/icons';
import { columnOf, isRow, propertiesOf } from '../ui/values';
import { suggestsChart } from './chartable';
import { type Remembered, forget, history, keep, remember, saved } from './history';
import { ChargeParts, Plan } from './plan';

const ResultChart = lazy(() => import('./result-chart').then((module) => module.default));

interface Result {
  rows: unknown[];
  continuation: string | null;
  charge: number;
  ms: number;
  pages: number;
  throttled: number;
  metrics: Page['metrics'];
}

type View = 'table' | 'json' | 'chart' | 'plan' | 'charge';

export function QueryPage({ place, definition, shown }: ContainerProps & { shown: boolean }) {
  const keyPath = definition.partitionKey.paths;
  const [text, setText] = useState('SELECT *\nFROM c');
  const [parameters, setParameters] = useState('{\n  \n}');
  const [showParameters, setShowParameters] = useState(false);
  const [keyText, setKeyText] = useState<string[]>(keyPath.map(() => ''));
  const [pageSize, setPageSize] = useState(100);
  const [result, setResult] = useState<Result | null>(null);
  const [running, setRunning] = useState(false);
  const [stopped, setStopped] = useState(false);
  const [error, setError] = useState<ApiError | Error | null>(null);
  const [faults, setFaults] = useState<{ start: number; end: number; message: string }[]>([]);
  const [view, setView] = useState<View>('table');
  const [plan, setPlan] = useState<{ explained: Explained; charge: ExplainedCharge } | string | null>(null);
  const [dialog, setDialog] = useState<'history' | 'save' | null>(null);
  const [widths, setWidths] = useState<Record<string, number>>({});
  const [samples, setSamples] = useState<unknown[]>([]);
  const abort = useRef<AbortController | null>(null);
  /** The query that produced the rows below. */
  const ran = useRef<{ query: QueryText; key: unknown[] | null }>({ query: { query: '' }, key: null });

  useEffect(() => {
    queryItems(place, { query: 'SELECT TOP 50 * FROM c' }, { pageSize: 50 }).then(
      (page) => setSamples(page.rows),
      () => {},
    );
  }, []);
  useEffect(() => {
    const given = handover.value;
    if (shown && given?.query !== undefined) {
      handover.value = null;
      setText(given.query);
      void run(given.query);
    }
  }, [shown && handover.value]);

  const parameterList = (): { name: string; value: unknown }[] => {
    if (!showParameters || parameters.trim() === '') return [];
    const parsed = JSON.parse(parameters) as Record<string, unknown>;
    return Object.entries(parsed).map(([name, value]) => ({ name: name.startsWith('@') ? name : `@${name}`, value }));
  };
  const parameterNames = (): string[] => {
    try {
      return parameterList().map((one) => one.name);
    } catch {
      return [];
    }
  };

  const run = async (given = text) => {
    abort.current?.abort();
    const controller = new AbortController();
    abort.current = controller;
    setFaults([]);
    setError(null);
    setPlan(null);
    let query: QueryText;
    try {
      query = { query: given, parameters: parameterList() };
    } catch (failure) {
      setError(new Error(`The parameters are not JSON: ${(failure as Error).message}`));
      return;
    }
    const key = keyText.every((part) => part.trim() === '') ? null : keyText.map(parseKeyPart);
    ran.current = { query, key };
    setRunning(true);
    setStopped(false);
    setResult(null);
    const began = performance.now();
    try {
      // A page may be empty although there are more: go on until rows come.
      let found: Result = { rows: [], continuation: null, charge: 0, ms: 0, pages: 0, throttled: 0, metrics: {} };
      do {
        const page = await queryItems(place, query, { pageSize, key, metrics: true, continuation: found.continuation, signal: controller.signal });
        found = join(found, page, performance.now() - began);
        setResult(found);
      } while (found.rows.length === 0 && found.continuation !== null);
      setView((now) => (now === 'plan' || now === 'charge' ? now : suggestsChart(found.rows) && found.continuation === null ? 'chart' : now === 'chart' ? 'table' : now));
      remember({ text: given, at: Date.now(), place: `${place.database}/${place.container}`, rows: found.rows.length, charge: found.charge });
      if (isAdmin() && (view === 'plan' || view === 'charge')) void loadPlan();
    } catch (failure) {
      if (!controller.signal.aborted) {
        setError(failure as Error);
        if (failure instanceof ApiError) {
          setFaults(failure.faults.filter((fault) => fault.start !== undefined).map((fault) => ({ start: fault.start!, end: fault.end ?? fault.start! + 1, message: fault.message })));
        }
      }
    }
    if (abort.current === controller) setRunning(false);
  };

  const more = async () => {
    if (!result?.continuation || running) return;
    const controller = new AbortController();
    abort.current = controller;
    setRunning(true);
    const began = performance.now();
    try {
      const page = await queryItems(place, ran.current.query, { pageSize, key: ran.current.key, metrics: true, continuation: result.continuation, signal: controller.signal });
      setResult(join(result, page, performance.now() - began));
    } catch (failure) {
      if (!controller.signal.aborted) setError(failure as Error);
    }
    setRunning(false);
  };

  const stop = () => {
    abort.current?.abort();
    setRunning(false);
    setStopped(true);
  };

  const loadPlan = async () => {
    try {
      const { query, key } = ran.current;
      const [explained, charge] = await Promise.all([explain(place, query, key), explainCharge(place, { operation: 'query', ...query, ...(key ? { partitionKey: key } : {}) })]);
      setPlan({ explained, charge });
    } catch (failure) {
      setPlan((failure as Error).message);
    }
  };
  useEffect(() => {
    if ((view === 'plan' || view === 'charge') && result && plan === null) void loadPlan();
  }, [view, result === null]);

  const rows = result?.rows ?? [];
  const asTable = useMemo(() => {
    const names = propertiesOf(rows);
    const wrapped = rows.some((row) => !isRow(row));
    const list = wrapped ? [{ ...columnOf<unknown>('value', rows, (row) => row), width: 640 }] : names.map((name) => columnOf<unknown>(name, rows, (row) => (row as Record<string, unknown>)[name], widths[name]));
    return list;
  }, [result?.rows, widths]);
  const asJson = useMemo(() => (view === 'json' ? rows.slice(0, 1000).map((row) => JSON.stringify(row, null, 2)).join(',\n') : ''), [view, result?.rows]);

  const views: { id: View; title: string }[] = [
    { id: 'table', title: 'Table' },
    { id: 'json', title: 'JSON' },
    { id: 'chart', title: 'Chart' },
    ...(isAdmin() ? [{ id: 'plan' as View, title: 'Plan' }, { id: 'charge' as View, title: 'Charge' }] : []),
  ];
  return (
    <div class="query">
      <div class="query-top">
        <div class="query-editor">
          <Editor language="sql" label="Query" value={text} onChange={setText} onRun={(now) => void run(now)} faults={faults} known={{ samples: () => samples, parameters: parameterNames }} placeholder="SELECT * FROM c" autofocus />
        </div>
        {showParameters && (
          <div class="query-parameters">
            <p class="hint">Parameters</p>
            <Editor language="json" label="Parameters as JSON" value={parameters} onChange={setParameters} onRun={() => void run()} />
          </div>
        )}
      </div>
      <div class="toolbar query-bar">
        {running ? (
          <Button kind="danger" icon="stop" onClick={stop}>
            Stop
          </Button>
        ) : (
          <Button kind="primary" icon="play" onClick={() => void run()}>
            Run
          </Button>
        )}
        <kbd>Ctrl Enter</kbd>
        <Button kind="quiet" aria-pressed={showParameters} onClick={() => setShowParameters(!showParameters)}>
          Parameters
        </Button>
        <label class="inline-field">
          <span>Key</span>
          {keyPath.map((path, at) => (
            <input
              key={path}
              class="code"
              aria-label={`Partition key ${path}`}
              placeholder={`${pathSegments(path).at(-1)}: any`}
              value={keyText[at]}
              onInput={(event) => setKeyText(keyText.map((part, index) => (index === at ? event.currentTarget.value : part)))}
            />
          ))}
        </label>
        <label class="inline-field">
          <span>Page</span>
          <select value={pageSize} onChange={(event) => setPageSize(Number(event.currentTarget.value))}>
            {[10, 100, 1000].map((size) => (
              <option key={size} value={size}>
                {size} rows
              </option>
            ))}
          </select>
        </label>
        <div class="toolbar-actions">
          <Button icon="history" kind="quiet" label="History and saved queries" onClick={() => setDialog('history')} />
          <Button icon="star" kind="quiet" label="Save this query" onClick={() => setDialog('save')} />
          <Menu label="More result actions" icon="download">
            <MenuItem icon="download" onClick={() => saveFile('rows.json', 'application/json', [JSON.stringify(rows, null, 2)])}>
              Rows as JSON
            </MenuItem>
            <MenuItem icon="download" onClick={() => saveFile('rows.csv', 'text/csv', [csvOf(rows)])}>
              Rows as CSV
            </MenuItem>
            <MenuItem icon="copy" onClick={() => void navigator.clipboard.writeText(JSON.stringify(rows, null, 2)).then(() => say('Copied.'))}>
              Copy rows as JSON
            </MenuItem>
          </Menu>
        </div>
      </div>
      <div class="query-results">
        {error && (
          <div class="pad">
            <Notice kind="error">
              {error.message}
              {error instanceof ApiError && error.faults[0]?.code && <span class="muted"> ({error.faults[0].code})</span>}
            </Notice>
          </div>
        )}
        {result && (
          <>
            <div class="result-head">
              <Tabs label="Results as" tabs={views} value={view} onChange={setView} />
              <ul class="facts" aria-live="polite">
                <li>
                  {format.plural(rows.length, 'row')}
                  {result.continuation ? ', more to come' : ''}
                </li>
                <li>
                  <strong>{format.units(result.charge)} RU</strong>
                </li>
                <li>{format.duration(result.ms)}</li>
                {result.pages > 1 && <li>{result.pages} pages</li>}
                {result.metrics.retrievedDocumentCount !== undefined && <li>{format.count(result.metrics.retrievedDocumentCount)} items read</li>}
                {stopped && <li class="fact-busy">stopped</li>}
                {result.throttled > 0 && <li class="fact-busy">throttled {result.throttled} times</li>}
              </ul>
              {running && <Spinner />}
            </div>
            {view === 'table' &&
              (rows.length === 0 ? (
                <Empty title="No rows." />
              ) : (
                <Grid label="Rows" columns={asTable} rows={rows} onEnd={() => void more()} onResize={(name, width) => setWidths((before) => ({ ...before, [name]: width }))} />
              ))}
            {view === 'json' && (
              <div class="fill">
                <Editor language="json" label="Rows as JSON" value={`[\n${asJson}\n]`} readOnly />
              </div>
            )}
            {view === 'chart' && (
              <div class="scrolls">
                <ResultChart rows={rows} />
              </div>
            )}
            {(view === 'plan' || view === 'charge') && (
              <div class="scrolls">
                {plan === null ? <Spinner /> : typeof plan === 'string' ? <Notice kind="error">{plan}</Notice> : view === 'plan' ? <Plan explained={plan.explained} /> : <ChargeParts explained={plan.charge} />}
              </div>
            )}
            {result.continuation && (view === 'table' || view === 'json') && (
              <div class="grid-foot">
                <Button class="small" disabled={running} onClick={() => void more()}>
                  Next page
                </Button>
                <span class="muted">Scrolling to the end loads it too.</span>
              </div>
            )}
          </>
        )}
        {!result && !error && !running && (
          <Empty title={stopped ? 'Stopped.' : 'Run a query.'}>
            <div class="examples">
              {examples(samples, keyPath).map((example) => (
                <button
                  key={example}
                  type="button"
                  class="example"
                  onClick={() => {
                    setText(example);
                    void run(example);
                  }}
                >
                  <Icon name="play" size={12} />
                  <code>{example}</code>
                </button>
              ))}
            </div>
          </Empty>
        )}
        {running && !result && (
          <div class="loading-part">
            <Spinner label="Running" />
          </div>
        )}
      </div>
      {dialog === 'history' && (
        <HistoryDialog
          onClose={() => setDialog(null)}
          onTake={(entry) => {
            setText(entry.text);
            setDialog(null);
          }}
        />
      )}
      {dialog === 'save' && <SaveDialog text={text} place={`${place.database}/${place.container}`} onClose={() => setDialog(null)} />}
    </div>
  );
}

function join(before: Result, page: Page, ms: number): Result {
  const metrics = { ...before.metrics };
  for (const [name, value] of Object.entries(page.metrics)) metrics[name] = (metrics[name] ?? 0) + value;
  return {
    rows: before.rows.concat(page.rows),
    continuation: page.continuation,
    charge: before.charge + page.charge,
    ms: before.pages === 0 ? ms : before.ms + page.ms,
    pages: before.pages + 1,
    throttled: before.throttled + page.throttled,
    metrics,
  };
}

/** Example queries for these items. */
function examples(samples: unknown[], keyPath: string[]): string[] {
  const found = ['SELECT VALUE COUNT(1) FROM c'];
  const item = samples.find(isRow);
  if (!item) return found;
  const own = Object.entries(item).filter(([name]) => !name.startsWith('_') && name !== 'id' && /^[A-Za-z]\w*$/.test(name));
  const values = (name: string) => new Set(samples.filter(isRow).map((row) => row[name]));
  const key = keyPath.map((path) => pathSegments(path)[0]);
  const category = own.find(([name, value]) => typeof value === 'string' && !key.includes(name) && values(name).size < Math.max(3, samples.length / 2));
  const number = own.find(([, value]) => typeof value === 'number');
  if (category && number) found.push(`SELECT c.${category[0]}, AVG(c.${number[0]}) AS average, COUNT(1) AS count FROM c GROUP BY c.${category[0]}`);
  else if (category) found.push(`SELECT c.${category[0]}, COUNT(1) AS count FROM c GROUP BY c.${category[0]}`);
  if (number) found.push(`SELECT TOP 20 * FROM c ORDER BY c.${number[0]} DESC`);
  return found;
}

function HistoryDialog({ onClose, onTake }: { onClose: () => void; onTake: (entry: Remembered) => void }) {
  const [kept, setKept] = useState(saved());
  const list = (entries: Remembered[], canForget: boolean) => (
    <ul class="remembered">
      {entries.map((entry) => (
        <li key={`${entry.place}${entry.at}${entry.name ?? ''}`}>
          <button type="button" onClick={() => onTake(entry)}>
            {entry.name && <strong>{entry.name}</strong>}
            <code>{entry.text}</code>
            <span class="muted">
              {entry.place} · {new Date(entry.at).toLocaleString()}
              {entry.rows !== undefined && ` · ${format.plural(entry.rows, 'row')} · ${format.units(entry.charge ?? 0)} RU`}
            </span>
          </button>
          {canForget && (
            <Button
              icon="trash"
              kind="quiet"
              label={`Forget ${entry.name}`}
              onClick={() => {
                forget(entry);
                setKept(saved());
              }}
            />
          )}
        </li>
      ))}
    </ul>
  );
  const past = history();
  return (
    <Dialog title="Queries" wide onClose={onClose}>
      <div class="stack">
        {kept.length > 0 && (
          <>
            <h3>Saved</h3>
            {list(kept, true)}
          </>
        )}
        <h3>Run before</h3>
        {past.length === 0 ? <p class="muted">None yet. They are kept in this browser only.</p> : list(past, false)}
      </div>
    </Dialog>
  );
}

function SaveDialog({ text, place, onClose }: { text: string; place: string; onClose: () => void }) {
  const [name, setName] = useState('');
  return (
    <Dialog title="Save this query" onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          keep({ name, text, place, at: Date.now() });
          say(`Saved as ${name}, in this browser.`);
          onClose();
        }}
      >
        <Field label="Name" hint="Stored in this browser only.">
          {(id, hint) => <input id={id} aria-describedby={hint} required autofocus value={name} onInput={(event) => setName(event.currentTarget.value)} />}
        </Field>
        <div class="row end">
          <Button kind="primary" type="submit" disabled={!name}>
            Save
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
