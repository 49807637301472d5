//! The LSM tree, and the pins that keep a point in time readable.
//!
//! `lsm-tree` (the tree inside fjall) manages memtables, tables and merges; the journal, group commit, snapshots and
//! background threads are ours. fjall's own database layer was tried first and rejected: its journal silently truncates
//! itself at the first damaged byte, is rotated only beyond 64 MB (seconds of replay at our entry sizes), and its
//! background threads can move the visible sequence number past a batch that is still being applied.
//!
//! A batch is applied under one sequence number; readers see it once that number is *published*. A reader pins the
//! number it reads at, so that no merge or clean-up removes what it can still see. A snapshot's pin is a lease: it
//! expires with the snapshot's maximum age, whether or not the snapshot was dropped.

use std::collections::{BTreeMap, BTreeSet};
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

use orrery_env::monotonic;

use super::condition::is_fullness;
use super::deferred::{Changes, DEFERRED_MAX, Deferred};
use super::journal::Change;
use super::layout::Slot;
use super::sweep::DeadSlots;
use crate::contract::{Direction, Entry, ReadPage, Scan, StoreError, Tally, TallyPage, Want};
use crate::transaction::panic_text;

/// Table files kept open. Well below the usual limit of 1,024 descriptors per process, which sockets share.
const OPEN_FILES_MAX: usize = 256;

/// A data block ends with the entry that reaches this size. With that entry and its trailer, a block of index entries
/// takes 4 KB of memory; slightly more would take 5 KB, the allocator's next size class.
const BLOCK_BYTES: u32 = 3840;

/// The capacity to configure for a given memory budget. The cache counts only block contents; allocator rounding, its
/// own table and fragmentation after evictions add half as much again.
fn cache_content_bytes(cache_bytes: u64) -> u64 {
    cache_bytes / 3 * 2
}

/// Most merges of young tables per call.
const MERGE_YOUNG_ROUNDS: usize = 4;

/// "Input/output error", for which `io::ErrorKind` has no variant.
const EIO: i32 = 5;

pub(super) struct Tree {
    lsm: AnyTree,
    sequence: SequenceNumberCounter,
    /// Readers see everything below this number.
    published: AtomicU64,
    pins: Mutex<Pins>,
    /// Part of the active memtable that is not in its order yet.
    deferred: Deferred,
    strategy: Arc<dyn CompactionStrategy + Send + Sync>,
    /// Merges young tables however few there are, for the sweep.
    young_strategy: Arc<dyn CompactionStrategy + Send + Sync>,
    dead_slots: Arc<DeadSlots>,
    stopping: Arc<AtomicBool>,
    /// The target size of a merged table.
    table_bytes_max: u64,
}

#[derive(Default)]
struct Pins {
    /// Number of readers per sequence number.
    readers: BTreeMap<SeqNo, usize>,
    leases: BTreeMap<u64, Lease>,
    next_lease: u64,
}

struct Lease {
    sequence: SeqNo,
    deadline: Instant,
}

/// Keeps one sequence number readable while a read runs.
pub(super) struct Pin<'a> {
    tree: &'a Tree,
    sequence: SeqNo,
}

/// A pin that expires. Each read through it takes its own pin.
#[derive(Clone, Copy)]
pub(super) struct LeaseId(u64);

