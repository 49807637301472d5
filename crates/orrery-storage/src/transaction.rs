//! Running one operation: the part of a commit that every engine in this process shares.
//!
//! The engine supplies a function that reads the current value of a key (its overlay of the group's earlier
//! writes first, then the stored data) and gets back the write set, checked against the limits. Whatever
//! goes wrong inside the operation, a panic included, stays with that operation.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use crate::contract::{
    CommitError, Entry, ErasedDecision, ErasedOp, Key, Limits, Lsn, StoreError, View, WriteSet,
};

/// How often an operation may ask for further reads. Operations need one or two rounds; a limit keeps a
/// faulty one from holding up its partition for ever.
const READ_ROUNDS_MAX: usize = 32;

/// Reads the current value of a key, as the next operation of the group must see it.
pub(crate) type ReadCurrent<'a> = dyn FnMut(&[u8]) -> Result<Option<Bytes>, CommitError> + 'a;

/// Runs the decision until it is final. `None` = rejected: nothing to write, no number used.
pub(crate) fn run(
    op: &mut dyn ErasedOp,
    lsn: Lsn,
    limits: &Limits,
    read_current: &mut ReadCurrent<'_>,
) -> Result<Option<WriteSet>, CommitError> {
    let mut running = Running::begin(op)?;
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

/// An operation on its way to a final decision, for engines that fetch what it wants in their own time.
pub(crate) struct Running {
    view: Values,
    wanted: Vec<Key>,
    rounds: usize,
}

/// How far a decision came.
pub(crate) enum Step {
    /// `None` = rejected: nothing to write, no number used.
    Final(Option<WriteSet>),
    /// It wants to look at further keys first.
    Wants,
}

impl Running {
    /// Asks the operation which keys it needs.
    pub(crate) fn begin(op: &dyn ErasedOp) -> Result<Self, CommitError> {
        let mut wanted = Vec::new();
        guarded(|| op.reads(&mut wanted))?;
        Ok(Self { view: Values::default(), wanted, rounds: 0 })
    }

    /// The keys that are still to be supplied.
    pub(crate) fn take_wanted(&mut self) -> Vec<Key> {
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.retain(|key| !self.view.has_read(key));
        wanted
    }

    pub(crate) fn supply(&mut self, key: Key, value: Option<Bytes>) {
        self.view.insert(key, value);
    }

    /// Decides with what was supplied.
    pub(crate) fn step(
        &mut self,
        op: &mut dyn ErasedOp,
        lsn: Lsn,
        limits: &Limits,
    ) -> Result<Step, CommitError> {
        match guarded(|| op.decide(&self.view, lsn))? {
            ErasedDecision::Write(writes) => {
                check_writes(&writes, limits)?;
                Ok(Step::Final(Some(writes)))
            }
            ErasedDecision::Reject => Ok(Step::Final(None)),
            ErasedDecision::NeedReads(more) => {
                self.wanted = more;
                self.rounds += 1;
                if self.rounds < READ_ROUNDS_MAX {
                    return Ok(Step::Wants);
                }
                Err(CommitError::Failed(format!(
                    "it asked for further reads more than {READ_ROUNDS_MAX} times"
                )))
            }
        }
    }
}

/// Checks what [`crate::PartitionStore::bulk_load`] is given. Returns the size of all entries.
pub(crate) fn check_entries(entries: &[Entry], limits: &Limits) -> Result<usize, StoreError> {
    let mut total = 0;
    for entry in entries {
        check_key(&entry.key, limits)
            .and_then(|()| check_value(&entry.value, limits))
            .map_err(StoreError::TooLarge)?;
        total += entry.key.len() + entry.value.len();
    }
    Ok(total)
}

/// The text a panic was raised with, as far as it can be known.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

/// The values an operation named, ordered by key: operations name few, so a sorted list beats a hash map.
#[derive(Default)]
struct Values(Vec<(Key, Option<Bytes>)>);

impl Values {
    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|(named, _)| named.as_slice().cmp(key))
    }

    fn insert(&mut self, key: Key, value: Option<Bytes>) {
        if let Err(at) = self.find(&key) {
            self.0.insert(at, (key, value));
        }
    }
}

impl View for Values {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        let at = self.find(key).ok();
        let at = at.expect("an operation must name a key before it looks at it");
        self.0[at].1.clone()
    }

    fn has_read(&self, key: &[u8]) -> bool {
        self.find(key).is_ok()
    }
}

/// The operation's own code must not take the partition or its neighbours in the group down with it. It is
/// pure, and nothing it could leave half done outlives the call, so unwinding is safe here.
fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, CommitError> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let text = panic_text(payload.as_ref());
        tracing::error!(panic = text, "the decision of an operation panicked");
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
        return Err(CommitError::TooLarge(format!("{bytes} bytes in one commit, the limit is {max}")));
    }
    check_named_once(writes)
}

fn check_key(key: &[u8], limits: &Limits) -> Result<(), String> {
    let (bytes, max) = (key.len(), limits.key_bytes_max);
    if bytes > max { Err(format!("a key of {bytes} bytes, the limit is {max}")) } else { Ok(()) }
}

fn check_value(value: &[u8], limits: &Limits) -> Result<(), String> {
    let (bytes, max) = (value.len(), limits.value_bytes_max);
    if bytes > max { Err(format!("a value of {bytes} bytes, the limit is {max}")) } else { Ok(()) }
}

/// Engines differ in what a key written twice would come to, so it is refused on all of them. Sorting
/// references to some thirty keys costs about a microsecond. Keys that nobody reads are many more, and each set
/// of them holds a key once: whether sets overlap is looked at where tests run.
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
