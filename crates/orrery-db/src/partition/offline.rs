//! Partitions whose writes are offline because an operation found their data inconsistent.
//!
//! An operation that decides on stored values checks the invariants that hold them together. A broken one means that an
//! earlier write, or the disk, went wrong: writing on would spread the damage, and acknowledge more writes on top of it. So
//! the partition accepts no further operation until the server restarts, while reads, other partitions and dropping the
//! container keep working. After a restart the partition is writable until an operation finds the fault again.
//!
//! The list is kept per process, not in the store: with several servers on one store, each finds the fault itself.

use std::collections::BTreeMap;

use orrery_storage::PartitionId;
use parking_lot::RwLock;

/// The offline partitions of this process, each with the invariant that was broken.
#[derive(Debug, Default)]
pub(crate) struct OfflinePartitions(RwLock<BTreeMap<u32, String>>);

impl OfflinePartitions {
    /// Takes a partition's writes offline. The first reason is kept.
    pub(super) fn add(&self, partition: PartitionId, reason: &str) {
        let mut offline = self.0.write();
        // Logged once per partition, however many writes find the fault.
        offline.entry(partition.0).or_insert_with(|| {
            tracing::error!(
                partition = partition.0,
                reason,
                "writes to a partition are offline until a restart"
            );
            reason.to_owned()
        });
    }

    /// Why the partition is offline, if it is.
    pub(super) fn reason(&self, partition: PartitionId) -> Option<String> {
        self.0.read().get(&partition.0).cloned()
    }

    pub(super) fn forget(&self, partition: PartitionId) {
        self.0.write().remove(&partition.0);
    }

    /// All of them in one sentence, for the health check.
    pub(crate) fn summary(&self) -> Option<String> {
        let offline = self.0.read();
        let (partition, reason) = offline.first_key_value()?;
        Some(match offline.len() {
            1 => format!("writes to partition {partition} are offline until a restart: {reason}"),
            count => format!(
                "writes to {count} partitions are offline until a restart, the first of them partition {partition}: {reason}"
            ),
        })
    }
}
