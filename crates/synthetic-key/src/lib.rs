//! Synthetic partition keys from one definition: made for an item, checked against an item, and
//! enumerated for a read.
//!
//! A definition is JSON (its fields are described in [`Definition`]) and gives the same keys from
//! this crate and from the Python and JavaScript packages beside it; one file of vectors holds all
//! three to that. The crate does no I/O, reads no clock and draws no randomness of its own unless
//! asked for [`SystemRandom`].
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
mod date;
mod definition;
mod error;
mod item;
mod key;
pub mod murmur3;
mod number;
mod parse;
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

/// The longest key value, in bytes of UTF-8: what a container with large partition keys takes.
pub const KEY_BYTES_MAX: usize = 2048;
/// The largest number of suffixes.
pub const SUFFIXES_MAX: u32 = 100_000;
/// The most keys that one read may be told to visit.
pub const KEYS_MAX: usize = 100_000;
/// The most parts of one key or of one hashed text.
pub const PARTS_MAX: usize = 32;
/// The most recorded versions of a definition.
pub const VERSIONS_MAX: usize = 64;
