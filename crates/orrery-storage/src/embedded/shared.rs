//! State shared by the store's threads: the partitions as readers see them, and the committer's queue.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::{oneshot, watch};

use orrery_env::monotonic;

use super::EmbeddedOptions;
use super::background::Background;
use super::checkpoint::LinkedJournal;
use super::condition::Condition;
use super::layout::{PartitionRecord, Slot};
use super::read::SlowScanBackoff;
use super::tree::{Tree, TreeError};
use super::verify;
use super::watchdog::Activities;
use crate::contract::{
    CommitError, Entry, ErasedOp, Key, Lsn, PartitionId, PartitionInfo, PartitionRef, StoreError,
};

pub(super) struct Shared {
    pub(super) directory: PathBuf,
    pub(super) options: EmbeddedOptions,
    pub(super) tree: Tree,
    pub(super) health: Condition,
    pub(super) threads: Activities,
    pub(super) queue: Queue,
    pub(super) background: Background,
    pub(super) slow_scans: SlowScanBackoff,
    partitions: RwLock<HashMap<PartitionId, Arc<Partition>>>,
    /// The table that was found damaged, so that later errors need not search again.
    damaged_table: Mutex<Option<(PathBuf, String)>>,
}

/// A partition as readers and writers see it. Only the committer changes it, and only once the change is durable.
pub(super) struct Partition {
    pub(super) id: PartitionId,
    pub(super) slot: Slot,
    epoch: AtomicU64,
    lsn: AtomicU64,
    gone: AtomicBool,
    /// Operations of this partition in the queue.
    waiting: AtomicUsize,
    /// Bytes written since the store was opened, for the size estimate.
    written_bytes: AtomicU64,
    /// The last LSN assigned; `None` once the partition is destroyed or the store has failed.
    progress: watch::Sender<Option<Lsn>>,
}

/// Work for the committer.
pub(super) enum Task {
    Commit {
        partition: Arc<Partition>,
        epoch: u64,
        op: Box<dyn ErasedOp>,
        reply: oneshot::Sender<Result<Lsn, CommitError>>,
    },
    Create {
        id: PartitionId,
        lsn: Lsn,
        reply: Reply<()>,
    },
    Retire {
        partition: PartitionRef,
        reply: Reply<Lsn>,
    },
    Destroy {
        id: PartitionId,
        reply: Reply<()>,
    },
    Load {
        partition: PartitionRef,
        entries: Vec<Entry>,
        reply: Reply<()>,
    },
    Delete {
        partition: PartitionRef,
        keys: Vec<Key>,
        reply: Reply<usize>,
    },
    /// Deletes leftover entries of destroyed partitions.
    Sweep {
        keys: Vec<Bytes>,
    },
    /// Frees what the tree retains for readers that are gone.
    Collect,
    /// Links all journals into a checkpoint's directory.
    LinkJournals {
        into: PathBuf,
        reply: Reply<Vec<LinkedJournal>>,
    },
    Close {
        reply: Reply<()>,
    },
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Task>,
    /// Since when a task has been waiting to be taken.
    since: Option<Instant>,
    /// Wake the committer even though the queue is empty.
    woken: bool,
    /// The committer has exited.
    closed: bool,
}

impl Shared {
    pub(super) fn new(directory: PathBuf, options: EmbeddedOptions, tree: Tree) -> Self {
        Self {
            directory,
            options,
            tree,
            health: Condition::default(),
            threads: Activities::default(),
            queue: Queue::default(),
            background: Background::default(),
            slow_scans: SlowScanBackoff::default(),
            partitions: RwLock::default(),
            damaged_table: Mutex::default(),
        }
    }

    /// For reads, which are served even when writes are offline.
    pub(super) fn partition(&self, id: PartitionId) -> Result<Arc<Partition>, StoreError> {
        self.health.check_open().map_err(StoreError::Unavailable)?;
        self.find(id).ok_or(StoreError::Fenced)
    }

