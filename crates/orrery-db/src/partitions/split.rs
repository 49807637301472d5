//! Splitting a physical partition in two, while it serves.
//!
//! 1. The catalog records the split and the two new partitions; the parent is marked, so that its writes are
//!    journalled from now on.
//! 2. Everything in the parent is copied, page by page, each entry to the child that owns its effective key.
//! 3. The journal is followed until little is left.
//! 4. The parent is retired: writes and reads of it are refused and routed anew. The rest of the journal is
//!    followed, the children continue the parent's numbers, and one change of the catalog puts them in its place.
//! 5. The parent is destroyed in the background.
//!
//! A stop before step 4's catalog change rolls back at the next start: the children are destroyed and the
//! parent serves again. After it, the parent is an orphan that the next start removes.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_model::partition_key::{EffectiveKey, EpkRange};
use orrery_model::rid::ContainerRid;
use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::{Entry, Key, KeyRange, Lsn, PartitionRef, ReadRequest, Scan};

use super::journal;
use crate::Database;
use crate::catalog::{Container, Partition, Split, existing};
use crate::failure::store_failure;
use crate::index::encode;
use crate::items::keys;
use crate::items::statistics::Statistics;

const COPY_ENTRIES: usize = 1000;
/// The switch begins when so few journalled transactions are left that it stays brief.
const SWITCH_ENTRIES: usize = 200;
/// Rounds of following the journal before the switch is made anyway.
const ROUNDS_MAX: usize = 100;

/// What a split did.
#[derive(Clone, Debug)]
pub struct SplitReport {
    pub parent: u32,
    pub children: [u32; 2],
    /// The first effective key of the second child.
    pub at: EffectiveKey,
}

impl Database {
    /// Splits a partition where its stored bytes are halved.
    pub async fn split_partition(self: &Arc<Self>, rid: ContainerRid, range_id: u32) -> Result<SplitReport> {
        let _one_at_a_time = self.splits.lock().await;
        let catalog = self.catalog.snapshot();
        let container = Arc::clone(existing(&catalog, rid)?);
        let parent = container.partition(range_id)?.clone();
        let at = self.split_point(&container, &parent).await?;
        let split = self.begin_split(&container, &parent, &at).await?;
        let done = self.run_split(&container, &parent, &split).await;
        if done.is_err() {
            self.roll_back_split(rid, range_id).await?;
        }
        done?;
        self.budgets.forget(parent.store.id);
        self.destroy_partitions(vec![parent.store.id]);
        Ok(SplitReport { parent: range_id, children: [split.left_range, split.right_range], at })
    }

