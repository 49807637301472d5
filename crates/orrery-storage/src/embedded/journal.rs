//! The journal: where a group of commits becomes durable, before it reaches the tree.
//!
//! There is one journal file per memtable. When the memtable is full both are sealed together; when the
//! memtable has become a table the file is deleted. So what must be replayed after a crash is bounded by the
//! size and number of memtables, and nothing has to be remembered about which part of a file is still needed.
//!
//! A file begins with `ORRERYJ1`, its number (u64) and the check of these sixteen bytes (u64). Then follow
//! records, one per group:
//!
//! ```text
//! payload bytes (u32) · index (u32) · synced (u32) · sequence number (u64) · check (u64) · payload
//! payload: { key bytes (u16) · value bytes (u32, all ones = delete) · key · value } …
//! ```
//!
//! Numbers are little-endian. `check` is XXH3-64 over the fields before it and the payload, seeded with the
//! number of the journal. `index` counts the records of the file from 1. `synced` says how many records were
//! known to be on disk when this one was written.
//!
//! The last record of the newest journal may be incomplete after a crash: it was never acknowledged, and it
//! is dropped. Anything else that fails its check is damage, and it can be told apart: a later record whose
//! `synced` covers the broken one proves that it had been whole. A sealed journal was flushed to the end
//! before its successor was made, so there every fault is damage.
//!
//! A journal that is being written is longer than its records: it grows by whole steps of zeros ahead of them, and
//! is cut to its records when it is sealed. Flushing a file whose length has not changed is faster
//! (docs/performance.md), because the file system has nothing to write down about it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use super::error::OpenError;
use super::layout::{self, Slot};
use super::syncer::Syncer;

const MAGIC: &[u8; 8] = b"ORRERYJ1";
const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 28;
const CHECKED_HEADER_BYTES: usize = 20;
const DELETED: u32 = u32::MAX;

/// How far a journal grows ahead of its records at once: by half of its length, between these.
const GROWTH_BYTES_MIN: u64 = 64 << 10;
const GROWTH_BYTES_MAX: u64 = 1 << 20;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A change of one key; `None` deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) key: Bytes,
    pub(super) value: Option<Bytes>,
}

/// A record in the making: changes one after the other, and room for what is to stand before them.
pub(super) struct Draft {
    bytes: Vec<u8>,
    /// Something did not fit into the format.
    too_large: bool,
}

/// Where a change is in a draft.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    key_at: usize,
    key_bytes: u32,
    /// `DELETED` where there is none.
    value_bytes: u32,
}

impl Draft {
    pub(super) fn with_room(bytes: usize) -> Self {
        let mut draft = Vec::with_capacity(RECORD_HEADER_BYTES + bytes);
        draft.resize(RECORD_HEADER_BYTES, 0);
        Self { bytes: draft, too_large: false }
    }

    pub(super) fn push(&mut self, slot: Slot, key: &[u8], value: Option<&[u8]>) -> Place {
        let slot = slot.0.to_be_bytes();
        let key_bytes = u16::try_from(slot.len() + key.len());
        let value_bytes = value.map_or(Ok(DELETED), |value| u32::try_from(value.len()));
        let (Ok(key_bytes), Ok(value_bytes)) = (key_bytes, value_bytes) else {
            self.too_large = true;
            return Place { key_at: self.bytes.len(), key_bytes: 0, value_bytes: DELETED };
        };
        self.bytes.extend_from_slice(&key_bytes.to_le_bytes());
        self.bytes.extend_from_slice(&value_bytes.to_le_bytes());
        let key_at = self.bytes.len();
        self.bytes.extend_from_slice(&slot);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        Place { key_at, key_bytes: key_bytes.into(), value_bytes }
    }

    /// Changes the value of a change, if the new one is of the same length.
    pub(super) fn overwrite(&mut self, place: &Place, value: Option<&[u8]>) -> bool {
        match (place.value(), value) {
            (None, None) => true,
            (Some(range), Some(value)) if range.len() == value.len() => {
                self.bytes[range].copy_from_slice(value);
                true
            }
            _ => false,
        }
    }

    /// Whether this is a change of the key.
    pub(super) fn is_of(&self, place: &Place, slot: Slot, key: &[u8]) -> bool {
        self.key(place).split_first_chunk() == Some((&slot.0.to_be_bytes(), key))
    }

