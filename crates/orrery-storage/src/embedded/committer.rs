//! The committer: the only thread that writes.
//!
//! It takes all pending operations, of any partition, and runs their decisions in order over an overlay of the
//! group's earlier writes. The group becomes one journal record, together with the new LSNs of all partitions it
//! touched. The record is fsynced once, applied to the tree and published; only then are the callers answered.
//! The next group gathers during the fsync, so the disk's latency sets the group size and there is no timer.
//! A large group is applied while it is being fsynced: readers see nothing of it before it is published.
//!
//! A rejected operation waits for the fsync too, because its decision may rest on writes of its own group that are
//! not durable yet.
//!
//! If the fsync fails, the state on disk is unknown and the store takes writes offline: the group's operations end
//! as unknown, all later ones as unavailable. A broken invariant (an assertion on this path) does the same, rather
//! than continue on doubtful state.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;

use orrery_env::monotonic;

use super::Durability;
use super::background;
use super::checkpoint::{self, LinkedJournal};
use super::condition::is_fullness;
use super::journal::Journal;
use super::layout::{self, PartitionRecord, Slot};
use super::overlay::Overlay;
use super::shared::{Partition, Reply, Shared, Task};
use super::syncer::Syncer;
use super::watchdog;
use crate::contract::{CommitError, ErasedOp, Lsn, PartitionId, PartitionRef, StoreError, WriteSet};
use crate::transaction::{self, panic_text};

/// Bounds of a group, so that its first member does not wait forever. Far above what gathers during an fsync.
const GROUP_TASKS_MAX: usize = 1024;
const GROUP_BYTES_MAX: usize = 8 << 20;

/// Most memory preallocated for a group.
const PREALLOCATED_BYTES_MAX: usize = 1 << 20;

/// Groups this large overlap the fsync with the memtable insert. Below, waking the other thread costs more.
const OVERLAP_CHANGES_MIN: usize = 800;

/// The committer checks the free disk space each time it has written this much.
const WATCHED_BYTES: usize = 1 << 20;

/// How often the time is recorded in the journal, for restoring to a point in time.
const TIME_STEP_MS: u64 = 10;

/// Most that a write may put and still count as a removal.
const REMOVAL_PUT_BYTES_MAX: usize = 16 << 10;

pub(super) struct Committer {
    shared: Arc<Shared>,
    journal: Journal,
    syncer: Syncer,
    next_slot: u32,
    short_keys: ShortKeys,
    /// The size of the last group's record: the next one is likely to need as much.
    last_bytes: usize,
    /// Bytes written since the free disk space was last checked.
    unwatched_bytes: usize,
    /// When the oldest write without an fsync was made, under relaxed durability.
    unflushed_since: Option<Instant>,
    /// The time that was last recorded in the journal.
    time_ms: i64,
}

/// The group that is being built.
struct Group {
    overlay: Overlay,
    /// Partitions whose record changes.
    records: HashMap<PartitionId, (Arc<Partition>, PartitionRecord)>,
    /// Becomes visible once the group is durable.
    created: Vec<Arc<Partition>>,
    destroyed: Vec<(PartitionId, Slot)>,
    next_slot: Option<u32>,
    replies: Vec<PendingReply>,
}

/// A cache of the newest values of short keys, including absent ones. Operations keep reading the same few marker
/// keys of their partition, which rarely exist, and proving a key absent from every table is the slowest kind of
/// read. All writes pass through the committer, so the cache is never stale.
#[derive(Default)]
struct ShortKeys(HashMap<Bytes, Option<Bytes>>);

impl ShortKeys {
    /// Longest key that is cached, including the four bytes of its slot.
    const BYTES_MAX: usize = 8;
    const KEYS_MAX: usize = 4096;
    const VALUE_BYTES_MAX: usize = 256;

    /// `key` includes the slot.
    fn remember(&mut self, key: &[u8], value: Option<&[u8]>) {
        if key.len() > Self::BYTES_MAX {
            return;
        }
        if value.is_some_and(|value| value.len() > Self::VALUE_BYTES_MAX) {
            self.0.remove(key);
        } else {
            if self.0.len() >= Self::KEYS_MAX {
                self.0.clear();
            }
            // Copied, because a slice would keep the whole record alive.
            self.0.insert(Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice));
        }
    }
}

