//! Every write to a partition goes through here, so that a split can follow it.
//!
//! While a partition is being split it carries a mark. A write that sees the mark adds one entry to its own
//! write set: which keys it touched. The split reads these entries in order and brings each key in the
//! children to the state it has in the parent, which catches up with writes of any kind, deletions included.

use bytes::Bytes;
use orrery_model::Result;
use orrery_storage::{
    CommitError, Committed, Decision, Key, KeyRange, Lsn, Op, PartitionRef, View, WriteSet,
};

use crate::Database;
use crate::catalog::Partition;
use crate::failure::commit_failure;

/// There while the partition is being split.
pub(crate) const SPLIT_MARK: [u8; 1] = [0x78];
const JOURNAL: u8 = 0x79;

/// Bytes of keys in one entry. A write may touch more keys than a value of the store can hold.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// The key of some of what the transaction `lsn` touched.
fn journal_key(lsn: Lsn, part: u16) -> Key {
    let mut key = vec![JOURNAL];
    key.extend_from_slice(&lsn.to_be_bytes());
    key.extend_from_slice(&part.to_be_bytes());
    key
}

/// All journal entries after the one with this key.
pub(crate) fn entries_after(key: &[u8]) -> KeyRange {
    KeyRange::new([key, &[0]].concat(), vec![JOURNAL + 1])
}

/// What comes before every entry of transactions after `lsn`.
pub(crate) fn position_after(lsn: Lsn) -> Key {
    journal_key(lsn, u16::MAX)
}

/// All journal entries.
pub(crate) fn all_entries() -> KeyRange {
    KeyRange::prefix(&[JOURNAL])
}

/// Whether the key belongs to the split itself and stays with the parent.
pub(crate) fn is_own(key: &[u8]) -> bool {
    key.first().is_some_and(|first| *first == SPLIT_MARK[0] || *first == JOURNAL)
}

/// The keys, each after its length, in as many values as they need.
fn encode_keys<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Vec<Bytes> {
    let mut parts = Vec::new();
    let mut bytes = Vec::new();
    for key in keys {
        let length = u16::try_from(key.len()).expect("the store takes no keys beyond 2 KB");
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(key);
        if bytes.len() >= ENTRY_BYTES_MAX {
            parts.push(Bytes::from(std::mem::take(&mut bytes)));
        }
    }
    if !bytes.is_empty() {
        parts.push(bytes.into());
    }
    parts
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
                    let parts = encode_keys(writes.keys());
                    for (part, entry) in (0u16..).zip(parts) {
                        writes.put(journal_key(lsn, part), entry);
                    }
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
    pub(crate) async fn mark_split(&self, partition: PartitionRef, on: bool) -> Result<Lsn> {
        let mut writes = WriteSet::default();
        if on {
            writes.put(SPLIT_MARK.to_vec(), Bytes::new());
        } else {
            writes.delete(SPLIT_MARK.to_vec());
        }
        self.commit_as_it_is(partition, writes).await
    }

    /// Commits a write set that nothing has to be decided for and no split follows.
    pub(crate) async fn commit_as_it_is(&self, partition: PartitionRef, writes: WriteSet) -> Result<Lsn> {
        let op = AsItIs { operation_id: u128::from(self.env.random_u64()), writes };
        let committed = orrery_storage::commit(&*self.store, partition, op).await.map_err(commit_failure)?;
        Ok(committed.lsn)
    }
}

struct AsItIs {
    operation_id: u128,
    writes: WriteSet,
}

impl Op for AsItIs {
    type Out = ();

    fn id(&self) -> u128 {
        self.operation_id
    }

    fn reads(&self, _keys: &mut Vec<Key>) {}

    fn decide(&self, _view: &dyn View, _lsn: Lsn) -> Decision<()> {
        Decision::Write(self.writes.clone(), ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_entries_come_back() {
        let keys = [vec![1, 2, 3], vec![], vec![9; 300]];
        let parts = encode_keys(keys.iter().map(Vec::as_slice));
        assert_eq!(parts.len(), 1);
        assert_eq!(decode_keys(&parts[0]), keys);
        let many = vec![vec![7; 2000]; 3000];
        let parts = encode_keys(many.iter().map(Vec::as_slice));
        assert!(parts.len() > 4 && parts.iter().all(|part| part.len() < ENTRY_BYTES_MAX + 2048));
        assert_eq!(parts.iter().flat_map(|part| decode_keys(part)).collect::<Vec<_>>(), many);
        assert!(entries_after(&position_after(4)).start > journal_key(4, 9));
        assert!(entries_after(&position_after(4)).start < journal_key(5, 0));
    }
}
