//! Reclaims the space of destroyed partitions.
//!
//! Dropping a container of a million items must neither stop writers nor queue a delete for every key behind them.
//! So most entries are never deleted one by one:
//!
//! 1. Tables that contain no slot of a live partition are dropped as a whole.
//! 2. Every merge skips entries of dead slots ([`DeadSlots`] feeds the tree's compaction filter). Young tables, which
//!    mix all slots, are merged once for this purpose alone.
//! 3. The rest sits in the memtable and in the few tables at the edges of a dead slot. Later merges would drop it too,
//!    but an idle store has none, so it is deleted in batches that take at most a fifth of the committer's time.
//!
//! A slot's record is removed only once none of its entries can be read, so an interrupted sweep restarts with the
//! store.
//!
//! The merger thread runs the sweep, and writers wait for the merger when young tables pile up. Therefore nothing
//! here waits for the committer: a batch is posted to its queue, and its completion is an event like a finished flush.
//! The first version did wait, and dropping three large containers deadlocked the store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::layout::{self, Slot};
use super::shared::{Shared, Task};
use super::tree;
use crate::contract::{Direction, KeyRange, Scan, Want};

/// Keys deleted per batch: about ten milliseconds of the committer's time.
const BATCH_KEYS: usize = 1000;

/// After a batch, pause for this many times its duration: batches then use at most 1/(1 + 4) of the committer's time.
const PAUSE_FACTOR: u32 = 4;
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Slots of destroyed partitions, whose entries the sweep and every merge discard.
#[derive(Default)]
pub(super) struct DeadSlots(Mutex<Arc<BTreeSet<u32>>>);

impl DeadSlots {
    pub(super) fn add(&self, slot: Slot) {
        assert!(slot != Slot::STORE, "the store's own slot never dies");
        Arc::make_mut(&mut self.0.lock()).insert(slot.0);
    }

    fn remove(&self, slots: &[Slot]) {
        let mut all = self.0.lock();
        let all = Arc::make_mut(&mut all);
        for slot in slots {
            all.remove(&slot.0);
        }
    }

    pub(super) fn all(&self) -> Arc<BTreeSet<u32>> {
        Arc::clone(&self.0.lock())
    }
}

/// A batch of deletions that the committer has not acknowledged yet.
struct Batch {
    /// Slots that the batch empties.
    finished: Vec<Slot>,
    started: Instant,
}

/// The sweep's state, owned by the merger thread.
#[derive(Default)]
pub(super) struct Sweeper {
    batch: Option<Batch>,
    /// When the next batch may start.
    next_batch_at: Option<Instant>,
    /// Young tables have been merged since the last slot died.
    merged_young: bool,
    /// Slots whose remaining entries are damaged: skipped until the next start.
    unreadable: BTreeSet<u32>,
}

/// What the merger thread does after a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing to do until the next event.
    Wait,
    /// Continue at this time.
    At(Instant),
    /// Continue after pending merges.
    Soon,
}

impl Sweeper {
    /// Called when more slots have died.
    pub(super) fn begin(&mut self) {
        self.merged_young = false;
    }

    /// The committer has processed the last batch. `done` is false if it refused it.
    pub(super) fn batch_ended(&mut self, shared: &Shared, done: bool) {
        let Some(batch) = self.batch.take() else { return };
        self.next_batch_at = Some(Instant::now() + PAUSE_MIN.max(batch.started.elapsed() * PAUSE_FACTOR));
        if done {
            shared.tree.dead_slots().remove(&batch.finished);
        }
    }

    /// Does one bounded unit of work.
    pub(super) fn step(&mut self, shared: &Shared) -> Result<Next, tree::TreeError> {
        let dead = shared.tree.dead_slots().all();
        if dead.is_empty() || self.batch.is_some() {
            return Ok(Next::Wait);
        }
        shared.tree.drop_dead_tables(&shared.live_slots())?;
        let mut keys = Vec::new();
        let mut finished = Vec::new();
        let mut large = false;
        let readable: Vec<Slot> =
            dead.iter().filter(|slot| !self.unreadable.contains(slot)).map(|slot| Slot(*slot)).collect();
        for slot in readable {
            let room = BATCH_KEYS.saturating_sub(keys.len());
            if room == 0 {
                large = true;
                break;
            }
            let Some((page, more)) = self.remains(shared, slot, room)? else { continue };
            keys.extend(page);
            if more {
                large = true;
                break;
            }
            keys.push(layout::dead_slot_key(slot));
            finished.push(slot);
        }
        if keys.is_empty() {
            return Ok(Next::Wait);
        }
        if large && !self.merged_young {
            // One merge covers all current young tables. Those that appear meanwhile are merged by the usual rule.
            self.merged_young = true;
            shared.tree.merge_young()?;
            return Ok(Next::Soon);
        }
        if let Some(at) = self.next_batch_at.filter(|at| large && Instant::now() < *at) {
            return Ok(Next::At(at));
        }
        // Only a closed queue refuses the task; the next start continues the sweep.
        if shared.queue.push(Task::Sweep { keys }, usize::MAX).is_ok() {
            self.batch = Some(Batch { finished, started: Instant::now() });
        }
        Ok(Next::Wait)
    }

    /// The first remaining keys of a slot, and whether there are more. `None` where they cannot be read: unreadable
    /// garbage cannot be removed either, and it does no harm.
    fn remains(
        &mut self,
        shared: &Shared,
        slot: Slot,
        keys_max: usize,
    ) -> Result<Option<(Vec<Bytes>, bool)>, tree::TreeError> {
        let scan = Scan {
            range: KeyRange::all(),
            direction: Direction::Forward,
            entries_max: keys_max,
            bytes_max: usize::MAX,
            want: Want::Keys,
        };
        match shared.tree.pin().scan(slot, &scan) {
            Ok(page) => {
                let keys = page.entries.iter().map(|entry| slot.key(&entry.key)).collect();
                Ok(Some((keys, page.more)))
            }
            Err(fault @ tree::TreeError::Damaged(_)) => {
                let error = shared.explain(fault);
                tracing::warn!(%error, slot = slot.0, "cannot remove the entries of a destroyed partition");
                self.unreadable.insert(slot.0);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }
}
