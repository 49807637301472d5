//! Deleting all items of one partition key value.
//!
//! The items become invisible at once: one write records the purge position in the logical partition's statistics. They
//! are then removed in the background, a few at a time, using a tenth of the throughput; a restart resumes the removal.

use orrery_env::monotonic;
use orrery_model::document::parse_object;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_model::partition_key::{EffectiveKey, PartitionKey};
use orrery_model::rid::ContainerRid;
use orrery_model::{Charge, Error, Result};
use orrery_storage::{Decision, Key, Lsn, ReadRequest, Scan, View, WriteSet};
use parking_lot::RwLock;

use orrery_metering::cost;

use super::Items;
use super::point::{ItemOptions, full_key};
use super::transaction::{Action, ActionKind};
use crate::catalog::{Container, Partition};
use crate::failure::store_failure;
use crate::layout::document::decode;
use crate::layout::keys;
use crate::layout::statistics::Statistics;
use crate::partition::Receipt;

/// Items removed per background transaction.
const REMOVE_AT_ONCE: usize = 50;
/// The approximate cost of removing an item, to estimate how many are affordable.
pub(super) const REMOVAL_HUNDREDTHS: u64 = 600;
/// Marks of unfinished purges read per page.
const LOAD_AT_ONCE: usize = 1000;
/// How long a client waits for a purge on a shared store.
const SHARED_PATIENCE: Duration = Duration::from_secs(25);

/// How long a finished purge is remembered: longer than any request may hold items it has read. A reader may have read
/// items just before they were removed.
const REMEMBERED: Duration = Duration::from_secs(90);

/// The logical partitions with a purge in progress, so that readers need not check the statistics. Keyed by container,
/// because positions stay valid across splits and merges.
#[derive(Debug, Default)]
pub(crate) struct PurgeSet {
    any: AtomicBool,
    /// Whether any wait for throughput.
    waiting: AtomicBool,
    purges: RwLock<HashMap<(ContainerRid, EffectiveKey), Purge>>,
}

#[derive(Clone, Copy, Debug)]
struct Purge {
    /// Items written up to this position are purged.
    to: Lsn,
    /// When the last of them was removed from the store.
    finished: Option<Instant>,
}

impl PurgeSet {
    /// Whether an item written at this position is purged.
    pub(crate) fn hides(&self, container: ContainerRid, effective: &EffectiveKey, lsn: Lsn) -> bool {
        self.any.load(Ordering::Acquire)
            && self.purges.read().get(&(container, effective.clone())).is_some_and(|purge| lsn <= purge.to)
    }

    /// The same for an item key, which is parsed only if there are purges at all.
    pub(crate) fn hides_at(&self, container: ContainerRid, item_key: &[u8], lsn: Lsn) -> bool {
        self.any.load(Ordering::Acquire)
            && keys::parse_item(item_key).is_none_or(|(effective, _)| self.hides(container, &effective, lsn))
    }

    fn insert(&self, container: ContainerRid, effective: EffectiveKey, lsn: Lsn) {
        let mut purges = self.purges.write();
        let purge = purges.entry((container, effective)).or_insert(Purge { to: lsn, finished: None });
        // A second purge of the key extends the first and makes it pending again.
        *purge = Purge { to: purge.to.max(lsn), finished: None };
        self.any.store(true, Ordering::Release);
    }

    /// Records that everything up to this position was removed.
    fn finish(&self, container: ContainerRid, effective: &EffectiveKey, lsn: Lsn) {
        let mut purges = self.purges.write();
        // Purged again since: then there are later items to remove.
        if let Some(purge) = purges.get_mut(&(container, effective.clone())).filter(|purge| purge.to <= lsn) {
            purge.finished = Some(monotonic::now());
        }
    }

