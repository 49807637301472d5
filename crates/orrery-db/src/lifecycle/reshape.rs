//! Replaces partitions by others online: the common part of splits and merges.
//!
//! 1. The catalog records the plan; the parents are marked, so that their writes are logged from now on.
//! 2. Everything in the parents is copied, page by page, each entry to the child that owns its effective key.
//! 3. The split logs are followed until little is left.
//! 4. The parents are retired: reads and writes to them are rejected and rerouted. The rest of the split logs is
//!    followed, the children continue the parents' LSNs, and one catalog change puts them in place.
//! 5. The parents are destroyed in the background.
//!
//! A failure or stop before the catalog change in step 4 is rolled back, at once or at the next start: the children are
//! destroyed and the parents serve again. After it, the parents are orphans that the next start removes. The catalog
//! record is removed last, so an interrupted rollback is repeated.

use std::sync::Arc;

use orrery_model::rid::ContainerRid;
use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::{Key, PartitionInfo, PartitionRef};

use super::Lifecycle;
use super::copy::{Copy, Source};
use crate::catalog::{
    Catalog, Change, Container, OfferOwner, Partition, PendingPartition, RETIRED_RANGES_MAX, Reshaping,
    RetiredRange, existing,
};
use crate::failure::store_failure;
use crate::layout::split_log;
use crate::partition::ReshapingLock;

/// The cut-over starts when at most this many logged transactions are left, to keep it brief.
const SWITCH_ENTRIES: usize = 100;
/// Rounds of following the split logs before the cut-over starts anyway.
const ROUNDS_MAX: usize = 100;
/// Split log entries of a rolled-back change removed per operation.
const DELETE_AT_ONCE: usize = 1000;

