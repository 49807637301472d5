//! Splits a physical partition in two at the median of its stored bytes.

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

/// The result of a split.
#[derive(Clone, Debug)]
pub struct SplitReport {
    pub parent: u32,
    pub children: [u32; 2],
    /// The first effective key of the second child.
    pub at: EffectiveKey,
}

impl Lifecycle {
    /// Splits a partition at the median of its stored bytes.
    pub async fn split_partition(self: &Arc<Self>, rid: ContainerRid, range_id: u32) -> Result<SplitReport> {
        let database = Arc::clone(self);
        self.in_own_task(async move { database.split_now(rid, range_id).await }).await
    }

    async fn split_now(self: &Arc<Self>, rid: ContainerRid, range_id: u32) -> Result<SplitReport> {
        let lock = self.lock_reshaping().await?;
        let done = self.split_locked(rid, range_id, &lock).await;
        lock.release().await;
        done
    }

    async fn split_locked(
        self: &Arc<Self>,
        rid: ContainerRid,
        range_id: u32,
        lock: &ReshapingLock<'_>,
    ) -> Result<SplitReport> {
        let catalog = self.catalog.snapshot();
        let container = Arc::clone(existing(&catalog, rid)?);
        let parent = container.partition(range_id)?.clone();
        let at = self.split_point(&container, &parent).await?;
        let (left, right) = parent
            .range
            .split_at(&at)
            .ok_or_else(|| Error::internal("the split point lies outside of the partition"))?;
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

    /// The key at which the second half of the stored bytes begins.
    async fn split_point(&self, container: &Container, parent: &Partition) -> Result<EffectiveKey> {
        let mut total = 0;
        self.weigh(parent, |_, weight| {
            total += weight;
            true
        })
        .await?;
        let (mut before, mut by_weight) = (0, None);
        self.weigh(parent, |effective, weight| {
            if before > 0 && before * 2 >= total {
                by_weight = Some(effective);
            }
            before += weight;
            by_weight.is_none()
        })
        .await?;
        // With too few keys to weigh, use the middle of the range.
        let middle = || container.definition.partition_key.middle(&parent.range);
        by_weight.or_else(middle).filter(|at| *at > parent.range.min && *at < parent.range.max).ok_or_else(
            || {
                Error::bad_request(format!(
                    "The partition {} holds a single key and cannot be split.",
                    parent.range_id
                ))
            },
        )
    }

    /// Visits each logical partition and its weight until `visit` stops it.
    async fn weigh(&self, parent: &Partition, mut show: impl FnMut(EffectiveKey, u64) -> bool) -> Result<()> {
        let mut range = keys::statistics_in(&parent.range);
        loop {
            let scan = Scan::forward(range.clone(), SCAN_ENTRIES);
            let page = self.store.read(parent.store, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
            for entry in &page.entries {
                let statistics = Statistics::decode(&entry.value).unwrap_or_default();
                if let Some(effective) = keys::parse_statistics(&entry.key)
                    && !show(effective, statistics.bytes + statistics.items)
                {
                    return Ok(());
                }
            }
            match page.entries.last() {
                Some(last) if page.more => range.start = [last.key.as_slice(), &[0]].concat(),
                _ => return Ok(()),
            }
        }
    }
}
