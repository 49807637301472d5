//! The LSM tree and the moments at which it can be read.
//!
//! `lsm-tree` (the tree inside fjall) keeps memtables and tables and merges them; journal, commit groups,
//! snapshots and background threads are ours. fjall's own database layer was tried first and left out: its
//! journal cuts itself off silently at the first damaged byte, is rotated only beyond 64 MB (seconds of
//! replay at our entry sizes), and its background threads can move the visible sequence number past a batch
//! that is still being applied.
//!
//! A batch is applied under one sequence number; readers see it once that number is *published*. Whoever
//! reads pins the number it reads at, so that no merge and no clean-up takes away what it may still see.
//! Pins of snapshots are leases: they end when the snapshot is too old, whether or not it was dropped.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lsm_tree::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};
use lsm_tree::compaction::{CompactionStrategy, Leveled};
use lsm_tree::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
};
use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, DescriptorTable, Guard, InternalValue, SeqNo,
    SequenceNumberCounter, ValueType,
};
use parking_lot::Mutex;

use super::journal::Change;
use super::layout::Slot;
use crate::contract::{Direction, Entry, KeyRange, ReadPage, Scan, StoreError, Want};
use crate::transaction::panic_text;

/// Files of tables that stay open. Well below the usual limit of 1,024 per process, which sockets share.
const OPEN_FILES_MAX: usize = 256;

/// Data blocks end with the entry that reaches this size. With it and what closes the block, a block of index entries
/// takes 4 KB of memory; a little more would take 5, the allocator's next size.
const BLOCK_BYTES: u32 = 3840;

/// What the tree's cache may count of the memory that it is given. It counts the content of blocks; with the
/// allocator's rounding, its own table and what eviction leaves between blocks, they take half as much again.
fn cache_content_bytes(cache_bytes: u64) -> u64 {
    cache_bytes / 3 * 2
}

/// "Input/output error", which has no kind of its own.
const EIO: i32 = 5;

pub(super) struct Tree {
    lsm: AnyTree,
    sequence: SequenceNumberCounter,
    /// Everything below this number may be read.
    published: AtomicU64,
    pins: Mutex<Pins>,
    strategy: Arc<dyn CompactionStrategy + Send + Sync>,
    stopping: Arc<AtomicBool>,
}

#[derive(Default)]
struct Pins {
    /// How many readers there are per sequence number.
    readers: BTreeMap<SeqNo, usize>,
    leases: BTreeMap<u64, Lease>,
    next_lease: u64,
}

struct Lease {
    sequence: SeqNo,
    deadline: Instant,
}

/// A reader's hold on one moment of the tree.
pub(super) struct Pin<'a> {
    tree: &'a Tree,
    sequence: SeqNo,
}

/// A hold that ends by itself. Reading through it pins the moment anew.
#[derive(Clone, Copy)]
pub(super) struct LeaseId(u64);

