// Container settings: throughput, policies, synthetic key; and deletion.
import { useEffect, useState } from 'preact/hooks';
import { SYSTEM_PROPERTIES, deleteContainer, readOffer, replaceContainer, replaceOffer } from '../api/calls';
import { ApiError, get, post } from '../api/client';
import { Editor } from '../editor/editor';
import { refreshContainers } from '../state/resources';
import { go } from '../state/route';
import { isAdmin } from '../state/session';
import * as format from '../ui/format';
import { Button, Confirm, Field, Notice, Spinner, Tabs, say, useLoaded } from '../ui/parts';
import type { ContainerProps } from './container';
import { type Throughput, ThroughputField, throughputOf } from './throughput-field';

/** Parts of the definition that can be replaced, each an editor of its own. */
const PARTS = [
  { id: 'indexingPolicy', title: 'Indexing', hint: 'Which paths are indexed, and how. The server checks it by the rules that queries rely on, then builds the new index beside the old one.' },
  { id: 'vectorEmbeddingPolicy', title: 'Vectors', hint: 'Paths that hold vectors: their type, dimensions and distance.' },
  { id: 'fullTextPolicy', title: 'Full text', hint: 'Paths whose words are indexed, and their language.' },
  { id: 'computedProperties', title: 'Computed', hint: 'Properties that queries compute: a list of names and queries.' },
  { id: 'conflictResolutionPolicy', title: 'Conflicts', hint: 'Which write wins where several regions take writes.' },
  { id: 'changeFeedPolicy', title: 'Change feed', hint: 'For how many minutes all versions and deletes are kept: {"retentionDuration": 10}.' },
  { id: 'definition', title: 'All of it', hint: 'The whole definition. The partition key and unique keys stay as they are.' },
] as const;

const TEMPLATES: { title: string; policy: unknown }[] = [
  { title: 'Everything', policy: { indexingMode: 'consistent', automatic: true, includedPaths: [{ path: '/*' }], excludedPaths: [{ path: '/"_etag"/?' }] } },
  { title: 'Only what is named', policy: { indexingMode: 'consistent', automatic: true, includedPaths: [{ path: '/name/?' }], excludedPaths: [{ path: '/*' }] } },
  { title: 'Nothing', policy: { indexingMode: 'none', automatic: false } },
];

export function SettingsPage({ place, definition, reload }: ContainerProps) {
  const [deleting, setDeleting] = useState(false);
  return (
    <div class="scrolls settings">
      {isAdmin() && <Scale rid={definition._rid} onChanged={reload} what="container" />}
      <Lifetime place={place} definition={definition} reload={reload} />
      <Policies place={place} definition={definition} reload={reload} />
      {isAdmin() && <Synthetic place={place} />}
      <section class="card stack">
        <h2>Immutable settings</h2>
        <dl class="pairs">
          <dt>Partition key</dt>
          <dd class="code">{definition.partitionKey.paths.join(', ')}</dd>
          <dt>Kind</dt>
          <dd>
            {definition.partitionKey.kind}, version {definition.partitionKey.version ?? 1}
          </dd>
          <dt>Unique keys</dt>
          <dd class="code">{definition.uniqueKeyPolicy?.uniqueKeys.map((key) => key.paths.join(' + ')).join('; ') || 'none'}</dd>
          <dt>RID</dt>
          <dd class="code">{definition._rid}</dd>
          <dt>Changed</dt>
          <dd>{format.dateTime(definition._ts)}</dd>
        </dl>
      </section>
      <section class="card stack danger-zone">
        <h2>Delete the container</h2>
        <p class="muted">Deletes all of its items, scripts and settings.</p>
        <div>
          <Button kind="danger" icon="trash" onClick={() => setDeleting(true)}>
            Delete {place.container}…
          </Button>
        </div>
      </section>
      {deleting && (
        <Confirm
          title={`Delete ${place.container}?`}
          text={<p>This cannot be undone.</p>}
          typed={place.container}
          action="Delete the container"
          onClose={() => setDeleting(false)}
          onConfirm={async () => {
            await deleteContainer(place);
            await refreshContainers(place.database);
            say(`The container ${place.container} was deleted.`);
            go({ page: 'database', database: place.database });
          }}
        />
      )}
    </div>
  );
}

