//! Implements the storage contract with the committer's queue and pinned reads.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use orrery_env::{monotonic, task};

use super::Embedded;
use super::layout::{self, PartitionRecord};
use super::read::{self, EmbeddedSnapshot};
use super::shared::{Refusal, Reply, Task};
use super::tree::TreeError;
use crate::contract::{
    Checkpoint, CommitError, Direction, Entry, ErasedOp, Health, KeyRange, Limits, Lsn, PartitionId,
    PartitionInfo, PartitionRef, PartitionStore, Pending, ReadPage, ReadRequest, Scan, Snapshot, StoreError,
    Want,
};
use crate::transaction;

/// Bulk loads and range deletions are split into chunks, so that commits interleave with them.
const CHUNK_BYTES: usize = 4 << 20;
const CHUNK_KEYS: usize = 1000;

impl Embedded {
    /// Queues a task for the committer and waits for the reply.
    async fn ask<T>(&self, task: impl FnOnce(Reply<T>) -> Task) -> Result<T, StoreError> {
        // Fails early; what is queued when the store fails is refused by the committer.
        self.shared.health.check_writable().map_err(StoreError::Unavailable)?;
        let (reply, answer) = oneshot::channel();
        self.shared.queue.push(task(reply), usize::MAX).map_err(|_| self.unavailable())?;
        answer.await.map_err(|_| self.unavailable())?
    }

    fn unavailable(&self) -> StoreError {
        let reason = self.shared.health.check_writable().err();
        StoreError::Unavailable(reason.unwrap_or_else(|| "the committer has exited".to_owned()))
    }

    async fn run_commit(&self, partition: PartitionRef, op: Box<dyn ErasedOp>) -> Result<Lsn, CommitError> {
        self.shared.health.check_writable().map_err(CommitError::Unavailable)?;
        let found = self.shared.find(partition.id).ok_or(CommitError::Fenced)?;
        let options = &self.shared.options;
        // Two bounds: one partition may not fill the queue that all share.
        if !found.enter_queue(options.partition_waiting_max) {
            return Err(CommitError::Busy);
        }
        let (reply, answer) = oneshot::channel();
        let task = Task::Commit { partition: Arc::clone(&found), epoch: partition.epoch, op, reply };
        if let Err((_, refusal)) = self.shared.queue.push(task, options.waiting_max) {
            found.leave_queue();
            return Err(match refusal {
                Refusal::Full => CommitError::Busy,
                Refusal::Closed => CommitError::Unavailable(self.unavailable().to_string()),
            });
        }
        // The committer answers every task it takes, unless it panics while holding it.
        answer.await.map_err(|_| CommitError::Unknown(self.unavailable().to_string()))?
    }

    async fn load(&self, partition: PartitionRef, entries: Vec<Entry>) -> Result<(), StoreError> {
        // Fail early; the committer checks the epoch again for every chunk.
        self.shared.partition(partition.id)?.check(partition.epoch)?;
        transaction::check_entries(&entries, &self.shared.options.limits)?;
        let mut chunk = Vec::new();
        let mut bytes = 0;
        // Each chunk is a task of its own, so a crash may leave a part of the load. Callers repeat loads as a whole.
        for entry in entries {
            bytes += entry.key.len() + entry.value.len();
            chunk.push(entry);
            if bytes >= CHUNK_BYTES {
                let entries = std::mem::take(&mut chunk);
                self.ask(|reply| Task::Load { partition, entries, reply }).await?;
                bytes = 0;
            }
        }
        if chunk.is_empty() {
            return Ok(());
        }
        self.ask(|reply| Task::Load { partition, entries: chunk, reply }).await
    }

    /// Collects a chunk's keys on a reader thread, where skipping tombstones delays no writer, and has the committer
    /// delete those that still exist.
    async fn delete(
        &self,
        partition: PartitionRef,
        mut range: KeyRange,
        entries_max: usize,
    ) -> Result<usize, StoreError> {
        let mut deleted = 0;
        while deleted < entries_max {
            let scan = Scan {
                range: range.clone(),
                direction: Direction::Forward,
                entries_max: CHUNK_KEYS.min(entries_max - deleted),
                bytes_max: usize::MAX,
                want: Want::Keys,
            };
            // Keys are read without waiting for the committer; it checks each of them again,
            // since they may have been deleted.
            let page = self.read_page(partition, ReadRequest::Scan(scan)).await?;
            let Some(last) = page.entries.last() else { break };
            // The smallest key after the last one.
            range.start = last.key.clone();
            range.start.push(0);
            let keys = page.entries.into_iter().map(|entry| entry.key).collect();
            deleted += self.ask(|reply| Task::Delete { partition, keys, reply }).await?;
            if !page.more {
                break;
            }
        }
        Ok(deleted)
    }

    async fn read_page(&self, partition: PartitionRef, request: ReadRequest) -> Result<ReadPage, StoreError> {
        let found = self.shared.partition(partition.id)?;
        let slow = read::is_slow(&self.shared, &request);
        read::run(&self.shared, &self.slow_reads, slow, move |shared| {
            // Taken before the pin, because it must be a lower bound of what the read sees.
            let lsn = found.lsn();
            let pin = shared.tree.pin();
            // Checked after pinning: entries are removed only once the partition is marked as gone.
            found.check(partition.epoch)?;
            let page = read::read_pinned(shared, &pin, found.slot, &request)?;
            Ok(ReadPage { lsn, ..page })
        })
        .await
    }

