//! Commits: whatever waits for a partition in this process shares one transaction of two round trips.
//!
//! 1. `BEGIN`, take the partition's row (its lock, numbers and fence), read all keys the group asked for.
//! 2. Here: the decisions, in order, over one overlay.
//! 3. Delete, store, `COMMIT`.
//!
//! A partition has one lane, and a lane has one transaction under way, so a process has at most one commit in
//! doubt per partition. Each transaction also writes its own number under the process's own key; a
//! commit whose answer was lost is resolved by waiting for the partition's lock and comparing that number.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{OptionFuture, join, join3, join5};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio_postgres::error::SqlState;

use super::fault::{Fault, leaves_doubt};
use super::load::entry_bytes;
use super::pool::Session;
use super::shared::Shared;
use super::turns::Turn;
use super::{key, sql};
use crate::contract::{CommitError, ErasedOp, Key, Lsn, PartitionRef};
use crate::transaction::{Running, Step};

/// Operations that may wait for one partition.
const WAITING_MAX: usize = 4096;
/// A group that has grown to this is written; the rest of it becomes the next group.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// How long the server may take for one round trip, the wait for the disk and for standbys included.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(30);

/// From so many entries on, those that are not known to exist are inserted by a statement of their own, which does not
/// look for each of them first. That costs a third less, and a repetition when one does exist.
const INSERTED_MIN: usize = 8;
/// How long a partition is written without guessing after a guess was wrong.
const CAREFUL_FOR: Duration = Duration::from_secs(10);

type Reply = oneshot::Sender<Result<Lsn, CommitError>>;

struct Waiting {
    op: Box<dyn ErasedOp>,
    reply: Reply,
}

/// The way to one partition.
pub(super) struct Lane {
    partition: PartitionRef,
    queue: Mutex<Queue>,
    gathered: Notify,
    /// Until when entries are looked for before they are inserted.
    careful_until: Mutex<Option<Instant>>,
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

/// What became of one try.
enum Attempt {
    /// Of each operation that was decided, in order.
    Done(Vec<Result<Lsn, CommitError>>),
    Fenced,
    Again(Fault),
    /// The answer to COMMIT was lost.
    Doubt {
        group: u64,
        results: Vec<Result<Lsn, CommitError>>,
        reason: String,
    },
}

enum Fate {
    Committed,
    NotCommitted,
    Unknown(String),
}

/// The group's own view of the partition.
#[derive(Default)]
struct Overlay {
    /// What was read.
    stored: HashMap<Key, Option<Bytes>>,
    /// What the group has written.
    written: HashMap<Key, Option<Bytes>>,
    bytes: usize,
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
            let turn = shared.turns.turn().await;
            let group: Vec<Waiting> = {
                let mut queue = self.queue.lock();
                let take = queue.waiting.len().min(shared.options.group_operations_max);
                if take == 0 {
                    queue.running = false;
                    return;
                }
                queue.waiting.drain(..take).collect()
            };
            let (operations, began) = (group.len(), Instant::now());
            self.run_group(shared, group, Some(turn)).await;
            self.gather(shared, operations, began.elapsed(), &mut patience).await;
        }
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

