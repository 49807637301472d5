//! Reclaims the space of destroyed partitions.
//!
//! Dropping a container of a million items must neither stop writers nor queue a delete for every key behind them.
//! So most entries are never deleted one by one:
//!
//! 1. Tables that contain no slot of a live partition are dropped as a whole.
//! 2. Every merge skips entries of dead slots ([`DeadSlots`] feeds the tree's compaction filter). Young tables, which
//!    mix all slots, are merged once for this purpose alone; a small tree is rewritten as a whole.
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
use orrery_env::monotonic;
use parking_lot::Mutex;

use super::background;
use super::layout::{self, Slot};
use super::shared::{Shared, Task};
use super::tree;
use crate::contract::{Direction, Key, KeyRange, Scan, Want};

/// Keys deleted per batch: about ten milliseconds of the committer's time.
const BATCH_KEYS: usize = 1000;

/// After a batch, pause for this many times its duration: batches then use at most 1/(1 + 4) of the committer's time.
const PAUSE_FACTOR: u32 = 4;
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Up to this size the whole tree is rewritten after a large drop, in about a second. In larger ones the tables at the
/// edges of a dead slot, a few dozen megabytes, are left to later merges.
const REWRITTEN_BYTES_MAX: u64 = 128 << 20;
/// How long the merge waits for memtables that are being written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);
/// The pause after a batch that the committer refused, because the disk is full.
const PAUSE_REFUSED: Duration = Duration::from_secs(1);

/// Slots of destroyed partitions, whose entries the sweep and every merge discard.
#[derive(Default)]
pub(super) struct DeadSlots(Mutex<Arc<BTreeSet<u32>>>);

impl DeadSlots {
    pub(super) fn add(&self, slot: Slot) {
        assert!(slot != Slot::STORE, "the store's own slot never dies");
        // Copies the set if a merge is using it; merges keep the one they started with.
        Arc::make_mut(&mut self.0.lock()).insert(slot.0);
    }

    /// From now on merges treat entries of these slots as any others.
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
    /// Where the next batch continues if the slot is not empty yet.
    reached: Option<(Slot, Key)>,
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
    /// When the sweep first found that there is much to do.
    begun: Option<Instant>,
    /// The slot being emptied, and the first key that may be left. Without it every batch would skip the tombstones of
    /// all batches before it.
    reached: Option<(Slot, Key)>,
    /// Slots whose remaining entries are damaged: skipped until the next start.
    unreadable: BTreeSet<u32>,
}

