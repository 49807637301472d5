//! The storage contract: what every store promises.
//!
//! There is one write primitive: [`PartitionStore::commit`] runs an [`Op`] on one partition. The operation names
//! the keys it reads, decides from their values alone, and returns a write set that is applied atomically. The
//! *store* groups operations waiting for the same partition: it runs their decisions in order over one overlay,
//! writes once, flushes once, and acknowledges all of them only then. Because an operation is one-shot, a store
//! can group, retry and reorder the I/O freely; an interactive transaction would pin a lock across round trips.
//!
//! Guarantees, checked by the conformance suite on every store:
//! * LSNs of a partition are assigned in commit order under mutual exclusion and are durable with the write.
//!   A reader that sees LSN n sees every write up to n. Rejected operations consume no LSN.
//! * A later operation of a group sees the writes of the earlier ones.
//! * `decide` may run several times (after a conflict, or to request further reads); only the last run
//!   counts. It must be pure: time, ids and randomness are fields of the operation.
//! * An acknowledged write is durable on the engine's terms. A failed commit has changed nothing, except
//!   [`CommitError::Unknown`], which means that the store could not determine the outcome.
//! * A partition reference carries an epoch. Retiring a partition advances its epoch, and commits that carry
//!   the old one fail with [`CommitError::Fenced`].
//!
//! Deliberately absent: iterators that borrow the engine, commits across partitions, unbounded snapshots,
//! merge operators, expiry, custom comparators. Interactive transactions (scripts) are built above this
//! contract from a snapshot and an operation that validates the reads: every write to a logical partition
//! rewrites that partition's statistics key, so a single key detects a conflict.
//!
//! `docs/design/0001-storage-contract.md` has the alternatives that were rejected.

mod checkpoint;
mod coordination;
mod nodes;
mod tally;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::packed::PackedKeys;

pub use checkpoint::{Checkpoint, CheckpointFile};
pub use coordination::{Coordination, Duty};
pub use nodes::{NodeStatus, StandbyStatus};
pub(crate) use tally::TallyPage;
pub use tally::{Tally, TallyBy, TallyRun};

/// A key inside a partition. Byte order is scan order.
pub type Key = Vec<u8>;

/// A log sequence number: the position of a write in its partition. 0 = nothing has been written.
pub type Lsn = u64;

/// A boxed future, so that stores can be chosen at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a store answers to one of several reads.
pub type ReadResult = Result<ReadPage, StoreError>;

/// What a store answers with: a value or a failure, later.
pub type Pending<'a, T, E = StoreError> = BoxFuture<'a, Result<T, E>>;

/// Identifies a physical partition. Unique in the store and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionId(pub u32);

/// A partition at the epoch that the caller's catalog has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartitionRef {
    pub id: PartitionId,
    pub epoch: u64,
}

/// A partition as the store lists it, with its current epoch and LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    pub id: PartitionId,
    pub epoch: u64,
    pub lsn: Lsn,
}

/// Size limits of a store; a commit that exceeds them fails with [`CommitError::TooLarge`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub key_bytes_max: usize,
    pub value_bytes_max: usize,
    pub commit_bytes_max: usize,
    pub snapshot_age_max: Duration,
}

impl Limits {
    /// Limits that every engine can honour; PostgreSQL's maximum index row size determines the key length.
    pub const COMMON: Self = Self {
        key_bytes_max: 2048,
        value_bytes_max: 4 << 20,
        commit_bytes_max: 32 << 20,
        snapshot_age_max: Duration::from_secs(5),
    };
}

/// A one-shot transaction on one partition.
pub trait Op: Send + Sync + 'static {
    /// What the caller gets back once the decision is final.
    type Out: Send + 'static;

    /// Identifies the operation when a store has to resolve a commit in doubt.
    fn id(&self) -> u128;

    /// The keys whose values `decide` will look at.
    fn reads(&self, keys: &mut Vec<Key>);

    /// Decides from the values of the named keys. `lsn` is the LSN this operation gets if it writes.
    fn decide(&self, view: &dyn View, lsn: Lsn) -> Decision<Self::Out>;
}

