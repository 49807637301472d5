//! The replaced version that a write preserves while the container is being repartitioned. The change feed only
//! contains current versions; to find a copy of an older version under another key, that version itself is needed.

use bytes::Bytes;
use orrery_storage::{Key, KeyRange, Lsn};

const TOMBSTONE: u8 = 0x7A;

/// The key of one replaced version: the transaction, and a number within it.
pub(crate) fn key(lsn: Lsn, number: u16) -> Key {
    let mut key = vec![TOMBSTONE];
    key.extend_from_slice(&lsn.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Those of transactions after `from`, up to `to`.
pub(crate) fn between(from: Lsn, to: Lsn) -> KeyRange {
    KeyRange::new(
        [key(from, u16::MAX).as_slice(), &[0]].concat(),
        [key(to, u16::MAX).as_slice(), &[0]].concat(),
    )
}

pub(crate) fn all() -> KeyRange {
    KeyRange::prefix(&[TOMBSTONE])
}

/// The item's key, prefixed with its length, then the version's text.
pub(crate) fn encode(item_key: &[u8], body: &[u8]) -> Bytes {
    let length = u16::try_from(item_key.len()).expect("the store takes no keys beyond 2 KB");
    let mut bytes = Vec::with_capacity(2 + item_key.len() + body.len());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(item_key);
    bytes.extend_from_slice(body);
    bytes.into()
}

pub(crate) fn decode(bytes: &Bytes) -> Option<(Key, Bytes)> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_be_bytes(*length));
    (rest.len() >= length).then(|| (rest[..length].to_vec(), bytes.slice(2 + length..)))
}
