//! Background work: removes expired items, purged logical partitions, trimmed history and orphaned partitions. None of
//! it changes what readers see; it only reclaims space.

use std::sync::Arc;
use std::time::Duration;

use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::PartitionId;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::Lifecycle;
use crate::catalog::{CATALOG_PARTITION, Catalog, Container};
use crate::failure::store_failure;

/// How soon to retry work that waits for throughput.
const WAITING: Duration = Duration::from_secs(1);
/// How long an explicit round waits for that of another process.
const ASKED_PATIENCE: Duration = Duration::from_secs(30);

/// The background task and the way to stop it.
#[derive(Default)]
pub(crate) struct Maintenance {
    stop: Arc<Notify>,
    task: Mutex<Option<JoinHandle<()>>>,
    /// One round at a time.
    rounds: tokio::sync::Mutex<()>,
}

/// The first failure of several steps.
struct Outcome(Result<()>);

impl Outcome {
    fn add(&mut self, result: Result<()>) {
        match result {
            Ok(()) => {}
            // A partition was split or merged during this step; the next round finds the new ones.
            Err(error) if error.kind == ErrorKind::PartitionGone => {
                tracing::debug!(%error, "a maintenance step is deferred to the next round");
            }
            Err(error) if self.0.is_ok() => self.0 = Err(error),
            Err(error) => tracing::warn!(%error, "a maintenance step failed"),
        }
    }
}

impl Maintenance {
    pub(crate) async fn stop(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            // `notify_one` is remembered, so the task stops also if it is in the middle of a round.
            self.stop.notify_one();
            if task.await.is_err() {
                tracing::error!("the maintenance task panicked");
            }
        }
    }
}

impl Lifecycle {
    pub(crate) fn start_maintenance(self: &Arc<Self>) {
        let database = Arc::downgrade(self);
        let (wake, stop) = (Arc::clone(&self.wake), Arc::clone(&self.maintenance.stop));
        let interval = Duration::from_millis(self.options.sweep_interval_ms);
        let task = orrery_env::task::spawn("maintenance", async move {
            let mut pause = interval;
            loop {
                tokio::select! {
                    () = stop.notified() => return,
                    () = wake.notified() => {}
                    () = orrery_env::task::sleep(pause) => {}
                }
                let Some(database) = database.upgrade() else { return };
                if let Err(error) = database.maintain_within(WAITING).await {
                    tracing::warn!(%error, "maintenance failed; will retry");
                }
                // Work that waits for throughput continues in the next seconds.
                pause = if database.purges.is_waiting() { interval.min(WAITING) } else { interval };
            }
        });
        *self.maintenance.task.lock() = Some(task);
    }

    /// One round of all background work. Tests call it directly after moving the clock. A failing step does not stop
    /// the others; the first failure is returned.
    pub async fn maintain(self: &Arc<Self>) -> Result<()> {
        self.maintain_within(ASKED_PATIENCE).await
    }

    async fn maintain_within(self: &Arc<Self>, patience: Duration) -> Result<()> {
        // A scheduled round and an explicit one must not run concurrently.
        let _one_at_a_time = self.maintenance.rounds.lock().await;
        let catalog = self.catalog.snapshot();
        // State in memory of what no longer exists; each server does this for itself.
        self.budgets.keep_only(&catalog);
        self.feed_cursors.keep_only(&catalog);
        self.purges.forget_finished();
        if !self.is_shared() {
            return self.maintain_alone().await;
        }
        // One of several processes does the work; if it dies, another takes over in the next round.
        let Some(duty) = self.try_maintenance_duty(patience).await? else { return Ok(()) };
        let mut outcome = Outcome(self.catalog.refresh().await);
        outcome.add(self.tidy_shared().await);
        outcome.add(self.maintain_alone().await);
        duty.release().await;
        outcome.0
    }

    async fn maintain_alone(self: &Arc<Self>) -> Result<()> {
        let mut outcome = Outcome(Ok(()));
        // First, because splits and rebuilds below do not touch a container that is half moved.
        outcome.add(self.roll_back_interrupted().await);
        outcome.add(self.grow().await);
        if !self.purges.is_idle() {
            outcome.add(self.finish_purges().await);
        }
        self.purges.forget_finished();
        let catalog = self.catalog.snapshot();
        for container in catalog.containers() {
            if container.index.building.is_some() {
                outcome.add(self.rebuild_index(container).await);
            } else if !container.index.retired.is_empty() && self.is_old(container.stamp.timestamp) {
                // Old enough that no page which began with the retired generation is still being read.
                outcome.add(self.remove_retired(container).await);
            }
            outcome.add(self.maintain_history(container).await);
            // Without a default on the container nothing expires, whatever the items say.
            let Some(default_ttl) = container.definition.default_ttl else { continue };
            for partition in &container.partitions {
                outcome.add(self.sweep_own_lifetimes(container, partition).await);
                if default_ttl > 0 {
                    outcome.add(self.sweep_default_lifetime(container, partition, default_ttl).await);
                }
            }
        }
        outcome.0
    }

    /// These deletions are not in the split log, so no split may be in progress.
    async fn remove_retired(&self, container: &Arc<Container>) -> Result<()> {
        // A split is running: left to a later round.
        let Some(no_split) = self.try_lock_reshaping().await? else { return Ok(()) };
        let catalog = self.catalog.snapshot();
        // Looked up again under the lock.
        let removed = match catalog.container_by_rid(container.rid) {
            Some(current) if current.reshaping.is_none() => self.remove_retired_generations(current).await,
            _ => Ok(()),
        };
        no_split.release().await;
        removed
    }

    /// Whether no query page that began before this second can still be running.
    fn is_old(&self, second: i64) -> bool {
        self.env.now_seconds() - second > 120
    }

    /// Destroys orphaned partitions, left by a stop between two steps of a deletion.
    pub(crate) async fn remove_orphaned_partitions(&self) -> Result<()> {
        let catalog = self.catalog.snapshot();
        let known: std::collections::HashSet<PartitionId> =
            catalog.containers().flat_map(|container| &container.partitions).map(|p| p.store.id).collect();
        let present = self.store.partitions().await.map_err(store_failure)?;
        for partition in &present {
            if partition.id != CATALOG_PARTITION.id && !known.contains(&partition.id) {
                tracing::info!(
                    partition = partition.id.0,
                    "removing a partition that belongs to no container"
                );
                self.store.destroy(partition.id).await.map_err(store_failure)?;
            }
        }
        missing_partitions(&catalog, present.iter().map(|partition| partition.id))
    }
}

/// A container with a missing partition has lost its items: fail instead of hiding it.
pub(crate) fn missing_partitions(
    catalog: &Catalog,
    present: impl Iterator<Item = PartitionId>,
) -> Result<()> {
    let present: std::collections::HashSet<PartitionId> = present.collect();
    for container in catalog.containers() {
        if let Some(partition) =
            container.partitions.iter().find(|partition| !present.contains(&partition.store.id))
        {
            return Err(Error::internal(format!(
                "the store lacks partition {} of the container {}",
                partition.store.id.0,
                container.alt_path()
            )));
        }
    }
    Ok(())
}