/// The values an operation asked for, with the writes of earlier operations in its group applied.
pub trait View {
    /// The value of a key named by `reads` or by [`Decision::NeedReads`].
    /// Asking for any other key is a bug in the operation and panics.
    fn get(&self, key: &[u8]) -> Option<Bytes>;

    /// Whether the key was named, so that `get` may be called.
    fn has_read(&self, key: &[u8]) -> bool;
}

/// The outcome of `decide`.
#[derive(Debug)]
pub enum Decision<T> {
    /// Apply the write set and return the value.
    Write(WriteSet, T),
    /// Change nothing, consume no LSN, return the value.
    Reject(T),
    /// Read these keys as well, then decide again.
    NeedReads(Vec<Key>),
    /// The values contradict each other: change nothing. The commit fails with [`CommitError::Inconsistent`].
    Inconsistent(String),
}

/// The changes of one operation. A key may appear only once.
#[derive(Clone, Debug, Default)]
pub struct WriteSet {
    pub puts: Vec<(Key, Bytes)>,
    pub deletes: Vec<Key>,
    /// Keys that no operation ever reads (index entries), with the value shared by each set; `None` deletes the keys.
    /// Stores need not make them visible to later operations of the group.
    pub unread: Vec<(PackedKeys, Option<Bytes>)>,
}

impl WriteSet {
    /// Inserts or overwrites `key`.
    pub fn put(&mut self, key: Key, value: impl Into<Bytes>) {
        self.puts.push((key, value.into()));
    }

    /// Removes `key`; removing an absent key is allowed.
    pub fn delete(&mut self, key: Key) {
        self.deletes.push(key);
    }

    /// Whether the set changes no key at all. Committing it still consumes an LSN.
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty() && self.unread.iter().all(|(keys, _)| keys.is_empty())
    }

    /// Total size of keys and values, as [`Limits::commit_bytes_max`] counts it.
    pub fn bytes(&self) -> usize {
        let puts: usize = self.puts.iter().map(|(key, value)| key.len() + value.len()).sum();
        let deletes: usize = self.deletes.iter().map(Vec::len).sum();
        let unread = self.unread.iter().map(|(keys, value)| {
            keys.iter().map(<[u8]>::len).sum::<usize>() + keys.len() * value.as_ref().map_or(0, Bytes::len)
        });
        puts + deletes + unread.sum::<usize>()
    }

    /// Every key that is written or deleted.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let puts = self.puts.iter().map(|(key, _)| key.as_slice());
        let deletes = self.deletes.iter().map(Vec::as_slice);
        puts.chain(deletes).chain(self.unread.iter().flat_map(|(keys, _)| keys.iter()))
    }
}

/// The result of a successful commit.
#[derive(Debug, PartialEq, Eq)]
pub struct Committed<T> {
    pub out: T,
    /// The operation's own LSN if it wrote, the partition's current one if it was rejected.
    pub lsn: Lsn,
}

/// Why a commit failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Refresh the catalog, then retry on the partition that owns the key now.
    #[error("the partition is fenced: its epoch is newer than the caller's, or it no longer exists")]
    Fenced,
    /// The queue is full; nothing was written. Retry with a delay.
    #[error("too many operations are waiting for this partition")]
    Busy,
    /// A limit of [`Limits`] is exceeded. Retrying does not help.
    #[error("the write is larger than the store accepts: {0}")]
    TooLarge(String),
    /// The store cannot be reached or has failed. Nothing was written.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The disk has no space for this write. Writes that only remove data are still accepted.
    #[error("the disk is full: {0}")]
    Full(String),
    /// The write may or may not be durable, for example because the server went away during COMMIT.
    #[error("the outcome of the write is unknown: {0}")]
    Unknown(String),
    /// A bug in the operation, not in the store: its decision panicked, kept requesting reads, or
    /// named a key twice. Nothing was changed and other operations are not affected.
    #[error("the operation failed: {0}")]
    Failed(String),
    /// The operation found that the stored data breaks an invariant. Nothing was changed. The caller should stop writing
    /// to the partition: further writes would build on doubtful data.
    #[error("the stored data is inconsistent: {0}")]
    Inconsistent(String),
}

