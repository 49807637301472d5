// Synthetic partition keys from one definition: built for an item, validated against an item, and enumerated for a read.
// The same definition yields the same keys as the Rust crate and the Python package.

export { Definition } from "./build.js";
export { DefinitionError } from "./definition.js";
export { SyntheticKeyError } from "./errors.js";
export { murmur3 } from "./murmur3.js";
