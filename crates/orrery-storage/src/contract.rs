//! What every store promises.
//!
//! One primitive writes: [`PartitionStore::commit`] runs an [`Op`] on one partition. The operation names
//! the keys it needs, decides purely from their values, and hands back a write set that lands whole or not
//! at all. The *store* groups operations that wait for the same partition: it runs their decisions in order
//! over one overlay, writes once, flushes once and only then acknowledges all of them.
//!
//! Promises, checked by the conformance suite on every store:
//! * Log sequence numbers of a partition are handed out in commit order, under exclusion, and are durable
//!   with the write. Whoever sees number n sees every write up to n. Rejected operations use none.
//! * A later operation of the same group sees the writes of the earlier ones.
//! * `decide` may run several times (after a conflict, or to gather further reads); only the last run
//!   counts. It must be pure: time, ids and randomness are fields of the operation.
//! * Acknowledged means durable on the engine's terms. A failed commit has changed nothing, except for
//!   [`CommitError::Unknown`], which says that the store could not find out.
//! * A partition reference carries an epoch. Once a partition is retired its epoch has moved on, and commits
//!   with the old one fail with [`CommitError::Fenced`].
//!
//! Deliberately absent: iterators that borrow the engine, commits across partitions, unbounded snapshots,
//! merge operators, expiry, comparison callbacks. Interactive transactions (scripts) are built above this
//! contract from a snapshot and an operation that validates what was read: every write to a logical
//! partition rewrites that partition's statistics key, so one key is enough to detect a conflict.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::coordination::Coordination;
use crate::packed::PackedKeys;

/// A key inside a partition. Byte order is scan order.
pub type Key = Vec<u8>;

/// A log sequence number: the position of a write in its partition. 0 = nothing was written yet.
pub type Lsn = u64;

/// A boxed future, so that stores can be chosen at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The number of a physical partition, unique in the store and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionId(pub u32);

/// A partition as the caller's catalog knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartitionRef {
    pub id: PartitionId,
    pub epoch: u64,
}

/// What the store knows of one of its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    pub id: PartitionId,
    pub epoch: u64,
    pub lsn: Lsn,
}

/// Sizes that callers must respect; a commit beyond them fails with [`CommitError::TooLarge`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub key_bytes_max: usize,
    pub value_bytes_max: usize,
    pub commit_bytes_max: usize,
    pub snapshot_age_max: Duration,
}

impl Limits {
    /// The limits that every engine can keep: PostgreSQL's index row limit sets the key length.
    pub const COMMON: Self = Self {
        key_bytes_max: 2048,
        value_bytes_max: 4 << 20,
        commit_bytes_max: 32 << 20,
        snapshot_age_max: Duration::from_secs(5),
    };
}

/// A one-shot transaction on one partition.
pub trait Op: Send + Sync + 'static {
    type Out: Send + 'static;

    /// Identifies this operation when a store must find out whether a commit in doubt happened.
    fn id(&self) -> u128;

    /// The keys whose values `decide` will look at.
    fn reads(&self, keys: &mut Vec<Key>);

    /// Decides from the values of the named keys. `lsn` is what this operation gets if it writes.
    fn decide(&self, view: &dyn View, lsn: Lsn) -> Decision<Self::Out>;
}

/// The values an operation asked for, with the writes of earlier operations of its group applied.
pub trait View {
    /// The value of a key that was named by `reads` or by [`Decision::NeedReads`].
    /// Asking for any other key is a fault of the operation and panics.
    fn get(&self, key: &[u8]) -> Option<Bytes>;

    /// Whether the key was named, so that `get` may be called.
    fn has_read(&self, key: &[u8]) -> bool;
}

/// The outcome of `decide`.
#[derive(Debug)]
pub enum Decision<T> {
    /// Apply this and answer that.
    Write(WriteSet, T),
    /// Change nothing, use no log sequence number, answer that.
    Reject(T),
    /// Read these keys too, then decide again.
    NeedReads(Vec<Key>),
}

/// What one operation changes. A key may appear once in all.
#[derive(Clone, Debug, Default)]
pub struct WriteSet {
    pub puts: Vec<(Key, Bytes)>,
    pub deletes: Vec<Key>,
    /// Keys that no operation ever names to look at, with the value that all of a set get; `None` deletes them.
    /// Stores need not find them for later operations of a group.
    pub unread: Vec<(PackedKeys, Option<Bytes>)>,
}

impl WriteSet {
    pub fn put(&mut self, key: Key, value: impl Into<Bytes>) {
        self.puts.push((key, value.into()));
    }

