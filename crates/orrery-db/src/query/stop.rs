//! When the evaluation of a page ends early: its time is over, or its client has gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use orrery_env::monotonic;
use orrery_query::EvalError;
use orrery_query::context::Interrupt;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::evaluation_slots::Slot;

/// A query that cannot end early fails after this time.
pub(super) const QUERY_TIME_MAX: Duration = Duration::from_mins(1);
/// A page that can end at any item does so after this time.
pub(super) const PAGE_TIME_MAX: Duration = Duration::from_secs(2);
/// Unless it has not got past its first item: then it fails after this time.
const FIRST_ITEM_TIME_MAX: Duration = Duration::from_secs(10);

/// Ends a query whose client has gone. Clones are one and the same.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<Cancelled>);

#[derive(Debug, Default)]
struct Cancelled {
    flag: AtomicBool,
    notify: Notify,
}

impl Cancellation {
    pub fn cancel(&self) {
        self.0.flag.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.flag.load(Ordering::Acquire)
    }

    /// Done once it was cancelled.
    pub async fn cancelled(&self) {
        let notified = self.0.notify.notified();
        if !self.is_cancelled() {
            notified.await;
        }
    }
}

/// Watches over one stretch of evaluation.
pub(super) struct Watch {
    pub(super) started: Instant,
    /// Whether the page can end at any item.
    pub(super) is_stream: bool,
    /// Whether an item of this page is done.
    pub(super) has_progress: AtomicBool,
    pub(super) cancellation: Option<Cancellation>,
    /// Where a long evaluation runs.
    pub(super) slot: Mutex<Option<Slot>>,
}

impl Interrupt for Watch {
    fn check(&self) -> Result<(), EvalError> {
        if let Some(slot) = &mut *self.slot.lock() {
            slot.give_way();
        }
        if self.cancellation.as_ref().is_some_and(Cancellation::is_cancelled) {
            return Err(EvalError::Cancelled);
        }
        let time_max = match (self.is_stream, self.has_progress.load(Ordering::Relaxed)) {
            (true, true) => PAGE_TIME_MAX,
            (true, false) => FIRST_ITEM_TIME_MAX,
            (false, _) => QUERY_TIME_MAX,
        };
        if monotonic::elapsed(self.started) > time_max { Err(EvalError::TimedOut) } else { Ok(()) }
    }
}
