//! The watchdog: detects stalled writes and a disk that fills up.
//!
//! Every thread of the store records its current activity. When the oldest write has waited for
//! [`EmbeddedOptions::stall_after`](super::EmbeddedOptions), the watchdog logs the activity of all threads and the
//! store's health reports the stall. A stall is a fault of the disk or a bug of ours; either way an operator must look.
//!
//! The disk counts as full before it is: a reserve stays free for deletions, for reclaiming what they leave, and for
//! a clean shutdown.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use orrery_env::monotonic;

use super::layout;
use super::shared::Shared;
use crate::contract::Health;

/// How often the watchdog checks.
const ROUND: Duration = Duration::from_millis(250);

/// What a thread is doing, and since when.
pub(super) struct Activity(Mutex<(&'static str, Instant)>);

impl Activity {
    pub(super) fn set(&self, what: &'static str) {
        *self.0.lock() = (what, monotonic::now());
    }

    fn get(&self) -> (&'static str, Duration) {
        let (what, since) = *self.0.lock();
        (what, monotonic::elapsed(since))
    }
}

impl Default for Activity {
    fn default() -> Self {
        Self(Mutex::new(("starting", monotonic::now())))
    }
}

/// The activity of every thread of the store.
#[derive(Default)]
pub(super) struct Activities {
    pub(super) committer: Activity,
    pub(super) syncer: Activity,
    pub(super) flusher: Activity,
    pub(super) merger: Activity,
    /// When the committer's current group started.
    group_since: Mutex<Option<Instant>>,
}

impl Activities {
    pub(super) fn group_began(&self) {
        *self.group_since.lock() = Some(monotonic::now());
    }

    pub(super) fn group_ended(&self) {
        *self.group_since.lock() = None;
    }
}

impl Shared {
    pub(super) fn oldest_write_wait(&self) -> Duration {
        // Either the group being written or the oldest task nobody has taken, whichever is older.
        let group = self.threads.group_since.lock().map_or(Duration::ZERO, monotonic::elapsed);
        group.max(self.queue.waiting_time())
    }

    pub(super) fn health_state(&self) -> Health {
        // The gravest condition first: a failed store is also likely to be full or stalled.
        if let Some(reason) = self.health.failure() {
            return Health::Failed(reason);
        }
        if let Some(reason) = self.health.fullness() {
            return Health::Impaired(reason);
        }
        let waited = self.oldest_write_wait();
        if waited >= self.options.stall_after {
            let seconds = waited.as_secs();
            return Health::Impaired(format!(
                "a write has been stalled for {seconds} s: {}",
                self.thread_notes()
            ));
        }
        Health::Ready
    }

    fn thread_notes(&self) -> String {
        let threads = &self.threads;
        let notes = [
            ("committer", &threads.committer),
            ("syncer", &threads.syncer),
            ("flusher", &threads.flusher),
            ("merger", &threads.merger),
        ];
        let notes = notes.map(|(name, activity)| {
            let (what, since) = activity.get();
            format!("{name} {what} for {:.1} s", since.as_secs_f64())
        });
        let tree = &self.tree;
        format!(
            "{}; {} sealed memtables, {} young runs",
            notes.join(", "),
            tree.sealed_memtables(),
            tree.young_runs()
        )
    }
}

/// The watchdog thread.
pub(super) fn run_watchdog(shared: &Arc<Shared>) {
    let mut stalled = false;
    while shared.background.pause(ROUND) {
        let waited = shared.oldest_write_wait();
        let stalls = waited >= shared.options.stall_after;
        // Logged when it begins and when it ends, not every round.
        if stalls && !stalled {
            tracing::error!(
                seconds = waited.as_secs(),
                threads = shared.thread_notes(),
                "writes are stalled"
            );
        } else if stalled && !stalls {
            tracing::warn!("writes have resumed after a stall");
        }
        stalled = stalls;
        watch_disk(shared);
    }
}

/// Checks the free disk space. The committer calls it too, because it can fill a disk between two rounds.
pub(super) fn watch_disk(shared: &Shared) {
    let Some((free, total)) = disk_space(&shared.directory) else { return };
    // On a small disk an eighth is reserve enough.
    let reserve = shared.options.disk_reserve_bytes.min(total / 8);
    if free < reserve {
        let megabytes = |bytes: u64| bytes >> 20;
        shared.health.set_full(&format!(
            "{} MB are free on the disk of {}, but {} MB are kept in reserve",
            megabytes(free),
            shared.directory.display(),
            megabytes(reserve)
        ));
    } else if shared.health.is_full() && free >= reserve + reserve / 4 && is_writable(&shared.directory) {
        shared.health.clear_full();
        // The flusher and the merger gave up when the disk was full and wait for this.
        shared.background.retry();
    }
}

/// Only an actual write reveals a quota or a read-only mount.
fn is_writable(directory: &Path) -> bool {
    let path = layout::probe_path(directory);
    let written = std::fs::write(&path, [0; 4096]).is_ok();
    // If removal fails, the next probe overwrites the file.
    std::fs::remove_file(&path).ok();
    written
}

/// Available and total bytes.
#[cfg(unix)]
fn disk_space(directory: &Path) -> Option<(u64, u64)> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some((disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize)))
}

/// Elsewhere only a failed write reveals a full disk.
#[cfg(not(unix))]
fn disk_space(_: &Path) -> Option<(u64, u64)> {
    None
}
