//! The counters of one logical partition, stored under a key that every write to it reads and rewrites.
//!
//! Layout: format `02`; items u64; bytes u64; purged-to lsn u64; lsn of the last write u64; then the partition key
//! value as the JSON array clients send it in. Integers are big-endian. Format `01` lacks the last write.

use bytes::Bytes;
use orrery_model::partition_key::PartitionKey;
use orrery_storage::Lsn;

const FORMAT: u8 = 2;
const HEADER_BYTES: usize = 1 + 4 * 8;
const FIRST_FORMAT: u8 = 1;
const FIRST_HEADER_BYTES: usize = 1 + 3 * 8;

/// The counters of a logical partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    /// Items, including expired ones that have not been swept yet.
    pub items: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Items written up to this position are deleted, although some may still be in the store.
    pub purged_to: Lsn,
    /// The last write to the logical partition: a later read has seen everything.
    pub written_at: Lsn,
}

impl Statistics {
    pub(crate) fn encode(self, partition_key: &PartitionKey) -> Bytes {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 32);
        bytes.push(FORMAT);
        for number in [self.items, self.bytes, self.purged_to, self.written_at] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(partition_key.to_json().as_bytes());
        debug_assert_eq!(Self::decode(&bytes), Some(self), "counters must decode to what was encoded");
        bytes.into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..header_bytes(bytes)?)?;
        let number = |at: usize| {
            let eight = header.get(at..at + 8).and_then(|eight| eight.try_into().ok());
            // The first format lacks the last number; 0 means that no write was recorded.
            eight.map_or(0, u64::from_be_bytes)
        };
        Some(Self { items: number(1), bytes: number(9), purged_to: number(17), written_at: number(25) })
    }

    /// The partition key value, as the JSON array clients send it in.
    pub(crate) fn key_text(bytes: &[u8]) -> Option<&str> {
        std::str::from_utf8(bytes.get(header_bytes(bytes)?..)?).ok()
    }
}

fn header_bytes(bytes: &[u8]) -> Option<usize> {
    match *bytes.first()? {
        FORMAT => Some(HEADER_BYTES),
        FIRST_FORMAT => Some(FIRST_HEADER_BYTES),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_frozen() {
        let statistics = Statistics { items: 1, bytes: 258, purged_to: 3, written_at: 4 };
        let bytes = statistics.encode(&PartitionKey::parse_json(br#"["a"]"#).unwrap());
        assert_eq!(bytes[..17], [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(Statistics::decode(&bytes), Some(statistics));
        assert_eq!(Statistics::key_text(&bytes), Some(r#"["a"]"#));
        let first = [&[1], &bytes[1..25], &bytes[33..]].concat();
        assert_eq!(Statistics::decode(&first), Some(Statistics { written_at: 0, ..statistics }));
        assert_eq!(Statistics::key_text(&first), Some(r#"["a"]"#));
        assert_eq!((Statistics::decode(b"\x03"), Statistics::decode(b"")), (None, None));
    }
}
