//! The threads beside the committer: one writes sealed memtables to tables, one merges tables and removes
//! what destroyed partitions left behind.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::layout::{self, Slot};
use super::shared::{Shared, Task};
use super::{journal, tree};
use crate::contract::{Direction, KeyRange, Scan, Want};
use crate::transaction::panic_text;

/// Sealed memtables that may wait for the disk before writers have to.
const SEALED_MAX: usize = 2;

/// Young tables that may wait to be merged before writers have to: each one makes every read slower.
const YOUNG_RUNS_MAX: usize = 20;

/// Entries of a destroyed partition that are removed in one batch: some ten milliseconds of the committer.
const SWEEP_ENTRIES: usize = 1000;

#[derive(Default)]
pub(super) struct Background {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Default)]
struct Work {
    /// Journals whose memtables are sealed, oldest first.
    sealed_journals: VecDeque<PathBuf>,
    merge_due: bool,
    dead_slots: Vec<Slot>,
    /// Why tables cannot be merged any more.
    merge_fault: Option<String>,
    stopping: bool,
}

impl Background {
    /// A memtable was sealed, and this is its journal.
    pub(super) fn memtable_sealed(&self, journal: PathBuf) {
        self.work.lock().sealed_journals.push_back(journal);
        self.changed.notify_all();
    }

    pub(super) fn sweep(&self, slot: Slot) {
        self.work.lock().dead_slots.push(slot);
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        self.work.lock().stopping = true;
        self.changed.notify_all();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.work.lock().stopping
    }

    /// Makes all threads look around, at the store's health for example.
    pub(super) fn wake(&self) {
        // Whoever holds the lock has looked already and is not waiting yet: it must not miss this.
        drop(self.work.lock());
        self.changed.notify_all();
    }
}

/// Makes the committer wait while the disk is behind. Without it memory would grow without bound.
pub(super) fn wait_for_room(shared: &Shared) {
    let mut work = shared.background.work.lock();
    let crowded =
        || shared.tree.sealed_memtables() >= SEALED_MAX || shared.tree.young_runs() >= YOUNG_RUNS_MAX;
    while crowded() && !shared.health.is_failed() && !work.stopping {
        if let Some(fault) = work.merge_fault.clone() {
            drop(work);
            return shared.fail(&format!("tables cannot be merged any more: {fault}"));
        }
        // Woken by every finished flush and merge; the timeout only guards against a lost wake-up.
        shared.background.changed.wait_for(&mut work, Duration::from_millis(50));
    }
}

/// Waits until all sealed memtables are in tables, for a clean end.
pub(super) fn wait_for_flush(shared: &Shared) {
    let mut work = shared.background.work.lock();
    while !work.sealed_journals.is_empty() && !shared.health.is_failed() {
        shared.background.changed.wait_for(&mut work, Duration::from_millis(50));
    }
}

/// The life of the thread that writes tables.
pub(super) fn run_flusher(shared: &Arc<Shared>) {
    run_guarded(shared, "writing a table", || {
        loop {
            let count = {
                let mut work = shared.background.work.lock();
                while work.sealed_journals.is_empty() && !work.stopping && !shared.health.is_failed() {
                    shared.background.changed.wait(&mut work);
                }
                work.sealed_journals.len()
            };
            if count == 0 || shared.health.is_failed() {
                return Ok(());
            }
            shared.tree.flush().map_err(|error| format!("{error:?}"))?;
            // Their memtables were sealed before they were announced, so the flush covered them.
            for _ in 0..count {
                let journal = shared.background.work.lock().sealed_journals.front().cloned();
                if let Some(journal) = journal {
                    remove_journal(&shared.directory, &journal).map_err(|error| error.to_string())?;
                    shared.background.work.lock().sealed_journals.pop_front();
                }
            }
            shared.background.work.lock().merge_due = true;
            shared.background.changed.notify_all();
            request_collection(shared);
        }
    });
}

