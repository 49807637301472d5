//! The items that lack a property, for sorting by it.
//!
//! Under a policy that names a property the index has entries also for items without it; under a bare `/*` it cannot,
//! because there is no end of properties that an item does not have. Yet these items come first in ascending order
//! and last in descending order, and finding them means going through all items. So what was found once is
//! remembered: as of which number of the partition, and which items. Later only what the feed has since then is looked
//! at. The memory is an accelerator and nothing else: it is small, it may be lost at any time, other processes may
//! write to the partition, and charges do not depend on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_model::Result;
use orrery_model::container::{IndexPath, IndexStep};
use orrery_storage::{Key, KeyRange, Lsn, PartitionId, ReadRequest, Scan};
use parking_lot::Mutex;

use super::reader::{Reader, advance};
use crate::catalog::Partition;
use crate::layout::document::{decode, document_value};
use crate::layout::keys;
use crate::partition::Receipt;

/// Items without a property that are remembered; beyond, they are looked for each time.
const ITEMS_MAX: usize = 1000;
/// Properties of partitions that are remembered.
const KNOWN_MAX: usize = 128;
/// Items looked at between two turns of other requests.
const FETCH_ITEMS: usize = 256;

/// What earlier queries found, the latest used last.
#[derive(Debug, Default)]
pub(crate) struct LackingItems(Mutex<Vec<Known>>);

#[derive(Clone, Debug)]
struct Known {
    partition: PartitionId,
    path: IndexPath,
    /// Everything up to this number was looked at.
    lsn: Lsn,
    /// Item keys. Some may be gone or have the property by now.
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
        if known.len() >= KNOWN_MAX {
            known.remove(0);
        }
        known.push(new);
    }
}

impl Reader<'_> {
    /// The keys of the items of a partition that may lack a property, all that do among them and each inside the
    /// query's windows; `None` if they are many, or if it would take more to find out than the query needs.
    pub(crate) async fn items_lacking(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        path: &IndexPath,
    ) -> Result<Option<Vec<Key>>> {
        if self.overlay.is_some() {
            // What a script has not committed must not be remembered.
            return Ok(None);
        }
        let memory = &self.database.lacking;
        let known = match memory.get(partition.store.id, path) {
            Some(known) => self.follow_changes(receipt, partition, known).await?,
            None if self.windows.iter().any(|window| window.covers(&partition.range)) => {
                self.look_through(receipt, partition, path).await?
            }
            None => None,
        };
        let Some(known) = known else { return Ok(None) };
        let items = known.items.iter().filter(|key| self.contains_item(key));
        let items = items.cloned().collect();
        memory.set(known);
        Ok(Some(items))
    }

    /// Goes through all items.
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
            // What changes during the search is looked at next time.
            lsn.get_or_insert(page.lsn);
            advance(&mut range, &page, orrery_storage::Direction::Forward);
            for entry in page.entries {
                let document = document_value(&decode(&entry.value)?, self.container.rid)?;
                if document.at_path(&names).is_none() {
                    items.insert(entry.key);
                }
            }
            if items.len() > ITEMS_MAX {
                return Ok(None);
            }
            tokio::task::yield_now().await;
        }
        let (partition, path, items) = (partition.store.id, path.clone(), Arc::new(items));
        Ok(lsn.map(|lsn| Known { partition, path, lsn, items }))
    }

    /// Looks at what has changed since. Changes come in the order of their numbers, and a later one takes the place
    /// of an earlier one, so whoever has read the feed to its end has seen all items that changed.
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
            if !page.more {
                known.lsn = page.lsn.max(known.lsn);
            }
            let changed: Vec<Key> = page.entries.iter().map(|entry| entry.value.to_vec()).collect();
            if changed.is_empty() {
                continue;
            }
            let values = self.read(receipt, partition, ReadRequest::Get(changed.clone())).await?.values;
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

/// The names of a path of properties; those into arrays are not sorted by.
pub(crate) fn names(path: &IndexPath) -> Vec<&str> {
    let names = path.0.iter().filter_map(|step| match step {
        IndexStep::Property(name) => Some(&**name),
        IndexStep::Element => None,
    });
    names.collect()
}