/// Why writing a group to the journal failed.
struct WriteError {
    error: std::io::Error,
    /// The record was written but the fsync failed, so it may or may not be on disk.
    flushing: bool,
}

/// The reply to a caller, held back until the group is durable or has failed.
enum PendingReply {
    /// The flag says whether the operation writes, in which case a failure leaves it in doubt.
    Commit(oneshot::Sender<Result<Lsn, CommitError>>, Result<Lsn, CommitError>, bool),
    Done(Reply<()>, Result<(), StoreError>),
    Retired(Reply<Lsn>, Result<Lsn, StoreError>),
    Deleted(Reply<usize>, Result<usize, StoreError>),
    /// For the sweeper.
    Swept,
}

impl Committer {
    pub(super) fn new(shared: Arc<Shared>, journal: Journal, next_slot: u32) -> std::io::Result<Self> {
        Ok(Self {
            shared,
            journal,
            syncer: Syncer::start()?,
            next_slot,
            short_keys: ShortKeys::default(),
            last_bytes: 0,
            unwatched_bytes: 0,
            unflushed_since: None,
            time_ms: 0,
        })
    }

    /// The thread's main function.
    pub(super) fn run(mut self) {
        // A panic must not leave callers waiting: the queue is refused below, whatever happened.
        let result = catch_unwind(AssertUnwindSafe(|| self.serve()));
        if let Err(payload) = result {
            let text = panic_text(payload.as_ref());
            self.shared.fail(&format!("the committer panicked: {text}"));
        }
        // Relaxed durability: flush what was acknowledged before its fsync.
        if !self.shared.health.is_failed() && self.journal.seal().is_err() {
            tracing::error!("the last fsync of the journal failed at shutdown");
        }
        // A failed store stays failed; it must not look as if it had been closed cleanly.
        if !self.shared.health.is_failed() {
            self.shared.health.close();
        }
        // After this no task can be queued, so none is left without an answer.
        for task in self.shared.queue.close() {
            refuse(task, &self.shared);
        }
        self.shared.wake_everyone();
    }

    /// Serves groups until the store is closed or fails.
    fn serve(&mut self) {
        loop {
            self.shared.threads.committer.set("idle");
            self.shared.threads.group_ended();
            // Blocks until there is work. Whatever arrives during the fsync of this group forms the next.
            let tasks = self.shared.queue.take(GROUP_TASKS_MAX, self.flush_wait());
            self.shared.threads.group_began();
            self.shared.threads.committer.set("deciding and writing a group");
            if self.shared.health.is_failed() || self.shared.background.is_stopping() {
                for task in tasks {
                    refuse(task, &self.shared);
                }
                return;
            }
            // Normally one group; several if the tasks exceed the byte limit of a group.
            let mut tasks = tasks.into_iter();
            while tasks.len() > 0 {
                if let Some(close) = self.run_group(&mut tasks) {
                    // Requests to close are answered after everything queued before them is durable.
                    let result = self.finish();
                    if !self.shared.health.is_failed() {
                        self.shared.health.close();
                    }
                    send(close, result);
                    for task in tasks {
                        refuse(task, &self.shared);
                    }
                    return;
                }
            }
            if let Err(error) = self.flush_if_due() {
                self.shared.fail(&format!("fsync of the journal failed: {error}"));
                return;
            }
        }
    }

