//! `orrery store move`: copies one store into another, byte by byte, while no server uses either.
//!
//! Partitions keep their numbers, epochs and LSNs, so etags, session tokens and continuations stay valid. After the
//! copy both stores are read again and compared. A target that is not empty is refused, and so is a store that a server
//! has open. From the first entry until the comparison is done the target carries a mark that keeps servers from opening
//! it, so that an interrupted move cannot be mistaken for a complete one. The source is only read.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orrery_db::{CATALOG_PARTITION, UNFINISHED_MOVE_KEY};
use orrery_model::{Object, Value};
use orrery_storage::{
    Embedded, EmbeddedOptions, Entry, KeyRange, PartitionInfo, PartitionRef, PartitionStore, Postgres,
    PostgresOptions, ReadRequest, Scan, StoreError,
};

use crate::failure::Failure;
use crate::io::{Output, count, print};

const PAGE_ENTRIES: usize = 2000;
/// A server that has the store open leaves a note at least this often.
const NOTE_AGE_MAX: Duration = Duration::from_secs(10);

/// What was copied.
#[derive(Default)]
struct MoveTotals {
    partitions: usize,
    entries: u64,
    bytes: u64,
}

pub(super) fn run(from: &str, to: &str, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("the async runtime cannot start: {error}")))?;
    let moved = runtime.block_on(async {
        let source = open(from, false).await?;
        let target = open(to, true).await?;
        let moved = move_all(&*source, &*target).await;
        // Before the outcome is examined, because a failed move has to release both stores too.
        target.close().await.map_err(Failure::refused)?;
        source.close().await.map_err(Failure::refused)?;
        moved
    })?;
    let text = match output {
        Output::Json => {
            let mut object = Object::new();
            object.set("partitions", Value::from(i64::try_from(moved.partitions).unwrap_or(i64::MAX)));
            object.set("entries", Value::from(moved.entries.cast_signed()));
            object.set("bytes", Value::from(moved.bytes.cast_signed()));
            object.set("verified", Value::from(true));
            format!("{}\n", Value::Object(object).to_json())
        }
        Output::Text => format!(
            "moved {} with {} entries ({} bytes); verified that both stores are identical\n",
            count(moved.partitions as u64, "partition"),
            moved.entries,
            moved.bytes
        ),
    };
    print(out, &text)
}

async fn open(location: &str, is_target: bool) -> Result<Arc<dyn PartitionStore>, Failure> {
    if Postgres::is_url(location) {
        let options = PostgresOptions::parse(location).map_err(Failure::usage)?;
        let store = Postgres::open(options).await.map_err(Failure::refused)?;
        let store: Arc<dyn PartitionStore> = Arc::new(store);
        if let Some(coordination) = store.coordination() {
            let notes = coordination.exchange_notes(Bytes::new(), NOTE_AGE_MAX).await;
            // One note is our own.
            if notes.map_err(Failure::refused)?.len() > 1 {
                return Err(Failure::refused("the store is in use by servers: stop them first"));
            }
        }
        return Ok(store);
    }
    let directory = Path::new(location).join("store");
    if !is_target && !directory.is_dir() {
        return Err(Failure::refused(format!("there is no data in {location}")));
    }
    if is_target {
        std::fs::create_dir_all(location)
            .map_err(|error| Failure::refused(format!("{location} cannot be created: {error}")))?;
    }
    let store = Embedded::open(directory, EmbeddedOptions::default()).map_err(Failure::refused)?;
    Ok(Arc::new(store))
}

