//! The files of a data directory, and the encoding of keys and partition records.
//!
//! ```text
//! LOCK                 held by the process that has the store open
//! FORMAT               one line: the name and version of this layout
//! HISTORY              a random id of this line of writes; a restored store gets a new one
//! journal/<n>.journal  writes that may not be in a table yet, see `journal`
//! log/<n>.journal      journals kept for restoring to a point in time, see `kept_log`
//! tree/                the tables of the LSM tree, see `tree`
//! checkpoints/         hard links to the files of running backups, see `checkpoint`; removed at every start
//! ```
//!
//! All partitions share one tree. Every partition owns a *slot*, a number that is never reused, which prefixes its
//! keys (four bytes, big-endian). Slot 0 belongs to the store itself:
//!
//! * `J` → number of the journal that the surrounding entries were written to (u64)
//! * `N` → the next free slot (u32)
//! * `T` → when the surrounding entries were written, in milliseconds since 1970 (i64); updated every 10 ms
//! * `P`, partition id (u32) → slot (u32), epoch (u64), last LSN (u64)
//! * `D`, slot (u32) → empty; the partition was destroyed and its entries are being removed
//!
//! All numbers are big-endian.
//!
//! One tree instead of one per partition, by measurement: creating a tree took as long as ten fsyncs (24 ms where an
//! fsync took 2.5 ms), while creating a partition in a shared tree is one small write that shares its fsync with
//! others. Memory was not a factor (3 KB per tree). A shared tree also has exactly one memtable and one journal to
//! bound. The price: entries of a destroyed partition must be swept, see `sweep`.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::contract::{Key, KeyRange, Lsn, PartitionId};

/// Versions this layout, the journal records and the tables.
pub(super) const FORMAT_VERSION: u32 = 1;

const FORMAT_NAME: &str = "orrery-store";

/// The key prefix of a partition in the shared tree.
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

    /// The range in the key space of the whole tree.
    pub(super) fn range(self, range: &KeyRange) -> (Bytes, Bytes) {
        let end = match &range.end {
            Some(end) => self.key(end),
            // The start of the next slot: no partition ever gets the highest one, so this does not overflow.
            None => Self(self.0 + 1).key(&[]),
        };
        (self.key(&range.start), end)
    }

    /// Splits a key of the tree into the slot and the partition's own key.
    pub(super) fn split(full: &[u8]) -> (Self, &[u8]) {
        let (slot, key) = full.split_first_chunk().expect("every key of the tree begins with a slot");
        (Self(u32::from_be_bytes(*slot)), key)
    }

    /// The partition's own key, without the slot.
    pub(super) fn strip(full: &[u8]) -> Key {
        full[4..].to_vec()
    }
}

/// The durable state of a partition apart from its entries.
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
        debug_assert_eq!(Self::decode(&value), Some(self), "a record decodes to what was encoded");
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

pub(super) fn time_key() -> Bytes {
    Slot::STORE.key(b"T")
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

/// The number in a `P` or `D` key, which is passed without its slot.
pub(super) fn number_in_key(key: &[u8]) -> Option<u32> {
    key.get(1..).and_then(|number| number.try_into().ok()).map(u32::from_be_bytes)
}

/// All `P` or `D` keys.
pub(super) fn store_range(kind: u8) -> (Bytes, Bytes) {
    // The next letter is the first key that is not of this kind.
    (Slot::STORE.key(&[kind]), Slot::STORE.key(&[kind + 1]))
}

pub(super) fn lock_path(directory: &Path) -> PathBuf {
    directory.join("LOCK")
}

pub(super) fn format_path(directory: &Path) -> PathBuf {
    directory.join("FORMAT")
}

/// Written and removed to test whether the disk accepts writes again.
pub(super) fn probe_path(directory: &Path) -> PathBuf {
    directory.join("PROBE")
}

pub(super) fn tree_path(directory: &Path) -> PathBuf {
    directory.join("tree")
}

pub(super) fn journals_path(directory: &Path) -> PathBuf {
    directory.join("journal")
}

pub(super) fn history_path(directory: &Path) -> PathBuf {
    directory.join("HISTORY")
}

pub(super) fn log_path(directory: &Path) -> PathBuf {
    directory.join("log")
}

pub(super) fn checkpoints_path(directory: &Path) -> PathBuf {
    directory.join("checkpoints")
}

pub(super) fn journal_path(directory: &Path, number: u64) -> PathBuf {
    journals_path(directory).join(format!("{number:010}.journal"))
}

/// Parses a journal's number from its file name; `None` for other files.
pub(super) fn journal_number(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".journal")?;
    // Stricter than `parse`, which would also accept a sign. Anything else in the directory is left alone.
    if name.len() < 10 || !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    name.parse().ok()
}

pub(super) fn format_text() -> String {
    format!("{FORMAT_NAME} {FORMAT_VERSION}\n")
}

/// Parses the version in a `FORMAT` file.
pub(super) fn parse_format(text: &str) -> Option<u32> {
    text.strip_suffix('\n')?.strip_prefix(FORMAT_NAME)?.strip_prefix(' ')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout is frozen: a change needs a new version and code that still reads this one.
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
