//! Commits the pending groups of one or several partitions in one transaction of two round trips:
//!
//! 1. `BEGIN`, lock the partitions' rows (which also yields LSNs and fences), read all requested keys.
//! 2. In this process: run the decisions in order, over one overlay per partition.
//! 3. Delete, insert, `COMMIT`.
//!
//! Clients never get a transaction across partitions: each operation is decided on its own partition, and committing
//! several together only saves the server work. Each transaction also records its name for every partition it writes,
//! under the process's own key. A commit whose reply was lost is resolved by waiting for the partition's lock and
//! comparing that name.
//!
//! A transaction over several partitions waits for no lock: it skips partitions that another process has locked. A
//! transaction that waits for a lock therefore holds none, which rules out deadlocks. On Citus every statement must name
//! its partition, so there a transaction always covers one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{OptionFuture, join, join3, join5};
use tokio::sync::oneshot;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use orrery_env::monotonic;

use super::commit::{Lane, LaneTurn};
use super::key::StoredKey;
use super::load::entry_bytes;
use super::pool::Session;
use super::server_error::{ServerError, leaves_doubt};
use super::shared::Shared;
use super::{key, sql};
use crate::contract::{CommitError, ErasedOp, Key, Lsn, PartitionId, PartitionRef, WriteSet};
use crate::packed::PackedKeys;
use crate::transaction::{Running, Step};

/// Timeout of one round trip, including the server's waits for its disk and its standbys.
pub(super) const ROUND_TRIP_MAX: Duration = Duration::from_secs(30);
/// A transaction is written once it reaches this size; the remaining operations wait for the next one.
const TRANSACTION_BYTES_MAX: usize = 4 << 20;
/// With at least this many entries, those not known to exist are inserted by a separate statement without an upsert
/// check. That costs a third less, and a retry if one does exist.
const INSERTED_MIN: usize = 8;
/// How long a partition uses upserts only after a plain insert found an existing entry.
const UPSERT_FOR: Duration = Duration::from_secs(10);

/// A pending operation and the channel to its caller.
pub(super) struct Waiting {
    pub(super) op: Box<dyn ErasedOp>,
    pub(super) reply: oneshot::Sender<Result<Lsn, CommitError>>,
}

/// The result of one attempt, for one partition.
pub(super) enum Attempt {
    /// The result of each operation that was decided, in order.
    Done(Vec<Result<Lsn, CommitError>>),
    Fenced,
    /// Nothing was attempted: the partition needs a transaction of its own.
    Separate,
    Retry(ServerError),
    /// The reply to COMMIT was lost.
    InDoubt {
        group: u64,
        results: Vec<Result<Lsn, CommitError>>,
        reason: String,
    },
}

/// One partition's share of a transaction.
pub(super) struct Member {
    lane: Arc<Lane>,
    pub(super) group: Vec<Waiting>,
    overlay: Overlay,
    /// The partition's LSN before this transaction; `None` = its row was not locked.
    first: Option<Lsn>,
    /// Its LSN after the operations decided so far.
    lsn: Lsn,
    results: Vec<Result<Lsn, CommitError>>,
    /// Growth in bytes that this transaction adds to the partition's row.
    counting: i64,
}

/// A partition with its group's writes applied.
#[derive(Default)]
struct Overlay {
    /// Values read from the server.
    stored: HashMap<Key, Option<Bytes>>,
    /// The group's writes, each with the index of the operation that made it.
    written: HashMap<Key, (usize, Option<Bytes>)>,
    /// The same for keys that no operation reads.
    unread: Vec<(usize, PackedKeys, Option<Bytes>)>,
    bytes: usize,
}

/// The final value of an entry; `None` deletes it.
struct Change<'a> {
    key: &'a [u8],
    operation: usize,
    value: Option<&'a Bytes>,
}

struct Transaction<'a> {
    shared: &'a Shared,
    session: Session,
    /// Whether statements must name their partition, as on Citus.
    names_partition: bool,
}

