//! Whether the store accepts reads and writes: open, full, failed or closed.
//!
//! * *Full*: the disk has no space or is read-only. Writes that grow the store are rejected; writes that only remove
//!   data are accepted while the reserve lasts. Clears automatically once there is space.
//! * *Failed*: the state on disk is unknown (an fsync failed) or a thread has died. Writes stay offline until a
//!   restart, which replays the journal. Acknowledged data remains readable.
//! * *Closed*: every call fails.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

#[derive(Default)]
pub(super) struct Condition {
    failed: AtomicBool,
    full: AtomicBool,
    closed: AtomicBool,
    reasons: RwLock<Reasons>,
}

#[derive(Default)]
struct Reasons {
    failed: Option<String>,
    full: Option<String>,
}

impl Condition {
    /// Fails once the store is closed.
    pub(super) fn check_open(&self) -> Result<(), String> {
        if self.closed.load(Ordering::Acquire) { Err(self.reason()) } else { Ok(()) }
    }

    /// Fails unless the committer accepts work.
    pub(super) fn check_writable(&self) -> Result<(), String> {
        if self.is_failed() || self.closed.load(Ordering::Acquire) { Err(self.reason()) } else { Ok(()) }
    }

    /// Whether writes are offline, which makes the store's threads exit.
    pub(super) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.reasons.read().failed.clone()
    }

    /// Takes writes offline. The first reason is kept; returns whether this was it.
    pub(super) fn fail(&self, reason: &str) -> bool {
        let mut reasons = self.reasons.write();
        let first = reasons.failed.is_none();
        // Later failures are usually consequences of the first one.
        reasons.failed.get_or_insert_with(|| reason.to_owned());
        self.failed.store(true, Ordering::Release);
        first
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Why writes that grow the store are rejected, if they are.
    pub(super) fn fullness(&self) -> Option<String> {
        // The flag is checked for every commit; the lock is taken only if it is set.
        if !self.is_full() {
            return None;
        }
        self.reasons.read().full.clone()
    }

    /// From now on rejects writes that grow the store.
    pub(super) fn set_full(&self, reason: &str) {
        let mut reasons = self.reasons.write();
        if reasons.full.is_none() {
            tracing::error!(reason, "the disk is full: only writes that remove data are accepted");
        }
        // The newest reason is kept: the free space in it is current.
        reasons.full = Some(reason.to_owned());
        self.full.store(true, Ordering::Release);
    }

    pub(super) fn clear_full(&self) {
        let mut reasons = self.reasons.write();
        // Under the lock, so that a concurrent `set_full` cannot be overwritten.
        self.full.store(false, Ordering::Release);
        if reasons.full.take().is_some() {
            tracing::info!("the disk has space again: all writes are accepted");
        }
    }

    fn reason(&self) -> String {
        self.failure().unwrap_or_else(|| "it is closed".to_owned())
    }
}

/// Whether an error goes away once there is space, so that a retry is safe and useful.
pub(super) fn is_fullness(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem
    )
}
