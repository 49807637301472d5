//! The memory budget shared by all requests.
//!
//! Writing a 2 MB item takes far more than 2 MB: an array of a quarter of a million numbers becomes as many parsed
//! values and index entries. Forty concurrent writes took a gigabyte and killed a process with a smaller limit. So
//! every request reserves a share of the budget according to its size; when the budget is exhausted, further requests
//! wait, and those that wait too long are throttled, which clients retry.
//!
//! Bodies, work and responses have separate budgets: a request holds its body while it waits for working memory, but
//! never waits for body memory while working. With a single budget, requests holding bodies could deadlock. A query
//! reserves more as it sorts, groups or collects, and fails if there is none left. A large response holds its share
//! until the client has read it.
//!
//! Not counted here: the store's block cache and memtables, and scripts, which have their own limits.

use std::sync::Arc;
use std::time::Duration;

use orrery_db::{QueryMemory, StateMemory};
use orrery_model::{Error, ErrorKind};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::operation::Verb;

/// The unit of accounting.
const UNIT_BYTES: u64 = 4096;

/// How long a request waits for memory.
const PATIENCE: Duration = Duration::from_secs(5);

/// The retry-after delay of a request throttled for lack of memory.
const RETRY_AFTER_MS: u32 = 1000;

/// Memory per byte of a written body, including the body itself. Measured: an array of seven-digit numbers takes 14
/// bytes per byte, for values, index entries and journal.
const WORK_PER_BODY_BYTE: u64 = 16;

/// Memory for building a page of a query or feed: its rows, and items read ahead.
const PAGE_BYTES: u64 = 4 << 20;

/// Smaller responses are not counted.
const ANSWER_BYTES_MIN: usize = 64 << 10;

/// The budget. Reserving is cheap while memory is available: one atomic operation for a request with a body.
pub struct MemoryBudget {
    bodies: Pool,
    work: Pool,
    answers: Pool,
}

struct Pool {
    units: Arc<Semaphore>,
    units_max: u32,
    patience: Duration,
}

/// A request's share, released on drop.
pub(crate) struct MemoryPart(Option<OwnedSemaphorePermit>);

impl MemoryPart {
    pub(crate) fn holds(&self) -> bool {
        self.0.is_some()
    }
}

impl MemoryBudget {
    pub fn new(bytes: u64) -> Self {
        Self::with_patience(bytes, PATIENCE)
    }

    fn with_patience(bytes: u64, patience: Duration) -> Self {
        // Half goes to the work, because a write takes many times its body.
        let eighths = |count: u64| Pool::new(bytes / 8 * count, patience);
        Self { bodies: eighths(2), work: eighths(4), answers: eighths(2) }
    }

    /// Reserves memory for a body of this length; without a length, for the largest allowed body.
    pub(crate) async fn hold_body(&self, bytes: u64) -> Result<MemoryPart, Error> {
        self.bodies.hold(bytes).await
    }

    /// Reserves memory for processing a body.
    pub(crate) async fn hold_work(&self, verb: Verb, body_bytes: usize) -> Result<MemoryPart, Error> {
        let body = body_bytes as u64;
        let bytes = if verb.makes_pages() {
            PAGE_BYTES + body
        } else if verb.writes() {
            // The body itself is counted in the pool of bodies.
            body.saturating_mul(WORK_PER_BODY_BYTE - 1)
        } else {
            body
        };
        self.work.hold(bytes).await
    }

    /// Reserves memory for a response until it is sent. Never waits, because the response already exists.
    pub(crate) fn hold_answer(&self, bytes: usize) -> Result<MemoryPart, Error> {
        let counted = if bytes < ANSWER_BYTES_MIN { 0 } else { bytes as u64 };
        self.answers.try_hold(counted).ok_or_else(no_memory)
    }

    /// Reserves memory for the growing state of a query.
    pub(crate) fn query_state(&self) -> StateMemory {
        let state = QueryState { units: Arc::clone(&self.work.units), held: Mutex::new(0) };
        StateMemory(Arc::new(state))
    }
}

fn state_units(bytes: usize) -> usize {
    usize::try_from((bytes as u64).div_ceil(UNIT_BYTES)).unwrap_or(usize::MAX)
}

/// The memory held by one query's state, released with the query.
struct QueryState {
    units: Arc<Semaphore>,
    held: Mutex<usize>,
}