impl Lifecycle {
    /// Runs work to completion even if the requester goes away: a partition must not be left half moved.
    pub(super) async fn in_own_task<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let ended = orrery_env::task::spawn("change partitions", work).await;
        ended.unwrap_or_else(|error| {
            Err(Error::internal(format!("the change of partitions stopped: {error}")))
        })
    }

    /// Replaces the parents by the planned children. The caller holds the lock.
    pub(super) async fn reshape(
        self: &Arc<Self>,
        rid: ContainerRid,
        parents: Vec<Partition>,
        plan: impl FnOnce(&mut Change, &Container) -> Result<Reshaping>,
        lock: &ReshapingLock<'_>,
    ) -> Result<Vec<PendingPartition>> {
        let reshaping = self
            .catalog
            .change(|change| {
                let current = Arc::clone(existing(&change.catalog, rid)?);
                for parent in &parents {
                    // The catalog may have changed since the caller chose the parents.
                    if current.partition(parent.range_id)?.store != parent.store
                        || current.reshaping.is_some()
                    {
                        return Err(Error::new(
                            ErrorKind::Locked,
                            "The container's partitions are already being changed.",
                        ));
                    }
                }
                if current.repartition.is_some() {
                    return Err(crate::catalog::is_locked());
                }
                let reshaping = plan(change, &current)?;
                // Planning has taken numbers for the children; the counter is part of the account's record.
                change.put_account();
                let container =
                    Container { reshaping: Some(reshaping.clone()), ..Container::clone(&current) };
                change.put_container(container);
                Ok(reshaping)
            })
            .await?;
        if let Err(error) = self.move_everything(rid, &parents, &reshaping, lock).await {
            // If the lock was lost to another process, that one does the rest.
            lock.check().await?;
            if let Err(failure) = self.roll_back(rid, &reshaping).await {
                // It stays recorded: maintenance or the next start retries.
                tracing::warn!(%failure, container = %rid, "cannot roll back partitions yet");
            }
            return Err(error);
        }
        let gone: Vec<_> = parents.iter().map(|parent| parent.store.id).collect();
        self.destroy_partitions(gone);
        Ok(reshaping.children)
    }

    async fn move_everything(
        &self,
        rid: ContainerRid,
        parents: &[Partition],
        reshaping: &Reshaping,
        lock: &ReshapingLock<'_>,
    ) -> Result<()> {
        for child in &reshaping.children {
            // Without an LSN for now: the parents go on numbering until they are retired.
            self.store.create(child.store.id, 0).await.map_err(store_failure)?;
        }
        let copy = Copy { database: self, container: rid, children: &reshaping.children };
        let mut sources: Vec<(Source, Key)> = Vec::with_capacity(parents.len());
        let mut numbering = 0;
        for parent in parents {
            // Marked before anything is copied: whatever is written from now on is either in the copy or in the log.
            let marked = self.mark_split(parent.store, true).await?;
            sources.push((Source { store: parent.store, numbering }, split_log::position_after(marked)));
            numbering += parent.numberings;
        }
        for (source, _) in &sources {
            copy.everything(source).await?;
        }
        // Each round is shorter than the one before, unless writers are as fast as the copy.
        for _ in 0..ROUNDS_MAX {
            let mut left = 0;
            for (source, followed) in &mut sources {
                left += copy.follow(source, followed).await?;
            }
            if left <= SWITCH_ENTRIES {
                break;
            }
        }
        // The last moment at which nothing has changed for clients.
        lock.check().await?;
        let mut last = 0;
        // From here on the parents accept nothing; clients wait for the catalog change below.
        for (source, _) in &mut sources {
            last = last.max(self.store.retire(source.store).await.map_err(store_failure)?);
            // Reading the rest of the log needs the epoch that the retirement has made.
            source.store.epoch += 1;
        }
        for (source, followed) in &mut sources {
            while copy.follow(source, followed).await? > 0 {}
        }
        // Raises the children to the highest LSN of the parents, so that positions and session tokens never go back.
        for child in &reshaping.children {
            self.store.create(child.store.id, last).await.map_err(store_failure)?;
        }
        self.put_in_place(rid, reshaping).await
    }

    /// Publishes the children in one catalog change.
    async fn put_in_place(&self, rid: ContainerRid, reshaping: &Reshaping) -> Result<()> {
        self.catalog
            .change(|change| {
                let current = Arc::clone(existing(&change.catalog, rid)?);
                if current.reshaping.as_ref() != Some(reshaping) {
                    return Err(Error::new(
                        ErrorKind::Locked,
                        "Another server has rolled back this change of partitions.",
                    ));
                }
                let routing_version = current.routing_version + 1;
                let (mut parents, mut timestamp) = (Vec::new(), change.stamp.timestamp);
                for range_id in &reshaping.parents {
                    let parent = current.partition(*range_id)?;
                    parents.extend(parent.parents.iter().chain([range_id]));
                    // Even if the clock was set back, session versions of children must exceed those of their parents.
                    timestamp = timestamp.max(parent.timestamp);
                }
                let mut seen = std::collections::HashSet::new();
                // Both parents of a merge may have the same ancestors.
                parents.retain(|parent| seen.insert(*parent));
                let children = reshaping.children.iter().map(|child| Partition {
                    range_id: child.range_id,
                    range: child.range.clone(),
                    store: child.store,
                    parents: parents.clone(),
                    numberings: child.numberings,
                    since: routing_version,
                    timestamp,
                });
                let mut partitions = current.partitions.clone();
                partitions.retain(|partition| !reshaping.parents.contains(&partition.range_id));
                partitions.extend(children);
                // `partition_of` searches by the lower bound.
                partitions.sort_by(|a, b| a.range.min.cmp(&b.range.min));
                let mut former = current.former.clone();
                for range_id in &reshaping.parents {
                    let range = current.partition(*range_id)?.range.clone();
                    former.push(RetiredRange { range_id: *range_id, range, until: routing_version });
                }
                // Bounded: the oldest ones go first, since clients refresh their ranges sooner or later.
                former.drain(..former.len().saturating_sub(RETIRED_RANGES_MAX));
                change.put_container(Container {
                    former,
                    partitions,
                    routing_version,
                    reshaping: None,
                    ..Container::clone(&current)
                });
                Ok(())
            })
            .await
    }

    /// Rolls back an unfinished change: the parents serve again, the children are destroyed.
    async fn roll_back(&self, rid: ContainerRid, reshaping: &Reshaping) -> Result<()> {
        let known = self.store.partitions().await.map_err(store_failure)?;
        let catalog = self.catalog.snapshot();
        let parents = catalog.container_by_rid(rid).into_iter().flat_map(|container| &container.partitions);
        // Parents first: they serve again while the children are removed.
        for parent in parents.filter(|parent| reshaping.parents.contains(&parent.range_id)) {
            // It may have been retired: its epoch has advanced.
            let Some(store) = present(&known, parent.store) else { continue };
            self.mark_split(store, false).await?;
            let delete = || self.store.delete_range(store, split_log::all_entries(), DELETE_AT_ONCE);
            while delete().await.map_err(store_failure)? == DELETE_AT_ONCE {}
        }
        // They have never served a request, so nothing of them is needed.
        for child in &reshaping.children {
            self.store.destroy(child.store.id).await.map_err(store_failure)?;
        }
        // Last, so that an interrupted rollback is found and repeated.
        self.catalog
            .change(|change| {
                // The container may have been deleted meanwhile.
                let Some(current) = change.catalog.container_by_rid(rid).cloned() else { return Ok(()) };
                let mut container = Container { reshaping: None, ..Container::clone(&current) };
                for partition in &mut container.partitions {
                    partition.store = present(&known, partition.store).unwrap_or(partition.store);
                }
                change.put_container(container);
                Ok(())
            })
            .await
    }

    /// Rolls back interrupted changes.
    pub(crate) async fn roll_back_interrupted(&self) -> Result<()> {
        let interrupted = |catalog: &Catalog| -> Vec<(ContainerRid, Reshaping)> {
            let containers = catalog.containers();
            containers.filter_map(|container| Some((container.rid, container.reshaping.clone()?))).collect()
        };
        // Checked without the lock first, which on a shared store costs a round trip.
        if interrupted(&self.catalog.snapshot()).is_empty() {
            return Ok(());
        }
        // A change whose lock is held is in progress, not interrupted.
        let lock = if self.is_shared() {
            match self.try_lock_reshaping().await? {
                Some(lock) => lock,
                None => return Ok(()),
            }
        } else {
            self.lock_reshaping().await?
        };
        // One that fails must not keep the others from being rolled back.
        let mut done = Ok(());
        for (rid, reshaping) in interrupted(&self.catalog.snapshot()) {
            tracing::info!(container = %rid, parents = ?reshaping.parents, "rolling back a change of partitions");
            done = done.and(self.roll_back(rid, &reshaping).await);
        }
        lock.release().await;
        done
    }

    /// Whether two partitions may become one: it must not be split again at once.
    pub(super) async fn check_merged(
        &self,
        catalog: &Catalog,
        container: &Container,
        parents: &[Partition],
    ) -> Result<()> {
        let mut bytes = 0;
        for parent in parents {
            bytes += self.store.size_bytes(parent.store.id).await.map_err(store_failure)?;
        }
        if bytes > self.options.partition_bytes_max {
            return Err(Error::bad_request(
                "Together the partitions exceed the size limit of one partition.",
            ));
        }
        let offer = catalog.offer_of(OfferOwner::Container(container.rid));
        let throughput = offer.map_or(0, |offer| offer.document.throughput.maximum());
        let parts = u32::try_from(container.partitions.len() - 1).unwrap_or(u32::MAX).max(1);
        if throughput.div_ceil(parts) > self.partition_throughput_max() {
            return Err(Error::bad_request(
                "With one partition less, the throughput share of each would exceed the limit.",
            ));
        }
        Ok(())
    }
}

/// The partition with the epoch that the store has.
fn present(known: &[PartitionInfo], partition: PartitionRef) -> Option<PartitionRef> {
    let info = known.iter().find(|info| info.id == partition.id)?;
    Some(PartitionRef { id: info.id, epoch: info.epoch })
}