    async fn take_snapshot(&self, partition: PartitionRef) -> Result<EmbeddedSnapshot, StoreError> {
        let found = self.shared.partition(partition.id)?;
        let key = layout::partition_key(partition.id);
        let snapshot = read::run(&self.shared, &self.slow_reads, false, move |shared| {
            let pin = shared.tree.pin();
            found.check(partition.epoch)?;
            // The tree's own record has the LSN of exactly this point in time.
            let record = pin.get(&key)?.as_deref().and_then(PartitionRecord::decode);
            let record = record.ok_or_else(|| TreeError::Damaged("a partition has no record".to_owned()))?;
            let deadline = monotonic::now() + shared.options.limits.snapshot_age_max;
            let lease = shared.tree.lease(&pin, deadline);
            Ok((found, lease, record.lsn))
        });
        let (found, lease, lsn) = snapshot.await?;
        let (shared, slow_reads) = (Arc::clone(&self.shared), Arc::clone(&self.slow_reads));
        Ok(EmbeddedSnapshot::new(shared, slow_reads, found, lease, lsn))
    }
}

impl PartitionStore for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn limits(&self) -> Limits {
        self.shared.options.limits
    }

    fn partitions(&self) -> Pending<'_, Vec<PartitionInfo>> {
        Box::pin(async move {
            self.shared.health.check_open().map_err(StoreError::Unavailable)?;
            Ok(self.shared.infos())
        })
    }

    fn create(&self, id: PartitionId, lsn: Lsn) -> Pending<'_, ()> {
        Box::pin(self.ask(move |reply| Task::Create { id, lsn, reply }))
    }

    fn retire(&self, partition: PartitionRef) -> Pending<'_, Lsn> {
        Box::pin(self.ask(move |reply| Task::Retire { partition, reply }))
    }

    fn destroy(&self, id: PartitionId) -> Pending<'_, ()> {
        Box::pin(self.ask(move |reply| Task::Destroy { id, reply }))
    }

    fn commit(&self, partition: PartitionRef, op: Box<dyn ErasedOp>) -> Pending<'_, Lsn, CommitError> {
        Box::pin(self.run_commit(partition, op))
    }

    fn read(&self, partition: PartitionRef, request: ReadRequest) -> Pending<'_, ReadPage> {
        Box::pin(self.read_page(partition, request))
    }

    fn snapshot(&self, partition: PartitionRef) -> Pending<'_, Box<dyn Snapshot>> {
        Box::pin(async move { Ok(Box::new(self.take_snapshot(partition).await?) as Box<dyn Snapshot>) })
    }

    fn bulk_load(&self, partition: PartitionRef, entries: Vec<Entry>) -> Pending<'_, ()> {
        Box::pin(self.load(partition, entries))
    }

    fn delete_range(&self, partition: PartitionRef, range: KeyRange, count_max: usize) -> Pending<'_, usize> {
        Box::pin(self.delete(partition, range, count_max))
    }

    fn wait_lsn(&self, id: PartitionId, after: Lsn, timeout: Duration) -> Pending<'_, Lsn> {
        Box::pin(async move {
            let mut progress = self.shared.partition(id)?.subscribe();
            let passed = progress.wait_for(|lsn| lsn.is_none_or(|lsn| lsn > after));
            // Neither a timeout nor a dropped sender is an error; the code below tells them apart.
            drop(tokio::time::timeout(timeout, passed).await);
            self.shared.health.check_writable().map_err(StoreError::Unavailable)?;
            let reached = *progress.borrow();
            reached.ok_or(StoreError::Fenced)
        })
    }

    fn size_bytes(&self, id: PartitionId) -> Pending<'_, u64> {
        Box::pin(async move {
            let found = self.shared.partition(id)?;
            // The part in memory is bounded by the memtable and by what was written.
            let in_memory = found.written_bytes().min(self.shared.tree.memtable_bytes());
            Ok(self.shared.tree.table_bytes(found.slot) + in_memory)
        })
    }

    fn health(&self) -> Health {
        self.shared.health_state()
    }

    fn oldest_write_wait(&self) -> Duration {
        self.shared.oldest_write_wait()
    }

    fn checkpoint(&self) -> Pending<'_, Option<Box<dyn Checkpoint>>> {
        Box::pin(async move { Ok(Some(Box::new(self.link_files().await?) as Box<dyn Checkpoint>)) })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let closed = match self.shared.queue.push(Task::Close { reply }, usize::MAX) {
                Ok(()) => answer.await.unwrap_or_else(|_| Err(self.unavailable())),
                // Already closed, or failed: then the last writes may be missing from the journal.
                Err(_) => {
                    self.shared.health.failure().map_or(Ok(()), |reason| Err(StoreError::Unavailable(reason)))
                }
            };
            let threads = Arc::clone(&self.threads);
            let shared = Arc::clone(&self.shared);
            let stopped = task::run_blocking("stop", move || threads.stop(&shared)).await;
            stopped.map_err(|error| StoreError::Unavailable(error.to_string()))?;
            closed
        })
    }
}
