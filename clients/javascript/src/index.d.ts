/** A scalar of a key. */
export type Component = string | number | boolean | null;

/** A key, or the prefix of one that a read visits. */
export interface Key {
  /** The version of the strategy that built it. */
  version: number;
  /** One component for a plain key, up to three for a hierarchical one. */
  components: Component[];
  /** The partition key to pass to the SDK: the text of a plain key, the array of a hierarchical one. */
  value: Component | Component[];
}

/** Returns a uniform integer from 0 up to, but not including, the bound. */
export type Randomness = (bound: number) => number;

/** A definition of a synthetic key. Its fields are described in docs/partition-keys.md. */
export class Definition {
  constructor(source: object);
  /** The definition's original JSON. */
  readonly source: object;
  /** The paths of the container's partition key, one per level. */
  readonly keyPaths: string[];
  /** The key that this item gets if it is written now. An existing key in the item is ignored. */
  apply(item: object, below?: Randomness): Key;
  /** The key of an item: its existing one, if a recorded version can produce it, or a new one. */
  keyOf(item: object, below?: Randomness): Key;
  /** Stores the key in the item, under the definition's properties, unless it is there already. */
  insertInto(item: object, below?: Randomness): Key;
  /** The keys that a read of items with these properties must visit, newest version first, without duplicates. */
  keysFor(filter: object): Key[];
}

/** An invalid definition; `at` is the place of the error. */
export class DefinitionError extends Error {
  readonly at: string;
}

export type KeyErrorCode =
  | "missing" | "null" | "nonScalar" | "format" | "ambiguous" | "tooLong" | "version" | "undetermined"
  | "tooMany" | "contradiction" | "place";

/** A key that cannot be built, or an item whose existing key does not match. */
export class SyntheticKeyError extends Error {
  readonly code: KeyErrorCode;
}

/** MurmurHash3 x86 32-bit: the hash of pre-calculated suffixes, with seed 0. */
export function murmur3(bytes: Uint8Array, seed?: number): number;