    /// The key of a change, with its slot.
    pub(super) fn key(&self, place: &Place) -> &[u8] {
        &self.bytes[place.key()]
    }

    pub(super) fn value(&self, place: &Place) -> Option<&[u8]> {
        Some(&self.bytes[place.value()?])
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Fills in what stands before the changes.
    fn complete(&mut self, number: u64, index: u32, synced: u32, sequence: u64) -> io::Result<&[u8]> {
        let payload_bytes = u32::try_from(self.bytes.len() - RECORD_HEADER_BYTES);
        let (Ok(payload_bytes), false) = (payload_bytes, self.too_large) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a journal record is too large"));
        };
        let record = &mut self.bytes;
        record[..4].copy_from_slice(&payload_bytes.to_le_bytes());
        record[4..8].copy_from_slice(&index.to_le_bytes());
        record[8..12].copy_from_slice(&synced.to_le_bytes());
        record[12..20].copy_from_slice(&sequence.to_le_bytes());
        let check = check(number, &record[..CHECKED_HEADER_BYTES], &record[RECORD_HEADER_BYTES..]);
        record[20..28].copy_from_slice(&check.to_le_bytes());
        Ok(record)
    }

    /// The memory that places refer to, for all who share it.
    pub(super) fn into_memory(mut self) -> Bytes {
        // It stays as long as the memtable does.
        if self.bytes.capacity() - self.bytes.len() > self.bytes.len() / 4 {
            self.bytes.shrink_to_fit();
        }
        Bytes::from(self.bytes)
    }
}

impl Place {
    fn key(&self) -> Range<usize> {
        self.key_at..self.key_at + self.key_bytes as usize
    }

    fn value(&self) -> Option<Range<usize>> {
        let at = self.key_at + self.key_bytes as usize;
        (self.value_bytes != DELETED).then(|| at..at + self.value_bytes as usize)
    }

    /// The change, in the memory that its draft has become.
    pub(super) fn change(&self, memory: &Bytes) -> Change {
        Change { key: memory.slice(self.key()), value: self.value().map(|range| memory.slice(range)) }
    }
}

/// A journal that is being written.
pub(super) struct Journal {
    file: Arc<File>,
    path: PathBuf,
    number: u64,
    records: u32,
    synced: u32,
    /// Where the next record goes, and where the file is written to next.
    end: u64,
    /// The length of the file, beyond the end.
    length: u64,
}

impl Journal {
    /// Makes an empty journal. It appears under its name only when its header is on disk.
    pub(super) fn create(directory: &Path, number: u64) -> io::Result<Self> {
        let path = layout::journal_path(directory, number);
        let unfinished = path.with_extension("tmp");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&unfinished)?;
        file.write_all(&file_header(number))?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        sync_directory(&layout::journals_path(directory))?;
        Ok(Self::at_header(file, path, number))
    }

    /// Goes on with a journal that was found to be empty.
    pub(super) fn reuse(directory: &Path, number: u64) -> io::Result<Self> {
        let path = layout::journal_path(directory, number);
        let mut file = OpenOptions::new().write(true).open(&path)?;
        file.seek(SeekFrom::Start(FILE_HEADER_BYTES as u64))?;
        Ok(Self::at_header(file, path, number))
    }

    fn at_header(file: File, path: PathBuf, number: u64) -> Self {
        let end = FILE_HEADER_BYTES as u64;
        Self { file: Arc::new(file), path, number, records: 0, synced: 0, end, length: end }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced == self.records
    }

    /// Writes one record. It is durable only after [`Journal::sync`].
    pub(super) fn append(&mut self, sequence: u64, draft: &mut Draft) -> io::Result<()> {
        let index = self.records + 1;
        let record = draft.complete(self.number, index, self.synced, sequence)?;
        let end = self.end + record.len() as u64;
        if end > self.length {
            self.grow(end)?;
        }
        (&*self.file).write_all(record)?;
        self.end = end;
        self.records = index;
        Ok(())
    }

    /// Makes room for records up to `end`, and some more.
    fn grow(&mut self, end: u64) -> io::Result<()> {
        let length = end + (end / 2).clamp(GROWTH_BYTES_MIN, GROWTH_BYTES_MAX);
        let mut file = &*self.file;
        file.seek(SeekFrom::Start(self.length))?;
        while self.length < length {
            let zeros = usize::try_from(length - self.length).unwrap_or(usize::MAX).min(ZEROS.len());
            file.write_all(&ZEROS[..zeros])?;
            self.length += zeros as u64;
        }
        file.seek(SeekFrom::Start(self.end))?;
        Ok(())
    }

    /// Cuts off what lies behind the records: nothing is written to this journal any more.
    pub(super) fn seal(&mut self) -> io::Result<()> {
        self.sync()?;
        if self.length > self.end {
            self.file.set_len(self.end)?;
            self.file.sync_all()?;
            self.length = self.end;
        }
        Ok(())
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        if !self.is_synced() {
            self.file.sync_data()?;
            self.synced = self.records;
        }
        Ok(())
    }

    /// The same, with something to do meanwhile that must not be shown to anybody before this has ended well.
    pub(super) fn sync_beside(&mut self, syncer: &Syncer, work: impl FnOnce()) -> io::Result<()> {
        syncer.sync_beside(&self.file, work)?;
        self.synced = self.records;
        Ok(())
    }
}

