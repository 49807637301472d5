//! Who may write now. Lanes that have to wait for their turn gather larger groups meanwhile, and where lanes may share a
//! transaction, whoever has a turn takes along those that wait. So the server does not divide its processors
//! and its log between more transactions than it needs.
//!
//! This is about speed alone: nobody waits longer than a moment, so that a node that does not answer holds up
//! no partition of another one.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The longest wait for a turn.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// Turns of lanes `L`, of which some write for others and tell them the outcome `O`.
pub(super) struct Turns<L, O> {
    state: Mutex<State<L, O>>,
    wait_max: Duration,
    /// So many write at once in any case, and of those that are busy one of so many.
    writing_min: usize,
    busy_per_writing: usize,
    /// A further one does not begin before so many of those that are busy, one of so many, would go along.
    busy_per_company: usize,
}

struct State<L, O> {
    /// Lanes with something to write.
    busy: usize,
    writing: usize,
    waiting: VecDeque<(L, oneshot::Sender<Called<O>>)>,
}

enum Called<O> {
    Lead,
    Follow(oneshot::Receiver<O>),
}

/// What a lane that wanted to write is to do.
pub(super) enum Part<'a, L, O> {
    Lead(Turn<'a, L, O>),
    /// Another one writes for it, and tells it what became of it.
    Follow(oneshot::Receiver<O>),
}

/// A lane has something to write until this is dropped.
pub(super) struct Busy<'a, L, O>(&'a Turns<L, O>);

/// A transaction is under way until this is dropped. While it waits for the disk alone, others may be.
pub(super) struct Turn<'a, L, O>(&'a Turns<L, O>);

impl<L, O> Turns<L, O> {
    /// For lanes that share transactions: the fewer, the larger; but while some wait for the disk, others shall go on.
    pub(super) fn shared() -> Self {
        Self::new(3, 8, 4)
    }

    /// For lanes that write each for itself: half of them at once, so that the others' groups grow while they wait no
    /// longer than a transaction takes.
    pub(super) fn each() -> Self {
        Self::new(4, 2, usize::MAX)
    }

    fn new(writing_min: usize, busy_per_writing: usize, busy_per_company: usize) -> Self {
        let state = State { busy: 0, writing: 0, waiting: VecDeque::new() };
        let state = Mutex::new(state);
        Self { state, wait_max: WAIT_MAX, writing_min, busy_per_writing, busy_per_company }
    }

    pub(super) fn busy(&self) -> Busy<'_, L, O> {
        self.state.lock().busy += 1;
        Busy(self)
    }

    pub(super) async fn turn(&self, lane: L) -> Part<'_, L, O> {
        let mut called = {
            let mut state = self.state.lock();
            let has_company = state.waiting.len() + 1 >= state.busy / self.busy_per_company;
            if state.writing < self.writing_max(&state) && (state.writing == 0 || has_company) {
                state.writing += 1;
                return Part::Lead(Turn(self));
            }
            let (call, called) = oneshot::channel();
            state.waiting.push_back((lane, call));
            called
        };
        let call = if let Ok(call) = tokio::time::timeout(self.wait_max, &mut called).await {
            call.ok()
        } else {
            // Whoever calls from now on finds the receiver gone; a call that was made meanwhile has counted already.
            called.close();
            called.try_recv().ok()
        };
        match call {
            Some(Called::Lead) => {}
            Some(Called::Follow(outcome)) => return Part::Follow(outcome),
            None => self.state.lock().writing += 1,
        }
        Part::Lead(Turn(self))
    }

    fn writing_max(&self, state: &State<L, O>) -> usize {
        state.busy.div_ceil(self.busy_per_writing).max(self.writing_min)
    }
}

impl<L, O> Turn<'_, L, O> {
    /// Takes one along that waits; it does nothing until it is told the outcome.
    pub(super) fn take_along(&self) -> Option<(L, oneshot::Sender<O>)> {
        let mut state = self.0.state.lock();
        while let Some((lane, call)) = state.waiting.pop_front() {
            let (tell, outcome) = oneshot::channel();
            if call.send(Called::Follow(outcome)).is_ok() {
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
        state.writing -= 1;
        while state.writing < self.0.writing_max(&state) {
            let Some((_, next)) = state.waiting.pop_front() else { return };
            if next.send(Called::Lead).is_ok() {
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
            Part::Lead(turn) => turn,
            Part::Follow(_) => panic!("{lane} was taken along"),
        }
    }

    #[tokio::test]
    async fn half_of_the_busy_take_turns_and_nobody_waits_for_ever() {
        let mut turns = Numbers { wait_max: Duration::from_hours(1), ..Numbers::each() };
        let busy: Vec<_> = (0..12).map(|_| turns.busy()).collect();
        let mut first = Vec::new();
        for lane in 0..6 {
            first.push(lead(&turns, lane).await);
        }
        // The seventh is called when one has finished.
        let mut next = Box::pin(lead(&turns, 6));
        tokio::select! {
            biased;
            _ = &mut next => panic!("nobody has finished"),
            () = async {} => {}
        }
        drop(first.pop());
        let seventh = next.await;
        assert_eq!(turns.state.lock().writing, 6);
        drop((busy, first, seventh));
        assert_eq!(turns.state.lock().writing, 0);

        // One that loses patience counts all the same, and is neither called nor taken along later.
        turns.wait_max = Duration::ZERO;
        let _busy: Vec<_> = (0..12).map(|_| turns.busy()).collect();
        let mut all = Vec::new();
        for lane in 0..7 {
            all.push(lead(&turns, lane).await);
        }
        assert_eq!(turns.state.lock().writing, 7);
        assert!(all.last().unwrap().take_along().is_none());
        drop(all);
        let state = turns.state.lock();
        assert_eq!((state.writing, state.waiting.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_second_one_begins_with_company() {
        let turns = Numbers { wait_max: Duration::from_hours(1), ..Numbers::shared() };
        let _busy: Vec<_> = (0..12).map(|_| turns.busy()).collect();
        let first = lead(&turns, 1).await;
        let mut waiting = [2, 3].map(|lane| Box::pin(turns.turn(lane)));
        for one in &mut waiting {
            tokio::select! {
                biased;
                _ = one => panic!("too few to begin"),
                () = async {} => {}
            }
        }
        let second = lead(&turns, 4).await;
        assert_eq!(second.take_along().map(|(lane, _)| lane), Some(2));
        assert_eq!(second.take_along().map(|(lane, _)| lane), Some(3));
        drop((first, second));
        assert_eq!(turns.state.lock().writing, 0);
    }

    #[tokio::test]
    async fn those_who_wait_are_taken_along_and_told() {
        let turns = Numbers { wait_max: Duration::from_hours(1), ..Numbers::shared() };
        let (first, second) = (lead(&turns, 1).await, lead(&turns, 2).await);
        let third = lead(&turns, 4).await;
        let mut waiting = Box::pin(turns.turn(3));
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("nobody has finished"),
            () = async {} => {}
        }
        let (lane, tell) = second.take_along().unwrap();
        assert_eq!(lane, 3);
        assert!(second.take_along().is_none());
        let Part::Follow(outcome) = waiting.await else { panic!("it was taken along") };
        // It is not called as well.
        drop((first, second, third));
        assert_eq!(turns.state.lock().writing, 0);
        tell.send("written").unwrap();
        assert_eq!(outcome.await.unwrap(), "written");
    }
}
