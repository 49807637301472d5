//! A stored item: a fixed header and the body text.
//!
//! Layout: format `01`; flags (bit 0: the item has its own `ttl`); lsn u64; position u16; timestamp i64 (seconds);
//! ordinal u64 (the item's part of its RID); ttl i32; with bit 1 of the flags the version u64 from which its etag
//! derives; then the body, the UTF-8 text of a JSON object without system properties. Integers are big-endian.
//!
//! The body is what the item's value prints as. A point read splices the system properties onto its end and
//! parses nothing. Bit 2 of the flags tells that queries would print the body just so: then a row that is the whole
//! item is made like that too. It is clear only for minus zero, and for items of versions that kept the client's text.

use bytes::Bytes;
use orrery_model::etag::Etag;
use orrery_model::rid::{ContainerRid, ItemRid};
use orrery_storage::Lsn;

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 2 + 8 + 2 + 8 + 8 + 4;
const HAS_TTL: u8 = 1;
const HAS_VERSION: u8 = 2;
const IS_PLAIN: u8 = 4;

/// Top-level property names owned by the server; client-supplied values are ignored.
pub(crate) const SYSTEM_PROPERTIES: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

/// A stored item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredItem {
    /// The transaction that wrote this version.
    pub lsn: Lsn,
    /// The position in that transaction.
    pub position: u16,
    /// `_ts`: seconds since the epoch.
    pub timestamp: i64,
    /// The item's own part of its RID, given at creation.
    pub ordinal: u64,
    /// The item's `ttl` property, if it has one.
    pub ttl: Option<i32>,
    /// The version for the etag, if it does not derive from the position: a script sees the etags of its writes before
    /// they have one.
    pub version: Option<u64>,
    /// Whether the body is canonical text.
    pub is_plain: bool,
    pub body: Bytes,
}

