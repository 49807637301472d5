//! Limits how many transactions write at once.
//!
//! Lanes that wait for a turn gather larger groups in the meantime. Where lanes may share a transaction, the lane that
//! gets a turn writes for waiting lanes as well. The server then spreads its CPUs and its WAL over fewer transactions.
//!
//! Turns are a performance measure, not a lock: the wait is bounded, so a node that does not respond never blocks the
//! partitions of another node.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The longest wait for a turn.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// Hands out turns to lanes `L`. The leader of a shared transaction reports the outcome `O` to its followers.
pub(super) struct Turns<L, O> {
    state: Mutex<State<L, O>>,
    wait_max: Duration,
    /// Transactions that may always run at once; above it, one per `busy_per_writer` busy lanes.
    writers_min: usize,
    busy_per_writer: usize,
    /// Start another transaction only when one in this many busy lanes is waiting to join it.
    busy_per_follower: usize,
}

struct State<L, O> {
    /// Lanes that have something to write.
    busy: usize,
    writing: usize,
    waiting: VecDeque<(L, oneshot::Sender<Wakeup<O>>)>,
}

/// How a waiting lane is woken.
enum Wakeup<O> {
    Lead,
    Follow(oneshot::Receiver<O>),
}

/// What a lane that wants to write does next.
pub(super) enum Role<'a, L, O> {
    Lead(Turn<'a, L, O>),
    /// Another lane writes for this one and reports the outcome.
    Follow(oneshot::Receiver<O>),
}

/// Counts a lane as busy until it is dropped.
pub(super) struct Busy<'a, L, O>(&'a Turns<L, O>);

/// The right to run a transaction, until it is dropped. Dropped early while the transaction only waits for the disk.
pub(super) struct Turn<'a, L, O>(&'a Turns<L, O>);

impl<L, O> Turns<L, O> {
    /// For lanes that share transactions: few, so that they are large, but enough that some proceed while others wait for
    /// the disk.
    pub(super) fn shared() -> Self {
        Self::new(3, 8, 4)
    }

    /// For lanes that write separately: half of them at once, so that the groups of the others grow while they wait no
    /// longer than one transaction takes.
    pub(super) fn each() -> Self {
        Self::new(4, 2, usize::MAX)
    }

    fn new(writers_min: usize, busy_per_writer: usize, busy_per_follower: usize) -> Self {
        let state = State { busy: 0, writing: 0, waiting: VecDeque::new() };
        let state = Mutex::new(state);
        Self { state, wait_max: WAIT_MAX, writers_min, busy_per_writer, busy_per_follower }
    }

    pub(super) fn busy(&self) -> Busy<'_, L, O> {
        self.state.lock().busy += 1;
        Busy(self)
    }

    pub(super) async fn turn(&self, lane: L) -> Role<'_, L, O> {
        let mut called = {
            let mut state = self.state.lock();
            // Waiting pays only if a later leader can take others along; `+ 1` counts this lane.
            let has_followers = state.waiting.len() + 1 >= state.busy / self.busy_per_follower;
            if state.writing < self.writers_max(&state) && (state.writing == 0 || has_followers) {
                state.writing += 1;
                return Role::Lead(Turn(self));
            }
            let (call, called) = oneshot::channel();
            state.waiting.push_back((lane, call));
            called
        };
        let call = if let Ok(call) = tokio::time::timeout(self.wait_max, &mut called).await {
            call.ok()
        } else {
            // Close the channel so that no later wake-up succeeds. One that was sent in the meantime is already counted.
            called.close();
            called.try_recv().ok()
        };
        match call {
            Some(Wakeup::Lead) => {}
            Some(Wakeup::Follow(outcome)) => return Role::Follow(outcome),
            // Nobody called in time: write anyway, above the limit if necessary. The limit is for throughput only.
            None => self.state.lock().writing += 1,
        }
        Role::Lead(Turn(self))
    }

    fn writers_max(&self, state: &State<L, O>) -> usize {
        state.busy.div_ceil(self.busy_per_writer).max(self.writers_min)
    }
}

