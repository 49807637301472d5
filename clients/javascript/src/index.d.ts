/** A scalar of a key. */
export type Component = string | number | boolean | null;

/** A key, or the prefix of one that a read visits. */
export interface Key {
  /** The recorded version of the strategy that made it. */
  version: number;
  /** One component for a plain key, up to three for a hierarchical one. */
  components: Component[];
  /** What the SDK wants as partition key: the text of a plain key, the array of a hierarchical one. */
  value: Component | Component[];
}

/** A whole number of 0 up to, but not including, the bound; each as likely as the others. */
export type Randomness = (bound: number) => number;

/** A definition of a synthetic key. Its fields are described in docs/partition-keys.md. */
export class Definition {
  constructor(source: object);
  /** The definition as it was given. */
  readonly source: object;
  /** The paths of the container's partition key, one per level. */
  readonly keyPaths: string[];
  /** The key that this item gets if it is written now. A key that it carries already is not looked at. */
  apply(item: object, below?: Randomness): Key;
  /** The key of an item: the one it carries, if a recorded version could have made it, or a new one. */
  keyOf(item: object, below?: Randomness): Key;
  /** Gives an item its key, under the definition's properties, unless it has it. */
  insertInto(item: object, below?: Randomness): Key;
  /** The keys that a read of items with these properties must visit, newest version first and each once. */
  keysFor(filter: object): Key[];
}

/** A definition that cannot be used; `at` is the place inside it. */
export class DefinitionError extends Error {
  readonly at: string;
}

export type KeyErrorCode =
  | "missing" | "null" | "nonScalar" | "format" | "ambiguous" | "tooLong" | "version" | "undetermined"
  | "tooMany" | "contradiction" | "place";

/** A key that cannot be made, or an item that cannot have the key it carries. */
export class SyntheticKeyError extends Error {
  readonly code: KeyErrorCode;
}

/** MurmurHash3 x86 32-bit: the hash behind pre-calculated suffixes, with seed 0. */
export function murmur3(bytes: Uint8Array, seed?: number): number;
