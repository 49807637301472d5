//! A bounded pool of slots for long evaluations, shared fairly between containers.
//!
//! There is one slot per CPU. Evaluations that find none free wait in their container's queue, and free slots go to
//! containers round-robin: a container with a hundred slow queries delays one with a single query by one turn, not by a
//! hundred. An evaluation releases its slot between two fetches, and inside one when its time slice is over and others
//! are waiting. It then waits on its own thread, so only a few may do so concurrently.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_env::monotonic;
use orrery_model::rid::ContainerRid;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// How long an evaluation keeps its slot while others wait.
const SLICE: Duration = Duration::from_millis(50);
/// How many evaluations may wait for their next turn while blocking a thread.
const SUSPENDED_MAX: usize = 32;

/// The pool.
pub(crate) struct EvaluationSlots(Arc<Mutex<State>>);

struct State {
    free: usize,
    /// Containers with waiters, next one first.
    turns: VecDeque<ContainerRid>,
    waiting: HashMap<ContainerRid, VecDeque<oneshot::Sender<EvaluationSlot>>>,
    suspended: usize,
}

/// The right to evaluate, released on drop.
pub(crate) struct EvaluationSlot {
    pool: Option<Arc<Mutex<State>>>,
    container: ContainerRid,
    since: Instant,
}

impl EvaluationSlots {
    pub(crate) fn new(slots: usize) -> Self {
        let state = State { free: slots, turns: VecDeque::new(), waiting: HashMap::new(), suspended: 0 };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Waits for a slot.
    pub(crate) async fn acquire(&self, container: ContainerRid) -> EvaluationSlot {
        match take_or_wait(&self.0, container) {
            Ok(slot) => slot,
            // The sender is dropped only with the pool, which the caller holds.
            Err(turn) => turn.await.unwrap_or_else(|_| EvaluationSlot::unpooled(container)),
        }
    }
}

fn take_or_wait(
    pool: &Arc<Mutex<State>>,
    container: ContainerRid,
) -> Result<EvaluationSlot, oneshot::Receiver<EvaluationSlot>> {
    let mut state = pool.lock();
    if state.free > 0 {
        state.free -= 1;
        return Ok(EvaluationSlot { pool: Some(Arc::clone(pool)), container, since: monotonic::now() });
    }
    Err(state.enqueue(container))
}

impl State {
    fn enqueue(&mut self, container: ContainerRid) -> oneshot::Receiver<EvaluationSlot> {
        let (sender, receiver) = oneshot::channel();
        let queue = self.waiting.entry(container).or_default();
        // A container is in the list of turns once, however many of its queries wait.
        if queue.is_empty() {
            self.turns.push_back(container);
        }
        queue.push_back(sender);
        receiver
    }

    /// The next waiter.
    fn next(&mut self) -> Option<(ContainerRid, oneshot::Sender<EvaluationSlot>)> {
        while let Some(container) = self.turns.pop_front() {
            let Some(queue) = self.waiting.get_mut(&container) else { continue };
            let next = loop {
                match queue.pop_front() {
                    // Its query was cancelled while it waited.
                    Some(sender) if sender.is_closed() => {}
                    next => break next,
                }
            };
            if queue.is_empty() {
                self.waiting.remove(&container);
            } else {
                // To the end: the other containers come first.
                self.turns.push_back(container);
            }
            if let Some(sender) = next {
                return Some((container, sender));
            }
        }
        None
    }
}

/// Passes a slot to the next waiter, or marks it free.
fn hand_on(pool: &Arc<Mutex<State>>) {
    loop {
        let (container, sender) = {
            let mut state = pool.lock();
            let Some(next) = state.next() else {
                // Under the same lock as the search, so that no waiter can come in between and be missed.
                state.free += 1;
                return;
            };
            next
        };
        let slot = EvaluationSlot { pool: Some(Arc::clone(pool)), container, since: monotonic::now() };
        match sender.send(slot) {
            Ok(()) => return,
            // The waiter has just gone. The slot must not be released while it is being passed on.
            Err(mut unwanted) => unwanted.pool = None,
        }
    }
}

impl EvaluationSlot {
    fn unpooled(container: ContainerRid) -> Self {
        Self { pool: None, container, since: monotonic::now() }
    }

    /// Yields to other waiters if this one's slice is over. Blocks until the next turn.
    pub(crate) fn give_way(&mut self) {
        if monotonic::elapsed(self.since) < SLICE {
            return;
        }
        // A new slice in any case: without other waiters it need not ask again soon.
        self.since = monotonic::now();
        // In a current-thread runtime blocking would stop every other task.
        let may_block = tokio::runtime::Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread);
        let Some(pool) = self.pool.clone().filter(|_| may_block) else { return };
        let turn = {
            let mut state = pool.lock();
            if state.turns.is_empty() || state.suspended == SUSPENDED_MAX {
                return;
            }
            state.suspended += 1;
            state.enqueue(self.container)
        };
        // Given away below; dropping this slot must not give it away again.
        self.pool = None;
        hand_on(&pool);
        if let Ok(slot) = turn.blocking_recv() {
            *self = slot;
        }
        pool.lock().suspended -= 1;
    }
}

impl Drop for EvaluationSlot {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            hand_on(&pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use orrery_model::rid::DatabaseRid;

    use super::*;

    fn container(number: u32) -> ContainerRid {
        ContainerRid::new(DatabaseRid(1), number)
    }

    /// Polls a future once and returns whether it is ready.
    async fn is_ready<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        futures_util::future::poll_immediate(future).await
    }

    #[tokio::test]
    async fn containers_take_turns() {
        let pool = EvaluationSlots::new(1);
        let first = pool.acquire(container(1)).await;
        let mut busy: Vec<_> = (0..5).map(|_| Box::pin(pool.acquire(container(1)))).collect();
        for waiting in &mut busy {
            assert!(is_ready(waiting).await.is_none());
        }
        let mut other = Box::pin(pool.acquire(container(2)));
        assert!(is_ready(&mut other).await.is_none());
        drop(first);
        // One more of the busy container, then the other one, then the rest.
        let second = is_ready(&mut busy[0]).await.expect("it is next");
        assert!(is_ready(&mut other).await.is_none());
        drop(second);
        let third = is_ready(&mut other).await.expect("its turn has come");
        assert!(is_ready(&mut busy[1]).await.is_none());
        drop(third);
        assert!(is_ready(&mut busy[1]).await.is_some());
        // Cancelled waiters are skipped, and no slot is lost.
        drop(busy);
        let slot = is_ready(&mut Box::pin(pool.acquire(container(3)))).await;
        assert!(slot.is_some());
        assert!(is_ready(&mut Box::pin(pool.acquire(container(3)))).await.is_none());
        drop(slot);
        assert!(is_ready(&mut Box::pin(pool.acquire(container(3)))).await.is_some());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_long_evaluation_gives_way() {
        let pool = Arc::new(EvaluationSlots::new(1));
        let stop = Arc::new(AtomicBool::new(false));
        let long = orrery_env::task::spawn("long", {
            let (pool, stop) = (Arc::clone(&pool), Arc::clone(&stop));
            async move {
                let mut slot = pool.acquire(container(1)).await;
                tokio::task::block_in_place(|| {
                    while !stop.load(Ordering::Relaxed) {
                        slot.give_way();
                    }
                });
            }
        });
        // Everyone gets a turn although the first never ends.
        for number in 2..6 {
            tokio::time::timeout(Duration::from_secs(20), pool.acquire(container(number))).await.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        long.await.unwrap();
        tokio::time::timeout(Duration::from_secs(20), pool.acquire(container(1))).await.unwrap();
    }
}