    /// The key at which the second half of the stored bytes begins.
    async fn split_point(&self, container: &Container, parent: &Partition) -> Result<EffectiveKey> {
        let mut weights: Vec<(EffectiveKey, u64)> = Vec::new();
        let mut range = keys::statistics_in(&parent.range);
        loop {
            let scan = Scan::forward(range.clone(), COPY_ENTRIES);
            let page = self.store.read(parent.store, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
            for entry in &page.entries {
                let statistics = Statistics::decode(&entry.value).unwrap_or_default();
                if let Some(effective) = keys::parse_statistics(&entry.key) {
                    weights.push((effective, statistics.bytes + statistics.items));
                }
            }
            match page.entries.last() {
                Some(last) if page.more => range.start = [last.key.as_slice(), &[0]].concat(),
                _ => break,
            }
        }
        let total: u64 = weights.iter().map(|(_, weight)| weight).sum();
        let mut before = 0;
        let by_weight = weights.iter().find_map(|(effective, weight)| {
            let reached = before * 2 >= total && before > 0;
            before += weight;
            reached.then(|| effective.clone())
        });
        // Without enough keys to weigh, the middle of the range is as good as any.
        let middle = || container.definition.partition_key.middle(&parent.range);
        by_weight.or_else(middle).filter(|at| *at > parent.range.min && *at < parent.range.max).ok_or_else(
            || {
                Error::bad_request(format!(
                    "The partition {} holds one key and cannot be split.",
                    parent.range_id
                ))
            },
        )
    }

    async fn begin_split(
        &self,
        container: &Container,
        parent: &Partition,
        at: &EffectiveKey,
    ) -> Result<Split> {
        let (rid, range_id) = (container.rid, parent.range_id);
        let split = self
            .catalog
            .change(|change| {
                let current = Arc::clone(existing(&change.catalog, rid)?);
                if current.partition(range_id)?.store != parent.store || !current.splits.is_empty() {
                    return Err(Error::new(
                        ErrorKind::Locked,
                        "The container's partitions are being changed already.",
                    ));
                }
                let next = current.next_range_id();
                let split = Split {
                    parent: range_id,
                    at: at.clone(),
                    left_range: next,
                    right_range: next + 1,
                    left: change.new_partition(),
                    right: change.new_partition(),
                };
                change.put_account();
                change.put_container(Container { splits: vec![split.clone()], ..Container::clone(&current) });
                Ok(split)
            })
            .await?;
        for child in [split.left, split.right] {
            self.store.create(child.id, 0).await.map_err(store_failure)?;
        }
        Ok(split)
    }

    async fn run_split(&self, container: &Container, parent: &Partition, split: &Split) -> Result<()> {
        let mut followed = self.mark_split(parent, true).await?;
        let copy = Copy { database: self, container, split };
        copy.everything(parent.store).await?;
        for _ in 0..ROUNDS_MAX {
            let (reached, count) = copy.follow(parent.store, followed).await?;
            followed = reached;
            if count <= SWITCH_ENTRIES {
                break;
            }
        }
        let last = self.store.retire(parent.store).await.map_err(store_failure)?;
        let retired = PartitionRef { epoch: parent.store.epoch + 1, ..parent.store };
        loop {
            let (reached, count) = copy.follow(retired, followed).await?;
            followed = reached;
            if count == 0 {
                break;
            }
        }
        for child in [split.left, split.right] {
            self.store.create(child.id, last).await.map_err(store_failure)?;
        }
        self.purges.follow_split(parent.store.id, |effective| copy.child_of(effective).id);
        self.finish_split(container.rid, split).await
    }

    /// Puts the children in the parent's place, for everybody at once.
    async fn finish_split(&self, rid: ContainerRid, split: &Split) -> Result<()> {
        self.catalog
            .change(|change| {
                let current = Arc::clone(existing(&change.catalog, rid)?);
                let parent = current.partition(split.parent)?.clone();
                let (left, right) = parent
                    .range
                    .split_at(&split.at)
                    .ok_or_else(|| Error::internal("the split point lies outside of the partition"))?;
                let routing_version = current.routing_version + 1;
                let mut parents = parent.parents.clone();
                parents.push(parent.range_id);
                let child = |range_id: u32, range: EpkRange, store: PartitionRef| Partition {
                    range_id,
                    range,
                    store,
                    parents: parents.clone(),
                    since: routing_version,
                    timestamp: change.stamp.timestamp,
                };
                let children =
                    [child(split.left_range, left, split.left), child(split.right_range, right, split.right)];
                let mut partitions = current.partitions.clone();
                let at = partitions.iter().position(|partition| partition.range_id == split.parent);
                let at = at.expect("the parent was just found");
                partitions.splice(at..=at, children);
                let container = Container {
                    partitions,
                    routing_version,
                    splits: Vec::new(),
                    ..Container::clone(&current)
                };
                change.put_container(container);
                Ok(())
            })
            .await
    }

    /// Undoes a split that did not finish: the parent serves again, the children go.
    pub(crate) async fn roll_back_split(&self, rid: ContainerRid, range_id: u32) -> Result<()> {
        let known = self.store.partitions().await.map_err(store_failure)?;
        let rolled_back = self
            .catalog
            .change(|change| {
                let current = Arc::clone(existing(&change.catalog, rid)?);
                let Some(split) = current.splits.iter().find(|split| split.parent == range_id).cloned()
                else {
                    return Ok(None);
                };
                let mut container = Container::clone(&current);
                container.splits.retain(|other| other.parent != range_id);
                for partition in &mut container.partitions {
                    // The parent may have been retired: its epoch has moved on.
                    if let Some(info) = known.iter().find(|info| info.id == partition.store.id) {
                        partition.store.epoch = info.epoch;
                    }
                }
                let parent = container.partition(range_id).cloned();
                change.put_container(container);
                Ok(Some((split, parent)))
            })
            .await?;
        let Some((split, parent)) = rolled_back else { return Ok(()) };
        if let Ok(parent) = parent {
            self.mark_split(&parent, false).await?;
            let journalled = journal::entries_after(0);
            let delete = || self.store.delete_range(parent.store, journalled.clone(), COPY_ENTRIES);
            while delete().await.map_err(store_failure)? == COPY_ENTRIES {}
        }
        for child in [split.left, split.right] {
            self.store.destroy(child.id).await.map_err(store_failure)?;
        }
        Ok(())
    }

    /// Rolls back what a stop has interrupted.
    pub(crate) async fn roll_back_interrupted_splits(&self) -> Result<()> {
        for container in self.catalog.snapshot().containers() {
            for split in &container.splits {
                tracing::info!(container = %container.rid, partition = split.parent, "rolling back a split");
                self.roll_back_split(container.rid, split.parent).await?;
            }
        }
        Ok(())
    }
}

/// Moves entries from a parent to its children.
struct Copy<'a> {
    database: &'a Database,
    container: &'a Container,
    split: &'a Split,
}

