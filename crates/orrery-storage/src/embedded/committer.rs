//! The committer: the one thread that writes.
//!
//! It takes all operations that wait, for whatever partition, and runs their decisions in order over an
//! overlay of what the group has written so far. Then the whole group goes into the journal as one record,
//! with the new numbers of all partitions it touched, is flushed once, applied to the tree, published, and
//! only then acknowledged. While the disk works, the next group gathers; there is no timer. A large group is applied
//! while it is flushed: nobody sees it before it is published.
//!
//! A rejected operation waits for the flush as well: it may have seen what its group is about to write.
//!
//! If the journal cannot be written nobody knows what is on disk, so the store goes offline: the operations
//! of that group end as unknown, all later ones as unavailable.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::Durability;
use super::background;
use super::journal::Journal;
use super::layout::{self, PartitionRecord, Slot};
use super::overlay::Overlay;
use super::shared::{Partition, Reply, Shared, Task};
use super::syncer::Syncer;
use crate::contract::{CommitError, ErasedOp, Lsn, PartitionId, PartitionRef, StoreError};
use crate::transaction::{self, panic_text};

/// A group ends here, so that the first of it does not wait for ever. Far beyond what gathers during a flush.
const GROUP_TASKS_MAX: usize = 1024;
const GROUP_BYTES_MAX: usize = 8 << 20;

/// Room that a group gets in advance, at most.
const ROOM_BYTES_MAX: usize = 1 << 20;

/// From so many changes on, filling the memtable takes longer than to let another thread flush meanwhile.
const BESIDE_CHANGES_MIN: usize = 800;

pub(super) struct Committer {
    shared: Arc<Shared>,
    journal: Journal,
    syncer: Syncer,
    next_slot: u32,
    short_keys: ShortKeys,
    /// The size of the last group's record: the next is likely to need as much.
    last_bytes: usize,
    /// When the oldest write that is not flushed yet was made, if flushing is relaxed.
    unflushed_since: Option<Instant>,
}

/// One group in the making.
struct Group {
    overlay: Overlay,
    /// Partitions whose record changes.
    records: HashMap<PartitionId, (Arc<Partition>, PartitionRecord)>,
    /// What becomes visible once the group is durable.
    created: Vec<Arc<Partition>>,
    destroyed: Vec<(PartitionId, Slot)>,
    next_slot: Option<u32>,
    answers: Vec<Answer>,
}

/// The newest values of short keys, absent ones included. Operations look at the same few marks of their partition
/// again and again, which are hardly ever there, and finding out that a key is in no table is the slowest way to read.
/// All writes pass through the committer, so it always knows better than the tree.
#[derive(Default)]
struct ShortKeys(HashMap<Bytes, Option<Bytes>>);

impl ShortKeys {
    /// With the slot's four bytes.
    const BYTES_MAX: usize = 8;
    const KEYS_MAX: usize = 4096;
    const VALUE_BYTES_MAX: usize = 256;

    /// `key` with its slot.
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
            // Copies, so that nothing large is kept for them.
            self.0.insert(Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice));
        }
    }
}