impl StoredItem {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 8 + self.body.len());
        bytes.push(FORMAT);
        let flags =
            [(self.ttl.is_some(), HAS_TTL), (self.version.is_some(), HAS_VERSION), (self.is_plain, IS_PLAIN)];
        bytes.push(flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag));
        bytes.extend_from_slice(&self.lsn.to_be_bytes());
        bytes.extend_from_slice(&self.position.to_be_bytes());
        bytes.extend_from_slice(&self.timestamp.to_be_bytes());
        bytes.extend_from_slice(&self.ordinal.to_be_bytes());
        // Present in any case, so that the header has a fixed length.
        bytes.extend_from_slice(&self.ttl.unwrap_or(0).to_be_bytes());
        // Only items that scripts have written have one, so it is not part of the fixed header.
        if let Some(version) = self.version {
            bytes.extend_from_slice(&version.to_be_bytes());
        }
        bytes.extend_from_slice(&self.body);
        bytes.into()
    }

    /// `None` if the bytes are not an item of a known format: damaged, or written by a newer version.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        if header[0] != FORMAT {
            return None;
        }
        let eight = |at: usize| <[u8; 8]>::try_from(&header[at..at + 8]).expect("the slice has eight bytes");
        let ttl = i32::from_be_bytes(header[28..32].try_into().expect("the slice has four bytes"));
        let (version, body_at) = if header[1] & HAS_VERSION == 0 {
            (None, HEADER_BYTES)
        } else {
            let (version, _) = bytes[HEADER_BYTES..].split_first_chunk()?;
            (Some(u64::from_be_bytes(*version)), HEADER_BYTES + 8)
        };
        Some(Self {
            lsn: u64::from_be_bytes(eight(2)),
            position: u16::from_be_bytes([header[10], header[11]]),
            timestamp: i64::from_be_bytes(eight(12)),
            ordinal: u64::from_be_bytes(eight(20)),
            ttl: (header[1] & HAS_TTL != 0).then_some(ttl),
            version,
            is_plain: header[1] & IS_PLAIN != 0,
            // Shares the buffer that was read; nothing is copied.
            body: bytes.slice(body_at..),
        })
    }

    /// The version tag: unique among all versions of this item.
    pub(crate) fn etag(&self) -> Etag {
        let version = self.version.unwrap_or_else(|| version_number(self.lsn, self.position));
        Etag::new(version, self.timestamp)
    }

    /// When the item expires, given the container's default, if ever. Without a default on the container, the `ttl` of
    /// items has no effect.
    pub(crate) fn expires_at(&self, default_ttl: Option<i64>) -> Option<i64> {
        let default = default_ttl?;
        let ttl = self.ttl.map_or(default, i64::from);
        (ttl >= 0).then(|| self.timestamp.saturating_add(ttl))
    }

    pub(crate) fn is_expired(&self, default_ttl: Option<i64>, now_seconds: i64) -> bool {
        self.expires_at(default_ttl).is_some_and(|second| second <= now_seconds)
    }

    /// The item for clients: the body with the system properties appended.
    pub(crate) fn write_document(&self, container: ContainerRid, out: &mut Vec<u8>) {
        let rid = ItemRid::new(container, self.ordinal);
        // Without its closing brace, which comes back after the system properties.
        let body = self.body.strip_suffix(b"}").unwrap_or(&self.body);
        out.reserve(body.len() + 240);
        out.extend_from_slice(body);
        // An empty object has no member to put a comma after.
        if body != b"{" {
            out.push(b',');
        }
        out.extend_from_slice(br#""_rid":""#);
        rid.write_text(out);
        out.extend_from_slice(br#"","_self":""#);
        rid.write_self_link(out);
        out.extend_from_slice(br#"","_etag":"\""#);
        out.extend_from_slice(&self.etag().to_bytes());
        out.extend_from_slice(br#"\"","_attachments":"attachments/","_ts":"#);
        out.extend_from_slice(self.timestamp.to_string().as_bytes());
        out.push(b'}');
    }
}

/// Positions per transaction in one LSN sequence: the maximum number of writes of a script.
pub(crate) const POSITIONS: u16 = 4096;

/// Orders the writes of a partition: by transaction, then by position. A batch has at most 100 writes; scripts, which
/// may have more, use their own versions.
pub(crate) fn version_number(lsn: Lsn, position: u16) -> u64 {
    // 128 positions per LSN in the number, enough for a batch; scripts do not use it.
    lsn << 7 | u64::from(position & 0x7F)
}

/// A new item's ordinal: ascending with every write of the partition, distinct between partitions.
pub(crate) fn ordinal(lsn: Lsn, position: u16, range_id: u32) -> u64 {
    // 60 bits are free below the RID's type nibble; 13 of them identify the partition in which the item was created.
    version_number(lsn, position) << 13 | u64::from(range_id & 0x1FFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item() -> StoredItem {
        StoredItem {
            lsn: 5,
            position: 1,
            timestamp: 1_700_000_000,
            ordinal: ordinal(5, 1, 0),
            ttl: None,
            version: None,
            is_plain: false,
            body: Bytes::from_static(b"{\"id\":\"a\"}"),
        }
    }

    #[test]
    fn the_format_is_frozen() {
        let bytes = item().encode();
        assert_eq!(bytes[..12], [1, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 1]);
        assert_eq!(StoredItem::decode(&bytes), Some(item()));
        let with_ttl = StoredItem { ttl: Some(-1), ..item() };
        assert_eq!(StoredItem::decode(&with_ttl.encode()), Some(with_ttl));
        let versioned = StoredItem { version: Some(7 << 60), ..item() };
        assert_eq!(StoredItem::decode(&versioned.encode()), Some(versioned));
        let plain = StoredItem { is_plain: true, ttl: Some(7), ..item() };
        assert_eq!(plain.encode()[1], 5);
        assert_eq!(StoredItem::decode(&plain.encode()), Some(plain));
        assert_eq!(StoredItem::decode(&Bytes::from_static(b"\x02short")), None);
    }

    #[test]
    fn lifetimes_need_a_default_on_the_container() {
        let own = |ttl| StoredItem { ttl, timestamp: 100, ..item() };
        assert!(!own(Some(1)).is_expired(None, 1000));
        assert!(own(Some(1)).is_expired(Some(-1), 101));
        assert!(!own(None).is_expired(Some(-1), i64::MAX));
        assert!(own(None).is_expired(Some(5), 105));
        assert!(!own(None).is_expired(Some(5), 104));
        assert!(!own(Some(-1)).is_expired(Some(5), 1000));
    }
}
