//! The split log: which keys each write touched while its partition was being split.
//!
//! While a partition is being split it carries a mark. A write that sees the mark adds an entry with the keys it
//! touched to its own write set. The split reads these entries in order and copies the current state of each key from
//! the parent to the children, which handles all kinds of writes, including deletions.

use bytes::Bytes;
use orrery_storage::{Key, KeyRange, Lsn};

/// Present while the partition is being split.
pub(crate) const SPLIT_MARK: [u8; 1] = [0x78];
const SPLIT_LOG: u8 = 0x79;

/// Bytes of keys per entry. A write may touch more keys than fit into one value.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// The key of one log entry of the transaction `lsn`.
pub(crate) fn log_key(lsn: Lsn, part: u16) -> Key {
    let mut key = vec![SPLIT_LOG];
    key.extend_from_slice(&lsn.to_be_bytes());
    key.extend_from_slice(&part.to_be_bytes());
    key
}

/// All entries of the log after the one with this key.
pub(crate) fn entries_after(key: &[u8]) -> KeyRange {
    KeyRange::new([key, &[0]].concat(), vec![SPLIT_LOG + 1])
}

/// A lower bound of the entries of transactions after `lsn`.
pub(crate) fn position_after(lsn: Lsn) -> Key {
    log_key(lsn, u16::MAX)
}

/// All entries of the log.
pub(crate) fn all_entries() -> KeyRange {
    KeyRange::prefix(&[SPLIT_LOG])
}

/// Whether the key belongs to the split itself and stays with the parent.
pub(crate) fn is_own(key: &[u8]) -> bool {
    key.first().is_some_and(|first| *first == SPLIT_MARK[0] || *first == SPLIT_LOG)
}

/// The keys, each prefixed with its length, in as many values as needed.
pub(crate) fn encode_keys<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Vec<Bytes> {
    let mut parts = Vec::new();
    let mut bytes = Vec::new();
    for key in keys {
        let length = u16::try_from(key.len()).expect("the store takes no keys beyond 2 KB");
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(key);
        // Split into several entries, because a value of the store is bounded and a commit may touch many keys.
        if bytes.len() >= ENTRY_BYTES_MAX {
            parts.push(Bytes::from(std::mem::take(&mut bytes)));
        }
    }
    if !bytes.is_empty() {
        parts.push(bytes.into());
    }
    debug_assert!(parts.iter().all(|part| !decode_keys(part).is_empty()), "every entry names a key");
    parts
}

/// The keys of an entry.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        let keys = [vec![1, 2, 3], vec![], vec![9; 300]];
        let parts = encode_keys(keys.iter().map(Vec::as_slice));
        assert_eq!(parts.len(), 1);
        assert_eq!(decode_keys(&parts[0]), keys);
        let many = vec![vec![7; 2000]; 3000];
        let parts = encode_keys(many.iter().map(Vec::as_slice));
        assert!(parts.len() > 4 && parts.iter().all(|part| part.len() < ENTRY_BYTES_MAX + 2048));
        assert_eq!(parts.iter().flat_map(|part| decode_keys(part)).collect::<Vec<_>>(), many);
        assert!(entries_after(&position_after(4)).start > log_key(4, 9));
        assert!(entries_after(&position_after(4)).start < log_key(5, 0));
    }
}
