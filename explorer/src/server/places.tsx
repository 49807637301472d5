// What the server does in the background, and where its data is: regions, and the store's servers with their standbys.
import type { Region } from '../api/calls';
import type { ServerInfo, StoreInfo } from '../api/shapes';
import { hrefOf } from '../state/route';
import * as format from '../ui/format';
import { Notice, Table } from '../ui/parts';

const KINDS: Record<string, string> = {
  split: 'Split',
  merge: 'Merge',
  scale: 'Scale',
  index: 'Index build',
  'index cleanup': 'Index cleanup',
  repartition: 'Repartitioning',
  'delete by key': 'Delete by key',
};

/** Where to watch a kind of work. */
const TAB_OF: Record<string, 'partitions' | 'settings' | 'advisor' | 'items'> = { split: 'partitions', merge: 'partitions', scale: 'partitions', repartition: 'advisor', 'delete by key': 'items' };

export function Background({ tasks }: { tasks: ServerInfo['background'] }) {
  return (
    <section class="card stack" aria-label="Background work">
      <h2>Background work</h2>
      {tasks.length === 0 ? (
        <p class="muted">Nothing is running.</p>
      ) : (
        <Table label="Tasks" columns={['Work', 'Container', 'Details', 'Progress']}>
          {tasks.map((task) => {
            const [, database, , container] = task.container.split('/');
            return (
              <tr key={`${task.kind} ${task.container}`}>
                <td>{KINDS[task.kind] ?? task.kind}</td>
                <td>
                  <a href={hrefOf({ page: 'container', database: database!, container: container!, tab: TAB_OF[task.kind] ?? 'settings' })}>
                    {database}/{container}
                  </a>
                </td>
                <td>{task.detail}</td>
                <td>{task.percent === null ? <span class="muted">running</span> : <progress aria-label={`${KINDS[task.kind] ?? task.kind} of ${container}`} max={100} value={task.percent} title={`${task.percent} %`} />}</td>
              </tr>
            );
          })}
        </Table>
      )}
    </section>
  );
}

export function Regions({ regions, store }: { regions: Region[]; store: StoreInfo | null }) {
  return (
    <section class="card stack" aria-label="Regions and standbys">
      <h2>Regions and standbys</h2>
      <ul class="bullets">
        {regions.map((region) => (
          <li key={region.name}>
            <strong>{region.name}</strong>, {region.writes ? 'reads and writes' : 'reads'} at <code>{region.endpoint}</code>
          </li>
        ))}
      </ul>
      {store && store.nodes.length === 0 && <p class="muted">The {store.store} store is part of this process: it has no standbys.</p>}
      {store?.nodes.map((node) => (
        <div key={node.name}>
          <h3>
            <code>{node.name}</code>
          </h3>
          {node.failure && <Notice kind="error">Unreachable: {node.failure}</Notice>}
          <p class="muted">
            {format.plural(node.partitions.length, 'partition')}, {format.bytes(node.tableBytes)} of tables, {format.bytes(node.indexBytes)} of indexes
          </p>
          {node.standbys.length === 0 ? (
            <p class="muted">No standby: if this server is lost, its data is restored from a backup.</p>
          ) : (
            <Table label={`Standbys of ${node.name}`} columns={['Standby', 'State', { numeric: 'Behind' }]}>
              {node.standbys.map((standby) => (
                <tr key={standby.name}>
                  <td>{standby.name || 'unnamed'}</td>
                  <td>{standby.state ?? 'hidden from this user (grant pg_read_all_stats)'}</td>
                  <td class="numeric">
                    {standby.behindBytes === null ? '' : format.bytes(standby.behindBytes)}
                    {standby.behindMilliseconds !== null && `, ${format.duration(standby.behindMilliseconds)}`}
                  </td>
                </tr>
              ))}
            </Table>
          )}
        </div>
      ))}
    </section>
  );
}