/** The throughput of a container or database. */
export function Scale({ rid, what, onChanged }: { rid: string; what: 'container' | 'database'; onChanged: () => void }) {
  const { value: offer, reload } = useLoaded(() => readOffer(rid), [rid]);
  const [wanted, setWanted] = useState<Throughput | null>(null);
  const [error, setError] = useState<string | null>(null);
  const current = offer ? throughputOf(offer) : null;
  useEffect(() => setWanted(current), [offer?._etag]);
  const save = async () => {
    setError(null);
    try {
      let now = offer!;
      if (wanted!.mode !== current!.mode) {
        const headers: Record<string, string> = wanted!.mode === 'autoscale' ? { 'x-ms-cosmos-migrate-offer-to-autopilot': 'true' } : { 'x-ms-cosmos-migrate-offer-to-manual-throughput': 'true' };
        now = (await replaceOffer(now, headers)).body;
      }
      const content = wanted!.mode === 'autoscale' ? { offerThroughput: now.content.offerThroughput, offerAutopilotSettings: { maxThroughput: wanted!.units } } : { offerThroughput: wanted!.units };
      await replaceOffer({ ...now, content });
      say('The throughput was changed.');
      reload();
      onChanged();
    } catch (failure) {
      setError((failure as Error).message);
      reload();
    }
  };
  return (
    <section class="card stack">
      <h2>Scale</h2>
      {!current || !wanted ? (
        <p class="muted">{what === 'container' ? 'The container shares the throughput of its database, or has no limit.' : 'The database has no throughput of its own: each container brings its own.'}</p>
      ) : (
        <>
          <ThroughputField value={wanted} onChange={setWanted} />
          {error && <Notice kind="error">{error}</Notice>}
          <div>
            <Button kind="primary" disabled={wanted.mode === current.mode && wanted.units === current.units} onClick={() => void save()}>
              Save
            </Button>
          </div>
        </>
      )}
    </section>
  );
}

function Lifetime({ place, definition, reload }: Pick<ContainerProps, 'place' | 'definition' | 'reload'>) {
  const before = definition.defaultTtl === undefined ? 'off' : definition.defaultTtl === -1 ? 'own' : 'all';
  const [mode, setMode] = useState(before);
  const [seconds, setSeconds] = useState(String(definition.defaultTtl && definition.defaultTtl > 0 ? definition.defaultTtl : 86_400));
  const [error, setError] = useState<string | null>(null);
  const save = async () => {
    const { defaultTtl: _, ...rest } = definition;
    const changed = mode === 'off' ? rest : { ...rest, defaultTtl: mode === 'own' ? -1 : Number(seconds) };
    try {
      await replaceContainer(place, changed);
      say('The time to live was changed.');
      setError(null);
      reload();
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  return (
    <section class="card stack">
      <h2>Time to live</h2>
      <fieldset class="field">
        <legend class="visually-hidden">Which items expire</legend>
        <div class="segments">
          {[
            ['off', 'Never expire'],
            ['own', 'Only those with a ttl'],
            ['all', 'All, after a while'],
          ].map(([id, title]) => (
            <label key={id}>
              <input type="radio" name="ttl" checked={mode === id} onChange={() => setMode(id as typeof mode)} />
              <span>{title}</span>
            </label>
          ))}
        </div>
      </fieldset>
      {mode === 'all' && (
        <Field label="Seconds" hint={`That is ${format.duration(Number(seconds) * 1000)}. An item’s own ttl takes precedence.`}>
          {(id, hint) => <input id={id} aria-describedby={hint} type="number" min={1} value={seconds} onInput={(event) => setSeconds(event.currentTarget.value)} />}
        </Field>
      )}
      {error && <Notice kind="error">{error}</Notice>}
      <div>
        <Button disabled={mode === before && (mode !== 'all' || Number(seconds) === definition.defaultTtl)} onClick={() => void save()}>
          Save
        </Button>
      </div>
    </section>
  );
}

function Policies({ place, definition, reload }: Pick<ContainerProps, 'place' | 'definition' | 'reload'>) {
  const [part, setPart] = useState<(typeof PARTS)[number]['id']>('indexingPolicy');
  const own = Object.fromEntries(Object.entries(definition).filter(([name]) => !SYSTEM_PROPERTIES.includes(name) && !['_docs', '_sprocs', '_triggers', '_udfs', '_conflicts'].includes(name)));
  const stored = JSON.stringify(part === 'definition' ? own : (definition[part] ?? null), null, 2);
  const [text, setText] = useState(stored);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    setText(stored);
    setError(null);
  }, [part, stored]);
  const save = async () => {
    setBusy(true);
    setError(null);
    try {
      const value: unknown = JSON.parse(text);
      const { [part]: _, ...rest } = own;
      await replaceContainer(place, part === 'definition' ? value : value === null ? rest : { ...rest, [part]: value });
      say('The definition was changed.');
      reload();
    } catch (failure) {
      setError(failure instanceof ApiError ? failure.message : `This is not valid JSON: ${(failure as Error).message}`);
    }
    setBusy(false);
  };
  const chosen = PARTS.find((one) => one.id === part)!;
  return (
    <section class="card stack">
      <h2>Policies</h2>
      <Tabs label="Policy" tabs={PARTS.map(({ id, title }) => ({ id, title }))} value={part} onChange={setPart} />
      <p class="muted">{chosen.hint}</p>
      {part === 'indexingPolicy' && (
        <div class="row">
          <span class="muted">Start from</span>
          {TEMPLATES.map((template) => (
            <Button key={template.title} class="small" onClick={() => setText(JSON.stringify(template.policy, null, 2))}>
              {template.title}
            </Button>
          ))}
        </div>
      )}
      <div class="edit-box">
        <Editor language="json" label={chosen.title} value={text} onChange={setText} onSave={() => void save()} document={part} />
      </div>
      {error && <Notice kind="error">{error}</Notice>}
      <div class="row">
        <Button kind="primary" disabled={busy || text === stored} onClick={() => void save()}>
          Save
        </Button>
        {text !== stored && <Button onClick={() => setText(stored)}>Undo</Button>}
      </div>
    </section>
  );
}

