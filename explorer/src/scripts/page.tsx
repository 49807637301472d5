// Stored procedures, triggers and functions: written, saved and, where it is a procedure, run.
import { useState } from 'preact/hooks';
import { type Resource, containerPath, headerJson, listChildren } from '../api/calls';
import { call, post } from '../api/client';
import { Editor } from '../editor/editor';
import { parseKeyPart } from '../items/page';
import type { ContainerProps } from '../resources/container';
import * as format from '../ui/format';
import { Icon } from '../ui/icons';
import { Button, Confirm, Empty, Field, Notice, say, useLoaded } from '../ui/parts';

const KINDS = {
  sprocs: {
    title: 'Stored procedures',
    one: 'procedure',
    property: 'StoredProcedures',
    template: (name: string) => `function ${name}(greeting) {\n  const context = getContext();\n  console.log('running in one transaction, on one partition key');\n  context.getCollection().queryDocuments(\n    context.getCollection().getSelfLink(),\n    'SELECT VALUE COUNT(1) FROM c',\n    (error, rows) => {\n      if (error) throw error;\n      context.getResponse().setBody({ greeting, items: rows[0] });\n    },\n  );\n}\n`,
  },
  triggers: {
    title: 'Triggers',
    one: 'trigger',
    property: 'Triggers',
    template: (name: string) => `function ${name}() {\n  const request = getContext().getRequest();\n  const item = request.getBody();\n  item.checkedAt = new Date().toISOString();\n  request.setBody(item);\n}\n`,
  },
  udfs: { title: 'Functions', one: 'function', property: 'UserDefinedFunctions', template: (name: string) => `// In queries: SELECT udf.${name}(c.price) FROM c\nfunction ${name}(price) {\n  return price * 1.19;\n}\n` },
} as const;

type Kind = keyof typeof KINDS;

interface Script extends Resource {
  body: string;
  triggerType?: string;
  triggerOperation?: string;
}

interface Open {
  kind: Kind;
  script: Script | null;
}

export function ScriptsPage({ place, definition }: ContainerProps) {
  const { value, error, reload } = useLoaded(async () => {
    const [sprocs, triggers, udfs] = await Promise.all((Object.keys(KINDS) as Kind[]).map((kind) => listChildren<Script>(place, kind, KINDS[kind].property)));
    return { sprocs: sprocs!, triggers: triggers!, udfs: udfs! };
  }, []);
  const [open, setOpen] = useState<Open | null>(null);
  return (
    <div class="two-panes">
      <nav class="side-list" aria-label="Scripts">
        {(Object.keys(KINDS) as Kind[]).map((kind) => (
          <section key={kind}>
            <div class="section-head">
              <h2>{KINDS[kind].title}</h2>
              <Button icon="plus" kind="quiet" label={`New ${KINDS[kind].one}`} onClick={() => setOpen({ kind, script: null })} />
            </div>
            <ul class="plain-list">
              {value?.[kind].map((script) => (
                <li key={script._rid}>
                  <button type="button" class={`side-item ${open?.script?._rid === script._rid ? 'current' : ''}`} aria-current={open?.script?._rid === script._rid} onClick={() => setOpen({ kind, script })}>
                    {script.id}
                  </button>
                </li>
              ))}
              {value?.[kind].length === 0 && <li class="muted none">none</li>}
            </ul>
          </section>
        ))}
        {error && <Notice kind="error">{error}</Notice>}
      </nav>
      {open ? (
        <ScriptEditor
          key={`${open.kind}/${open.script?._rid ?? 'new'}`}
          place={place}
          paths={definition.partitionKey.paths}
          open={open}
          onSaved={(script) => {
            reload();
            setOpen({ kind: open.kind, script });
          }}
          onDeleted={() => {
            reload();
            setOpen(null);
          }}
        />
      ) : (
        <Empty title="JavaScript that runs in the server.">
          <p class="muted">Procedures run as one transaction on one partition key; triggers change items as they are written; functions are called by queries.</p>
          <Button icon="plus" kind="primary" onClick={() => setOpen({ kind: 'sprocs', script: null })}>
            New procedure
          </Button>
        </Empty>
      )}
    </div>
  );
}

