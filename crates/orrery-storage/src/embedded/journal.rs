//! The journal (write-ahead log): makes a group of commits durable before it reaches the tree.
//!
//! There is one journal file per memtable. A full memtable is sealed together with its journal, and the file is
//! deleted once the memtable has become a table. The number and size of memtables thus bound the replay after a
//! crash, and no bookkeeping is needed about which part of a file is still live.
//!
//! A file starts with `ORRERYJ1`, its number (u64) and a checksum of these sixteen bytes (u64). Records follow, one
//! per group:
//!
//! ```text
//! payload bytes (u32) · index (u32) · synced (u32) · sequence number (u64) · checksum (u64) · payload
//! payload: { key bytes (u16) · value bytes (u32, all ones = delete) · key · value } …
//! ```
//!
//! Numbers are little-endian. The checksum is XXH3-64 over the preceding fields and the payload, seeded with the
//! journal's number. `index` counts the records of the file from 1. `synced` is the number of records known to be on
//! disk when this one was written.
//!
//! After a crash the last record of the newest journal may be torn. It was never acknowledged, so it is dropped. Any
//! other checksum mismatch is damage, and the two can be told apart: a later record whose `synced` covers the broken
//! one proves that it was once intact. A sealed journal was fsynced to its end before its successor was created, so
//! there every mismatch is damage.
//!
//! A last record that is complete but fails its checksum is damage too. Its space was preallocated with zeros and disks
//! write whole sectors, so a torn write leaves a sector of zeros or a file that is too short. Three cases look the same
//! as a torn write and are treated as one: a record that itself contains a sector of zeros or ends with zeros, and a
//! damaged length field.
//!
//! An open journal is longer than its records: it grows ahead of them in steps filled with zeros, and is truncated to
//! its records when it is sealed. Fsyncing a file whose length has not changed is faster (docs/performance.md), because
//! the file system has no metadata to write.

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

/// The unit that disks write atomically.
const SECTOR_BYTES: usize = 512;

/// A journal grows by half of its length at a time, within these bounds.
const GROWTH_BYTES_MIN: u64 = 64 << 10;
const GROWTH_BYTES_MAX: u64 = 1 << 20;
/// Space that a journal has beyond its records as long as the disk has any.
const SLACK_BYTES: u64 = 64 << 10;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A change of one key; `None` deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) key: Bytes,
    pub(super) value: Option<Bytes>,
}

/// A record under construction: encoded changes, after space reserved for the header.
pub(super) struct Draft {
    bytes: Vec<u8>,
    /// A key or value exceeded what the format can express.
    too_large: bool,
}

/// The position of a change in a draft.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChangeSpan {
    key_at: usize,
    key_bytes: u32,
    /// `DELETED` for a deletion.
    value_bytes: u32,
}

impl Draft {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        let mut draft = Vec::with_capacity(RECORD_HEADER_BYTES + bytes);
        draft.resize(RECORD_HEADER_BYTES, 0);
        Self { bytes: draft, too_large: false }
    }

    pub(super) fn push(&mut self, slot: Slot, key: &[u8], value: Option<&[u8]>) -> ChangeSpan {
        let slot = slot.0.to_be_bytes();
        let key_bytes = u16::try_from(slot.len() + key.len());
        let value_bytes = value.map_or(Ok(DELETED), |value| u32::try_from(value.len()));
        let (Ok(key_bytes), Ok(value_bytes)) = (key_bytes, value_bytes) else {
            // Reported when the record is completed, so that `push` need not fail in the middle of a group.
            self.too_large = true;
            return ChangeSpan { key_at: self.bytes.len(), key_bytes: 0, value_bytes: DELETED };
        };
        self.bytes.extend_from_slice(&key_bytes.to_le_bytes());
        self.bytes.extend_from_slice(&value_bytes.to_le_bytes());
        let key_at = self.bytes.len();
        self.bytes.extend_from_slice(&slot);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        ChangeSpan { key_at, key_bytes: key_bytes.into(), value_bytes }
    }

    /// Replaces the value of a change in place; returns `false` if the lengths differ.
    pub(super) fn overwrite(&mut self, span: &ChangeSpan, value: Option<&[u8]>) -> bool {
        match (span.value(), value) {
            (None, None) => true,
            // Equal lengths: the spans of later changes stay valid.
            (Some(range), Some(value)) if range.len() == value.len() => {
                self.bytes[range].copy_from_slice(value);
                true
            }
            _ => false,
        }
    }

    /// Whether the change concerns this key.
    pub(super) fn is_of(&self, span: &ChangeSpan, slot: Slot, key: &[u8]) -> bool {
        self.key(span).split_first_chunk() == Some((&slot.0.to_be_bytes(), key))
    }

    /// The key of a change, including its slot.
    pub(super) fn key(&self, span: &ChangeSpan) -> &[u8] {
        &self.bytes[span.key()]
    }

    pub(super) fn value(&self, span: &ChangeSpan) -> Option<&[u8]> {
        Some(&self.bytes[span.value()?])
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Fills in the record's header.
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
        debug_assert!(Record::read(record, number).is_some(), "a record passes its own checksum");
        debug_assert!(
            decode_changes(&Bytes::copy_from_slice(&record[RECORD_HEADER_BYTES..])).is_some(),
            "a record decodes to changes"
        );
        Ok(record)
    }

    /// The buffer that the spans refer to, for sharing with the memtable.
    pub(super) fn into_memory(mut self) -> Bytes {
        // It lives as long as the memtable does, so do not keep a lot of spare capacity.
        if self.bytes.capacity() - self.bytes.len() > self.bytes.len() / 4 {
            self.bytes.shrink_to_fit();
        }
        Bytes::from(self.bytes)
    }
}