/// The life of the thread that merges tables and sweeps.
pub(super) fn run_merger(shared: &Arc<Shared>) {
    run_guarded(shared, "merging tables", || {
        loop {
            let (merge, dead_slots) = {
                let mut work = shared.background.work.lock();
                while !work.merge_due
                    && work.dead_slots.is_empty()
                    && !work.stopping
                    && !shared.health.is_failed()
                {
                    shared.background.changed.wait(&mut work);
                }
                if work.stopping || shared.health.is_failed() {
                    return Ok(());
                }
                (std::mem::take(&mut work.merge_due), std::mem::take(&mut work.dead_slots))
            };
            if merge {
                while merge_once(shared)? {
                    shared.background.changed.notify_all();
                }
                shared.background.changed.notify_all();
                request_collection(shared);
            }
            sweep(shared, dead_slots)?;
        }
    });
}

fn merge_once(shared: &Shared) -> Result<bool, String> {
    let fault = match shared.tree.compact() {
        Ok(merged) => return Ok(merged),
        Err(_) if shared.tree.is_stopping() => return Ok(false),
        Err(error) => tree::Fault::from(error),
    };
    match fault {
        tree::Fault::Io(error) => Err(error),
        // All that is readable stays in service: only when too many tables wait to be merged must writing
        // end, see `wait_for_room`.
        fault @ tree::Fault::Damaged(_) => {
            let error = shared.explain(fault);
            shared.background.work.lock().merge_fault = Some(error.to_string());
            Ok(false)
        }
    }
}

/// Removes all that destroyed partitions held. Interrupted, it begins again at the next start: the record of
/// a dead slot goes last. Small partitions share a batch, so that dropping hundreds costs few flushes.
fn sweep(shared: &Shared, slots: Vec<Slot>) -> Result<(), String> {
    let mut keys = Vec::new();
    for slot in slots {
        shared.tree.drop_slot_tables(slot).map_err(|error| format!("{error:?}"))?;
        loop {
            let scan = Scan {
                range: KeyRange::all(),
                direction: Direction::Forward,
                entries_max: SWEEP_ENTRIES.saturating_sub(keys.len()).max(1),
                bytes_max: usize::MAX,
                want: Want::Keys,
            };
            let page = match shared.tree.pin().scan(slot, &scan) {
                Ok(page) => page,
                Err(fault @ tree::Fault::Damaged(_)) => {
                    // Rubbish that cannot be read cannot be removed either. It is out of everyone's way.
                    let error = shared.explain(fault);
                    tracing::warn!(%error, slot = slot.0, "entries of a destroyed partition remain");
                    break;
                }
                Err(tree::Fault::Io(error)) => return Err(error),
            };
            keys.extend(page.entries.iter().map(|entry| slot.key(&entry.key)));
            if !page.more {
                keys.push(layout::dead_slot_key(slot));
                break;
            }
            if !remove(shared, std::mem::take(&mut keys)) {
                return Ok(());
            }
        }
    }
    remove(shared, keys);
    Ok(())
}

/// Waits for each batch, so that a sweep does not crowd out commits. `false`: the store is closing.
fn remove(shared: &Shared, keys: Vec<Bytes>) -> bool {
    if keys.is_empty() {
        return true;
    }
    let (reply, done) = oneshot::channel();
    let queued = shared.queue.push(Task::Sweep { keys, reply }, usize::MAX).is_ok();
    queued && matches!(done.blocking_recv(), Ok(Ok(()))) && !shared.tree.is_stopping()
}

/// Between two groups the committer lets go of what the change has replaced.
fn request_collection(shared: &Shared) {
    // Refused only by a queue that is closed, and then there is nothing to let go of.
    drop(shared.queue.push(Task::Collect, usize::MAX));
}

fn remove_journal(directory: &Path, journal: &Path) -> std::io::Result<()> {
    std::fs::remove_file(journal)?;
    journal::sync_directory(&layout::journals_path(directory))
}

/// A fault in the background leaves the store in doubt, so it goes offline.
fn run_guarded(shared: &Shared, what: &str, run: impl FnOnce() -> Result<(), String>) {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => shared.fail(&format!("{what} failed: {error}")),
        Err(payload) => shared.fail(&format!("{what} panicked: {}", panic_text(payload.as_ref()))),
    }
}