async fn move_all(source: &dyn PartitionStore, target: &dyn PartitionStore) -> Result<MoveTotals, Failure> {
    // Nothing is written before all of these checks.
    if is_marked(target).await.map_err(Failure::refused)? {
        return Err(Failure::refused(
            "the target holds part of a move that did not finish: remove its directory or drop its schema, then move again",
        ));
    }
    if is_marked(source).await.map_err(Failure::refused)? {
        return Err(Failure::refused("the source is the target of a move that did not finish"));
    }
    if !target.partitions().await.map_err(Failure::refused)?.is_empty() {
        return Err(Failure::refused("the target is not empty: move into an empty store"));
    }
    let mut partitions = source.partitions().await.map_err(Failure::refused)?;
    if !partitions.iter().any(|partition| partition.id == CATALOG_PARTITION.id) {
        return Err(Failure::refused("the source holds no data"));
    }
    // The mark comes first: from here on no server opens the target.
    target.create(CATALOG_PARTITION.id, 0).await.map_err(Failure::refused)?;
    let mark = Entry { key: UNFINISHED_MOVE_KEY.to_vec(), value: Bytes::new() };
    target.bulk_load(CATALOG_PARTITION, vec![mark]).await.map_err(Failure::refused)?;
    // The catalog, partition 0, is copied last.
    partitions.sort_by_key(|partition| std::cmp::Reverse(partition.id));
    let mut moved = MoveTotals { partitions: partitions.len(), ..MoveTotals::default() };
    for partition in &partitions {
        copy(source, target, partition, &mut moved).await.map_err(Failure::refused)?;
    }
    let mut there = target.partitions().await.map_err(Failure::refused)?;
    there.sort_by_key(|partition| std::cmp::Reverse(partition.id));
    if there != partitions {
        return Err(Failure::internal("the partitions of the two stores differ"));
    }
    // Both are read again, so that what is compared is what was stored.
    for partition in &partitions {
        compare(source, target, partition).await?;
    }
    // Nothing but the mark may follow the records of the catalog.
    let rest = KeyRange { start: UNFINISHED_MOVE_KEY.to_vec(), end: None };
    let left = target.read(CATALOG_PARTITION, scan(&rest)).await.map_err(Failure::refused)?.entries;
    if left.len() != 1 || left[0].key != UNFINISHED_MOVE_KEY {
        return Err(Failure::internal("the two stores differ in the catalog"));
    }
    target.delete_range(CATALOG_PARTITION, rest, 1).await.map_err(Failure::refused)?;
    Ok(moved)
}

async fn is_marked(store: &dyn PartitionStore) -> Result<bool, StoreError> {
    let request = ReadRequest::Get(vec![UNFINISHED_MOVE_KEY.to_vec()]);
    match store.read(CATALOG_PARTITION, request).await {
        Ok(page) => Ok(page.values.iter().any(Option::is_some)),
        // The store is new and has no catalog.
        Err(StoreError::Fenced) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn copy(
    source: &dyn PartitionStore,
    target: &dyn PartitionStore,
    partition: &PartitionInfo,
    moved: &mut MoveTotals,
) -> Result<(), StoreError> {
    let from = PartitionRef { id: partition.id, epoch: partition.epoch };
    let to = PartitionRef { id: partition.id, epoch: 0 };
    target.create(partition.id, partition.lsn).await?;
    let mut range = KeyRange::all();
    loop {
        let page = source.read(from, scan(&range)).await?;
        if let Some(last) = page.entries.last() {
            // The smallest key after the last one.
            range.start = [last.key.as_slice(), &[0]].concat();
        }
        moved.entries += page.entries.len() as u64;
        moved.bytes +=
            page.entries.iter().map(|entry| (entry.key.len() + entry.value.len()) as u64).sum::<u64>();
        target.bulk_load(to, page.entries).await?;
        if !page.more {
            break;
        }
    }
    // Epochs count retirements, so retiring the copy as often gives it the same epoch.
    for epoch in 0..partition.epoch {
        target.retire(PartitionRef { id: partition.id, epoch }).await?;
    }
    Ok(())
}

async fn compare(
    source: &dyn PartitionStore,
    target: &dyn PartitionStore,
    partition: &PartitionInfo,
) -> Result<(), Failure> {
    let place = PartitionRef { id: partition.id, epoch: partition.epoch };
    // The mark sorts after the catalog's records. The caller checks that nothing else does.
    let end = (partition.id == CATALOG_PARTITION.id).then(|| UNFINISHED_MOVE_KEY.to_vec());
    let mut range = KeyRange { end, ..KeyRange::all() };
    loop {
        let left = source.read(place, scan(&range)).await.map_err(Failure::refused)?;
        let right = target.read(place, scan(&range)).await.map_err(Failure::refused)?;
        if left.entries != right.entries || left.more != right.more {
            return Err(Failure::internal(format!("the two stores differ in partition {}", partition.id.0)));
        }
        match left.entries.last() {
            Some(last) if left.more => range.start = [last.key.as_slice(), &[0]].concat(),
            _ => return Ok(()),
        }
    }
}

fn scan(range: &KeyRange) -> ReadRequest {
    ReadRequest::Scan(Scan::forward(range.clone(), PAGE_ENTRIES))
}