    pub fn delete(&mut self, key: Key) {
        self.deletes.push(key);
    }

    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty() && self.unread.iter().all(|(keys, _)| keys.is_empty())
    }

    /// Keys and values together, the measure of [`Limits::commit_bytes_max`].
    pub fn bytes(&self) -> usize {
        let puts: usize = self.puts.iter().map(|(key, value)| key.len() + value.len()).sum();
        let deletes: usize = self.deletes.iter().map(Vec::len).sum();
        let unread = self.unread.iter().map(|(keys, value)| {
            keys.iter().map(<[u8]>::len).sum::<usize>() + keys.len() * value.as_ref().map_or(0, Bytes::len)
        });
        puts + deletes + unread.sum::<usize>()
    }

    /// All keys that are written or deleted.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let puts = self.puts.iter().map(|(key, _)| key.as_slice());
        let deletes = self.deletes.iter().map(Vec::as_slice);
        puts.chain(deletes).chain(self.unread.iter().flat_map(|(keys, _)| keys.iter()))
    }

    /// All changes; `None` deletes.
    pub fn into_changes(self) -> impl Iterator<Item = (Key, Option<Bytes>)> {
        let deletes = self.deletes.into_iter().map(|key| (key, None));
        let puts = self.puts.into_iter().map(|(key, value)| (key, Some(value)));
        let unread = self.unread.into_iter().flat_map(|(keys, value)| {
            keys.iter().map(|key| (key.to_vec(), value.clone())).collect::<Vec<_>>()
        });
        deletes.chain(puts).chain(unread)
    }
}

/// What a commit answers.
#[derive(Debug, PartialEq, Eq)]
pub struct Committed<T> {
    pub out: T,
    /// The operation's own number if it wrote, the partition's current one if it was rejected.
    pub lsn: Lsn,
}

/// Why a commit failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("the partition has moved on: its epoch is newer than the caller's, or it is gone")]
    Fenced,
    #[error("too many operations wait for this partition")]
    Busy,
    #[error("the write is larger than the store accepts: {0}")]
    TooLarge(String),
    #[error("the store is not available: {0}")]
    Unavailable(String),
    #[error("the store could not find out whether the write happened: {0}")]
    Unknown(String),
    /// A fault of the operation, not of the store: its decision panicked, asked for reads without end, or
    /// named a key twice. Nothing was changed and other operations are not affected.
    #[error("the operation failed: {0}")]
    Failed(String),
}

/// Why a read or a partition change failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("the partition does not exist, or its epoch is newer than the caller's")]
    Fenced,
    #[error("the snapshot is older than the store allows")]
    SnapshotExpired,
    #[error("the entries are larger than the store accepts: {0}")]
    TooLarge(String),
    #[error("the data in {place} is damaged: {detail}")]
    Damaged { place: String, detail: String },
    #[error("the store is not available: {0}")]
    Unavailable(String),
}

/// Keys from `start` (inclusive) to `end` (exclusive; `None` = to the end of the partition).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub start: Key,
    pub end: Option<Key>,
}

impl KeyRange {
    pub fn new(start: Key, end: Key) -> Self {
        Self { start, end: Some(end) }
    }

    pub fn all() -> Self {
        Self { start: Key::new(), end: None }
    }

    /// All keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        while end.last() == Some(&0xFF) {
            end.pop();
        }
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Self { start: prefix.to_vec(), end: (!end.is_empty()).then_some(end) }
    }

    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// Whether a scan needs the values; index scans do not, and keys alone are cheaper on some engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Keys,
    KeysAndValues,
}

/// One page of a range, in key order of the given direction.
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

#[derive(Clone, Debug)]
pub enum ReadRequest {
    /// The values of these keys, in this order.
    Get(Vec<Key>),
    Scan(Scan),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    /// Empty when only keys were wanted.
    pub value: Bytes,
}

/// The answer to one read: one moment of the partition.
#[derive(Clone, Debug, Default)]
pub struct ReadPage {
    /// A lower bound of what was seen: the partition had reached at least this number.
    pub lsn: Lsn,
    /// For [`ReadRequest::Get`]: one slot per key.
    pub values: Vec<Option<Bytes>>,
    /// For [`ReadRequest::Scan`].
    pub entries: Vec<Entry>,
    /// For a scan: the range may hold more entries after the last one returned.
    pub more: bool,
}