    /// Drops purges that no reader can still be affected by.
    pub(crate) fn forget_finished(&self) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut purges = self.purges.write();
        purges.retain(|_, purge| purge.finished.is_none_or(|at| monotonic::elapsed(at) < REMEMBERED));
        self.any.store(!purges.is_empty(), Ordering::Release);
    }

    /// Whether removals are waiting for throughput.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    fn is_pending(&self, container: ContainerRid, effective: &EffectiveKey) -> bool {
        let purges = self.purges.read();
        purges.get(&(container, effective.clone())).is_some_and(|purge| purge.finished.is_none())
    }

    /// Whether nothing is left to remove.
    pub(crate) fn is_idle(&self) -> bool {
        !self.any.load(Ordering::Acquire) || self.purges.read().values().all(|purge| purge.finished.is_some())
    }

    /// How many keys of each container wait to be removed.
    pub(crate) fn pending_by_container(&self) -> HashMap<ContainerRid, usize> {
        let mut counts = HashMap::new();
        if self.any.load(Ordering::Acquire) {
            for (container, _, _) in self.pending() {
                *counts.entry(container).or_default() += 1;
            }
        }
        counts
    }

    fn pending(&self) -> Vec<(ContainerRid, EffectiveKey, Lsn)> {
        let purges = self.purges.read();
        let pending = purges.iter().filter(|(_, purge)| purge.finished.is_none());
        pending.map(|((container, effective), purge)| (*container, effective.clone(), purge.to)).collect()
    }
}