/// Why a read or a partition change failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Refresh the catalog, then retry on the partition that owns the key now.
    #[error("the partition does not exist, or its epoch is newer than the caller's")]
    Fenced,
    /// Longer-lived than [`Limits::snapshot_age_max`]; take a new snapshot.
    #[error("the snapshot is older than the store allows")]
    SnapshotExpired,
    /// An entry of a bulk load exceeds [`Limits`].
    #[error("the entries are larger than the store accepts: {0}")]
    TooLarge(String),
    /// A checksum does not match or a file is missing. The rest of the store stays readable.
    #[error("the data in {place} is damaged: {detail}")]
    Damaged { place: String, detail: String },
    /// The store cannot be reached, has failed, or is closed.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The disk has no space for what was to be written.
    #[error("the disk is full: {0}")]
    Full(String),
}

/// The state of a store, for health checks and alerts. Reads are served in every state where possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Reads and writes are served.
    Ready,
    /// Writes are rejected or stalled. The store recovers automatically once the cause is resolved.
    Impaired(String),
    /// Writes stay offline until a restart.
    Failed(String),
}

/// A range of keys, from `start` (inclusive) to `end` (exclusive; `None` = the end of the partition).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub start: Key,
    pub end: Option<Key>,
}

impl KeyRange {
    /// The keys in `start..end`.
    pub fn new(start: Key, end: Key) -> Self {
        Self { start, end: Some(end) }
    }

    /// Moves the start behind the last entry of a forward scan's page; false if the page was the last one.
    pub fn continue_after(&mut self, page: &ReadPage) -> bool {
        let Some(last) = page.entries.last().filter(|_| page.more) else { return false };
        // The smallest key after `last`.
        self.start = [last.key.as_slice(), &[0]].concat();
        true
    }

    /// The whole partition.
    pub fn all() -> Self {
        Self { start: Key::new(), end: None }
    }

    /// All keys that start with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        // The end is the prefix with its last byte incremented. `FF` cannot be incremented, so it carries over to the byte
        // before it; a prefix of `FF` only has no end.
        let mut end = prefix.to_vec();
        while end.last() == Some(&0xFF) {
            end.pop();
        }
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Self { start: prefix.to_vec(), end: (!end.is_empty()).then_some(end) }
    }

    /// Whether no key can lie in the range.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

/// The key order in which a scan returns entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// What a scan returns. Index scans need no values, and keys alone are cheaper on some engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Keys,
    KeysAndValues,
}

/// Requests one page of a range, in key order of the given direction.
#[derive(Clone, Debug)]
pub struct Scan {
    pub range: KeyRange,
    pub direction: Direction,
    /// At most this many entries.
    pub entries_max: usize,
    /// Stop after the entry that reaches this many bytes of keys and values.
    pub bytes_max: usize,
    pub want: Want,
}

impl Scan {
    /// A forward scan with values and the default page size in bytes.
    pub fn forward(range: KeyRange, entries_max: usize) -> Self {
        Self {
            range,
            direction: Direction::Forward,
            entries_max,
            bytes_max: 4 << 20,
            want: Want::KeysAndValues,
        }
    }
}

/// What to read. Each form answers from one point in time.
#[derive(Clone, Debug)]
pub enum ReadRequest {
    /// The values of these keys, in this order.
    Get(Vec<Key>),
    /// One page of a range.
    Scan(Scan),
    /// How many entries a range has, in one page.
    Tally(Tally),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    /// Empty for [`Want::Keys`].
    pub value: Bytes,
}