/// What is told to a caller when the group is durable, or that it failed.
enum Answer {
    /// The flag says that the operation writes, so that a failure leaves it in doubt.
    Commit(oneshot::Sender<Result<Lsn, CommitError>>, Result<Lsn, CommitError>, bool),
    Done(Reply<()>, Result<(), StoreError>),
    Retired(Reply<Lsn>, Result<Lsn, StoreError>),
    Deleted(Reply<usize>, Result<usize, StoreError>),
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
            unflushed_since: None,
        })
    }

    /// The life of the thread.
    pub(super) fn run(mut self) {
        let result = catch_unwind(AssertUnwindSafe(|| self.serve()));
        if let Err(payload) = result {
            let text = panic_text(payload.as_ref());
            self.shared.fail(&format!("the committer panicked: {text}"));
        }
        // What was acknowledged under relaxed durability and is not flushed yet.
        if !self.shared.health.is_failed() && self.journal.seal().is_err() {
            tracing::error!("the journal could not be flushed at the end");
        }
        self.shared.health.set("it was closed");
        for task in self.shared.queue.close() {
            refuse(task, &self.shared);
        }
        self.shared.wake_everyone();
    }

    /// Serves groups until the store is closed or fails.
    fn serve(&mut self) {
        loop {
            let tasks = self.shared.queue.take(GROUP_TASKS_MAX, self.patience());
            if self.shared.health.is_failed() || self.shared.background.is_stopping() {
                for task in tasks {
                    refuse(task, &self.shared);
                }
                return;
            }
            let mut tasks = tasks.into_iter();
            while tasks.len() > 0 {
                if let Some(close) = self.run_group(&mut tasks) {
                    let result = self.finish();
                    self.shared.health.set("it was closed");
                    send(close, result);
                    for task in tasks {
                        refuse(task, &self.shared);
                    }
                    return;
                }
            }
            if let Err(error) = self.flush_if_due() {
                self.shared.fail(&format!("flushing the journal failed: {error}"));
                return;
            }
        }
    }

    /// Runs one group from the tasks given; answers the request to close, if one is met.
    fn run_group(&mut self, tasks: &mut std::vec::IntoIter<Task>) -> Option<Reply<()>> {
        let mut group = Group::with_room(self.last_bytes.min(ROOM_BYTES_MAX));
        let mut close = None;
        let mut collect = false;
        while group.overlay.bytes() < GROUP_BYTES_MAX {
            match tasks.next() {
                None => break,
                Some(Task::Close { reply }) => {
                    close = Some(reply);
                    break;
                }
                Some(Task::Collect) => collect = true,
                Some(task) => self.run_task(&mut group, task),
            }
        }
        self.complete(group);
        if let Err(error) = self.seal_if_full() {
            self.shared.fail(&format!("starting a new journal failed: {error}"));
        }
        if collect && !self.shared.health.is_failed() {
            // No batch is half applied between two groups.
            if let Err(error) = self.shared.tree.collect(true) {
                tracing::warn!(?error, "old table lists could not be removed");
            }
        }
        close
    }

    fn run_task(&mut self, group: &mut Group, task: Task) {
        let shared = Arc::clone(&self.shared);
        let answer = match task {
            Task::Commit { partition, epoch, mut op, reply } => {
                partition.leave_queue();
                let known = &mut self.short_keys;
                let result = group.commit(&shared, known, &partition, epoch, op.as_mut());
                let writes = matches!(result, Ok((_, true)));
                Answer::Commit(reply, result.map(|(lsn, _)| lsn), writes)
            }
            Task::Create { id, lsn, reply } => Answer::Done(reply, self.create(group, id, lsn)),
            Task::Retire { partition, reply } => {
                let result = group.find(&shared, partition).map(|(found, record)| {
                    let retired = PartitionRecord { epoch: record.epoch + 1, ..record };
                    group.records.insert(found.id, (found, retired));
                    record.lsn
                });
                Answer::Retired(reply, result)
            }
            Task::Destroy { id, reply } => {
                group.destroy(&shared, id);
                Answer::Done(reply, Ok(()))
            }
            Task::Load { partition, entries, reply } => {
                let result = group.find(&shared, partition).map(|(found, _)| {
                    for entry in entries {
                        group.overlay.put(found.slot, &entry.key, Some(&entry.value));
                    }
                });
                Answer::Done(reply, result)
            }
            Task::Delete { partition, keys, reply } => {
                let result = group.find(&shared, partition);
                let result = result.and_then(|(found, _)| group.delete_present(&shared, found.slot, &keys));
                Answer::Deleted(reply, result)
            }
            Task::Sweep { keys, reply } => {
                for key in keys {
                    group.overlay.put_full(&key, None);
                }
                Answer::Done(reply, Ok(()))
            }
            Task::Collect | Task::Close { .. } => return,
        };
        group.answers.push(answer);
    }

    fn create(&mut self, group: &mut Group, id: PartitionId, lsn: Lsn) -> Result<(), StoreError> {
        if let Some((partition, record)) = group.current(&self.shared, id) {
            if lsn > record.lsn {
                group.records.insert(id, (partition, PartitionRecord { lsn, ..record }));
            }
            return Ok(());
        }
        if self.next_slot >= u32::MAX - 1 {
            return Err(StoreError::Unavailable("all partition slots are used up".to_owned()));
        }
        let record = PartitionRecord { slot: Slot(self.next_slot), epoch: 0, lsn };
        self.next_slot += 1;
        group.next_slot = Some(self.next_slot);
        let partition = Arc::new(Partition::new(id, record));
        group.created.push(Arc::clone(&partition));
        group.records.insert(id, (partition, record));
        Ok(())
    }

    /// Makes the group durable, shows it, answers everyone.
    fn complete(&mut self, mut group: Group) {
        group.write_records();
        if !group.overlay.is_empty()
            && let Err(error) = self.write(group.overlay)
        {
            let reason = format!("writing the journal failed: {error}");
            self.shared.fail(&reason);
            for answer in group.answers {
                answer.fail(&reason);
            }
            return;
        }
        // In this order: an id may be destroyed and made again in one group.
        for (id, slot) in group.destroyed {
            self.shared.remove(id, slot);
            self.shared.background.sweep(slot);
        }
        for partition in group.created {
            self.shared.insert(partition);
        }
        for (partition, record) in group.records.into_values() {
            partition.advance(record);
        }
        for answer in group.answers {
            answer.send();
        }
    }

    fn write(&mut self, mut overlay: Overlay) -> std::io::Result<()> {
        if self.journal.is_empty() {
            overlay.put_full(&layout::journal_key(), Some(&self.journal.number().to_be_bytes()));
        }
        for (key, value) in overlay.changes() {
            self.short_keys.remember(key, value);
        }
        self.last_bytes = overlay.bytes();
        let sequence = self.shared.tree.next_sequence();
        self.journal.append(sequence, overlay.draft())?;
        let tree = &self.shared.tree;
        let is_small = overlay.changes_count() < BESIDE_CHANGES_MIN;
        // Nobody sees what is in the memtable before it is published.
        let apply = || {
            tree.apply(sequence, overlay.into_sorted_changes());
        };
        match self.shared.options.durability {
            Durability::Always if is_small => {
                self.journal.sync()?;
                apply();
            }
            Durability::Always => self.journal.sync_beside(&self.syncer, apply)?,
            Durability::Relaxed { .. } => {
                self.unflushed_since.get_or_insert_with(Instant::now);
                apply();
            }
        }
        tree.publish(sequence);
        Ok(())
    }

    fn seal_if_full(&mut self) -> std::io::Result<()> {
        if self.shared.tree.memtable_bytes() < self.shared.options.memtable_bytes {
            return Ok(());
        }
        background::wait_for_room(&self.shared);
        if self.shared.health.is_failed() { Ok(()) } else { self.seal() }
    }

    /// Seals the memtable and its journal and starts new ones.
    fn seal(&mut self) -> std::io::Result<()> {
        // A sealed journal is whole: replay relies on it.
        self.journal.seal()?;
        self.unflushed_since = None;
        let next = Journal::create(&self.shared.directory, self.journal.number() + 1)?;
        let sealed = std::mem::replace(&mut self.journal, next);
        self.shared.tree.seal_memtable();
        self.shared.background.memtable_sealed(sealed.path().to_owned());
        Ok(())
    }

    /// The clean end: everything goes into tables, so that the next start replays nothing.
    fn finish(&mut self) -> Result<(), StoreError> {
        if !self.journal.is_empty() {
            self.seal().map_err(|error| StoreError::Unavailable(format!("closing failed: {error}")))?;
        }
        background::wait_for_flush(&self.shared);
        self.shared.health.check().map_err(StoreError::Unavailable)
    }

    fn interval(&self) -> Option<Duration> {
        match self.shared.options.durability {
            Durability::Always => None,
            Durability::Relaxed { interval_ms } => Some(Duration::from_millis(u64::from(interval_ms))),
        }
    }

    /// How long to wait for tasks before a relaxed flush is due.
    fn patience(&self) -> Option<Duration> {
        Some(self.interval()?.saturating_sub(self.unflushed_since?.elapsed()))
    }

    fn flush_if_due(&mut self) -> std::io::Result<()> {
        if self.patience() == Some(Duration::ZERO) {
            self.journal.sync()?;
            self.unflushed_since = None;
        }
        Ok(())
    }
}