impl Tree {
    pub(super) fn open(path: &Path, cache_bytes: u64, table_bytes: u64) -> Result<Self, lsm_tree::Error> {
        let sequence = SequenceNumberCounter::new(1);
        let stopping = Arc::new(AtomicBool::new(false));
        let bloom = |bits| FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits));
        let tree = Config::new(path, sequence.clone(), SequenceNumberCounter::default())
            .use_cache(Arc::new(Cache::with_capacity_bytes(cache_content_bytes(cache_bytes))))
            .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
            .use_descriptor_table(Some(Arc::new(DescriptorTable::new(OPEN_FILES_MAX))))
            // Young tables live shortly: compressing them costs more than it saves.
            .data_block_compression_policy(CompressionPolicy::new([
                CompressionType::None,
                CompressionType::None,
                CompressionType::Lz4,
            ]))
            .filter_policy(FilterPolicy::all(bloom(10.0)))
            .with_compaction_filter_factory(Some(Arc::new(StopFactory(Arc::clone(&stopping)))))
            .open()?;
        let highest = tree.get_highest_seqno().unwrap_or(0);
        sequence.fetch_max(highest + 1);
        Ok(Self {
            lsm: tree,
            published: AtomicU64::new(sequence.get()),
            sequence,
            pins: Mutex::default(),
            strategy: Arc::new(Leveled::default().with_table_target_size(table_bytes)),
            stopping,
        })
    }

    /// The sequence number for the next batch. Only the committer asks.
    pub(super) fn next_sequence(&self) -> SeqNo {
        self.sequence.next()
    }

    /// Puts a batch into the memtable. Nobody sees it before [`Tree::publish`]. Answers the memtable's size.
    /// Of several changes of one key the last counts.
    pub(super) fn apply(&self, sequence: SeqNo, changes: impl Iterator<Item = Change>) -> u64 {
        // Only the committer seals memtables, so this one stays the active one meanwhile.
        let memtable = self.lsm.active_memtable();
        for Change { key, value } in changes {
            let entry = match value {
                Some(value) => InternalValue::from_components(key, value, sequence, ValueType::Value),
                None => InternalValue::new_tombstone(key, sequence),
            };
            memtable.insert(entry);
        }
        memtable.size()
    }

    pub(super) fn publish(&self, sequence: SeqNo) {
        self.published.fetch_max(sequence + 1, Ordering::AcqRel);
    }

    /// For replaying a journal: as if the batch were committed now, under its old number.
    pub(super) fn replay(&self, sequence: SeqNo, mut changes: Vec<Change>) {
        self.sequence.fetch_max(sequence + 1);
        // As the committer does. The order among changes of one key stays.
        changes.sort_by(|one, other| one.key.cmp(&other.key));
        self.apply(sequence, changes.into_iter());
        self.publish(sequence);
    }

    /// Seals the memtable, if it holds anything.
    pub(super) fn seal_memtable(&self) -> bool {
        self.lsm.rotate_memtable().is_some()
    }

    pub(super) fn sealed_memtables(&self) -> usize {
        self.lsm.sealed_memtable_count()
    }

    pub(super) fn memtable_bytes(&self) -> u64 {
        self.lsm.active_memtable().size()
    }

    pub(super) fn young_runs(&self) -> usize {
        self.lsm.l0_run_count()
    }

    /// Writes all sealed memtables to tables.
    pub(super) fn flush(&self) -> Result<(), lsm_tree::Error> {
        let lock = self.lsm.get_flush_lock();
        self.lsm.flush(&lock, self.oldest_readable())?;
        Ok(())
    }

    /// Merges what is due; answers whether there was anything to do.
    pub(super) fn compact(&self) -> Result<bool, lsm_tree::Error> {
        let before = self.lsm.current_version().id();
        self.lsm
            .compact(Arc::clone(&self.strategy) as Arc<dyn CompactionStrategy>, self.oldest_readable())?;
        Ok(self.lsm.current_version().id() != before)
    }

    /// Lets go of table lists, and thereby of memtables and files, that no reader can need any more.
    /// `idle` says that no batch is being applied, so that all numbers given out so far may be read.
    pub(super) fn collect(&self, idle: bool) -> Result<(), lsm_tree::Error> {
        if idle {
            self.published.fetch_max(self.sequence.get(), Ordering::AcqRel);
        }
        let oldest = self.oldest_readable();
        let path = &self.lsm.tree_config().path;
        self.lsm.get_version_history_lock().maintenance(path, oldest)
    }

    /// How many outdated lists of tables are kept for readers.
    #[cfg(test)]
    pub(super) fn kept_lists(&self) -> usize {
        self.lsm.version_free_list_len()
    }

    /// Drops tables that hold nothing but entries of this slot.
    pub(super) fn drop_slot_tables(&self, slot: Slot) -> Result<(), lsm_tree::Error> {
        let (start, end) = slot.range(&KeyRange::all());
        let version = self.lsm.current_version();
        let inside = |range: &lsm_tree::KeyRange| range.min()[..] >= start[..] && range.max()[..] < end[..];
        // Without this look even dropping nothing would write a new list of tables.
        if version.iter_tables().any(|table| inside(&table.metadata.key_range)) {
            self.lsm.drop_range(start..end)?;
        }
        Ok(())
    }

    /// Makes running merges give up, so that closing does not wait for them.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The newest value, for the committer, which is the only writer.
    pub(super) fn get_newest(&self, key: &[u8]) -> Result<Option<Bytes>, Fault> {
        guarded(|| Ok(self.lsm.get(key, SeqNo::MAX)?.map(Bytes::from)))
    }

    pub(super) fn pin(&self) -> Pin<'_> {
        let mut pins = self.pins.lock();
        let sequence = self.published.load(Ordering::Acquire);
        *pins.readers.entry(sequence).or_insert(0) += 1;
        Pin { tree: self, sequence }
    }

    /// Keeps the moment of a pin readable until the deadline.
    pub(super) fn lease(&self, pin: &Pin<'_>, deadline: Instant) -> LeaseId {
        let mut pins = self.pins.lock();
        let id = pins.next_lease;
        pins.next_lease += 1;
        pins.leases.insert(id, Lease { sequence: pin.sequence, deadline });
        *pins.readers.entry(pin.sequence).or_insert(0) += 1;
        LeaseId(id)
    }

    /// Pins the moment of a lease, unless its time is over.
    pub(super) fn pin_lease(&self, lease: LeaseId) -> Result<Pin<'_>, StoreError> {
        let mut pins = self.pins.lock();
        let lease = pins.leases.get(&lease.0).ok_or(StoreError::SnapshotExpired)?;
        if Instant::now() >= lease.deadline {
            return Err(StoreError::SnapshotExpired);
        }
        let sequence = lease.sequence;
        *pins.readers.entry(sequence).or_insert(0) += 1;
        Ok(Pin { tree: self, sequence })
    }

    pub(super) fn end_lease(&self, lease: LeaseId) {
        let mut pins = self.pins.lock();
        if let Some(lease) = pins.leases.remove(&lease.0) {
            pins.release(lease.sequence);
        }
    }

    /// Paths and recorded checksums of all tables.
    pub(super) fn tables(&self) -> Vec<(std::path::PathBuf, u128)> {
        let version = self.lsm.current_version();
        version.iter_tables().map(|table| (table.path.to_path_buf(), table.checksum().into_u128())).collect()
    }

    /// An estimate of the slot's share of the tables: a table that holds several slots counts in parts.
    pub(super) fn table_bytes(&self, slot: Slot) -> u64 {
        let slot_of = |key: &[u8]| key.first_chunk::<4>().map_or(0, |slot| u32::from_be_bytes(*slot));
        let version = self.lsm.current_version();
        let shares = version.iter_tables().filter_map(|table| {
            let range = &table.metadata.key_range;
            let (first, last) = (slot_of(range.min()), slot_of(range.max()));
            let slots = u64::from(last.saturating_sub(first)) + 1;
            (first..=last).contains(&slot.0).then(|| table.metadata.file_size / slots)
        });
        shares.sum()
    }

    /// Below this number nobody reads, now or later.
    fn oldest_readable(&self) -> SeqNo {
        let mut pins = self.pins.lock();
        pins.end_expired(Instant::now());
        let published = self.published.load(Ordering::Acquire);
        let oldest = pins.readers.first_key_value().map_or(published, |(sequence, _)| *sequence);
        // One less than necessary, as the tree's own users do: a number too low only keeps a little more.
        oldest.min(published).saturating_sub(1)
    }
}

