//! Commits: whatever waits in this process shares transactions, which `group.rs` runs.
//!
//! A partition has one lane, and a lane takes part in one transaction at a time, so a process has at most one commit
//! in doubt per partition. A lane that gets its turn to write takes others along that wait for theirs, each
//! with what waits for it; where the common transaction comes to nothing, each tries again for itself. On Citus
//! partitions lie on different nodes, and each lane writes for itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::fault::Fault;
use super::group::{self, Attempt, Member, ROUND_TRIP_MAX, Waiting};
use super::shared::Shared;
use super::turns::{self, Turn};
use super::{key, sql};
use crate::contract::{CommitError, ErasedOp, Lsn, PartitionRef};

/// Operations that may wait for one partition.
const WAITING_MAX: usize = 4096;
/// Operations of all partitions that share a transaction.
const OPERATIONS_TOGETHER_MAX: usize = 256;
/// Partitions that share a transaction.
const PARTITIONS_TOGETHER_MAX: usize = 16;

/// Whose turn it is to write; those who are taken along are told what became of their groups.
pub(super) type Turns = turns::Turns<Arc<Lane>, Tried>;

pub(super) type LaneTurn<'a> = Turn<'a, Arc<Lane>, Tried>;

/// A group and what became of its first try. No group: there was nothing to write.
pub(super) type Tried = Option<(Vec<Waiting>, Attempt)>;

/// The way to one partition.
pub(super) struct Lane {
    pub(super) partition: PartitionRef,
    queue: Mutex<Queue>,
    gathered: Notify,
    /// Until when entries are looked for before they are inserted.
    pub(super) careful_until: Mutex<Option<Instant>>,
    /// By how many bytes the partition has grown that its row does not count yet.
    pub(super) uncounted: AtomicI64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    running: bool,
    /// Whoever works on the queue wants to be told when so many wait.
    wanted: Option<usize>,
}

/// How long a lane lets a group gather, as a part of the time that the last one took.
struct Patience(f64);

