//! Where a long evaluation runs, and when it stops early: its time is up, or its client has disconnected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use orrery_env::monotonic;
use orrery_query::EvalError;
use orrery_query::context::Interrupt;
use parking_lot::Mutex;

use super::evaluation_slots::EvaluationSlot;
use crate::query::options::Cancellation;

/// A query that cannot end early fails after this time.
pub(crate) const QUERY_TIME_MAX: Duration = Duration::from_mins(1);
/// A page that can end at any item does so after this time.
pub(crate) const PAGE_TIME_MAX: Duration = Duration::from_secs(2);
/// If it has not completed its first item, it fails after this time.
const FIRST_ITEM_TIME_MAX: Duration = Duration::from_secs(10);

/// Runs a long computation without blocking the requests of this thread.
pub(crate) fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    // `block_in_place` panics in a current-thread runtime, which tests use.
    match tokio::runtime::Handle::current().runtime_flavor() {
        tokio::runtime::RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Checks whether an evaluation must stop.
pub(crate) struct Watch {
    pub(crate) started: Instant,
    /// Whether the page can end at any item.
    pub(crate) is_stream: bool,
    /// Whether an item of this page has been completed.
    pub(crate) has_progress: AtomicBool,
    pub(crate) cancellation: Option<Cancellation>,
    /// Where a long evaluation runs.
    pub(crate) slot: Mutex<Option<EvaluationSlot>>,
}

impl Interrupt for Watch {
    fn check(&self) -> Result<(), EvalError> {
        // Called often, so it is also the place to let others have a turn.
        if let Some(slot) = &mut *self.slot.lock() {
            slot.give_way();
        }
        if self.cancellation.as_ref().is_some_and(Cancellation::look) {
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