/// What a journal held.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replayed {
    pub(super) records: u32,
    /// Bytes at the end that belong to no complete record.
    pub(super) torn_bytes: usize,
    /// Zeros at the end, which the journal had grown by.
    pub(super) unused_bytes: usize,
}

/// Reads a journal from the beginning and hands out its records in order. Keys and values share the memory
/// of the file's content.
pub(super) fn replay(
    path: &Path,
    number: u64,
    newest: bool,
    apply: &mut dyn FnMut(u64, Vec<Change>),
) -> Result<Replayed, OpenError> {
    let content = Bytes::from(fs::read(path).map_err(OpenError::io(path))?);
    if content.get(..FILE_HEADER_BYTES) != Some(&file_header(number)[..]) {
        return Err(OpenError::damaged(path, "the header of the journal is wrong"));
    }
    let mut at = FILE_HEADER_BYTES;
    let mut replayed = Replayed::default();
    let mut last_sequence = 0;
    while at < content.len() {
        let Some(record) = Record::read(&content[at..], number) else {
            let index = replayed.records + 1;
            if !newest {
                let detail = format!("record {index} at byte {at} of a sealed journal is broken");
                return Err(OpenError::damaged(path, detail));
            }
            if content[at..].iter().all(|byte| *byte == 0) {
                replayed.unused_bytes = content.len() - at;
                break;
            }
            if let Some(later) = find_later_record(&content, at, number, index) {
                let detail =
                    format!("record {index} at byte {at} is broken, record {later} after it is whole");
                return Err(OpenError::damaged(path, detail));
            }
            replayed.torn_bytes = content.len() - at;
            break;
        };
        let end = at + RECORD_HEADER_BYTES + record.payload_bytes;
        let changes = decode_changes(&content.slice(at + RECORD_HEADER_BYTES..end));
        // The check was right, so these can only differ if the file was put together from pieces.
        let (true, true, Some(changes)) =
            (record.index == replayed.records + 1, record.sequence > last_sequence, changes)
        else {
            return Err(OpenError::damaged(path, format!("the record at byte {at} does not belong there")));
        };
        last_sequence = record.sequence;
        replayed.records = record.index;
        at = end;
        apply(record.sequence, changes);
    }
    Ok(replayed)
}

pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

struct Record {
    payload_bytes: usize,
    index: u32,
    synced: u32,
    sequence: u64,
}

impl Record {
    /// The record at the start of `content`, if it is whole.
    fn read(content: &[u8], number: u64) -> Option<Self> {
        let header = content.get(..RECORD_HEADER_BYTES)?;
        let field =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let long = |at: usize| u64::from(field(at)) | u64::from(field(at + 4)) << 32;
        let payload_bytes = usize::try_from(field(0)).ok()?;
        let payload = content.get(RECORD_HEADER_BYTES..)?.get(..payload_bytes)?;
        let record = Self { payload_bytes, index: field(4), synced: field(8), sequence: long(12) };
        // Cheap tests first: the search for later records tries every byte.
        if record.index == 0 || record.synced >= record.index {
            return None;
        }
        (check(number, &header[..CHECKED_HEADER_BYTES], payload) == long(20)).then_some(record)
    }
}

