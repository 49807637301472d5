//! What a write leaves behind of the version that it ends, while the container is repartitioned. The change feed
//! tells of items as they are; where a copy of an older version lies under another key, only that version tells.

use bytes::Bytes;
use orrery_storage::{Key, KeyRange, Lsn};

const TOMBSTONE: u8 = 0x7A;

/// The key of one ended version: the transaction, and which of its own.
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

/// The item's key after its length, then the version's text.
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
