//! Group commit: pending operations of this process share transactions, which `group` runs.
//!
//! A partition has one lane, and a lane takes part in one transaction at a time, so a process has at most one commit
//! in doubt per partition. A lane that gets a turn to write enlists waiting lanes together with their groups; if the
//! shared transaction fails, each retries separately. On Citus partitions are on different nodes, so each lane always
//! writes separately.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use orrery_env::{monotonic, task};

use super::group::{self, Attempt, Member, ROUND_TRIP_MAX, Waiting};
use super::server_error::ServerError;
use super::shared::Shared;
use super::turns::{self, Turn};
use super::{key, sql};
use crate::contract::{CommitError, ErasedOp, Lsn, PartitionRef};

/// Operations that may wait for one partition.
const WAITING_MAX: usize = 4096;
/// Most operations in one transaction, over all partitions.
const TRANSACTION_OPERATIONS_MAX: usize = 256;
/// Most partitions in one transaction.
const TRANSACTION_PARTITIONS_MAX: usize = 16;

/// Schedules the lanes; followers receive the first attempt at their group.
pub(super) type LaneTurns = turns::Turns<Arc<Lane>, Tried>;

pub(super) type LaneTurn<'a> = Turn<'a, Arc<Lane>, Tried>;

/// A group and the result of its first attempt; `None` = there was nothing to write.
pub(super) type Tried = Option<(Vec<Waiting>, Attempt)>;

/// The commit queue of one partition.
pub(super) struct Lane {
    pub(super) partition: PartitionRef,
    queue: Mutex<Queue>,
    gathered: Notify,
    /// Until then entries are upserted rather than inserted, because a plain insert found an existing one.
    pub(super) upsert_until: Mutex<Option<Instant>>,
    /// Growth in bytes that the partition's row does not include yet.
    pub(super) uncounted: AtomicI64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    running: bool,
    /// Notify the worker when this many operations are waiting.
    wanted: Option<usize>,
}

/// How long a lane lets a group gather, as a fraction of the last group's duration.
struct GatherDelay(f64);

/// The outcome of a commit whose reply was lost.
enum Outcome {
    Committed,
    NotCommitted,
    Unknown(String),
}

impl Lane {
    pub(super) fn new(partition: PartitionRef) -> Self {
        Self {
            partition,
            queue: Mutex::default(),
            gathered: Notify::new(),
            upsert_until: Mutex::default(),
            uncounted: AtomicI64::new(0),
        }
    }

    /// Queues an operation and makes sure that a task serves the queue.
    pub(super) async fn commit(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        op: Box<dyn ErasedOp>,
    ) -> Result<Lsn, CommitError> {
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { op, reply };
        if shared.options.group_operations_max == 1 {
            // For benchmarks only: no lane, one transaction per operation.
            let (lane, shared) = (Arc::clone(self), Arc::clone(shared));
            task::spawn("commit", async move { lane.run_group(&shared, vec![waiting], None).await });
        } else {
            let mut queue = self.queue.lock();
            // Bounded: beyond this callers get a retryable error, instead of a backlog that grows without end.
            if queue.waiting.len() >= WAITING_MAX {
                return Err(CommitError::Busy);
            }
            queue.waiting.push_back(waiting);
            // The clients that the worker waits for are here: end its wait early.
            if queue.wanted.is_some_and(|wanted| queue.waiting.len() >= wanted) {
                queue.wanted = None;
                self.gathered.notify_one();
            }
            // A worker exists only while there is work, so idle partitions cost no task.
            if !queue.running {
                queue.running = true;
                let (lane, shared) = (Arc::clone(self), Arc::clone(shared));
                task::spawn("lane", async move { lane.work(&shared).await });
            }
        }
        // The sender is dropped only if the worker died, and nobody knows how far it came.
        answer.await.unwrap_or_else(|_| Err(CommitError::Unknown("the commit was abandoned".to_owned())))
    }

    /// Commits group after group until the queue is empty.
    async fn work(self: Arc<Self>, shared: &Arc<Shared>) {
        let mut gather_delay = GatherDelay::new();
        let _busy = shared.turns.busy();
        loop {
            {
                let mut queue = self.queue.lock();
                // Decided under the queue's lock: an operation queued from now on starts a new worker.
                if queue.waiting.is_empty() {
                    queue.running = false;
                    return;
                }
            }
            // Operations keep arriving while the lane waits for its turn, which makes the group larger.
            let role = shared.turns.turn(Arc::clone(&self)).await;
            let began = monotonic::now();
            let tried = match role {
                turns::Role::Lead(turn) => self.lead(shared, turn).await,
                // A leader that died has dropped the group and its reply channels, so those callers got `Unknown`.
                turns::Role::Follow(outcome) => outcome.await.ok().flatten(),
            };
            let Some((group, attempt)) = tried else { continue };
            let operations = group.len();
            self.run_group(shared, group, Some(attempt)).await;
            self.gather(shared, operations, monotonic::elapsed(began), &mut gather_delay).await;
        }
    }

