//! Merging two neighbouring partitions into one.
//!
//! Both have assigned LSNs independently, so the merged feed may have two entries with the same LSN. Entries of the
//! second one are distinguished by the position inside the transaction, which items also store: it has room for more
//! than the operations of a batch or script. LSNs, etags and RIDs are unchanged; new writes get LSNs above those of
//! both, so positions held by clients stay valid.

use std::sync::Arc;

use orrery_model::partition_key::EpkRange;
use orrery_model::rid::ContainerRid;
use orrery_model::{Error, Result};

use super::Lifecycle;
use crate::catalog::{PendingPartition, Reshaping, existing};
use crate::layout::stored::POSITIONS;
use crate::partition::ReshapingLock;

/// The maximum number of LSN sequences in one feed.
const NUMBERINGS_MAX: u16 = u16::MAX / POSITIONS + 1;

/// The result of a merge.
#[derive(Clone, Debug)]
pub struct MergeReport {
    pub parents: [u32; 2],
    pub child: u32,
}

impl Lifecycle {
    /// Merges a partition with the one after it.
    pub async fn merge_partitions(
        self: &Arc<Self>,
        rid: ContainerRid,
        parents: [u32; 2],
    ) -> Result<MergeReport> {
        let database = Arc::clone(self);
        self.in_own_task(async move { database.merge_now(rid, parents).await }).await
    }

    async fn merge_now(self: &Arc<Self>, rid: ContainerRid, ids: [u32; 2]) -> Result<MergeReport> {
        let lock = self.lock_reshaping().await?;
        let done = self.merge_locked(rid, ids, &lock).await;
        lock.release().await;
        done
    }

    async fn merge_locked(
        self: &Arc<Self>,
        rid: ContainerRid,
        ids: [u32; 2],
        lock: &ReshapingLock<'_>,
    ) -> Result<MergeReport> {
        let catalog = self.catalog.snapshot();
        let container = Arc::clone(existing(&catalog, rid)?);
        // The caller may name them in either order.
        let mut parents = vec![container.partition(ids[0])?.clone(), container.partition(ids[1])?.clone()];
        parents.sort_by(|a, b| a.range.min.cmp(&b.range.min));
        if parents[0].range.max != parents[1].range.min {
            return Err(Error::bad_request(format!(
                "The partitions {} and {} are not neighbours.",
                ids[0], ids[1]
            )));
        }
        self.check_merged(&catalog, &container, &parents).await?;
        // Each numbering of either parent keeps a band of positions of its own in the merged feed.
        let numberings = parents[0].numberings + parents[1].numberings;
        if numberings > NUMBERINGS_MAX {
            return Err(Error::bad_request(format!(
                "The partitions {} and {} have been merged too often to be merged again.",
                ids[0], ids[1]
            )));
        }
        let range = EpkRange::new(parents[0].range.min.clone(), parents[1].range.max.clone());
        // In range order, which is the order in which their feeds are numbered.
        let order: Vec<u32> = parents.iter().map(|parent| parent.range_id).collect();
        let report = [order[0], order[1]];
        let others = container.partitions.iter().filter(|other| !report.contains(&other.range_id));
        let beside = others.map(|other| other.store.id).collect();
        let mut numbers = self.catalog.choose_numbers(1, beside).await?;
        let children = self
            .reshape(
                rid,
                parents,
                |change, current| {
                    let child = PendingPartition {
                        range_id: current.next_range_id(),
                        range,
                        store: change.new_partition(&mut numbers),
                        numberings,
                    };
                    Ok(Reshaping { parents: order, children: vec![child] })
                },
                lock,
            )
            .await?;
        Ok(MergeReport { parents: report, child: children[0].range_id })
    }
}
