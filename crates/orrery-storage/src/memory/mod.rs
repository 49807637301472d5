//! The memory engine: everything in this process, nothing on disk. It serves tests and throw-away servers,
//! so opening it is free and a commit costs no more than the decision and a few map updates.
//!
//! All work runs inline on the calling task: it is bounded (a page, a write set) and never does I/O. A commit
//! holds an upgradable read lock on its partition while it decides, so readers proceed, and takes the write
//! lock only to apply the write set. Every commit is its own group, because there is no fsync to share. Index entries
//! are put in their places only when a scan comes near them (`deferred`).

mod deferred;
mod table;
mod table_key;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

use self::table::{Table, Version};
use orrery_env::{monotonic, task};

use crate::contract::{
    CommitError, Entry, ErasedOp, KeyRange, Limits, Lsn, PartitionId, PartitionInfo, PartitionRef,
    PartitionStore, Pending, ReadPage, ReadRequest, Snapshot, StoreError,
};
use crate::transaction;

/// A store that discards its data when it is dropped.
pub struct Memory {
    limits: Limits,
    partitions: RwLock<HashMap<PartitionId, Arc<Partition>>>,
    closed: Arc<AtomicBool>,
}

struct Partition {
    state: RwLock<State>,
    /// The last LSN assigned; `None` once the partition is destroyed, which wakes all waiters.
    progress: watch::Sender<Option<Lsn>>,
}

struct State {
    epoch: u64,
    lsn: Lsn,
    table: Table,
    gone: bool,
}

struct MemorySnapshot {
    partition: Arc<Partition>,
    closed: Arc<AtomicBool>,
    version: Version,
    lsn: Lsn,
    taken: Instant,
    age_max: Duration,
}

impl Memory {
    /// An empty store with [`Limits::COMMON`].
    pub fn new() -> Self {
        Self::with_limits(Limits::COMMON)
    }

    /// An empty store with other limits, for tests that exceed them.
    pub fn with_limits(limits: Limits) -> Self {
        Self { limits, partitions: RwLock::default(), closed: Arc::default() }
    }

    fn open(&self) -> Result<(), StoreError> {
        check_open(&self.closed)
    }

    fn partition(&self, id: PartitionId) -> Result<Arc<Partition>, StoreError> {
        self.open()?;
        self.partitions.read().get(&id).cloned().ok_or(StoreError::Fenced)
    }

    fn run_commit(&self, partition: PartitionRef, op: &mut dyn ErasedOp) -> Result<Lsn, CommitError> {
        let found = self.partition(partition.id).map_err(|error| match error {
            StoreError::Unavailable(reason) => CommitError::Unavailable(reason),
            _ => CommitError::Fenced,
        })?;
        // Upgradable: readers go on while it decides, but no second writer gets in between decision and change.
        let state = found.state.upgradable_read();
        state.check(partition).map_err(|_| CommitError::Fenced)?;
        let (lsn, now) = (state.lsn + 1, state.table.version());
        let writes =
            transaction::run(op, lsn, &self.limits, &mut |key: &[u8]| Ok(state.table.get(key, now)))?;
        let Some(writes) = writes else { return Ok(state.lsn) };
        let mut state = RwLockUpgradableReadGuard::upgrade(state);
        // Also drops the pins of snapshots that have expired.
        state.table.begin_change(monotonic::now(), self.limits.snapshot_age_max);
        state.table.apply(writes);
        assert!(lsn > state.lsn, "LSNs of a partition only grow: {lsn} after {}", state.lsn);
        state.lsn = lsn;
        // Sent under the lock, so that waiters see LSNs in order.
        found.progress.send_replace(Some(lsn));
        Ok(lsn)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Partition {
    /// Locks the partition for a request, which finds everything in its place.
    fn read(&self, request: &ReadRequest) -> RwLockReadGuard<'_, State> {
        let state = self.state.read();
        let range = match request {
            ReadRequest::Get(_) => None,
            ReadRequest::Scan(scan) => Some(&scan.range),
            ReadRequest::Tally(tally) => Some(&tally.range),
        };
        // Rare: most reads are far from what was deferred, and share the lock.
        if range.is_some_and(|range| state.table.must_settle(range)) {
            drop(state);
            let mut state = self.state.write();
            state.table.settle();
            return RwLockWriteGuard::downgrade(state);
        }
        state
    }
}

impl State {
    fn check(&self, partition: PartitionRef) -> Result<(), StoreError> {
        if self.gone || self.epoch != partition.epoch { Err(StoreError::Fenced) } else { Ok(()) }
    }

