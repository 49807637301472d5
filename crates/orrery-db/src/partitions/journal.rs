//! Every write to a partition goes through here, so that a split can follow it.
//!
//! While a partition is being split it carries a mark. A write that sees the mark adds one entry to its own
//! write set: which keys it touched. The split reads these entries in order and brings each key in the
//! children to the state it has in the parent, which catches up with writes of any kind, deletions included.

use bytes::Bytes;
use orrery_model::Result;
use orrery_storage::{CommitError, Committed, Decision, Key, KeyRange, Lsn, Op, View, WriteSet};

use crate::Database;
use crate::catalog::Partition;
use crate::failure::commit_failure;

/// There while the partition is being split.
pub(crate) const SPLIT_MARK: [u8; 1] = [0x78];
const JOURNAL: u8 = 0x79;

/// The key of what the transaction `lsn` touched.
fn journal_key(lsn: Lsn) -> Key {
    let mut key = vec![JOURNAL];
    key.extend_from_slice(&lsn.to_be_bytes());
    key
}

/// All journal entries after this transaction.
pub(crate) fn entries_after(lsn: Lsn) -> KeyRange {
    KeyRange::new(journal_key(lsn.saturating_add(1)), vec![JOURNAL + 1])
}

/// The transaction of a journal entry.
pub(crate) fn lsn_of(key: &[u8]) -> Option<Lsn> {
    key.strip_prefix(&[JOURNAL])?.try_into().ok().map(u64::from_be_bytes)
}

/// Whether the key belongs to the split itself and stays with the parent.
pub(crate) fn is_own(key: &[u8]) -> bool {
    key.first().is_some_and(|first| *first == SPLIT_MARK[0] || *first == JOURNAL)
}

fn encode_keys<'k>(keys: impl Iterator<Item = &'k Key>) -> Bytes {
    let mut bytes = Vec::new();
    for key in keys {
        bytes
            .extend_from_slice(&u16::try_from(key.len()).expect("keys are shorter than 64 KB").to_be_bytes());
        bytes.extend_from_slice(key);
    }
    bytes.into()
}

/// The keys of a journal entry.
pub(crate) fn decode_keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let Some((key, rest)) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length))) else {
            break;
        };
        keys.push(key.to_vec());
        bytes = rest;
    }
    keys
}

/// An operation whose writes a split can follow.
struct Journaled<O>(O);

impl<O: Op> Op for Journaled<O> {
    type Out = O::Out;

    fn id(&self) -> u128 {
        self.0.id()
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        self.0.reads(keys);
        keys.push(SPLIT_MARK.to_vec());
    }

    fn decide(&self, view: &dyn View, lsn: Lsn) -> Decision<O::Out> {
        match self.0.decide(view, lsn) {
            Decision::Write(mut writes, out) => {
                if view.get(&SPLIT_MARK).is_some() {
                    let touched = writes.puts.iter().map(|(key, _)| key).chain(&writes.deletes);
                    let entry = encode_keys(touched);
                    writes.put(journal_key(lsn), entry);
                }
                Decision::Write(writes, out)
            }
            other => other,
        }
    }
}

impl Database {
    /// Commits an operation on a partition of a container.
    pub(crate) async fn commit<O: Op>(
        &self,
        partition: &Partition,
        op: O,
    ) -> std::result::Result<Committed<O::Out>, CommitError> {
        orrery_storage::commit(&*self.store, partition.store, Journaled(op)).await
    }

    /// Sets or takes away the mark of a split.
    pub(crate) async fn mark_split(&self, partition: &Partition, on: bool) -> Result<Lsn> {
        let op = SetMark { operation_id: u128::from(self.env.random_u64()), on };
        let committed =
            orrery_storage::commit(&*self.store, partition.store, op).await.map_err(commit_failure)?;
        Ok(committed.lsn)
    }
}

struct SetMark {
    operation_id: u128,
    on: bool,
}

impl Op for SetMark {
    type Out = ();

    fn id(&self) -> u128 {
        self.operation_id
    }

    fn reads(&self, _keys: &mut Vec<Key>) {}

    fn decide(&self, _view: &dyn View, _lsn: Lsn) -> Decision<()> {
        let mut writes = WriteSet::default();
        match self.on {
            true => writes.put(SPLIT_MARK.to_vec(), Bytes::new()),
            false => writes.delete(SPLIT_MARK.to_vec()),
        }
        Decision::Write(writes, ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_entries_come_back() {
        let keys = [vec![1, 2, 3], vec![], vec![9; 300]];
        assert_eq!(decode_keys(&encode_keys(keys.iter())), keys);
        assert_eq!(lsn_of(&journal_key(77)), Some(77));
    }
}
