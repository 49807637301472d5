//! Background work: items whose lifetime is over, logical partitions that were purged, versions that are no longer
//! kept, partitions of containers that are gone. None of it changes what readers see; it only gives the space back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::{Key, Lsn, PartitionId, ReadRequest, Scan};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::catalog::{CATALOG_PARTITION, Container, Partition};
use crate::failure::store_failure;
use crate::items::keys;
use crate::items::point::decode;
use crate::partitions::POSITIONS;
use crate::{Catalog, Database};

/// How soon work that waits for throughput is looked at again.
const WAITING: Duration = Duration::from_secs(1);
/// How long a round that was asked for waits for another process's.
const ASKED_PATIENCE: Duration = Duration::from_secs(30);
/// Entries looked at together.
const PAGE_ENTRIES: usize = 256;

/// The background task and the way to stop it.
#[derive(Default)]
pub(crate) struct Maintenance {
    wake: Arc<Notify>,
    stop: Arc<Notify>,
    task: Mutex<Option<JoinHandle<()>>>,
    feed_cursors: Mutex<HashMap<PartitionId, FeedCursors>>,
    /// Long work ends early.
    stopping: AtomicBool,
    /// One round at a time.
    rounds: tokio::sync::Mutex<()>,
}

/// How far the feed of a partition was looked through for items that expire under the container's default.
#[derive(Clone, Debug)]
struct FeedCursors {
    default_ttl: i64,
    /// For each numbering that meets in the feed: the position before which no item can expire under the default,
    /// because those that are there live for ever; none for a numbering that has no entry left.
    of_numberings: Vec<Option<Lsn>>,
}

/// The first failure of several steps.
struct Outcome(Result<()>);

impl Outcome {
    fn add(&mut self, result: Result<()>) {
        match result {
            Ok(()) => {}
            // A partition was split or merged under this step; the next round finds the new ones.
            Err(error) if error.kind == ErrorKind::PartitionGone => {
                tracing::debug!(%error, "a step of the maintenance is left to the next round");
            }
            Err(error) if self.0.is_ok() => self.0 = Err(error),
            Err(error) => tracing::warn!(%error, "a step of the maintenance failed"),
        }
    }
}

impl Maintenance {
    pub(crate) async fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let task = self.task.lock().take();
        if let Some(task) = task {
            self.stop.notify_one();
            if task.await.is_err() {
                tracing::error!("the maintenance task had panicked");
            }
        }
    }
}

impl Database {
    pub(crate) fn start_maintenance(self: &Arc<Self>) {
        let database = Arc::downgrade(self);
        let (wake, stop) = (Arc::clone(&self.maintenance.wake), Arc::clone(&self.maintenance.stop));
        let interval = Duration::from_millis(self.options.sweep_interval_ms);
        let task = tokio::spawn(async move {
            let mut pause = interval;
            loop {
                tokio::select! {
                    () = stop.notified() => return,
                    () = wake.notified() => {}
                    () = tokio::time::sleep(pause) => {}
                }
                let Some(database) = database.upgrade() else { return };
                if let Err(error) = database.maintain_within(WAITING).await {
                    tracing::warn!(%error, "maintenance failed and will be tried again");
                }
                // What waits for throughput goes on with the next seconds'.
                pause = if database.purges.is_waiting() { interval.min(WAITING) } else { interval };
            }
        });
        *self.maintenance.task.lock() = Some(task);
    }

    pub(crate) fn wake_maintenance(&self) {
        self.maintenance.wake.notify_one();
    }

    /// One round of all background work. Tests call it directly after moving the clock. What fails does not keep
    /// the rest from being done; the first failure is the answer.
    pub async fn maintain(self: &Arc<Self>) -> Result<()> {
        self.maintain_within(ASKED_PATIENCE).await
    }

    async fn maintain_within(self: &Arc<Self>, patience: Duration) -> Result<()> {
        // A round that was woken and one that was asked for would get into each other's way.
        let _one_at_a_time = self.maintenance.rounds.lock().await;
        let catalog = self.catalog.snapshot();
        self.budgets.keep_only(&catalog);
        self.purges.forget_finished();
        if !self.is_shared() {
            return self.maintain_alone().await;
        }
        // Of several processes one does the work; when it dies another one has it in the next round.
        let Some(duty) = self.try_maintenance_duty(patience).await? else { return Ok(()) };
        let mut outcome = Outcome(self.catalog.refresh().await);
        outcome.add(self.tidy_shared().await);
        outcome.add(self.maintain_alone().await);
        duty.release().await;
        outcome.0
    }

    async fn maintain_alone(self: &Arc<Self>) -> Result<()> {
        let mut outcome = Outcome(Ok(()));
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
                outcome.add(self.remove_retired(container).await);
            }
            outcome.add(self.maintain_history(container).await);
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

    /// Entries are deleted here without a trace in the journal that splits follow, so none may be under way.
    async fn remove_retired(&self, container: &Arc<Container>) -> Result<()> {
        let Some(no_split) = self.try_lock_reshaping().await? else { return Ok(()) };
        let catalog = self.catalog.snapshot();
        let removed = match catalog.container_by_rid(container.rid) {
            Some(current) if current.reshaping.is_none() => self.remove_retired_generations(current).await,
            _ => Ok(()),
        };
        no_split.release().await;
        removed
    }

    /// Whether the database is being closed.
    pub(crate) fn is_stopping(&self) -> bool {
        self.maintenance.stopping.load(Ordering::Acquire)
    }

