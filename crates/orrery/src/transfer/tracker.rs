//! Tracks the confirmed positions of a transfer, although requests finish in any order.
//!
//! Work is handed out in chunks, lane by lane; a chunk is done when all its records are settled. The position after a
//! chunk is reached once that chunk and all earlier ones of its lane are done. Only such positions may go into a
//! checkpoint: resuming there loses nothing and repeats at most the chunks that were open.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Identifies the chunk that a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    lane: u64,
    chunk: u64,
}

/// Progress of all lanes, with positions of type `P`.
pub(crate) struct Tracker<P> {
    lanes: Mutex<BTreeMap<u64, LaneState<P>>>,
    changed: Notify,
}

struct LaneState<P> {
    reached: P,
    /// Chunks after the position, oldest first.
    open: VecDeque<OpenChunk<P>>,
    /// The number of the oldest open chunk.
    first: u64,
}

struct OpenChunk<P> {
    records_left: usize,
    position_after: P,
}

impl<P: Clone> Tracker<P> {
    pub(crate) fn new() -> Self {
        Self { lanes: Mutex::new(BTreeMap::new()), changed: Notify::new() }
    }

    /// Adds a lane that starts at a position.
    pub(crate) fn add(&self, lane: u64, position: P) {
        let state = LaneState { reached: position, open: VecDeque::new(), first: 0 };
        self.lanes.lock().insert(lane, state);
    }

    /// Atomically replaces a lane without open chunks by others, so that no checkpoint sees neither or both.
    pub(crate) fn replace(&self, lane: u64, by: Vec<(u64, P)>) {
        let mut lanes = self.lanes.lock();
        let replaced = lanes.remove(&lane);
        assert!(
            replaced.is_some_and(|state| state.open.is_empty()),
            "a lane is replaced only after everything read from it is settled"
        );
        for (lane, position) in by {
            lanes.insert(lane, LaneState { reached: position, open: VecDeque::new(), first: 0 });
        }
    }

    /// Opens the next chunk of a lane. Each of its records must be settled with the ticket.
    pub(crate) fn begin(&self, lane: u64, records: usize, position_after: P) -> Ticket {
        let mut lanes = self.lanes.lock();
        let state = lanes.get_mut(&lane).expect("a chunk is opened only in a lane that was added");
        let chunk = state.first + state.open.len() as u64;
        state.open.push_back(OpenChunk { records_left: records, position_after });
        // A chunk without records is done at once.
        state.advance();
        drop(lanes);
        self.changed.notify_waiters();
        Ticket { lane, chunk }
    }

    /// One record of the chunk is written or given up.
    pub(crate) fn settle(&self, ticket: Ticket) {
        let mut lanes = self.lanes.lock();
        let Some(state) = lanes.get_mut(&ticket.lane) else { return };
        let at = ticket.chunk.checked_sub(state.first).and_then(|at| usize::try_from(at).ok());
        let Some(chunk) = at.and_then(|at| state.open.get_mut(at)) else { return };
        chunk.records_left = chunk.records_left.saturating_sub(1);
        let finished = chunk.records_left == 0;
        state.advance();
        drop(lanes);
        if finished {
            self.changed.notify_waiters();
        }
    }

    /// The position reached in every lane.
    pub(crate) fn reached(&self) -> Vec<P> {
        self.lanes.lock().values().map(|state| state.reached.clone()).collect()
    }

    /// Waits until a lane has no open chunks.
    pub(crate) async fn drained(&self, lane: u64) {
        loop {
            // Registered before the check, so that no change is missed in between.
            let changed = self.changed.notified();
            if self.lanes.lock().get(&lane).is_none_or(|state| state.open.is_empty()) {
                return;
            }
            changed.await;
        }
    }
}

impl<P> LaneState<P> {
    fn advance(&mut self) {
        while self.open.front().is_some_and(|chunk| chunk.records_left == 0) {
            let chunk = self.open.pop_front().expect("the loop condition saw it");
            self.reached = chunk.position_after;
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_reached_once_all_earlier_chunks_are_settled() {
        let tracker = Tracker::new();
        tracker.add(0, 0);
        let first = tracker.begin(0, 2, 2);
        let second = tracker.begin(0, 1, 3);
        tracker.settle(second);
        assert_eq!(tracker.reached(), [0]);
        tracker.settle(first);
        assert_eq!(tracker.reached(), [0]);
        tracker.settle(first);
        assert_eq!(tracker.reached(), [3]);
        tracker.begin(0, 0, 9);
        assert_eq!(tracker.reached(), [9]);
        let last = tracker.begin(0, 1, 10);
        tracker.settle(last);
        assert_eq!(tracker.reached(), [10]);
    }

    #[tokio::test]
    async fn a_lane_is_drained_once_no_chunk_is_open() {
        let tracker = std::sync::Arc::new(Tracker::new());
        tracker.add(5, "a");
        let ticket = tracker.begin(5, 1, "b");
        let waiting = orrery_env::task::spawn("waiting", {
            let tracker = std::sync::Arc::clone(&tracker);
            async move { tracker.drained(5).await }
        });
        tracker.settle(ticket);
        waiting.await.unwrap();
        tracker.replace(5, vec![(6, "c"), (7, "d")]);
        assert_eq!(tracker.reached(), ["c", "d"]);
    }
}
