//! What the threads of the store share: the partitions as readers see them, the store's health, the queue
//! of the committer.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::{oneshot, watch};

use super::EmbeddedOptions;
use super::background::Background;
use super::layout::{PartitionRecord, Slot};
use super::read::Wariness;
use super::tree::{Fault, Tree};
use super::verify;
use crate::contract::{
    CommitError, Entry, ErasedOp, Key, Lsn, PartitionId, PartitionInfo, PartitionRef, StoreError,
};

pub(super) struct Shared {
    pub(super) directory: PathBuf,
    pub(super) options: EmbeddedOptions,
    pub(super) tree: Tree,
    pub(super) health: Health,
    pub(super) queue: Queue,
    pub(super) background: Background,
    pub(super) wariness: Wariness,
    partitions: RwLock<HashMap<PartitionId, Arc<Partition>>>,
    /// The table that was found damaged, so that later faults need not search again.
    damaged_table: Mutex<Option<(PathBuf, String)>>,
}

/// A partition as its readers and writers find it. Changed only by the committer, and only after the change
/// is durable.
pub(super) struct Partition {
    pub(super) id: PartitionId,
    pub(super) slot: Slot,
    epoch: AtomicU64,
    lsn: AtomicU64,
    gone: AtomicBool,
    /// Operations in the queue.
    waiting: AtomicUsize,
    /// Bytes written since the store was opened, for the estimate of the size.
    written_bytes: AtomicU64,
    /// The last number handed out; `None` once the partition is gone.
    progress: watch::Sender<Option<Lsn>>,
}

/// Why the store serves nobody any more, once it does not.
#[derive(Default)]
pub(super) struct Health {
    fault: RwLock<Option<String>>,
    failed: AtomicBool,
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
    /// Removes these keys of the tree: what destroyed partitions left behind.
    Sweep {
        keys: Vec<Bytes>,
        reply: Reply<()>,
    },
    /// Let go of what the tree keeps for readers that are gone.
    Collect,
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
    /// The committer is to look around even if nothing waits.
    woken: bool,
    /// Nobody takes tasks any more.
    closed: bool,
}

impl Shared {
    pub(super) fn new(directory: PathBuf, options: EmbeddedOptions, tree: Tree) -> Self {
        Self {
            directory,
            options,
            tree,
            health: Health::default(),
            queue: Queue::default(),
            background: Background::default(),
            wariness: Wariness::default(),
            partitions: RwLock::default(),
            damaged_table: Mutex::default(),
        }
    }

    pub(super) fn partition(&self, id: PartitionId) -> Result<Arc<Partition>, StoreError> {
        self.health.check().map_err(StoreError::Unavailable)?;
        self.find(id).ok_or(StoreError::Fenced)
    }

    pub(super) fn find(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.partitions.read().get(&id).cloned()
    }

    pub(super) fn infos(&self) -> Vec<PartitionInfo> {
        self.partitions.read().values().map(|partition| partition.info()).collect()
    }

    pub(super) fn insert(&self, partition: Arc<Partition>) {
        self.partitions.write().insert(partition.id, partition);
    }

    pub(super) fn remove(&self, id: PartitionId, slot: Slot) {
        let mut partitions = self.partitions.write();
        if partitions.get(&id).is_some_and(|partition| partition.slot == slot)
            && let Some(partition) = partitions.remove(&id)
        {
            partition.gone.store(true, Ordering::Release);
            partition.progress.send_replace(None);
        }
    }

    /// Takes the store offline. The first reason stays.
    pub(super) fn fail(&self, reason: &str) {
        if self.health.set(reason) {
            tracing::error!(directory = %self.directory.display(), reason, "the store went offline");
        }
        self.wake_everyone();
    }

    pub(super) fn wake_everyone(&self) {
        self.queue.wake();
        self.background.wake();
        for partition in self.partitions.read().values() {
            partition.progress.send_replace(None);
        }
    }

    /// Gives a failed read the name of the file that is to blame. May read all tables: not for a thread that
    /// serves requests.
    pub(super) fn explain(&self, fault: Fault) -> StoreError {
        let detail = match fault {
            Fault::Io(detail) => return StoreError::Unavailable(detail),
            Fault::Damaged(detail) => detail,
        };
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

    /// Shows a durable change to readers and waiters.
    pub(super) fn advance(&self, record: PartitionRecord) {
        self.epoch.store(record.epoch, Ordering::Release);
        if self.lsn.swap(record.lsn, Ordering::AcqRel) != record.lsn {
            self.progress.send_replace(Some(record.lsn));
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Lsn>> {
        self.progress.subscribe()
    }

    /// Counts an operation into the queue, unless too many wait already.
    pub(super) fn enter_queue(&self, waiting_max: usize) -> bool {
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= waiting_max {
            self.leave_queue();
            return false;
        }
        true
    }

    pub(super) fn leave_queue(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
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

impl Health {
    pub(super) fn check(&self) -> Result<(), String> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(self.fault.read().clone().unwrap_or_default())
    }

    pub(super) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Answers whether this is the first fault.
    pub(super) fn set(&self, reason: &str) -> bool {
        let mut fault = self.fault.write();
        let first = fault.is_none();
        fault.get_or_insert_with(|| reason.to_owned());
        self.failed.store(true, Ordering::Release);
        first
    }
}

impl Queue {
    /// Adds a task, unless more than `tasks_max` wait already or nobody would serve it; gives it back then.
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
        }
        self.arrived.notify_one();
        Ok(())
    }

    /// Takes what waits, at most `tasks_max`; waits for something to arrive, but not longer than `patience`
    /// if one is given.
    pub(super) fn take(&self, tasks_max: usize, patience: Option<Duration>) -> Vec<Task> {
        let mut waiting = self.waiting.lock();
        if waiting.tasks.is_empty() && !waiting.woken {
            match patience {
                Some(patience) => drop(self.arrived.wait_for(&mut waiting, patience)),
                None => self.arrived.wait(&mut waiting),
            }
        }
        waiting.woken = false;
        let count = waiting.tasks.len().min(tasks_max);
        waiting.tasks.drain(..count).collect()
    }

    /// Takes the rest; nothing is accepted from now on.
    pub(super) fn close(&self) -> Vec<Task> {
        let mut waiting = self.waiting.lock();
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
