//! What lies where in a data directory, and how keys and partition records are written.
//!
//! ```text
//! LOCK                 held by the process that has the store open
//! FORMAT               one line: the name and version of this layout
//! journal/<n>.journal  writes that may not be in a table yet, see `journal`
//! tree/                the tables of the LSM tree, see `tree`
//! ```
//!
//! All partitions share one tree. Every partition owns a *slot*, a number that is never used twice, and its
//! keys begin with it (four bytes, big-endian). Slot 0 is the store's own:
//!
//! * `J` → number of the journal that the entries around it went through (u64)
//! * `N` → the next free slot (u32)
//! * `P`, partition id (u32) → slot (u32), epoch (u64), last LSN (u64)
//! * `D`, slot (u32) → nothing; the partition was destroyed and its entries are being removed
//!
//! All numbers are big-endian.
//!
//! One tree rather than one per partition, by measurement: making a tree took as long as ten flushes of the
//! disk (24 ms where a flush took 2.5 ms), while a partition in a shared tree is one small write that shares
//! its flush with others. Memory was no reason (3 KB per tree). A shared tree also has exactly one memtable
//! and one journal to bound.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::contract::{Key, KeyRange, Lsn, PartitionId};

/// The version of everything described above, of the journal records and of the tables.
pub(super) const FORMAT_VERSION: u32 = 1;

const FORMAT_NAME: &str = "orrery-store";

/// The prefix of a partition's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Slot(pub(super) u32);

impl Slot {
    pub(super) const STORE: Self = Self(0);

    pub(super) fn key(self, key: &[u8]) -> Bytes {
        let mut full = Vec::with_capacity(4 + key.len());
        full.extend_from_slice(&self.0.to_be_bytes());
        full.extend_from_slice(key);
        Bytes::from(full)
    }

    /// The same range, in the key space of the whole tree.
    pub(super) fn range(self, range: &KeyRange) -> (Bytes, Bytes) {
        let end = match &range.end {
            Some(end) => self.key(end),
            None => Self(self.0 + 1).key(&[]),
        };
        (self.key(&range.start), end)
    }

    /// The slot and the partition's own part of a key of the tree.
    pub(super) fn split(full: &[u8]) -> (Self, &[u8]) {
        let (slot, key) = full.split_first_chunk().expect("every key of the tree begins with a slot");
        (Self(u32::from_be_bytes(*slot)), key)
    }

    /// The partition's own part of a key of the tree.
    pub(super) fn strip(full: &[u8]) -> Key {
        full[4..].to_vec()
    }
}

/// The durable state of a partition, beside its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartitionRecord {
    pub(super) slot: Slot,
    pub(super) epoch: u64,
    pub(super) lsn: Lsn,
}

impl PartitionRecord {
    pub(super) fn encode(self) -> Bytes {
        let mut value = Vec::with_capacity(20);
        value.extend_from_slice(&self.slot.0.to_be_bytes());
        value.extend_from_slice(&self.epoch.to_be_bytes());
        value.extend_from_slice(&self.lsn.to_be_bytes());
        Bytes::from(value)
    }

    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let value: &[u8; 20] = value.try_into().ok()?;
        let (slot, rest) = value.split_first_chunk::<4>()?;
        let (epoch, lsn) = rest.split_first_chunk::<8>()?;
        Some(Self {
            slot: Slot(u32::from_be_bytes(*slot)),
            epoch: u64::from_be_bytes(*epoch),
            lsn: u64::from_be_bytes(lsn.try_into().ok()?),
        })
    }
}

pub(super) fn journal_key() -> Bytes {
    Slot::STORE.key(b"J")
}

pub(super) fn next_slot_key() -> Bytes {
    Slot::STORE.key(b"N")
}

pub(super) fn partition_key(id: PartitionId) -> Bytes {
    let [a, b, c, d] = id.0.to_be_bytes();
    Slot::STORE.key(&[b'P', a, b, c, d])
}

pub(super) fn dead_slot_key(slot: Slot) -> Bytes {
    let [a, b, c, d] = slot.0.to_be_bytes();
    Slot::STORE.key(&[b'D', a, b, c, d])
}

/// The number at the end of a `P` or `D` key, given without its slot.
pub(super) fn number_in_key(key: &[u8]) -> Option<u32> {
    key.get(1..).and_then(|number| number.try_into().ok()).map(u32::from_be_bytes)
}

/// All `P` or `D` keys.
pub(super) fn store_range(kind: u8) -> (Bytes, Bytes) {
    (Slot::STORE.key(&[kind]), Slot::STORE.key(&[kind + 1]))
}

pub(super) fn lock_path(directory: &Path) -> PathBuf {
    directory.join("LOCK")
}

pub(super) fn format_path(directory: &Path) -> PathBuf {
    directory.join("FORMAT")
}

pub(super) fn tree_path(directory: &Path) -> PathBuf {
    directory.join("tree")
}

pub(super) fn journals_path(directory: &Path) -> PathBuf {
    directory.join("journal")
}

pub(super) fn journal_path(directory: &Path, number: u64) -> PathBuf {
    journals_path(directory).join(format!("{number:010}.journal"))
}

/// The number of a journal from its file name; `None` for anything else.
pub(super) fn journal_number(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".journal")?;
    if name.len() < 10 || !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    name.parse().ok()
}

pub(super) fn format_text() -> String {
    format!("{FORMAT_NAME} {FORMAT_VERSION}\n")
}

/// The version named by a `FORMAT` file.
pub(super) fn parse_format(text: &str) -> Option<u32> {
    text.strip_suffix('\n')?.strip_prefix(FORMAT_NAME)?.strip_prefix(' ')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout is frozen: a change needs a new version and a way to read this one.
    #[test]
    fn layout_of_version_1() {
        assert_eq!(format_text(), "orrery-store 1\n");
        assert_eq!(parse_format("orrery-store 1\n"), Some(1));
        assert_eq!(parse_format("orrery-store 1"), None);
        assert_eq!(parse_format("something else\n"), None);
        assert_eq!(&partition_key(PartitionId(0x0102_0304))[..], b"\0\0\0\0P\x01\x02\x03\x04");
        assert_eq!(&dead_slot_key(Slot(7))[..], b"\0\0\0\0D\0\0\0\x07");
        assert_eq!(&Slot(7).key(b"abc")[..], b"\0\0\0\x07abc");
        let record = PartitionRecord { slot: Slot(7), epoch: 3, lsn: 0x0A0B };
        assert_eq!(&record.encode()[..], b"\0\0\0\x07\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\x0a\x0b");
        assert_eq!(PartitionRecord::decode(&record.encode()), Some(record));
        assert_eq!(journal_number(&journal_path(Path::new("/x"), 42)), Some(42));
        assert_eq!(journal_number(Path::new("/x/0000000042.tmp")), None);
    }
}