/// The result of one read, consistent as of one point in time.
#[derive(Clone, Debug, Default)]
pub struct ReadPage {
    /// A lower bound of what was seen: the partition had reached at least this LSN.
    pub lsn: Lsn,
    /// For [`ReadRequest::Get`]: one slot per key.
    pub values: Vec<Option<Bytes>>,
    /// For [`ReadRequest::Scan`].
    pub entries: Vec<Entry>,
    /// For [`ReadRequest::Tally`].
    pub runs: Vec<TallyRun>,
    /// For a tally: the last key that was counted, at least if there is more.
    pub reached: Option<Key>,
    /// For a scan or a tally: the range may contain more entries after the last one returned or counted.
    pub more: bool,
}

/// A partitioned, ordered, durable map with one-shot transactions.
pub trait PartitionStore: Send + Sync + 'static {
    /// A short name for messages and metrics: `memory`, `embedded`, `postgres`.
    fn name(&self) -> &'static str;

    /// The sizes this store accepts.
    fn limits(&self) -> Limits {
        Limits::COMMON
    }

    /// All partitions, in no particular order.
    fn partitions(&self) -> Pending<'_, Vec<PartitionInfo>>;

    /// Chooses ascending ids for new partitions, none below `from`. A store that places partitions by id
    /// chooses ids that spread the new partitions away from each other and from their siblings in `beside`.
    fn choose_ids(&self, from: u32, count: usize, beside: Vec<PartitionId>) -> Pending<'_, Vec<PartitionId>> {
        drop(beside);
        Box::pin(async move { Ok(consecutive(from, count)) })
    }

    /// Creates an empty partition at epoch 0 whose LSNs continue after `lsn`. An existing partition keeps its
    /// data, and its LSNs continue after the larger of its own and `lsn`: the children of a split are
    /// loaded first and learn their parent's final LSN at the cut-over.
    fn create(&self, id: PartitionId, lsn: Lsn) -> Pending<'_, ()>;

    /// Advances the epoch, which fences commits and reads that carry `partition`. Waits for commits in
    /// progress and returns the last LSN that was assigned.
    fn retire(&self, partition: PartitionRef) -> Pending<'_, Lsn>;

    /// Removes the partition and its data, whatever its epoch. A missing partition is not an error.
    fn destroy(&self, id: PartitionId) -> Pending<'_, ()>;

    /// Runs the operation durably, grouped with others that wait for this partition.
    /// Callers use the typed function [`commit`].
    fn commit(&self, partition: PartitionRef, op: Box<dyn ErasedOp>) -> Pending<'_, Lsn, CommitError>;

    /// Reads values or one page of a range, as of one point in time.
    fn read(&self, partition: PartitionRef, request: ReadRequest) -> Pending<'_, ReadPage>;

    /// Reads from several partitions; each read is answered as [`Self::read`] would answer it, in this order. A remote
    /// store answers them in one round trip where it can.
    fn read_each(&self, reads: Vec<(PartitionRef, ReadRequest)>) -> BoxFuture<'_, Vec<ReadResult>> {
        Box::pin(async move {
            let mut pages = Vec::with_capacity(reads.len());
            // One after the other: in this process nothing would be gained by more.
            for (partition, request) in reads {
                pages.push(self.read(partition, request).await);
            }
            pages
        })
    }

    /// Opens a view for several reads at one point in time, valid for [`Limits::snapshot_age_max`].
    fn snapshot(&self, partition: PartitionRef) -> Pending<'_, Box<dyn Snapshot>>;

    /// Writes entries without consuming LSNs, into a partition that is not serving requests yet (the child of
    /// a split, a restore). Durable on return and idempotent.
    fn bulk_load(&self, partition: PartitionRef, entries: Vec<Entry>) -> Pending<'_, ()>;

    /// Deletes up to `count_max` entries of the range without consuming LSNs; returns the count.
    fn delete_range(&self, partition: PartitionRef, range: KeyRange, count_max: usize) -> Pending<'_, usize>;

    /// Waits until the partition has passed `after` or the timeout expires; returns its LSN at that time.
    fn wait_lsn(&self, id: PartitionId, after: Lsn, timeout: Duration) -> Pending<'_, Lsn>;

    /// A cheap estimate of the partition's size on disk (or in memory).
    fn size_bytes(&self, id: PartitionId) -> Pending<'_, u64>;

    /// How this process coordinates with others that have the same store open; `None` = it is the only one.
    fn coordination(&self) -> Option<&dyn Coordination> {
        None
    }

    /// Whether the store serves reads and writes right now.
    fn health(&self) -> Health {
        Health::Ready
    }

    /// How long the oldest pending write has waited; zero where the store does not track it.
    fn oldest_write_wait(&self) -> Duration {
        Duration::ZERO
    }

    /// The servers that hold the data, with their standbys; empty where this process holds it itself. Queries the
    /// servers, so it is not for every second.
    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeStatus>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Takes a checkpoint for a backup; `None` where the store is not made of files of ours and has backups of its own.
    fn checkpoint(&self) -> Pending<'_, Option<Box<dyn Checkpoint>>> {
        Box::pin(async { Ok(None) })
    }

    /// Flushes buffers and stops background work. Later calls fail as unavailable.
    fn close(&self) -> Pending<'_, ()>;
}

