//! Checks what is derived from items: index entries, the map of RIDs, and the counters of logical partitions.
//!
//! Nothing may write meanwhile, so no background work runs. Items are read once, a page at a time; each must have
//! exactly the entries that a write of it would make, which needs no more memory than a page: all expected ones are
//! looked up, and there must be no others, so it suffices to count them.

use std::sync::Arc;

use bytes::Bytes;
use orrery_env::Env;
use orrery_model::Result;
use orrery_model::document::parse_object;
use orrery_model::partition_key::EffectiveKey;
use orrery_storage::{Entry, Key, KeyPacker, KeyRange, PartitionStore, ReadRequest, Scan, Want};

use super::push_entries;
use crate::catalog::{CatalogStore, Container, Partition};
use crate::failure::store_failure;
use crate::layout::statistics::Statistics;
use crate::layout::stored::StoredItem;
use crate::layout::{index_entry, keys};

/// Items per page.
const ITEMS_AT_ONCE: usize = 256;
/// Entries per page of those that are only counted.
const ENTRIES_AT_ONCE: usize = 10_000;
/// Further problems are only counted.
const PROBLEMS_SHOWN_MAX: usize = 100;

/// What was checked, and what is wrong.
#[derive(Clone, Debug, Default)]
pub struct StoreCheck {
    pub containers: u64,
    pub partitions: u64,
    pub items: u64,
    pub index_entries: u64,
    pub logical_partitions: u64,
    /// The first ones.
    pub problems: Vec<String>,
    pub problems_total: u64,
}

impl StoreCheck {
    fn report(&mut self, problem: impl FnOnce() -> String) {
        self.problems_total += 1;
        if self.problems.len() < PROBLEMS_SHOWN_MAX {
            self.problems.push(problem());
        }
    }
}

/// Checks all containers of a store that nothing else uses.
pub async fn check_store(store: Arc<dyn PartitionStore>, env: Arc<dyn Env>) -> Result<StoreCheck> {
    // Opened as by a server, so that a catalog that cannot be read is the first thing to be reported.
    let catalog = CatalogStore::open(Arc::clone(&store), env).await?.snapshot();
    let mut check = StoreCheck::default();
    for container in catalog.containers() {
        check.containers += 1;
        for partition in &container.partitions {
            check.partitions += 1;
            let place = format!("{}, partition {}", container.alt_path(), partition.range_id);
            PartitionCheck { store: &*store, container, partition, place, check: &mut check }.run().await?;
        }
    }
    Ok(check)
}

struct PartitionCheck<'a> {
    store: &'a dyn PartitionStore,
    container: &'a Container,
    partition: &'a Partition,
    place: String,
    check: &'a mut StoreCheck,
}

/// The counters of a logical partition, as its items say.
#[derive(Default)]
struct Counted {
    key: Option<EffectiveKey>,
    items: u64,
    bytes: u64,
}