/// Rows to write, as parallel arrays.
#[derive(Default)]
struct Rows<'a> {
    parts: Vec<i32>,
    keys: Vec<StoredKey<'a>>,
    values: Vec<&'a [u8]>,
}

/// Attempts to commit the members' groups in one transaction; returns the result of each. The turn ends early, once
/// only the disk is left to wait for.
pub(super) async fn attempt(
    shared: &Shared,
    members: &mut [Member],
    turn: Option<LaneTurn<'_>>,
) -> Vec<Attempt> {
    let outcome = match members {
        [] => return Vec::new(),
        // One partition: its owner on Citus. Several occur only without Citus, where all partitions are on the
        // main node.
        [one] => shared.writing_session(one.id()).await,
        _ => shared.cluster.main().writing_session().await,
    };
    let outcome = match outcome {
        Ok(session) => {
            let transaction = Transaction { shared, session, names_partition: shared.cluster.is_citus() };
            transaction.run(members, turn).await
        }
        Err(fault) => Err((fault, None)),
    };
    let is_alone = members.len() == 1;
    let conclude = |member: &mut Member| member.conclude(shared, is_alone, outcome.as_ref().err());
    members.iter_mut().map(conclude).collect()
}

impl Member {
    pub(super) fn new(lane: Arc<Lane>, group: Vec<Waiting>) -> Self {
        Self {
            lane,
            group,
            overlay: Overlay::default(),
            first: None,
            lsn: 0,
            results: Vec::new(),
            counting: 0,
        }
    }

    fn id(&self) -> PartitionId {
        self.lane.partition.id
    }

    fn has_written(&self) -> bool {
        self.first.is_some_and(|first| self.lsn > first)
    }

    /// The member's result, derived from the transaction's. A failure that carries the transaction's name leaves its
    /// writes in doubt.
    fn conclude(
        &mut self,
        shared: &Shared,
        is_alone: bool,
        failure: Option<&(ServerError, Option<u64>)>,
    ) -> Attempt {
        let results = std::mem::take(&mut self.results);
        // No row was locked: alone, the epoch did not match; among several, another transaction may have held the row.
        let attempt = match failure {
            None if self.first.is_some() => return Attempt::Done(results),
            None if is_alone => Attempt::Fenced,
            None => Attempt::Separate,
            Some((fault, Some(name))) if self.has_written() => {
                shared.forget_route(self.id());
                Attempt::InDoubt { group: *name, results, reason: fault.text().to_owned() }
            }
            Some((fault, _)) => {
                if matches!(fault, ServerError::Lost(_)) {
                    shared.forget_route(self.id());
                }
                Attempt::Retry(fault.clone())
            }
        };
        // The row does not include this growth, or may not. Counting it twice only triggers an early measurement.
        self.lane.uncounted.fetch_add(self.counting, Ordering::AcqRel);
        attempt
    }
}

