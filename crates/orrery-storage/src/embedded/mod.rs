//! The embedded engine: one directory on a local disk, one process.
//!
//! * `layout`: what lies where, and how keys are written.
//! * `journal`: where a group of commits becomes durable.
//! * `tree`: the LSM tree behind it and the moments at which it can be read.
//! * `committer`: the one thread that writes, in groups.
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
mod read;
mod shared;
mod store;
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
    /// Blocks of tables kept in memory, at most.
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
            slow_reads_max: 32,
            verify_tables: false,
        }
    }
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
