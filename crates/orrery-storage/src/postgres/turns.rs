//! Who may write now. A partition whose group has to wait for its turn gathers a larger one meanwhile, and the
//! server does not divide its processors and its log between more transactions than it needs: with half of
//! the partitions at it, the others' groups grow while they wait no longer than a transaction takes.
//!
//! This is about speed alone: nobody waits longer than a moment, so that a node that does not answer holds up
//! no partition of another one.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// So many partitions are written at once in any case.
const WRITING_MIN: usize = 4;
/// The longest wait for a turn.
const WAIT_MAX: Duration = Duration::from_millis(50);

pub(super) struct Turns {
    state: Mutex<State>,
    wait_max: Duration,
}

#[derive(Default)]
struct State {
    /// Partitions with something to write.
    busy: usize,
    writing: usize,
    waiting: VecDeque<oneshot::Sender<()>>,
}

/// A partition has something to write until this is dropped.
pub(super) struct Busy<'a>(&'a Turns);

/// A transaction is under way until this is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Default for Turns {
    fn default() -> Self {
        Self { state: Mutex::default(), wait_max: WAIT_MAX }
    }
}

impl Turns {
    pub(super) fn busy(&self) -> Busy<'_> {
        self.state.lock().busy += 1;
        Busy(self)
    }

    pub(super) async fn turn(&self) -> Turn<'_> {
        let called = {
            let mut state = self.state.lock();
            if state.writing < state.writing_max() {
                state.writing += 1;
                return Turn(self);
            }
            let (call, called) = oneshot::channel();
            state.waiting.push_back(call);
            called
        };
        let mut called = called;
        if tokio::time::timeout(self.wait_max, &mut called).await.is_err() {
            // Whoever calls from now on finds the receiver gone; a call that was made meanwhile has counted already.
            called.close();
            if called.try_recv().is_err() {
                self.state.lock().writing += 1;
            }
        }
        Turn(self)
    }
}

impl State {
    fn writing_max(&self) -> usize {
        self.busy.div_ceil(2).max(WRITING_MIN)
    }

    fn call(&mut self) {
        while self.writing < self.writing_max() {
            let Some(next) = self.waiting.pop_front() else { return };
            if next.send(()).is_ok() {
                self.writing += 1;
            }
        }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.state.lock().busy -= 1;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.writing -= 1;
        state.call();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn half_of_the_busy_take_turns_and_nobody_waits_for_ever() {
        let mut turns = Turns { wait_max: Duration::from_hours(1), ..Turns::default() };
        let busy: Vec<_> = (0..12).map(|_| turns.busy()).collect();
        let mut first = Vec::new();
        for _ in 0..6 {
            first.push(turns.turn().await);
        }
        // The seventh is called when one has finished.
        let mut next = Box::pin(turns.turn());
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

        // One that loses patience counts all the same, and is not called later.
        turns.wait_max = Duration::ZERO;
        let _busy: Vec<_> = (0..12).map(|_| turns.busy()).collect();
        let mut all = Vec::new();
        for _ in 0..7 {
            all.push(turns.turn().await);
        }
        assert_eq!(turns.state.lock().writing, 7);
        drop(all);
        let state = turns.state.lock();
        assert_eq!((state.writing, state.waiting.len()), (0, 0));
    }
}