    /// Runs one group from the tasks; returns the close request if it reaches one.
    fn run_group(&mut self, tasks: &mut std::vec::IntoIter<Task>) -> Option<Reply<()>> {
        let mut group = Group::with_capacity(self.last_bytes.min(PREALLOCATED_BYTES_MAX));
        let mut close = None;
        let mut collect = false;
        let mut checkpoints = Vec::new();
        while group.overlay.bytes() < GROUP_BYTES_MAX {
            match tasks.next() {
                None => break,
                Some(Task::Close { reply }) => {
                    close = Some(reply);
                    break;
                }
                // Done after the group: in the middle of one its numbers are assigned but not published.
                Some(Task::Collect) => collect = true,
                Some(Task::LinkJournals { into, reply }) => checkpoints.push((into, reply)),
                Some(task) => self.run_task(&mut group, task),
            }
        }
        self.complete(group);
        // After the group, so that the journals contain every write that came before the request.
        for (into, reply) in checkpoints {
            send(reply, self.link_journals(&into));
        }
        if let Err(error) = self.seal_if_full() {
            self.shared.fail(&format!("starting a new journal failed: {error}"));
        }
        if collect && !self.shared.health.is_failed() {
            // Between two groups no batch is half applied.
            if let Err(error) = self.shared.tree.collect(true) {
                tracing::warn!(?error, "cannot remove old table lists");
            }
        }
        close
    }

    fn run_task(&mut self, group: &mut Group, task: Task) {
        let shared = Arc::clone(&self.shared);
        let reply = match task {
            Task::Commit { partition, epoch, mut op, reply } => {
                // Whatever happens next, the operation no longer waits.
                partition.leave_queue();
                let known = &mut self.short_keys;
                let result = group.commit(&shared, known, &partition, epoch, op.as_mut());
                let writes = matches!(result, Ok((_, true)));
                PendingReply::Commit(reply, result.map(|(lsn, _)| lsn), writes)
            }
            Task::Create { id, lsn, reply } => PendingReply::Done(reply, self.create(group, id, lsn)),
            Task::Retire { partition, reply } => {
                let result = group.find(&shared, partition).map(|(found, record)| {
                    // Advanced in the group's records: operations behind it in the same group are fenced already.
                    let retired = PartitionRecord { epoch: record.epoch + 1, ..record };
                    group.records.insert(found.id, (found, retired));
                    record.lsn
                });
                PendingReply::Retired(reply, result)
            }
            Task::Destroy { id, reply } => {
                group.destroy(&shared, id);
                PendingReply::Done(reply, Ok(()))
            }
            Task::Load { partition, entries, reply } => {
                let found = self.check_space().and_then(|()| group.find(&shared, partition));
                let result = found.map(|(found, _)| {
                    // No LSN: the partition does not serve requests yet.
                    for entry in entries {
                        group.overlay.put(found.slot, &entry.key, Some(&entry.value));
                    }
                });
                PendingReply::Done(reply, result)
            }
            Task::Delete { partition, keys, reply } => {
                let result = group.find(&shared, partition);
                let result = result.and_then(|(found, _)| group.delete_present(&shared, found.slot, &keys));
                PendingReply::Deleted(reply, result)
            }
            Task::Sweep { keys } => {
                for key in keys {
                    // Not counted as growth, and accepted on a full disk: it frees space.
                    group.overlay.put_full(&key, None);
                }
                PendingReply::Swept
            }
            Task::Collect | Task::LinkJournals { .. } | Task::Close { .. } => return,
        };
        group.replies.push(reply);
    }

    fn create(&mut self, group: &mut Group, id: PartitionId, lsn: Lsn) -> Result<(), StoreError> {
        self.check_space()?;
        // The children of a split exist already when they learn their LSN.
        if let Some((partition, record)) = group.current(&self.shared, id) {
            if lsn > record.lsn {
                group.records.insert(id, (partition, PartitionRecord { lsn, ..record }));
            }
            return Ok(());
        }
        // The highest slots stay free, so that the end of a slot's range can be expressed.
        if self.next_slot >= u32::MAX - 1 {
            return Err(StoreError::Unavailable("all partition slots are used".to_owned()));
        }
        let record = PartitionRecord { slot: Slot(self.next_slot), epoch: 0, lsn };
        assert!(record.slot != Slot::STORE, "slot 0 belongs to the store itself");
        self.next_slot += 1;
        group.next_slot = Some(self.next_slot);
        let partition = Arc::new(Partition::new(id, record));
        group.created.push(Arc::clone(&partition));
        group.records.insert(id, (partition, record));
        Ok(())
    }

    /// Partitions are created and loaded only while the disk has space.
    fn check_space(&self) -> Result<(), StoreError> {
        self.shared.health.fullness().map_or(Ok(()), |reason| Err(StoreError::Full(reason)))
    }