    async fn run_group(&self, shared: &Shared, mut group: Vec<Waiting>, mut turn: Option<Turn<'_>>) {
        let _busy = shared.busy.read().await;
        let began = Instant::now();
        let mut pause = Duration::from_millis(5);
        loop {
            if let Err(error) = shared.check_open() {
                return refuse(group, &CommitError::Unavailable(error.to_string()));
            }
            let attempt = self.attempt(shared, &mut group).await;
            // Only the first try needs one: those that come after it have waited enough.
            drop(turn.take());
            let (results, doubt) = match attempt {
                Attempt::Done(results) => (results, None),
                Attempt::Fenced => return refuse(group, &CommitError::Fenced),
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

    async fn attempt(&self, shared: &Shared, group: &mut [Waiting]) -> Attempt {
        let session = match shared.session(self.partition.id).await {
            Ok(session) => session,
            Err(fault) => return Attempt::Again(fault),
        };
        let again = |fault: Fault| {
            if matches!(fault, Fault::Lost(_)) {
                shared.forget_route(self.partition.id);
            }
            Attempt::Again(fault)
        };
        let mut transaction = Transaction { lane: self, shared, session, overlay: Overlay::default() };
        let mut runs: Vec<Result<Running, CommitError>> =
            group.iter().map(|waiting| Running::begin(waiting.op.as_ref())).collect();
        let mut wanted: Vec<Vec<Key>> = Vec::with_capacity(runs.len());
        for run in &mut runs {
            wanted.push(run.as_mut().map(Running::take_wanted).unwrap_or_default());
        }
        let first = match transaction.begin(group.len(), wanted.iter().flatten()).await {
            Ok(Some(first)) => first,
            Ok(None) => {
                if transaction.session.run("ROLLBACK").await.is_ok() {
                    transaction.session.release();
                }
                return Attempt::Fenced;
            }
            Err(fault) => return again(fault),
        };
        let mut results = Vec::with_capacity(group.len());
        let mut lsn = first;
        for ((waiting, run), wanted) in group.iter_mut().zip(runs).zip(wanted) {
            if transaction.overlay.bytes >= GROUP_BYTES_MAX {
                break;
            }
            let decided = match run {
                Err(error) => Err(error),
                Ok(mut run) => match transaction.decide(waiting, &mut run, wanted, lsn + 1).await {
                    Ok(decided) => decided,
                    Err(fault) => return again(fault),
                },
            };
            results.push(match decided {
                Ok(true) => {
                    lsn += 1;
                    Ok(lsn)
                }
                Ok(false) => Ok(lsn),
                Err(error) => Err(error),
            });
        }
        if lsn == first {
            return match transaction.session.run("ROLLBACK").await {
                Ok(()) => {
                    transaction.session.release();
                    Attempt::Done(results)
                }
                Err(fault) => again(fault),
            };
        }
        let reserved = first + group.len() as u64;
        match transaction.finish(lsn, reserved).await {
            Ok(()) => Attempt::Done(results),
            Err((fault, None)) => again(fault),
            Err((fault, Some(group))) => {
                shared.forget_route(self.partition.id);
                Attempt::Doubt { group, results, reason: fault.text().to_owned() }
            }
        }
    }

    /// Finds out whether a group was committed. The partition's lock is free only once that is decided.
    async fn resolve(&self, shared: &Shared, group: u64, reason: &str) -> Fate {
        if shared.options.group_operations_max == 1 {
            return Fate::Unknown(reason.to_owned());
        }
        let began = Instant::now();
        loop {
            let fault = match self.look_for(shared, group).await {
                Ok(fate) => return fate,
                Err(fault) => fault,
            };
            if began.elapsed() > shared.options.doubt_patience || shared.check_open().is_err() {
                return Fate::Unknown(format!("{reason}; then {}", fault.text()));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn look_for(&self, shared: &Shared, group: u64) -> Result<Fate, Fault> {
        let id = self.partition.id;
        let session = shared.session(id).await?;
        session.run("BEGIN").await?;
        let state = session.query(sql::SETTLE, &[&key::column(id)]).await?;
        let key = key::writer(id, shared.writer);
        let noted = session.query(sql::FETCH, &[&key::column(id), &vec![key.as_slice()]]).await?;
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

struct Transaction<'a> {
    lane: &'a Lane,
    shared: &'a Shared,
    session: Session,
    overlay: Overlay,
}

impl Transaction<'_> {
    /// The first round trip; answers the partition's number before the group. `None` = fenced.
    async fn begin(
        &mut self,
        operations: usize,
        wanted: impl Iterator<Item = &Key>,
    ) -> Result<Option<Lsn>, Fault> {
        let id = self.lane.partition.id;
        let part = key::column(id);
        let count = operations.cast_signed() as i64;
        let epoch = self.lane.partition.epoch.cast_signed();
        let uncounted = self.lane.uncounted.swap(0, Ordering::AcqRel);
        let (mut own, mut stored) = (Vec::new(), Vec::new());
        for wanted in wanted.filter(|wanted| wanted.len() <= self.shared.options.limits.key_bytes_max) {
            if !self.overlay.stored.contains_key(wanted) {
                self.overlay.stored.insert(wanted.clone(), None);
                stored.push(key::stored(id, wanted));
                own.push(wanted);
            }
        }
        let result = async {
            let lock = self.session.prepare_cached(sql::LOCK).await?;
            let fetch = self.session.prepare_cached(sql::FETCH).await?;
            let keys: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
            let lock_parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                [&part, &count, &epoch, &uncounted];
            let fetch_parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&part, &keys];
            // Polled in this order, they go out together and are answered in one round trip.
            let client: &tokio_postgres::Client = &self.session;
            let all = join3(
                client.batch_execute("BEGIN"),
                client.query(&lock, &lock_parameters),
                OptionFuture::from((!keys.is_empty()).then(|| client.query(&fetch, &fetch_parameters))),
            );
            let (begun, locked, fetched) = timed(all).await?;
            begun?;
            let locked = locked?;
            Ok::<_, Fault>((locked, fetched.transpose()?.unwrap_or_default()))
        }
        .await;
        let (locked, fetched) = result.inspect_err(|_| {
            self.lane.uncounted.fetch_add(uncounted, Ordering::AcqRel);
        })?;
        for row in &fetched {
            self.overlay.stored.insert(key::own(row.get(0)), Some(value(row, 1)));
        }
        let Some(row) = locked.first() else {
            self.lane.uncounted.fetch_add(uncounted, Ordering::AcqRel);
            return Ok(None);
        };
        let last = row.get::<_, i64>(0).cast_unsigned();
        Ok(Some(last - operations as u64))
    }

    /// Runs one operation's decision to its end. `Ok(true)` = it writes.
    async fn decide(
        &mut self,
        waiting: &mut Waiting,
        run: &mut Running,
        mut wanted: Vec<Key>,
        lsn: Lsn,
    ) -> Result<Result<bool, CommitError>, Fault> {
        loop {
            self.fetch(&wanted).await?;
            for key in wanted {
                let value = self.overlay.get(&key);
                run.supply(key, value);
            }
            match run.step(waiting.op.as_mut(), lsn, &self.shared.options.limits) {
                Err(error) => return Ok(Err(error)),
                Ok(Step::Wants) => wanted = run.take_wanted(),
                Ok(Step::Final(None)) => return Ok(Ok(false)),
                Ok(Step::Final(Some(writes))) => {
                    self.overlay.bytes += writes.bytes();
                    self.overlay.written.extend(writes.into_changes());
                    return Ok(Ok(true));
                }
            }
        }
    }

    /// Reads what the group has not met yet.
    async fn fetch(&mut self, wanted: &[Key]) -> Result<(), Fault> {
        let id = self.lane.partition.id;
        let key_bytes_max = self.shared.options.limits.key_bytes_max;
        let unread = wanted.iter().filter(|key| {
            key.len() <= key_bytes_max
                && !self.overlay.stored.contains_key(*key)
                && !self.overlay.written.contains_key(*key)
        });
        let stored: Vec<Vec<u8>> = unread.map(|key| key::stored(id, key)).collect();
        if stored.is_empty() {
            return Ok(());
        }
        let keys: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
        let rows = timed(self.session.query(sql::FETCH, &[&key::column(id), &keys])).await??;
        for key in &stored {
            self.overlay.stored.insert(key::own(key), None);
        }
        for row in &rows {
            self.overlay.stored.insert(key::own(row.get(0)), Some(value(row, 1)));
        }
        Ok(())
    }

    /// On Citus a statement more costs more than looking for the entries does.
    fn may_guess(&self) -> bool {
        let careful = self.lane.careful_until.lock().is_some_and(|until| Instant::now() < until);
        !careful && !self.shared.cluster.is_citus()
    }

    /// The second round trip. A failure with the group's name leaves it in doubt.
    async fn finish(self, lsn: Lsn, reserved: Lsn) -> Result<(), (Fault, Option<u64>)> {
        let id = self.lane.partition.id;
        let part = key::column(id);
        let name = self.shared.next_group();
        let note = name.to_be_bytes();
        let (mut keys, mut values, mut deletes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut new_keys, mut new_values) = (Vec::new(), Vec::new());
        let mut grown = 0;
        // In order, so that neighbours in the index are met one after the other.
        let mut written: Vec<_> = self.overlay.written.iter().collect();
        written.sort_unstable_by_key(|(key, _)| *key);
        let guesses = written.len() >= INSERTED_MIN && self.may_guess();
        for (key, value) in written {
            let stored = key::stored(id, key);
            let before = self.overlay.stored.get(key);
            grown += growth(stored.len(), before, value.as_ref());
            let Some(value) = value else {
                deletes.push(stored);
                continue;
            };
            let exists = before.is_some_and(Option::is_some);
            let (keys, values) =
                if guesses && !exists { (&mut new_keys, &mut new_values) } else { (&mut keys, &mut values) };
            keys.push(stored);
            values.push(value.as_ref());
        }
        keys.push(key::writer(id, self.shared.writer));
        values.push(&note);
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let new_keys: Vec<&[u8]> = new_keys.iter().map(Vec::as_slice).collect();
        let deletes: Vec<&[u8]> = deletes.iter().map(Vec::as_slice).collect();
        let number = lsn.cast_signed();
        let announce =
            (id == Shared::ANNOUNCED).then(|| format!("NOTIFY {}, '{}:{lsn}'", self.shared.channel, id.0));
        let nothing_yet = |fault: Fault| (fault, None);
        let session = &self.session;
        let remove = session.prepare_cached(sql::REMOVE).await.map_err(|error| nothing_yet(error.into()))?;
        let store = session.prepare_cached(sql::STORE).await.map_err(|error| nothing_yet(error.into()))?;
        let insert = session.prepare_cached(sql::INSERT).await.map_err(|error| nothing_yet(error.into()))?;
        let set = session.prepare_cached(sql::NUMBER).await.map_err(|error| nothing_yet(error.into()))?;
        let remove_parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&part, &deletes];
        let store_parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&part, &keys, &values];
        let insert_parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&part, &new_keys, &new_values];
        let set_parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&part, &number];
        let client: &tokio_postgres::Client = session;
        let warnings = session.warnings();
        let all = join5(
            OptionFuture::from((!deletes.is_empty()).then(|| client.execute(&remove, &remove_parameters))),
            client.execute(&store, &store_parameters),
            OptionFuture::from((lsn < reserved).then(|| client.execute(&set, &set_parameters))),
            OptionFuture::from(announce.as_ref().map(|text| client.batch_execute(text))),
            client.batch_execute("COMMIT"),
        );
        let inserting =
            OptionFuture::from((!new_keys.is_empty()).then(|| client.execute(&insert, &insert_parameters)));
        let (inserted, (removed, stored, set, announced, committed)) = match timed(join(inserting, all)).await
        {
            Ok(all) => all,
            Err(fault) => return Err((fault, Some(name))),
        };
        // After a failed statement COMMIT "succeeds" as a roll-back, so each of them counts. The server's own
        // word on an earlier statement says that nothing was committed; a lost connection says nothing.
        if let Some(Err(error)) = &inserted
            && error.code() == Some(&SqlState::UNIQUE_VIOLATION)
        {
            *self.lane.careful_until.lock() = Some(Instant::now() + CAREFUL_FOR);
            return Err(nothing_yet(Fault::Conflict("an entry was there already".to_owned())));
        }
        let earlier = [
            inserted.transpose().err(),
            removed.transpose().err(),
            stored.err(),
            set.transpose().err(),
            announced.transpose().err(),
        ];
        if let Some(error) = earlier.into_iter().flatten().next() {
            let doubt = error.as_db_error().is_none().then_some(name);
            return Err((error.into(), doubt));
        }
        if let Err(error) = committed {
            let doubt = leaves_doubt(&error).then_some(name);
            return Err((error.into(), doubt));
        }
        // Perhaps this one's: committed here, and perhaps not on the standby that must have it.
        if session.warnings() != warnings {
            return Err((Fault::Lost("the server warned when it committed".to_owned()), Some(name)));
        }
        self.lane.uncounted.fetch_add(grown, Ordering::AcqRel);
        self.session.release();
        Ok(())
    }
}

impl Overlay {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        match self.written.get(key) {
            Some(value) => value.clone(),
            None => self.stored.get(key).cloned().flatten(),
        }
    }
}