impl Pins {
    fn release(&mut self, sequence: SeqNo) {
        if let Some(count) = self.readers.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                self.readers.remove(&sequence);
            }
        }
    }

    fn end_expired(&mut self, now: Instant) {
        // A little later than the deadline, which readers check themselves under the same lock.
        let expired = |lease: &Lease| now.saturating_duration_since(lease.deadline) > Duration::ZERO;
        let ids: Vec<u64> =
            self.leases.iter().filter(|(_, lease)| expired(lease)).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(lease) = self.leases.remove(&id) {
                self.release(lease.sequence);
            }
        }
    }
}

impl Pin<'_> {
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Fault> {
        guarded(|| Ok(self.tree.lsm.get(key, self.sequence)?.map(Bytes::from)))
    }

    /// One page of a slot's range.
    pub(super) fn scan(&self, slot: Slot, scan: &Scan) -> Result<ReadPage, Fault> {
        if scan.range.is_empty() {
            return Ok(ReadPage::default());
        }
        let (start, end) = slot.range(&scan.range);
        self.scan_full(start, end, scan)
    }

    /// One page between two keys of the tree; entries come without the slot's bytes.
    pub(super) fn scan_full(&self, start: Bytes, end: Bytes, scan: &Scan) -> Result<ReadPage, Fault> {
        guarded(|| {
            let bounds = (Bound::Included(start), Bound::Excluded(end));
            let range = self.tree.lsm.range::<Bytes, _>(bounds, self.sequence, None);
            match scan.direction {
                Direction::Forward => collect_page(range, scan),
                Direction::Backward => collect_page(range.rev(), scan),
            }
        })
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.tree.pins.lock().release(self.sequence);
    }
}

