//! Splits and merges that are interrupted at any moment, and those that meet other changes of their container.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use orrery_db::{
    ChangeMode, ChangeRequest, ChangeStart, Container, Database, FeedScope, PageRequest, Receipt,
};
use orrery_model::partition_key::EpkRange;
use orrery_model::{ErrorKind, Value};
use orrery_storage::{Memory, PartitionStore};
use orrery_testing::wait;

use crate::common::faulty::Faulty;
use crate::common::{
    BY_PK, CONTAINER, DATABASE, ENGINES, Engine, PLACE, World, everything, parse, quiet_options, raw,
    with_key,
};

const COMPOSITE: &str = r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/tag"},{"path":"/version","order":"descending"}]]}"#;
const OTHER_COMPOSITE: &str = r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/version"},{"path":"/tag","order":"descending"}]]}"#;

type Contents = BTreeMap<(u64, u64), u64>;

fn container(database: &Database) -> Arc<Container> {
    Arc::clone(database.catalog().container(DATABASE, CONTAINER).unwrap())
}

async fn write(database: &Database, contents: &mut Contents, key: u64, id: u64, version: u64) {
    let body = format!(r#"{{"id":"{id}","pk":"k{key}","version":{version},"tag":"t{}"}}"#, id % 5);
    let options = with_key(&format!(r#"["k{key}"]"#));
    database.upsert_item(&mut Receipt::default(), PLACE, &options, &Bytes::from(body)).await.unwrap();
    contents.insert((key, id), version);
}

async fn fill(database: &Database, items: u64) -> Contents {
    let mut contents = Contents::new();
    for id in 0..items {
        write(database, &mut contents, id % 17, id, 1).await;
    }
    contents
}

fn row(item: &Value) -> ((u64, u64), u64) {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let key = number(&item.get("pk").unwrap().as_str().unwrap()[1..]);
    let id = number(item.get("id").unwrap().as_str().unwrap());
    ((key, id), u64::try_from(item.get("version").unwrap().as_i64().unwrap()).unwrap())
}

/// Compares what the feed, the change feed and the store hold with what was written.
async fn check(world: &World, contents: &Contents, place: &str) {
    let items = world.feed(&everything(), 7).await.unwrap();
    assert_eq!(items.len(), contents.len(), "{place}");
    assert_eq!(items.iter().map(row).collect::<Contents>(), *contents, "{place}");
    let changes: Vec<_> = changes(world, ChangeStart::Beginning).await;
    assert_eq!(changes.len(), contents.len(), "{place}: changes");
    assert_eq!(changes.into_iter().collect::<Contents>(), *contents, "{place}: changes");
    raw::check_consistency(world).await.unwrap_or_else(|fault| panic!("{place}: {fault}"));
    let left = raw::entries(world).await;
    assert!(!left.contains_key(&0x78) && !left.contains_key(&0x79), "{place}: {left:?}");
}

async fn changes(world: &World, start: ChangeStart) -> Vec<((u64, u64), u64)> {
    let mut found = Vec::new();
    for partition in &container(&world.database).partitions {
        let range = partition.range.clone();
        found.extend(changes_in(world, range, start, 5).await.0);
    }
    found
}

async fn changes_in(
    world: &World,
    range: EpkRange,
    start: ChangeStart,
    page_size: i64,
) -> (Vec<((u64, u64), u64)>, u64) {
    let mut request = ChangeRequest {
        mode: ChangeMode::LatestVersions,
        scope: FeedScope { window: Some(range), ..FeedScope::default() },
        start,
        modified_since: None,
        session: None,
        page: PageRequest { items_max: Some(page_size), continuation: None },
        envelope: false,
        previous_images: false,
    };
    let mut found = Vec::new();
    loop {
        let page = world.database.read_changes(&mut Receipt::default(), PLACE, None, &request).await.unwrap();
        let position: u64 = page.etag.trim_matches('"').parse().unwrap();
        request.start = ChangeStart::After(position);
        if page.count == 0 {
            return (found, position);
        }
        let text = [b"[".as_slice(), &page.documents, b"]"].concat();
        found.extend(parse(&text).as_array().unwrap().iter().map(row));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Split,
    Merge,
}

async fn change(database: &Arc<Database>, what: What) -> orrery_model::Result<()> {
    let container = container(database);
    match what {
        What::Split => {
            database.split_partition(container.rid, container.partitions[0].range_id).await.map(drop)
        }
        What::Merge => {
            let both = [container.partitions[0].range_id, container.partitions[1].range_id];
            database.merge_partitions(container.rid, both).await.map(drop)
        }
    }
}

/// The store stops taking changes after each possible number of them; the database is opened again on what it
/// has. Nothing may be missing, and a new attempt must succeed.
#[tokio::test]
async fn a_stop_at_any_point_loses_nothing() {
    for what in [What::Split, What::Merge] {
        for limit in 0.. {
            let inner: Arc<dyn PartitionStore> = Arc::new(Memory::new());
            let faulty = Arc::new(Faulty::new(Arc::clone(&inner)));
            let options = orrery_db::Options { partitions_at_creation: Some(2), ..quiet_options() };
            let world = World::on(faulty.clone(), options).await;
            world.create_container(&format!("{BY_PK},{COMPOSITE}")).await;
            let contents = fill(&world.database, 40).await;
            faulty.fail_after_changes(limit);
            let outcome = change(&world.database, what).await;
            // Parents are destroyed in the background.
            tokio::task::yield_now().await;
            let failed = faulty.has_failed();
            assert!(outcome.is_ok() || failed, "{what:?} {limit}: {outcome:?}");
            let place = format!("{what:?}, {limit} changes");

            // A crash: the database is opened anew.
            let mut reopened = World::on(Arc::clone(&inner), quiet_options()).await;
            check(&reopened, &contents, &place).await;
            let partitions = container(&reopened.database).partitions.len();
            let done = if what == What::Split { 3 } else { 1 };
            assert_eq!(partitions, if outcome.is_ok() { done } else { 2 }, "{place}");
            let present = inner.partitions().await.unwrap().len();
            assert_eq!(present, partitions + 1, "{place}: partitions in the store");
            if outcome.is_err() {
                change(&reopened.database, what).await.unwrap();
                check(&reopened, &contents, &format!("{place}, again")).await;
                reopened = reopened.restart().await;
                check(&reopened, &contents, &format!("{place}, again and restarted")).await;
            }
            if !failed {
                assert!(limit > 8, "{what:?} has many steps");
                break;
            }
        }
    }
}

/// The same, but the server lives on: it heals itself when the store works again.
#[tokio::test]
async fn a_failure_at_any_point_is_recovered() {
    for what in [What::Split, What::Merge] {
        for limit in 0.. {
            let faulty = Arc::new(Faulty::new(Arc::new(Memory::new())));
            let options = orrery_db::Options { partitions_at_creation: Some(2), ..quiet_options() };
            let world = World::on(faulty.clone(), options).await;
            world.create_container(&format!("{BY_PK},{COMPOSITE}")).await;
            let mut contents = fill(&world.database, 40).await;
            faulty.fail_after_changes(limit);
            let outcome = change(&world.database, what).await;
            tokio::task::yield_now().await;
            let failed = faulty.has_failed();
            faulty.fail_after_changes(i64::MAX);
            world.database.maintain().await.unwrap();
            let place = format!("{what:?}, {limit} changes");
            for id in 0..10 {
                write(&world.database, &mut contents, id % 17, id, 2).await;
            }
            check(&world, &contents, &place).await;
            if outcome.is_err() {
                change(&world.database, what).await.unwrap_or_else(|error| panic!("{place}: {error}"));
                check(&world, &contents, &format!("{place}, again")).await;
            }
            if !failed {
                break;
            }
        }
    }
}

/// Somebody who asks for a split and goes away must not leave the partition between two states.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_completes_without_its_requester() {
    let world = World::with_partitions(Engine::Embedded, 1).await;
    world.create_container(BY_PK).await;
    let contents = fill(&world.database, 100).await;
    for micros in [0, 100, 1000, 5000] {
        let split = change(&world.database, What::Split);
        drop(tokio::time::timeout(std::time::Duration::from_micros(micros), split).await);
        let items = world.feed(&everything(), 7).await.unwrap();
        assert_eq!(items.iter().map(row).collect::<Contents>(), contents, "left after {micros} µs");
    }
    // The next one waits for those before it, which may have taken the partition it was about.
    while let Err(error) = change(&world.database, What::Split).await {
        assert_eq!(error.kind, orrery_model::ErrorKind::PartitionGone);
    }
    assert!(container(&world.database).partitions.len() >= 2);
    check(&world, &contents, "at last").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn splits_and_merges_run_concurrently_with_other_changes() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 2).await;
        let ttl = r#""defaultTtl":-1"#;
        let unique = r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/id"]}]}"#;
        let members = |policy: &str| format!("{BY_PK},{ttl},{unique},{policy}");
        world.create_container(&members(COMPOSITE)).await;
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let (database, stop) = (Arc::clone(&world.database), Arc::clone(&stop));
                tokio::spawn(async move {
                    let mut contents = Contents::new();
                    let mut version = 0;
                    while !stop.load(Ordering::Relaxed) {
                        version += 1;
                        let (key, id) = (writer * 100 + version % 13, writer * 1000 + version % 59);
                        if version % 40 == 0 {
                            let options = with_key(&format!(r#"["k{key}"]"#));
                            let receipt = &mut Receipt::default();
                            database.delete_by_partition_key(receipt, PLACE, &options).await.unwrap();
                            contents.retain(|(other, _), _| *other != key);
                        } else {
                            write(&database, &mut contents, key, id, version).await;
                        }
                    }
                    contents
                })
            })
            .collect();
        let maintained = {
            let (database, stop) = (Arc::clone(&world.database), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    database.maintain().await.unwrap();
                    tokio::task::yield_now().await;
                }
            })
        };
        for round in 0..8 {
            let policy = if round % 2 == 0 { OTHER_COMPOSITE } else { COMPOSITE };
            let members = members(policy);
            let replace = world.replace_container(&members);
            let split = change(&world.database, What::Split);
            let (replaced, split) = tokio::join!(replace, split);
            replaced.unwrap();
            split.unwrap();
            if round % 2 == 1 {
                change(&world.database, What::Merge).await.unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        maintained.await.unwrap();
        let mut contents = Contents::new();
        for writer in writers {
            contents.extend(writer.await.unwrap());
        }
        for _ in 0..3 {
            world.database.maintain().await.unwrap();
            world.env.advance_seconds(200);
        }
        world.database.maintain().await.unwrap();
        check(&world, &contents, &format!("{engine:?}")).await;
        let world = world.restart().await;
        check(&world, &contents, &format!("{engine:?}, restarted")).await;
    }
}

/// A container that is deleted while one of its partitions splits leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_container_leaves_no_children() {
    for moment in 0..10 {
        let world = World::with_partitions(Engine::Memory, 1).await;
        world.create_container(BY_PK).await;
        fill(&world.database, 300).await;
        let database = Arc::clone(&world.database);
        let split = tokio::spawn(async move { change(&database, What::Split).await });
        // A little later each time.
        for _ in 0..moment * 100 {
            tokio::task::yield_now().await;
        }
        world.database.delete_container(&mut Receipt::default(), PLACE, None).await.unwrap();
        // It may have been too late to find the container at all.
        drop(split.await);
        wait::eventually_true("only the catalog to be left", async || {
            world.store.partitions().await.unwrap().len() == 1
        })
        .await;
    }
}