    fn read(&self, request: &ReadRequest, at: Version, lsn: Lsn) -> ReadPage {
        let page = match request {
            ReadRequest::Get(keys) => ReadPage {
                values: keys.iter().map(|key| self.table.get(key, at)).collect(),
                ..ReadPage::default()
            },
            ReadRequest::Scan(scan) => self.table.scan(scan, at),
            ReadRequest::Tally(tally) => self.table.tally(tally, at),
        };
        ReadPage { lsn, ..page }
    }
}

impl PartitionStore for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn partitions(&self) -> Pending<'_, Vec<PartitionInfo>> {
        Box::pin(async move {
            self.open()?;
            let partitions = self.partitions.read();
            let describe = |(id, partition): (&PartitionId, &Arc<Partition>)| {
                let state = partition.state.read();
                PartitionInfo { id: *id, epoch: state.epoch, lsn: state.lsn }
            };
            Ok(partitions.iter().map(describe).collect())
        })
    }

    fn create(&self, id: PartitionId, lsn: Lsn) -> Pending<'_, ()> {
        Box::pin(async move {
            self.open()?;
            let mut partitions = self.partitions.write();
            let partition = partitions.entry(id).or_insert_with(|| {
                let state = State { epoch: 0, lsn, table: Table::default(), gone: false };
                Arc::new(Partition { state: RwLock::new(state), progress: watch::Sender::new(Some(lsn)) })
            });
            let mut state = partition.state.write();
            // Only forwards: an LSN that was acknowledged must never be assigned again.
            if lsn > state.lsn {
                state.lsn = lsn;
                partition.progress.send_replace(Some(lsn));
            }
            Ok(())
        })
    }

    fn retire(&self, partition: PartitionRef) -> Pending<'_, Lsn> {
        Box::pin(async move {
            let found = self.partition(partition.id)?;
            let mut state = found.state.write();
            state.check(partition)?;
            state.epoch += 1;
            Ok(state.lsn)
        })
    }

    fn destroy(&self, id: PartitionId) -> Pending<'_, ()> {
        Box::pin(async move {
            self.open()?;
            let Some(partition) = self.partitions.write().remove(&id) else { return Ok(()) };
            // Snapshots may still hold the partition; they find it gone and its table empty.
            let table = {
                let mut state = partition.state.write();
                state.gone = true;
                std::mem::take(&mut state.table)
            };
            partition.progress.send_replace(None);
            drop_in_background(table);
            Ok(())
        })
    }

    fn commit(&self, partition: PartitionRef, mut op: Box<dyn ErasedOp>) -> Pending<'_, Lsn, CommitError> {
        Box::pin(async move {
            // Everything runs inline, so a task that never waits would starve the others.
            yield_if_due().await;
            self.run_commit(partition, op.as_mut())
        })
    }

    fn read(&self, partition: PartitionRef, request: ReadRequest) -> Pending<'_, ReadPage> {
        Box::pin(async move {
            yield_if_due().await;
            let found = self.partition(partition.id)?;
            let state = found.read(&request);
            state.check(partition)?;
            Ok(state.read(&request, state.table.version(), state.lsn))
        })
    }

    fn snapshot(&self, partition: PartitionRef) -> Pending<'_, Box<dyn Snapshot>> {
        Box::pin(async move {
            let found = self.partition(partition.id)?;
            let taken = monotonic::now();
            let (version, lsn) = {
                // Version and LSN under one lock, so that they belong together.
                let mut state = found.state.write();
                state.check(partition)?;
                (state.table.pin(taken), state.lsn)
            };
            let snapshot = MemorySnapshot {
                partition: found,
                closed: Arc::clone(&self.closed),
                version,
                lsn,
                taken,
                age_max: self.limits.snapshot_age_max,
            };
            Ok(Box::new(snapshot) as Box<dyn Snapshot>)
        })
    }

    fn bulk_load(&self, partition: PartitionRef, entries: Vec<Entry>) -> Pending<'_, ()> {
        Box::pin(async move {
            let found = self.partition(partition.id)?;
            transaction::check_entries(&entries, &self.limits)?;
            let mut state = found.state.write();
            state.check(partition)?;
            state.table.begin_change(monotonic::now(), self.limits.snapshot_age_max);
            for entry in entries {
                state.table.put(&entry.key, entry.value);
            }
            Ok(())
        })
    }

    fn delete_range(&self, partition: PartitionRef, range: KeyRange, count_max: usize) -> Pending<'_, usize> {
        Box::pin(async move {
            let found = self.partition(partition.id)?;
            let mut state = found.state.write();
            state.check(partition)?;
            // Collected first: the table cannot be changed while it is iterated.
            let keys = state.table.keys(&range, count_max);
            let deleted = keys.len();
            state.table.begin_change(monotonic::now(), self.limits.snapshot_age_max);
            for key in keys {
                state.table.delete(&key);
            }
            Ok(deleted)
        })
    }

    fn wait_lsn(&self, id: PartitionId, after: Lsn, timeout: Duration) -> Pending<'_, Lsn> {
        Box::pin(async move {
            // Keep only the receiver while waiting: the partition may be destroyed in the meantime.
            let mut progress = self.partition(id)?.progress.subscribe();
            let passed = progress.wait_for(|lsn| lsn.is_none_or(|lsn| lsn > after));
            // Neither a timeout nor a dropped sender is an error; the code below tells them apart.
            drop(tokio::time::timeout(timeout, passed).await);
            self.open()?;
            let reached = *progress.borrow();
            reached.ok_or(StoreError::Fenced)
        })
    }

    fn size_bytes(&self, id: PartitionId) -> Pending<'_, u64> {
        Box::pin(async move { Ok(self.partition(id)?.state.read().table.bytes() as u64) })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.closed.store(true, Ordering::Release);
            let partitions = std::mem::take(&mut *self.partitions.write());
            for partition in partitions.values() {
                // Taking the lock waits for a commit in progress; later commits find the partition gone.
                partition.state.write().gone = true;
                partition.progress.send_replace(None);
            }
            drop_in_background(partitions);
            Ok(())
        })
    }
}

