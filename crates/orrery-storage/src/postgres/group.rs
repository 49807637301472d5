//! One transaction of two round trips for whatever waits, of one partition or of several:
//!
//! 1. `BEGIN`, take the partitions' rows (their locks, numbers and fences), read all keys that were asked for.
//! 2. Here: the decisions, in order, over an overlay for each partition.
//! 3. Delete, store, `COMMIT`.
//!
//! Nothing here is a transaction across partitions for a client: each operation is decided over its own one,
//! and that several are committed together only saves the server work. Each transaction also writes its own
//! number for every partition under the process's own key; a commit whose answer was lost is resolved by waiting
//! for the partition's lock and comparing that number.
//!
//! A transaction of several partitions waits for no lock: it leaves out the partitions that somebody else has. So
//! whoever waits for a lock holds none, and there are no deadlocks. Citus must be told which partition a
//! statement is about, so there it is always one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{OptionFuture, join, join3, join5};
use tokio::sync::oneshot;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::commit::{Lane, LaneTurn};
use super::fault::{Fault, leaves_doubt};
use super::key::StoredKey;
use super::load::entry_bytes;
use super::pool::Session;
use super::shared::Shared;
use super::{key, sql};
use crate::contract::{CommitError, ErasedOp, Key, Lsn, PartitionId, PartitionRef, WriteSet};
use crate::packed::PackedKeys;
use crate::transaction::{Running, Step};

/// How long the server may take for one round trip, the wait for the disk and for standbys included.
pub(super) const ROUND_TRIP_MAX: Duration = Duration::from_secs(30);
/// A transaction that has grown to this is written; what has no room in it waits for the next one.
const TRANSACTION_BYTES_MAX: usize = 4 << 20;
/// From so many entries on, those that are not known to exist are inserted by a statement of their own, which does not
/// look for each of them first. That costs a third less, and a repetition when one does exist.
const INSERTED_MIN: usize = 8;
/// How long a partition is written without guessing after a guess was wrong.
const CAREFUL_FOR: Duration = Duration::from_secs(10);

/// An operation whose caller waits.
pub(super) struct Waiting {
    pub(super) op: Box<dyn ErasedOp>,
    pub(super) reply: oneshot::Sender<Result<Lsn, CommitError>>,
}

/// What became of one try, for one partition.
pub(super) enum Attempt {
    /// Of each operation that was decided, in order.
    Done(Vec<Result<Lsn, CommitError>>),
    Fenced,
    /// Nothing was tried: it has to be, for this partition alone.
    Alone,
    Again(Fault),
    /// The answer to COMMIT was lost.
    Doubt {
        group: u64,
        results: Vec<Result<Lsn, CommitError>>,
        reason: String,
    },
}

/// One partition's part in a transaction.
pub(super) struct Member {
    lane: Arc<Lane>,
    pub(super) group: Vec<Waiting>,
    overlay: Overlay,
    /// The partition's number before this transaction; `None` = its row was not taken.
    first: Option<Lsn>,
    /// Its number after it.
    lsn: Lsn,
    results: Vec<Result<Lsn, CommitError>>,
    /// Growth that its row is told of in this transaction.
    counting: i64,
}

/// A partition as its group sees it.
#[derive(Default)]
struct Overlay {
    /// What was read.
    stored: HashMap<Key, Option<Bytes>>,
    /// What the group has written, and which of its operations it was.
    written: HashMap<Key, (usize, Option<Bytes>)>,
    /// The same of keys that no operation looks at.
    unread: Vec<(usize, PackedKeys, Option<Bytes>)>,
    bytes: usize,
}

/// What becomes of an entry; `None` deletes it.
struct Change<'a> {
    key: &'a [u8],
    operation: usize,
    value: Option<&'a Bytes>,
}

struct Transaction<'a> {
    shared: &'a Shared,
    session: Session,
    /// Whether statements name the one partition that they are about.
    names_partition: bool,
}

/// Rows to be stored.
#[derive(Default)]
struct Rows<'a> {
    parts: Vec<i32>,
    keys: Vec<StoredKey<'a>>,
    values: Vec<&'a [u8]>,
}

