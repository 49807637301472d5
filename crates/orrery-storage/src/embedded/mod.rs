//! The embedded engine: one directory on a local disk, one process.
//!
//! * `layout`: what lies where, and how keys are written.
//! * `journal`: where a group of commits becomes durable.
//! * `tree`: the LSM tree behind it and the moments at which it can be read.
//! * `committer`: the one thread that writes, in groups; `overlay`: what a group has written so far; `syncer`: the
//!   thread that flushes the journal of large groups meanwhile.
//! * `background`: the threads that write tables, merge them and remove destroyed partitions.
//! * `store`, `read`: the contract, in terms of the above.
//! * `open`: creating, checking and recovering a directory.
//! * `verify`: naming the file that is damaged.
//!
//! Reads run beside the committer on what was published last. They never wait for a flush of the journal.

mod background;
mod committer;
mod error;
mod journal;
mod layout;
mod open;
mod overlay;
mod read;
mod shared;
mod store;
mod syncer;
mod tree;
mod verify;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub use self::error::OpenError;
use self::shared::Shared;
use crate::contract::Limits;

/// When a commit is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before it is acknowledged.
    Always,
    /// At most this many milliseconds after it is acknowledged: the end of the process loses nothing, a
    /// power failure may lose the last of it.
    Relaxed { interval_ms: u32 },
}

/// How to run the engine. The defaults suit a server of any size.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    pub durability: Durability,
    /// Memory for blocks of tables, with what they take beyond their content.
    pub cache_bytes: u64,
    /// Size of the memtable. It bounds memory, and the replay after a crash: up to three of them.
    pub memtable_bytes: u64,
    /// Size of a table after merging.
    pub table_bytes: u64,
    pub limits: Limits,
    /// Operations that may wait for the committer, in all and for one partition.
    pub waiting_max: usize,
    pub partition_waiting_max: usize,
    /// Scans and other slow reads that may run at once.
    pub slow_reads_max: usize,
    /// Read all tables at the start and compare them with their checksums.
    pub verify_tables: bool,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Always,
            cache_bytes: 64 << 20,
            memtable_bytes: 16 << 20,
            table_bytes: 16 << 20,
            limits: Limits::COMMON,
            waiting_max: 16_384,
            partition_waiting_max: 4096,
            slow_reads_max: slow_reads_max(),
            verify_tables: false,
        }
    }
}

/// Enough to keep processors and disk busy. Each one needs a thread, and each thread keeps memory of its own.
fn slow_reads_max() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (4 * processors).clamp(8, 32)
}

/// A store in a directory of the local disk.
pub struct Embedded {
    shared: Arc<Shared>,
    slow_reads: Arc<Semaphore>,
    threads: Arc<Threads>,
}

/// The threads of the store and the lock on its directory, which is given free when all have ended.
struct Threads(Mutex<Option<(Vec<JoinHandle<()>>, File)>>);

impl Embedded {
    /// Opens the store in this directory, or makes one if the directory is empty or missing. Blocks: some
    /// milliseconds, or after a crash as long as it takes to replay up to three memtables.
    pub fn open(directory: impl Into<PathBuf>, options: EmbeddedOptions) -> Result<Self, OpenError> {
        let slow_reads = Arc::new(Semaphore::new(options.slow_reads_max.max(1)));
        let (shared, threads, lock) = open::open(directory.into(), options)?;
        let threads = Arc::new(Threads(Mutex::new(Some((threads, lock)))));
        Ok(Self { shared, slow_reads, threads })
    }

    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    pub fn options(&self) -> &EmbeddedOptions {
        &self.shared.options
    }

    /// Compares all tables with their checksums; answers the damaged files and what is wrong with them.
    /// Reads everything: run it on a thread that may block.
    pub fn verify(&self) -> Vec<(PathBuf, String)> {
        let tables = self.shared.tree.tables().into_iter();
        tables.filter_map(|(path, checksum)| verify::check_table(&path, checksum)).collect()
    }
}

impl Threads {
    /// Stops all threads and gives the directory free. Blocks until it is done, whoever began it.
    fn stop(&self, shared: &Shared) {
        let mut threads = self.0.lock();
        shared.tree.stop();
        shared.background.stop();
        shared.queue.wake();
        let Some((threads, lock)) = threads.take() else { return };
        for thread in threads {
            // A thread that panicked has taken the store offline and said why.
            drop(thread.join());
        }
        drop(lock);
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.threads.stop(&self.shared);
    }
}

#[cfg(test)]
mod tests {
    use super::layout::Slot;
    use super::*;
    use crate::contract::{Entry, KeyRange, PartitionId, PartitionRef, PartitionStore, Scan};

    fn entries_in_tree(store: &Embedded) -> Vec<Vec<u8>> {
        let scan = Scan { bytes_max: usize::MAX, ..Scan::forward(KeyRange::all(), usize::MAX) };
        let (start, end) = (Slot::STORE.key(&[]), Slot(u32::MAX).key(&[]));
        let page = store.shared.tree.pin().scan_full(start, end, &scan).unwrap();
        page.entries.into_iter().map(|entry| entry.key).collect()
    }

    /// Whether in the memtable, in tables of their own or in shared ones, and over a restart in between.
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
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while entries_in_tree(&store) != [b"J", b"N"] {
            assert!(std::time::Instant::now() < deadline, "{} entries remain", entries_in_tree(&store).len());
            tokio::task::yield_now().await;
        }
    }

    /// Old lists of tables and their memtables must not pile up while nobody reads them.
    #[tokio::test]
    async fn nothing_is_kept_for_readers_that_are_gone() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits { snapshot_age_max: std::time::Duration::ZERO, ..Limits::COMMON };
        let sizes =
            EmbeddedOptions { memtable_bytes: 16 << 10, table_bytes: 64 << 10, limits, ..Default::default() };
        let store = Embedded::open(directory.path().join("data"), sizes).unwrap();
        let partition = PartitionRef { id: PartitionId(1), epoch: 0 };
        store.create(partition.id, 0).await.unwrap();
        // Never dropped, but too old at once.
        let mut forgotten = Vec::new();
        for round in 0..200_u32 {
            forgotten.push(store.snapshot(partition).await.unwrap());
            let entry =
                |key: u32| Entry { key: (key + round).to_be_bytes().to_vec(), value: vec![7; 100].into() };
            store.bulk_load(partition, (0..20).map(entry).collect()).await.unwrap();
        }
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while store.shared.tree.kept_lists() > 2 {
            assert!(
                std::time::Instant::now() < deadline,
                "{} lists are kept",
                store.shared.tree.kept_lists()
            );
            tokio::task::yield_now().await;
        }
    }
}
