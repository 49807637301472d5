//! Several processes on one store. All serve all partitions; there is no leader and no lease.
//!
//! What a process caches of shared state, and how it stays consistent:
//! * The catalog: followed by waiting for its partition's LSN (notified at once, and polled several times a second);
//!   refreshed whenever a partition turns out to be retired or an index to be newer. Changes are made on the newest
//!   version, under a lock across processes, and still checked against its version.
//! * Splits, merges and their rollback: one at a time across processes. A process that loses the duty stops, and the
//!   cut-over happens only while the catalog still records the same plan.
//! * Repartitioning: one process does it, another takes over if that one dies (`repartition`).
//! * Background work: one process at a time, taken over in the next round when it dies.
//! * Purges: readers in other processes do not know of them, so with several processes they are completed before the
//!   response.
//! * Index generations: a write with a new version records it in the partition; a query page checks it first and
//!   restarts with a fresh catalog if its own view is older.
//! * Budgets: each process has a share of a partition's rate in proportion to its demand in the last second. The shares
//!   add up to the rate, except while demand moves from one process to another: for up to two seconds the sum may be up
//!   to twice the rate, or below it.
//!
//! Heat, throttling events, the current rate of autoscale offers and the progress of an index rebuild are local to each
//! process.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use orrery_model::partition_key::EpkRange;
use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::{Duty, ReadRequest};
use tokio::sync::MutexGuard;

use super::Partitions;
use crate::catalog::{Container, take_duty};
use crate::failure::store_failure;
use crate::layout::keys;

/// A process with an older note does not count.
const NOTE_AGE_MAX: Duration = Duration::from_secs(4);
/// A process with an older note has no readers that could miss a purge.
const COMPANY_AGE_MAX: Duration = Duration::from_secs(15);
/// The maximum number of budgets in a note: those with the greatest demand.
const NOTE_BUDGETS_MAX: usize = 4000;

/// Exclusive permission to change partitions, across processes.
pub(crate) struct ReshapingLock<'a> {
    _here: MutexGuard<'a, ()>,
    duty: Option<Box<dyn Duty>>,
}

impl ReshapingLock<'_> {
    /// Fails if another process may have acquired it meanwhile.
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

impl Partitions {
    /// Whether other processes may have the same store open.
    pub(crate) fn is_shared(&self) -> bool {
        self.store.coordination().is_some()
    }

    /// Acquires the permission to change partitions.
    pub(crate) async fn lock_reshaping(&self) -> Result<ReshapingLock<'_>> {
        // First in this process: waiting here costs no round trips.
        let here = self.reshapings.lock().await;
        // Wait without a limit: a split in another process may take long.
        loop {
            match take_duty(&*self.store, "reshape").await {
                // Another process has had the duty for longer than one attempt waits.
                Err(error) if error.kind == ErrorKind::RetryWith && !self.is_stopping() => {}
                duty => {
                    let duty = duty?;
                    // The process that had the duty before has changed the catalog.
                    self.refresh_if_shared().await?;
                    return Ok(ReshapingLock { _here: here, duty });
                }
            }
        }
    }

    /// The same without waiting.
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

    pub(crate) async fn refresh_if_shared(&self) -> Result<()> {
        if self.is_shared() { self.catalog.refresh().await } else { Ok(()) }
    }

    /// Refreshes the catalog after a request found something newer than its snapshot.
    pub(crate) async fn look_at_catalog_again(&self) {
        if let Err(error) = self.refresh_if_shared().await {
            // The request fails with its own error if the view stays stale.
            tracing::debug!(%error, "cannot refresh the catalog");
        }
    }

    /// Publishes this process's demand and updates its share of each budget.
    pub(crate) async fn share_budgets(&self) -> Result<()> {
        let Some(coordination) = self.store.coordination() else { return Ok(()) };
        let mut own = self.budgets.take_demand();
        own.sort_unstable_by_key(|(_, demand)| std::cmp::Reverse(*demand));
        // A note is bounded. The budgets left out have little demand, so a wrong share of theirs hardly matters.
        own.truncate(NOTE_BUDGETS_MAX);
        let note: Vec<u8> =
            own.iter().flat_map(|(place, demand)| [*place, *demand]).flat_map(u64::to_be_bytes).collect();
        let note = Bytes::from(note);
        // Kept for `has_company`, which must not publish an empty demand in its place.
        *self.budget_note.lock() = note.clone();
        let notes = coordination.exchange_notes(note, NOTE_AGE_MAX).await.map_err(store_failure)?;
        let notes: Vec<HashMap<u64, u64>> = notes.iter().map(|note| decode_note(note)).collect();
        self.budgets.set_shares(|place, rate| share_of(&notes, place, rate));
        Ok(())
    }

    /// Whether other processes have the store open right now.
    pub(crate) async fn has_company(&self) -> Result<bool> {
        let Some(coordination) = self.store.coordination() else { return Ok(false) };
        let note = self.budget_note.lock().clone();
        let notes = coordination.exchange_notes(note, COMPANY_AGE_MAX).await.map_err(store_failure)?;
        // The own note is always among them.
        Ok(notes.len() > 1)
    }

    /// Whether the partitions record a newer index version than this view of the container: writes of other processes
    /// may then lack the entries that a query would look for.
    pub(crate) async fn check_index_view(&self, container: &Container, windows: &[EpkRange]) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        let visited = container.partitions.iter().map(|partition| (&partition.range, partition.store));
        let visited = visited.filter(|(range, _)| windows.iter().any(|window| range.overlaps(window)));
        let get = || ReadRequest::Get(vec![keys::INDEX_VERSION.to_vec()]);
        let reads = visited.map(|(_, partition)| (partition, get())).collect();
        for page in self.store.read_each(reads).await {
            let noted = page.map_err(store_failure)?.values.into_iter().next().flatten();
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
    // Pairs of place and demand. A note of another version with other lengths is read as far as it goes.
    note.chunks_exact(16).map(|pair| (number(&pair[..8]), number(&pair[8..]))).collect()
}

/// This process's share of a budget in thousandths; 0 = all. The first note is its own. Every process gets slightly
/// more than its demand, so that an idle one can start.
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