#[tokio::test]
async fn merged_partitions_keep_order_sessions_and_positions() {
    let world = World::with_partitions(Engine::Memory, 4).await;
    world.create_container(BY_PK).await;
    let mut contents = fill(&world.database, 60).await;
    let before = container(&world.database);
    // A reader of each partition, as a client holds them.
    let mut readers: Vec<(EpkRange, u64)> = Vec::new();
    for partition in &before.partitions {
        let (_, position) = changes_in(&world, partition.range.clone(), ChangeStart::Beginning, 9).await;
        readers.push((partition.range.clone(), position));
    }
    let mut receipt = Receipt::default();
    world.database.read_item(&mut receipt, (PLACE.0, PLACE.1, "3"), &with_key(r#"["k3"]"#)).await.unwrap();
    let session = receipt.session_token().unwrap();

    let not_neighbours = [before.partitions[0].range_id, before.partitions[2].range_id];
    let refused = world.database.merge_partitions(before.rid, not_neighbours).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::BadRequest);
    change(&world.database, What::Merge).await.unwrap();
    for id in 0..20 {
        write(&world.database, &mut contents, id % 17, id, 2).await;
    }
    change(&world.database, What::Merge).await.unwrap();
    change(&world.database, What::Split).await.unwrap();
    for id in 20..30 {
        write(&world.database, &mut contents, id % 17, id, 3).await;
    }
    change(&world.database, What::Merge).await.unwrap();
    change(&world.database, What::Merge).await.unwrap();
    check(&world, &contents, "merged").await;

    let merged = container(&world.database);
    assert_eq!(merged.partitions.len(), 1);
    let ancestors = &merged.partitions[0].parents;
    assert!(
        before.partitions.iter().all(|partition| ancestors.contains(&partition.range_id)),
        "{ancestors:?}"
    );
    // Each reader goes on where it was: it sees what changed since, and nothing else.
    let mut seen = Contents::new();
    for (range, position) in readers {
        let (changes, _) = changes_in(&world, range, ChangeStart::After(position), 3).await;
        for (place, version) in changes {
            assert!(seen.insert(place, version).is_none(), "{place:?} came twice");
        }
    }
    let expected: Contents = contents
        .iter()
        .filter(|(_, version)| **version > 1)
        .map(|(place, version)| (*place, *version))
        .collect();
    assert_eq!(seen, expected);
    let options = orrery_db::ItemOptions { session: Some(session), ..with_key(r#"["k3"]"#) };
    world.database.read_item(&mut Receipt::default(), (PLACE.0, PLACE.1, "3"), &options).await.unwrap();
}
