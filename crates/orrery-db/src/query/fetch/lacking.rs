//! Finds the items that lack a sort property.
//!
//! If the policy lists a property explicitly, the index has entries also for items without it; under a bare `/*` that
//! is impossible, because an item lacks infinitely many properties. Yet these items come first in ascending order and
//! last in descending order, and finding them takes a full scan. So the result is cached, with the LSN of the
//! partition; later queries only check the feed since then. The cache is purely an optimisation: it is small, may be
//! lost at any time, tolerates writes of other processes, and does not affect charges.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_model::Result;
use orrery_model::container::{IndexPath, IndexStep};
use orrery_storage::{Key, KeyRange, Lsn, PartitionId, ReadRequest, Scan};
use parking_lot::Mutex;

use super::reader::Reader;
use crate::catalog::Partition;
use crate::items::insertion_order::advance;
use crate::layout::document::{decode, document_value};
use crate::layout::keys;
use crate::partition::Receipt;

/// The maximum number of cached items per property; with more, every query scans.
const ITEMS_MAX: usize = 1000;
/// The maximum number of cached properties over all partitions.
const KNOWN_MAX: usize = 128;
/// Items scanned before yielding to other requests.
const FETCH_ITEMS: usize = 256;

/// Results of earlier queries, most recently used last.
#[derive(Debug, Default)]
pub(crate) struct LackingItems(Mutex<Vec<Known>>);

#[derive(Clone, Debug)]
struct Known {
    partition: PartitionId,
    path: IndexPath,
    /// Everything up to this LSN was scanned.
    lsn: Lsn,
    /// Item keys. Some items may have been deleted or have the property by now.
    items: Arc<BTreeSet<Key>>,
}

impl LackingItems {
    fn get(&self, partition: PartitionId, path: &IndexPath) -> Option<Known> {
        let known = self.0.lock();
        known.iter().find(|known| known.partition == partition && known.path == *path).cloned()
    }

    fn set(&self, new: Known) {
        let mut known = self.0.lock();
        known.retain(|old| old.partition != new.partition || old.path != new.path);
        // The one that was used longest ago is in front.
        if known.len() >= KNOWN_MAX {
            known.remove(0);
        }
        known.push(new);
    }
}

impl Reader<'_> {
    /// A superset of the items of a partition that lack a property, within the query's windows; `None` if there are
    /// many, or if finding them would cost more than the query itself.
    pub(crate) async fn items_lacking(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        path: &IndexPath,
    ) -> Result<Option<Vec<Key>>> {
        if self.overlay.is_some() {
            // Uncommitted writes of a script must not be cached.
            return Ok(None);
        }
        let memory = &self.database.lacking;
        let known = match memory.get(partition.store.id, path) {
            Some(known) => self.follow_changes(receipt, partition, known).await?,
            // A scan of the whole partition pays only if the query reads all of it anyway.
            None if self.windows.iter().any(|window| window.covers(&partition.range)) => {
                self.look_through(receipt, partition, path).await?
            }
            None => None,
        };
        let Some(known) = known else { return Ok(None) };
        let items = known.items.iter().filter(|key| self.contains_item(key));
        let items = items.cloned().collect();
        // Put back with what has changed, also to note that it was used.
        memory.set(known);
        Ok(Some(items))
    }

    /// Scans all items.
    async fn look_through(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        path: &IndexPath,
    ) -> Result<Option<Known>> {
        let names = names(path);
        let mut range = keys::items_in(&partition.range);
        let mut items = BTreeSet::new();
        let mut lsn = None;
        while !range.is_empty() {
            let scan = Scan::forward(range.clone(), FETCH_ITEMS);
            let page = self.read(receipt, partition, ReadRequest::Scan(scan)).await?;
            // Changes during the scan are checked next time.
            lsn.get_or_insert(page.lsn);
            advance(&mut range, &page, orrery_storage::Direction::Forward);
            for entry in page.entries {
                // With the system properties: a query may sort by one of them.
                let document = document_value(&decode(&entry.value)?, self.container.rid)?;
                if document.at_path(&names).is_none() {
                    items.insert(entry.key);
                }
            }
            // Too many to keep: the query scans, this time and later.
            if items.len() > ITEMS_MAX {
                return Ok(None);
            }
            tokio::task::yield_now().await;
        }
        let (partition, path, items) = (partition.store.id, path.clone(), Arc::new(items));
        Ok(lsn.map(|lsn| Known { partition, path, lsn, items }))
    }

    /// Checks the changes since then. The feed is in LSN order with one entry per item, so reading it to the end covers
    /// all changed items.
    async fn follow_changes(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        mut known: Known,
    ) -> Result<Option<Known>> {
        let names = names(&known.path);
        let mut range: KeyRange = keys::feed_after(known.lsn);
        while !range.is_empty() {
            let scan = Scan::forward(range.clone(), FETCH_ITEMS);
            let page = self.read(receipt, partition, ReadRequest::Scan(scan)).await?;
            advance(&mut range, &page, orrery_storage::Direction::Forward);
            // Only with the last page: before it there may be changes that have not been looked at.
            if !page.more {
                known.lsn = page.lsn.max(known.lsn);
            }
            let changed: Vec<Key> = page.entries.iter().map(|entry| entry.value.to_vec()).collect();
            if changed.is_empty() {
                continue;
            }
            let values = self.read(receipt, partition, ReadRequest::Get(changed.clone())).await?.values;
            // Copied only if another query is using it.
            let items = Arc::make_mut(&mut known.items);
            for (key, value) in changed.into_iter().zip(values) {
                let lacks = match value {
                    None => false,
                    Some(value) => {
                        let document = document_value(&decode(&value)?, self.container.rid)?;
                        document.at_path(&names).is_none()
                    }
                };
                if lacks {
                    items.insert(key);
                } else {
                    items.remove(&key);
                }
            }
            if items.len() > ITEMS_MAX {
                self.database
                    .lacking
                    .0
                    .lock()
                    .retain(|old| old.partition != known.partition || old.path != known.path);
                return Ok(None);
            }
            tokio::task::yield_now().await;
        }
        Ok(Some(known))
    }
}

/// The property names of a path; none for paths into arrays, which cannot be sorted by.
pub(crate) fn names(path: &IndexPath) -> Vec<&str> {
    let names = path.0.iter().filter_map(|step| match step {
        IndexStep::Property(name) => Some(&**name),
        IndexStep::Element => None,
    });
    names.collect()
}