    /// Makes the group durable, publishes it and answers all callers.
    fn complete(&mut self, mut group: Group) {
        group.write_records();
        if !group.overlay.is_empty()
            && let Err(fault) = self.write(group.overlay)
        {
            let reason = format!("writing the journal failed: {}", fault.error);
            // A record that found no space can be truncated away, as if it had never been written. After a failed fsync
            // the state on disk is unknown, so it cannot.
            let undone = !fault.flushing && is_fullness(&fault.error) && self.journal.undo_append().is_ok();
            if undone {
                self.shared.health.set_full(&reason);
            } else {
                self.shared.fail(&reason);
            }
            for reply in group.replies {
                reply.fail(&self.shared, &reason, undone);
            }
            return;
        }
        // Destroy before create: a group may destroy an id and create it again.
        for (id, slot) in group.destroyed {
            self.shared.remove(id, slot);
            self.shared.tree.dead_slots().add(slot);
            self.shared.background.slot_died();
        }
        for partition in group.created {
            self.shared.insert(partition);
        }
        for (partition, record) in group.records.into_values() {
            // Published only now. Readers that see the new LSN find the writes, because
            // `write` has published those first.
            partition.advance(record);
        }
        for reply in group.replies {
            reply.send(&self.shared);
        }
    }

    fn write(&mut self, mut overlay: Overlay) -> Result<(), WriteError> {
        // The first group of a journal leaves the journal's number in the tree, so that recovery notices if one is missing.
        if self.journal.is_empty() {
            overlay.put_full(&layout::journal_key(), Some(&self.journal.number().to_be_bytes()));
        }
        // Often enough to restore to a second, seldom enough to cost nothing that can be measured.
        let now_ms = self.shared.options.env.now_ms();
        if self.journal.is_empty() || now_ms.abs_diff(self.time_ms) >= TIME_STEP_MS {
            self.time_ms = now_ms;
            overlay.put_full(&layout::time_key(), Some(&now_ms.to_be_bytes()));
        }
        self.last_bytes = overlay.bytes();
        self.unwatched_bytes += self.last_bytes;
        if self.unwatched_bytes >= WATCHED_BYTES {
            self.unwatched_bytes = 0;
            watchdog::watch_disk(&self.shared);
        }
        let sequence = self.shared.tree.next_sequence();
        let appended = self.journal.append(sequence, overlay.draft());
        appended.map_err(|error| WriteError { error, flushing: false })?;
        // Before the fsync is safe: if it fails, the committer exits and the cache with it.
        for (key, value) in overlay.changes() {
            self.short_keys.remember(key, value);
        }
        let flushing = |error| WriteError { error, flushing: true };
        let (tree, threads) = (&self.shared.tree, &self.shared.threads);
        let count = overlay.changes_count();
        let is_small = count < OVERLAP_CHANGES_MIN && !tree.settles_with(count);
        // The insert may run before the fsync has finished: readers see nothing before `publish`.
        let apply = || {
            tree.apply(sequence, overlay.into_changes());
        };
        match self.shared.options.durability {
            Durability::Always if is_small => {
                // Small groups: fsync first, then insert; handing over to the other thread would cost more.
                threads.committer.set("fsyncing the journal");
                self.journal.sync().map_err(flushing)?;
                threads.committer.set("filling the memtable");
                apply();
            }
            Durability::Always => {
                threads.committer.set("filling the memtable during an fsync");
                threads.syncer.set("fsyncing the journal");
                self.journal.sync_while(&self.syncer, apply).map_err(flushing)?;
                threads.syncer.set("idle");
            }
            Durability::Relaxed { .. } => {
                // The interval starts with the first write since the last fsync.
                self.unflushed_since.get_or_insert_with(monotonic::now);
                apply();
            }
        }
        // Durable and in the memtable: from here on readers see it.
        tree.publish(sequence);
        Ok(())
    }