impl ChangeSpan {
    fn key(&self) -> Range<usize> {
        self.key_at..self.key_at + self.key_bytes as usize
    }

    fn value(&self) -> Option<Range<usize>> {
        let at = self.key_at + self.key_bytes as usize;
        (self.value_bytes != DELETED).then(|| at..at + self.value_bytes as usize)
    }

    /// Bytes of key and value.
    pub(super) fn bytes(&self) -> usize {
        self.key_bytes as usize + self.value().map_or(0, |range| range.len())
    }

    /// The key of the change, in the buffer its draft has become.
    pub(super) fn key_in<'a>(&self, memory: &'a [u8]) -> &'a [u8] {
        &memory[self.key()]
    }

    /// The change, as slices of the buffer its draft has become.
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
    /// Where the next record goes; the file's write position.
    end: u64,
    /// The file's length, including the zeros after `end`.
    length: u64,
}

impl Journal {
    /// Creates an empty journal. It appears under its name only once its header is on disk.
    pub(super) fn create(directory: &Path, number: u64) -> io::Result<Self> {
        let path = layout::journal_path(directory, number);
        let unfinished = path.with_extension("tmp");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&unfinished)?;
        file.write_all(&file_header(number))?;
        file.sync_all()?;
        // The rename makes the journal appear atomically; the directory must be fsynced for it to survive a power failure.
        fs::rename(&unfinished, &path)?;
        sync_directory(&layout::journals_path(directory))?;
        Ok(Self::at_header(file, path, number))
    }

    /// Continues with a journal that turned out to be empty.
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

    /// Where the last record ends. Bytes before it never change.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced == self.records
    }

    /// Writes one record. It is durable only after [`Journal::sync`].
    pub(super) fn append(&mut self, sequence: u64, draft: &mut Draft) -> io::Result<()> {
        assert!(self.synced <= self.records, "no more records are on disk than were written");
        assert!(self.end <= self.length, "records end within the file");
        let index = self.records + 1;
        // The record states how many before it are durable, which later proves that a broken one was once intact.
        let record = draft.complete(self.number, index, self.synced, sequence)?;
        let end = self.end + record.len() as u64;
        // A merge may temporarily use the last free space. Deletions continue in the space reserved here.
        if end + SLACK_BYTES > self.length
            && let Err(error) = self.grow(end + SLACK_BYTES)
        {
            // Growing ahead has failed. If the record itself still fits, write it, and leave
            // the full disk to the watchdog.
            if end > self.length {
                return Err(error);
            }
            (&*self.file).seek(SeekFrom::Start(self.end))?;
        }
        (&*self.file).write_all(record)?;
        self.end = end;
        self.records = index;
        Ok(())
    }

    /// Durably truncates what a failed [`Journal::append`] left after the last record.
    pub(super) fn undo_append(&mut self) -> io::Result<()> {
        // Cut off and durable: a record that was refused must not come back at the next start.
        self.file.set_len(self.end)?;
        self.length = self.end;
        (&*self.file).seek(SeekFrom::Start(self.end))?;
        self.file.sync_all()
    }

    /// Extends the file with zeros to `end` and beyond.
    fn grow(&mut self, end: u64) -> io::Result<()> {
        // Zeros are written, not a hole: a hole would have to be allocated by a later fsync, which is what this avoids.
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

    /// Fsyncs and truncates the file to its records. Nothing is written to this journal afterwards.
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
            // Without the times of the file; its length is included if it has changed.
            self.file.sync_data()?;
            self.synced = self.records;
        }
        Ok(())
    }

    /// Like [`Journal::sync`], and runs `work` during the fsync. Its effects must stay invisible until this succeeds.
    pub(super) fn sync_while(&mut self, syncer: &Syncer, work: impl FnOnce()) -> io::Result<()> {
        syncer.sync_while(&self.file, work)?;
        self.synced = self.records;
        Ok(())
    }
}