/** A key that the server builds from other properties. */
function Synthetic({ place }: { place: ContainerProps['place'] }) {
  const query = `database=${encodeURIComponent(place.database)}&container=${encodeURIComponent(place.container)}`;
  const { value, reload } = useLoaded(
    () =>
      get<{ definition: unknown; routesQueries: boolean; keyPaths: string[] }>(`/_orrery/synthetic?${query}`).then(
        (answer) => answer.body,
        () => null,
      ),
    [],
  );
  const [text, setText] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);
  const save = async (definition: unknown) => {
    try {
      await post('/_orrery/synthetic', { ...place, definition });
      say(definition === null ? 'The synthetic key was removed.' : 'The synthetic key was set.');
      setText(null);
      setError(null);
      reload();
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  const set = () => {
    try {
      void save(JSON.parse(text!));
    } catch (failure) {
      setError(`This is not valid JSON: ${(failure as Error).message}`);
    }
  };
  return (
    <section class="card stack">
      <h2>Synthetic key</h2>
      <p class="muted">A definition from which the server builds the partition key of new items, and by which it routes queries that filter by the source properties.</p>
      {value && (
        <Notice kind={value.routesQueries ? 'good' : 'info'}>
          Set for <code>{value.keyPaths.join(', ')}</code>. {value.routesQueries ? 'Queries are routed by it.' : 'Queries are routed by it once all items are checked.'}
        </Notice>
      )}
      {text === null ? (
        <div class="row">
          <Button onClick={() => setText(JSON.stringify(value?.definition ?? EXAMPLE_KEY, null, 2))}>{value ? 'Change' : 'Define one'}</Button>
          {value && (
            <Button kind="danger" onClick={() => void save(null)}>
              Remove
            </Button>
          )}
        </div>
      ) : (
        <>
          <div class="edit-box">
            <Editor language="json" label="Synthetic key definition" value={text} onChange={setText} />
          </div>
          <div class="row">
            <Button kind="primary" onClick={set}>
              Set
            </Button>
            <Button onClick={() => setText(null)}>Cancel</Button>
          </div>
        </>
      )}
      {error && <Notice kind="error">{error}</Notice>}
      {!value && value !== null && <Spinner />}
    </section>
  );
}

const EXAMPLE_KEY = { format: 1, kind: 'concatenate', parts: ['/deviceId', '/date'] };