/// The index of a whole record after a broken one that proves the broken one had been on disk.
fn find_later_record(content: &[u8], broken_at: usize, number: u64, broken_index: u32) -> Option<u32> {
    (broken_at + 1..content.len()).find_map(|at| {
        let record = Record::read(&content[at..], number)?;
        (record.index > broken_index && record.synced >= broken_index).then_some(record.index)
    })
}

fn file_header(number: u64) -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&number.to_le_bytes());
    let check = check(number, &header[..16], &[]);
    header[16..].copy_from_slice(&check.to_le_bytes());
    header
}

fn check(number: u64, header: &[u8], payload: &[u8]) -> u64 {
    let mut hasher = Xxh3::with_seed(number);
    hasher.update(header);
    hasher.update(payload);
    hasher.digest()
}

fn decode_changes(payload: &Bytes) -> Option<Vec<Change>> {
    let mut changes = Vec::new();
    let mut at = 0;
    while at < payload.len() {
        let lengths: &[u8; 6] = payload.get(at..at + 6)?.try_into().ok()?;
        let key_bytes = usize::from(u16::from_le_bytes([lengths[0], lengths[1]]));
        let value_bytes = u32::from_le_bytes([lengths[2], lengths[3], lengths[4], lengths[5]]);
        let key_end = at + 6 + key_bytes;
        let (value_end, deleted) = match value_bytes {
            DELETED => (key_end, true),
            bytes => (key_end + usize::try_from(bytes).ok()?, false),
        };
        if value_end > payload.len() {
            return None;
        }
        let value = (!deleted).then(|| payload.slice(key_end..value_end));
        changes.push(Change { key: payload.slice(at + 6..key_end), value });
        at = value_end;
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(record: u8) -> Vec<Change> {
        let key = |name: &str| Slot(1).key(format!("{name}{record}").as_bytes());
        vec![
            Change { key: key("put"), value: Some(Bytes::from(vec![record; 100])) },
            Change { key: key("empty"), value: Some(Bytes::new()) },
            Change { key: key("delete"), value: None },
        ]
    }

    fn draft(changes: &[Change]) -> Draft {
        let mut draft = Draft::with_room(10);
        for Change { key, value } in changes {
            let (slot, key) = Slot::split(key);
            let place = draft.push(slot, key, value.as_deref());
            assert!(draft.is_of(&place, slot, key) && draft.value(&place) == value.as_deref());
        }
        draft
    }

    fn write_journal(directory: &Path, records: u8) -> PathBuf {
        fs::create_dir_all(layout::journals_path(directory)).unwrap();
        let mut journal = Journal::create(directory, 7).unwrap();
        for record in 1..=records {
            journal.append(u64::from(record) * 10, &mut draft(&changes(record))).unwrap();
            journal.sync().unwrap();
        }
        journal.seal().unwrap();
        journal.path().to_owned()
    }

    type Records = Vec<(u64, Vec<Change>)>;

    fn read_back(path: &Path, newest: bool) -> Result<(Replayed, Records), OpenError> {
        let mut records = Vec::new();
        let replayed = replay(path, 7, newest, &mut |sequence, changes| records.push((sequence, changes)))?;
        Ok((replayed, records))
    }

    #[test]
    fn records_come_back_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = write_journal(directory.path(), 3);
        let (replayed, records) = read_back(&path, false).unwrap();
        assert_eq!(replayed, Replayed { records: 3, torn_bytes: 0, unused_bytes: 0 });
        assert_eq!(records, [(10, changes(1)), (20, changes(2)), (30, changes(3))]);
    }

    #[test]
    fn any_cut_leaves_the_whole_records_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = write_journal(directory.path(), 3);
        let content = fs::read(&path).unwrap();
        let record_bytes = (content.len() - FILE_HEADER_BYTES) / 3;
        for cut in FILE_HEADER_BYTES..content.len() {
            fs::write(&path, &content[..cut]).unwrap();
            let (_, records) = read_back(&path, true).unwrap();
            assert_eq!(records.len(), (cut - FILE_HEADER_BYTES) / record_bytes, "cut at {cut}");
        }
        fs::write(&path, &content[..content.len() - 1]).unwrap();
        assert!(matches!(read_back(&path, false), Err(OpenError::Damaged { .. })));
    }

    /// A flipped bit before the last record is always noticed; in the last one it cannot be told from a
    /// write that a crash cut short, and never gives wrong data.
    #[test]
    fn any_flipped_bit_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = write_journal(directory.path(), 3);
        let content = fs::read(&path).unwrap();
        let last_record = content.len() - (content.len() - FILE_HEADER_BYTES) / 3;
        for at in 0..content.len() {
            let mut damaged = content.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&path, &damaged).unwrap();
            match read_back(&path, true) {
                Err(OpenError::Damaged { file, .. }) => assert_eq!(file, path),
                Err(other) => panic!("{other}"),
                Ok((replayed, records)) => {
                    assert!(at >= last_record, "the flipped bit at {at} went unnoticed");
                    assert_eq!(replayed.records, 2);
                    assert_eq!(records, [(10, changes(1)), (20, changes(2))]);
                }
            }
            assert!(matches!(read_back(&path, false), Err(OpenError::Damaged { .. })));
        }
    }

    /// Without a flush in between, a hole before a later record is what a power failure may leave.
    #[test]
    fn an_unsynced_hole_is_a_torn_end() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(layout::journals_path(directory.path())).unwrap();
        let mut journal = Journal::create(directory.path(), 7).unwrap();
        for record in 1..=3 {
            journal.append(u64::from(record) * 10, &mut draft(&changes(record))).unwrap();
        }
        journal.seal().unwrap();
        let mut content = fs::read(journal.path()).unwrap();
        let second = FILE_HEADER_BYTES + (content.len() - FILE_HEADER_BYTES) / 3;
        content[second + 40] ^= 1;
        fs::write(journal.path(), &content).unwrap();
        let (replayed, records) = read_back(journal.path(), true).unwrap();
        assert_eq!((replayed.records, records.len()), (1, 1));
        assert!(replayed.torn_bytes > 0);
    }

    /// What a journal has grown by is no damage where it may be, and is told from a record that was cut short.
    #[test]
    fn zeros_may_follow_the_records_of_the_newest_journal() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(layout::journals_path(directory.path())).unwrap();
        let mut journal = Journal::create(directory.path(), 7).unwrap();
        for record in 1..=3 {
            journal.append(u64::from(record) * 10, &mut draft(&changes(record))).unwrap();
            journal.sync().unwrap();
        }
        let content = fs::read(journal.path()).unwrap();
        assert!(content.len() as u64 > GROWTH_BYTES_MIN);
        let (replayed, records) = read_back(journal.path(), true).unwrap();
        assert_eq!((replayed.records, replayed.torn_bytes, records.len()), (3, 0, 3));
        let end = content.len() - replayed.unused_bytes;
        assert!(matches!(read_back(journal.path(), false), Err(OpenError::Damaged { .. })));
        // A record of which only a part came to the disk.
        let record_bytes = (end - FILE_HEADER_BYTES) / 3;
        let mut torn = content.clone();
        torn.copy_within(end - record_bytes..end - 10, end);
        fs::write(journal.path(), &torn).unwrap();
        let (replayed, _) = read_back(journal.path(), true).unwrap();
        assert_eq!((replayed.records, replayed.torn_bytes), (3, content.len() - end));
        fs::write(journal.path(), &content).unwrap();
        journal.seal().unwrap();
        assert_eq!(fs::read(journal.path()).unwrap(), content[..end]);
        read_back(journal.path(), false).unwrap();
    }

    /// A record that does not fit into what the journal has grown by.
    #[test]
    fn large_records_fit() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(layout::journals_path(directory.path())).unwrap();
        let mut journal = Journal::create(directory.path(), 7).unwrap();
        let large = vec![Change { key: Slot(1).key(b"k"), value: Some(Bytes::from(vec![7; 3 << 20])) }];
        journal.append(1, &mut draft(&large)).unwrap();
        journal.append(2, &mut draft(&changes(1))).unwrap();
        let (replayed, records) = read_back(journal.path(), true).unwrap();
        assert_eq!((replayed.records, replayed.torn_bytes), (2, 0));
        assert_eq!(records, [(1, large), (2, changes(1))]);
    }
}