impl Snapshot for MemorySnapshot {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn read(&self, request: ReadRequest) -> Pending<'_, ReadPage> {
        Box::pin(async move {
            yield_if_due().await;
            check_open(&self.closed)?;
            let state = self.partition.read(&request);
            // Checked under the lock: a writer prunes a snapshot's version only once the snapshot has expired.
            if monotonic::elapsed(self.taken) >= self.age_max {
                return Err(StoreError::SnapshotExpired);
            }
            if state.gone {
                return Err(StoreError::Fenced);
            }
            Ok(state.read(&request, self.version, self.lsn))
        })
    }
}

impl Drop for MemorySnapshot {
    fn drop(&mut self) {
        self.partition.state.write().table.unpin(self.version);
    }
}

fn check_open(closed: &AtomicBool) -> Result<(), StoreError> {
    if closed.load(Ordering::Acquire) {
        return Err(StoreError::Unavailable("it is closed".to_owned()));
    }
    Ok(())
}

/// Nothing here ever awaits I/O, so a task that only uses the store would never yield. This consumes the
/// task's cooperative budget, which makes it yield now and then.
async fn yield_if_due() {
    tokio::task::coop::consume_budget().await;
}

/// Freeing millions of entries takes a while, so it runs off the request threads where a runtime exists.
fn drop_in_background(freed: impl Send + 'static) {
    if tokio::runtime::Handle::try_current().is_ok() {
        // Detached: nothing depends on when the memory is returned.
        drop(task::run_blocking("free memory", move || drop(freed)));
    } else {
        drop(freed);
    }
}
