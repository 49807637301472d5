//! Splitting a physical partition in two, in the middle of its range of hashes.
//!
//! Keys are hashed, so that halves of the range expect halves of the keys, the load and the data, and the boundaries are
//! those that clients of the service see. Only where data forces the split, and the middle would leave one child as full
//! as its parent, is the partition cut where its stored bytes are halved (docs/design/0015-split-points.md).

use std::sync::Arc;

use orrery_model::partition_key::EffectiveKey;
use orrery_model::rid::ContainerRid;
use orrery_model::{Error, Result};
use orrery_storage::{ReadRequest, Scan};

use super::Lifecycle;
use crate::catalog::{Container, Partition, PendingPartition, Reshaping, existing};
use crate::failure::store_failure;
use crate::layout::keys;
use crate::layout::statistics::Statistics;
use crate::partition::ReshapingLock;

const SCAN_ENTRIES: usize = 1000;

/// Why a partition is split.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// Somebody wants it, or the throughput does.
    Wish,
    /// The store holds more bytes of it than a partition may have.
    Full { bytes: u64 },
}

/// What a split did.
#[derive(Clone, Debug)]
pub struct SplitReport {
    pub parent: u32,
    pub children: [u32; 2],
    /// The first effective key of the second child.
    pub at: EffectiveKey,
}

impl Lifecycle {
    /// Splits a partition in the middle of its range.
    pub async fn split_partition(self: &Arc<Self>, rid: ContainerRid, range_id: u32) -> Result<SplitReport> {
        self.split_because(rid, range_id, Cause::Wish).await
    }

    pub(super) async fn split_because(
        self: &Arc<Self>,
        rid: ContainerRid,
        range_id: u32,
        cause: Cause,
    ) -> Result<SplitReport> {
        let database = Arc::clone(self);
        self.in_own_task(async move { database.split_now(rid, range_id, cause).await }).await
    }

    async fn split_now(
        self: &Arc<Self>,
        rid: ContainerRid,
        range_id: u32,
        cause: Cause,
    ) -> Result<SplitReport> {
        let lock = self.lock_reshaping().await?;
        let done = self.split_locked(rid, range_id, cause, &lock).await;
        lock.release().await;
        done
    }

    async fn split_locked(
        self: &Arc<Self>,
        rid: ContainerRid,
        range_id: u32,
        cause: Cause,
        lock: &ReshapingLock<'_>,
    ) -> Result<SplitReport> {
        let catalog = self.catalog.snapshot();
        let container = Arc::clone(existing(&catalog, rid)?);
        let parent = container.partition(range_id)?.clone();
        let at = self.split_point(&container, &parent, cause).await?;
        let (left, right) = parent
            .range
            .split_at(&at)
            .ok_or_else(|| Error::internal("the split point lies outside of the partition"))?;
        // Partitions of one container are busy together, so the store is told which ones to keep apart from.
        let others = container.partitions.iter().filter(|other| other.range_id != range_id);
        let beside = others.map(|other| other.store.id).collect();
        let mut numbers = self.catalog.choose_numbers(2, beside).await?;
        let children = self
            .reshape(
                rid,
                vec![parent.clone()],
                |change, current| {
                    let next = current.next_range_id();
                    let mut newborn = |range_id, range| PendingPartition {
                        range_id,
                        range,
                        store: change.new_partition(&mut numbers),
                        // Both children continue the feed of the parent, however often it was merged.
                        numberings: parent.numberings,
                    };
                    let children = vec![newborn(next, left), newborn(next + 1, right)];
                    Ok(Reshaping { parents: vec![range_id], children })
                },
                lock,
            )
            .await?;
        Ok(SplitReport { parent: range_id, children: [children[0].range_id, children[1].range_id], at })
    }

    /// The first key of the second child.
    async fn split_point(
        &self,
        container: &Container,
        parent: &Partition,
        cause: Cause,
    ) -> Result<EffectiveKey> {
        let middle = container.definition.partition_key.middle(&parent.range);
        let at = match (middle, cause) {
            (Some(middle), Cause::Wish) => Some(middle),
            (Some(middle), Cause::Full { bytes }) => {
                if self.relieves(parent, &middle, bytes).await? {
                    Some(middle)
                } else {
                    self.halfway(parent).await?
                }
            }
            // A range inside one value of a hierarchical key's first property has no middle among its hashes.
            (None, _) => self.halfway(parent).await?,
        };
        // A cut at either end would make an empty range.
        at.filter(|at| *at > parent.range.min && *at < parent.range.max).ok_or_else(|| {
            let range_id = parent.range_id;
            Error::bad_request(format!("The partition {range_id} holds a single key and cannot be split."))
        })
    }

    /// Whether neither side of a key is still larger than a partition may be.
    async fn relieves(&self, parent: &Partition, at: &EffectiveKey, bytes: u64) -> Result<bool> {
        let (mut before, mut total) = (0, 0);
        self.weigh(parent, |effective, weight| {
            total += weight;
            before += if effective < *at { weight } else { 0 };
            true
        })
        .await?;
        // What the store holds besides the items is divided as they are.
        let fuller = u128::from(before.max(total - before)) * u128::from(bytes);
        Ok(fuller <= u128::from(total) * u128::from(self.options.partition_bytes_max))
    }

    /// The key at which the second half of the stored bytes begins, if there is one.
    async fn halfway(&self, parent: &Partition) -> Result<Option<EffectiveKey>> {
        let mut total = 0;
        self.weigh(parent, |_, weight| {
            total += weight;
            true
        })
        .await?;
        // A second pass, because the middle is known only when the total is. Nothing is kept in memory meanwhile.
        let (mut before, mut found) = (0, None);
        self.weigh(parent, |effective, weight| {
            // Never at the first key, which would leave nothing on the left.
            if before > 0 && before * 2 >= total {
                found = Some(effective);
            }
            before += weight;
            found.is_none()
        })
        .await?;
        Ok(found)
    }

    /// Visits each logical partition and its weight until `visit` stops it.
    async fn weigh(&self, parent: &Partition, mut show: impl FnMut(EffectiveKey, u64) -> bool) -> Result<()> {
        let mut range = keys::statistics_in(&parent.range);
        loop {
            let scan = Scan::forward(range.clone(), SCAN_ENTRIES);
            let page = self.store.read(parent.store, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
            for entry in &page.entries {
                // An unreadable counter weighs nothing. It only makes the halves less equal.
                let statistics = Statistics::decode(&entry.value).unwrap_or_default();
                if let Some(effective) = keys::parse_statistics(&entry.key)
                    && !show(effective, statistics.bytes + statistics.items)
                {
                    return Ok(());
                }
            }
            if !range.continue_after(&page) {
                return Ok(());
            }
        }
    }
}
