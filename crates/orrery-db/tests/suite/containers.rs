//! Databases and containers: what can be made, changed and listed, and how key space is divided.

use std::sync::Arc;

use orrery_db::{MetadataPage, Options, PageRequest, RangesPage, Receipt, ResourceFeed};
use orrery_model::offer::Throughput;
use orrery_model::{ErrorKind, Result, Value};
use orrery_storage::{Memory, PartitionStore};

use crate::common::faulty::Faulty;
use crate::common::{BY_PK, CONTAINER, DATABASE, ENGINES, Engine, PLACE, World, quiet_options};

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("{name} is missing"))
}

async fn create_database(world: &World, id: &str) -> Result<Value> {
    let body = format!(r#"{{"id":"{id}"}}"#);
    let mut receipt = Receipt::default();
    Ok(world.database.create_database(&mut receipt, body.as_bytes(), None).await?.value)
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind
}

#[tokio::test]
async fn databases_are_created_read_listed_and_deleted() {
    for engine in ENGINES {
        let world = World::open(engine, quiet_options()).await;
        let mut receipt = Receipt::default();
        let created = create_database(&world, "one").await.unwrap();
        assert_eq!((text(&created, "_colls"), text(&created, "_users")), ("colls/", "users/"));
        assert_eq!(text(&created, "_self"), format!("dbs/{}/", text(&created, "_rid")));
        assert_eq!(text(&created, "_rid").len(), 8);
        assert_eq!(kind(create_database(&world, "one").await), ErrorKind::Conflict);
        for bad in [r#"{"id":""}"#, r#"{"id":"a/b"}"#, r#"{"id":"a "}"#, r#"{"id":1}"#, "{}", "[]", ""] {
            let refused = world.database.create_database(&mut receipt, bad.as_bytes(), None).await;
            assert_eq!(kind(refused), ErrorKind::BadRequest, "{bad}");
        }
        create_database(&world, "two").await.unwrap();
        let world = world.restart().await;
        assert_eq!(world.database.read_database(&mut receipt, "one").unwrap().value, created);
        // By RID as well as by name.
        assert_eq!(
            world.database.read_database(&mut receipt, text(&created, "_rid")).unwrap().value,
            created
        );
        let listed =
            world.database.list(&mut receipt, ResourceFeed::Databases, &PageRequest::default()).unwrap();
        assert_eq!(
            listed.resources.iter().map(|value| text(value, "id")).collect::<Vec<_>>(),
            ["one", "two"]
        );
        let stale = world.database.delete_database(&mut receipt, "one", Some("\"x\"")).await;
        assert_eq!(kind(stale), ErrorKind::PreconditionFailed);
        world.database.delete_database(&mut receipt, "one", Some(text(&created, "_etag"))).await.unwrap();
        assert_eq!(kind(world.database.read_database(&mut receipt, "one")), ErrorKind::NotFound);
        assert_eq!(
            kind(world.database.delete_database(&mut receipt, "one", None).await),
            ErrorKind::NotFound
        );
        let again = create_database(&world, "one").await.unwrap();
        assert_ne!(text(&again, "_rid"), text(&created, "_rid"));
    }
}

/// A feed under test.
type List<'a> = &'a dyn Fn(&PageRequest) -> Result<MetadataPage>;

#[tokio::test]
async fn metadata_feeds_are_paged() {
    let world = World::memory().await;
    for n in 0..11 {
        create_database(&world, &format!("d{n:02}")).await.unwrap();
    }
    create_database(&world, DATABASE).await.unwrap();
    for n in 0..11 {
        world.create_named(&format!("c{n:02}"), BY_PK, None).await.unwrap();
    }
    let databases =
        |page: &PageRequest| world.database.list(&mut Receipt::default(), ResourceFeed::Databases, page);
    let containers = |page: &PageRequest| {
        world.database.list(&mut Receipt::default(), ResourceFeed::Containers(DATABASE), page)
    };
    let all = |list: List<'_>, size: i64| {
        let mut request = PageRequest { items_max: Some(size), continuation: None };
        let mut names = Vec::new();
        loop {
            let page = list(&request).unwrap();
            names.extend(page.resources.iter().map(|value| text(value, "id").to_owned()));
            request.continuation = page.continuation;
            if request.continuation.is_none() {
                return names;
            }
        }
    };
    for list in [&databases as List<'_>, &containers] {
        let whole = all(list, -1);
        assert!(whole.len() >= 11 && whole.is_sorted());
        for size in 1..14 {
            assert_eq!(all(list, size), whole);
        }
        for size in [-2, i64::MIN] {
            assert_eq!(
                kind(list(&PageRequest { items_max: Some(size), continuation: None })),
                ErrorKind::BadRequest
            );
        }
    }
    // A token belongs to its feed.
    let token = databases(&PageRequest { items_max: Some(1), continuation: None }).unwrap().continuation;
    let foreign = containers(&PageRequest { items_max: Some(1), continuation: token });
    assert_eq!(kind(foreign), ErrorKind::BadRequest);
    let missing = world.database.list(
        &mut Receipt::default(),
        ResourceFeed::Containers("nothing"),
        &PageRequest::default(),
    );
    assert_eq!(kind(missing), ErrorKind::OwnerNotFound);
}