/// Keys for a batch.
#[derive(Default)]
struct Gathered {
    keys: Vec<Bytes>,
    finished: Vec<Slot>,
    reached: Option<(Slot, Key)>,
    /// There is more than one batch to do.
    large: bool,
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
        self.begun = None;
    }

    /// The committer has processed the last batch. `done` is false if it refused it.
    pub(super) fn batch_ended(&mut self, shared: &Shared, done: bool) {
        let Some(batch) = self.batch.take() else { return };
        // Dropped tables stay on disk as long as an old list names them. Lists are freed up to the one before the last
        // write, and this batch was one.
        background::request_collection(shared);
        let now = monotonic::now();
        let took = now.saturating_duration_since(batch.started);
        if done {
            self.reached = batch.reached;
            self.next_batch_at = Some(now + PAUSE_MIN.max(took * PAUSE_FACTOR));
        } else {
            for slot in batch.finished {
                shared.tree.dead_slots().add(slot);
            }
            self.reached = None;
            self.next_batch_at = Some(now + PAUSE_REFUSED);
        }
    }

    /// Does one bounded unit of work.
    pub(super) fn step(&mut self, shared: &Shared) -> Result<Next, tree::TreeError> {
        let dead = shared.tree.dead_slots().all();
        if dead.is_empty() || self.batch.is_some() {
            return Ok(Next::Wait);
        }
        // The cheapest step first: whole tables, without looking at a key.
        shared.tree.drop_dead_tables(&shared.live_slots())?;
        if let Some(at) = self.next_batch_at.filter(|at| monotonic::now() < *at) {
            return Ok(Next::At(at));
        }
        let Gathered { keys, finished, reached, large } = self.gather(shared, &dead)?;
        if keys.is_empty() {
            return Ok(Next::Wait);
        }
        if large && !self.merged_young {
            let now = monotonic::now();
            let begun = *self.begun.get_or_insert(now);
            // A memtable that is just being written would come too late for the merge.
            if shared.tree.sealed_memtables() > 0 && now.saturating_duration_since(begun) < FLUSH_PATIENCE {
                return Ok(Next::At(now + PAUSE_MIN));
            }
            // One merge covers all current tables. Those that appear meanwhile are merged by the usual rule.
            self.merged_young = true;
            if shared.tree.tables_bytes() <= REWRITTEN_BYTES_MAX {
                shared.tree.rewrite()?;
            } else {
                shared.tree.merge_young()?;
            }
            return Ok(Next::Soon);
        }
        // A merge discards whatever it finds of a dead slot, tombstones included, and so may uncover an older entry in a
        // lower table. None may do so between looking for the last entries and removing the slot's record.
        shared.tree.dead_slots().remove(&finished);
        // Only a closed queue refuses the task; the next start continues the sweep.
        if shared.queue.push(Task::Sweep { keys }, usize::MAX).is_ok() {
            self.batch = Some(Batch { finished, reached, started: monotonic::now() });
        }
        Ok(Next::Wait)
    }

    /// Collects the next keys to delete, of one slot after the other.
    fn gather(&mut self, shared: &Shared, dead: &BTreeSet<u32>) -> Result<Gathered, tree::TreeError> {
        let mut gathered = Gathered::default();
        let readable: Vec<Slot> =
            dead.iter().filter(|slot| !self.unreadable.contains(slot)).map(|slot| Slot(*slot)).collect();
        for slot in readable {
            let room = BATCH_KEYS.saturating_sub(gathered.keys.len());
            if room == 0 {
                gathered.large = true;
                break;
            }
            let from =
                self.reached.as_ref().filter(|(reached, _)| *reached == slot).map(|(_, key)| key.clone());
            let is_from_start = from.is_none();
            // Unreadable: skip this slot, go on with the next.
            let Some((page, mut more)) = self.remains(shared, slot, from, room)? else { continue };
            // Behind the last batch nothing is left; but a merge may have uncovered something before it.
            if page.is_empty() && !is_from_start {
                let Some(again) = self.remains(shared, slot, None, room)? else { continue };
                gathered.keys.extend(again.0.iter().map(|key| slot.key(key)));
                more = again.1;
            } else {
                // A batch that began in the middle proves nothing about what lies before
                // it: look again from the start.
                more |= !is_from_start;
                let next = page.last().map(|last| [last.as_slice(), &[0]].concat());
                gathered.reached = next.filter(|_| more).map(|key| (slot, key));
                gathered.keys.extend(page.iter().map(|key| slot.key(key)));
            }
            if more {
                gathered.large = true;
                break;
            }
            // Last in its batch: the slot's record goes only together with its last entries.
            gathered.keys.push(layout::dead_slot_key(slot));
            gathered.finished.push(slot);
        }
        Ok(gathered)
    }

    /// The first remaining keys of a slot, and whether there are more. `None` where they cannot be read: unreadable
    /// garbage cannot be removed either, and it does no harm.
    fn remains(
        &mut self,
        shared: &Shared,
        slot: Slot,
        from: Option<Key>,
        keys_max: usize,
    ) -> Result<Option<(Vec<Key>, bool)>, tree::TreeError> {
        let scan = Scan {
            range: KeyRange { start: from.unwrap_or_default(), end: None },
            direction: Direction::Forward,
            entries_max: keys_max,
            bytes_max: usize::MAX,
            want: Want::Keys,
        };
        match shared.tree.pin().scan(slot, &scan) {
            Ok(page) => {
                let keys = page.entries.into_iter().map(|entry| entry.key).collect();
                Ok(Some((keys, page.more)))
            }
            Err(fault @ tree::TreeError::Damaged(_)) => {
                let error = shared.explain(fault);
                tracing::warn!(%error, slot = slot.0, "cannot remove the entries of a destroyed partition");
                // Not tried again until the next start; otherwise every step would fail on it.
                self.unreadable.insert(slot.0);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }
}
