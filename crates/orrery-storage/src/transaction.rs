//! Runs one operation to its final decision: the part of a commit that all engines share.
//!
//! The engine supplies a function that reads the current value of a key (the group's overlay first, then the
//! stored data) and gets back a write set that was checked against the limits. Whatever goes wrong inside the
//! operation, including a panic, fails that operation alone and not its group.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use crate::contract::{
    CommitError, Entry, ErasedDecision, ErasedOp, Key, Limits, Lsn, StoreError, View, WriteSet,
};

/// How often an operation may request further reads. Real operations need one or two rounds; the limit keeps
/// a buggy one from blocking its partition forever.
const READ_ROUNDS_MAX: usize = 32;

/// Reads a key's current value, as the next operation of the group must see it.
pub(crate) type ReadCurrent<'a> = dyn FnMut(&[u8]) -> Result<Option<Bytes>, CommitError> + 'a;

/// Runs the decision until it is final. `None` = rejected: nothing to write, no LSN consumed.
pub(crate) fn run(
    op: &mut dyn ErasedOp,
    lsn: Lsn,
    limits: &Limits,
    read_current: &mut ReadCurrent<'_>,
) -> Result<Option<WriteSet>, CommitError> {
    let mut running = Running::begin(op)?;
    // Bounded by `READ_ROUNDS_MAX`: `step` fails once the operation has asked too often.
    loop {
        for key in running.take_wanted() {
            let value = read_current(&key)?;
            running.supply(key, value);
        }
        if let Step::Final(writes) = running.step(op, lsn, limits)? {
            return Ok(writes);
        }
    }
}

/// An operation that has not reached its final decision yet, for engines that batch the reads themselves.
pub(crate) struct Running {
    view: Values,
    wanted: Vec<Key>,
    rounds: usize,
}

/// The result of running a decision once.
pub(crate) enum Step {
    /// `None` = rejected: nothing to write, no LSN consumed.
    Final(Option<WriteSet>),
    /// It needs further keys first; see [`Running::take_wanted`].
    Wants,
}

impl Running {
    /// Asks the operation which keys it needs.
    pub(crate) fn begin(op: &dyn ErasedOp) -> Result<Self, CommitError> {
        let mut wanted = Vec::new();
        guarded(|| op.reads(&mut wanted))?;
        Ok(Self { view: Values::default(), wanted, rounds: 0 })
    }

    /// The keys that have not been supplied yet.
    pub(crate) fn take_wanted(&mut self) -> Vec<Key> {
        let mut wanted = std::mem::take(&mut self.wanted);
        // An operation may name a key again in a later round; the value it has seen must not change in between.
        wanted.retain(|key| !self.view.has_read(key));
        wanted
    }

    pub(crate) fn supply(&mut self, key: Key, value: Option<Bytes>) {
        self.view.insert(key, value);
    }

    /// Runs the decision on the values supplied so far.
    pub(crate) fn step(
        &mut self,
        op: &mut dyn ErasedOp,
        lsn: Lsn,
        limits: &Limits,
    ) -> Result<Step, CommitError> {
        match guarded(|| op.decide(&self.view, lsn))? {
            ErasedDecision::Write(writes) => {
                // Checked before the engine sees the writes, so that every engine refuses the same ones.
                check_writes(&writes, limits)?;
                Ok(Step::Final(Some(writes)))
            }
            ErasedDecision::Reject => Ok(Step::Final(None)),
            ErasedDecision::Inconsistent(detail) => Err(CommitError::Inconsistent(detail)),
            ErasedDecision::NeedReads(more) => {
                self.wanted = more;
                self.rounds += 1;
                if self.rounds < READ_ROUNDS_MAX {
                    return Ok(Step::Wants);
                }
                Err(CommitError::Failed(format!(
                    "it requested further reads more than {READ_ROUNDS_MAX} times"
                )))
            }
        }
    }
}

