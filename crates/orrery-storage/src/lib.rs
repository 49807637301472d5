//! Partitioned, ordered, durable bytes: the storage contract and the engines that implement it.
//!
//! A store knows nothing about JSON, items or HTTP. For each physical partition it keeps an ordered map from
//! byte keys to byte values and a log sequence number (LSN), and runs one-shot transactions on it. Concurrent
//! writers are grouped so that they share one fsync.
//!
//! [`contract`] states what every engine promises. [`Memory`] keeps everything in this process, [`Embedded`]
//! keeps an LSM tree and a journal in a local directory, [`Postgres`] uses a PostgreSQL server or a Citus
//! cluster that several processes share. The conformance suite in `tests/suite` runs against all three.

pub mod contract;
mod embedded;
mod memory;
mod packed;
mod postgres;
mod transaction;

pub use contract::{
    BoxFuture, Checkpoint, CheckpointFile, CommitError, Committed, Coordination, Decision, Direction, Duty,
    Entry, ErasedDecision, ErasedOp, Health, Key, KeyRange, Limits, Lsn, NodeStatus, Op, PartitionId,
    PartitionInfo, PartitionRef, PartitionStore, Pending, ReadPage, ReadRequest, ReadResult, Scan, Snapshot,
    StandbyStatus, StoreError, Tally, TallyBy, TallyRun, View, Want, WriteSet, commit,
};
pub use embedded::{
    BackupError, BackupRepository, BackupSummary, Durability, Embedded, EmbeddedOptions, FileReceiver,
    ManifestFile, NewBackup, OpenError, RestoreSummary,
};
pub use memory::Memory;
pub use packed::{KeyPacker, PackedKeys};
pub use postgres::{InvalidStoreUrl, Postgres, PostgresError, PostgresOptions, StoreStatus};