    /// Links all journals, which contain every write that was acknowledged so far and is not in a table.
    fn link_journals(&mut self, into: &Path) -> Result<Vec<LinkedJournal>, StoreError> {
        self.shared.health.check_writable().map_err(StoreError::Unavailable)?;
        // Under relaxed durability the end of the journal may not be on disk yet.
        if let Err(error) = self.journal.sync() {
            self.shared.fail(&format!("fsync of the journal failed: {error}"));
            return Err(StoreError::Unavailable(error.to_string()));
        }
        self.unflushed_since = None;
        checkpoint::link_journals(&self.shared.directory, &self.journal, into)
            .map_err(|error| StoreError::Unavailable(format!("the journals cannot be linked: {error}")))
    }

    fn seal_if_full(&mut self) -> std::io::Result<()> {
        if self.shared.tree.memtable_bytes() < self.shared.options.memtable_bytes {
            return Ok(());
        }
        // Backpressure applies here, between groups: the callers of this group have their answers already.
        background::wait_for_backlog(&self.shared);
        if self.shared.health.is_failed() || self.shared.health.is_full() {
            return Ok(());
        }
        match self.seal() {
            // Keep using this journal and memtable; meanwhile only removals are accepted.
            Err(error) if is_fullness(&error) => {
                self.shared.health.set_full(&format!("starting a new journal failed: {error}"));
                Ok(())
            }
            sealed => sealed,
        }
    }

    /// Seals the memtable and its journal and starts new ones.
    fn seal(&mut self) -> std::io::Result<()> {
        // Replay relies on a sealed journal being complete.
        self.journal.seal()?;
        assert!(self.journal.is_synced(), "a sealed journal is fsynced to its end");
        self.unflushed_since = None;
        // If this fails, the old journal stays in use: nothing has been sealed in the tree yet.
        let next = Journal::create(&self.shared.directory, self.journal.number() + 1)?;
        let sealed = std::mem::replace(&mut self.journal, next);
        // Memtable and journal are exchanged together: one journal per memtable.
        self.shared.tree.seal_memtable();
        self.shared.background.memtable_sealed(sealed.path().to_owned());
        Ok(())
    }

    /// Clean shutdown: writes everything to tables, so that the next start has nothing to replay.
    fn finish(&mut self) -> Result<(), StoreError> {
        if !self.journal.is_empty() {
            match self.seal() {
                // The journal is durable; the next start replays it.
                Err(error) if is_fullness(&error) => {
                    tracing::warn!(%error, "the disk is full: the next start will replay the journal");
                }
                sealed => {
                    sealed.map_err(|error| StoreError::Unavailable(format!("closing failed: {error}")))?;
                }
            }
        }
        background::wait_for_flush(&self.shared);
        self.shared.health.check_writable().map_err(StoreError::Unavailable)
    }

    fn interval(&self) -> Option<Duration> {
        match self.shared.options.durability {
            Durability::Always => None,
            Durability::Relaxed { interval_ms } => Some(Duration::from_millis(u64::from(interval_ms))),
        }
    }

    /// How long to wait for tasks until the next fsync is due, under relaxed durability.
    fn flush_wait(&self) -> Option<Duration> {
        Some(self.interval()?.saturating_sub(monotonic::elapsed(self.unflushed_since?)))
    }

    fn flush_if_due(&mut self) -> std::io::Result<()> {
        if self.flush_wait() == Some(Duration::ZERO) {
            self.journal.sync()?;
            self.unflushed_since = None;
        }
        Ok(())
    }
}

impl Group {
    fn with_capacity(bytes: usize) -> Self {
        Self {
            overlay: Overlay::with_capacity(bytes),
            records: HashMap::new(),
            created: Vec::new(),
            destroyed: Vec::new(),
            next_slot: None,
            replies: Vec::new(),
        }
    }

    /// The partition with this group's changes so far.
    fn current(&self, shared: &Shared, id: PartitionId) -> Option<(Arc<Partition>, PartitionRecord)> {
        if let Some((partition, record)) = self.records.get(&id) {
            return Some((Arc::clone(partition), *record));
        }
        let partition = shared.find(id)?;
        // By slot: the id may belong to a partition that was created after it.
        let destroyed = self.destroyed.iter().any(|(_, slot)| *slot == partition.slot);
        let record = partition.record();
        (!destroyed).then_some((partition, record))
    }

