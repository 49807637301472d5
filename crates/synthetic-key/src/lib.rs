//! Synthetic partition keys from one definition: built for an item, validated against an item, and
//! enumerated for a read.
//!
//! A definition is JSON (see [`Definition`] for its fields). This crate and the Python and JavaScript
//! packages produce the same keys from it, which a shared file of test vectors ensures. The crate does
//! no I/O, reads no clock and uses no randomness of its own, except through [`SystemRandom`].
//!
//! ```
//! use serde_json::json;
//! use synthetic_key::{Definition, Fixed};
//!
//! let definition = Definition::from_json(&json!({
//!     "format": 1,
//!     "kind": "precalculatedSuffix",
//!     "parts": ["/date"],
//!     "suffix": { "of": ["/VIN"], "count": 400 }
//! }))?;
//! let mut item = json!({ "id": "1", "date": "2018-08-09", "VIN": "1HGCM82633A004352" });
//! definition.insert_into(&mut item, &mut Fixed(0))?;
//! let keys = definition.keys_for(&json!({ "date": "2018-08-09", "VIN": "1HGCM82633A004352" }))?;
//! assert_eq!(keys.len(), 1);
//! assert_eq!(keys[0].as_text(), item["partitionKey"].as_str());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod build;
pub mod civil;
mod date;
mod definition;
mod error;
mod item;
mod key;
pub mod murmur3;
mod number;
mod path;
mod random;

pub use definition::{
    Case, DateFormat, Definition, Epoch, Level, Maker, NumberFormat, Part, Source, Strategy, Suffix,
    SuffixKind, Treatment, ValueFormat,
};
pub use error::{DefinitionError, KeyError};
pub use item::{Item, Property};
pub use key::{Component, Key};
pub use path::Path;
pub use random::{Fixed, Randomness, Seeded, SystemRandom};

/// The maximum length of a key value in UTF-8 bytes: the limit of containers with large partition keys.
pub const KEY_BYTES_MAX: usize = 2048;
/// The maximum suffix count.
pub const SUFFIXES_MAX: u32 = 100_000;
/// The maximum number of keys that one read may visit.
pub const KEYS_MAX: usize = 100_000;
/// The maximum number of parts of a key or of a hashed text.
pub const PARTS_MAX: usize = 32;
/// The maximum number of recorded versions of a definition.
pub const VERSIONS_MAX: usize = 64;