    /// Forgets what is kept in memory of partitions that are gone.
    pub(crate) fn forget_partitions(&self, partitions: &[PartitionId]) {
        let mut cursors = self.maintenance.feed_cursors.lock();
        for partition in partitions {
            cursors.remove(partition);
            self.budgets.forget(*partition);
        }
    }

    /// Whether no query page that began before this second can still be running.
    fn is_old(&self, second: i64) -> bool {
        self.env.now_seconds() - second > 120
    }

    /// Items that name their own lifetime are found by their expiry entries.
    async fn sweep_own_lifetimes(&self, container: &Arc<Container>, partition: &Partition) -> Result<()> {
        let mut range = keys::expired_by(self.env.now_seconds());
        loop {
            let scan = Scan::forward(range.clone(), PAGE_ENTRIES);
            let page =
                self.store.read(partition.store, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
            let item_keys = page.entries.iter().filter_map(|entry| keys::item_of_expiry(&entry.key));
            self.sweep_keys(container, partition, item_keys.collect()).await?;
            match page.entries.last() {
                Some(last) if page.more => range.start = [last.key.as_slice(), &[0]].concat(),
                _ => return Ok(()),
            }
        }
    }

    /// Items under the container's default are found by the feed, which is in the order of their timestamps:
    /// from its start up to the first that is too young. Partitions that were merged have numbered on their own,
    /// so each numbering is followed by itself.
    async fn sweep_default_lifetime(
        &self,
        container: &Arc<Container>,
        partition: &Partition,
        default_ttl: i64,
    ) -> Result<()> {
        let known = self.maintenance.feed_cursors.lock().get(&partition.store.id).cloned();
        let known = known.filter(|known| known.default_ttl == default_ttl);
        let mut cursors = known.unwrap_or_else(|| FeedCursors {
            default_ttl,
            of_numberings: vec![Some(0); usize::from(partition.numberings.max(1))],
        });
        for (numbering, cursor) in (0..).zip(&mut cursors.of_numberings) {
            if let Some(after) = *cursor {
                *cursor = self.sweep_numbering(container, partition, default_ttl, numbering, after).await?;
            }
        }
        self.maintenance.feed_cursors.lock().insert(partition.store.id, cursors);
        Ok(())
    }

    /// Sweeps the entries of one numbering after a position; answers the position before which none is left that
    /// can expire, or none if the numbering has nothing more and gets nothing new.
    async fn sweep_numbering(
        &self,
        container: &Arc<Container>,
        partition: &Partition,
        default_ttl: i64,
        numbering: u16,
        after: Lsn,
    ) -> Result<Option<Lsn>> {
        let now = self.env.now_seconds();
        let mut cursor = after;
        let (mut nothing_left_behind, mut is_empty) = (true, true);
        let mut range = keys::feed_after(after);
        loop {
            let scan = Scan::forward(range.clone(), PAGE_ENTRIES);
            let page =
                self.store.read(partition.store, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
            let own = page.entries.iter().filter(|entry| {
                keys::parse_feed(&entry.key).is_some_and(|(_, position)| position / POSITIONS == numbering)
            });
            let item_keys: Vec<Key> = own.map(|entry| entry.value.to_vec()).collect();
            is_empty &= item_keys.is_empty();
            let get = ReadRequest::Get(item_keys.clone());
            let values = self.store.read(partition.store, get).await.map_err(store_failure)?.values;
            let mut expired = Vec::new();
            let mut too_young = false;
            for (key, value) in item_keys.into_iter().zip(values) {
                let Some(value) = value else { continue };
                let item = decode(&value)?;
                if item.is_expired(Some(default_ttl), now) {
                    expired.push((key, value));
                } else if item.timestamp.saturating_add(default_ttl) > now {
                    too_young = true;
                    if nothing_left_behind {
                        cursor = item.lsn.saturating_sub(1);
                    }
                    break;
                } else if item.ttl == Some(-1) && nothing_left_behind {
                    // Other items of this transaction may be younger.
                    cursor = item.lsn.saturating_sub(1);
                } else {
                    nothing_left_behind = false;
                }
            }
            self.sweep(container, expired).await?;
            match page.entries.last() {
                Some(last) if page.more && !too_young => range.start = [last.key.as_slice(), &[0]].concat(),
                _ => break,
            }
        }
        // New entries are all of the first numbering.
        Ok((numbering == 0 || !is_empty).then_some(cursor))
    }

    async fn sweep_keys(
        &self,
        container: &Arc<Container>,
        partition: &Partition,
        item_keys: Vec<Key>,
    ) -> Result<()> {
        if item_keys.is_empty() {
            return Ok(());
        }
        let get = ReadRequest::Get(item_keys.clone());
        let values = self.store.read(partition.store, get).await.map_err(store_failure)?.values;
        let items = item_keys.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?)));
        self.sweep(container, items.collect()).await?;
        Ok(())
    }

    /// Destroys partitions that no container has: left by a stop between two steps of a deletion.
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

    /// Gives the space of removed containers back, without making the client wait.
    pub(crate) fn destroy_partitions(self: &Arc<Self>, partitions: Vec<PartitionId>) {
        self.forget_partitions(&partitions);
        let database = Arc::clone(self);
        tokio::spawn(async move {
            for partition in partitions {
                if let Err(error) = database.store.destroy(partition).await {
                    tracing::warn!(%error, partition = partition.0, "a partition is left to the next start");
                }
            }
        });
    }
}

/// A container whose partition is missing would silently have lost its items: say so instead.
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
