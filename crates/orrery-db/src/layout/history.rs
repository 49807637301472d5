//! Retained versions of items, for the change feed of all versions and deletes.

use bytes::Bytes;
use orrery_model::partition_key::PartitionKey;
use orrery_storage::{Key, Lsn};

use super::keys;
use super::stored::StoredItem;

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 3 + 8 + 8 + 2;
const EXPIRED: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Create,
    Replace,
    Delete,
}

impl Happened {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Delete => "delete",
        }
    }
}

/// One entry of the history.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub happened: Happened,
    /// Deleted because it expired.
    pub expired: bool,
    pub timestamp: i64,
    /// The LSN of the previous version.
    pub previous: Option<Lsn>,
    /// The key of the item.
    pub item_key: Key,
    /// The stored item or, of a delete, its partition key.
    rest: Bytes,
}

impl Version {
    /// The value for an item that was created or, if it had an earlier version, replaced.
    pub(crate) fn written(item_key: &[u8], item: &StoredItem, previous: Option<Lsn>) -> Bytes {
        let happened = if previous.is_some() { 2 } else { 1 };
        encode(happened, 0, item.timestamp, previous.unwrap_or(0), item_key, &item.encode())
    }

    pub(crate) fn deleted(
        item_key: &[u8],
        partition_key: &PartitionKey,
        timestamp: i64,
        previous: Lsn,
        expired: bool,
    ) -> Bytes {
        let flags = if expired { EXPIRED } else { 0 };
        encode(3, flags, timestamp, previous, item_key, partition_key.to_json().as_bytes())
    }

    /// `None` if the bytes are not a version of a known format.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let item_key = item_key_in(bytes)?;
        let eight = |at: usize| <[u8; 8]>::try_from(&bytes[at..at + 8]).ok();
        let previous = u64::from_be_bytes(eight(11)?);
        Some(Self {
            happened: match bytes[1] {
                1 => Happened::Create,
                2 => Happened::Replace,
                3 => Happened::Delete,
                _ => return None,
            },
            expired: bytes[2] & EXPIRED != 0,
            timestamp: i64::from_be_bytes(eight(3)?),
            previous: (previous > 0).then_some(previous),
            rest: bytes.slice(HEADER_BYTES + item_key.len() - 1..),
            item_key,
        })
    }

    /// The item, unless it was deleted.
    pub(crate) fn item(&self) -> Option<StoredItem> {
        if self.happened == Happened::Delete { None } else { StoredItem::decode(&self.rest) }
    }

    /// The partition key of a deleted item.
    pub(crate) fn partition_key(&self) -> Option<PartitionKey> {
        PartitionKey::parse_json(&self.rest).ok().filter(|_| self.happened == Happened::Delete)
    }
}

fn encode(happened: u8, flags: u8, timestamp: i64, previous: Lsn, item_key: &[u8], rest: &[u8]) -> Bytes {
    let place = &item_key[1..];
    let mut bytes = Vec::with_capacity(HEADER_BYTES + place.len() + rest.len());
    bytes.extend_from_slice(&[FORMAT, happened, flags]);
    bytes.extend_from_slice(&timestamp.to_be_bytes());
    bytes.extend_from_slice(&previous.to_be_bytes());
    let length = u16::try_from(place.len()).expect("the store takes no keys beyond 2 KB");
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(place);
    bytes.extend_from_slice(rest);
    bytes.into()
}

/// The key of the item that a version is about.
pub(crate) fn item_key_in(version: &[u8]) -> Option<Key> {
    let header: &[u8; HEADER_BYTES] = version.first_chunk()?;
    if header[0] != FORMAT {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([header[HEADER_BYTES - 2], header[HEADER_BYTES - 1]]));
    Some(keys::item_at(version.get(HEADER_BYTES..HEADER_BYTES + length)?))
}

#[cfg(test)]
mod tests {
    use orrery_model::partition_key::EffectiveKey;

    use super::*;

    #[test]
    fn the_format_is_frozen() {
        let item_key = keys::item(&EffectiveKey::parse("0500").unwrap(), "a");
        let key = PartitionKey::parse_json(br#"["x"]"#).unwrap();
        let bytes = Version::deleted(&item_key, &key, 258, 7, true);
        assert_eq!(bytes[..11], [1, 3, 1, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(bytes[11..21], [0, 0, 0, 0, 0, 0, 0, 7, 0, 6]);
        assert_eq!(&bytes[21..], b"\x05\x00\xFF\x00\x00a[\"x\"]");
        let deleted = Version::decode(&bytes).unwrap();
        assert_eq!((deleted.happened, deleted.expired, deleted.previous), (Happened::Delete, true, Some(7)));
        assert_eq!((deleted.timestamp, &deleted.item_key), (258, &item_key));
        assert_eq!(deleted.partition_key(), Some(key));
        let item = StoredItem { lsn: 9, body: Bytes::from_static(b"{}"), ..StoredItem::default() };
        let written = Version::decode(&Version::written(&item_key, &item, None)).unwrap();
        assert_eq!((written.happened, written.previous), (Happened::Create, None));
        assert_eq!(written.item(), Some(item));
        assert!(Version::decode(&Bytes::from_static(b"\x02")).is_none());
    }
}