    pub(super) fn find(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.partitions.read().get(&id).cloned()
    }

    pub(super) fn infos(&self) -> Vec<PartitionInfo> {
        self.partitions.read().values().map(|partition| partition.info()).collect()
    }

    /// The slots of all live partitions.
    pub(super) fn live_slots(&self) -> BTreeSet<u32> {
        self.partitions.read().values().map(|partition| partition.slot.0).collect()
    }

    pub(super) fn insert(&self, partition: Arc<Partition>) {
        let mut partitions = self.partitions.write();
        debug_assert!(
            partitions.values().all(|other| other.slot != partition.slot),
            "slot {} has two partitions",
            partition.slot.0
        );
        partitions.insert(partition.id, partition);
    }

    pub(super) fn remove(&self, id: PartitionId, slot: Slot) {
        let mut partitions = self.partitions.write();
        // The id may already belong to a newer partition, which a group created after destroying the old one.
        if partitions.get(&id).is_some_and(|partition| partition.slot == slot)
            && let Some(partition) = partitions.remove(&id)
        {
            // Readers that hold the `Arc` already must see it too, not only those that look it up from now on.
            partition.gone.store(true, Ordering::Release);
            partition.progress.send_replace(None);
        }
    }

    /// Takes writes offline. The first reason is kept.
    pub(super) fn fail(&self, reason: &str) {
        if self.health.fail(reason) {
            tracing::error!(directory = %self.directory.display(), reason, "writes are offline until a restart");
        }
        self.wake_everyone();
    }

    pub(super) fn wake_everyone(&self) {
        self.queue.wake();
        self.background.wake();
        // Waiters for an LSN would otherwise sleep until their timeout.
        for partition in self.partitions.read().values() {
            partition.progress.send_replace(None);
        }
    }

    /// Turns a failed read into an error that names the damaged file. May read all tables, so it must not run on a
    /// thread that serves requests.
    pub(super) fn explain(&self, fault: TreeError) -> StoreError {
        let detail = match fault {
            // Not damage: the next attempt may succeed.
            TreeError::Io(detail) => return StoreError::Unavailable(detail),
            TreeError::Full(detail) => return StoreError::Full(detail),
            TreeError::Damaged(detail) => detail,
        };
        // Held while searching, so that concurrent failures search only once.
        let mut known = self.damaged_table.lock();
        if known.is_none() {
            let mut tables = self.tree.tables().into_iter();
            *known = tables.find_map(|(path, checksum)| verify::check_table(&path, checksum));
        }
        let place = match known.as_ref() {
            Some((path, _)) => path.display().to_string(),
            None => self.directory.display().to_string(),
        };
        tracing::error!(place, detail, "damaged data");
        StoreError::Damaged { place, detail }
    }
}

impl Partition {
    pub(super) fn new(id: PartitionId, record: PartitionRecord) -> Self {
        Self {
            id,
            slot: record.slot,
            epoch: AtomicU64::new(record.epoch),
            lsn: AtomicU64::new(record.lsn),
            gone: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            written_bytes: AtomicU64::new(0),
            progress: watch::Sender::new(Some(record.lsn)),
        }
    }

    pub(super) fn check(&self, epoch: u64) -> Result<(), StoreError> {
        if self.gone.load(Ordering::Acquire) || self.epoch.load(Ordering::Acquire) != epoch {
            return Err(StoreError::Fenced);
        }
        Ok(())
    }

    pub(super) fn check_present(&self) -> Result<(), StoreError> {
        if self.gone.load(Ordering::Acquire) { Err(StoreError::Fenced) } else { Ok(()) }
    }

    pub(super) fn lsn(&self) -> Lsn {
        self.lsn.load(Ordering::Acquire)
    }

    pub(super) fn record(&self) -> PartitionRecord {
        PartitionRecord { slot: self.slot, epoch: self.epoch.load(Ordering::Acquire), lsn: self.lsn() }
    }

