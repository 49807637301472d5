//! Deleting all items of one partition key value.
//!
//! The items vanish at once: one write notes, in the logical partition's statistics, up to which position it
//! was purged. The bodies are then removed in the background, a few at a time, and a restart goes on with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use orrery_model::partition_key::{EffectiveKey, PartitionKey};
use orrery_model::{Error, Result};
use orrery_storage::{Decision, Key, Lsn, Op, PartitionId, ReadRequest, Scan, View, WriteSet};
use parking_lot::RwLock;

use super::point::{ItemOptions, decode, full_key};
use super::statistics::Statistics;
use super::transaction::{Action, ActionKind};
use super::{body::parse_object, keys};
use crate::catalog::{Container, Partition};
use crate::failure::{commit_failure, store_failure};
use crate::{Database, Trace, cost};

/// Items removed in one transaction of the background work.
const REMOVE_AT_ONCE: usize = 50;
/// Marks of unfinished purges read at once.
const LOAD_AT_ONCE: usize = 1000;

/// The logical partitions with a purge under way, so that readers need not look into the statistics.
#[derive(Debug, Default)]
pub(crate) struct PurgeSet {
    any: AtomicBool,
    purged_to: RwLock<HashMap<(PartitionId, EffectiveKey), Lsn>>,
}

impl PurgeSet {
    /// Whether an item written at this position is gone by a purge.
    pub(crate) fn hides(&self, partition: PartitionId, effective: &EffectiveKey, lsn: Lsn) -> bool {
        self.any.load(Ordering::Acquire)
            && self
                .purged_to
                .read()
                .get(&(partition, effective.clone()))
                .is_some_and(|purged_to| lsn <= *purged_to)
    }

    fn insert(&self, partition: PartitionId, effective: EffectiveKey, lsn: Lsn) {
        let mut map = self.purged_to.write();
        let entry = map.entry((partition, effective)).or_insert(lsn);
        *entry = (*entry).max(lsn);
        self.any.store(true, Ordering::Release);
    }

    fn remove(&self, partition: PartitionId, effective: &EffectiveKey, lsn: Lsn) {
        let mut map = self.purged_to.write();
        let place = (partition, effective.clone());
        if map.get(&place).is_some_and(|purged_to| *purged_to <= lsn) {
            map.remove(&place);
        }
        self.any.store(!map.is_empty(), Ordering::Release);
    }

    /// Moves what is known of a partition to the children it was split into.
    pub(crate) fn follow_split(&self, parent: PartitionId, child_of: impl Fn(&EffectiveKey) -> PartitionId) {
        let mut map = self.purged_to.write();
        let moved: Vec<_> = map.keys().filter(|(partition, _)| *partition == parent).cloned().collect();
        for (_, effective) in moved {
            if let Some(lsn) = map.get(&(parent, effective.clone())).copied() {
                map.insert((child_of(&effective), effective), lsn);
            }
        }
    }

