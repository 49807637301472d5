//! Fills a new generation of the index in the background after a policy change.
//!
//! First, every partition records the new index version, so that no write with a stale view can slip through. Then all
//! items are scanned, a few per operation, and missing entries are added. Finally the catalog switches queries to the
//! new generation. Every step is idempotent, so a restart simply starts over.

use orrery_model::document::parse_object;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::Result;
use orrery_model::rid::ContainerRid;
use orrery_storage::{Decision, Key, KeyPacker, Lsn, Op, ReadRequest, Scan, View, Want, WriteSet};
use parking_lot::Mutex;

use super::{Indexes, push_entries};
use crate::catalog::{Container, Generation, Partition};
use crate::failure::{commit_failure, store_failure};
use crate::layout::stored::StoredItem;
use crate::layout::{index_entry, keys};

/// Items per operation.
const ITEMS_AT_ONCE: usize = 64;
/// Bytes of entries per operation: a single item may have far more than fit into a commit.
const FILL_BYTES_MAX: usize = 1 << 20;
/// Entries of a retired generation deleted per operation.
const DELETE_AT_ONCE: usize = 10_000;

/// The progress of each rebuild, in percent.
#[derive(Debug, Default)]
pub(crate) struct RebuildProgress(Mutex<HashMap<ContainerRid, u8>>);

impl RebuildProgress {
    fn set(&self, container: ContainerRid, percent: u8) {
        self.0.lock().insert(container, percent);
    }

    fn done(&self, container: ContainerRid) {
        self.0.lock().remove(&container);
    }
}

/// The index version recorded in the partition.
pub(crate) fn version_in(view: &dyn View) -> u64 {
    let bytes = view.get(&keys::INDEX_VERSION);
    bytes.and_then(|bytes| bytes.as_ref().try_into().ok()).map_or(0, u64::from_be_bytes)
}

impl Indexes {
    /// The index transformation progress of a container, in percent.
    pub fn index_progress(&self, container: &Container) -> u8 {
        match container.index.building {
            None => 100,
            Some(_) => self.index_rebuilds.0.lock().get(&container.rid).copied().unwrap_or(0),
        }
    }

    /// Fills the building generation, if there is one, then makes it the serving one.
    pub(crate) async fn rebuild_index(&self, container: &Arc<Container>) -> Result<()> {
        let Some(building) = container.index.building.clone() else { return Ok(()) };
        self.index_rebuilds.set(container.rid, 0);
        // From here on every write adds the entries of the new generation, so the scan only has to find older items.
        self.fence_writers(container).await?;
        let parts = container.partitions.len().max(1);
        for (at, partition) in container.partitions.iter().enumerate() {
            let (from, share) = (at * 100 / parts, 100 / parts);
            self.fill_partition(container, partition, &building, from, share).await?;
        }
        let finished = self.catalog.change(|change| {
            let current = Arc::clone(crate::catalog::existing(&change.catalog, container.rid)?);
            // A concurrent policy change starts its own rebuild.
            if current.index.version == container.index.version {
                let index = current.index.finished();
                change.put_container(Container { index, ..Container::clone(&current) });
            }
            Ok(())
        });
        finished.await?;
        self.index_rebuilds.done(container.rid);
        Ok(())
    }

    /// Records the container's index version in every partition, so that writes with an older view are retried.
    pub(crate) async fn fence_writers(&self, container: &Container) -> Result<()> {
        let version = container.index.version;
        let decide = move |view: &dyn View, _| {
            // Recorded already, by an earlier attempt or by a write.
            if version_in(view) >= version {
                return Decision::Reject(());
            }
            let mut writes = WriteSet::default();
            writes.put(keys::INDEX_VERSION.to_vec(), Bytes::copy_from_slice(&version.to_be_bytes()));
            Decision::Write(writes, ())
        };
        for partition in &container.partitions {
            self.commit_decision(partition, vec![keys::INDEX_VERSION.to_vec()], decide).await?;
        }
        Ok(())
    }

