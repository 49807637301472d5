//! The memory that all requests share.
//!
//! One item of 2 MB takes far more than 2 MB while it is written: parsed, an array of a quarter of a million numbers
//! becomes as many values, and as many index entries. Forty of them at once took a gigabyte, and a process under a
//! smaller limit died. So every request holds a part of a budget that follows from its size; when the budget is held,
//! further requests wait their turn, and those that wait too long are throttled, which clients retry.
//!
//! Bodies, work and answers have budgets of their own: a request holds its body while it waits for room to work on it,
//! and one that works never waits for room for a body. With a single budget, requests that hold bodies could wait for
//! each other. A query takes more for what it sorts, groups or collects while it grows, and fails if there is no more.
//! A large answer holds its part until the client has taken it.
//!
//! Not counted here: the block cache and the memtables of the store, and scripts, which have bounds of their own.

use std::sync::Arc;
use std::time::Duration;

use orrery_db::{QueryMemory, StateMemory};
use orrery_model::{Error, ErrorKind};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::operation::Verb;

/// What is counted at once.
const UNIT_BYTES: u64 = 4096;

/// How long a request waits for its part.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a client is asked to wait before it tries again.
const RETRY_AFTER_MS: u32 = 1000;

/// Memory that writing takes for each byte of the body, the body included, measured: an array of numbers of seven
/// digits takes 14 bytes for each of its own, as values, index entries and journal.
const WORK_PER_BODY_BYTE: u64 = 16;

/// What a page of a query or feed takes while it is made: its rows, and items that are read ahead.
const PAGE_BYTES: u64 = 4 << 20;

/// Answers that are smaller are not counted.
const ANSWER_BYTES_MIN: usize = 64 << 10;

/// The budget. Cheap to take from while it is not used up: one atomic operation for a request with a body.
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

/// A request's part, given back when it is dropped.
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
        let eighths = |count: u64| Pool::new(bytes / 8 * count, patience);
        Self { bodies: eighths(2), work: eighths(4), answers: eighths(2) }
    }

    /// Room for a body that is announced with this length; one without a length may be as long as bodies may be.
    pub(crate) async fn hold_body(&self, bytes: u64) -> Result<MemoryPart, Error> {
        self.bodies.hold(bytes).await
    }

    /// Room for the work on a body.
    pub(crate) async fn hold_work(&self, verb: Verb, body_bytes: usize) -> Result<MemoryPart, Error> {
        let body = body_bytes as u64;
        let bytes = if verb.makes_pages() {
            PAGE_BYTES + body
        } else if verb.writes() {
            body.saturating_mul(WORK_PER_BODY_BYTE - 1)
        } else {
            body
        };
        self.work.hold(bytes).await
    }

    /// Room for an answer until it is sent. It is there already, so there is no waiting: it would take the memory
    /// meanwhile.
    pub(crate) fn hold_answer(&self, bytes: usize) -> Result<MemoryPart, Error> {
        let counted = if bytes < ANSWER_BYTES_MIN { 0 } else { bytes as u64 };
        self.answers.try_hold(counted).ok_or_else(no_memory)
    }

    /// Room for the state of a query, as it grows.
    pub(crate) fn query_state(&self) -> StateMemory {
        let state = QueryState { units: Arc::clone(&self.work.units), held: Mutex::new(0) };
        StateMemory(Arc::new(state))
    }
}

fn state_units(bytes: usize) -> usize {
    usize::try_from((bytes as u64).div_ceil(UNIT_BYTES)).unwrap_or(usize::MAX)
}

/// What the state of one query holds; all of it is given back with the query.
struct QueryState {
    units: Arc<Semaphore>,
    held: Mutex<usize>,
}

impl QueryMemory for QueryState {
    fn take(&self, bytes: usize) -> bool {
        let units = state_units(bytes);
        let Ok(part) = self.units.try_acquire_many(u32::try_from(units).unwrap_or(u32::MAX)) else {
            return false;
        };
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
        self.units.add_permits(*self.held.lock());
    }
}

impl Pool {
    fn new(bytes: u64, patience: Duration) -> Self {
        // The semaphore's own limit is beyond any memory; the smallest pool still lets one request through.
        let units = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX).clamp(1, u32::MAX >> 4);
        Self { units: Arc::new(Semaphore::new(units as usize)), units_max: units, patience }
    }

    /// What is larger than everything has everything to itself.
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

/// What a request is told that found no room.
pub(crate) fn no_memory() -> Error {
    Error::new(
        ErrorKind::TooManyRequests { retry_after_ms: RETRY_AFTER_MS },
        "The server has no memory left for this request. Please retry after the given time.",
    )
}

/// A quarter of the memory that the process may use, as far as the system tells, and at least 128 MB.
pub fn default_budget_bytes() -> u64 {
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