impl Transaction<'_> {
    async fn run(
        self,
        members: &mut [Member],
        turn: Option<LaneTurn<'_>>,
    ) -> Result<(), (ServerError, Option<u64>)> {
        let not_committed = |fault: ServerError| (fault, None);
        let mut runs: Vec<Vec<Result<Running, CommitError>>> = Vec::with_capacity(members.len());
        // Step 1: ask every operation which keys it needs, so that one read serves the whole group.
        for member in members.iter() {
            runs.push(member.group.iter().map(|waiting| Running::begin(waiting.op.as_ref())).collect());
        }
        let mut wanted: Vec<Vec<Vec<Key>>> = Vec::with_capacity(members.len());
        for runs in &mut runs {
            let take = |run: &mut Result<Running, CommitError>| {
                run.as_mut().map(Running::take_wanted).unwrap_or_default()
            };
            wanted.push(runs.iter_mut().map(take).collect());
        }
        self.begin(members, &wanted).await.map_err(not_committed)?;
        // Step 2: decide in order of arrival. Each decision sees the writes of the operations before it.
        let mut bytes = 0;
        for ((member, runs), wanted) in members.iter_mut().zip(runs).zip(wanted) {
            // The row was not locked, so nothing may be decided: `conclude` reports it as fenced or separate.
            if member.first.is_none() {
                continue;
            }
            for ((at, run), wanted) in runs.into_iter().enumerate().zip(wanted) {
                // Undecided operations get no result; their lane puts them back at the front of its queue.
                if bytes >= TRANSACTION_BYTES_MAX {
                    break;
                }
                let before = member.overlay.bytes;
                let decided = match run {
                    Err(error) => Err(error),
                    Ok(run) => self.decide(member, at, run, wanted).await.map_err(not_committed)?,
                };
                bytes += member.overlay.bytes - before;
                // A rejected operation gets the LSN of the last write, because it consumes none itself.
                member.results.push(decided.map(|writes| {
                    member.lsn += u64::from(writes);
                    member.lsn
                }));
            }
        }
        // Step 3: write, unless every operation was rejected.
        if members.iter().any(Member::has_written) {
            return self.finish(members, turn).await;
        }
        // Nothing to write: rolling back also discards the growth that was added to the rows.
        self.session.run("ROLLBACK").await.map_err(not_committed)?;
        for member in members.iter_mut() {
            let counting = std::mem::take(&mut member.counting);
            member.lane.uncounted.fetch_add(counting, Ordering::AcqRel);
        }
        self.session.release();
        Ok(())
    }

    /// The first round trip: locks the partitions and reads the requested keys.
    async fn begin(&self, members: &mut [Member], wanted: &[Vec<Vec<Key>>]) -> Result<(), ServerError> {
        let mut keys = Vec::new();
        for (member, wanted) in members.iter_mut().zip(wanted) {
            // Taken out of the counter for the time of the transaction; `conclude` gives it back if the
            // transaction does not commit.
            member.counting = member.lane.uncounted.swap(0, Ordering::AcqRel);
            let id = member.id();
            for wanted in wanted.iter().flatten() {
                // A longer key cannot be in the table, so it reads as absent without asking the server.
                if wanted.len() <= self.shared.options.limits.key_bytes_max
                    && !member.overlay.stored.contains_key(wanted)
                {
                    // Remembered as absent; `keep` overwrites it if the server returns a value.
                    member.overlay.stored.insert(wanted.clone(), None);
                    keys.push(StoredKey::new(id, wanted));
                }
            }
        }
        let parts: Vec<i32> = members.iter().map(|member| key::column(member.id())).collect();
        // One LSN is reserved for each operation, since the number of writes is not known before the decisions.
        let counts: Vec<i64> = members.iter().map(|member| member.group.len().cast_signed() as i64).collect();
        let epochs: Vec<i64> =
            members.iter().map(|member| member.lane.partition.epoch.cast_signed()).collect();
        let counting: Vec<i64> = members.iter().map(|member| member.counting).collect();
        let (lock, lock_parameters): (_, [&(dyn ToSql + Sync); 4]) = match members {
            [_] => (sql::LOCK, [&parts[0], &counts[0], &epochs[0], &counting[0]]),
            _ => (sql::LOCK_SEVERAL, [&parts, &counts, &epochs, &counting]),
        };
        let lock = self.session.prepare_cached(lock).await?;
        let (fetch, fetch_parameters) = self.about(&parts[0], sql::FETCH, sql::FETCH_SEVERAL, &keys);
        let fetch = self.session.prepare_cached(fetch).await?;
        let client: &tokio_postgres::Client = &self.session;
        // Polled in this order, the statements are pipelined into one round trip.
        let all = join3(
            client.batch_execute("BEGIN"),
            client.query(&lock, &lock_parameters),
            OptionFuture::from((!keys.is_empty()).then(|| client.query(&fetch, &fetch_parameters))),
        );
        let (begun, locked, fetched) = timed(all).await?;
        begun?;
        let (locked, fetched) = (locked?, fetched.transpose()?.unwrap_or_default());
        // The reserved LSNs end at the row's new value; the first one follows the value before.
        for row in &locked {
            let taken = PartitionRef {
                id: key::from_column(row.get(0)),
                epoch: row.get::<_, i64>(1).cast_unsigned(),
            };
            if let Some(member) = members.iter_mut().find(|member| member.lane.partition == taken) {
                let first = row.get::<_, i64>(2).cast_unsigned() - member.group.len() as u64;
                (member.first, member.lsn) = (Some(first), first);
            }
        }
        keep(members, &fetched);
        Ok(())
    }

    /// Picks the statement for these keys and its parameters; the partition id is included only where required.
    fn about<'p>(
        &self,
        part: &'p i32,
        naming: &'static str,
        several: &'static str,
        keys: &'p (dyn ToSql + Sync),
    ) -> (&'static str, Vec<&'p (dyn ToSql + Sync)>) {
        if self.names_partition { (naming, vec![part, keys]) } else { (several, vec![keys]) }
    }

    /// Runs an operation to its final decision. `Ok(true)` = it writes.
    async fn decide(
        &self,
        member: &mut Member,
        at: usize,
        mut run: Running,
        mut wanted: Vec<Key>,
    ) -> Result<Result<bool, CommitError>, ServerError> {
        loop {
            // Usually reads nothing: `begin` has fetched what the operation named up front.
            self.fetch(member, &wanted).await?;
            for key in wanted {
                let value = member.overlay.get(&key);
                run.supply(key, value);
            }
            let Some(waiting) = member.group.get_mut(at) else { return Ok(Ok(false)) };
            // The LSN that the write would get if it is accepted.
            match run.step(waiting.op.as_mut(), member.lsn + 1, &self.shared.options.limits) {
                Err(error) => return Ok(Err(error)),
                Ok(Step::Wants) => wanted = run.take_wanted(),
                Ok(Step::Final(None)) => return Ok(Ok(false)),
                Ok(Step::Final(Some(writes))) => {
                    member.overlay.add(at, writes);
                    return Ok(Ok(true));
                }
            }
        }
    }

    /// Reads the keys that the group has neither read nor written.
    async fn fetch(&self, member: &mut Member, wanted: &[Key]) -> Result<(), ServerError> {
        let id = member.id();
        let key_bytes_max = self.shared.options.limits.key_bytes_max;
        let unread = wanted.iter().filter(|key| {
            key.len() <= key_bytes_max
                && !member.overlay.stored.contains_key(*key)
                && !member.overlay.written.contains_key(*key)
        });
        let unread: Vec<&Key> = unread.collect();
        if unread.is_empty() {
            return Ok(());
        }
        let keys: Vec<StoredKey<'_>> = unread.iter().map(|key| StoredKey::new(id, key)).collect();
        let part = key::column(id);
        let (sql, parameters) = self.about(&part, sql::FETCH, sql::FETCH_SEVERAL, &keys);
        let rows = timed(self.session.query(sql, &parameters)).await??;
        // Absent keys return no row, so they are recorded first and the rows found overwrite them.
        for key in unread {
            member.overlay.stored.insert(key.clone(), None);
        }
        keep(std::slice::from_mut(member), &rows);
        Ok(())
    }

    /// The second round trip. A failure that carries the transaction's name leaves it in doubt.
    async fn finish(
        self,
        members: &mut [Member],
        turn: Option<LaneTurn<'_>>,
    ) -> Result<(), (ServerError, Option<u64>)> {
        // Unique in this process; the key it is stored under is unique to the process.
        let name = self.shared.next_group();
        let note = name.to_be_bytes();
        let (mut new, mut stored, mut deletes) = (Rows::default(), Rows::default(), Vec::new());
        let (mut corrected, mut numbers) = (Vec::new(), Vec::new());
        let mut grown = Vec::with_capacity(members.len());
        let changes: usize = members.iter().map(|member| member.overlay.changes_max()).sum();
        // On Citus an additional statement costs more than the upsert check.
        let plain_inserts = changes >= INSERTED_MIN && !self.names_partition;
        for member in members.iter() {
            let Some(first) = member.first else { continue };
            let (id, part) = (member.id(), key::column(member.id()));
            grown.push((&member.lane, member.write(plain_inserts, &mut new, &mut stored, &mut deletes)));
            // Written in the same transaction, so it is there exactly if the group was committed.
            if member.has_written() {
                stored.push(part, key::writer(id, self.shared.writer), &note);
            }
            // Rejected operations have not used the LSNs that were reserved for them.
            if member.lsn < first + member.group.len() as u64 {
                corrected.push(part);
                numbers.push(member.lsn.cast_signed());
            }
        }
        // NOTIFY is transactional: listeners hear of it only if the transaction commits.
        let announced = |member: &&Member| member.id() == Shared::ANNOUNCED && member.has_written();
        let announce = members.iter().find(announced).map(|member| {
            format!("NOTIFY {}, '{}:{}'", self.shared.channel, Shared::ANNOUNCED.0, member.lsn)
        });
        // Used only where statements name their partition, and there is one member then.
        let part = members.first().map_or(0, |member| key::column(member.id()));
        let not_committed = |error: tokio_postgres::Error| (ServerError::from(error), None);
        let session = &self.session;
        // The statements are chosen and prepared before the first of them is sent: preparing takes a round
        // trip of its own the first time.
        let (remove, remove_parameters) = self.about(&part, sql::REMOVE, sql::REMOVE_SEVERAL, &deletes);
        let insert_parameters: [&(dyn ToSql + Sync); 3] = [&new.parts, &new.keys, &new.values];
        let number = numbers.first().copied();
        let (store, set, place, corrected, number): (_, _, &(dyn ToSql + Sync), &(dyn ToSql + Sync), _) =
            if self.names_partition {
                (sql::STORE, sql::NUMBER, &part, &part, &number as &(dyn ToSql + Sync))
            } else {
                (sql::STORE_SEVERAL, sql::NUMBER_SEVERAL, &stored.parts, &corrected, &numbers)
            };
        let store_parameters = [place, &stored.keys, &stored.values];
        let set_parameters = [corrected, number];
        let remove = session.prepare_cached(remove).await.map_err(not_committed)?;
        let store = session.prepare_cached(store).await.map_err(not_committed)?;
        let insert = session.prepare_cached(sql::INSERT_SEVERAL).await.map_err(not_committed)?;
        let set = session.prepare_cached(set).await.map_err(not_committed)?;
        let client: &tokio_postgres::Client = session;
        // Read before COMMIT is sent; a different count afterwards means that a warning came in between.
        let warnings = session.warnings();
        let writing = Box::pin(async {
            let written = join5(
                OptionFuture::from(
                    (!new.keys.is_empty()).then(|| client.execute(&insert, &insert_parameters)),
                ),
                OptionFuture::from(
                    (!deletes.is_empty()).then(|| client.execute(&remove, &remove_parameters)),
                ),
                // Never empty: every member that writes stores the transaction's name.
                client.execute(&store, &store_parameters),
                OptionFuture::from((!numbers.is_empty()).then(|| client.execute(&set, &set_parameters))),
                OptionFuture::from(announce.as_ref().map(|text| client.batch_execute(text))),
            )
            .await;
            // Only COMMIT is left, which waits for the disk: let the next transaction start.
            drop(turn);
            written
        });
        // Polled in this order, so COMMIT follows the writes in the same round trip.
        let all = join(writing, client.batch_execute("COMMIT"));
        let ((inserted, removed, stored, set, announced), committed) = match timed(all).await {
            Ok(all) => all,
            // No reply in time: COMMIT may or may not have arrived.
            Err(fault) => return Err((fault, Some(name))),
        };
        // After a failed statement COMMIT "succeeds" as a rollback, so every result must be checked. An error that the
        // server reported for an earlier statement proves that nothing was committed; a lost connection proves nothing.
        if let Some(Err(error)) = &inserted
            && error.code() == Some(&SqlState::UNIQUE_VIOLATION)
        {
            // With several members, the separate retries find out which one it was.
            if let [member] = members {
                *member.lane.upsert_until.lock() = Some(monotonic::now() + UPSERT_FOR);
            }
            // The server reported it, so the transaction was rolled back.
            return Err((ServerError::Conflict("an entry existed already".to_owned()), None));
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
        // The warning may concern this transaction: committed here, but perhaps not on the synchronous standby.
        if session.warnings() != warnings {
            return Err((ServerError::Lost("the server committed with a warning".to_owned()), Some(name)));
        }
        // Added only now: a transaction that was rolled back has not grown anything. The
        // next commit writes it to the row.
        for (lane, grown) in grown {
            lane.uncounted.fetch_add(grown, Ordering::AcqRel);
        }
        self.session.release();
        Ok(())
    }
}