impl QueryMemory for QueryState {
    fn take(&self, bytes: usize) -> bool {
        let units = state_units(bytes);
        // Never waits: two queries that both hold state and wait for more would wait for each other.
        let Ok(part) = self.units.try_acquire_many(u32::try_from(units).unwrap_or(u32::MAX)) else {
            return false;
        };
        // A number instead of a permit per call: a query takes and gives back thousands of times.
        part.forget();
        *self.held.lock() += units;
        true
    }

    fn give_back(&self, bytes: usize) {
        let units = state_units(bytes);
        let mut held = self.held.lock();
        assert!(units <= *held, "a query gives back what it has taken");
        *held -= units;
        self.units.add_permits(units);
    }
}

impl Drop for QueryState {
    fn drop(&mut self) {
        // However the query ended, cancelled or panicked, what it still holds is returned here.
        self.units.add_permits(*self.held.lock());
    }
}

impl Pool {
    fn new(bytes: u64, patience: Duration) -> Self {
        // The semaphore's limit exceeds any memory size; the smallest pool still admits one request.
        let units = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX).clamp(1, u32::MAX >> 4);
        Self { units: Arc::new(Semaphore::new(units as usize)), units_max: units, patience }
    }

    /// A request larger than the pool gets the whole pool.
    fn units_of(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).min(self.units_max)
    }

    fn try_hold(&self, bytes: u64) -> Option<MemoryPart> {
        if bytes == 0 {
            return Some(MemoryPart(None));
        }
        let part = Arc::clone(&self.units).try_acquire_many_owned(self.units_of(bytes));
        part.ok().map(|part| MemoryPart(Some(part)))
    }

    async fn hold(&self, bytes: u64) -> Result<MemoryPart, Error> {
        // The usual case needs neither a queue nor a timer.
        if let Some(part) = self.try_hold(bytes) {
            return Ok(part);
        }
        let units = self.units_of(bytes);
        let waiting = Arc::clone(&self.units).acquire_many_owned(units);
        match tokio::time::timeout(self.patience, waiting).await {
            Ok(Ok(part)) => Ok(MemoryPart(Some(part))),
            _ => Err(no_memory()),
        }
    }
}

/// The error for a request that got no memory.
pub(crate) fn no_memory() -> Error {
    Error::new(
        ErrorKind::TooManyRequests { retry_after_ms: RETRY_AFTER_MS },
        "The server has no memory left for this request. Please retry after the given time.",
    )
}

/// A quarter of the memory available to the process, as reported by the system, and at least 128 MB.
pub fn default_budget_bytes() -> u64 {
    // Control groups, versions 2 and 1. Version 2 writes `max` for no limit, which is not a number and drops out;
    // version 1 writes a number larger than any machine's memory.
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group =
        limits.iter().filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()).min();
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
    });
    let usable = group.into_iter().chain(machine).min().unwrap_or(2 << 30);
    (usable / 4).max(128 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_does_not_fit_waits_or_is_throttled() {
        let budget = MemoryBudget::with_patience(64 << 20, Duration::from_millis(20));
        let first = budget.hold_work(Verb::Create, 2 << 20).await.unwrap();
        // 30 of 32 MB are held: a second one of that size has to wait, a small one does not.
        let small = budget.hold_work(Verb::Create, 1 << 10).await.unwrap();
        let refused = budget.hold_work(Verb::Create, 2 << 20).await.err().unwrap();
        assert_eq!(refused.kind, ErrorKind::TooManyRequests { retry_after_ms: 1000 });
        let waiting = budget.hold_work(Verb::Create, 2 << 20);
        let (second, ()) = tokio::join!(waiting, async { drop(first) });
        drop((small, second.unwrap()));
        // Larger than everything: alone.
        let all = budget.hold_work(Verb::Create, 100 << 20).await.unwrap();
        assert!(budget.hold_work(Verb::Create, 1).await.is_err());
        drop(all);
        assert!(budget.hold_body(u64::MAX).await.is_ok());
    }

    #[tokio::test]
    async fn the_state_of_queries_shares_the_budget_and_is_given_back() {
        let budget = MemoryBudget::with_patience(64 << 20, Duration::from_millis(20));
        let (one, two) = (budget.query_state(), budget.query_state());
        assert!(one.0.take(20 << 20));
        assert!(!two.0.take(20 << 20));
        one.0.give_back(10 << 20);
        assert!(two.0.take(20 << 20));
        assert!(budget.hold_work(Verb::Create, 2 << 20).await.is_err());
        drop((one, two));
        assert!(budget.hold_work(Verb::Create, 2 << 20).await.is_ok());
    }
}