/// A partitioned, ordered, durable map with one-shot transactions.
pub trait PartitionStore: Send + Sync + 'static {
    /// A short name for messages and metrics: `memory`, `embedded`, `postgres`.
    fn name(&self) -> &'static str;

    fn limits(&self) -> Limits {
        Limits::COMMON
    }

    /// All partitions, in no particular order.
    fn partitions(&self) -> BoxFuture<'_, Result<Vec<PartitionInfo>, StoreError>>;

    /// Rising numbers for new partitions, none below `from`. A store that places partitions by their number
    /// chooses them so that the new ones lie apart from each other and from those they are used `beside`.
    fn choose_numbers(
        &self,
        from: u32,
        count: usize,
        beside: Vec<PartitionId>,
    ) -> BoxFuture<'_, Result<Vec<PartitionId>, StoreError>> {
        drop(beside);
        Box::pin(async move { Ok(consecutive(from, count)) })
    }

    /// Makes an empty partition at epoch 0 whose numbers continue after `lsn`. If it exists it keeps what it
    /// has, and its numbers continue after the larger of its own and `lsn`: the children of a split are
    /// filled first and learn at the switch how far their parent came.
    fn create(&self, id: PartitionId, lsn: Lsn) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Moves the epoch on, so that commits and reads with `partition` fail as fenced. Waits for commits
    /// under way and answers the last number that was handed out.
    fn retire(&self, partition: PartitionRef) -> BoxFuture<'_, Result<Lsn, StoreError>>;

    /// Removes the partition and all it holds, in any epoch. Does nothing if it does not exist.
    fn destroy(&self, id: PartitionId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Runs the operation with others that wait for this partition, durably, in one group.
    /// Callers use the typed function [`commit`].
    fn commit(
        &self,
        partition: PartitionRef,
        op: Box<dyn ErasedOp>,
    ) -> BoxFuture<'_, Result<Lsn, CommitError>>;

    /// Reads one moment of the partition: some values, or one page of a range.
    fn read(
        &self,
        partition: PartitionRef,
        request: ReadRequest,
    ) -> BoxFuture<'_, Result<ReadPage, StoreError>>;

    /// Several reads of one moment, for as long as [`Limits::snapshot_age_max`].
    fn snapshot(&self, partition: PartitionRef) -> BoxFuture<'_, Result<Box<dyn Snapshot>, StoreError>>;

    /// Writes entries without a log sequence number, into a partition that serves nobody yet (the child of
    /// a split, a restore). Durable when it returns; repeating it is harmless.
    fn bulk_load(
        &self,
        partition: PartitionRef,
        entries: Vec<Entry>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes up to `entries_max` entries of the range without a log sequence number; answers how many.
    fn delete_range(
        &self,
        partition: PartitionRef,
        range: KeyRange,
        entries_max: usize,
    ) -> BoxFuture<'_, Result<usize, StoreError>>;

    /// Returns when the partition has passed `after` or the time is over; answers its number then.
    fn wait_lsn(
        &self,
        id: PartitionId,
        after: Lsn,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Lsn, StoreError>>;

    /// Bytes on disk (or in memory) of the partition, as well as the engine can tell cheaply.
    fn size_bytes(&self, id: PartitionId) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// What this process shares with others that have the same store open; `None` = it has the store alone.
    fn coordination(&self) -> Option<&dyn Coordination> {
        None
    }

    /// Flushes what is buffered and stops background work. Later calls fail as unavailable.
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}

pub(crate) fn consecutive(from: u32, count: usize) -> Vec<PartitionId> {
    (from..).take(count).map(PartitionId).collect()
}

/// A frozen view of one partition.
pub trait Snapshot: Send + Sync {
    fn lsn(&self) -> Lsn;
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, Result<ReadPage, StoreError>>;
}

/// Commits a typed operation and answers what its last decision gave.
pub async fn commit<O: Op>(
    store: &dyn PartitionStore,
    partition: PartitionRef,
    op: O,
) -> Result<Committed<O::Out>, CommitError> {
    let out = Arc::new(Mutex::new(None));
    let erased = Box::new(Typed { op, out: Arc::clone(&out) });
    let lsn = store.commit(partition, erased).await?;
    let out = out.lock().take().expect("a store that acknowledges has run the decision");
    Ok(Committed { out, lsn })
}

/// An operation whose answer stays with its caller, so that stores can queue operations of any type.
pub trait ErasedOp: Send {
    fn id(&self) -> u128;
    fn reads(&self, keys: &mut Vec<Key>);
    fn decide(&mut self, view: &dyn View, lsn: Lsn) -> ErasedDecision;
}

#[derive(Debug)]
pub enum ErasedDecision {
    Write(WriteSet),
    Reject,
    NeedReads(Vec<Key>),
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
        };
        *self.out.lock() = out;
        decision
    }
}
