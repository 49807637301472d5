// A database: its containers, throughput, users and their permissions.
import { useEffect, useState } from 'preact/hooks';
import { type ContainerDefinition, type Offer, type Resource, type Usage, deleteDatabase, listOf, listOffers } from '../api/calls';
import { call, path, post } from '../api/client';
import { databases, lookAt, openDatabase, refreshDatabases } from '../state/resources';
import { go, hrefOf } from '../state/route';
import { isAdmin } from '../state/session';
import * as format from '../ui/format';
import { Button, Confirm, Dialog, Empty, Field, Notice, Spinner, say, useLoaded } from '../ui/parts';
import { Scale } from './settings';
import { throughputText } from './throughput-field';
import { creating } from './tree';

/** Containers whose sizes are read at once. */
const LOOKED_AT = 50;

export function DatabasePage({ database }: { database: string }) {
  const node = databases.value?.find((one) => one.resource.id === database);
  const [deleting, setDeleting] = useState(false);
  const [shown, setShown] = useState(LOOKED_AT);
  const offers = useLoaded(async () => new Map(isAdmin() ? (await listOffers()).map((offer) => [offer.offerResourceId, offer]) : []), [node?.containers?.length]);
  useEffect(() => {
    if (node && !node.containers) void openDatabase(database);
  }, [node === undefined]);
  if (databases.value && !node) {
    return (
      <div class="page scrolls">
        <Notice kind="error">There is no database called {database}.</Notice>
      </div>
    );
  }
  if (!node?.containers) {
    return (
      <div class="page scrolls">
        <Spinner />
      </div>
    );
  }
  return (
    <div class="page scrolls">
      <div class="section-head">
        <h1>{database}</h1>
        <Button kind="primary" icon="plus" onClick={() => (creating.value = { what: 'container', database })}>
          New container
        </Button>
      </div>
      <section class="card">
        <h2>{format.plural(node.containers.length, 'container')}</h2>
        {node.containers.length === 0 ? (
          <Empty title="No containers yet." />
        ) : (
          <div class="table-box" role="region" aria-label="Table of containers" tabIndex={0}>
            <table class="table">
              <thead>
                <tr>
                  <th>Name</th>
                  <th>Partition key</th>
                  <th class="numeric">Items</th>
                  <th class="numeric">Size</th>
                  {isAdmin() && <th class="numeric">Throughput</th>}
                </tr>
              </thead>
              <tbody>
                {node.containers.slice(0, shown).map((container) => (
                  <ContainerRow key={container._rid} database={database} container={container} throughput={throughputIn(offers.value, container._rid, node.resource._rid)} />
                ))}
              </tbody>
            </table>
            {node.containers.length > shown && (
              <Button kind="quiet" onClick={() => setShown(shown + 200)}>
                Show more of {format.count(node.containers.length)}
              </Button>
            )}
          </div>
        )}
      </section>
      {isAdmin() && <Scale rid={node.resource._rid} what="database" onChanged={offers.reload} />}
      <Users database={database} containers={node.containers} />
      <section class="card stack danger-zone">
        <h2>Delete the database</h2>
        <p class="muted">With all of its containers.</p>
        <div>
          <Button kind="danger" icon="trash" onClick={() => setDeleting(true)}>
            Delete {database}…
          </Button>
        </div>
      </section>
      {deleting && (
        <Confirm
          title={`Delete ${database}?`}
          text={<p>{format.plural(node.containers.length, 'container')} and all of their items will be deleted. This cannot be undone.</p>}
          typed={database}
          action="Delete the database"
          onClose={() => setDeleting(false)}
          onConfirm={async () => {
            await deleteDatabase(database);
            await refreshDatabases();
            say(`The database ${database} was deleted.`);
            go({ page: 'home' });
          }}
        />
      )}
    </div>
  );
}

/** What a container has of its own, or that it shares its database's. */
function throughputIn(offers: Map<string, Offer> | null, container: string, database: string): string {
  const own = offers?.get(container);
  if (own) return throughputText(own);
  return offers === null ? '…' : offers.has(database) ? 'shared' : 'no limit';
}

function ContainerRow({ database, container, throughput }: { database: string; container: ContainerDefinition; throughput: string }) {
  const [usage, setUsage] = useState<Usage | null>(null);
  useEffect(() => {
    lookAt({ database, container: container.id }).then(
      (found) => setUsage(found.usage),
      () => {},
    );
  }, []);
  return (
    <tr>
      <td>
        <a href={hrefOf({ page: 'container', database, container: container.id, tab: 'items' })}>{container.id}</a>
      </td>
      <td class="code">{container.partitionKey?.paths.join(', ')}</td>
      <td class="numeric">{usage ? format.count(usage.items) : '…'}</td>
      <td class="numeric">{usage ? format.bytes(usage.bytes) : '…'}</td>
      {isAdmin() && <td class="numeric">{throughput}</td>}
    </tr>
  );
}