pub(crate) fn consecutive(from: u32, count: usize) -> Vec<PartitionId> {
    (from..).take(count).map(PartitionId).collect()
}

/// A read-only view of one partition at a fixed LSN.
pub trait Snapshot: Send + Sync {
    /// The LSN the view is fixed at: exactly the writes up to it are visible.
    fn lsn(&self) -> Lsn;
    /// Fails with [`StoreError::SnapshotExpired`] once the view is too old.
    fn read(&self, request: ReadRequest) -> Pending<'_, ReadPage>;
}

/// Commits a typed operation and returns the output of its final decision.
pub async fn commit<O: Op>(
    store: &dyn PartitionStore,
    partition: PartitionRef,
    op: O,
) -> Result<Committed<O::Out>, CommitError> {
    let out = Arc::new(Mutex::new(None));
    let erased = Box::new(Typed { op, out: Arc::clone(&out) });
    let lsn = store.commit(partition, erased).await?;
    // The output stays with the caller: the store knows operations only without their types.
    let out = out.lock().take().expect("a store acknowledges only after the decision has run");
    Ok(Committed { out, lsn })
}

/// An operation without its output type, so that stores can queue operations of any type.
/// [`commit`] implements it and keeps the output for the caller.
pub trait ErasedOp: Send {
    fn id(&self) -> u128;
    fn reads(&self, keys: &mut Vec<Key>);
    fn decide(&mut self, view: &dyn View, lsn: Lsn) -> ErasedDecision;
}

/// [`Decision`] without the output.
#[derive(Debug)]
pub enum ErasedDecision {
    Write(WriteSet),
    Reject,
    NeedReads(Vec<Key>),
    Inconsistent(String),
}

struct Typed<O: Op> {
    op: O,
    out: Arc<Mutex<Option<O::Out>>>,
}

impl<O: Op> ErasedOp for Typed<O> {
    fn id(&self) -> u128 {
        self.op.id()
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        self.op.reads(keys);
    }

    fn decide(&mut self, view: &dyn View, lsn: Lsn) -> ErasedDecision {
        let (decision, out) = match self.op.decide(view, lsn) {
            Decision::Write(writes, out) => (ErasedDecision::Write(writes), Some(out)),
            Decision::Reject(out) => (ErasedDecision::Reject, Some(out)),
            Decision::NeedReads(keys) => (ErasedDecision::NeedReads(keys), None),
            Decision::Inconsistent(detail) => (ErasedDecision::Inconsistent(detail), None),
        };
        // Overwritten by a later run: only the last decision counts.
        *self.out.lock() = out;
        decision
    }
}
