// New databases and containers.
import { useState } from 'preact/hooks';
import { createContainer, createDatabase } from '../api/calls';
import { databases, refreshContainers, refreshDatabases, openDatabase } from '../state/resources';
import { go } from '../state/route';
import { Button, Dialog, Field, Notice, say } from '../ui/parts';
import { type Throughput, ThroughputField, throughputHeaders } from './throughput-field';

const POLICIES_EXAMPLE = '{"vectorEmbeddingPolicy": {"vectorEmbeddings": [{"path": "/v", "dataType": "float32", "distanceFunction": "cosine", "dimensions": 3}]}}';

export function NewDatabase({ onClose }: { onClose: () => void }) {
  const [id, setId] = useState('');
  const [throughput, setThroughput] = useState<Throughput>({ mode: 'none', units: 400 });
  const [error, setError] = useState<string | null>(null);
  const create = async (event: Event) => {
    event.preventDefault();
    try {
      await createDatabase(id, throughputHeaders(throughput));
      await refreshDatabases();
      await openDatabase(id);
      say(`The database ${id} was created.`);
      onClose();
      go({ page: 'database', database: id });
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  return (
    <Dialog title="New database" onClose={onClose}>
      <form class="stack" onSubmit={create}>
        <Field label="Name">{(field) => <input id={field} value={id} required autofocus autocomplete="off" onInput={(event) => setId(event.currentTarget.value)} />}</Field>
        <ThroughputField value={throughput} onChange={setThroughput} none="Per container" />
        {throughput.mode !== 'none' && <p class="hint">Its containers share these units, unless they bring their own.</p>}
        {error && <Notice kind="error">{error}</Notice>}
        <div class="row end">
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" disabled={!id}>
            Create database
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

export function NewContainer({ database, onClose }: { database: string | null; onClose: () => void }) {
  const known = databases.value ?? [];
  const [within, setWithin] = useState(database ?? known[0]?.resource.id ?? '');
  const [id, setId] = useState('');
  const [paths, setPaths] = useState(['']);
  const [uniqueKeys, setUniqueKeys] = useState('');
  const [ttl, setTtl] = useState('');
  const [policies, setPolicies] = useState('');
  const [throughput, setThroughput] = useState<Throughput>({ mode: 'manual', units: 400 });
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const slash = (path: string) => (path.startsWith('/') ? path : `/${path}`);
  const create = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    const keys = paths.map((path) => path.trim()).filter(Boolean).map(slash);
    const unique = uniqueKeys.split('\n').map((line) => line.split(',').map((path) => path.trim()).filter(Boolean).map(slash)).filter((line) => line.length > 0);
    let further: Record<string, unknown> = {};
    try {
      if (policies.trim()) further = JSON.parse(policies) as Record<string, unknown>;
    } catch (failure) {
      setError(`The policies are not valid JSON: ${(failure as Error).message}`);
      setBusy(false);
      return;
    }
    const definition = {
      ...further,
      id,
      partitionKey: { paths: keys, kind: keys.length > 1 ? 'MultiHash' : 'Hash', version: 2 },
      ...(ttl.trim() ? { defaultTtl: Number(ttl) } : {}),
      ...(unique.length ? { uniqueKeyPolicy: { uniqueKeys: unique.map((line) => ({ paths: line })) } } : {}),
    };
    try {
      if (!known.some((node) => node.resource.id === within)) {
        await createDatabase(within, {});
        await refreshDatabases();
      }
      await createContainer(within, definition, throughputHeaders(throughput));
      await openDatabase(within);
      await refreshContainers(within);
      say(`The container ${id} was created.`);
      onClose();
      go({ page: 'container', database: within, container: id, tab: 'items' });
    } catch (failure) {
      setError((failure as Error).message);
      setBusy(false);
    }
  };
  return (
    <Dialog title="New container" onClose={onClose}>
      <form class="stack" onSubmit={create}>
        <Field label="Database" hint="Created if it does not exist.">
          {(field, hint) => (
            <>
              <input id={field} aria-describedby={hint} list="known-databases" value={within} required onInput={(event) => setWithin(event.currentTarget.value)} />
              <datalist id="known-databases">
                {known.map((node) => (
                  <option key={node.resource.id} value={node.resource.id} />
                ))}
              </datalist>
            </>
          )}
        </Field>
        <Field label="Container name">{(field) => <input id={field} value={id} required autofocus autocomplete="off" onInput={(event) => setId(event.currentTarget.value)} />}</Field>
        {paths.map((path, at) => (
          <Field key={at} label={paths.length > 1 ? `Partition key, level ${at + 1}` : 'Partition key'} hint={at === 0 ? 'A property with many values that most queries filter by: /customerId. Changing it later requires repartitioning.' : undefined}>
            {(field, hint) => (
              <input id={field} aria-describedby={hint} class="code" placeholder="/customerId" value={path} required={at === 0} autocomplete="off" onInput={(event) => setPaths(paths.map((other, index) => (index === at ? event.currentTarget.value : other)))} />
            )}
          </Field>
        ))}
        {paths.length < 3 && (
          <div>
            <Button icon="plus" kind="quiet" onClick={() => setPaths([...paths, ''])}>
              Add a level
            </Button>
          </div>
        )}
        <ThroughputField value={throughput} onChange={setThroughput} none="Database’s" />
        <details>
          <summary>More</summary>
          <div class="stack">
            <Field label="Time to live, in seconds" hint="Empty: items never expire. -1: only items with their own ttl expire.">
              {(field, hint) => <input id={field} aria-describedby={hint} inputMode="numeric" value={ttl} onInput={(event) => setTtl(event.currentTarget.value)} />}
            </Field>
            <Field label="Unique keys" hint="One set of paths per line, separated by commas. They cannot be changed later.">
              {(field, hint) => <textarea id={field} aria-describedby={hint} class="code" rows={2} placeholder="/email" value={uniqueKeys} onInput={(event) => setUniqueKeys(event.currentTarget.value)} />}
            </Field>
            <Field label="Policies as JSON" hint="Members of the definition that are set from the start: indexingPolicy, vectorEmbeddingPolicy, fullTextPolicy, computedProperties, conflictResolutionPolicy, changeFeedPolicy.">
              {(field, hint) => <textarea id={field} aria-describedby={hint} class="code" rows={4} placeholder={POLICIES_EXAMPLE} value={policies} onInput={(event) => setPolicies(event.currentTarget.value)} />}
            </Field>
          </div>
        </details>
        {error && <Notice kind="error">{error}</Notice>}
        <div class="row end">
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" disabled={busy}>
            Create container
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