impl<L, O> Turn<'_, L, O> {
    /// Enlists a waiting lane as a follower; it then waits for its outcome.
    pub(super) fn enlist(&self) -> Option<(L, oneshot::Sender<O>)> {
        let mut state = self.0.state.lock();
        // A lane that has given up waiting has closed its channel; it writes for itself.
        while let Some((lane, call)) = state.waiting.pop_front() {
            let (tell, outcome) = oneshot::channel();
            if call.send(Wakeup::Follow(outcome)).is_ok() {
                return Some((lane, tell));
            }
        }
        None
    }
}

impl<L, O> Drop for Busy<'_, L, O> {
    fn drop(&mut self) {
        self.0.state.lock().busy -= 1;
    }
}

impl<L, O> Drop for Turn<'_, L, O> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        debug_assert!(state.writing > 0, "a turn ends once");
        state.writing -= 1;
        // The number of busy lanes may have grown, so one turn that ends can start several.
        while state.writing < self.0.writers_max(&state) {
            let Some((_, next)) = state.waiting.pop_front() else { return };
            if next.send(Wakeup::Lead).is_ok() {
                state.writing += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Numbers = Turns<u32, &'static str>;

    async fn lead(turns: &Numbers, lane: u32) -> Turn<'_, u32, &'static str> {
        match turns.turn(lane).await {
            Role::Lead(turn) => turn,
            Role::Follow(_) => panic!("{lane} was enlisted"),
        }
    }

    #[tokio::test]
    async fn half_of_the_busy_lanes_write_and_waiting_is_bounded() {
        let mut turns = Numbers { wait_max: Duration::from_hours(1), ..Numbers::each() };
        let busy: Vec<_> = (0..12).map(|_| turns.busy()).collect();
        let mut first = Vec::new();
        for lane in 0..6 {
            first.push(lead(&turns, lane).await);
        }
        // The seventh is woken when one has finished.
        let mut next = Box::pin(lead(&turns, 6));
        tokio::select! {
            biased;
            _ = &mut next => panic!("no turn has ended"),
            () = async {} => {}
        }
        drop(first.pop());
        let seventh = next.await;
        assert_eq!(turns.state.lock().writing, 6);
        drop((busy, first, seventh));
        assert_eq!(turns.state.lock().writing, 0);

        // A lane whose wait timed out is counted too, and is neither woken nor enlisted later.
        turns.wait_max = Duration::ZERO;
        let _busy: Vec<_> = (0..12).map(|_| turns.busy()).collect();
        let mut all = Vec::new();
        for lane in 0..7 {
            all.push(lead(&turns, lane).await);
        }
        assert_eq!(turns.state.lock().writing, 7);
        assert!(all.last().unwrap().enlist().is_none());
        drop(all);
        let state = turns.state.lock();
        assert_eq!((state.writing, state.waiting.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_second_transaction_starts_with_enough_followers() {
        let turns = Numbers { wait_max: Duration::from_hours(1), ..Numbers::shared() };
        let _busy: Vec<_> = (0..12).map(|_| turns.busy()).collect();
        let first = lead(&turns, 1).await;
        let mut waiting = [2, 3].map(|lane| Box::pin(turns.turn(lane)));
        for one in &mut waiting {
            tokio::select! {
                biased;
                            _ = one => panic!("too few to start"),
                () = async {} => {}
            }
        }
        let second = lead(&turns, 4).await;
        assert_eq!(second.enlist().map(|(lane, _)| lane), Some(2));
        assert_eq!(second.enlist().map(|(lane, _)| lane), Some(3));
        drop((first, second));
        assert_eq!(turns.state.lock().writing, 0);
    }

    #[tokio::test]
    async fn waiting_lanes_are_enlisted_and_get_their_outcome() {
        let turns = Numbers { wait_max: Duration::from_hours(1), ..Numbers::shared() };
        let (first, second) = (lead(&turns, 1).await, lead(&turns, 2).await);
        let third = lead(&turns, 4).await;
        let mut waiting = Box::pin(turns.turn(3));
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("no turn has ended"),
            () = async {} => {}
        }
        let (lane, tell) = second.enlist().unwrap();
        assert_eq!(lane, 3);
        assert!(second.enlist().is_none());
        let Role::Follow(outcome) = waiting.await else { panic!("it was enlisted") };
        // It is not woken to lead as well.
        drop((first, second, third));
        assert_eq!(turns.state.lock().writing, 0);
        tell.send("written").unwrap();
        assert_eq!(outcome.await.unwrap(), "written");
    }
}