/// By how much an entry's change makes its partition larger. Of an entry that nobody has read (`None`), one that is
/// stored is taken for new, and one that is deleted for there without a value, as those of an index are.
fn growth(key_bytes: usize, before: Option<&Option<Bytes>>, after: Option<&Bytes>) -> i64 {
    let size = |value: &Bytes| entry_bytes(key_bytes, value.len());
    let before = match before {
        Some(before) => before.as_ref().map_or(0, size),
        None if after.is_some() => 0,
        None => entry_bytes(key_bytes, 0),
    };
    after.map_or(0, size).cast_signed() as i64 - before.cast_signed() as i64
}

fn value(row: &tokio_postgres::Row, column: usize) -> Bytes {
    Bytes::copy_from_slice(row.get(column))
}

fn refuse(group: Vec<Waiting>, error: &CommitError) {
    for waiting in group {
        drop(waiting.reply.send(Err(error.clone())));
    }
}

/// A server that does not answer is as good as a connection lost: there is no cancelling a COMMIT.
async fn timed<T>(work: impl Future<Output = T>) -> Result<T, Fault> {
    tokio::time::timeout(ROUND_TRIP_MAX, work)
        .await
        .map_err(|_| Fault::Lost("the server did not answer in time".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_counts_what_was_there() {
        let (short, long) = (Bytes::from_static(b"1234"), Bytes::from_static(b"12345678"));
        let (none, some) = (None, Some(short.clone()));
        assert_eq!(growth(10, Some(&none), Some(&long)), 88);
        assert_eq!(growth(10, Some(&some), Some(&long)), 4);
        assert_eq!(growth(10, Some(&some), None), -84);
        assert_eq!(growth(10, Some(&none), None), 0);
        assert_eq!(growth(10, None, Some(&short)), 84);
        assert_eq!(growth(10, None, None), -80);
    }
}