/// A failed read of the tree.
#[derive(Debug)]
pub(super) enum Fault {
    /// A table holds something else than was written into it.
    Damaged(String),
    Io(String),
}

impl From<lsm_tree::Error> for Fault {
    fn from(error: lsm_tree::Error) -> Self {
        use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        match error {
            // A table that is shorter than its index says, points nowhere, or cannot be read by its device.
            lsm_tree::Error::Io(error)
                if matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
                    || error.raw_os_error() == Some(EIO) =>
            {
                Self::Damaged(error.to_string())
            }
            lsm_tree::Error::Io(error) => Self::Io(error.to_string()),
            other => Self::Damaged(format!("{other:?}")),
        }
    }
}

/// The tree checks its blocks, but where a check is missing a damaged table may also make it panic.
fn guarded<T>(read: impl FnOnce() -> Result<T, lsm_tree::Error>) -> Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result.map_err(Fault::from),
        Err(payload) => Err(Fault::Damaged(format!("reading panicked: {}", panic_text(payload.as_ref())))),
    }
}

fn collect_page(
    range: impl Iterator<Item = lsm_tree::IterGuardImpl>,
    scan: &Scan,
) -> Result<ReadPage, lsm_tree::Error> {
    let mut page = ReadPage::default();
    let mut bytes = 0;
    for guard in range {
        if page.entries.len() >= scan.entries_max || (bytes >= scan.bytes_max && !page.entries.is_empty()) {
            page.more = true;
            // The next entry may be unreadable; the page before it is whole all the same.
            break;
        }
        let entry = match scan.want {
            Want::Keys => Entry { key: Slot::strip(&guard.key()?), value: Bytes::new() },
            Want::KeysAndValues => {
                let (key, value) = guard.into_inner()?;
                Entry { key: Slot::strip(&key), value: Bytes::from(value) }
            }
        };
        bytes += entry.key.len() + entry.value.len();
        page.entries.push(entry);
    }
    Ok(page)
}

/// A filter that keeps everything and ends a merge with an error once the store is closing: merges cannot be
/// cancelled otherwise. What they had written is cleaned up when the tree is opened again.
struct StopFactory(Arc<AtomicBool>);

struct StopFilter(Arc<AtomicBool>);

impl Factory for StopFactory {
    fn name(&self) -> &'static str {
        "stop"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(StopFilter(Arc::clone(&self.0)))
    }
}

impl CompactionFilter for StopFilter {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> Result<Verdict, lsm_tree::Error> {
        if self.0.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("the store is closing").into());
        }
        Ok(Verdict::Keep)
    }
}
