//! Every write to a partition goes through here, so that a split can follow it by the split log, and so that none reaches a
//! partition whose data was found inconsistent.

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::Result;
use orrery_storage::{
    CommitError, Committed, Decision, Key, Lsn, Op, PartitionId, PartitionRef, View, WriteSet,
};

use super::Partitions;
use super::offline::OfflinePartitions;
use crate::catalog::Partition;
use crate::failure::commit_failure;
use crate::layout::split_log::{SPLIT_MARK, encode_keys, log_key};

/// An operation whose writes a split can follow, on a partition that must not be offline.
struct Logged<O> {
    op: O,
    partition: PartitionId,
    offline: Arc<OfflinePartitions>,
}

impl<O: Op> Op for Logged<O> {
    type Out = O::Out;

    fn id(&self) -> u128 {
        self.op.id()
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        self.op.reads(keys);
        // Read with the rest, so that the decision knows whether a split is following.
        keys.push(SPLIT_MARK.to_vec());
    }

    fn decide(&self, view: &dyn View, lsn: Lsn) -> Decision<O::Out> {
        // Checked while deciding, not before: operations of the group that finds the fault are decided after it.
        if let Some(reason) = self.offline.reason(self.partition) {
            return Decision::Inconsistent(reason);
        }
        match self.op.decide(view, lsn) {
            Decision::Inconsistent(reason) => {
                self.offline.add(self.partition, &reason);
                Decision::Inconsistent(reason)
            }
            Decision::Write(mut writes, out) => {
                // The log entry is in the same write set, so the log misses no write, whatever crashes.
                if view.get(&SPLIT_MARK).is_some() {
                    let parts = encode_keys(writes.keys());
                    for (part, entry) in (0u16..).zip(parts) {
                        writes.put(log_key(lsn, part), entry);
                    }
                }
                Decision::Write(writes, out)
            }
            other => other,
        }
    }
}

impl Partitions {
    /// Commits an operation on a partition of a container.
    pub(crate) async fn commit<O: Op>(
        &self,
        partition: &Partition,
        op: O,
    ) -> std::result::Result<Committed<O::Out>, CommitError> {
        let op = Logged { op, partition: partition.store.id, offline: Arc::clone(&self.offline) };
        orrery_storage::commit(&*self.store, partition.store, op).await
    }

    /// Sets or removes the split mark. A partition that is offline is not split, but a split in progress is rolled back.
    pub(crate) async fn mark_split(&self, partition: PartitionRef, on: bool) -> Result<Lsn> {
        let mut writes = WriteSet::default();
        if on {
            if let Some(reason) = self.offline.reason(partition.id) {
                return Err(commit_failure(CommitError::Inconsistent(reason)));
            }
            writes.put(SPLIT_MARK.to_vec(), Bytes::new());
        } else {
            writes.delete(SPLIT_MARK.to_vec());
        }
        self.commit_as_it_is(partition, writes).await
    }

    /// Commits an unconditional write set that splits do not follow.
    pub(crate) async fn commit_as_it_is(&self, partition: PartitionRef, writes: WriteSet) -> Result<Lsn> {
        let op = self.operation(Vec::new(), move |_, _| Decision::Write(writes.clone(), ()));
        let committed = orrery_storage::commit(&*self.store, partition, op).await.map_err(commit_failure)?;
        Ok(committed.lsn)
    }

    /// Commits an operation that is small enough to be a closure: it reads these keys and must decide from their values
    /// alone, because it may run more than once.
    pub(crate) async fn commit_decision<T: Send + 'static>(
        &self,
        partition: &Partition,
        reads: Vec<Key>,
        decide: impl Fn(&dyn View, Lsn) -> Decision<T> + Send + Sync + 'static,
    ) -> Result<Committed<T>> {
        self.commit(partition, self.operation(reads, decide)).await.map_err(commit_failure)
    }

    fn operation<T, F>(&self, reads: Vec<Key>, decide: F) -> SmallOp<T, F>
    where
        F: Fn(&dyn View, Lsn) -> Decision<T>,
    {
        SmallOp { operation_id: self.operation_id(), reads, decide, out: PhantomData }
    }

    /// A name for an operation, by which a store recognises it if its outcome is in doubt.
    pub(crate) fn operation_id(&self) -> u128 {
        u128::from(self.env.random_u64()) << 64 | u128::from(self.env.random_u64())
    }
}

/// A small operation: the keys it reads, and a decision that captures the rest.
struct SmallOp<T, F> {
    operation_id: u128,
    reads: Vec<Key>,
    decide: F,
    out: PhantomData<fn() -> T>,
}

impl<T, F> Op for SmallOp<T, F>
where
    T: Send + 'static,
    F: Fn(&dyn View, Lsn) -> Decision<T> + Send + Sync + 'static,
{
    type Out = T;

    fn id(&self) -> u128 {
        self.operation_id
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        keys.extend(self.reads.iter().cloned());
    }

    fn decide(&self, view: &dyn View, lsn: Lsn) -> Decision<T> {
        (self.decide)(view, lsn)
    }
}