#[tokio::test]
async fn containers_are_created_replaced_and_deleted() {
    for engine in ENGINES {
        let world = World::open(engine, quiet_options()).await;
        let created = world.create_container(BY_PK).await;
        let mut receipt = Receipt::default();
        assert_eq!(text(&created, "_docs"), "docs/");
        assert!(text(&created, "_self").ends_with(&format!("colls/{}/", text(&created, "_rid"))));
        assert_eq!(kind(world.create_named(CONTAINER, BY_PK, None).await), ErrorKind::Conflict);
        for bad in [
            r#""x":1"#,
            r#""partitionKey":{"paths":[]}"#,
            r#""partitionKey":{"paths":["/a","/b"],"kind":"Hash"}"#,
            r#""partitionKey":{"paths":["/a","/b","/c","/d"],"kind":"MultiHash","version":2}"#,
            r#""partitionKey":{"paths":["/a"],"kind":"Range"}"#,
            r#""partitionKey":{"paths":["/_ts"],"version":2}"#,
            &format!(r#"{BY_PK},"defaultTtl":0"#),
            &format!(r#"{BY_PK},"indexingPolicy":{{"indexingMode":"eager"}}"#),
        ] {
            assert_eq!(kind(world.create_named("bad", bad, None).await), ErrorKind::BadRequest, "{bad}");
        }
        world.create(r#"{"id":"1","pk":"a"}"#).await;

        // What may change changes, what may not does not, and items stay.
        let ttl = format!(r#"{BY_PK},"defaultTtl":60"#);
        let replaced = world.replace_container(&ttl).await.unwrap();
        assert_eq!(replaced.get("defaultTtl").and_then(Value::as_i64), Some(60));
        assert_eq!(text(&replaced, "_rid"), text(&created, "_rid"));
        assert_ne!(text(&replaced, "_etag"), text(&created, "_etag"));
        for bad in [
            r#""partitionKey":{"paths":["/other"],"kind":"Hash","version":2}"#,
            r#""partitionKey":{"paths":["/pk"],"kind":"Hash","version":1}"#,
            r#""partitionKey":{"paths":["/pk"],"kind":"MultiHash","version":2}"#,
            &format!(r#"{BY_PK},"uniqueKeyPolicy":{{"uniqueKeys":[{{"paths":["/u"]}}]}}"#),
        ] {
            assert_eq!(kind(world.replace_container(bad).await), ErrorKind::BadRequest, "{bad}");
        }
        let stale =
            world.database.replace_container(&mut receipt, PLACE, ttl_body().as_bytes(), Some("\"x\"")).await;
        assert_eq!(kind(stale), ErrorKind::PreconditionFailed);
        let missing = world
            .database
            .replace_container(&mut receipt, (DATABASE, "x"), ttl_body().as_bytes(), None)
            .await;
        assert_eq!(kind(missing), ErrorKind::NotFound);

        let world = world.restart().await;
        let read = world.database.read_container(&mut receipt, DATABASE, CONTAINER).unwrap().value;
        assert_eq!(read, replaced);
        let (database_rid, rid) = (text(&read, "_self").split('/').nth(1).unwrap(), text(&read, "_rid"));
        assert_eq!(world.database.read_container(&mut receipt, database_rid, rid).unwrap().value, read);
        assert_eq!(world.usage().await.0, 1);

        world.database.delete_container(&mut receipt, PLACE, Some(text(&read, "_etag"))).await.unwrap();
        assert_eq!(
            kind(world.database.delete_container(&mut receipt, PLACE, None).await),
            ErrorKind::NotFound
        );
        let again = world.create_container(BY_PK).await;
        assert_ne!(text(&again, "_rid"), rid);
        assert_eq!(world.usage().await.0, 0);
    }
}

fn ttl_body() -> String {
    format!(r#"{{"id":"{CONTAINER}",{BY_PK},"defaultTtl":60}}"#)
}

fn ranges(page: &RangesPage) -> (&str, Vec<(&str, &str, &str)>) {
    let RangesPage::Changed { etag, ranges, .. } = page else { panic!("there are ranges") };
    let ranges = ranges
        .iter()
        .map(|range| (text(range, "id"), text(range, "minInclusive"), text(range, "maxExclusive")));
    (etag, ranges.collect())
}

#[tokio::test]
async fn ranges_cover_the_key_space() {
    for (version, kind) in [(1, "Hash"), (2, "Hash"), (2, "MultiHash")] {
        for count in [1, 2, 3, 4, 5, 16, 100] {
            let world = World::with_partitions(Engine::Memory, count).await;
            let members =
                format!(r#""partitionKey":{{"paths":["/pk"],"kind":"{kind}","version":{version}}}"#);
            world.create_container(&members).await;
            let mut receipt = Receipt::default();
            let page = world.database.list_ranges(&mut receipt, PLACE, None).unwrap();
            let (_, ranges) = ranges(&page);
            assert_eq!(ranges.len(), count as usize);
            assert_eq!((ranges[0].1, ranges[ranges.len() - 1].2), ("", "FF"));
            for (at, pair) in ranges.windows(2).enumerate() {
                assert_eq!(pair[0].2, pair[1].1, "no gap, no overlap");
                assert!(pair[0].1 < pair[0].2 && pair[0].2.len() % 2 == 0);
                assert_eq!(pair[0].0, at.to_string());
            }
            // Keys of all kinds find a home, and the item is where the ranges say.
            for n in 0..40 {
                world.create(&format!(r#"{{"id":"{n}","pk":{n}}}"#)).await;
                world.create(&format!(r#"{{"id":"{n}","pk":"k{n}"}}"#)).await;
            }
            world.create(r#"{"id":"x"}"#).await;
            let usages = world.database.container_usage(DATABASE, CONTAINER).await.unwrap();
            assert_eq!(usages.iter().map(|(_, usage)| usage.items).sum::<u64>(), 81);
            if count <= 5 {
                assert!(usages.iter().all(|(_, usage)| usage.items > 0), "keys are spread over all ranges");
            }
        }
    }
    // The boundaries of two and four ranges are the service's.
    for (count, boundaries) in [
        (2, vec!["1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"]),
        (
            4,
            vec![
                "0FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
                "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFE",
                "2FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFD",
            ],
        ),
    ] {
        let world = World::with_partitions(Engine::Memory, count).await;
        world.create_container(BY_PK).await;
        let page = world.database.list_ranges(&mut Receipt::default(), PLACE, None).unwrap();
        assert_eq!(ranges(&page).1.iter().skip(1).map(|range| range.1).collect::<Vec<_>>(), boundaries);
    }
}

#[tokio::test]
async fn ranges_are_reported_once() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 3).await;
        world.create_container(BY_PK).await;
        let mut receipt = Receipt::default();
        let list = |world: &World, etag: Option<&str>| {
            world.database.list_ranges(&mut Receipt::default(), PLACE, etag).unwrap()
        };
        let first = list(&world, None);
        let etag = ranges(&first).0.to_owned();
        let RangesPage::NotModified { etag: same } = list(&world, Some(&etag)) else {
            panic!("nothing is new")
        };
        assert_eq!(same, etag);
        for unknown in ["\"0\"", "\"999\"", "nonsense", "", "\"-1\"", "*"] {
            assert_eq!(ranges(&list(&world, Some(unknown))).1.len(), 3, "{unknown}");
        }
        // Fields that clients read.
        let RangesPage::Changed { ranges, owner_rid, .. } = &first else { unreachable!() };
        let container = world.database.read_container(&mut receipt, DATABASE, CONTAINER).unwrap().value;
        assert_eq!(owner_rid, text(&container, "_rid"));
        for range in ranges {
            assert_eq!(text(range, "status"), "online");
            assert_eq!(range.get("parents").and_then(Value::as_array).map(<[Value]>::len), Some(0));
            let fraction = range.get("throughputFraction").and_then(Value::as_number).unwrap().as_f64();
            assert!((fraction - 1.0 / 3.0).abs() < 1e-9);
            assert!(text(range, "_self").contains("/pkranges/"));
        }
        let world = world.restart().await;
        assert!(matches!(list(&world, Some(&etag)), RangesPage::NotModified { .. }));
        let missing = world.database.list_ranges(&mut receipt, (DATABASE, "x"), None);
        assert_eq!(kind(missing), ErrorKind::OwnerNotFound);
    }
}

#[tokio::test]
async fn throughput_determines_the_number_of_partitions() {
    let world = World::memory().await;
    world.create_container(BY_PK).await;
    for (throughput, count) in [(400, 1), (10_000, 1), (10_100, 2), (50_000, 9), (100_100, 17)] {
        let id = format!("c{throughput}");
        world.create_named(&id, BY_PK, Some(Throughput::Manual(throughput))).await.unwrap();
        let page = world.database.list_ranges(&mut Receipt::default(), (DATABASE, &id), None).unwrap();
        assert_eq!(ranges(&page).1.len(), count, "{throughput}");
    }
}

#[tokio::test]
async fn the_account_has_limits() {
    let world = World::open(Engine::Memory, Options { account_resources_max: 4, ..quiet_options() }).await;
    world.create_container(BY_PK).await;
    world.create_named("second", BY_PK, None).await.unwrap();
    create_database(&world, "other").await.unwrap();
    assert_eq!(kind(create_database(&world, "more").await), ErrorKind::QuotaExceeded);
    assert_eq!(kind(world.create_named("third", BY_PK, None).await), ErrorKind::QuotaExceeded);
    let mut receipt = Receipt::default();
    world.database.delete_container(&mut receipt, (DATABASE, "second"), None).await.unwrap();
    world.create_named("third", BY_PK, None).await.unwrap();

    let world = World::memory().await;
    let body = format!(r#"{{"id":"{DATABASE}"}}"#);
    let shared = Some(Throughput::Manual(1000));
    world.database.create_database(&mut receipt, body.as_bytes(), shared).await.unwrap();
    for n in 0..25 {
        world.create_named(&format!("c{n}"), BY_PK, None).await.unwrap();
    }
    assert_eq!(kind(world.create_named("one-more", BY_PK, None).await), ErrorKind::QuotaExceeded);
    world.create_named("own", BY_PK, Some(Throughput::Manual(400))).await.unwrap();
}

#[tokio::test]
async fn deleting_removes_the_partitions() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 3).await;
        world.create_container(BY_PK).await;
        world.create_named("second", BY_PK, None).await.unwrap();
        for n in 0..10 {
            world.create(&format!(r#"{{"id":"{n}","pk":{n}}}"#)).await;
        }
        // One partition is the catalog's own.
        assert_eq!(world.store.partitions().await.unwrap().len(), 7);
        let mut receipt = Receipt::default();
        world.database.delete_container(&mut receipt, PLACE, None).await.unwrap();
        wait_for_partitions(&world, 4).await;
        world.database.delete_database(&mut receipt, DATABASE, None).await.unwrap();
        wait_for_partitions(&world, 1).await;
        let world = world.restart().await;
        assert_eq!(world.store.partitions().await.unwrap().len(), 1);
    }
}

/// Removal runs beside the client; it must come to its end without being asked.
async fn wait_for_partitions(world: &World, count: usize) {
    orrery_testing::wait::eventually_true("the partitions to be removed", async || {
        world.store.partitions().await.unwrap().len() == count
    })
    .await;
}

#[tokio::test]
async fn a_stop_during_container_creation_leaves_nothing_behind() {
    // The steps of making a container of three partitions: numbers, partitions, the container itself.
    for (commits, creates) in [(0, 3), (1, 0), (1, 1), (1, 2), (1, 3)] {
        let memory: Arc<dyn PartitionStore> = Arc::new(Memory::new());
        let faulty = Arc::new(Faulty::new(Arc::clone(&memory)));
        let options = Options { partitions_at_creation: Some(3), ..quiet_options() };
        let world = World::on(faulty.clone(), options.clone()).await;
        create_database(&world, DATABASE).await.unwrap();
        faulty.fail_after_commits(commits);
        faulty.fail_after_creates(creates);
        let failed = world.create_named(CONTAINER, BY_PK, None).await;
        assert_eq!(kind(failed), ErrorKind::Unavailable, "{commits} {creates}");
        let mut receipt = Receipt::default();
        let missing = world.database.read_container(&mut receipt, DATABASE, CONTAINER);
        assert_eq!(kind(missing), ErrorKind::NotFound);
        drop(world);
        let world = World::on(Arc::clone(&memory), options).await;
        assert_eq!(memory.partitions().await.unwrap().len(), 1, "{commits} {creates}");
        world.create_container(BY_PK).await;
        world.create(r#"{"id":"1","pk":"a"}"#).await;
        assert_eq!(memory.partitions().await.unwrap().len(), 4);
    }
}

#[tokio::test]
async fn a_missing_partition_is_reported_at_start_up() {
    let memory: Arc<dyn PartitionStore> = Arc::new(Memory::new());
    let world = World::on(Arc::clone(&memory), quiet_options()).await;
    world.create_container(BY_PK).await;
    let catalog = world.database.catalog();
    let partition = catalog.container(DATABASE, CONTAINER).unwrap().partitions[0].store.id;
    memory.destroy(partition).await.unwrap();
    let env = Arc::clone(&world.env);
    drop(world);
    let opened = orrery_db::Database::open(memory, env, quiet_options()).await;
    let error = opened.err().expect("it must not open without its data");
    assert!(error.message.contains("lacks partition"), "{error}");
}