impl Tree {
    pub(super) fn open(path: &Path, cache_bytes: u64, table_bytes: u64) -> Result<Self, lsm_tree::Error> {
        let sequence = SequenceNumberCounter::new(1);
        let stopping = Arc::new(AtomicBool::new(false));
        let dead_slots = Arc::new(DeadSlots::default());
        let filters = FilterFactory {
            stopping: Arc::clone(&stopping),
            dead_slots: AssertUnwindSafe(Arc::clone(&dead_slots)),
        };
        let bloom = |bits| FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits));
        let tree = Config::new(path, sequence.clone(), SequenceNumberCounter::default())
            .use_cache(Arc::new(Cache::with_capacity_bytes(cache_content_bytes(cache_bytes))))
            .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
            .use_descriptor_table(Some(Arc::new(DescriptorTable::new(OPEN_FILES_MAX))))
            // Young tables are short-lived: compressing them costs more than it saves.
            .data_block_compression_policy(CompressionPolicy::new([
                CompressionType::None,
                CompressionType::None,
                CompressionType::Lz4,
            ]))
            .filter_policy(FilterPolicy::all(bloom(10.0)))
            .with_compaction_filter_factory(Some(Arc::new(filters)))
            .open()?;
        let highest = tree.get_highest_seqno().unwrap_or(0);
        // Never assign a number that a table already contains, even if the journals are gone.
        sequence.fetch_max(highest + 1);
        Ok(Self {
            lsm: tree,
            published: AtomicU64::new(sequence.get()),
            sequence,
            pins: Mutex::default(),
            deferred: Deferred::default(),
            strategy: Arc::new(Leveled::default().with_table_target_size(table_bytes)),
            young_strategy: Arc::new(
                Leveled::default().with_l0_threshold(1).with_table_target_size(table_bytes),
            ),
            dead_slots,
            stopping,
            table_bytes_max: table_bytes,
        })
    }

    /// Assigns the sequence number of the next batch. Called by the committer only.
    pub(super) fn next_sequence(&self) -> SeqNo {
        self.sequence.next()
    }

    /// Adds a batch to the memtable. The batch is invisible until [`Tree::publish`]. Of several changes of one key the
    /// last wins.
    pub(super) fn apply(&self, sequence: SeqNo, changes: Changes) {
        let Changes { memory, direct, deferrable, bounds } = changes;
        self.insert(sequence, direct.iter().map(|span| span.change(&memory)));
        if deferrable.is_empty() {
            return;
        }
        self.deferred.add(sequence, memory, deferrable, &bounds);
        // By the committer, during the fsync of this group if `settles_with` has foreseen it.
        if self.deferred.changes() > DEFERRED_MAX {
            self.settle();
        }
    }

    /// Whether applying so many more changes also inserts those that were deferred.
    pub(super) fn settles_with(&self, changes: usize) -> bool {
        self.deferred.changes() + changes > DEFERRED_MAX
    }

    fn insert(&self, sequence: SeqNo, changes: impl Iterator<Item = Change>) {
        // Only the committer seals memtables, so this one stays active for the whole batch.
        let memtable = self.lsm.active_memtable();
        for change in changes {
            memtable.insert(internal_value(sequence, change));
        }
    }

    /// Inserts what was deferred. It belongs to the active memtable, because sealing settles first.
    fn settle(&self) {
        self.deferred.settle(|| {
            let memtable = self.lsm.active_memtable();
            move |sequence, change| {
                memtable.insert(internal_value(sequence, change));
            }
        });
    }

    /// Makes a batch visible. Called by the committer only, batch by batch.
    pub(super) fn publish(&self, sequence: SeqNo) {
        let before = self.published.fetch_max(sequence + 1, Ordering::AcqRel);
        assert!(before <= sequence, "sequence numbers are published in order: {sequence} after {before}");
    }

    /// Applies a batch from a journal under its original number. The tree may already contain it: a crash can happen
    /// between writing the table and deleting the journal.
    pub(super) fn replay(&self, sequence: SeqNo, mut changes: Vec<Change>) {
        self.sequence.fetch_max(sequence + 1);
        // A stable sort, as in the committer: changes of one key keep their order.
        changes.sort_by(|one, other| one.key.cmp(&other.key));
        self.insert(sequence, changes.into_iter());
        self.published.fetch_max(sequence + 1, Ordering::AcqRel);
    }

    /// Seals the memtable unless it is empty. Called by the committer, so that nothing is deferred meanwhile.
    pub(super) fn seal_memtable(&self) -> bool {
        // Deferred changes belong to this memtable; its journal goes when it is flushed.
        self.settle();
        self.lsm.rotate_memtable().is_some()
    }

    pub(super) fn sealed_memtables(&self) -> usize {
        self.lsm.sealed_memtable_count()
    }

    pub(super) fn memtable_bytes(&self) -> u64 {
        let deferred = self.deferred.bytes() + self.deferred.changes() * size_of::<InternalValue>();
        self.lsm.active_memtable().size() + deferred as u64
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

    /// Runs one due merge; returns whether there was one.
    pub(super) fn compact(&self) -> Result<bool, lsm_tree::Error> {
        self.compact_by(&self.strategy)
    }

    fn compact_by(
        &self,
        strategy: &Arc<dyn CompactionStrategy + Send + Sync>,
    ) -> Result<bool, lsm_tree::Error> {
        // The tree does not report whether it merged anything, but every merge creates a new version.
        let before = self.lsm.current_version().id();
        self.lsm.compact(Arc::clone(strategy) as Arc<dyn CompactionStrategy>, self.oldest_readable())?;
        Ok(self.lsm.current_version().id() != before)
    }

    /// Frees table lists, and with them memtables and files, that no reader needs.
    /// `idle` = no batch is being applied, so every number assigned so far may be published.
    pub(super) fn collect(&self, idle: bool) -> Result<(), lsm_tree::Error> {
        if idle {
            self.published.fetch_max(self.sequence.get(), Ordering::AcqRel);
        }
        let oldest = self.oldest_readable();
        let path = &self.lsm.tree_config().path;
        self.lsm.get_version_history_lock().maintenance(path, oldest)
    }

    /// Outdated table lists retained for readers.
    #[cfg(test)]
    pub(super) fn kept_lists(&self) -> usize {
        self.lsm.version_free_list_len()
    }

    /// Slots whose entries merges discard.
    pub(super) fn dead_slots(&self) -> &DeadSlots {
        &self.dead_slots
    }

    /// Merges all young tables, even if there are few.
    pub(super) fn merge_young(&self) -> Result<(), TreeError> {
        // Each round merges all current young tables. Bounded, because new ones keep appearing under load.
        for _ in 0..MERGE_YOUNG_ROUNDS {
            if self.young_runs() == 0 || !self.compact_by(&self.young_strategy)? {
                break;
            }
        }
        Ok(())
    }

    /// Merges everything into new tables.
    pub(super) fn rewrite(&self) -> Result<(), TreeError> {
        Ok(self.lsm.major_compact(self.table_bytes_max, self.oldest_readable())?)
    }

    /// The size of all tables.
    pub(super) fn tables_bytes(&self) -> u64 {
        self.lsm.current_version().iter_tables().map(|table| table.metadata.file_size).sum()
    }

    /// Drops tables that contain nothing of a live partition. A partition is listed before its first entry is written,
    /// so a slot missing from `live` is dead or still empty.
    pub(super) fn drop_dead_tables(&self, live: &BTreeSet<u32>) -> Result<(), TreeError> {
        let version = self.lsm.current_version();
        let slots = version.iter_tables().map(|table| {
            let range = &table.metadata.key_range;
            (slot_of(range.min()), slot_of(range.max()))
        });
        let dead = slots
            .filter(|(first, last)| *first != Slot::STORE.0 && live.range(first..=last).next().is_none());
        // Join neighbours, so that one new table list covers many tables.
        let mut spans: Vec<(u32, u32)> = dead.collect();
        spans.sort_unstable();
        spans.dedup_by(|next, span| {
            let joined = live.range(span.0..=next.1).next().is_none();
            if joined {
                span.1 = span.1.max(next.1);
            }
            joined
        });
        for (first, last) in spans {
            self.lsm.drop_range(Slot(first).key(&[])..Slot(last + 1).key(&[]))?;
        }
        Ok(())
    }

    /// Aborts running merges, so that closing does not wait for them.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn settle_near_key(&self, key: &[u8]) {
        if self.deferred.is_near_key(key) {
            self.settle();
        }
    }

    fn settle_near_range(&self, start: &[u8], end: &[u8]) {
        if self.deferred.is_near_range(start, end) {
            self.settle();
        }
    }

    /// The newest value, published or not. For the committer, which is the only writer.
    pub(super) fn get_newest(&self, key: &[u8]) -> Result<Option<Bytes>, TreeError> {
        self.settle_near_key(key);
        guarded(|| Ok(self.lsm.get(key, SeqNo::MAX)?.map(Bytes::from)))
    }

    pub(super) fn pin(&self) -> Pin<'_> {
        // Loaded under the lock: `oldest_readable` must not run between reading the number and pinning it.
        let mut pins = self.pins.lock();
        let sequence = self.published.load(Ordering::Acquire);
        *pins.readers.entry(sequence).or_insert(0) += 1;
        Pin { tree: self, sequence }
    }

    /// Keeps a pinned sequence number readable until the deadline.
    pub(super) fn lease(&self, pin: &Pin<'_>, deadline: Instant) -> LeaseId {
        let mut pins = self.pins.lock();
        let id = pins.next_lease;
        pins.next_lease += 1;
        pins.leases.insert(id, Lease { sequence: pin.sequence, deadline });
        *pins.readers.entry(pin.sequence).or_insert(0) += 1;
        LeaseId(id)
    }

    /// Pins a lease's sequence number, unless the lease has expired.
    pub(super) fn pin_lease(&self, lease: LeaseId) -> Result<Pin<'_>, StoreError> {
        let mut pins = self.pins.lock();
        let lease = pins.leases.get(&lease.0).ok_or(StoreError::SnapshotExpired)?;
        if monotonic::now() >= lease.deadline {
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

    /// Paths and expected checksums of all tables.
    pub(super) fn tables(&self) -> Vec<(std::path::PathBuf, u128)> {
        let version = self.lsm.current_version();
        version.iter_tables().map(|table| (table.path.to_path_buf(), table.checksum().into_u128())).collect()
    }

    /// Estimates the slot's share of the tables: a table with several slots counts for each in equal parts.
    pub(super) fn table_bytes(&self, slot: Slot) -> u64 {
        let version = self.lsm.current_version();
        let shares = version.iter_tables().filter_map(|table| {
            let range = &table.metadata.key_range;
            let (first, last) = (slot_of(range.min()), slot_of(range.max()));
            let slots = u64::from(last.saturating_sub(first)) + 1;
            (first..=last).contains(&slot.0).then(|| table.metadata.file_size / slots)
        });
        shares.sum()
    }

    /// No current or future reader needs anything below this number.
    fn oldest_readable(&self) -> SeqNo {
        let mut pins = self.pins.lock();
        pins.end_expired(monotonic::now());
        let published = self.published.load(Ordering::Acquire);
        let oldest = pins.readers.first_key_value().map_or(published, |(sequence, _)| *sequence);
        // One less than necessary, as fjall does: too low a number only retains a little more.
        oldest.min(published).saturating_sub(1)
    }
}