interface Permission extends Resource {
  permissionMode: 'Read' | 'All';
  resource: string;
  resourcePartitionKey?: unknown[];
  _token: string;
}

function Users({ database, containers }: { database: string; containers: ContainerDefinition[] }) {
  const { value: users, error, reload } = useLoaded(() => listOf<Resource>(path('dbs', database, 'users'), 'Users'), []);
  const [name, setName] = useState('');
  const [open, setOpen] = useState<string | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const add = async (event: Event) => {
    event.preventDefault();
    try {
      await post(path('dbs', database, 'users'), { id: name });
      setName('');
      setFailure(null);
      reload();
    } catch (problem) {
      setFailure((problem as Error).message);
    }
  };
  return (
    <section class="card stack">
      <h2>Users and permissions</h2>
      <p class="muted">Each permission yields a resource token, for applications that must not have the account key.</p>
      {users && users.length > 0 && (
        <ul class="plain-list">
          {users.map((user) => (
            <li key={user._rid}>
              <button type="button" class="link" onClick={() => setOpen(user.id)}>
                {user.id}
              </button>
            </li>
          ))}
        </ul>
      )}
      <form class="row" onSubmit={add}>
        <input class="short" aria-label="Name of a new user" placeholder="Name of a new user" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        <Button type="submit" icon="plus" disabled={!name}>
          Add user
        </Button>
      </form>
      {(error ?? failure) && <Notice kind="error">{error ?? failure}</Notice>}
      {open !== null && (
        <Permissions
          database={database}
          user={open}
          containers={containers}
          onClose={() => {
            setOpen(null);
            reload();
          }}
        />
      )}
    </section>
  );
}

function Permissions({ database, user, containers, onClose }: { database: string; user: string; containers: ContainerDefinition[]; onClose: () => void }) {
  const at = path('dbs', database, 'users', user, 'permissions');
  const { value, error, reload } = useLoaded(() => listOf<Permission>(at, 'Permissions'), []);
  const [container, setContainer] = useState(containers[0]?.id ?? '');
  const [mode, setMode] = useState<'Read' | 'All'>('Read');
  const [failure, setFailure] = useState<string | null>(null);
  const act = async (work: Promise<unknown>) => {
    try {
      await work;
      setFailure(null);
      reload();
    } catch (problem) {
      setFailure((problem as Error).message);
    }
  };
  return (
    <Dialog
      title={`Permissions of ${user}`}
      wide
      onClose={onClose}
      footer={
        <Button kind="danger" icon="trash" onClick={() => void act(call('DELETE', path('dbs', database, 'users', user))).then(onClose)}>
          Delete the user
        </Button>
      }
    >
      <div class="stack">
        {value?.length === 0 && <p class="muted">None yet.</p>}
        {value && value.length > 0 && (
          <table class="table">
            <thead>
              <tr>
                <th>Name</th>
                <th>On</th>
                <th>May</th>
                <th>Token</th>
                <th>
                  <span class="visually-hidden">Delete</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {value.map((permission) => (
                <tr key={permission._rid}>
                  <td>{permission.id}</td>
                  <td class="code">{permission.resource}</td>
                  <td>{permission.permissionMode === 'All' ? 'read and write' : 'read'}</td>
                  <td>
                    <Button icon="copy" class="small" onClick={() => void navigator.clipboard.writeText(permission._token).then(() => say('The token was copied. It is valid for an hour.'))}>
                      Copy
                    </Button>
                  </td>
                  <td>
                    <Button icon="trash" kind="quiet" label={`Delete the permission ${permission.id}`} onClick={() => void act(call('DELETE', `${at}/${encodeURIComponent(permission.id)}`))} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        <form
          class="row"
          onSubmit={(event) => {
            event.preventDefault();
            void act(post(at, { id: `${container}-${mode.toLowerCase()}`, permissionMode: mode, resource: `dbs/${database}/colls/${container}` }));
          }}
        >
          <Field label="Container">
            {(id) => (
              <select id={id} value={container} onChange={(event) => setContainer(event.currentTarget.value)}>
                {containers.map((one) => (
                  <option key={one.id}>{one.id}</option>
                ))}
              </select>
            )}
          </Field>
          <Field label="May">
            {(id) => (
              <select id={id} value={mode} onChange={(event) => setMode(event.currentTarget.value as typeof mode)}>
                <option value="Read">read</option>
                <option value="All">read and write</option>
              </select>
            )}
          </Field>
          <Button type="submit" icon="plus" disabled={!container} class="align-end">
            Add permission
          </Button>
        </form>
        {(error ?? failure) && <Notice kind="error">{error ?? failure}</Notice>}
      </div>
    </Dialog>
  );
}