impl Copy<'_> {
    fn child_of(&self, effective: &EffectiveKey) -> PartitionRef {
        if *effective < self.split.at { self.split.left } else { self.split.right }
    }

    /// The children that an entry belongs to; what no key owns belongs to both.
    fn children_of(&self, key: &[u8], value: &[u8]) -> Vec<PartitionRef> {
        if journal::is_own(key) {
            return Vec::new();
        }
        match self.effective_of(key, value) {
            Some(effective) => vec![self.child_of(&effective)],
            None => vec![self.split.left, self.split.right],
        }
    }

    fn effective_of(&self, key: &[u8], value: &[u8]) -> Option<EffectiveKey> {
        let item = match encode::item_of_index_key(key, |generation, number| {
            let generations = self.container.index.generations();
            let generation = generations.into_iter().find(|known| known.number == generation)?;
            let paths = generation.policy.composite.get(usize::try_from(number).ok()?)?;
            Some(paths.iter().map(|path| path.descending).collect())
        }) {
            Some(item) => item,
            None => keys::item_key_of(key, value)?,
        };
        keys::parse_item(&item).map(|(effective, _)| effective)
    }

    async fn everything(&self, parent: PartitionRef) -> Result<()> {
        let mut range = KeyRange::all();
        loop {
            let scan = Scan::forward(range.clone(), COPY_ENTRIES);
            let read = self.database.store.read(parent, ReadRequest::Scan(scan));
            let page = read.await.map_err(store_failure)?;
            if let Some(last) = page.entries.last() {
                range.start = [last.key.as_slice(), &[0]].concat();
            }
            self.load(page.entries).await?;
            if !page.more {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    async fn load(&self, entries: Vec<Entry>) -> Result<()> {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for entry in entries {
            for child in self.children_of(&entry.key, &entry.value) {
                if child == self.split.left { left.push(entry.clone()) } else { right.push(entry.clone()) }
            }
        }
        for (child, entries) in [(self.split.left, left), (self.split.right, right)] {
            if !entries.is_empty() {
                self.database.store.bulk_load(child, entries).await.map_err(store_failure)?;
            }
        }
        Ok(())
    }

    /// Brings the keys of some journal entries to the parent's state; answers how far it came and how many
    /// entries that were.
    async fn follow(&self, parent: PartitionRef, after: Lsn) -> Result<(Lsn, usize)> {
        let scan = Scan::forward(journal::entries_after(after), COPY_ENTRIES);
        let store = &self.database.store;
        let page = store.read(parent, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
        let reached = page.entries.last().and_then(|entry| journal::lsn_of(&entry.key)).unwrap_or(after);
        let touched: BTreeSet<Key> =
            page.entries.iter().flat_map(|entry| journal::decode_keys(&entry.value)).collect();
        let touched: Vec<Key> = touched.into_iter().filter(|key| !journal::is_own(key)).collect();
        for keys in touched.chunks(COPY_ENTRIES) {
            let read = store.read(parent, ReadRequest::Get(keys.to_vec())).await.map_err(store_failure)?;
            let (mut present, mut absent) = (Vec::new(), Vec::new());
            for (key, value) in keys.iter().zip(read.values) {
                match value {
                    Some(value) => present.push(Entry { key: key.clone(), value }),
                    None => absent.push(key.clone()),
                }
            }
            self.load(present).await?;
            for key in absent {
                // Which child had it is not known without its value; deleting what is not there is harmless.
                for child in [self.split.left, self.split.right] {
                    let only = KeyRange::new(key.clone(), [key.as_slice(), &[0]].concat());
                    store.delete_range(child, only, 1).await.map_err(store_failure)?;
                }
            }
        }
        let count = page.entries.len();
        Ok((reached, count))
    }
}
