//! The embedded engine: one directory on a local disk, one process.
//!
//! All partitions share one LSM tree and one journal, and a single committer thread writes both. A commit is
//! durable once its journal record is fsynced; tables are written and merged in the background.
//!
//! * `layout`: the files of a data directory and the encoding of keys.
//! * `journal`: the write-ahead log that makes a group of commits durable.
//! * `tree`: the LSM tree and the pins that keep a point in time readable; `deferred`: index entries that wait to be
//!   inserted into its memtable.
//! * `committer`: the only thread that writes, in groups; `overlay`: the writes of the current group; `syncer`: a
//!   helper thread that fsyncs the journal while the committer fills the memtable.
//! * `background`: the flusher and merger threads; `sweep`: how destroyed partitions leave the tree.
//! * `condition`: whether the store accepts reads and writes; `watchdog`: detects stalls and a full disk.
//! * `store`, `read`: the storage contract, implemented on the above.
//! * `checkpoint`: a consistent set of files while the store is running; `kept_log`: journals retained for restoring to
//!   a point in time; `history`: the id of a line of writes; `backup`: repositories of backups, and restoring from
//!   them.
//! * `open`: creates, checks and recovers a directory; `verify`: names the damaged file.
//!
//! Reads run concurrently with the committer, on the state it published last. They never wait for an fsync.
//! `docs/design/0002-group-commit.md` draws which thread waits for which.

mod background;
mod backup;
mod checkpoint;
mod committer;
mod condition;
mod deferred;
mod error;
mod history;
mod journal;
mod kept_log;
mod layout;
mod open;
mod overlay;
mod read;
mod shared;
mod store;
mod sweep;
mod syncer;
mod tree;
mod verify;
mod watchdog;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_env::{Env, SystemEnv};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub use self::backup::{
    BackupError, BackupRepository, BackupSummary, FileReceiver, ManifestFile, NewBackup, RestoreSummary,
};
pub use self::error::OpenError;
use self::shared::Shared;
use crate::contract::Limits;

/// When a commit reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before it is acknowledged.
    Always,
    /// At most this many milliseconds after it is acknowledged. A process crash loses nothing; a power failure
    /// may lose the last interval.
    Relaxed { interval_ms: u32 },
}

/// Tuning of the engine. The defaults suit a server of any size.
#[derive(Clone)]
pub struct EmbeddedOptions {
    /// Where the time of journal records and the ids of histories come from.
    pub env: Arc<dyn Env>,
    pub durability: Durability,
    /// Memory for the block cache, including allocator overhead.
    pub cache_bytes: u64,
    /// Size at which a memtable is sealed. Up to three exist at once, which bounds memory and crash recovery.
    pub memtable_bytes: u64,
    /// Target size of a merged table.
    pub table_bytes: u64,
    pub limits: Limits,
    /// Operations that may wait for the committer: in total, and for one partition.
    pub waiting_max: usize,
    pub partition_waiting_max: usize,
    /// Scans and other slow reads that may run concurrently.
    pub slow_reads_max: usize,
    /// Disk space that only deletions and a clean shutdown may use.
    pub disk_reserve_bytes: u64,
    /// A write that waits this long counts as stalled: health checks fail, and the log says what every thread is doing.
    pub stall_after: Duration,
    /// How long journals are kept after their writes are in tables, for restoring to a point in time; zero = not at all.
    pub keep_log: Duration,
    /// Verify the checksums of all tables when the store is opened.
    pub verify_tables: bool,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            env: Arc::new(SystemEnv),
            durability: Durability::Always,
            cache_bytes: 64 << 20,
            memtable_bytes: 16 << 20,
            table_bytes: 16 << 20,
            limits: Limits::COMMON,
            waiting_max: 16_384,
            partition_waiting_max: 4096,
            slow_reads_max: slow_reads_max(),
            disk_reserve_bytes: 64 << 20,
            stall_after: Duration::from_secs(30),
            keep_log: Duration::ZERO,
            verify_tables: false,
        }
    }
}

/// Enough to keep CPUs and disk busy. Each slow read occupies a thread, and each thread has its own memory.
fn slow_reads_max() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (4 * processors).clamp(8, 32)
}

/// A store in a local directory.
pub struct Embedded {
    shared: Arc<Shared>,
    slow_reads: Arc<Semaphore>,
    threads: Arc<Threads>,
}

/// The store's threads and the lock on its directory, which is released once every thread has exited.
struct Threads(Mutex<Option<(Vec<JoinHandle<()>>, File)>>);