    fn find(
        &self,
        shared: &Shared,
        partition: PartitionRef,
    ) -> Result<(Arc<Partition>, PartitionRecord), StoreError> {
        let found = self.current(shared, partition.id).ok_or(StoreError::Fenced)?;
        if found.1.epoch == partition.epoch { Ok(found) } else { Err(StoreError::Fenced) }
    }

    fn commit(
        &mut self,
        shared: &Shared,
        known: &mut ShortKeys,
        partition: &Arc<Partition>,
        epoch: u64,
        op: &mut dyn ErasedOp,
    ) -> Result<(Lsn, bool), CommitError> {
        let reference = PartitionRef { id: partition.id, epoch };
        let (found, record) = self.find(shared, reference).map_err(|_| CommitError::Fenced)?;
        // The id may have been destroyed and created again since the operation was queued.
        if found.slot != partition.slot {
            return Err(CommitError::Fenced);
        }
        let lsn = record.lsn + 1;
        let slot = found.slot;
        let overlay = &self.overlay;
        let writes = transaction::run(op, lsn, &shared.options.limits, &mut |key: &[u8]| {
            read_current(shared, overlay, Some(known), slot, key)
                .map_err(|error| CommitError::Unavailable(error.to_string()))
        })?;
        // Rejected: the LSN stays, and with it the partition's record.
        let Some(writes) = writes else { return Ok((record.lsn, false)) };
        if let Some(reason) = shared.health.fullness().filter(|_| !is_removal(&writes)) {
            return Err(CommitError::Full(reason));
        }
        // `transaction::run` has rejected write sets that name a key twice: the overlay relies on it for the order
        // of deletes and puts.
        partition.count_written(writes.bytes());
        for key in &writes.deletes {
            self.overlay.put(slot, key, None);
        }
        for (key, value) in &writes.puts {
            self.overlay.put(slot, key, Some(value));
        }
        for (keys, value) in &writes.unread {
            for key in keys.iter() {
                self.overlay.put_unread(slot, key, value.as_deref());
            }
        }
        // Later operations of the group see this LSN before it is durable; all of them are answered after the fsync.
        self.records.insert(partition.id, (found, PartitionRecord { lsn, ..record }));
        Ok((lsn, true))
    }

    fn destroy(&mut self, shared: &Shared, id: PartitionId) {
        let Some((partition, record)) = self.current(shared, id) else { return };
        // The partition may have been created or changed earlier in this very group.
        self.records.remove(&id);
        self.created.retain(|created| created.id != id);
        self.destroyed.push((partition.id, record.slot));
        // The record goes and the mark comes in one group: a crash leaves either a partition or a slot to sweep.
        self.overlay.put_full(&layout::partition_key(id), None);
        self.overlay.put_full(&layout::dead_slot_key(record.slot), Some(&[]));
    }

