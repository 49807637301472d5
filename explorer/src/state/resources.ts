// The databases and containers that have been loaded.
import { signal } from '@preact/signals';
import { type ContainerDefinition, type Place, type Resource, type Usage, listContainers, listDatabases, readContainer, usageOf } from '../api/calls';
import { isAdmin } from './session';

export interface DatabaseNode {
  resource: Resource;
  /** Null until loaded. */
  containers: ContainerDefinition[] | null;
  open: boolean;
}

export const databases = signal<DatabaseNode[] | null>(null);
export const resourcesError = signal<string | null>(null);

export async function refreshDatabases(): Promise<void> {
  if (!isAdmin()) {
    // Nor what there is.
    databases.value = [];
    return;
  }
  try {
    const known = new Map((databases.value ?? []).map((node) => [node.resource.id, node]));
    const listed = await listDatabases();
    listed.sort((a, b) => a.id.localeCompare(b.id));
    databases.value = listed.map((resource) => known.get(resource.id) ?? { resource, containers: null, open: false });
    resourcesError.value = null;
    // With few databases, expand all of them.
    if (known.size === 0 && listed.length <= 8) await Promise.all(listed.map((database) => openDatabase(database.id)));
    else await Promise.all([...known.values()].filter((node) => node.containers).map((node) => refreshContainers(node.resource.id)));
  } catch (error) {
    resourcesError.value = (error as Error).message;
    databases.value ??= [];
  }
}

function change(id: string, part: Partial<DatabaseNode>): void {
  databases.value = (databases.value ?? []).map((node) => (node.resource.id === id ? { ...node, ...part } : node));
}

export async function refreshContainers(database: string): Promise<void> {
  const listed = await listContainers(database).catch(() => null);
  if (!listed) return;
  listed.sort((a, b) => a.id.localeCompare(b.id));
  change(database, { containers: listed });
}

export async function openDatabase(database: string): Promise<void> {
  change(database, { open: true });
  if (!databases.value?.find((node) => node.resource.id === database)?.containers) await refreshContainers(database);
}

export const closeDatabase = (database: string): void => change(database, { open: false });

/** The definition and use of a container, read anew. */
export async function lookAt(place: Place): Promise<{ definition: ContainerDefinition; usage: Usage | null; progress: number | null }> {
  // Resource tokens cannot read usage.
  const answer = await readContainer(place, isAdmin());
  const progress = answer.headers.get('x-ms-documentdb-collection-index-transformation-progress');
  return { definition: answer.body, usage: isAdmin() ? usageOf(answer.headers) : null, progress: progress === null ? null : Number(progress) };
}
