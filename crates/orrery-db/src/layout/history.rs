//! Retained versions of items, for the change feed of all versions and deletes.

use bytes::Bytes;
use orrery_model::partition_key::PartitionKey;
use orrery_storage::{Key, Lsn};

use super::keys;
use super::stored::StoredItem;

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 3 + 8 + 8 + 2;
const EXPIRED: u8 = 1;
/// The item that a delete has ended follows its partition key.
const HAS_IMAGE: u8 = 2;

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
    has_image: bool,
    pub timestamp: i64,
    /// The LSN of the previous version.
    pub previous: Option<Lsn>,
    /// The key of the item.
    pub item_key: Key,
    /// The stored item or, of a delete, its partition key, preceded by its length (u32) if the item follows.
    rest: Bytes,
}

impl Version {
    /// The value for an item that was created or, if it had an earlier version, replaced.
    pub(crate) fn written(item_key: &[u8], item: &StoredItem, previous: Option<Lsn>) -> Bytes {
        let happened = if previous.is_some() { 2 } else { 1 };
        encode(happened, 0, item.timestamp, previous.unwrap_or(0), item_key, &item.encode())
    }

    /// The value for the end of an item.
    pub(crate) fn deleted(
        item_key: &[u8],
        partition_key: &PartitionKey,
        timestamp: i64,
        item: &StoredItem,
        expired: bool,
    ) -> Bytes {
        let flags = HAS_IMAGE | if expired { EXPIRED } else { 0 };
        let key = partition_key.to_json();
        // The key comes first with its length, because the item has no terminator.
        let length = u32::try_from(key.len()).expect("keys have at most 2 KB");
        let rest = [&length.to_be_bytes(), key.as_bytes(), &item.encode()].concat();
        encode(3, flags, timestamp, item.lsn, item_key, &rest)
    }

    /// `None` if the bytes are not a version of a known format.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        // Checks the format and the length of the header, so the indexes below are in bounds.
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
            has_image: bytes[2] & HAS_IMAGE != 0,
            timestamp: i64::from_be_bytes(eight(3)?),
            // LSN 0 is never assigned, so it stands for "none".
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
        let (key, _) = self.key_and_image()?;
        PartitionKey::parse_json(&key).ok()
    }

    /// The item that a delete has ended. Histories of earlier releases lack it.
    pub(crate) fn image(&self) -> Option<StoredItem> {
        StoredItem::decode(&self.key_and_image()?.1?)
    }

    fn key_and_image(&self) -> Option<(Bytes, Option<Bytes>)> {
        if self.happened != Happened::Delete {
            return None;
        }
        if !self.has_image {
            return Some((self.rest.clone(), None));
        }
        let length = usize::try_from(u32::from_be_bytes(*self.rest.first_chunk()?)).ok()?;
        let end = length.checked_add(4).filter(|end| *end <= self.rest.len())?;
        Some((self.rest.slice(4..end), Some(self.rest.slice(end..))))
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
        let ended = StoredItem { lsn: 7, body: Bytes::from_static(b"{}"), ..StoredItem::default() };
        let bytes = Version::deleted(&item_key, &key, 258, &ended, true);
        assert_eq!(bytes[..11], [1, 3, 3, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(bytes[11..21], [0, 0, 0, 0, 0, 0, 0, 7, 0, 6]);
        assert_eq!(&bytes[21..36], b"\x05\x00\xFF\x00\x00a\x00\x00\x00\x05[\"x\"]");
        assert_eq!(bytes[36..], ended.encode());
        let deleted = Version::decode(&bytes).unwrap();
        assert_eq!(deleted.image(), Some(ended));
        assert_eq!(deleted.partition_key(), Some(key.clone()));
        // As earlier releases have written it.
        let bytes = encode(3, EXPIRED, 258, 7, &item_key, key.to_json().as_bytes());
        let deleted = Version::decode(&bytes).unwrap();
        assert_eq!(deleted.image(), None);
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
