// The requests of the page.
import { type Answer, call, get, path, post } from './client';
import type { ContainerView, Explained, ExplainedCharge, Heat, PartitionKeys, ServerInfo, StoreInfo, Throttle } from './shapes';

/** A container by its names. */
export interface Place {
  database: string;
  container: string;
}

/** The values of a partition key, one for each path; `{}` stands for an absent one. */
export type Key = unknown[];

export interface Resource {
  id: string;
  _rid: string;
  _self: string;
  _etag: string;
  _ts: number;
}

export interface ContainerDefinition extends Resource {
  partitionKey: { paths: string[]; kind: string; version?: number };
  indexingPolicy: Record<string, unknown>;
  defaultTtl?: number;
  uniqueKeyPolicy?: { uniqueKeys: { paths: string[] }[] };
  [name: string]: unknown;
}

export type Item = { id: string; _etag?: string; _ts?: number; _rid?: string; _self?: string } & Record<string, unknown>;

export const SYSTEM_PROPERTIES = ['_rid', '_self', '_etag', '_attachments', '_ts', '_lsn'];

const container = (place: Place, ...rest: string[]) => path('dbs', place.database, 'colls', place.container, ...rest);

/** All pages of a feed. */
async function all<T>(at: string, property: string, signal?: AbortSignal): Promise<T[]> {
  const found: T[] = [];
  let continuation: string | null = null;
  do {
    const headers: Record<string, string> = { 'x-ms-max-item-count': '1000' };
    if (continuation) headers['x-ms-continuation'] = continuation;
    const page: Answer<Record<string, T[]>> = await get(at, { headers, signal });
    found.push(...(page.body[property] ?? []));
    continuation = page.headers.get('x-ms-continuation');
  } while (continuation);
  return found;
}

export const listDatabases = () => all<Resource>('/dbs', 'Databases');
export const createDatabase = (id: string, headers: Record<string, string>) => post<Resource>('/dbs', { id }, { headers });
export const deleteDatabase = (id: string) => call<null>('DELETE', path('dbs', id));

export const listContainers = (database: string) => all<ContainerDefinition>(path('dbs', database, 'colls'), 'DocumentCollections');
export const createContainer = (database: string, definition: unknown, headers: Record<string, string>) =>
  post<ContainerDefinition>(path('dbs', database, 'colls'), definition, { headers });
export const readContainer = (place: Place, withUsage: boolean) =>
  get<ContainerDefinition>(container(place), { headers: withUsage ? { 'x-ms-documentdb-populatequotainfo': 'true' } : {} });
export const replaceContainer = (place: Place, definition: unknown) => call<ContainerDefinition>('PUT', container(place), { body: definition });
export const deleteContainer = (place: Place) => call<null>('DELETE', container(place));

export interface Usage {
  items: number;
  bytes: number;
}

/** Parses the container usage header. */
export function usageOf(headers: Headers): Usage {
  const parts = Object.fromEntries((headers.get('x-ms-resource-usage') ?? '').split(';').map((pair) => pair.split('=')));
  return { items: Number(parts.documentsCount ?? 0), bytes: Number(parts.collectionSize ?? parts.documentsSize ?? 0) * 1024 };
}

export interface Offer extends Resource {
  offerResourceId: string;
  content: {
    offerThroughput: number;
    offerAutopilotSettings?: { maxThroughput: number };
    offerMinimumThroughputParameters?: { maxThroughputEverProvisioned?: number };
  };
}

/** The offer of a database or container, by its RID; none if it has no throughput of its own. */
export async function readOffer(rid: string): Promise<Offer | null> {
  const query = { query: 'SELECT * FROM root r WHERE r.offerResourceId = @rid', parameters: [{ name: '@rid', value: rid }] };
  const answer = await post<{ Offers: Offer[] }>('/offers', query, { headers: queryHeaders });
  return answer.body.Offers[0] ?? null;
}

export const listOffers = () => all<Offer>('/offers', 'Offers');

export const replaceOffer = (offer: Offer, headers: Record<string, string> = {}) =>
  call<Offer>('PUT', path('offers', offer.id), { body: offer, headers });

const queryHeaders = { 'content-type': 'application/query+json', 'x-ms-documentdb-isquery': 'true' };

export interface QueryText {
  query: string;
  parameters?: { name: string; value: unknown }[];
}

export interface QueryOptions {
  pageSize?: number;
  continuation?: string | null;
  key?: Key | null;
  rangeId?: string;
  metrics?: boolean;
  signal?: AbortSignal;
  retries?: number;
}

export interface QueryPage {
  rows: unknown[];
  continuation: string | null;
  charge: number;
  ms: number;
  throttled: number;
  metrics: Record<string, number>;
  indexMetrics: unknown;
}

export async function queryItems(place: Place, query: QueryText, options: QueryOptions = {}): Promise<QueryPage> {
  const headers: Record<string, string> = {
    ...queryHeaders,
    'x-ms-max-item-count': String(options.pageSize ?? 100),
    'x-ms-documentdb-query-enablecrosspartition': 'true',
  };
  if (options.continuation) headers['x-ms-continuation'] = options.continuation;
  if (options.key) headers['x-ms-documentdb-partitionkey'] = headerJson(options.key);
  if (options.rangeId) headers['x-ms-documentdb-partitionkeyrangeid'] = options.rangeId;
  if (options.metrics) {
    headers['x-ms-documentdb-populatequerymetrics'] = 'true';
    headers['x-ms-cosmos-populateindexmetrics'] = 'true';
  }
  const answer = await post<{ Documents: unknown[] }>(container(place, 'docs'), query, { headers, signal: options.signal, retries: options.retries });
  const pairs = (answer.headers.get('x-ms-documentdb-query-metrics') ?? '').split(';').filter(Boolean);
  return {
    rows: answer.body.Documents,
    continuation: answer.headers.get('x-ms-continuation'),
    charge: answer.charge,
    ms: answer.ms,
    throttled: answer.throttled,
    metrics: Object.fromEntries(pairs.map((pair) => pair.split('=')).map(([name, value]) => [name!, Number(value)])),
    indexMetrics: decodeIndexMetrics(answer.headers.get('x-ms-cosmos-index-utilization')),
  };
}