    /// Whether anything waits to be removed.
    pub(crate) fn is_idle(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    fn pending(&self) -> Vec<(PartitionId, EffectiveKey, Lsn)> {
        let map = self.purged_to.read();
        map.iter().map(|((partition, effective), lsn)| (*partition, effective.clone(), *lsn)).collect()
    }
}

impl Database {
    /// Deletes all items of the key. They are gone for every reader when this returns.
    pub async fn delete_by_partition_key(
        self: &Arc<Self>,
        trace: &mut Trace,
        (database, container): (&str, &str),
        options: &ItemOptions,
    ) -> Result<()> {
        let mut attempt = 0;
        loop {
            let container =
                self.item_container(trace, database, container, options.intended_rid.as_deref())?;
            let key = full_key(&container, options)?;
            if container.definition.partition_key.may_collide(&key) {
                return Err(Error::not_implemented(
                    "Deleting by a partition key value longer than its hash covers is not supported.",
                ));
            }
            let effective = container.definition.partition_key.effective_key(&key);
            let partition = container.partition_of(&effective);
            let op = BeginPurge {
                operation_id: u128::from(self.env.random_u64()),
                effective: effective.clone(),
                partition_key: key,
            };
            match self.commit(partition, op).await.map_err(commit_failure) {
                Ok(committed) => {
                    trace.served_by(partition, committed.lsn);
                    trace.add(cost::metadata_write());
                    self.purges.insert(partition.store.id, effective, committed.lsn);
                    self.wake_maintenance();
                    return Ok(());
                }
                Err(error) if self.may_route_again(&error, &mut attempt).await => {}
                Err(error) => return Err(error),
            }
        }
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
                        let lsn = entry.value.as_ref().try_into().map_or(Lsn::MAX, u64::from_be_bytes);
                        if let Some(effective) = keys::parse_purge(&entry.key) {
                            self.purges.insert(partition.store.id, effective, lsn);
                        }
                    }
                    match page.entries.last() {
                        Some(last) if page.more => range.start = [last.key.as_slice(), &[0]].concat(),
                        _ => break,
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes what is purged from the store.
    pub(crate) async fn finish_purges(&self) -> Result<()> {
        for (partition_id, effective, lsn) in self.purges.pending() {
            let catalog = self.catalog.snapshot();
            let place = catalog.containers().find_map(|container| {
                let partition =
                    container.partitions.iter().find(|partition| partition.store.id == partition_id)?;
                Some((Arc::clone(container), partition.clone()))
            });
            if let Some((container, partition)) = place {
                self.remove_purged(&container, &partition, &effective, lsn).await?;
            }
            self.purges.remove(partition_id, &effective, lsn);
        }
        Ok(())
    }

    async fn remove_purged(
        &self,
        container: &Arc<Container>,
        partition: &Partition,
        effective: &EffectiveKey,
        lsn: Lsn,
    ) -> Result<()> {
        let mut range = keys::items_of(effective);
        loop {
            let scan = Scan::forward(range.clone(), REMOVE_AT_ONCE);
            let page =
                self.store.read(partition.store, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
            let mut item_keys = Vec::new();
            for entry in &page.entries {
                if decode(&entry.value)?.lsn <= lsn {
                    item_keys.push((entry.key.clone(), entry.value.clone()));
                }
            }
            self.sweep(container, item_keys).await?;
            match page.entries.last() {
                Some(last) if page.more => range.start = [last.key.as_slice(), &[0]].concat(),
                _ => break,
            }
        }
        let op =
            EndPurge { operation_id: u128::from(self.env.random_u64()), effective: effective.clone(), lsn };
        self.commit(partition, op).await.map_err(commit_failure)?;
        Ok(())
    }

    /// Removes items that readers no longer see, after looking at each once more.
    pub(crate) async fn sweep(&self, container: &Arc<Container>, items: Vec<(Key, Bytes)>) -> Result<()> {
        let mut by_key: Vec<(PartitionKey, Vec<Action>)> = Vec::new();
        for (key, value) in items {
            let Some((_, id)) = keys::parse_item(&key) else { continue };
            let document = parse_object(&decode(&value)?.body)?;
            let partition_key = container.definition.partition_key.extract(&document)?;
            let id = orrery_model::ids::ItemId::parse(id)?;
            let action = Action { id, kind: ActionKind::Sweep, if_match: None, if_none_match: None };
            match by_key.last_mut() {
                Some((last, actions)) if *last == partition_key && actions.len() < REMOVE_AT_ONCE => {
                    actions.push(action);
                }
                _ => by_key.push((partition_key, vec![action])),
            }
        }
        for (partition_key, actions) in by_key {
            self.run_transaction(&mut Trace::default(), container, partition_key, actions).await?;
        }
        Ok(())
    }
}

/// Writes off all items of a logical partition.
struct BeginPurge {
    operation_id: u128,
    effective: EffectiveKey,
    partition_key: PartitionKey,
}

impl Op for BeginPurge {
    type Out = ();

    fn id(&self) -> u128 {
        self.operation_id
    }

    fn reads(&self, _keys: &mut Vec<Key>) {}

    fn decide(&self, _view: &dyn View, lsn: Lsn) -> Decision<()> {
        let mut writes = WriteSet::default();
        let statistics = Statistics { items: 0, bytes: 0, purged_to: lsn };
        writes.put(keys::statistics(&self.effective), statistics.encode(&self.partition_key));
        writes.put(keys::purge(&self.effective), Bytes::copy_from_slice(&lsn.to_be_bytes()));
        Decision::Write(writes, ())
    }
}

/// Takes the mark of a finished purge away, unless a newer one has begun.
struct EndPurge {
    operation_id: u128,
    effective: EffectiveKey,
    lsn: Lsn,
}

impl Op for EndPurge {
    type Out = ();

    fn id(&self) -> u128 {
        self.operation_id
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        keys.push(keys::purge(&self.effective));
    }

    fn decide(&self, view: &dyn View, _lsn: Lsn) -> Decision<()> {
        let key = keys::purge(&self.effective);
        let marked = view.get(&key).and_then(|bytes| bytes.as_ref().try_into().ok()).map(u64::from_be_bytes);
        if marked != Some(self.lsn) {
            return Decision::Reject(());
        }
        let mut writes = WriteSet::default();
        writes.delete(key);
        Decision::Write(writes, ())
    }
}