impl Group {
    fn with_room(bytes: usize) -> Self {
        Self {
            overlay: Overlay::with_room(bytes),
            records: HashMap::new(),
            created: Vec::new(),
            destroyed: Vec::new(),
            next_slot: None,
            answers: Vec::new(),
        }
    }

    /// The partition as this group leaves it so far.
    fn current(&self, shared: &Shared, id: PartitionId) -> Option<(Arc<Partition>, PartitionRecord)> {
        if let Some((partition, record)) = self.records.get(&id) {
            return Some((Arc::clone(partition), *record));
        }
        let partition = shared.find(id)?;
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
        // The id may have been destroyed and made again since the operation was queued.
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
        let Some(writes) = writes else { return Ok((record.lsn, false)) };
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
        self.records.insert(partition.id, (found, PartitionRecord { lsn, ..record }));
        Ok((lsn, true))
    }

    fn destroy(&mut self, shared: &Shared, id: PartitionId) {
        let Some((partition, record)) = self.current(shared, id) else { return };
        self.records.remove(&id);
        self.created.retain(|created| created.id != id);
        self.destroyed.push((partition.id, record.slot));
        self.overlay.put_full(&layout::partition_key(id), None);
        self.overlay.put_full(&layout::dead_slot_key(record.slot), Some(&[]));
    }