/// Tries to commit the members' groups in one transaction; answers what became of each. The turn ends when only the
/// disk is waited for.
pub(super) async fn attempt(
    shared: &Shared,
    members: &mut [Member],
    turn: Option<LaneTurn<'_>>,
) -> Vec<Attempt> {
    let outcome = match members {
        [] => return Vec::new(),
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

    /// What became of it, by what became of the transaction. A failure with the transaction's name leaves in doubt
    /// what was written.
    fn conclude(
        &mut self,
        shared: &Shared,
        is_alone: bool,
        failure: Option<&(Fault, Option<u64>)>,
    ) -> Attempt {
        let results = std::mem::take(&mut self.results);
        let attempt = match failure {
            None if self.first.is_some() => return Attempt::Done(results),
            None if is_alone => Attempt::Fenced,
            None => Attempt::Alone,
            Some((fault, Some(name))) if self.has_written() => {
                shared.forget_route(self.id());
                Attempt::Doubt { group: *name, results, reason: fault.text().to_owned() }
            }
            Some((fault, _)) => {
                if matches!(fault, Fault::Lost(_)) {
                    shared.forget_route(self.id());
                }
                Attempt::Again(fault.clone())
            }
        };
        // The row does not count it, or perhaps does not.
        self.lane.uncounted.fetch_add(self.counting, Ordering::AcqRel);
        attempt
    }
}

impl Transaction<'_> {
    async fn run(
        self,
        members: &mut [Member],
        turn: Option<LaneTurn<'_>>,
    ) -> Result<(), (Fault, Option<u64>)> {
        let nothing_yet = |fault: Fault| (fault, None);
        let mut runs: Vec<Vec<Result<Running, CommitError>>> = Vec::with_capacity(members.len());
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
        self.begin(members, &wanted).await.map_err(nothing_yet)?;
        let mut bytes = 0;
        for ((member, runs), wanted) in members.iter_mut().zip(runs).zip(wanted) {
            if member.first.is_none() {
                continue;
            }
            for ((at, run), wanted) in runs.into_iter().enumerate().zip(wanted) {
                if bytes >= TRANSACTION_BYTES_MAX {
                    break;
                }
                let before = member.overlay.bytes;
                let decided = match run {
                    Err(error) => Err(error),
                    Ok(run) => self.decide(member, at, run, wanted).await.map_err(nothing_yet)?,
                };
                bytes += member.overlay.bytes - before;
                member.results.push(decided.map(|writes| {
                    member.lsn += u64::from(writes);
                    member.lsn
                }));
            }
        }
        if members.iter().any(Member::has_written) {
            return self.finish(members, turn).await;
        }
        // Nothing is written: what the rows were told of counts as not told.
        self.session.run("ROLLBACK").await.map_err(nothing_yet)?;
        for member in members.iter_mut() {
            let counting = std::mem::take(&mut member.counting);
            member.lane.uncounted.fetch_add(counting, Ordering::AcqRel);
        }
        self.session.release();
        Ok(())
    }

    /// The first round trip: takes the partitions and reads what is wanted.
    async fn begin(&self, members: &mut [Member], wanted: &[Vec<Vec<Key>>]) -> Result<(), Fault> {
        let mut keys = Vec::new();
        for (member, wanted) in members.iter_mut().zip(wanted) {
            member.counting = member.lane.uncounted.swap(0, Ordering::AcqRel);
            let id = member.id();
            for wanted in wanted.iter().flatten() {
                if wanted.len() <= self.shared.options.limits.key_bytes_max
                    && !member.overlay.stored.contains_key(wanted)
                {
                    member.overlay.stored.insert(wanted.clone(), None);
                    keys.push(StoredKey::new(id, wanted));
                }
            }
        }
        let parts: Vec<i32> = members.iter().map(|member| key::column(member.id())).collect();
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
        // Polled in this order, they go out together and are answered in one round trip.
        let all = join3(
            client.batch_execute("BEGIN"),
            client.query(&lock, &lock_parameters),
            OptionFuture::from((!keys.is_empty()).then(|| client.query(&fetch, &fetch_parameters))),
        );
        let (begun, locked, fetched) = timed(all).await?;
        begun?;
        let (locked, fetched) = (locked?, fetched.transpose()?.unwrap_or_default());
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

    /// The statement on these keys, and its parameters: the partition's number only where it has to be named.
    fn about<'p>(
        &self,
        part: &'p i32,
        naming: &'static str,
        several: &'static str,
        keys: &'p (dyn ToSql + Sync),
    ) -> (&'static str, Vec<&'p (dyn ToSql + Sync)>) {
        if self.names_partition { (naming, vec![part, keys]) } else { (several, vec![keys]) }
    }

    /// Runs one operation's decision to its end. `Ok(true)` = it writes.
    async fn decide(
        &self,
        member: &mut Member,
        at: usize,
        mut run: Running,
        mut wanted: Vec<Key>,
    ) -> Result<Result<bool, CommitError>, Fault> {
        loop {
            self.fetch(member, &wanted).await?;
            for key in wanted {
                let value = member.overlay.get(&key);
                run.supply(key, value);
            }
            let Some(waiting) = member.group.get_mut(at) else { return Ok(Ok(false)) };
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

    /// Reads what the group has not met yet.
    async fn fetch(&self, member: &mut Member, wanted: &[Key]) -> Result<(), Fault> {
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
        for key in unread {
            member.overlay.stored.insert(key.clone(), None);
        }
        keep(std::slice::from_mut(member), &rows);
        Ok(())
    }

    /// The second round trip. A failure with the transaction's name leaves it in doubt.
    async fn finish(
        self,
        members: &mut [Member],
        turn: Option<LaneTurn<'_>>,
    ) -> Result<(), (Fault, Option<u64>)> {
        let name = self.shared.next_group();
        let note = name.to_be_bytes();
        let (mut new, mut stored, mut deletes) = (Rows::default(), Rows::default(), Vec::new());
        let (mut corrected, mut numbers) = (Vec::new(), Vec::new());
        let mut grown = Vec::with_capacity(members.len());
        let changes: usize = members.iter().map(|member| member.overlay.changes_max()).sum();
        // On Citus a statement more costs more than looking for the entries does.
        let guesses = changes >= INSERTED_MIN && !self.names_partition;
        for member in members.iter() {
            let Some(first) = member.first else { continue };
            let (id, part) = (member.id(), key::column(member.id()));
            grown.push((&member.lane, member.write(guesses, &mut new, &mut stored, &mut deletes)));
            if member.has_written() {
                stored.push(part, key::writer(id, self.shared.writer), &note);
            }
            if member.lsn < first + member.group.len() as u64 {
                corrected.push(part);
                numbers.push(member.lsn.cast_signed());
            }
        }
        let announced = |member: &&Member| member.id() == Shared::ANNOUNCED && member.has_written();
        let announce = members.iter().find(announced).map(|member| {
            format!("NOTIFY {}, '{}:{}'", self.shared.channel, Shared::ANNOUNCED.0, member.lsn)
        });
        let part = members.first().map_or(0, |member| key::column(member.id()));
        let nothing_yet = |error: tokio_postgres::Error| (Fault::from(error), None);
        let session = &self.session;
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
        let remove = session.prepare_cached(remove).await.map_err(nothing_yet)?;
        let store = session.prepare_cached(store).await.map_err(nothing_yet)?;
        let insert = session.prepare_cached(sql::INSERT_SEVERAL).await.map_err(nothing_yet)?;
        let set = session.prepare_cached(set).await.map_err(nothing_yet)?;
        let client: &tokio_postgres::Client = session;
        let warnings = session.warnings();
        let writing = Box::pin(async {
            let written = join5(
                OptionFuture::from(
                    (!new.keys.is_empty()).then(|| client.execute(&insert, &insert_parameters)),
                ),
                OptionFuture::from(
                    (!deletes.is_empty()).then(|| client.execute(&remove, &remove_parameters)),
                ),
                client.execute(&store, &store_parameters),
                OptionFuture::from((!numbers.is_empty()).then(|| client.execute(&set, &set_parameters))),
                OptionFuture::from(announce.as_ref().map(|text| client.batch_execute(text))),
            )
            .await;
            drop(turn);
            written
        });
        let all = join(writing, client.batch_execute("COMMIT"));
        let ((inserted, removed, stored, set, announced), committed) = match timed(all).await {
            Ok(all) => all,
            Err(fault) => return Err((fault, Some(name))),
        };
        // After a failed statement COMMIT "succeeds" as a roll-back, so each of them counts. The server's own
        // word on an earlier statement says that nothing was committed; a lost connection says nothing.
        if let Some(Err(error)) = &inserted
            && error.code() == Some(&SqlState::UNIQUE_VIOLATION)
        {
            // Of several, each finds out for itself whether it was the one.
            if let [member] = members {
                *member.lane.careful_until.lock() = Some(Instant::now() + CAREFUL_FOR);
            }
            return Err((Fault::Conflict("an entry was there already".to_owned()), None));
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
        for (lane, grown) in grown {
            lane.uncounted.fetch_add(grown, Ordering::AcqRel);
        }
        self.session.release();
        Ok(())
    }
}

impl Member {
    /// Sorts the group's changes by the statements that make them; answers by how much they make the partition larger.
    fn write<'m>(
        &'m self,
        guesses: bool,
        new: &mut Rows<'m>,
        stored: &mut Rows<'m>,
        deletes: &mut Vec<StoredKey<'m>>,
    ) -> i64 {
        let (id, part) = (self.id(), key::column(self.id()));
        let guesses = guesses && !self.is_careful();
        let mut grown = 0;
        for Change { key, value, .. } in self.overlay.changes() {
            let place = StoredKey::new(id, key);
            let before = self.overlay.stored.get(key);
            grown += growth(place.len(), before, value);
            let exists = before.is_some_and(Option::is_some);
            match value {
                None => deletes.push(place),
                Some(value) if guesses && !exists => new.push(part, place, value),
                Some(value) => stored.push(part, place, value),
            }
        }
        grown
    }

    /// The entries are looked for first if one was there that nobody expected.
    fn is_careful(&self) -> bool {
        self.lane.careful_until.lock().is_some_and(|until| Instant::now() < until)
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
            Some((_, value)) => value.clone(),
            None => self.stored.get(key).cloned().flatten(),
        }
    }

    /// Adds what one of the group's operations writes.
    fn add(&mut self, operation: usize, writes: WriteSet) {
        self.bytes += writes.bytes();
        let deletes = writes.deletes.into_iter().map(|key| (key, (operation, None)));
        let puts = writes.puts.into_iter().map(|(key, value)| (key, (operation, Some(value))));
        self.written.extend(deletes.chain(puts));
        self.unread.extend(writes.unread.into_iter().map(|(keys, value)| (operation, keys, value)));
    }

    /// At most so many entries change.
    fn changes_max(&self) -> usize {
        self.written.len() + self.unread.iter().map(|(_, keys, _)| keys.len()).sum::<usize>()
    }

    /// What becomes of each entry that the group has written: the last word on it. In order, so that neighbours in the
    /// index are met one after the other.
    fn changes(&self) -> Vec<Change<'_>> {
        let mut changes = Vec::with_capacity(self.changes_max());
        changes.extend(self.written.iter().map(|(key, (operation, value))| Change {
            key,
            operation: *operation,
            value: value.as_ref(),
        }));
        for (operation, keys, value) in &self.unread {
            let change = |key| Change { key, operation: *operation, value: value.as_ref() };
            changes.extend(keys.iter().map(change));
        }
        changes.sort_unstable_by(|one, other| (one.key, other.operation).cmp(&(other.key, one.operation)));
        changes.dedup_by(|later, kept| later.key == kept.key);
        changes
    }
}

/// Keeps what was read with those who asked for it. A partition may be there twice: as it was before it was retired, too.
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

/// A server that does not answer is as good as a connection lost: there is no cancelling a COMMIT.
async fn timed<T>(work: impl Future<Output = T>) -> Result<T, Fault> {
    tokio::time::timeout(ROUND_TRIP_MAX, work)
        .await
        .map_err(|_| Fault::Lost("the server did not answer in time".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::KeyPacker;

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

    #[test]
    fn the_last_word_on_an_entry_counts_whichever_way_it_was_written() {
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
