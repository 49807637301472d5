//! When a script must stop: its deadline, its cancellation, and whether either was hit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orrery_env::monotonic;

use crate::{Cancellation, ScriptError};

/// The deadline of a script, and whether it was stopped.
#[derive(Debug)]
pub(crate) struct Watch {
    started: Instant,
    /// In nanoseconds after `started`.
    deadline: AtomicU64,
    expired: AtomicBool,
    aborted: AtomicBool,
    cancellation: Cancellation,
}

impl Watch {
    pub(crate) fn new(time: Duration, cancellation: Cancellation) -> Self {
        let this = Self {
            started: monotonic::now(),
            deadline: AtomicU64::new(0),
            expired: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            cancellation,
        };
        this.allow(time);
        this
    }

    /// Sets the deadline to `time` from now.
    pub(crate) fn allow(&self, time: Duration) {
        // As nanoseconds since the start, which fit an atomic that the engine polls without a lock.
        let deadline = monotonic::elapsed(self.started).saturating_add(time);
        self.deadline.store(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        monotonic::elapsed(self.started)
    }

    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Polled by the engine between instructions.
    pub(crate) fn must_stop(&self) -> bool {
        let late =
            monotonic::elapsed(self.started).as_nanos() >= u128::from(self.deadline.load(Ordering::Acquire));
        if late {
            // Remembered: a later deadline does not clear a script that was once too late.
            self.expired.store(true, Ordering::Release);
        }
        late || self.is_aborted() || self.cancellation.is_cancelled()
    }

    /// Why the script was stopped from outside, if it was.
    pub(crate) fn verdict(&self) -> Option<ScriptError> {
        // First, because nobody waits for the result of a cancelled script, whatever else is wrong with it.
        if self.cancellation.is_cancelled() {
            Some(ScriptError::Cancelled)
        } else if self.expired.load(Ordering::Acquire) {
            Some(ScriptError::TimedOut)
        } else {
            None
        }
    }
}