function decodeIndexMetrics(header: string | null): unknown {
  if (!header) return null;
  try {
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(header), (letter) => letter.charCodeAt(0))));
  } catch {
    return null;
  }
}

/** Headers are Latin-1: other characters are escaped, as clients do. */
export const headerJson = (value: unknown): string =>
  JSON.stringify(value).replace(/[\u007f-\uffff]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);

const keyHeader = (key: Key) => ({ 'x-ms-documentdb-partitionkey': headerJson(key) });

export const readItem = (place: Place, id: string, key: Key) => get<Item>(container(place, 'docs', id), { headers: keyHeader(key) });

export const createItem = (place: Place, item: unknown, key: Key, upsert = false, signal?: AbortSignal) =>
  post<Item>(container(place, 'docs'), item, { signal, headers: { ...keyHeader(key), ...(upsert ? { 'x-ms-documentdb-is-upsert': 'true' } : {}) } });

export const replaceItem = (place: Place, id: string, item: unknown, key: Key, etag: string | null) =>
  call<Item>('PUT', container(place, 'docs', id), { body: item, headers: { ...keyHeader(key), ...(etag ? { 'if-match': etag } : {}) } });

export const deleteItem = (place: Place, id: string, key: Key) => call<null>('DELETE', container(place, 'docs', id), { headers: keyHeader(key) });

/** Deletes all items of a key, in the background. */
export const deleteByKey = (place: Place, key: Key) =>
  call<null>('POST', container(place, 'operations', 'partitionkeydelete'), { headers: keyHeader(key) });

/** The key of an item under a definition; `{}` for an absent property, as on the wire. */
export function keyOf(definition: ContainerDefinition, item: Record<string, unknown>): Key {
  return definition.partitionKey.paths.map((at) => {
    let value: unknown = item;
    for (const name of pathSegments(at)) value = typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
    return value === undefined ? {} : value;
  });
}

/** `/a/"b c"` as names. */
export const pathSegments = (at: string): string[] =>
  [...at.matchAll(/\/(?:"((?:[^"\\]|\\.)*)"|([^/]+))/g)].map((match) => match[1] ?? match[2]!);

export interface BatchResult {
  statusCode: number;
  requestCharge: number;
  retryAfterMilliseconds?: number;
}

const place = ({ database, container: name }: Place) => `database=${encodeURIComponent(database)}&container=${encodeURIComponent(name)}`;

export const readPartitions = async (at: Place): Promise<ContainerView> => (await get<ContainerView[]>(`/_orrery/partitions?${place(at)}`)).body[0]!;
export const readHeat = async (at: Place, seconds: number, keys: number, signal?: AbortSignal): Promise<Heat> =>
  (await get<Heat>(`/_orrery/partitions/heat?${place(at)}&seconds=${seconds}&keys=${keys}`, { signal })).body;
export const readPartitionKeys = async (at: Place, partition: string, keys: number): Promise<PartitionKeys> =>
  (await get<PartitionKeys>(`/_orrery/partitions/keys?${place(at)}&partition=${encodeURIComponent(partition)}&keys=${keys}`)).body;
export const readThrottles = async (): Promise<Throttle[]> => (await get<Throttle[]>('/_orrery/throttles')).body;
export const locateKey = async (at: Place, key: Key) =>
  (await get<{ partitionKey: string; effectiveKey: string; partition: string }>(`/_orrery/partitions/locate?${place(at)}&partitionKey=${encodeURIComponent(JSON.stringify(key))}`)).body;
export const splitPartition = (at: Place, partition: string) => post<{ children: string[] }>('/_orrery/partitions/split', { ...at, partition });
export const mergePartitions = (at: Place, partitions: string[]) => post<{ child: string }>('/_orrery/partitions/merge', { ...at, partitions });
export const explain = async (at: Place, query: QueryText, key?: Key | null): Promise<Explained> =>
  (await post<Explained>('/_orrery/explain', { ...at, ...query, ...(key ? { partitionKey: key } : {}), maxItemCount: 100 })).body;
export const explainCharge = async (at: Place, body: Record<string, unknown>): Promise<ExplainedCharge> =>
  (await post<ExplainedCharge>('/_orrery/explain-charge', { ...at, ...body })).body;
export const readServer = async (): Promise<ServerInfo> => (await get<ServerInfo>('/_orrery/server')).body;
export const readStore = async (): Promise<StoreInfo> => (await get<StoreInfo>('/_orrery/store')).body;

export interface Region {
  name: string;
  endpoint: string;
  writes: boolean;
}

/** The regions of the account document. */
export async function readRegions(): Promise<Region[]> {
  type Location = { name: string; databaseAccountEndpoint: string };
  const account = (await get<{ writableLocations: Location[]; readableLocations: Location[] }>('/')).body;
  return account.readableLocations.map(({ name, databaseAccountEndpoint }) => ({ name, endpoint: databaseAccountEndpoint, writes: account.writableLocations.some((other) => other.name === name) }));
}

export const readMetrics = async (): Promise<string> => (await get<string>('/_orrery/metrics', { asText: true })).body;
export const listChildren = <T extends Resource>(at: Place, kind: string, property: string) => all<T>(container(at, kind), property);
export const containerPath = container;
export const listOf = all;