impl Member {
    /// Distributes the group's changes over the statements; returns by how many bytes the partition grows.
    fn write<'m>(
        &'m self,
        plain_inserts: bool,
        new: &mut Rows<'m>,
        stored: &mut Rows<'m>,
        deletes: &mut Vec<StoredKey<'m>>,
    ) -> i64 {
        let (id, part) = (self.id(), key::column(self.id()));
        let plain_inserts = plain_inserts && !self.must_upsert();
        let mut grown = 0;
        for Change { key, value, .. } in self.overlay.changes() {
            let place = StoredKey::new(id, key);
            let before = self.overlay.stored.get(key);
            grown += growth(place.len(), before, value);
            let exists = before.is_some_and(Option::is_some);
            match value {
                None => deletes.push(place),
                Some(value) if plain_inserts && !exists => new.push(part, place, value),
                Some(value) => stored.push(part, place, value),
            }
        }
        grown
    }

    /// Whether a plain insert failed recently, so that upserts are used.
    fn must_upsert(&self) -> bool {
        self.lane.upsert_until.lock().is_some_and(|until| monotonic::now() < until)
    }
}

impl<'a> Rows<'a> {
    fn push(&mut self, part: i32, key: StoredKey<'a>, value: &'a [u8]) {
        self.parts.push(part);
        self.keys.push(key);
        self.values.push(value);
    }
}

