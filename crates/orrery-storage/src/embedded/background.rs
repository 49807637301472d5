//! The background threads: the flusher writes sealed memtables to tables, the merger compacts tables and sweeps
//! destroyed partitions.
//!
//! Waiting never forms a cycle (`docs/design/0002-group-commit.md` has the drawing):
//!
//! * callers wait for the committer;
//! * the committer waits for the flusher (too many sealed memtables), the merger (too many young tables) and the disk;
//! * the flusher and the merger wait for the disk only. Requests to the committer are posted to its queue, which
//!   always accepts them, and its reply arrives as an event.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orrery_env::monotonic;
use parking_lot::{Condvar, Mutex};

use super::shared::{Shared, Task};
use super::sweep::{Next, Sweeper};
use super::{kept_log, layout, tree, watchdog};
use crate::transaction::panic_text;

/// Sealed memtables that may be pending before writers have to wait.
const SEALED_MAX: usize = 2;

/// Young (level 0) runs that may be pending before writers have to wait: each one slows down every read.
const YOUNG_RUNS_MAX: usize = 20;

/// How long merging takes precedence over sweeping.
const MERGE_TURN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Background {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each flag is a separate event")]
struct Work {
    /// Journals of sealed memtables, oldest first.
    sealed_journals: VecDeque<PathBuf>,
    merge_due: bool,
    /// Slots have died since the sweeper last looked.
    slots_died: bool,
    /// The outcome of the sweeper's last batch: whether it is durable.
    batch_ended: Option<bool>,
    /// Why merging has stopped.
    merge_fault: Option<String>,
    /// The flusher pauses until the disk has space again.
    flush_waits: bool,
    stopping: bool,
}

impl Background {
    /// Hands a sealed memtable to the flusher, by its journal.
    pub(super) fn memtable_sealed(&self, journal: PathBuf) {
        let mut work = self.work.lock();
        // The flusher deletes journals from the front: out of order it would delete one that is still needed.
        let newest = work.sealed_journals.back().and_then(|path| layout::journal_number(path));
        let number = layout::journal_number(&journal);
        assert!(newest < number, "journals are sealed in order: {newest:?}, then {number:?}");
        work.sealed_journals.push_back(journal);
        drop(work);
        self.changed.notify_all();
    }

    /// Wakes the sweeper: the tree has a new dead slot.
    pub(super) fn slot_died(&self) {
        self.work.lock().slots_died = true;
        self.changed.notify_all();
    }

    /// The committer has processed a sweep batch; `done` says whether it is durable.
    pub(super) fn sweep_batch_ended(&self, done: bool) {
        self.work.lock().batch_ended = Some(done);
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        self.work.lock().stopping = true;
        self.changed.notify_all();
    }

    /// Retries flushing and merging after the disk was full.
    pub(super) fn retry(&self) {
        let mut work = self.work.lock();
        work.flush_waits = false;
        work.merge_due = true;
        drop(work);
        self.changed.notify_all();
    }

    /// Sleeps; returns `false` immediately when the store is closing.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let until = monotonic::now() + time;
        let mut work = self.work.lock();
        while !work.stopping && !self.changed.wait_until(&mut work, until).timed_out() {}
        !work.stopping
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.work.lock().stopping
    }

    /// Makes all threads re-check their conditions, for example the store's health.
    pub(super) fn wake(&self) {
        // A thread that holds the lock may have checked its condition but not be waiting yet. Acquiring the lock
        // first makes sure that it does not miss the notification.
        drop(self.work.lock());
        self.changed.notify_all();
    }
}

/// Backpressure: blocks the committer while flushing or merging is behind. Without it memory would grow without bound.
pub(super) fn wait_for_backlog(shared: &Shared) {
    let mut work = shared.background.work.lock();
    let is_behind =
        || shared.tree.sealed_memtables() >= SEALED_MAX || shared.tree.young_runs() >= YOUNG_RUNS_MAX;
    shared.threads.committer.set("waiting for tables to be written and merged");
    // A full disk ends the wait: flushing and merging stand still, and growth is refused instead.
    while is_behind() && !shared.health.is_failed() && !shared.health.is_full() && !work.stopping {
        // Waiting for a merge that cannot happen would stall the writers forever.
        if let Some(fault) = work.merge_fault.clone() {
            drop(work);
            return shared.fail(&format!("merging tables has stopped: {fault}"));
        }
        // Every finished flush and merge wakes it; the timeout only guards against a lost wake-up.
        shared.background.changed.wait_for(&mut work, Duration::from_millis(50));
    }
}

/// Waits until all sealed memtables are in tables, for a clean shutdown.
pub(super) fn wait_for_flush(shared: &Shared) {
    let mut work = shared.background.work.lock();
    // With a full disk the journals stay, and the next start replays them.
    while !work.sealed_journals.is_empty() && !work.flush_waits && !shared.health.is_failed() {
        shared.background.changed.wait_for(&mut work, Duration::from_millis(50));
    }
}

