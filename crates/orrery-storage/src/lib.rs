//! Ordered bytes in partitions: the contract that the database relies on, and the engines behind it.
//!
//! A store knows nothing of JSON, items or HTTP. It keeps, per physical partition, an ordered map from
//! byte keys to byte values and a log sequence number, and it runs one-shot transactions on it,
//! grouped so that concurrent writers share one flush to disk.

pub mod contract;
mod coordination;
mod embedded;
mod memory;
mod packed;
mod postgres;
mod transaction;

pub use contract::{
    BoxFuture, CommitError, Committed, Decision, Direction, Entry, ErasedDecision, ErasedOp, Key, KeyRange,
    Limits, Lsn, Op, PartitionId, PartitionInfo, PartitionRef, PartitionStore, ReadPage, ReadRequest, Scan,
    Snapshot, StoreError, View, Want, WriteSet, commit,
};
pub use coordination::{Coordination, Duty};
pub use embedded::{Durability, Embedded, EmbeddedOptions, OpenError};
pub use memory::Memory;
pub use packed::{KeyPacker, PackedKeys};
pub use postgres::{
    InvalidStoreUrl, NodeStatus, Postgres, PostgresError, PostgresOptions, StandbyStatus, StoreStatus,
};