impl PartitionCheck<'_> {
    async fn run(mut self) -> Result<()> {
        let mut counted = Counted::default();
        let mut expected_entries = 0;
        let mut range = keys::items_in(&self.partition.range);
        loop {
            let page = self.scan(range.clone(), ITEMS_AT_ONCE, Want::KeysAndValues).await?;
            for entry in &page.0 {
                expected_entries += self.item(entry, &mut counted).await?;
            }
            match page {
                (entries, true) if !entries.is_empty() => {
                    range.start = [entries[entries.len() - 1].key.as_slice(), &[0]].concat();
                }
                _ => break,
            }
        }
        self.logical_partition(&counted).await?;
        self.counters_without_items().await?;
        // Every expected entry was found above, so an equal number means that there are no others.
        let mut found = 0;
        for range in index_entry::generation_ranges(self.container.index.serving.number) {
            found += self.count(range).await?;
        }
        self.check.index_entries += found;
        if found != expected_entries {
            let place = &self.place;
            self.check
                .report(|| format!("{place}: {found} index entries, but its items have {expected_entries}"));
        }
        Ok(())
    }

    /// Checks an item; returns how many index entries it has.
    async fn item(&mut self, entry: &Entry, counted: &mut Counted) -> Result<u64> {
        self.check.items += 1;
        let parsed = keys::parse_item(&entry.key);
        let item = StoredItem::decode(&entry.value);
        // Reported and skipped: one damaged item must not hide what else is wrong.
        let (Some((effective, id)), Some(item)) = (parsed, item) else {
            let place = &self.place;
            self.check.report(|| format!("{place}: an item cannot be decoded"));
            return Ok(0);
        };
        // Items are in the order of their keys: when the key changes, its logical partition is complete.
        if counted.key.as_ref() != Some(&effective) {
            self.logical_partition(counted).await?;
            *counted = Counted { key: Some(effective.clone()), ..Counted::default() };
        }
        counted.items += 1;
        counted.bytes += item.body.len() as u64;
        let Ok(value) = parse_object(&item.body) else {
            let place = &self.place;
            self.check.report(|| format!("{place}: item {id} is not a JSON object"));
            return Ok(0);
        };
        let serving = &self.container.index.serving;
        let mut packer = KeyPacker::default();
        push_entries(&mut packer, serving, &value, item.timestamp, &effective, id);
        let mut wanted: Vec<Key> = packer.finish().iter().map(<[u8]>::to_vec).collect();
        // Elements of an array with the same value share an entry.
        wanted.sort_unstable();
        wanted.dedup();
        let entries = wanted.len();
        // Looked up in the same read.
        wanted.push(keys::rid(item.ordinal));
        let mut values = self.get(wanted).await?;
        let rid = values.pop().flatten();
        if rid.as_deref() != Some(entry.key.as_slice()) {
            let place = &self.place;
            self.check.report(|| format!("{place}: the RID of item {id} does not lead to it"));
        }
        let ordinal = item.ordinal.to_be_bytes();
        let missing = values.iter().filter(|value| value.as_deref() != Some(&ordinal[..])).count();
        if missing > 0 {
            let place = &self.place;
            self.check
                .report(|| format!("{place}: {missing} index entries of item {id} are missing or wrong"));
        }
        Ok(entries as u64)
    }

    /// Compares the counters of a logical partition whose items have all been read.
    async fn logical_partition(&mut self, counted: &Counted) -> Result<()> {
        let Some(effective) = &counted.key else { return Ok(()) };
        self.check.logical_partitions += 1;
        let stored = self.get(vec![keys::statistics(effective)]).await?.pop().flatten();
        let stored = stored.and_then(|bytes| Statistics::decode(&bytes)).unwrap_or_default();
        if (stored.items, stored.bytes) != (counted.items, counted.bytes) {
            let (place, Counted { items, bytes, .. }) = (&self.place, counted);
            self.check.report(|| {
                format!(
                    "{place}: logical partition {effective} counts {} items and {} bytes, but has {items} and {bytes}",
                    stored.items, stored.bytes
                )
            });
        }
        Ok(())
    }

    /// Finds logical partitions that count items but have none.
    async fn counters_without_items(&mut self) -> Result<()> {
        let mut range = keys::statistics_in(&self.partition.range);
        loop {
            let (entries, more) = self.scan(range.clone(), ITEMS_AT_ONCE, Want::KeysAndValues).await?;
            for entry in &entries {
                let effective = keys::parse_statistics(&entry.key);
                let (Some(effective), Some(stored)) = (effective, Statistics::decode(&entry.value)) else {
                    let place = &self.place;
                    self.check
                        .report(|| format!("{place}: the counters of a logical partition cannot be decoded"));
                    continue;
                };
                if stored.items > 0
                    && self.scan(keys::items_of(&effective), 1, Want::Keys).await?.0.is_empty()
                {
                    let place = &self.place;
                    self.check.report(|| {
                        format!("{place}: logical partition {effective} counts items but has none")
                    });
                }
            }
            match entries.last() {
                Some(last) if more => range.start = [last.key.as_slice(), &[0]].concat(),
                _ => return Ok(()),
            }
        }
    }

    async fn count(&self, mut range: KeyRange) -> Result<u64> {
        let mut count = 0;
        loop {
            let (entries, more) = self.scan(range.clone(), ENTRIES_AT_ONCE, Want::Keys).await?;
            count += entries.len() as u64;
            match entries.last() {
                Some(last) if more => range.start = [last.key.as_slice(), &[0]].concat(),
                _ => return Ok(count),
            }
        }
    }

    async fn scan(&self, range: KeyRange, entries_max: usize, want: Want) -> Result<(Vec<Entry>, bool)> {
        let scan = Scan { want, ..Scan::forward(range, entries_max) };
        let page =
            self.store.read(self.partition.store, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
        Ok((page.entries, page.more))
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Bytes>>> {
        let page =
            self.store.read(self.partition.store, ReadRequest::Get(keys)).await.map_err(store_failure)?;
        Ok(page.values)
    }
}