impl Embedded {
    /// Opens the store in this directory, or creates one if the directory is empty or missing. Blocks for a few
    /// milliseconds, or after a crash for as long as replaying up to three memtables takes.
    pub fn open(directory: impl Into<PathBuf>, options: EmbeddedOptions) -> Result<Self, OpenError> {
        let slow_reads = Arc::new(Semaphore::new(options.slow_reads_max.max(1)));
        let (shared, threads, lock) = open::open(directory.into(), options)?;
        let threads = Arc::new(Threads(Mutex::new(Some((threads, lock)))));
        Ok(Self { shared, slow_reads, threads })
    }

    /// Where the data is.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// The tuning the store was opened with.
    pub fn options(&self) -> &EmbeddedOptions {
        &self.shared.options
    }

    /// Verifies the checksums of all tables; returns the damaged files and what is wrong with them.
    /// Reads everything, so run it on a thread that may block.
    pub fn verify(&self) -> Vec<(PathBuf, String)> {
        let tables = self.shared.tree.tables().into_iter();
        tables.filter_map(|(path, checksum)| verify::check_table(&path, checksum)).collect()
    }
}

impl Threads {
    /// Stops all threads and releases the directory. Blocks until that is done, even if another caller started it.
    fn stop(&self, shared: &Shared) {
        let mut threads = self.0.lock();
        // In this order: refuse new calls, abort merges, then wake every thread so that it sees it.
        shared.health.close();
        shared.tree.stop();
        shared.background.stop();
        shared.queue.wake();
        let Some((threads, lock)) = threads.take() else { return };
        for thread in threads {
            // A thread that panicked has taken the store offline and logged the reason.
            drop(thread.join());
        }
        // Closing the file is not enough: a child process that is just being started by another thread holds a copy of
        // the descriptor until it executes its program.
        drop(lock.unlock());
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.threads.stop(&self.shared);
    }
}

#[cfg(test)]
mod tests {
    use super::layout::{PartitionRecord, Slot};
    use super::*;
    use crate::contract::{
        CommitError, Decision, Entry, Health, Key, KeyRange, Lsn, Op, PartitionId, PartitionRef,
        PartitionStore, ReadRequest, Scan, StoreError, View, WriteSet, commit,
    };

    fn entries_in_tree(store: &Embedded) -> Vec<Vec<u8>> {
        let scan = Scan { bytes_max: usize::MAX, ..Scan::forward(KeyRange::all(), usize::MAX) };
        let (start, end) = (Slot::STORE.key(&[]), Slot(u32::MAX).key(&[]));
        let page = store.shared.tree.pin().scan_full(start, end, &scan).unwrap();
        page.entries.into_iter().map(|entry| entry.key).collect()
    }

    /// An operation that breaks an invariant of the committer: while it decides, it moves its partition's LSN ahead,
    /// so that publishing the group would move it back.
    struct LsnJump {
        shared: Arc<Shared>,
        /// Where to report a close request that is queued while the operation decides.
        close: Mutex<Option<shared::Reply<()>>>,
    }

    impl LsnJump {
        fn new(store: &Embedded) -> Self {
            Self { shared: Arc::clone(&store.shared), close: Mutex::default() }
        }
    }

    impl Op for LsnJump {
        type Out = ();

        fn id(&self) -> u128 {
            7
        }

        fn reads(&self, _: &mut Vec<Key>) {}

        fn decide(&self, _: &dyn View, lsn: Lsn) -> Decision<()> {
            if let Some(reply) = self.close.lock().take() {
                assert!(self.shared.queue.push(shared::Task::Close { reply }, usize::MAX).is_ok());
            }
            let partition = self.shared.find(PartitionId(1)).unwrap();
            let record = partition.record();
            partition.advance(PartitionRecord { lsn: lsn + 100, ..record });
            let mut writes = WriteSet::default();
            writes.put(b"doubtful".to_vec(), "1");
            Decision::Write(writes, ())
        }
    }

    #[tokio::test]
    async fn a_broken_invariant_takes_writes_offline_and_reads_go_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let store = Embedded::open(&path, EmbeddedOptions::default()).unwrap();
        let partition = PartitionRef { id: PartitionId(1), epoch: 0 };
        store.create(partition.id, 0).await.unwrap();
        let entry = Entry { key: b"before".to_vec(), value: "1".into() };
        store.bulk_load(partition, vec![entry.clone()]).await.unwrap();

        let failed = commit(&store, partition, LsnJump::new(&store)).await;
        assert!(matches!(failed, Err(CommitError::Unknown(_))), "{failed:?}");
        // The callers get their replies while the committer unwinds, just before it records the failure.
        let deadline = orrery_env::monotonic::now() + std::time::Duration::from_secs(30);
        while store.health() == Health::Ready && orrery_env::monotonic::now() < deadline {
            tokio::task::yield_now().await;
        }
        let Health::Failed(reason) = store.health() else { panic!("{:?}", store.health()) };
        assert!(reason.contains("LSNs only grow"), "{reason}");
        let refused = store.bulk_load(partition, vec![entry.clone()]).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        let read = store.read(partition, ReadRequest::Get(vec![entry.key.clone()])).await.unwrap();
        assert_eq!(read.values, [Some(entry.value.clone())]);