    /// Publishes a durable change to readers and waiters.
    pub(super) fn advance(&self, record: PartitionRecord) {
        assert!(record.slot == self.slot, "partition {} keeps its slot for life", self.id.0);
        // Only the committer advances a partition, so nothing changes between the checks and the stores.
        let before = self.record();
        assert!(record.epoch >= before.epoch, "epochs only grow: {} after {}", record.epoch, before.epoch);
        assert!(record.lsn >= before.lsn, "LSNs only grow: {} after {}", record.lsn, before.lsn);
        // The epoch first: a reader that sees the new LSN also sees that the partition has been retired.
        self.epoch.store(record.epoch, Ordering::Release);
        self.lsn.store(record.lsn, Ordering::Release);
        // Waking the waiters costs, and a retirement alone does not concern them.
        if record.lsn != before.lsn {
            self.progress.send_replace(Some(record.lsn));
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Lsn>> {
        self.progress.subscribe()
    }

    /// Counts an operation into the queue, unless the queue is full.
    pub(super) fn enter_queue(&self, waiting_max: usize) -> bool {
        // Count first, then compare: two callers can never both take the last place.
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= waiting_max {
            self.leave_queue();
            return false;
        }
        true
    }

    pub(super) fn leave_queue(&self) {
        let waiting = self.waiting.fetch_sub(1, Ordering::AcqRel);
        assert!(waiting > 0, "an operation leaves the queue once");
    }

    pub(super) fn count_written(&self, bytes: usize) {
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    fn info(&self) -> PartitionInfo {
        let record = self.record();
        PartitionInfo { id: self.id, epoch: record.epoch, lsn: record.lsn }
    }
}

impl Queue {
    /// Adds a task. Returns it if `tasks_max` tasks are waiting already or the committer has exited.
    pub(super) fn push(&self, task: Task, tasks_max: usize) -> Result<(), (Task, Refusal)> {
        {
            let mut waiting = self.waiting.lock();
            if waiting.closed {
                return Err((task, Refusal::Closed));
            }
            if waiting.tasks.len() >= tasks_max {
                return Err((task, Refusal::Full));
            }
            waiting.tasks.push_back(task);
            waiting.since.get_or_insert_with(monotonic::now);
        }
        // After the lock is released, so that the committer does not wake only to wait for it.
        self.arrived.notify_one();
        Ok(())
    }

    /// Takes up to `tasks_max` tasks. Blocks until one arrives, for at most `timeout` if given.
    pub(super) fn take(&self, tasks_max: usize, timeout: Option<Duration>) -> Vec<Task> {
        let mut waiting = self.waiting.lock();
        if waiting.tasks.is_empty() && !waiting.woken {
            match timeout {
                Some(timeout) => drop(self.arrived.wait_for(&mut waiting, timeout)),
                None => self.arrived.wait(&mut waiting),
            }
        }
        // Reset under the lock: a wake-up that arrives from now on ends the next wait.
        waiting.woken = false;
        let count = waiting.tasks.len().min(tasks_max);
        // The remaining tasks restart their wait: the watchdog measures how long the committer takes no task.
        waiting.since = (count < waiting.tasks.len()).then(monotonic::now);
        waiting.tasks.drain(..count).collect()
    }

    /// How long a task has been waiting for the committer to take it.
    pub(super) fn waiting_time(&self) -> Duration {
        self.waiting.lock().since.map_or(Duration::ZERO, monotonic::elapsed)
    }

    /// Takes the remaining tasks and refuses new ones.
    pub(super) fn close(&self) -> Vec<Task> {
        let mut waiting = self.waiting.lock();
        // Under the same lock as `push`, so no task can slip in behind the last `drain`.
        waiting.closed = true;
        waiting.tasks.drain(..).collect()
    }

    pub(super) fn wake(&self) {
        self.waiting.lock().woken = true;
        self.arrived.notify_one();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Full,
    Closed,
}