enum Fate {
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
            careful_until: Mutex::default(),
            uncounted: AtomicI64::new(0),
        }
    }

    /// Queues an operation and sees to it that somebody works on the queue.
    pub(super) async fn commit(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        op: Box<dyn ErasedOp>,
    ) -> Result<Lsn, CommitError> {
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { op, reply };
        if shared.options.group_operations_max == 1 {
            // For measuring: no lane, every operation for itself.
            let (lane, shared) = (Arc::clone(self), Arc::clone(shared));
            tokio::spawn(async move { lane.run_group(&shared, vec![waiting], None).await });
        } else {
            let mut queue = self.queue.lock();
            if queue.waiting.len() >= WAITING_MAX {
                return Err(CommitError::Busy);
            }
            queue.waiting.push_back(waiting);
            if queue.wanted.is_some_and(|wanted| queue.waiting.len() >= wanted) {
                queue.wanted = None;
                self.gathered.notify_one();
            }
            if !queue.running {
                queue.running = true;
                let (lane, shared) = (Arc::clone(self), Arc::clone(shared));
                tokio::spawn(async move { lane.work(&shared).await });
            }
        }
        answer.await.unwrap_or_else(|_| Err(CommitError::Unknown("the commit was given up".to_owned())))
    }

    /// Commits group after group until nothing waits.
    async fn work(self: Arc<Self>, shared: &Arc<Shared>) {
        let mut patience = Patience::new();
        let _busy = shared.turns.busy();
        loop {
            {
                let mut queue = self.queue.lock();
                if queue.waiting.is_empty() {
                    queue.running = false;
                    return;
                }
            }
            let part = shared.turns.turn(Arc::clone(&self)).await;
            let began = Instant::now();
            let tried = match part {
                turns::Part::Lead(turn) => self.lead(shared, turn).await,
                turns::Part::Follow(outcome) => outcome.await.ok().flatten(),
            };
            let Some((group, attempt)) = tried else { continue };
            let operations = group.len();
            self.run_group(shared, group, Some(attempt)).await;
            self.gather(shared, operations, began.elapsed(), &mut patience).await;
        }
    }

    /// Writes what waits, and with it what waits for others that may come along; tells them what became of it.
    async fn lead(self: &Arc<Self>, shared: &Shared, turn: LaneTurn<'_>) -> Tried {
        let _busy = shared.busy.read().await;
        let own = self.take(shared.options.group_operations_max);
        let mut operations = own.group.len();
        let (mut members, mut told) = (vec![own], Vec::new());
        while !shared.cluster.is_citus()
            && members.len() < PARTITIONS_TOGETHER_MAX
            && operations < OPERATIONS_TOGETHER_MAX
        {
            let Some((lane, tell)) = turn.take_along() else { break };
            let room = OPERATIONS_TOGETHER_MAX - operations;
            let member = lane.take(shared.options.group_operations_max.min(room));
            operations += member.group.len();
            members.push(member);
            told.push(tell);
        }
        let attempts = match shared.check_open() {
            Ok(()) => group::attempt(shared, &mut members, Some(turn)).await,
            // Each finds out for itself.
            Err(_) => members.iter().map(|_| Attempt::Alone).collect(),
        };
        let groups = members.into_iter().map(|member| member.group);
        let mut tried =
            groups.zip(attempts).map(|(group, attempt)| (!group.is_empty()).then_some((group, attempt)));
        let own = tried.next().flatten();
        for (tell, tried) in told.into_iter().zip(tried) {
            // Its lane waits for this, unless the process ends.
            drop(tell.send(tried));
        }
        own
    }

    fn take(self: &Arc<Self>, operations_max: usize) -> Member {
        let mut queue = self.queue.lock();
        let take = queue.waiting.len().min(operations_max);
        Member::new(Arc::clone(self), queue.waiting.drain(..take).collect())
    }

    /// Those who were just answered are likely to come back at once. Without waiting for them there would be two
    /// crowds that take turns, in twice as many transactions.
    async fn gather(&self, shared: &Shared, answered: usize, took: Duration, patience: &mut Patience) {
        let before = {
            let mut queue = self.queue.lock();
            let waiting = queue.waiting.len();
            let expected = (answered + waiting).min(shared.options.group_operations_max);
            if expected < 2 || waiting >= expected {
                return;
            }
            queue.wanted = Some(expected);
            waiting
        };
        let all = tokio::time::timeout(patience.of(took), self.gathered.notified()).await;
        let mut queue = self.queue.lock();
        // A call that comes too late ends the next wait early, which does no harm.
        if all.is_err() {
            queue.wanted = None;
        }
        patience.learn(queue.waiting.len() > before);
    }

    /// Brings a group to its end, after a first try that others may have shared.
    async fn run_group(
        self: &Arc<Self>,
        shared: &Shared,
        mut group: Vec<Waiting>,
        mut tried: Option<Attempt>,
    ) {
        let _busy = shared.busy.read().await;
        let began = Instant::now();
        let mut pause = Duration::from_millis(5);
        loop {
            let attempt = if let Some(attempt) = tried.take() {
                attempt
            } else {
                if let Err(error) = shared.check_open() {
                    return refuse(group, &CommitError::Unavailable(error.to_string()));
                }
                let mut alone = [Member::new(Arc::clone(self), group)];
                let attempt = group::attempt(shared, &mut alone, None).await.pop();
                let [member] = alone;
                group = member.group;
                attempt.unwrap_or(Attempt::Alone)
            };
            let (results, doubt) = match attempt {
                Attempt::Done(results) => (results, None),
                Attempt::Fenced => return refuse(group, &CommitError::Fenced),
                Attempt::Alone => continue,
                Attempt::Again(fault) => {
                    if !fault.may_pass() || began.elapsed() > shared.options.commit_patience {
                        return refuse(group, &CommitError::Unavailable(fault.text().to_owned()));
                    }
                    tracing::debug!(
                        partition = self.partition.id.0,
                        reason = fault.text(),
                        "a commit is tried again"
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(500));
                    continue;
                }
                Attempt::Doubt { group, results, reason } => (results, Some((group, reason))),
            };
            if let Some((name, reason)) = doubt {
                tracing::warn!(partition = self.partition.id.0, reason, "the answer to a commit was lost");
                match self.resolve(shared, name, &reason).await {
                    Fate::Committed => {}
                    Fate::NotCommitted if began.elapsed() > shared.options.commit_patience => {
                        return refuse(group, &CommitError::Unavailable(reason));
                    }
                    Fate::NotCommitted => continue,
                    Fate::Unknown(reason) => {
                        return refuse(group, &CommitError::Unknown(reason));
                    }
                }
            }
            // What the group had no room for goes first next time.
            let rest = group.split_off(results.len());
            let mut queue = self.queue.lock();
            for waiting in rest.into_iter().rev() {
                queue.waiting.push_front(waiting);
            }
            drop(queue);
            if let Some(lsn) = results.iter().filter_map(|result| result.as_ref().ok()).max() {
                shared.advance(self.partition.id, *lsn);
            }
            for (waiting, result) in group.into_iter().zip(results) {
                // A caller that does not wait any more is no fault.
                drop(waiting.reply.send(result));
            }
            return;
        }
    }

    /// Finds out whether a group was committed. The partition's lock is free only once that is decided.
    async fn resolve(&self, shared: &Shared, group: u64, reason: &str) -> Fate {
        if shared.options.group_operations_max == 1 {
            return Fate::Unknown(reason.to_owned());
        }
        let (began, mut pause) = (Instant::now(), Duration::from_millis(50));
        loop {
            let fault = match self.look_for(shared, group).await {
                Ok(fate) => return fate,
                Err(fault) => fault,
            };
            if began.elapsed() > shared.options.doubt_patience || shared.check_open().is_err() {
                return Fate::Unknown(format!("{reason}; then {}", fault.text()));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    async fn look_for(&self, shared: &Shared, group: u64) -> Result<Fate, Fault> {
        let id = self.partition.id;
        let session = shared.writing_session(id).await?;
        session.run("BEGIN").await?;
        let state = session.query(sql::SETTLE, &[&key::column(id)]).await?;
        let key = key::writer(id, shared.writer);
        let noted = session.query(sql::FETCH, &[&key::column(id), &vec![key]]).await?;
        // Not a roll-back: a server that was killed while it waited for its standby has the commit after its restart,
        // and the standby may not. Committing the lock waits for the standby, and with it for all before.
        let patience = ROUND_TRIP_MAX.min(shared.options.doubt_patience);
        tokio::time::timeout(patience, session.run("COMMIT"))
            .await
            .map_err(|_| Fault::Lost("the server waits for its standby".to_owned()))??;
        session.release();
        if state.is_empty() {
            return Ok(Fate::Unknown("the partition was destroyed meanwhile".to_owned()));
        }
        let name = group.to_be_bytes();
        let committed = noted.iter().any(|row| row.get::<_, &[u8]>(1) == name);
        Ok(if committed { Fate::Committed } else { Fate::NotCommitted })
    }
}

impl Patience {
    const LEAST: f64 = 1.0 / 16.0;
    const MOST: f64 = 0.5;
    /// A client should not notice it, however slow the server is.
    const LONGEST: Duration = Duration::from_millis(20);

    fn new() -> Self {
        Self(Self::MOST)
    }

    fn of(&self, took: Duration) -> Duration {
        took.mul_f64(self.0).min(Self::LONGEST)
    }

    /// Clients that do not come back are waited for less.
    fn learn(&mut self, somebody_came: bool) {
        let share = if somebody_came { self.0 * 2.0 } else { self.0 / 2.0 };
        self.0 = share.clamp(Self::LEAST, Self::MOST);
    }
}

fn refuse(group: Vec<Waiting>, error: &CommitError) {
    for waiting in group {
        drop(waiting.reply.send(Err(error.clone())));
    }
}