    async fn fill_partition(
        &self,
        container: &Arc<Container>,
        partition: &Partition,
        building: &Arc<Generation>,
        percent_from: usize,
        percent_share: usize,
    ) -> Result<()> {
        let mut range = keys::items_in(&partition.range);
        loop {
            // Only keys: the operation below reads the items again anyway, in commit order.
            let scan = Scan { want: Want::Keys, ..Scan::forward(range.clone(), ITEMS_AT_ONCE) };
            let page =
                self.store.read(partition.store, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
            let Some(last) = page.entries.last().map(|entry| entry.key.clone()) else { return Ok(()) };
            let mut left: Vec<Key> = page.entries.into_iter().map(|entry| entry.key).collect();
            let mut entries_done = 0;
            // One page may take several operations, because each is bounded in bytes.
            while !left.is_empty() {
                let op = FillIndex {
                    operation_id: self.operation_id(),
                    building: Arc::clone(building),
                    items: left.clone(),
                    entries_done,
                };
                let filled = self.commit(partition, op).await.map_err(commit_failure)?.out;
                left.drain(..filled.items);
                entries_done = filled.entries_of_next;
            }
            // Hashed keys are spread evenly, so the position in the key space indicates the progress.
            let done = keys::parse_item(&last)
                // The first byte of a hash is below 64: its two highest bits are zero.
                .map_or(0, |(key, _)| usize::from(key.as_bytes().first().copied().unwrap_or(0)));
            let percent = percent_from + percent_share * done.min(63) / 64;
            self.index_rebuilds.set(container.rid, u8::try_from(percent.min(99)).unwrap_or(99));
            if !page.more {
                return Ok(());
            }
            range.start = [last.as_slice(), &[0]].concat();
            tokio::task::yield_now().await;
        }
    }

    /// Deletes the entries of generations that no query can still be using.
    pub(crate) async fn remove_retired_generations(&self, container: &Arc<Container>) -> Result<()> {
        for &generation in &container.index.retired {
            for partition in &container.partitions {
                for range in index_entry::generation_ranges(generation) {
                    // Not logged for splits, so the caller holds the lock against them.
                    let delete = || self.store.delete_range(partition.store, range.clone(), DELETE_AT_ONCE);
                    while delete().await.map_err(store_failure)? == DELETE_AT_ONCE {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
        let gone = container.index.retired.clone();
        self.catalog
            .change(|change| {
                let current = Arc::clone(crate::catalog::existing(&change.catalog, container.rid)?);
                let mut index = current.index.clone();
                // Others may have been retired meanwhile.
                index.retired.retain(|generation| !gone.contains(generation));
                change.put_container(Container { index, ..Container::clone(&current) });
                Ok(())
            })
            .await
    }
}

/// Adds the entries of some items to the building generation.
struct FillIndex {
    operation_id: u128,
    building: Arc<Generation>,
    items: Vec<Key>,
    /// Entries of the first item that an earlier operation already added.
    entries_done: usize,
}

/// The progress of one operation. If the next item is written meanwhile, that write adds all of its entries, so
/// continuing in the middle is still correct.
#[derive(Clone, Copy, Debug)]
struct Filled {
    items: usize,
    entries_of_next: usize,
}

impl Op for FillIndex {
    type Out = Filled;

    fn id(&self) -> u128 {
        self.operation_id
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        keys.extend(self.items.iter().cloned());
    }

    fn decide(&self, view: &dyn View, _lsn: Lsn) -> Decision<Filled> {
        let mut writes = WriteSet::default();
        let mut bytes = 0;
        let mut skipped = self.entries_done;
        for (at, key) in self.items.iter().enumerate() {
            let done = std::mem::take(&mut skipped);
            let item = view.get(key).and_then(|bytes| StoredItem::decode(&bytes));
            // Deleted since the page was read.
            let (Some(item), Some((effective, id))) = (item, keys::parse_item(key)) else { continue };
            let Ok(value) = parse_object(&item.body) else { continue };
            let mut entries = KeyPacker::default();
            push_entries(&mut entries, &self.building, &value, item.timestamp, &effective, id);
            for (number, entry) in entries.finish().iter().enumerate().skip(done) {
                if bytes >= FILL_BYTES_MAX {
                    return Decision::Write(writes, Filled { items: at, entries_of_next: number });
                }
                bytes += entry.len();
                writes.put(entry.to_vec(), Bytes::copy_from_slice(&item.ordinal.to_be_bytes()));
            }
        }
        let filled = Filled { items: self.items.len(), entries_of_next: 0 };
        // Nothing to add, so no LSN is used.
        if writes.puts.is_empty() { Decision::Reject(filled) } else { Decision::Write(writes, filled) }
    }
}