    /// Runs a transaction for this lane and those it can enlist, and reports the outcome to them.
    async fn lead(self: &Arc<Self>, shared: &Shared, turn: LaneTurn<'_>) -> Tried {
        // Held during the transaction, so that `close` waits for it.
        let _busy = shared.busy.read().await;
        let own = self.take(shared.options.group_operations_max);
        let mut operations = own.group.len();
        let (mut members, mut followers) = (vec![own], Vec::new());
        while !shared.cluster.is_citus()
            && members.len() < TRANSACTION_PARTITIONS_MAX
            && operations < TRANSACTION_OPERATIONS_MAX
        {
            let Some((lane, reply)) = turn.enlist() else { break };
            let room = TRANSACTION_OPERATIONS_MAX - operations;
            let member = lane.take(shared.options.group_operations_max.min(room));
            operations += member.group.len();
            members.push(member);
            followers.push(reply);
        }
        let attempts = match shared.check_open() {
            Ok(()) => group::attempt(shared, &mut members, Some(turn)).await,
            // Each lane checks for itself and refuses its own callers.
            Err(_) => members.iter().map(|_| Attempt::Separate).collect(),
        };
        // In the order of `members`: the own group first, then the followers'.
        let groups = members.into_iter().map(|member| member.group);
        let mut tried =
            groups.zip(attempts).map(|(group, attempt)| (!group.is_empty()).then_some((group, attempt)));
        let own = tried.next().flatten();
        for (reply, tried) in followers.into_iter().zip(tried) {
            // The follower is waiting for this, unless the process is exiting.
            drop(reply.send(tried));
        }
        own
    }

    fn take(self: &Arc<Self>, operations_max: usize) -> Member {
        let mut queue = self.queue.lock();
        let take = queue.waiting.len().min(operations_max);
        // The operations stay owned by the member until they are answered, so a failure cannot lose them.
        Member::new(Arc::clone(self), queue.waiting.drain(..take).collect())
    }

    /// Clients that were just answered are likely to send their next write at once. Without waiting for them the clients
    /// would split into two alternating sets, with twice as many transactions.
    async fn gather(&self, shared: &Shared, answered: usize, took: Duration, gather_delay: &mut GatherDelay) {
        let before = {
            let mut queue = self.queue.lock();
            let waiting = queue.waiting.len();
            // As many as were just answered, on top of those that are waiting already.
            let expected = (answered + waiting).min(shared.options.group_operations_max);
            if expected < 2 || waiting >= expected {
                return;
            }
            queue.wanted = Some(expected);
            waiting
        };
        let all = tokio::time::timeout(gather_delay.of(took), self.gathered.notified()).await;
        let mut queue = self.queue.lock();
        // A notification that comes too late ends the next wait early, which is harmless.
        if all.is_err() {
            queue.wanted = None;
        }
        gather_delay.learn(queue.waiting.len() > before);
    }