    fn delete_present(&mut self, shared: &Shared, slot: Slot, keys: &[Vec<u8>]) -> Result<usize, StoreError> {
        let mut deleted = 0;
        // A range deletion may hit keys that operations write but never read.
        self.overlay.find_unread();
        for key in keys {
            // Only keys that exist count, since the caller asks how many were deleted.
            if read_current(shared, &self.overlay, None, slot, key)?.is_some() {
                self.overlay.put(slot, key, None);
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    /// Adds the records of all changed partitions, so that their LSNs are durable together with the writes.
    fn write_records(&mut self) {
        for (id, (partition, record)) in &self.records {
            assert!(record.slot == partition.slot, "partition {} keeps its slot for life", id.0);
            self.overlay.put_full(&layout::partition_key(*id), Some(&record.encode()));
        }
        if let Some(next_slot) = self.next_slot {
            self.overlay.put_full(&layout::next_slot_key(), Some(&next_slot.to_be_bytes()));
        }
    }
}

impl PendingReply {
    fn send(self, shared: &Shared) {
        match self {
            Self::Commit(reply, result, _) => drop(reply.send(result)),
            Self::Done(reply, result) => send(reply, result),
            Self::Retired(reply, result) => send(reply, result),
            Self::Deleted(reply, result) => send(reply, result),
            Self::Swept => shared.background.sweep_batch_ended(true),
        }
    }

    /// `undone` = nothing of the group is on disk, so it can be retried.
    fn fail(self, shared: &Shared, reason: &str, undone: bool) {
        let unavailable = || {
            let reason = reason.to_owned();
            if undone { StoreError::Full(reason) } else { StoreError::Unavailable(reason) }
        };
        match self {
            Self::Commit(reply, Ok(_), _) if undone => {
                drop(reply.send(Err(CommitError::Full(reason.to_owned()))));
            }
            // The record may or may not be on disk.
            Self::Commit(reply, Ok(_), true) => {
                drop(reply.send(Err(CommitError::Unknown(reason.to_owned()))));
            }
            Self::Commit(reply, Ok(_), false) => {
                drop(reply.send(Err(CommitError::Unavailable(reason.to_owned()))));
            }
            // A rejection for another reason stays what it was.
            Self::Commit(reply, error, _) => drop(reply.send(error)),
            Self::Done(reply, result) => send(reply, result.and_then(|()| Err(unavailable()))),
            Self::Retired(reply, result) => send(reply, result.and_then(|_| Err(unavailable()))),
            Self::Deleted(reply, result) => send(reply, result.and_then(|_| Err(unavailable()))),
            Self::Swept => shared.background.sweep_batch_ended(false),
        }
    }
}

fn read_current(
    shared: &Shared,
    overlay: &Overlay,
    known: Option<&mut ShortKeys>,
    slot: Slot,
    key: &[u8],
) -> Result<Option<Bytes>, StoreError> {
    // No longer key was ever written.
    if key.len() > shared.options.limits.key_bytes_max {
        return Ok(None);
    }
    if let Some(changed) = overlay.get(slot, key) {
        return Ok(changed.value);
    }
    let key = slot.key(key);
    if let Some(value) = known.as_ref().and_then(|known| known.0.get(&key)) {
        return Ok(value.clone());
    }
    let value = shared.tree.get_newest(&key).map_err(|fault| shared.explain(fault))?;
    if let Some(known) = known {
        known.remember(&key, value.as_deref());
    }
    Ok(value)
}

/// Whether a write frees more than it takes, so that a full disk must not reject it: deleting an item removes the
/// item and its index entries, and writes a counter and a feed entry.
fn is_removal(writes: &WriteSet) -> bool {
    let unread = |wanted: bool| {
        let sets = writes.unread.iter().filter(move |(_, value)| value.is_some() == wanted);
        sets.map(|(keys, _)| keys.len()).sum::<usize>()
    };
    let put_bytes: usize = writes.puts.iter().map(|(key, value)| key.len() + value.len()).sum();
    let (puts, deletes) = (writes.puts.len() + unread(true), writes.deletes.len() + unread(false));
    deletes >= puts && put_bytes <= REMOVAL_PUT_BYTES_MAX
}

/// The caller may have been cancelled; ignore a closed channel.
fn send<T>(reply: Reply<T>, result: Result<T, StoreError>) {
    drop(reply.send(result));
}

fn refuse(task: Task, shared: &Shared) {
    let reason = shared.health.check_writable().err().unwrap_or_else(|| "it is closing".to_owned());
    let refusal = || StoreError::Unavailable(reason.clone());
    match task {
        Task::Commit { partition, reply, .. } => {
            partition.leave_queue();
            drop(reply.send(Err(CommitError::Unavailable(reason))));
        }
        Task::Create { reply, .. } | Task::Destroy { reply, .. } | Task::Load { reply, .. } => {
            send(reply, Err(refusal()));
        }
        Task::Retire { reply, .. } => send(reply, Err(refusal())),
        Task::Delete { reply, .. } => send(reply, Err(refusal())),
        // Closing twice is not an error; closing a failed store is, because its last writes may be missing.
        Task::Close { reply } => {
            let failure = shared.health.failure();
            send(reply, failure.map_or(Ok(()), |reason| Err(StoreError::Unavailable(reason))));
        }
        Task::Sweep { .. } => shared.background.sweep_batch_ended(false),
        Task::LinkJournals { reply, .. } => send(reply, Err(refusal())),
        Task::Collect => {}
    }
}