/// What replaying a journal found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replayed {
    pub(super) records: u32,
    /// Bytes of a torn record at the end.
    pub(super) torn_bytes: usize,
    /// Preallocated zeros at the end.
    pub(super) unused_bytes: usize,
}

/// Reads a journal and applies its records in order. Keys and values are slices of the file's content.
pub(super) fn replay(
    path: &Path,
    number: u64,
    newest: bool,
    apply: &mut dyn FnMut(u64, Vec<Change>),
) -> Result<Replayed, OpenError> {
    let content = Bytes::from(fs::read(path).map_err(OpenError::io(path))?);
    // The number is part of the header, so a journal that was renamed is noticed.
    if content.get(..FILE_HEADER_BYTES) != Some(&file_header(number)[..]) {
        return Err(OpenError::damaged(path, "the journal's header is invalid"));
    }
    let mut at = FILE_HEADER_BYTES;
    let mut replayed = Replayed::default();
    let mut last_sequence = 0;
    while at < content.len() {
        let Some(record) = Record::read(&content[at..], number) else {
            let index = replayed.records + 1;
            // Sealed journals were fsynced to their end, so nothing in them can be torn.
            if !newest {
                let detail = format!("record {index} at byte {at} of a sealed journal fails its checksum");
                return Err(OpenError::damaged(path, detail));
            }
            // Preallocated space that was never used.
            if content[at..].iter().all(|byte| *byte == 0) {
                replayed.unused_bytes = content.len() - at;
                break;
            }
            // A later record that knew this one to be on disk proves damage.
            if let Some(later) = find_later_record(&content, at, number, index) {
                let detail = format!(
                    "record {index} at byte {at} fails its checksum, but record {later} after it is intact"
                );
                return Err(OpenError::damaged(path, detail));
            }
            if !is_cut_short(&content, at) {
                let detail = format!(
                    "the last record, {index} at byte {at}, was written completely and has been damaged since; \
                     it may have been acknowledged"
                );
                return Err(OpenError::damaged(path, detail));
            }
            replayed.torn_bytes = content.len() - at;
            break;
        };
        let end = at + RECORD_HEADER_BYTES + record.payload_bytes;
        let changes = decode_changes(&content.slice(at + RECORD_HEADER_BYTES..end));
        // The checksum matches, so these can only differ if the file was pieced together from other journals.
        let (true, true, Some(changes)) =
            (record.index == replayed.records + 1, record.sequence > last_sequence, changes)
        else {
            return Err(OpenError::damaged(path, format!("the record at byte {at} is out of sequence")));
        };
        last_sequence = record.sequence;
        replayed.records = record.index;
        at = end;
        apply(record.sequence, changes);
    }
    Ok(replayed)
}

/// Flushes the entries of a directory: new files and new names in it are durable when this returns.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    // Directories cannot be opened as files on Windows, where the file system's own journal orders these changes.
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

struct Record {
    payload_bytes: usize,
    index: u32,
    synced: u32,
    sequence: u64,
}