impl Pins {
    fn release(&mut self, sequence: SeqNo) {
        let Some(count) = self.readers.get_mut(&sequence) else {
            // Runs in `drop`, where a panic could abort the process.
            debug_assert!(false, "sequence number {sequence} is released more often than it was pinned");
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.readers.remove(&sequence);
        }
    }

    fn end_expired(&mut self, now: Instant) {
        // Strictly after the deadline, which readers check themselves under the same lock.
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
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TreeError> {
        self.tree.settle_near_key(key);
        guarded(|| Ok(self.tree.lsm.get(key, self.sequence)?.map(Bytes::from)))
    }

    /// One page of a slot's range.
    pub(super) fn scan(&self, slot: Slot, scan: &Scan) -> Result<ReadPage, TreeError> {
        if scan.range.is_empty() {
            return Ok(ReadPage::default());
        }
        let (start, end) = slot.range(&scan.range);
        self.scan_full(start, end, scan)
    }

    /// Counts the entries of a slot's range.
    pub(super) fn tally(&self, slot: Slot, tally: &Tally) -> Result<ReadPage, TreeError> {
        if tally.range.is_empty() {
            return Ok(ReadPage::default());
        }
        let (start, end) = slot.range(&tally.range);
        self.tree.settle_near_range(&start, &end);
        guarded(|| {
            let bounds = (Bound::Included(start), Bound::Excluded(end));
            let mut page = TallyPage::new(tally);
            for guard in self.tree.lsm.range::<Bytes, _>(bounds, self.sequence, None) {
                // As in a scan, the next entry is not touched.
                if page.is_full() || !page.count(Slot::split(&guard.key()?).1) {
                    return Ok(page.finish(true));
                }
            }
            Ok(page.finish(false))
        })
    }

    /// One page between two keys of the tree; the slot is stripped from the entries' keys.
    pub(super) fn scan_full(&self, start: Bytes, end: Bytes, scan: &Scan) -> Result<ReadPage, TreeError> {
        self.tree.settle_near_range(&start, &end);
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

/// Why reading or writing the tree failed.
#[derive(Debug)]
pub(super) enum TreeError {
    /// A table's content is not what was written.
    Damaged(String),
    /// The disk has no space.
    Full(String),
    Io(String),
}

impl From<lsm_tree::Error> for TreeError {
    fn from(error: lsm_tree::Error) -> Self {
        use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        match error {
            // A table that is shorter than its index says, has an invalid offset, or that the device cannot read.
            lsm_tree::Error::Io(error)
                if matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
                    || error.raw_os_error() == Some(EIO) =>
            {
                Self::Damaged(error.to_string())
            }
            lsm_tree::Error::Io(error) if is_fullness(&error) => Self::Full(error.to_string()),
            lsm_tree::Error::Io(error) => Self::Io(error.to_string()),
            other => Self::Damaged(format!("{other:?}")),
        }
    }
}

/// The tree verifies its blocks, but a damaged table can also make it panic where a check is missing.
fn guarded<T>(read: impl FnOnce() -> Result<T, lsm_tree::Error>) -> Result<T, TreeError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result.map_err(TreeError::from),
        Err(payload) => {
            Err(TreeError::Damaged(format!("reading panicked: {}", panic_text(payload.as_ref()))))
        }
    }
}

fn internal_value(sequence: SeqNo, change: Change) -> InternalValue {
    let Change { key, value } = change;
    match value {
        Some(value) => InternalValue::from_components(key, value, sequence, ValueType::Value),
        None => InternalValue::new_tombstone(key, sequence),
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
            // Do not touch the next entry: it may be unreadable, and the page before it is complete.
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

/// The slot in a key of the tree.
fn slot_of(key: &[u8]) -> u32 {
    key.first_chunk::<4>().map_or(0, |slot| u32::from_be_bytes(*slot))
}

/// Creates the compaction filter of each merge.
struct FilterFactory {
    stopping: Arc<AtomicBool>,
    dead_slots: AssertUnwindSafe<Arc<DeadSlots>>,
}

/// Discards entries of dead slots, and aborts the merge with an error once the store is closing: there is no other
/// way to cancel a merge. Its partial output is removed when the tree is opened again.
struct MergeFilter {
    stopping: Arc<AtomicBool>,
    /// The slots that were dead when the merge started.
    dead_slots: Arc<BTreeSet<u32>>,
}

impl Factory for FilterFactory {
    fn name(&self) -> &'static str {
        "dead slots"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(MergeFilter { stopping: Arc::clone(&self.stopping), dead_slots: self.dead_slots.all() })
    }
}

impl CompactionFilter for MergeFilter {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> Result<Verdict, lsm_tree::Error> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("the store is closing").into());
        }
        // Pinned readers still use the tables from before the merge. An older version of the entry may become visible
        // in a lower table; its slot is just as dead.
        if !self.dead_slots.is_empty() && self.dead_slots.contains(&slot_of(item.key())) {
            return Ok(Verdict::Destroy);
        }
        Ok(Verdict::Keep)
    }
}