impl Overlay {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        match self.written.get(key) {
            // The group's own write hides the stored value, also if it is a deletion.
            Some((_, value)) => value.clone(),
            None => self.stored.get(key).cloned().flatten(),
        }
    }

    /// Adds the writes of one operation of the group.
    fn add(&mut self, operation: usize, writes: WriteSet) {
        self.bytes += writes.bytes();
        let deletes = writes.deletes.into_iter().map(|key| (key, (operation, None)));
        let puts = writes.puts.into_iter().map(|(key, value)| (key, (operation, Some(value))));
        self.written.extend(deletes.chain(puts));
        self.unread.extend(writes.unread.into_iter().map(|(keys, value)| (operation, keys, value)));
    }

    /// An upper bound of the number of changed entries.
    fn changes_max(&self) -> usize {
        self.written.len() + self.unread.iter().map(|(_, keys, _)| keys.len()).sum::<usize>()
    }

    /// The last change of each entry the group has written, in key order, so that neighbours in the index are touched one
    /// after the other.
    fn changes(&self) -> Vec<Change<'_>> {
        let mut changes = Vec::with_capacity(self.changes_max());
        changes.extend(self.written.iter().map(|(key, (operation, value))| Change {
            key,
            operation: *operation,
            value: value.as_ref(),
        }));
        // Keys that no operation reads come as packed sets; only here is each of them looked at.
        for (operation, keys, value) in &self.unread {
            let change = |key| Change { key, operation: *operation, value: value.as_ref() };
            changes.extend(keys.iter().map(change));
        }
        changes.sort_unstable_by(|one, other| (one.key, other.operation).cmp(&(other.key, one.operation)));
        // The sort puts the last operation first, so deduplication keeps the last write.
        changes.dedup_by(|later, kept| later.key == kept.key);
        changes
    }
}