        // The group was durable before the assertion failed, so recovery finds it.
        drop(store);
        let store = Embedded::open(&path, EmbeddedOptions::default()).unwrap();
        let keys = vec![entry.key, b"doubtful".to_vec()];
        let read = store.read(partition, ReadRequest::Get(keys)).await.unwrap();
        assert!(read.values.iter().all(Option::is_some));
        assert_eq!(store.health(), Health::Ready);
    }

    /// Also when the request to close reaches the committer before it has noticed the failure.
    #[tokio::test]
    async fn closing_a_failed_store_reports_the_failure() {
        let directory = tempfile::tempdir().unwrap();
        let store = Embedded::open(directory.path().join("data"), EmbeddedOptions::default()).unwrap();
        let partition = PartitionRef { id: PartitionId(1), epoch: 0 };
        store.create(partition.id, 0).await.unwrap();
        let (reply, closed) = tokio::sync::oneshot::channel();
        let operation = LsnJump { close: Mutex::new(Some(reply)), ..LsnJump::new(&store) };
        commit(&store, partition, operation).await.unwrap_err();
        let closed = closed.await.unwrap();
        assert!(matches!(closed, Err(StoreError::Unavailable(_))), "{closed:?}");
        assert!(matches!(store.close().await, Err(StoreError::Unavailable(_))));
    }

    /// Covers entries in the memtable, in tables of their own and in shared tables, with a restart in between.
    #[tokio::test]
    async fn destroyed_partitions_leave_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let sizes = EmbeddedOptions { memtable_bytes: 64 << 10, table_bytes: 64 << 10, ..Default::default() };
        let mut store = Embedded::open(&path, sizes.clone()).unwrap();
        let partitions = [(1, 2000), (2, 5), (3, 2000), (4, 0)];
        for (id, entries) in partitions {
            let partition = PartitionRef { id: PartitionId(id), epoch: 0 };
            store.create(partition.id, 0).await.unwrap();
            let entry = |key: u32| Entry { key: key.to_be_bytes().to_vec(), value: vec![7; 100].into() };
            store.bulk_load(partition, (0..entries).map(entry).collect()).await.unwrap();
        }
        for (id, _) in partitions {
            store.destroy(PartitionId(id)).await.unwrap();
            if id == 2 {
                drop(store);
                store = Embedded::open(&path, sizes.clone()).unwrap();
            }
        }
        let deadline = orrery_env::monotonic::now() + std::time::Duration::from_secs(30);
        while entries_in_tree(&store) != [b"J", b"N", b"T"] {
            assert!(
                orrery_env::monotonic::now() < deadline,
                "{} entries remain",
                entries_in_tree(&store).len()
            );
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_closed_directory_can_be_opened_while_a_copy_of_its_lock_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let store = Embedded::open(directory.path(), EmbeddedOptions::default()).unwrap();
        let copy = store.threads.0.lock().as_ref().unwrap().1.try_clone().unwrap();
        store.close().await.unwrap();
        Embedded::open(directory.path(), EmbeddedOptions::default()).unwrap();
        drop(copy);
    }

    /// Old table lists and their memtables must not pile up once their readers are gone.
    #[tokio::test]
    async fn table_lists_are_freed_once_unread() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits { snapshot_age_max: std::time::Duration::ZERO, ..Limits::COMMON };
        let sizes =
            EmbeddedOptions { memtable_bytes: 16 << 10, table_bytes: 64 << 10, limits, ..Default::default() };
        let store = Embedded::open(directory.path().join("data"), sizes).unwrap();
        let partition = PartitionRef { id: PartitionId(1), epoch: 0 };
        store.create(partition.id, 0).await.unwrap();
        // Never dropped, but expired immediately.
        let mut forgotten = Vec::new();
        for round in 0..200_u32 {
            forgotten.push(store.snapshot(partition).await.unwrap());
            let entry =
                |key: u32| Entry { key: (key + round).to_be_bytes().to_vec(), value: vec![7; 100].into() };
            store.bulk_load(partition, (0..20).map(entry).collect()).await.unwrap();
        }
        let deadline = orrery_env::monotonic::now() + std::time::Duration::from_secs(30);
        while store.shared.tree.kept_lists() > 2 {
            assert!(
                orrery_env::monotonic::now() < deadline,
                "{} lists are kept",
                store.shared.tree.kept_lists()
            );
            tokio::task::yield_now().await;
        }
    }
}
