//! Several processes on one store. All serve all partitions; there is no leader and no lease.
//!
//! What a process keeps in memory of what others may change, and how it stays true:
//! * The catalog: followed by waiting for its partition's number (told at once, looked for several times a
//!   second); looked at again whenever a partition turns out to be gone or an index to be newer; a change is
//!   made on the newest one, under a lock of all processes, and still checked against its version.
//! * Splits, merges and their roll-back: one at a time in all processes. Who loses that duty in the middle stops,
//!   and the switch is made only while the catalog still records the very same plan.
//! * A container that gets another key: one process does it, another goes on if that one dies (`repartition`).
//! * Background work: one process at a time, taken over in the next round when it dies.
//! * Purges: readers of other processes do not know of them, so they are finished before they are answered, if
//!   there are others.
//! * Index generations: a write with a new view of them notes its version in the partition; a query page looks
//!   at that note first and begins again with a fresh catalog if its own view is older.
//! * Budgets: each process has a part of a partition's rate, by what it was asked for in the last second
//!   against what all were. The parts add up to the rate except while demand moves from one process to another:
//!   for up to two seconds the sum may then be as much as twice the rate, or fall short of it.
//!
//! Heat, throttling events, the rate an autoscale offer is scaled to and the progress of an index rebuild are what
//! the one process that is asked has seen.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_model::partition_key::EpkRange;
use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::{Duty, PartitionId, PartitionStore, ReadRequest};
use parking_lot::Mutex;
use tokio::sync::MutexGuard;
use tokio::task::JoinHandle;

use crate::Database;
use crate::catalog::{CATALOG_PARTITION, Container};
use crate::failure::store_failure;
use crate::items::keys;
use crate::maintenance::missing_partitions;

/// How long to wait for a duty that another process has.
const DUTY_PATIENCE: Duration = Duration::from_secs(20);
/// A partition that no container has may be one that is just being made; after this it is not.
const ORPHAN_AGE: Duration = Duration::from_mins(10);
/// How often unfinished purges of processes that died are looked for.
const PURGE_INTERVAL: Duration = Duration::from_mins(1);
/// How often processes tell each other what was asked of them.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);
/// A process whose note is older does not count.
const NOTE_AGE_MAX: Duration = Duration::from_secs(4);
/// A process whose note is older has no readers that could miss a purge.
const COMPANY_AGE_MAX: Duration = Duration::from_secs(15);
/// Budgets in one note: those with the greatest demand.
const NOTE_BUDGETS_MAX: usize = 4000;

/// The tasks that follow other processes.
#[derive(Default)]
pub(crate) struct Following {
    tasks: Mutex<Vec<JoinHandle<()>>>,
    orphans: Mutex<HashMap<PartitionId, Instant>>,
    purges_loaded: Mutex<Option<Instant>>,
    /// What was told last.
    note: Mutex<Bytes>,
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

/// Leave to change partitions: nobody else does, in this process or another.
pub(crate) struct ReshapingLock<'a> {
    _here: MutexGuard<'a, ()>,
    duty: Option<Box<dyn Duty>>,
}

impl ReshapingLock<'_> {
    /// Fails if another process may have it by now.
    pub(crate) async fn check(&self) -> Result<()> {
        match &self.duty {
            Some(duty) => duty.check().await.map_err(store_failure),
            None => Ok(()),
        }
    }

    pub(crate) async fn release(self) {
        if let Some(duty) = self.duty {
            duty.release().await;
        }
    }
}

