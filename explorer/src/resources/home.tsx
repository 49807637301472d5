// The home page: what is here, or how to start.
import { useState } from 'preact/hooks';
import { WELL_KNOWN_KEY } from '../api/sign';
import { databases, openDatabase, refreshDatabases, refreshContainers } from '../state/resources';
import { go, handover, hrefOf } from '../state/route';
import { isAdmin, session } from '../state/session';
import { Icon } from '../ui/icons';
import { Button, Field, Notice, Spinner, say } from '../ui/parts';
import { SAMPLE, SAMPLE_QUERY, makeSample } from './sample';
import { creating } from './tree';

export function Home() {
  const [share, setShare] = useState<number | null>(null);
  const [error, setError] = useState<string | null>(null);
  const known = databases.value;
  const who = session.value;
  const sample = async () => {
    setShare(0);
    try {
      await makeSample(setShare);
      await refreshDatabases();
      await openDatabase(SAMPLE.database);
      await refreshContainers(SAMPLE.database);
      handover.value = { query: SAMPLE_QUERY };
      go({ page: 'container', ...SAMPLE, tab: 'query' });
    } catch (failure) {
      setError((failure as Error).message);
    }
    setShare(null);
  };
  if (known === null) {
    return (
      <div class="page">
        <Spinner />
      </div>
    );
  }
  if (!isAdmin()) return <OpenByName />;
  const copy = (text: string) => navigator.clipboard.writeText(text).then(() => say('Copied.'));
  const wellKnown = who.state === 'in' && who.wellKnown;
  const containers = known.reduce((sum, node) => sum + (node.containers?.length ?? 0), 0);
  return (
    <div class="page home">
      <div class="home-inner">
        <h1>{known.length === 0 ? 'A server with nothing in it yet' : 'What is here'}</h1>
        {known.length === 0 && <p class="lead">Begin with data that is ready, or make a container of your own.</p>}
        <div class="cards">
          <section class="card stack">
            <h2>Sample data</h2>
            <p class="muted">Two thousand orders of a shop for astronomers, and a first query with a chart.</p>
            {share === null ? (
              <Button kind={known.length === 0 ? 'primary' : 'plain'} icon="play" onClick={sample}>
                {known.some((node) => node.resource.id === SAMPLE.database) ? 'Load it again' : 'Load the sample'}
              </Button>
            ) : (
              <progress aria-label="Loading the sample" value={share} />
            )}
            {error && <Notice kind="error">{error}</Notice>}
          </section>
          <section class="card stack">
            <h2>Your own</h2>
            <p class="muted">A container holds items, spread over partitions by their key.</p>
            <div class="row">
              <Button icon="plus" onClick={() => (creating.value = { what: 'container', database: null })}>
                New container
              </Button>
              <Button kind="quiet" icon="plus" onClick={() => (creating.value = { what: 'database' })}>
                New database
              </Button>
            </div>
          </section>
          <section class="card stack">
            <h2>From your code</h2>
            <p class="muted">Every Cosmos DB SDK connects with these.</p>
            <dl class="pairs">
              <dt>Endpoint</dt>
              <dd>
                <code>{location.origin}/</code>
                <Button icon="copy" kind="quiet" label="Copy the endpoint" onClick={() => copy(`${location.origin}/`)} />
              </dd>
              <dt>Key</dt>
              <dd>
                {wellKnown ? (
                  <>
                    <code>{WELL_KNOWN_KEY.slice(0, 18)}…</code>
                    <Button icon="copy" kind="quiet" label="Copy the key" onClick={() => copy(WELL_KNOWN_KEY)} />
                  </>
                ) : (
                  <span class="muted">the one you signed in with</span>
                )}
              </dd>
            </dl>
          </section>
        </div>
        {known.length > 0 && (
          <section>
            <h2>
              {known.length} {known.length === 1 ? 'database' : 'databases'}
              {containers > 0 && <span class="muted">, {containers} {containers === 1 ? 'container' : 'containers'}</span>}
            </h2>
            <div class="cards small">
              {known.slice(0, 24).map((node) => (
                <article key={node.resource.id} class="card">
                  <h3>
                    <Icon name="database" /> <a href={hrefOf({ page: 'database', database: node.resource.id })}>{node.resource.id}</a>
                  </h3>
                  <ul class="links">
                    {(node.containers ?? []).slice(0, 8).map((container) => (
                      <li key={container.id}>
                        <a href={hrefOf({ page: 'container', database: node.resource.id, container: container.id, tab: 'items' })}>{container.id}</a>
                        <span class="muted code">{container.partitionKey?.paths.join(', ')}</span>
                      </li>
                    ))}
                    {(node.containers?.length ?? 0) > 8 && <li class="muted">and {node.containers!.length - 8} more</li>}
                  </ul>
                </article>
              ))}
            </div>
          </section>
        )}
      </div>
    </div>
  );
}

/** A resource token gives access to a container, but cannot list containers. */
function OpenByName() {
  const [database, setDatabase] = useState('');
  const [container, setContainer] = useState('');
  return (
    <div class="page home">
      <div class="home-inner">
        <h1>Open a container</h1>
        <p class="lead">A resource token gives access to one container, but cannot list containers.</p>
        <form
          class="card stack narrow-form"
          onSubmit={(event) => {
            event.preventDefault();
            go({ page: 'container', database, container, tab: 'items' });
          }}
        >
          <Field label="Database">{(id) => <input id={id} required value={database} onInput={(event) => setDatabase(event.currentTarget.value)} />}</Field>
          <Field label="Container">{(id) => <input id={id} required value={container} onInput={(event) => setContainer(event.currentTarget.value)} />}</Field>
          <div>
            <Button kind="primary" type="submit">
              Open
            </Button>
          </div>
        </form>
      </div>
    </div>
  );
}
