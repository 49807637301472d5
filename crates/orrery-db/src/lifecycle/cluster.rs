//! Work of a process that shares its store with others: follows the catalog, shares budgets, cleans up after dead
//! processes. `partition/coordination.rs` specifies what is shared and how it stays consistent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_env::{monotonic, task};
use orrery_model::Result;
use orrery_storage::{Duty, PartitionId};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::Lifecycle;
use super::maintenance::missing_partitions;
use crate::catalog::{CATALOG_PARTITION, Container};
use crate::failure::store_failure;

/// A partition without a container may be in creation; after this time it is an orphan.
const ORPHAN_AGE: Duration = Duration::from_mins(10);
/// How often to look for unfinished purges of dead processes.
const PURGE_INTERVAL: Duration = Duration::from_mins(1);
/// How often processes publish their demand.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);

/// The tasks that follow other processes.
#[derive(Default)]
pub(crate) struct Following {
    tasks: Mutex<Vec<JoinHandle<()>>>,
    orphans: Mutex<HashMap<PartitionId, Instant>>,
    purges_loaded: Mutex<Option<Instant>>,
}

impl Following {
    pub(crate) fn stop(&self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Lifecycle {
    /// Acquires the duty of background work, if it becomes free within this time.
    pub(crate) async fn try_maintenance_duty(&self, patience: Duration) -> Result<Option<Box<dyn Duty>>> {
        let Some(coordination) = self.store.coordination() else { return Ok(None) };
        let began = monotonic::now();
        loop {
            let duty = coordination.try_duty("maintenance").await.map_err(store_failure)?;
            if duty.is_some() || self.is_stopping() || monotonic::elapsed(began) > patience {
                return Ok(duty);
            }
            task::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Follows the catalog and shares budgets, if the store is shared.
    pub(crate) fn start_following(self: &Arc<Self>) {
        if !self.is_shared() {
            return;
        }
        let follower = Arc::downgrade(self);
        let follow = task::spawn("follow the catalog", async move {
            // Upgraded for each round, so that the tasks end with the database.
            while let Some(database) = follower.upgrade() {
                let followed = match database.catalog.wait_for_change().await {
                    Ok(true) => database.catalog.refresh().await,
                    Ok(false) => Ok(()),
                    Err(error) => Err(error),
                };
                if let Err(error) = followed {
                    tracing::warn!(%error, "cannot follow the catalog; will retry");
                    // Otherwise an unreachable store would be asked in a busy loop.
                    task::sleep(NOTE_INTERVAL).await;
                } else {
                    // A change may have started one, or its process may have died.
                    database.resume_repartitions();
                }
            }
        });
        let sharer = Arc::downgrade(self);
        let share = task::spawn("share budgets", async move {
            while let Some(database) = sharer.upgrade() {
                if let Err(error) = database.share_budgets().await {
                    tracing::warn!(%error, "cannot share budgets; keeping the current ones");
                }
                drop(database);
                task::sleep(NOTE_INTERVAL).await;
            }
        });
        self.following.tasks.lock().extend([follow, share]);
    }

    /// Every partition in the catalog must exist. Additional ones may be in creation.
    pub(crate) async fn check_partitions(&self) -> Result<()> {
        let mut checked = Ok(());
        for _ in 0..3 {
            self.refresh_if_shared().await?;
            let present = self.store.partitions().await.map_err(store_failure)?;
            checked =
                missing_partitions(&self.catalog.snapshot(), present.iter().map(|partition| partition.id));
            if checked.is_ok() {
                break;
            }
            // A container may have been deleted between the two reads.
            task::sleep(Duration::from_millis(100)).await;
        }
        checked
    }

    /// Background work that only a shared store needs: orphaned partitions, purges of dead processes, and epochs that
    /// were advanced without a catalog change.
    pub(crate) async fn tidy_shared(&self) -> Result<()> {
        let due = |last: &Option<Instant>| last.is_none_or(|last| monotonic::elapsed(last) > PURGE_INTERVAL);
        let load = {
            // Noted before the work: if loading fails, the next round is a minute away, not at once.
            let mut last = self.following.purges_loaded.lock();
            let load = due(&last);
            if load {
                *last = Some(monotonic::now());
            }
            load
        };
        if load {
            self.load_purges().await?;
        }
        let present = self.store.partitions().await.map_err(store_failure)?;
        let catalog = self.catalog.snapshot();
        let mut known: HashMap<PartitionId, u64> = HashMap::new();
        for container in catalog.containers() {
            known.extend(
                container.partitions.iter().map(|partition| (partition.store.id, partition.store.epoch)),
            );
            let newborns = container.reshaping.iter().flat_map(|reshaping| &reshaping.children);
            known.extend(newborns.map(|child| (child.store.id, child.store.epoch)));
        }
        let mut old = Vec::new();
        {
            let mut orphans = self.following.orphans.lock();
            // Forgets partitions that were removed or have found their container.
            orphans.retain(|id, _| {
                present.iter().any(|partition| partition.id == *id) && !known.contains_key(id)
            });
            for partition in &present {
                if partition.id != CATALOG_PARTITION.id && !known.contains_key(&partition.id) {
                    let since = *orphans.entry(partition.id).or_insert_with(monotonic::now);
                    // Measured by this process, since nothing records when a partition was created.
                    if monotonic::elapsed(since) > ORPHAN_AGE {
                        old.push(partition.id);
                    }
                }
            }
        }
        for id in old {
            tracing::info!(partition = id.0, "removing a partition that belongs to no container");
            self.store.destroy(id).await.map_err(store_failure)?;
        }
        if present
            .iter()
            .any(|partition| known.get(&partition.id).is_some_and(|epoch| *epoch != partition.epoch))
        {
            self.adopt_epochs().await?;
        }
        Ok(())
    }

    /// A process that died or lost its duty may have retired a partition without replacing it.
    async fn adopt_epochs(&self) -> Result<()> {
        // A change of partitions is running; its epochs are meant to differ.
        let Some(lock) = self.try_lock_reshaping().await? else { return Ok(()) };
        let present = self.store.partitions().await.map_err(store_failure)?;
        let adopted = self.catalog.change(|change| {
            let containers: Vec<Arc<Container>> = change.catalog.containers().cloned().collect();
            // Those with a change in progress are rolled back instead, which also adopts the epochs.
            for container in containers.iter().filter(|container| container.reshaping.is_none()) {
                let mut new = Container::clone(container);
                for partition in &mut new.partitions {
                    if let Some(info) = present.iter().find(|info| info.id == partition.store.id) {
                        partition.store.epoch = info.epoch;
                    }
                }
                if new.partitions != container.partitions {
                    tracing::warn!(container = %container.rid, "repaired partition epochs that did not match the catalog");
                    change.put_container(new);
                }
            }
            Ok(())
        });
        let adopted = adopted.await;
        lock.release().await;
        adopted
    }
}