/// Takes a duty, waiting for whoever has it. `None` = the store is this process's alone.
pub(crate) async fn take_duty(store: &dyn PartitionStore, name: &str) -> Result<Option<Box<dyn Duty>>> {
    let Some(coordination) = store.coordination() else { return Ok(None) };
    let began = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(duty) = coordination.try_duty(name).await.map_err(store_failure)? {
            return Ok(Some(duty));
        }
        if began.elapsed() > DUTY_PATIENCE {
            return Err(Error::new(
                ErrorKind::RetryWith,
                "Another server is at the same work. Please retry.",
            ));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

impl Database {
    /// Whether other processes may have the same store open.
    pub(crate) fn is_shared(&self) -> bool {
        self.store.coordination().is_some()
    }

    /// Leave to change partitions, when nobody else does.
    pub(crate) async fn lock_reshaping(&self) -> Result<ReshapingLock<'_>> {
        let here = self.reshapings.lock().await;
        // A split of another process takes as long as it takes.
        loop {
            match take_duty(&*self.store, "reshape").await {
                Err(error) if error.kind == ErrorKind::RetryWith && !self.is_stopping() => {}
                duty => {
                    let duty = duty?;
                    self.refresh_if_shared().await?;
                    return Ok(ReshapingLock { _here: here, duty });
                }
            }
        }
    }

    /// The same, unless somebody else does.
    pub(crate) async fn try_lock_reshaping(&self) -> Result<Option<ReshapingLock<'_>>> {
        let Ok(here) = self.reshapings.try_lock() else { return Ok(None) };
        let Some(coordination) = self.store.coordination() else {
            return Ok(Some(ReshapingLock { _here: here, duty: None }));
        };
        let Some(duty) = coordination.try_duty("reshape").await.map_err(store_failure)? else {
            return Ok(None);
        };
        self.refresh_if_shared().await?;
        Ok(Some(ReshapingLock { _here: here, duty: Some(duty) }))
    }

    /// The duty of background work, if it becomes free in this time.
    pub(crate) async fn try_maintenance_duty(&self, patience: Duration) -> Result<Option<Box<dyn Duty>>> {
        let Some(coordination) = self.store.coordination() else { return Ok(None) };
        let began = Instant::now();
        loop {
            let duty = coordination.try_duty("maintenance").await.map_err(store_failure)?;
            if duty.is_some() || self.is_stopping() || began.elapsed() > patience {
                return Ok(duty);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn refresh_if_shared(&self) -> Result<()> {
        if self.is_shared() { self.catalog.refresh().await } else { Ok(()) }
    }

    /// A request has met something newer than its catalog: see what others have changed.
    pub(crate) async fn look_at_catalog_again(&self) {
        if let Err(error) = self.refresh_if_shared().await {
            tracing::debug!(%error, "the catalog could not be read again");
        }
    }

    /// Follows the catalog and shares budgets, if the store is shared.
    pub(crate) fn start_following(self: &Arc<Self>) {
        if !self.is_shared() {
            return;
        }
        let follower = Arc::downgrade(self);
        let follow = tokio::spawn(async move {
            while let Some(database) = follower.upgrade() {
                let followed = match database.catalog.wait_for_change().await {
                    Ok(true) => database.catalog.refresh().await,
                    Ok(false) => Ok(()),
                    Err(error) => Err(error),
                };
                if let Err(error) = followed {
                    tracing::warn!(%error, "the catalog could not be followed and will be tried again");
                    tokio::time::sleep(NOTE_INTERVAL).await;
                } else {
                    database.resume_repartitions();
                }
            }
        });
        let sharer = Arc::downgrade(self);
        let share = tokio::spawn(async move {
            while let Some(database) = sharer.upgrade() {
                if let Err(error) = database.share_budgets().await {
                    tracing::warn!(%error, "budgets could not be shared and stay as they are");
                }
                drop(database);
                tokio::time::sleep(NOTE_INTERVAL).await;
            }
        });
        self.following.tasks.lock().extend([follow, share]);
    }

    /// Tells the others what was asked of this process, and takes its part of each budget by what they tell.
    pub(crate) async fn share_budgets(&self) -> Result<()> {
        let Some(coordination) = self.store.coordination() else { return Ok(()) };
        let mut own = self.budgets.take_demand();
        own.sort_unstable_by_key(|(_, demand)| std::cmp::Reverse(*demand));
        own.truncate(NOTE_BUDGETS_MAX);
        let note: Vec<u8> =
            own.iter().flat_map(|(place, demand)| [*place, *demand]).flat_map(u64::to_be_bytes).collect();
        let note = Bytes::from(note);
        *self.following.note.lock() = note.clone();
        let notes = coordination.exchange_notes(note, NOTE_AGE_MAX).await.map_err(store_failure)?;
        let notes: Vec<HashMap<u64, u64>> = notes.iter().map(|note| decode_note(note)).collect();
        self.budgets.set_shares(|place, rate| share_of(&notes, place, rate));
        Ok(())
    }

    /// Whether other processes have the store open right now.
    pub(crate) async fn has_company(&self) -> Result<bool> {
        let Some(coordination) = self.store.coordination() else { return Ok(false) };
        let note = self.following.note.lock().clone();
        let notes = coordination.exchange_notes(note, COMPANY_AGE_MAX).await.map_err(store_failure)?;
        Ok(notes.len() > 1)
    }

    /// Every partition that the catalog names must be there. What is there besides may be in the making.
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
            // A container may have been deleted between the two looks.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        checked
    }

    /// What only a shared store needs of its background work: partitions that belong to nobody, purges of
    /// processes that died, and epochs that a process moved on without telling the catalog.
    pub(crate) async fn tidy_shared(&self) -> Result<()> {
        let due = |last: &Option<Instant>| last.is_none_or(|last| last.elapsed() > PURGE_INTERVAL);
        let load = {
            let mut last = self.following.purges_loaded.lock();
            let load = due(&last);
            if load {
                *last = Some(Instant::now());
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
            orphans.retain(|id, _| {
                present.iter().any(|partition| partition.id == *id) && !known.contains_key(id)
            });
            for partition in &present {
                if partition.id != CATALOG_PARTITION.id && !known.contains_key(&partition.id) {
                    let since = *orphans.entry(partition.id).or_insert_with(Instant::now);
                    if since.elapsed() > ORPHAN_AGE {
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

    /// A process that died or lost its duty may have retired a partition without putting others in its place.
    async fn adopt_epochs(&self) -> Result<()> {
        let Some(lock) = self.try_lock_reshaping().await? else { return Ok(()) };
        let present = self.store.partitions().await.map_err(store_failure)?;
        let adopted = self.catalog.change(|change| {
            let containers: Vec<Arc<Container>> = change.catalog.containers().cloned().collect();
            for container in containers.iter().filter(|container| container.reshaping.is_none()) {
                let mut new = Container::clone(container);
                for partition in &mut new.partitions {
                    if let Some(info) = present.iter().find(|info| info.id == partition.store.id) {
                        partition.store.epoch = info.epoch;
                    }
                }
                if new.partitions != container.partitions {
                    tracing::warn!(container = %container.rid, "partitions had moved on without the catalog");
                    change.put_container(new);
                }
            }
            Ok(())
        });
        let adopted = adopted.await;
        lock.release().await;
        adopted
    }

    /// Whether the partitions know of an index newer than this view of the container: writes of another process
    /// may then lack the entries that a query would look for.
    pub(crate) async fn check_index_view(&self, container: &Container, windows: &[EpkRange]) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        for partition in &container.partitions {
            if !windows.iter().any(|window| partition.range.overlaps(window)) {
                continue;
            }
            let request = ReadRequest::Get(vec![keys::INDEX_VERSION.to_vec()]);
            let page = self.store.read(partition.store, request).await.map_err(store_failure)?;
            let noted = page.values.into_iter().next().flatten();
            let noted = noted.and_then(|bytes| bytes.as_ref().try_into().ok()).map_or(0, u64::from_be_bytes);
            if noted > container.index.version {
                return Err(Error::new(
                    ErrorKind::PartitionGone,
                    "The container's index has changed. Please retry.",
                ));
            }
        }
        Ok(())
    }
}

fn decode_note(note: &[u8]) -> HashMap<u64, u64> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_be_bytes);
    note.chunks_exact(16).map(|pair| (number(&pair[..8]), number(&pair[8..]))).collect()
}

/// This process's part of a budget in thousandths; 0 = all. The first note is its own. Everybody has a little
/// more than was asked of it, so that a process that was idle can begin.
fn share_of(notes: &[HashMap<u64, u64>], place: u64, rate: u64) -> u64 {
    if notes.len() <= 1 {
        return 0;
    }
    let reserve = (rate / 20).max(1);
    let demand = |note: &HashMap<u64, u64>| note.get(&place).copied().unwrap_or(0).saturating_add(reserve);
    let all: u64 = notes.iter().map(demand).fold(0, u64::saturating_add);
    (u128::from(demand(&notes[0])) * 1000 / u128::from(all.max(1))).try_into().unwrap_or(1000).clamp(1, 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_budget_add_up_and_follow_demand() {
        let note = |demand: u64| HashMap::from([(7, demand)]);
        assert_eq!(share_of(&[note(5)], 7, 40_000), 0);
        for demands in [[0, 0, 0], [40_000, 0, 0], [10_000, 30_000, 0], [100_000, 100_000, 1]] {
            let share = |own: usize| {
                let mut notes: Vec<_> = demands.iter().map(|demand| note(*demand)).collect();
                notes.swap(0, own);
                share_of(&notes, 7, 40_000)
            };
            let shares = [share(0), share(1), share(2)];
            let sum: u64 = shares.iter().sum();
            assert!((996..=1000).contains(&sum), "{demands:?} {shares:?}");
            for pair in [(0, 1), (1, 2), (0, 2)] {
                let order = demands[pair.0].cmp(&demands[pair.1]);
                assert!(
                    order == shares[pair.0].cmp(&shares[pair.1])
                        || demands[pair.0].abs_diff(demands[pair.1]) < 100
                );
            }
        }
    }

    #[test]
    fn notes_come_back() {
        let note: Vec<u8> = [1u64, 2, u64::MAX, 4].into_iter().flat_map(u64::to_be_bytes).collect();
        assert_eq!(decode_note(&note), HashMap::from([(1, 2), (u64::MAX, 4)]));
        assert!(decode_note(&[1, 2, 3]).is_empty());
    }
}
