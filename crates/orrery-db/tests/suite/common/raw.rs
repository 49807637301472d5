//! What really lies in the store, below everything that readers see.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use orrery_model::container::IndexingMode;
use orrery_storage::{
    Decision, Entry, Key, KeyRange, Lsn, Op, PartitionRef, ReadRequest, Scan, View, WriteSet, commit,
};

use super::{CONTAINER, DATABASE, World};

/// Prefixes of the keys of a partition, as `items/keys.rs` freezes them.
pub const ITEM: u8 = 0x10;
pub const RID: u8 = 0x18;
pub const INDEX: u8 = 0x20;
pub const COMPOSITE_INDEX: u8 = 0x24;
pub const FEED: u8 = 0x30;
pub const RECORDING: u8 = 0x36;
pub const HISTORY: u8 = 0x38;
pub const UNIQUE: u8 = 0x40;
pub const EXPIRY: u8 = 0x50;
pub const STATISTICS: u8 = 0x60;
pub const PURGE: u8 = 0x70;

/// How many entries of each kind the partitions of the container hold.
pub async fn entries(world: &World) -> BTreeMap<u8, usize> {
    let catalog = world.database.catalog();
    let container = catalog.container(DATABASE, CONTAINER).unwrap();
    let mut counts = BTreeMap::new();
    for partition in &container.partitions {
        let mut range = KeyRange::all();
        loop {
            let scan = Scan::forward(range.clone(), 1000);
            let page = world.store.read(partition.store, ReadRequest::Scan(scan)).await.unwrap();
            for entry in &page.entries {
                *counts.entry(entry.key[0]).or_default() += 1;
            }
            match page.entries.last() {
                Some(last) if page.more => range.start = [last.key.as_slice(), &[0]].concat(),
                _ => break,
            }
        }
    }
    counts
}

/// How many entries of one kind there are.
pub async fn count(world: &World, prefix: u8) -> usize {
    entries(world).await.get(&prefix).copied().unwrap_or(0)
}

/// The keys with counters, as texts, of each partition of the container.
pub async fn counted_keys(world: &World) -> Vec<Vec<String>> {
    let mut keys = Vec::new();
    for (_, counters) in counters(world).await {
        let texts = counters.iter().map(|entry| String::from_utf8(entry.value[33..].to_vec()).unwrap());
        keys.push(texts.map(|text| text.trim_matches(['[', ']', '"']).to_owned()).collect());
    }
    keys
}

/// Overwrites the counters of a logical partition with zeros.
pub async fn lose_counters(world: &World, pk: &str) {
    for (partition, counters) in counters(world).await {
        for entry in counters {
            if entry.value.ends_with(format!(r#"["{pk}"]"#).as_bytes()) {
                let value = [&entry.value[..1], &[0; 16], &entry.value[17..]].concat();
                commit(&*world.store, partition, Overwrite(entry.key, value.into())).await.unwrap();
            }
        }
    }
}

async fn counters(world: &World) -> Vec<(PartitionRef, Vec<Entry>)> {
    let catalog = world.database.catalog();
    let mut counters = Vec::new();
    for partition in &catalog.container(DATABASE, CONTAINER).unwrap().partitions {
        let scan = Scan::forward(KeyRange::prefix(&[STATISTICS]), 1000);
        let page = world.store.read(partition.store, ReadRequest::Scan(scan)).await.unwrap();
        counters.push((partition.store, page.entries));
    }
    counters
}

/// A write below the database.
struct Overwrite(Key, Bytes);

impl Op for Overwrite {
    type Out = ();

    fn id(&self) -> u128 {
        1
    }

    fn reads(&self, _: &mut Vec<Key>) {}

    fn decide(&self, _: &dyn View, _: Lsn) -> Decision<()> {
        let mut writes = WriteSet::default();
        writes.put(self.0.clone(), self.1.clone());
        Decision::Write(writes, ())
    }
}

/// Bytes before the body of a stored item, as `items/stored.rs` freezes them.
const ITEM_HEADER: usize = 32;

/// Compares the counters and all that items leave beside themselves with the items that are in the store.
/// Background work may run at the same time, and the store is read in several steps: only a fault that stays
/// is one.
pub async fn check_consistency(world: &World) -> Result<(), String> {
    let mut outcome = Ok(());
    for _ in 0..20 {
        outcome = compare(world).await;
        if outcome.is_ok() {
            break;
        }
        orrery_testing::wait::pause_task().await;
    }
    outcome
}

/// While a purge is under way nothing is compared: its items are written off but still there.
async fn compare(world: &World) -> Result<(), String> {
    let catalog = world.database.catalog();
    let Ok(container) = catalog.container(DATABASE, CONTAINER) else { return Ok(()) };
    for partition in &container.partitions {
        let scan = Scan { bytes_max: usize::MAX, ..Scan::forward(KeyRange::all(), usize::MAX) };
        let page = world.store.read(partition.store, ReadRequest::Scan(scan)).await.unwrap();
        let of = |prefix: u8| page.entries.iter().filter(move |entry| entry.key[0] == prefix);
        if of(PURGE).next().is_some() {
            continue;
        }
        let items = of(ITEM).count();
        let bytes: usize = of(ITEM).map(|entry| entry.value.len() - ITEM_HEADER).sum();
        let usages = world.database.container_usage(DATABASE, CONTAINER).await.unwrap();
        let (_, usage) = usages.iter().find(|(range_id, _)| *range_id == partition.range_id).unwrap();
        let own_ttl = of(ITEM).filter(|entry| {
            let ttl = i32::from_be_bytes(entry.value[28..32].try_into().unwrap());
            entry.value[1] & 1 != 0 && ttl > 0
        });
        let dangling = of(UNIQUE).filter(|entry| {
            // Policy, effective key and hash, then who holds the tuple: some item must have that id.
            !of(ITEM).any(|item| item.key.ends_with(&entry.value))
        });
        // Index entries hold the ordinal of their item, by which it is found in the entries by RID.
        let ordinals: HashSet<&[u8]> = of(RID).map(|entry| &entry.key[1..]).collect();
        let indexed: HashSet<&[u8]> = of(INDEX).map(|entry| &entry.value[..]).collect();
        let composite: HashSet<&[u8]> = of(COMPOSITE_INDEX).map(|entry| &entry.value[..]).collect();
        let unindexed = match container.definition.indexing.mode {
            IndexingMode::None => 0,
            IndexingMode::Consistent => ordinals.difference(&indexed).count(),
        };
        let policies = container.definition.unique_keys.len();
        let checks = [
            ("counted items", usage.items, items as u64),
            ("counted bytes", usage.bytes, bytes as u64),
            ("entries by RID", of(RID).count() as u64, items as u64),
            ("feed entries", of(FEED).count() as u64, items as u64),
            ("expiry entries", of(EXPIRY).count() as u64, own_ttl.count() as u64),
            ("items without index entries", unindexed as u64, 0),
            (
                "index entries without an item",
                indexed.union(&composite).filter(|ordinal| !ordinals.contains(**ordinal)).count() as u64,
                0,
            ),
            ("unique tuples without an item", dangling.count() as u64, 0),
            (
                "unique tuples beyond those of items",
                (of(UNIQUE).count().saturating_sub(items * policies)) as u64,
                0,
            ),
        ];
        for (what, found, expected) in checks {
            if found != expected {
                return Err(format!("{what}: {found}, expected {expected}, in range {}", partition.range_id));
            }
        }
    }
    Ok(())
}
