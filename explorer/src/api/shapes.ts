// The server's own JSON, described once: the types of the page are derived from these shapes, and a test holds real
// answers against them, member by member.

export type Shape<T> = { readonly check: (value: unknown, at: string) => string[]; readonly type?: T };
export type Infer<S> = S extends Shape<infer T> ? T : never;

const kind = <T>(name: string, is: (value: unknown) => boolean): Shape<T> => ({
  check: (value, at) => (is(value) ? [] : [`${at}: expected ${name}, found ${JSON.stringify(value)?.slice(0, 60)}`]),
});

export const text = kind<string>('a text', (value) => typeof value === 'string');
export const number = kind<number>('a number', (value) => typeof value === 'number');
export const flag = kind<boolean>('true or false', (value) => typeof value === 'boolean');
export const anything = kind<unknown>('anything', () => true);

export const list = <T>(member: Shape<T>): Shape<T[]> => ({
  check: (value, at) =>
    Array.isArray(value) ? value.flatMap((one, index) => member.check(one, `${at}[${index}]`)) : [`${at}: expected a list`],
});

export const nullable = <T>(shape: Shape<T>): Shape<T | null> => ({
  check: (value, at) => (value === null ? [] : shape.check(value, at)),
});

type Optional<T> = Shape<T> & { readonly optional: true };
export const optional = <T>(shape: Shape<T>): Optional<T> => ({ ...shape, optional: true });

type Members = Record<string, Shape<unknown>>;
type RequiredNames<M> = { [K in keyof M]: M[K] extends { optional: true } ? never : K }[keyof M];
type OptionalNames<M> = { [K in keyof M]: M[K] extends { optional: true } ? K : never }[keyof M];
type Object<M> = { [K in RequiredNames<M>]: Infer<M[K]> } & { [K in OptionalNames<M>]?: Infer<M[K]> };

/** An object with these members and no others. */
export const object = <M extends Members>(members: M): Shape<Object<M>> => ({
  check: (value, at) => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return [`${at}: expected an object`];
    const found = value as Record<string, unknown>;
    const faults = Object.entries(members).flatMap(([name, shape]) => {
      if (name in found) return shape.check(found[name], `${at}.${name}`);
      return 'optional' in shape ? [] : [`${at}.${name}: is missing`];
    });
    const unknown = Object.keys(found).filter((name) => !(name in members));
    return [...faults, ...unknown.map((name) => `${at}.${name}: is not known to the page`)];
  },
});

const hotKey = object({ partitionKey: text, requestUnits: number, sharePercent: number });
const hotKeyBySecond = object({ partitionKey: text, requestUnits: number, sharePercent: number, usedBySecond: optional(list(number)) });
const largeKey = object({ partitionKey: text, items: number, bytes: number });

export const partition = object({
  id: text,
  min: text,
  max: text,
  parents: list(text),
  logicalPartitions: number,
  items: number,
  bytes: number,
  storedBytes: number,
  lsn: number,
  requestUnitsPerSecond: number,
  usedLastSecond: number,
  usedPerSecondLastMinute: number,
  banked: number,
  throttled: number,
  hottestKeys: list(hotKey),
  largestKeys: list(largeKey),
});

/** `GET /_orrery/partitions` */
export const partitions = list(
  object({ container: text, throughput: optional(number), offerReplacePending: flag, partitionsChanging: flag, partitions: list(partition) }),
);

/** `GET /_orrery/partitions/heat` */
export const heat = object({
  container: text,
  second: number,
  partitionsChanging: flag,
  partitions: list(
    object({
      id: text,
      min: text,
      max: text,
      parents: list(text),
      requestUnitsPerSecond: number,
      throttled: number,
      banked: number,
      hottestKeys: list(hotKeyBySecond),
      usedBySecond: list(number),
      throttledBySecond: list(number),
    }),
  ),
});

/** `GET /_orrery/partitions/keys` */
export const partitionKeys = object({ logicalPartitions: number, largestKeys: list(largeKey) });

/** `GET /_orrery/partitions/locate` */
export const located = object({ partitionKey: text, effectiveKey: text, partition: text });

/** `GET /_orrery/throttles` */
export const throttles = list(
  object({
    atMs: number,
    container: optional(text),
    partition: optional(text),
    partitionKey: optional(text),
    keySharePercent: number,
    budgetPerSecond: number,
    cause: text,
    retryAfterMs: number,
    wouldPassAtMs: number,
  }),
);

/** `GET /_orrery/server` */
export const server = object({
  version: text,
  store: text,
  startedMs: number,
  nowMs: number,
  processors: number,
  memoryBytes: nullable(number),
  testControls: flag,
  consistency: object({ defaultConsistencyLevel: text, maxStalenessPrefix: optional(number), maxIntervalInSeconds: optional(number) }),
  background: list(object({ kind: text, container: text, detail: text, percent: nullable(number) })),
});

/** `GET /_orrery/store` */
export const store = object({
  store: text,
  nodes: list(
    object({
      name: text,
      partitions: list(number),
      shards: number,
      tableBytes: number,
      indexBytes: number,
      standbys: list(object({ name: text, state: nullable(text), behindBytes: nullable(number), behindMilliseconds: nullable(number) })),
      failure: optional(text),
    }),
  ),
});

/** `GET /_orrery/health` */
export const health = object({ status: text, store: text, reason: optional(text), advice: optional(text) });