impl Record {
    /// The record at the start of `content`, if it is intact.
    fn read(content: &[u8], number: u64) -> Option<Self> {
        let header = content.get(..RECORD_HEADER_BYTES)?;
        let field =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let long = |at: usize| u64::from(field(at)) | u64::from(field(at + 4)) << 32;
        let payload_bytes = usize::try_from(field(0)).ok()?;
        let payload = content.get(RECORD_HEADER_BYTES..)?.get(..payload_bytes)?;
        let record = Self { payload_bytes, index: field(4), synced: field(8), sequence: long(12) };
        // Cheap checks first: the search for later records tries every byte offset.
        if record.index == 0 || record.synced >= record.index {
            return None;
        }
        (check(number, &header[..CHECKED_HEADER_BYTES], payload) == long(20)).then_some(record)
    }
}

/// Whether the broken record at `at` looks like a write that a crash interrupted.
fn is_cut_short(content: &[u8], at: usize) -> bool {
    let Some(length) = content.get(at..at + RECORD_HEADER_BYTES).and_then(|header| header.first_chunk::<4>())
    else {
        // Too short for a header.
        return true;
    };
    let end = usize::try_from(u32::from_le_bytes(*length))
        .ok()
        .and_then(|bytes| (at + RECORD_HEADER_BYTES).checked_add(bytes));
    // The length points beyond the file.
    let Some(end) = end.filter(|end| *end <= content.len()) else { return true };
    // The copy into the page cache may have stopped in the middle of a sector.
    if content[at..end].iter().rev().take(8).all(|byte| *byte == 0) {
        return true;
    }
    let mut from = at;
    while from < end {
        // Sectors are counted from the start of the file, as the disk sees them.
        let to = (from - from % SECTOR_BYTES + SECTOR_BYTES).min(end);
        if content[from..to].iter().all(|byte| *byte == 0) {
            return true;
        }
        from = to;
    }
    false
}

/// The index of an intact record after a broken one which proves that the broken one was once on disk.
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
    // The number as the seed: a record of another journal does not pass.
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
        let mut draft = Draft::with_capacity(10);
        for Change { key, value } in changes {
            let (slot, key) = Slot::split(key);
            let span = draft.push(slot, key, value.as_deref());
            assert!(draft.is_of(&span, slot, key) && draft.value(&span) == value.as_deref());
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
    fn truncation_keeps_the_intact_records_before_it() {
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

    /// Every flipped bit is detected, except one that makes the last record seem longer than the file: that looks the
    /// same as a torn write. It never yields wrong data.
    #[test]
    fn any_flipped_bit_is_detected() {
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
                    let in_length = (last_record..last_record + 4).contains(&at);
                    assert!(in_length, "the flipped bit at {at} was not detected");
                    assert_eq!(replayed.records, 2);
                    assert_eq!(records, [(10, changes(1)), (20, changes(2))]);
                }
            }
            assert!(matches!(read_back(&path, false), Err(OpenError::Damaged { .. })));
        }
    }

    /// Without an fsync in between, a power failure may leave a hole before a later record.
    #[test]
    fn an_unsynced_hole_counts_as_a_torn_record() {
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
        // A changed byte was written once, so this is damage. A sector that was never written leaves zeros.
        assert!(matches!(read_back(journal.path(), true), Err(OpenError::Damaged { .. })));
        let next = second + (content.len() - FILE_HEADER_BYTES) / 3;
        content[second..next].fill(0);
        fs::write(journal.path(), &content).unwrap();
        let (replayed, records) = read_back(journal.path(), true).unwrap();
        assert_eq!((replayed.records, records.len()), (1, 1));
        assert!(replayed.torn_bytes > 0);
    }

    /// Preallocated zeros are not damage in the newest journal, and are distinguished from a torn record.
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
        // A record of which only a part reached the disk.
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

    /// A record larger than the preallocated space.
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

    /// Whatever a file contains, replaying it ends, and gives records that were written or none.
    #[test]
    fn fuzz_journal_replay() {
        let directory = tempfile::tempdir().unwrap();
        let path = write_journal(directory.path(), 3);
        let content = fs::read(&path).unwrap();
        let mut preallocated = content.clone();
        preallocated.extend_from_slice(&[0; 600]);
        let written = [(10, changes(1)), (20, changes(2)), (30, changes(3))];
        let seeds = [content, preallocated];
        orrery_testing::fuzz::fuzz("journal replay", &seeds, |input| {
            fs::write(&path, input).unwrap();
            for newest in [true, false] {
                if let Ok((_, records)) = read_back(&path, newest) {
                    assert!(written.starts_with(&records), "{records:?}");
                }
            }
        });
    }
}