/// Stores the rows with the members that requested them. A partition may occur twice: also at the epoch before it was
/// retired.
fn keep(members: &mut [Member], rows: &[Row]) {
    for row in rows {
        let stored: &[u8] = row.get(0);
        let id = key::partition(stored);
        let value = Bytes::copy_from_slice(row.get(1));
        for member in members.iter_mut().filter(|member| Some(member.id()) == id) {
            member.overlay.stored.insert(key::own(stored), Some(value.clone()));
        }
    }
}

/// By how many bytes a change makes its partition grow. For an entry that was not read (`None`), a write is assumed to
/// add it, and a delete to remove one without a value, like an index entry.
fn growth(key_bytes: usize, before: Option<&Option<Bytes>>, after: Option<&Bytes>) -> i64 {
    let size = |value: &Bytes| entry_bytes(key_bytes, value.len());
    let before = match before {
        Some(before) => before.as_ref().map_or(0, size),
        None if after.is_some() => 0,
        None => entry_bytes(key_bytes, 0),
    };
    after.map_or(0, size).cast_signed() as i64 - before.cast_signed() as i64
}

/// A server that does not reply counts as a lost connection: a COMMIT cannot be cancelled.
async fn timed<T>(work: impl Future<Output = T>) -> Result<T, ServerError> {
    tokio::time::timeout(ROUND_TRIP_MAX, work)
        .await
        .map_err(|_| ServerError::Lost("the server did not reply in time".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::KeyPacker;

    #[test]
    fn growth_accounts_for_replaced_entries() {
        let (short, long) = (Bytes::from_static(b"1234"), Bytes::from_static(b"12345678"));
        let (none, some) = (None, Some(short.clone()));
        assert_eq!(growth(10, Some(&none), Some(&long)), 88);
        assert_eq!(growth(10, Some(&some), Some(&long)), 4);
        assert_eq!(growth(10, Some(&some), None), -84);
        assert_eq!(growth(10, Some(&none), None), 0);
        assert_eq!(growth(10, None, Some(&short)), 84);
        assert_eq!(growth(10, None, None), -80);
    }

    #[test]
    fn the_last_write_to_an_entry_wins_read_or_unread() {
        let value = |text: &'static str| Bytes::from_static(text.as_bytes());
        let packed = |keys: &[&str]| {
            let mut packer = KeyPacker::default();
            for key in keys {
                packer.bytes().extend_from_slice(key.as_bytes());
                packer.end_key();
            }
            packer.finish()
        };
        let mut overlay = Overlay::default();
        let first = WriteSet {
            puts: vec![(b"item".to_vec(), value("1")), (b"mixed".to_vec(), value("1"))],
            unread: vec![(packed(&["gone", "kept"]), Some(value("a")))],
            ..WriteSet::default()
        };
        let second = WriteSet {
            puts: vec![(b"item".to_vec(), value("2"))],
            unread: vec![(packed(&["gone"]), None), (packed(&["also", "mixed"]), Some(value("b")))],
            ..WriteSet::default()
        };
        let third = WriteSet { deletes: vec![b"also".to_vec()], ..WriteSet::default() };
        for (operation, writes) in [first, second, third].into_iter().enumerate() {
            overlay.add(operation, writes);
        }
        assert_eq!(overlay.get(b"item"), Some(value("2")));
        let (a, b, two) = (value("a"), value("b"), value("2"));
        let changes: Vec<_> = overlay.changes().iter().map(|change| (change.key, change.value)).collect();
        let expected: [(&[u8], _); 5] = [
            (b"also", None),
            (b"gone", None),
            (b"item", Some(&two)),
            (b"kept", Some(&a)),
            (b"mixed", Some(&b)),
        ];
        assert_eq!(changes, expected);
    }
}