/** `POST /_orrery/explain` */
export const explained = object({
  query: text,
  access: text,
  considered: list(
    object({
      access: text,
      chosen: flag,
      entriesInFirstPartition: optional(number),
      estimatedRows: optional(number),
      isLowerBound: optional(flag),
    }),
  ),
  rows: object({
    estimated: optional(number),
    indexEntriesRead: number,
    itemsRead: number,
    itemBytesRead: number,
    returned: number,
    bytesReturned: number,
  }),
  partitionsVisited: list(text),
  partitions: number,
  routedBy: text,
  logicalPartitions: nullable(number),
  charge: number,
  isComplete: flag,
  timesMs: object({ total: number, parse: number, compile: number, plan: number, index: number, load: number, evaluate: number, output: number }),
  indexes: anything,
  advice: list(object({ id: text, function: text })),
  plan: anything,
});

/** `POST /_orrery/explain-charge` */
export const explainedCharge = object({ charge: number, parts: list(object({ what: text, quantity: number, charge: number })) });

/** `GET /_orrery/recordings` */
export const recordings = list(
  object({
    recording: number,
    database: text,
    container: text,
    partitionKey: list(text),
    throughput: optional(number),
    startedMs: number,
    endedMs: optional(number),
    running: flag,
    requests: number,
    bytes: number,
    dropped: number,
  }),
);

const daysOfGrowth = object({ days: number, bytes: number, partitions: number, splits: number, largestShare: number, unevenness: number, stuck: number });

const candidate = object({
  rank: number,
  name: text,
  kind: text,
  partitionKey: anything,
  definition: anything,
  score: number,
  tied: flag,
  unfit: nullable(text),
  evidence: list(text),
  alternative: nullable(text),
  itemsWithoutKey: number,
  itemsThatCouldNotExist: number,
  for: list(text),
  against: list(text),
  distinctValues: number,
  largestKey: object({ share: number, shareError: number, bytes: number, daysUntilFull: nullable(number) }),
  heaviestKeys: list(object({ key: text, items: number, bytes: number })),
  spread: object({ items: list(number), bytes: list(number), unevenness: number, unevennessInTime: nullable(number) }),
  growth: list(daysOfGrowth),
  reads: object({ pointShare: number, singlePartitionShare: number, fanOutShare: number, fanOutPartitions: number }),
  requestUnitsPerHour: number,
  requestUnitsPerSecondByPartition: list(number),
  hotFactor: number,
  throttled: object({ requests: number, share: number }),
  neededThroughput: object({ now: number, inAYear: number }),
  costPerMonth: anything,
  transactions: anything,
  operations: list(object({ name: text, estimated: flag, requests: number, throttled: number, requestUnits: number, partitions: number })),
});

const suffixPlan = object({
  base: text,
  by: nullable(text),
  partitions: number,
  writeUnitsPerSecond: number,
  knownReadUnitsPerSecond: number,
  readsOfAllSuffixesPerSecond: number,
  best: number,
  curve: list(object({ suffixes: number, neededThroughput: number, usedPerSecond: number, hotFactor: number, partitionsVisited: number })),
});

/** `POST /_orrery/advise` */
export const advice = object({
  data: object({
    items: number,
    itemsTotal: number,
    bytes: number,
    bytesPerDay: number,
    timePath: nullable(text),
    from: nullable(text),
    to: nullable(text),
    sampleItems: number,
  }),
  throughput: number,
  partitions: number,
  workload: object({ given: flag, requests: number, seconds: number, operations: list(object({ name: text, operation: text, perSecond: number })) }),
  errors: object({ distinctValues: text, largestKey: text, sample: text }),
  recommended: nullable(text),
  missing: list(text),
  candidates: list(candidate),
  suffixPlans: list(suffixPlan),
  /** What the exports of the service say, where they were given. */
  service: anything,
  notes: list(text),
});

/** `GET /_orrery/repartition` */
export const repartition = object({
  phase: text,
  items: number,
  copied: number,
  removed: number,
  compared: number,
  checksum: optional(text),
  message: optional(text),
  keptAs: optional(text),
});

/** `GET /_orrery/synthetic` */
export const synthetic = object({ definition: anything, routesQueries: flag, keyPaths: list(text) });

/** `GET /_orrery/faults` */
export const faults = object({ rules: list(anything) });

/** `GET /_orrery/clock` */
export const clock = object({ nowMs: number, offsetMs: number, frozen: flag });

export type Partition = Infer<typeof partition>;
export type ContainerView = Infer<typeof partitions>[number];
export type Heat = Infer<typeof heat>;
export type LivePartition = Heat['partitions'][number];
export type Throttle = Infer<typeof throttles>[number];
export type PartitionKeys = Infer<typeof partitionKeys>;
export type ServerInfo = Infer<typeof server>;
export type StoreInfo = Infer<typeof store>;
export type Health = Infer<typeof health>;
export type Advice = Infer<typeof advice>;
export type Candidate = Advice['candidates'][number];
export type SuffixPlan = Advice['suffixPlans'][number];
export type RepartitionStatus = Infer<typeof repartition>;
export type Synthetic = Infer<typeof synthetic>;
export type Clock = Infer<typeof clock>;
export type Explained = Infer<typeof explained>;
export type ExplainedCharge = Infer<typeof explainedCharge>;
export type Recording = Infer<typeof recordings>[number];
