//! Removes expired items in the background, found by expiry entries or by the feed. Readers no longer see them anyway;
//! this only reclaims the space, with request units that requests have left over.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use orrery_model::Result;
use orrery_storage::{Key, Lsn, PartitionId, ReadRequest, Scan};
use parking_lot::Mutex;

use super::Items;
use super::purge::REMOVAL_HUNDREDTHS;
use crate::catalog::{Catalog, Container, Partition};
use crate::failure::store_failure;
use crate::layout::document::decode;
use crate::layout::keys;
use crate::layout::stored::POSITIONS;

/// Entries processed per step.
const PAGE_ENTRIES: usize = 256;

/// The scan position in each partition's feed.
#[derive(Default)]
pub(crate) struct FeedCursors(Mutex<HashMap<PartitionId, PartitionCursors>>);

impl FeedCursors {
    /// Drops the state of removed partitions.
    pub(crate) fn keep_only(&self, catalog: &Catalog) {
        let partitions = catalog.containers().flat_map(|container| &container.partitions);
        let known: HashSet<PartitionId> = partitions.map(|partition| partition.store.id).collect();
        self.0.lock().retain(|partition, _| known.contains(partition));
    }
}

/// The position up to which a partition's feed was scanned for items that expire under the container's default.
#[derive(Clone, Debug)]
struct PartitionCursors {
    default_ttl: i64,
    /// For each LSN sequence in the feed: the position before which no item can expire under the default, because the
    /// remaining ones never expire; none if the sequence has no entries left.
    of_numberings: Vec<Option<Lsn>>,
}

impl Items {
    /// Items with their own `ttl` are found by their expiry entries.
    pub(crate) async fn sweep_own_lifetimes(
        &self,
        container: &Arc<Container>,
        partition: &Partition,
    ) -> Result<()> {
        let mut range = keys::expired_by(self.env.now_seconds());
        loop {
            // Without anything left over the rest waits; nobody sees it.
            let Some(at_once) = self.affordable_removals(container, partition) else { return Ok(()) };
            let scan = Scan::forward(range.clone(), at_once);
            let page =
                self.store.read(partition.store, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
            let item_keys = page.entries.iter().filter_map(|entry| keys::item_of_expiry(&entry.key));
            self.sweep_keys(container, partition, item_keys.collect()).await?;
            if !range.continue_after(&page) {
                return Ok(());
            }
        }
    }

    /// How many removals the throughput allows that requests have left over.
    fn affordable_removals(&self, container: &Container, partition: &Partition) -> Option<usize> {
        let left = self.left_over(container, partition)?;
        let affordable = left.hundredths() / REMOVAL_HUNDREDTHS;
        Some(usize::try_from(affordable).unwrap_or(usize::MAX).clamp(1, PAGE_ENTRIES))
    }

    /// Items under the container's default are found by the feed, which is in timestamp order: from its start up to the
    /// first item that has not expired. Merged partitions have independent LSN sequences, so each is scanned
    /// separately.
    pub(crate) async fn sweep_default_lifetime(
        &self,
        container: &Arc<Container>,
        partition: &Partition,
        default_ttl: i64,
    ) -> Result<()> {
        let known = self.feed_cursors.0.lock().get(&partition.store.id).cloned();
        // Another default makes other items expire, so the scan starts again.
        let known = known.filter(|known| known.default_ttl == default_ttl);
        let mut cursors = known.unwrap_or_else(|| PartitionCursors {
            default_ttl,
            of_numberings: vec![Some(0); usize::from(partition.numberings.max(1))],
        });
        for (numbering, cursor) in (0..).zip(&mut cursors.of_numberings) {
            if let Some(after) = *cursor {
                *cursor = self.sweep_numbering(container, partition, default_ttl, numbering, after).await?;
            }
        }
        self.feed_cursors.0.lock().insert(partition.store.id, cursors);
        Ok(())
    }

    /// Sweeps the entries of one LSN sequence after a position. Returns the position before which nothing can expire,
    /// or none if the sequence has ended.
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
            // Stopped by the budget, so the end of the sequence has not been seen.
            let Some(at_once) = self.affordable_removals(container, partition) else {
                is_empty = false;
                break;
            };
            let scan = Scan::forward(range.clone(), at_once);
            let page =
                self.store.read(partition.store, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
            // Positions of a merged partition tell which sequence an entry belongs to.
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
                // Removed since the scan.
                let Some(value) = value else { continue };
                let item = decode(&value)?;
                if item.is_expired(Some(default_ttl), now) {
                    expired.push((key, value));
                } else if item.timestamp.saturating_add(default_ttl) > now {
                    // The feed is in the order of time: everything behind this one is younger.
                    too_young = true;
                    if nothing_left_behind {
                        cursor = item.lsn.saturating_sub(1);
                    }
                    break;
                } else if item.ttl == Some(-1) && nothing_left_behind {
                    // Other items of this transaction may be newer.
                    cursor = item.lsn.saturating_sub(1);
                } else {
                    // Its own lifetime is longer than the default, so a later round has to look at it again.
                    nothing_left_behind = false;
                }
            }
            let charge = self.sweep(container, expired).await?;
            self.charge_left_over(container, partition, charge);
            match page.entries.last() {
                Some(last) if page.more && !too_young => range.start = [last.key.as_slice(), &[0]].concat(),
                _ => break,
            }
        }
        // New entries always belong to the first sequence.
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
        let charge = self.sweep(container, items.collect()).await?;
        self.charge_left_over(container, partition, charge);
        Ok(())
    }
}