/// Checks the input of [`crate::PartitionStore::bulk_load`]; returns its total size.
pub(crate) fn check_entries(entries: &[Entry], limits: &Limits) -> Result<usize, StoreError> {
    let mut total = 0;
    for entry in entries {
        // Checked before anything is written, so that a load is refused as a whole.
        check_key(&entry.key, limits)
            .and_then(|()| check_value(&entry.value, limits))
            .map_err(StoreError::TooLarge)?;
        total += entry.key.len() + entry.value.len();
    }
    Ok(total)
}

/// The message of a panic, where it has one.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

/// The values an operation named, ordered by key. Operations name few, so a sorted list beats a hash map.
#[derive(Default)]
struct Values(Vec<(Key, Option<Bytes>)>);

impl Values {
    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|(named, _)| named.as_slice().cmp(key))
    }

    fn insert(&mut self, key: Key, value: Option<Bytes>) {
        // The first value stays: decisions of one round must agree with those of the next.
        if let Err(at) = self.find(&key) {
            self.0.insert(at, (key, value));
        }
    }
}

impl View for Values {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        let at = self.find(key).ok();
        let at = at.expect("an operation names a key before it reads it");
        self.0[at].1.clone()
    }

    fn has_read(&self, key: &[u8]) -> bool {
        self.find(key).is_ok()
    }
}

/// A panic in the operation must not take down the partition or the rest of the group. The operation is
/// pure and leaves no partial state behind, so unwinding is safe here.
fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, CommitError> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let text = panic_text(payload.as_ref());
        tracing::error!(panic = text, "an operation panicked in its decision");
        CommitError::Failed(text.to_owned())
    })
}

fn check_writes(writes: &WriteSet, limits: &Limits) -> Result<(), CommitError> {
    for (key, value) in &writes.puts {
        check_key(key, limits).and_then(|()| check_value(value, limits)).map_err(CommitError::TooLarge)?;
    }
    for key in &writes.deletes {
        check_key(key, limits).map_err(CommitError::TooLarge)?;
    }
    for (keys, value) in &writes.unread {
        let value = value.as_deref().unwrap_or_default();
        check_value(value, limits).map_err(CommitError::TooLarge)?;
        keys.iter().try_for_each(|key| check_key(key, limits)).map_err(CommitError::TooLarge)?;
    }
    let bytes = writes.bytes();
    if bytes > limits.commit_bytes_max {
        let max = limits.commit_bytes_max;
        return Err(CommitError::TooLarge(format!("{bytes} bytes in one commit, but the limit is {max}")));
    }
    check_named_once(writes)
}

fn check_key(key: &[u8], limits: &Limits) -> Result<(), String> {
    let (bytes, max) = (key.len(), limits.key_bytes_max);
    if bytes > max { Err(format!("a key of {bytes} bytes, but the limit is {max}")) } else { Ok(()) }
}

fn check_value(value: &[u8], limits: &Limits) -> Result<(), String> {
    let (bytes, max) = (value.len(), limits.value_bytes_max);
    if bytes > max { Err(format!("a value of {bytes} bytes, but the limit is {max}")) } else { Ok(()) }
}

/// Engines would resolve a key written twice differently, so all of them reject it. Sorting references to some
/// thirty keys takes about a microsecond. Unread keys are far more numerous, and each packed set is already free
/// of duplicates, so overlaps between sets are only checked in debug builds.
fn check_named_once(writes: &WriteSet) -> Result<(), CommitError> {
    let mut keys: Vec<&[u8]> = if cfg!(debug_assertions) {
        writes.keys().collect()
    } else {
        let puts = writes.puts.iter().map(|(key, _)| key.as_slice());
        puts.chain(writes.deletes.iter().map(Vec::as_slice)).collect()
    };
    keys.sort_unstable();
    if keys.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(CommitError::Failed("it wrote the same key twice".to_owned()));
    }
    Ok(())
}