    /// Retries a group until it is committed or refused, after a first attempt that other lanes may have shared.
    async fn run_group(
        self: &Arc<Self>,
        shared: &Shared,
        mut group: Vec<Waiting>,
        mut tried: Option<Attempt>,
    ) {
        let _busy = shared.busy.read().await;
        let began = monotonic::now();
        let mut pause = Duration::from_millis(5);
        loop {
            let attempt = if let Some(attempt) = tried.take() {
                attempt
            } else {
                if let Err(error) = shared.check_open() {
                    return refuse(group, &CommitError::Unavailable(error.to_string()));
                }
                // A retry runs in a transaction of its own: another partition's fault must not delay it again.
                let mut alone = [Member::new(Arc::clone(self), group)];
                let attempt = group::attempt(shared, &mut alone, None).await.pop();
                let [member] = alone;
                group = member.group;
                attempt.unwrap_or(Attempt::Separate)
            };
            let (results, doubt) = match attempt {
                Attempt::Done(results) => (results, None),
                Attempt::Fenced => return refuse(group, &CommitError::Fenced),
                // Nothing was sent for this partition, so there is no reason to pause.
                Attempt::Separate => continue,
                Attempt::Retry(fault) => {
                    // Nothing was committed, so giving up is safe: `Unavailable` promises that nothing was written.
                    if !fault.is_retryable() || monotonic::elapsed(began) > shared.options.commit_timeout {
                        return refuse(group, &CommitError::Unavailable(fault.text().to_owned()));
                    }
                    tracing::debug!(
                        partition = self.partition.id.0,
                        reason = fault.text(),
                        "retrying a commit"
                    );
                    task::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(500));
                    continue;
                }
                Attempt::InDoubt { group, results, reason } => (results, Some((group, reason))),
            };
            if let Some((name, reason)) = doubt {
                tracing::warn!(
                    partition = self.partition.id.0,
                    reason,
                    "the reply to COMMIT was lost; checking its outcome"
                );
                // Until this is known nothing may be retried, or the group could be applied twice.
                match self.resolve(shared, name, &reason).await {
                    Outcome::Committed => {}
                    Outcome::NotCommitted if monotonic::elapsed(began) > shared.options.commit_timeout => {
                        return refuse(group, &CommitError::Unavailable(reason));
                    }
                    // The lock was free and the name is another one: the transaction has
                    // rolled back and can be repeated.
                    Outcome::NotCommitted => continue,
                    Outcome::Unknown(reason) => {
                        return refuse(group, &CommitError::Unknown(reason));
                    }
                }
            }
            // Operations that did not fit into the transaction go first next time.
            let rest = group.split_off(results.len());
            let mut queue = self.queue.lock();
            for waiting in rest.into_iter().rev() {
                queue.waiting.push_front(waiting);
            }
            drop(queue);
            // Before the callers are answered, so that a caller who then waits for its own LSN finds it.
            if let Some(lsn) = results.iter().filter_map(|result| result.as_ref().ok()).max() {
                shared.advance(self.partition.id, *lsn);
            }
            for (waiting, result) in group.into_iter().zip(results) {
                // The caller may have been cancelled; ignore a closed channel.
                drop(waiting.reply.send(result));
            }
            return;
        }
    }

    /// Determines whether a group was committed. The partition's row lock is free only once that is decided.
    async fn resolve(&self, shared: &Shared, group: u64, reason: &str) -> Outcome {
        if shared.options.group_operations_max == 1 {
            return Outcome::Unknown(reason.to_owned());
        }
        let (began, mut pause) = (monotonic::now(), Duration::from_millis(50));
        loop {
            let fault = match self.look_for(shared, group).await {
                Ok(outcome) => return outcome,
                Err(fault) => fault,
            };
            // Longer than a failover takes. Then the honest answer is `Unknown`.
            if monotonic::elapsed(began) > shared.options.resolve_timeout || shared.check_open().is_err() {
                return Outcome::Unknown(format!("{reason}; then {}", fault.text()));
            }
            task::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    async fn look_for(&self, shared: &Shared, group: u64) -> Result<Outcome, ServerError> {
        let id = self.partition.id;
        let session = shared.writing_session(id).await?;
        session.run("BEGIN").await?;
        // Waits for the row's lock: the transaction in doubt holds it until it has committed or rolled back.
        let state = session.query(sql::SETTLE, &[&key::column(id)]).await?;
        let key = key::writer(id, shared.writer);
        let noted = session.query(sql::FETCH, &[&key::column(id), &vec![key]]).await?;
        // COMMIT rather than ROLLBACK: a server that was killed while it waited for its standby has the commit after its
        // restart, but the standby may not. Committing the row lock waits for the standby, and thereby for all earlier
        // commits.
        let timeout = ROUND_TRIP_MAX.min(shared.options.resolve_timeout);
        tokio::time::timeout(timeout, session.run("COMMIT"))
            .await
            .map_err(|_| ServerError::Lost("the server is waiting for its standby".to_owned()))??;
        session.release();
        if state.is_empty() {
            return Ok(Outcome::Unknown("the partition has been destroyed".to_owned()));
        }
        let name = group.to_be_bytes();
        // A lane has one transaction at a time, so the name found is either this one or an older one.
        let committed = noted.iter().any(|row| row.get::<_, &[u8]>(1) == name);
        Ok(if committed { Outcome::Committed } else { Outcome::NotCommitted })
    }
}

impl GatherDelay {
    const FRACTION_MIN: f64 = 1.0 / 16.0;
    const FRACTION_MAX: f64 = 0.5;
    /// Short enough that clients do not notice it, however slow the server is.
    const DELAY_MAX: Duration = Duration::from_millis(20);

    fn new() -> Self {
        Self(Self::FRACTION_MAX)
    }

    fn of(&self, took: Duration) -> Duration {
        took.mul_f64(self.0).min(Self::DELAY_MAX)
    }

    /// Waits less for clients that do not come back.
    fn learn(&mut self, operations_arrived: bool) {
        // Doubling and halving finds the right order of magnitude within a few groups.
        let share = if operations_arrived { self.0 * 2.0 } else { self.0 / 2.0 };
        self.0 = share.clamp(Self::FRACTION_MIN, Self::FRACTION_MAX);
    }
}

fn refuse(group: Vec<Waiting>, error: &CommitError) {
    for waiting in group {
        drop(waiting.reply.send(Err(error.clone())));
    }
}