/// The flusher thread.
pub(super) fn run_flusher(shared: &Arc<Shared>) {
    run_guarded(shared, "writing a table", || {
        loop {
            let count = {
                let mut work = shared.background.work.lock();
                shared.threads.flusher.set("idle");
                while (work.sealed_journals.is_empty() || work.flush_waits)
                    && !work.stopping
                    && !shared.health.is_failed()
                {
                    shared.background.changed.wait(&mut work);
                }
                if work.flush_waits { 0 } else { work.sealed_journals.len() }
            };
            // Woken to stop, with nothing left to flush.
            if count == 0 || shared.health.is_failed() {
                return Ok(());
            }
            shared.threads.flusher.set("writing a table");
            // The table needs about as much space as its journal, which is deleted only afterwards.
            watchdog::watch_disk(shared);
            match shared.tree.flush().map_err(tree::TreeError::from) {
                Ok(()) => {}
                Err(tree::TreeError::Full(detail)) => {
                    // Nothing is lost: the journal still has the data. The watchdog triggers the retry.
                    shared.health.set_full(&format!("writing a table failed: {detail}"));
                    shared.background.work.lock().flush_waits = true;
                    shared.background.changed.notify_all();
                    continue;
                }
                Err(tree::TreeError::Io(detail) | tree::TreeError::Damaged(detail)) => return Err(detail),
            }
            // A memtable is sealed before its journal is queued, so the flush has covered all `count` of them.
            for _ in 0..count {
                // Read and removed separately: if deleting fails, the journal stays in the
                // list of those that are needed.
                let journal = shared.background.work.lock().sealed_journals.front().cloned();
                if let Some(journal) = journal {
                    kept_log::retire_journal(shared, &journal).map_err(|error| error.to_string())?;
                    shared.background.work.lock().sealed_journals.pop_front();
                }
            }
            kept_log::remove_expired(shared);
            // A new young table may have made a merge due.
            shared.background.work.lock().merge_due = true;
            shared.background.changed.notify_all();
            request_collection(shared);
        }
    });
}

/// The merger thread, which also sweeps. Merging takes precedence because writers may be waiting for it.
pub(super) fn run_merger(shared: &Arc<Shared>) {
    run_guarded(shared, "merging tables", || {
        let mut sweeper = Sweeper::default();
        let mut next = Next::Wait;
        loop {
            shared.threads.merger.set("idle");
            let Some(due) = wait_for_merger_work(shared, &next) else { return Ok(()) };
            shared.threads.merger.set("merging tables");
            if due.merge {
                let since = monotonic::now();
                while merge_once(shared)? {
                    shared.background.changed.notify_all();
                    // Under load there may always be something to merge; sweeping must get its turn too.
                    if monotonic::elapsed(since) > MERGE_TURN && !shared.tree.dead_slots().all().is_empty() {
                        shared.background.work.lock().merge_due = true;
                        break;
                    }
                }
                shared.background.changed.notify_all();
                request_collection(shared);
            }
            if due.slots_died {
                sweeper.begin();
            }
            if let Some(done) = due.batch_ended {
                sweeper.batch_ended(shared, done);
            }
            shared.threads.merger.set("sweeping destroyed partitions");
            next = match sweeper.step(shared) {
                Ok(next) => next,
                Err(tree::TreeError::Full(detail)) => {
                    shared.health.set_full(&format!("merging tables failed: {detail}"));
                    Next::Wait
                }
                // The filter has aborted the merge because the store is closing.
                Err(_) if shared.tree.is_stopping() => Next::Wait,
                Err(tree::TreeError::Io(error)) => return Err(error),
                Err(fault @ tree::TreeError::Damaged(_)) => {
                    record_merge_fault(shared, fault);
                    Next::Wait
                }
            };
        }
    });
}

/// Why the merger thread was woken.
struct MergerWork {
    merge: bool,
    slots_died: bool,
    batch_ended: Option<bool>,
}

/// Waits until there is something to merge or to sweep; `None` when the thread must exit.
fn wait_for_merger_work(shared: &Shared, next: &Next) -> Option<MergerWork> {
    let mut work = shared.background.work.lock();
    loop {
        if work.stopping || shared.health.is_failed() {
            return None;
        }
        let sweep_due = match next {
            Next::Wait => false,
            Next::At(at) => monotonic::now() >= *at,
            Next::Soon => true,
        };
        if work.merge_due || work.slots_died || work.batch_ended.is_some() || sweep_due {
            return Some(MergerWork {
                // Taken under the lock: what arrives from now on is a new reason to wake.
                merge: std::mem::take(&mut work.merge_due),
                slots_died: std::mem::take(&mut work.slots_died),
                batch_ended: work.batch_ended.take(),
            });
        }
        match next {
            Next::At(at) => drop(shared.background.changed.wait_until(&mut work, *at)),
            Next::Wait | Next::Soon => shared.background.changed.wait(&mut work),
        }
    }
}

fn merge_once(shared: &Shared) -> Result<bool, String> {
    let fault = match shared.tree.compact() {
        Ok(merged) => return Ok(merged),
        Err(_) if shared.tree.is_stopping() => return Ok(false),
        Err(error) => tree::TreeError::from(error),
    };
    match fault {
        tree::TreeError::Io(error) => Err(error),
        tree::TreeError::Full(detail) => {
            shared.health.set_full(&format!("merging tables failed: {detail}"));
            Ok(false)
        }
        fault @ tree::TreeError::Damaged(_) => {
            record_merge_fault(shared, fault);
            Ok(false)
        }
    }
}

/// Keeps serving what is readable. Writes only go offline once too many tables wait for a merge that cannot
/// happen, see `wait_for_backlog`.
fn record_merge_fault(shared: &Shared, fault: tree::TreeError) {
    let error = shared.explain(fault);
    shared.background.work.lock().merge_fault = Some(error.to_string());
}

/// Asks the committer to free replaced memtables and table lists between two groups.
pub(super) fn request_collection(shared: &Shared) {
    // Only a closed queue refuses the task, and then everything is freed anyway.
    drop(shared.queue.push(Task::Collect, usize::MAX));
}

/// After an error or a panic in the background the state of the store is in doubt, so writes go offline.
fn run_guarded(shared: &Shared, what: &str, run: impl FnOnce() -> Result<(), String>) {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => shared.fail(&format!("{what} failed: {error}")),
        Err(payload) => shared.fail(&format!("{what} panicked: {}", panic_text(payload.as_ref()))),
    }
}
