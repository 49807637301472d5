//! The nouns of Orrery: values, ids, partition keys, policies, charges and errors.
//!
//! Everything here is pure: no clock, no randomness, no disk, no network. The same input gives the
//! same output on every machine, which is what lets clients and servers agree on where a key lands.

pub mod charge;
pub mod container;
pub mod document;
pub mod edit_distance;
pub mod encryption_key;
pub mod error;
pub mod etag;
pub mod ids;
mod known;
pub mod offer;
pub mod partition_key;
pub mod patch;
pub mod path;
pub mod rid;
pub mod session;
pub mod value;

pub use charge::Charge;
pub use container::ContainerDefinition;
pub use error::{Error, ErrorKind, Result};
pub use etag::Etag;
pub use ids::{ItemId, ResourceName};
pub use offer::{Offer, Throughput};
pub use partition_key::{EffectiveKey, EpkRange, KeyPart, PartitionKey, PartitionKeyDefinition};
pub use patch::Patch;
pub use path::KeyPath;
pub use rid::{ContainerRid, DatabaseRid, ItemRid, OfferRid, Rid};
pub use session::{SessionEntry, SessionToken};
/// Calendar arithmetic and the key hash, which the published key library has too.
pub use synthetic_key::{civil, murmur3};
pub use value::{Number, Object, Value};