impl Items {
    /// Deletes all items of the key. No reader sees them once this returns.
    pub async fn delete_by_partition_key(
        self: &Arc<Self>,
        receipt: &mut Receipt,
        (database, container): (&str, &str),
        options: &ItemOptions,
    ) -> Result<()> {
        let mut attempt = 0;
        loop {
            let container =
                self.item_container(receipt, database, container, options.intended_rid.as_deref())?;
            // The copier would miss it: a purge leaves no tombstones.
            if container.repartition.is_some() {
                return Err(crate::catalog::is_locked());
            }
            let key = full_key(&container, options)?;
            // The mark covers everything under the effective key, including items of other keys that hash to the same
            // place.
            if container.definition.partition_key.may_collide(&key) {
                return Err(Error::not_implemented(
                    "Deleting by a partition key value longer than its hash covers is not supported.",
                ));
            }
            let effective = container.definition.partition_key.effective_key(&key);
            let partition = container.partition_of(&effective);
            let purged = effective.clone();
            let decide = move |_: &dyn View, lsn| begin(lsn, &purged, &key);
            match self.commit_decision(partition, Vec::new(), decide).await {
                Ok(committed) => {
                    receipt.served_by(partition, committed.lsn);
                    receipt.add(cost::metadata_write());
                    // Before the reply, so that no later read of this process sees the items.
                    self.purges.insert(container.rid, effective.clone(), committed.lsn);
                    self.wake_maintenance();
                    // Other processes do not know of the purge, so it must be complete when this returns.
                    return self.finish_if_shared(container.rid, &effective).await;
                }
                Err(error) if self.may_route_again(&error, &mut attempt).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn finish_if_shared(&self, container: ContainerRid, effective: &EffectiveKey) -> Result<()> {
        if !self.has_company().await? {
            return Ok(());
        }
        let began = monotonic::now();
        while self.purges.is_pending(container, effective) {
            if monotonic::elapsed(began) > SHARED_PATIENCE {
                return Err(Error::new(
                    orrery_model::ErrorKind::RetryWith,
                    "The items are still being deleted. Please retry.",
                ));
            }
            // Does the work itself instead of waiting for the next round of maintenance.
            self.finish_purges().await?;
            orrery_env::task::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Finds the purges that an earlier run did not finish.
    pub(crate) async fn load_purges(&self) -> Result<()> {
        for container in self.catalog.snapshot().containers() {
            for partition in &container.partitions {
                let mut range = keys::purges();
                loop {
                    let scan = Scan::forward(range.clone(), LOAD_AT_ONCE);
                    let page = self
                        .store
                        .read(partition.store, ReadRequest::Scan(scan))
                        .await
                        .map_err(store_failure)?;
                    for entry in &page.entries {
                        // An unreadable mark hides everything under its key, which is what was asked for.
                        let lsn = entry.value.as_ref().try_into().map_or(Lsn::MAX, u64::from_be_bytes);
                        if let Some(effective) = keys::parse_purge(&entry.key) {
                            self.purges.insert(container.rid, effective, lsn);
                        }
                    }
                    if !range.continue_after(&page) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes purged items from the store, as far as the throughput allows.
    pub(crate) async fn finish_purges(&self) -> Result<()> {
        let mut waiting = false;
        for (rid, effective, lsn) in self.purges.pending() {
            let (mut attempt, mut finished) = (0, true);
            // A dropped container has nothing left to remove: the loop does not run and the purge counts as finished.
            while let Some(container) = self.catalog.snapshot().container_by_rid(rid).cloned() {
                let partition = container.partition_of(&effective);
                match self.remove_purged(&container, partition, &effective, lsn).await {
                    Err(error) if self.may_route_again(&error, &mut attempt).await => {}
                    result => {
                        finished = result?;
                        break;
                    }
                }
            }
            if finished {
                self.purges.finish(rid, &effective, lsn);
            }
            waiting |= !finished;
        }
        self.purges.waiting.store(waiting, Ordering::Release);
        Ok(())
    }

    /// Returns whether everything was removed.
    async fn remove_purged(
        &self,
        container: &Arc<Container>,
        partition: &Partition,
        effective: &EffectiveKey,
        lsn: Lsn,
    ) -> Result<bool> {
        let mut range = keys::items_of(effective);
        loop {
            // The budget is spent: the rest is done in a later round.
            let Some(allowance) = self.background_allowance(container, partition) else { return Ok(false) };
            let affordable = allowance.hundredths() / REMOVAL_HUNDREDTHS;
            let at_once = usize::try_from(affordable).unwrap_or(usize::MAX).clamp(1, REMOVE_AT_ONCE);
            let scan = Scan::forward(range.clone(), at_once);
            let page =
                self.store.read(partition.store, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
            let mut item_keys = Vec::new();
            for entry in &page.entries {
                // Items written after the mark are alive.
                if decode(&entry.value)?.lsn <= lsn {
                    item_keys.push((entry.key.clone(), entry.value.clone()));
                }
            }
            let charge = self.sweep(container, item_keys).await?;
            self.charge_background(container, partition, charge);
            if !range.continue_after(&page) {
                break;
            }
        }
        // The mark is removed last, so that after a restart the rest is found by it.
        let mark = keys::purge(effective);
        let reads = vec![mark.clone()];
        self.commit_decision(partition, reads, move |view, _| end(view, &mark, lsn)).await?;
        Ok(true)
    }

    /// Removes invisible items after checking each again; returns the cost.
    pub(crate) async fn sweep(&self, container: &Arc<Container>, items: Vec<(Key, Bytes)>) -> Result<Charge> {
        let mut by_key: Vec<(PartitionKey, Vec<Action>)> = Vec::new();
        for (key, value) in items {
            let Some((_, id)) = keys::parse_item(&key) else { continue };
            let document = parse_object(&decode(&value)?.body)?;
            let partition_key = container.definition.partition_key.extract(&document)?;
            let id = orrery_model::ids::ItemId::parse(id)?;
            let action = Action { id, kind: ActionKind::Sweep, if_match: None, if_none_match: None };
            // In key order, so items of one logical partition are adjacent; a transaction covers only one.
            match by_key.last_mut() {
                Some((last, actions)) if *last == partition_key && actions.len() < REMOVE_AT_ONCE => {
                    actions.push(action);
                }
                _ => by_key.push((partition_key, vec![action])),
            }
        }
        let mut charge = Charge::ZERO;
        for (partition_key, actions) in by_key {
            let mut receipt = Receipt::default();
            let outcome = self.run_transaction(&mut receipt, container, partition_key, actions).await?;
            charge += outcome.results.iter().map(|result| result.charge).sum();
        }
        Ok(charge)
    }
}

/// Marks all items of a logical partition as purged.
fn begin(lsn: Lsn, effective: &EffectiveKey, partition_key: &PartitionKey) -> Decision<()> {
    let mut writes = WriteSet::default();
    let statistics = Statistics { items: 0, bytes: 0, purged_to: lsn, written_at: lsn };
    writes.put(keys::statistics(effective), statistics.encode(partition_key));
    writes.put(keys::purge(effective), Bytes::copy_from_slice(&lsn.to_be_bytes()));
    Decision::Write(writes, ())
}

/// Removes the mark of a finished purge, unless a newer one has started.
fn end(view: &dyn View, mark: &Key, lsn: Lsn) -> Decision<()> {
    let marked = view.get(mark).and_then(|bytes| bytes.as_ref().try_into().ok()).map(u64::from_be_bytes);
    if marked != Some(lsn) {
        return Decision::Reject(());
    }
    let mut writes = WriteSet::default();
    writes.delete(mark.clone());
    Decision::Write(writes, ())
}