    fn delete_present(&mut self, shared: &Shared, slot: Slot, keys: &[Vec<u8>]) -> Result<usize, StoreError> {
        let mut deleted = 0;
        self.overlay.find_unread();
        for key in keys {
            if read_current(shared, &self.overlay, None, slot, key)?.is_some() {
                self.overlay.put(slot, key, None);
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    /// Adds the numbers of all partitions that changed. They are durable with the writes they count.
    fn write_records(&mut self) {
        for (id, (_, record)) in &self.records {
            self.overlay.put_full(&layout::partition_key(*id), Some(&record.encode()));
        }
        if let Some(next_slot) = self.next_slot {
            self.overlay.put_full(&layout::next_slot_key(), Some(&next_slot.to_be_bytes()));
        }
    }
}

impl Answer {
    fn send(self) {
        match self {
            Self::Commit(reply, result, _) => drop(reply.send(result)),
            Self::Done(reply, result) => send(reply, result),
            Self::Retired(reply, result) => send(reply, result),
            Self::Deleted(reply, result) => send(reply, result),
        }
    }

    fn fail(self, reason: &str) {
        let unavailable = || StoreError::Unavailable(reason.to_owned());
        match self {
            // The record may or may not be on disk.
            Self::Commit(reply, Ok(_), true) => {
                drop(reply.send(Err(CommitError::Unknown(reason.to_owned()))));
            }
            Self::Commit(reply, Ok(_), false) => {
                drop(reply.send(Err(CommitError::Unavailable(reason.to_owned()))));
            }
            Self::Commit(reply, error, _) => drop(reply.send(error)),
            Self::Done(reply, result) => send(reply, result.and_then(|()| Err(unavailable()))),
            Self::Retired(reply, result) => send(reply, result.and_then(|_| Err(unavailable()))),
            Self::Deleted(reply, result) => send(reply, result.and_then(|_| Err(unavailable()))),
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
    // Nothing longer was ever written.
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

/// A caller that does not wait any more is no fault.
fn send<T>(reply: Reply<T>, result: Result<T, StoreError>) {
    drop(reply.send(result));
}

fn refuse(task: Task, shared: &Shared) {
    let reason = shared.health.check().err().unwrap_or_else(|| "it is closing".to_owned());
    let refusal = || StoreError::Unavailable(reason.clone());
    match task {
        Task::Commit { partition, reply, .. } => {
            partition.leave_queue();
            drop(reply.send(Err(CommitError::Unavailable(reason))));
        }
        Task::Create { reply, .. }
        | Task::Destroy { reply, .. }
        | Task::Load { reply, .. }
        | Task::Sweep { reply, .. } => send(reply, Err(refusal())),
        Task::Retire { reply, .. } => send(reply, Err(refusal())),
        Task::Delete { reply, .. } => send(reply, Err(refusal())),
        // Closing what is closed already is no fault.
        Task::Close { reply } => send(reply, Ok(())),
        Task::Collect => {}
    }
}