function ScriptEditor({ place, paths, open, onSaved, onDeleted }: { place: ContainerProps['place']; paths: string[]; open: Open; onSaved: (script: Script) => void; onDeleted: () => void }) {
  const kind = KINDS[open.kind];
  const [id, setId] = useState(open.script?.id ?? 'example');
  const [body, setBody] = useState(open.script?.body ?? kind.template('example'));
  const [type, setType] = useState(open.script?.triggerType ?? 'Pre');
  const [operation, setOperation] = useState(open.script?.triggerOperation ?? 'All');
  const [error, setError] = useState<string | null>(null);
  const [deleting, setDeleting] = useState(false);
  const changed = !open.script || body !== open.script.body || type !== (open.script.triggerType ?? 'Pre') || operation !== (open.script.triggerOperation ?? 'All');
  const save = async (): Promise<boolean> => {
    const script = { id, body, ...(open.kind === 'triggers' ? { triggerType: type, triggerOperation: operation } : {}) };
    try {
      const saved = open.script ? await call<Script>('PUT', containerPath(place, open.kind, open.script.id), { body: script }) : await post<Script>(containerPath(place, open.kind), script);
      say(`${id} was saved for ${format.units(saved.charge)} RU.`);
      setError(null);
      onSaved(saved.body);
      return true;
    } catch (failure) {
      setError((failure as Error).message);
      return false;
    }
  };
  return (
    <div class="script">
      <div class="toolbar">
        <Field label={`Name of the ${kind.one}`}>{(field) => <input id={field} class="code short" value={id} disabled={open.script !== null} onInput={(event) => setId(event.currentTarget.value)} />}</Field>
        {open.kind === 'triggers' && (
          <>
            <Field label="Runs">
              {(field) => (
                <select id={field} value={type} onChange={(event) => setType(event.currentTarget.value)}>
                  <option value="Pre">before</option>
                  <option value="Post">after</option>
                </select>
              )}
            </Field>
            <Field label="Operation">
              {(field) => (
                <select id={field} value={operation} onChange={(event) => setOperation(event.currentTarget.value)}>
                  {['All', 'Create', 'Replace', 'Delete', 'Update'].map((one) => (
                    <option key={one}>{one}</option>
                  ))}
                </select>
              )}
            </Field>
          </>
        )}
        <div class="toolbar-actions">
          <Button kind="primary" icon="save" disabled={!changed || !id} onClick={() => void save()}>
            {open.script ? 'Save' : 'Create'}
          </Button>
          {open.script && <Button icon="trash" kind="quiet" label={`Delete ${id}`} onClick={() => setDeleting(true)} />}
        </div>
      </div>
      {error && (
        <div class="pad">
          <Notice kind="error">{error}</Notice>
        </div>
      )}
      <div class="fill script-body">
        <Editor language="javascript" label={`Code of the ${kind.one}`} value={body} onChange={setBody} onSave={() => void save()} />
      </div>
      {open.kind === 'sprocs' && open.script && <Run place={place} paths={paths} id={open.script.id} stale={changed} />}
      {deleting && (
        <Confirm
          title={`Delete ${id}?`}
          text={<p>The {kind.one} will be deleted permanently.</p>}
          action="Delete"
          onClose={() => setDeleting(false)}
          onConfirm={async () => {
            await call('DELETE', containerPath(place, open.kind, open.script!.id));
            onDeleted();
          }}
        />
      )}
    </div>
  );
}

interface Outcome {
  result: string;
  log: string;
  charge: number;
  ms: number;
}

function Run({ place, paths, id, stale }: { place: ContainerProps['place']; paths: string[]; id: string; stale: boolean }) {
  const [parts, setParts] = useState(paths.map(() => ''));
  const [args, setArgs] = useState('["hello"]');
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const [error, setError] = useState<string | null>(null);
  const run = async (event: Event) => {
    event.preventDefault();
    setOutcome(null);
    setError(null);
    try {
      const given: unknown = JSON.parse(args || '[]');
      if (!Array.isArray(given)) throw new Error('The arguments are a JSON array.');
      const headers = { 'x-ms-documentdb-partitionkey': headerJson(parts.map(parseKeyPart)), 'x-ms-documentdb-script-enable-logging': 'true' };
      const answer = await post<unknown>(containerPath(place, 'sprocs', id), given, { headers });
      setOutcome({
        result: JSON.stringify(answer.body, null, 2),
        log: decodeURIComponent(answer.headers.get('x-ms-documentdb-script-log-results') ?? ''),
        charge: answer.charge,
        ms: answer.ms,
      });
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  return (
    <form class="run-box" onSubmit={run}>
      <div class="row">
        <Icon name="play" />
        {paths.map((path, at) => (
          <input key={path} class="code short" aria-label={`Partition key ${path}`} placeholder={path} value={parts[at]} onInput={(event) => setParts(parts.map((part, index) => (index === at ? event.currentTarget.value : part)))} />
        ))}
        <input class="code grow" aria-label="Arguments as a JSON array" value={args} onInput={(event) => setArgs(event.currentTarget.value)} />
        <Button type="submit" icon="play" disabled={stale}>
          {stale ? 'Save first' : 'Run'}
        </Button>
      </div>
      {error && <Notice kind="error">{error}</Notice>}
      {outcome && (
        <div class="outcome" role="status">
          <p class="muted">
            {format.units(outcome.charge)} RU, {format.duration(outcome.ms)}
          </p>
          <pre>{outcome.result}</pre>
          {outcome.log && (
            <>
              <p class="muted">Log</p>
              <pre>{outcome.log}</pre>
            </>
          )}
        </div>
      )}
    </form>
  );
}
