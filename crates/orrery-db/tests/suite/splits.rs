//! Partitions split while readers and writers go on, and nothing is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use orrery_db::{Database, ItemOptions, PageRequest, QueryOptions, QueryRequest, RangesPage, Receipt};
use orrery_model::{ErrorKind, Value};

use crate::common::{BY_PK, DATABASE, ENGINES, Engine, PLACE, World, everything, parse, raw, with_key};

fn container(world: &World) -> Arc<orrery_db::Container> {
    Arc::clone(world.database.catalog().container(DATABASE, "items").unwrap())
}

async fn write(database: &Database, key: u64, id: u64, version: u64) {
    let body = format!(r#"{{"id":"{id}","pk":"k{key}","version":{version},"tag":"t{}"}}"#, id % 5);
    let options = with_key(&format!(r#"["k{key}"]"#));
    database.upsert_item(&mut Receipt::default(), PLACE, &options, &Bytes::from(body)).await.unwrap();
}

async fn query(world: &World, text: &str, page_size: i64) -> Vec<Value> {
    let request = QueryRequest { text: text.to_owned(), parameters: Vec::new(), resume_filter: None };
    let mut options = QueryOptions { cross_partition: true, ..QueryOptions::default() };
    let mut rows = Vec::new();
    loop {
        options.page = PageRequest { items_max: Some(page_size), ..options.page };
        let page =
            world.database.query_items(&mut Receipt::default(), PLACE, &options, &request).await.unwrap();
        let text = [b"[".as_slice(), &page.rows, b"]"].concat();
        rows.extend(parse(&text).as_array().unwrap().to_vec());
        match page.continuation {
            Some(token) => options.page.continuation = Some(token),
            None => return rows,
        }
    }
}

/// Splits every partition of the container once.
async fn split_all(world: &World) {
    for partition in &container(world).partitions {
        world.database.split_partition(container(world).rid, partition.range_id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_partitions_split_under_load() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 1).await;
        let policy = r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/tag"},{"path":"/version","order":"descending"}]]}"#;
        world.create_container(&format!("{BY_PK},{policy}")).await;
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..4u64)
            .map(|writer| {
                let (database, stop) = (Arc::clone(&world.database), Arc::clone(&stop));
                tokio::spawn(async move {
                    // Each writer owns its items, so the last version it wrote is the one that must be there.
                    let mut last = BTreeMap::new();
                    let mut version = 0;
                    while !stop.load(Ordering::Relaxed) || version < 200 {
                        version += 1;
                        let (key, id) = (version % 23, writer * 1000 + version % 97);
                        write(&database, key, id, version).await;
                        last.insert((key, id), version);
                        if version % 7 == 0 {
                            let options = with_key(&format!(r#"["k{key}"]"#));
                            let id_text = id.to_string();
                            let place = (PLACE.0, PLACE.1, id_text.as_str());
                            database.delete_item(&mut Receipt::default(), place, &options).await.unwrap();
                            last.remove(&(key, id));
                        }
                    }
                    last
                })
            })
            .collect();
        for _ in 0..3 {
            split_all(&world).await;
        }
        stop.store(true, Ordering::Relaxed);
        let mut expected = BTreeMap::new();
        for writer in writers {
            expected.extend(writer.await.unwrap());
        }
        assert_eq!(container(&world).partitions.len(), 8, "{engine:?}");

        let found = |items: &[Value]| -> BTreeMap<(u64, u64), u64> {
            let number = |text: &str| text.parse::<u64>().unwrap();
            let row = |item: &Value| {
                let key = number(&item.get("pk").unwrap().as_str().unwrap()[1..]);
                let id = number(item.get("id").unwrap().as_str().unwrap());
                ((key, id), u64::try_from(item.get("version").unwrap().as_i64().unwrap()).unwrap())
            };
            items.iter().map(row).collect()
        };
        let items = world.feed(&everything(), 13).await.unwrap();
        assert_eq!((items.len(), found(&items)), (expected.len(), expected.clone()), "{engine:?}");
        for text in [
            "SELECT * FROM c WHERE c.version >= 0",
            "SELECT * FROM c WHERE c.version >= 0 ORDER BY c.version DESC",
            "SELECT * FROM c ORDER BY c.tag, c.version DESC",
        ] {
            let rows = query(&world, text, 17).await;
            assert_eq!((rows.len(), found(&rows)), (expected.len(), expected.clone()), "{engine:?} {text}");
        }
        raw::check_consistency(&world).await.unwrap();
        let world = world.restart().await;
        assert_eq!(
            found(&world.feed(&everything(), -1).await.unwrap()),
            expected,
            "{engine:?} after a restart"
        );
    }
}

#[tokio::test]
async fn a_query_continues_across_splits() {
    let world = World::with_partitions(Engine::Memory, 1).await;
    world.create_container(BY_PK).await;
    for id in 0..60 {
        write(&world.database, id, id, id).await;
    }
    for text in
        ["SELECT VALUE c.id FROM c WHERE c.version >= 0", "SELECT VALUE c.id FROM c ORDER BY c.version DESC"]
    {
        let request = QueryRequest { text: text.to_owned(), parameters: Vec::new(), resume_filter: None };
        let mut options = QueryOptions { cross_partition: true, ..QueryOptions::default() };
        let mut seen = Vec::new();
        for round in 0.. {
            options.page.items_max = Some(7);
            let page =
                world.database.query_items(&mut Receipt::default(), PLACE, &options, &request).await.unwrap();
            let rows = parse(&[b"[".as_slice(), &page.rows, b"]"].concat());
            seen.extend(rows.as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()));
            if round < 2 {
                split_all(&world).await;
            }
            match page.continuation {
                Some(token) => options.page.continuation = Some(token),
                None => break,
            }
        }
        seen.sort_by_key(|id| id.parse::<u64>().unwrap());
        assert_eq!(seen, (0..60).map(|id| id.to_string()).collect::<Vec<_>>(), "{text}");
    }
}

#[tokio::test]
async fn ranges_sessions_and_ids_follow_their_parents() {
    let world = World::with_partitions(Engine::Memory, 1).await;
    world.create_container(BY_PK).await;
    for id in 0..20 {
        write(&world.database, id, id, 1).await;
    }
    let mut receipt = Receipt::default();
    let options = with_key(r#"["k3"]"#);
    world.database.read_item(&mut receipt, (PLACE.0, PLACE.1, "3"), &options).await.unwrap();
    let session = receipt.session_token().unwrap();
    split_all(&world).await;

    let RangesPage::Changed { etag, ranges, .. } =
        world.database.list_ranges(&mut Receipt::default(), PLACE, Some("\"1\"")).unwrap()
    else {
        panic!("the split is news");
    };
    assert_eq!(etag, "\"2\"");
    let parents = |range: &Value| range.get("parents").unwrap().to_json();
    assert_eq!(ranges.iter().map(parents).collect::<Vec<_>>(), [r#"["0"]"#, r#"["0"]"#]);

    let options = ItemOptions { session: Some(session), ..options };
    let mut receipt = Receipt::default();
    world.database.read_item(&mut receipt, (PLACE.0, PLACE.1, "3"), &options).await.unwrap();
    assert!(receipt.served[0].range_id > 0 && receipt.served[0].lsn >= 20, "{receipt:?}");
    let gone = container(&world).partition(0).unwrap_err();
    assert_eq!(gone.kind, ErrorKind::PartitionGone);
}

/// The boundaries of all partitions but the first.
fn boundaries(world: &World) -> Vec<String> {
    container(world).partitions.iter().skip(1).map(|partition| partition.range.min.to_string()).collect()
}

/// Effective keys of `k0`, `k1`…: whether they lie in the first half of the hashes.
fn in_first_half(world: &World, key: u64) -> bool {
    let key = crate::common::key(&format!(r#"["k{key}"]"#));
    container(world).definition.partition_key.effective_key(&key).to_string().as_str() < "1FFF"
}

async fn items_by_partition(world: &World) -> Vec<u64> {
    let usage = world.database.container_usage(PLACE.0, PLACE.1).await.unwrap();
    usage.iter().map(|(_, usage)| usage.items).collect()
}

#[tokio::test]
async fn a_split_halves_the_hashes_wherever_the_data_is() {
    let world = World::with_partitions(Engine::Memory, 1).await;
    world.create_container(BY_PK).await;
    let left: Vec<u64> = (0..100).filter(|key| in_first_half(&world, *key)).collect();
    for key in &left {
        write(&world.database, *key, *key, 1).await;
    }
    split_all(&world).await;
    assert_eq!(boundaries(&world), ["1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"]);
    assert_eq!(items_by_partition(&world).await, [left.len() as u64, 0]);
    split_all(&world).await;
    let quarters = [
        "0FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
        "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
        "2FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
    ];
    assert_eq!(boundaries(&world), quarters);
}

/// Where data forces the split, a child that would still be too large is not left as it is.
#[tokio::test]
async fn a_full_partition_is_cut_at_its_median_where_the_middle_would_not_help() {
    for skewed in [false, true] {
        let options = orrery_db::Options {
            partitions_at_creation: Some(1),
            partition_bytes_max: 60_000,
            ..crate::common::quiet_options()
        };
        let world = World::open(Engine::Memory, options).await;
        let policy = r#""indexingPolicy":{"indexingMode":"none","automatic":false}"#;
        world.create_container(&format!("{BY_PK},{policy}")).await;
        let keys = (0..1000).filter(|key| !skewed || in_first_half(&world, *key)).take(100);
        for key in keys {
            let body = format!(r#"{{"id":"{key}","pk":"k{key}","text":"{}"}}"#, "x".repeat(600));
            let options = with_key(&format!(r#"["k{key}"]"#));
            let body = Bytes::from(body);
            world.database.upsert_item(&mut Receipt::default(), PLACE, &options, &body).await.unwrap();
        }
        world.database.maintain().await.unwrap();
        let (found, items) = (boundaries(&world), items_by_partition(&world).await);
        assert_eq!(items.iter().sum::<u64>(), 100);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0] == "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", !skewed, "{found:?} {items:?}");
        assert!(items.iter().all(|count| (35..=65).contains(count)), "{items:?}");
    }
}

#[tokio::test]
async fn a_new_container_has_all_ranges_at_once() {
    let options =
        orrery_db::Options { partition_throughput_max: Some(1000), ..crate::common::quiet_options() };
    let world = World::open(Engine::Memory, options).await;
    world.create_container(BY_PK).await;
    world.database.delete_container(&mut Receipt::default(), PLACE, None).await.unwrap();
    let throughput = Some(orrery_model::offer::Throughput::Manual(2510));
    world.create_named("items", BY_PK, throughput).await.unwrap();
    let at_creation = boundaries(&world);
    // A fifth of all hashes, rounded down, and its multiples.
    let fifth = ((1u128 << 126) - 1) / 5;
    let expected: Vec<String> = (1..5).map(|index| format!("{:032X}", fifth * index)).collect();
    assert_eq!(at_creation, expected);
    world.database.maintain().await.unwrap();
    assert_eq!(boundaries(&world), at_creation);
}

/// Keys of any kind spread evenly: 100,000 of them over eight partitions.
#[tokio::test]
async fn uniform_keys_spread_evenly() {
    for (version, keys) in [
        (2, (0..100_000).map(|n| format!(r#"["user-{n}"]"#)).collect::<Vec<_>>()),
        (2, (0..100_000).map(|n| format!("[{n}]")).collect()),
        (1, (0..100_000).map(|n| format!(r#"["user-{n}"]"#)).collect()),
    ] {
        let world = World::with_partitions(Engine::Memory, 8).await;
        let key = format!(r#""partitionKey":{{"paths":["/pk"],"kind":"Hash","version":{version}}}"#);
        world.create_container(&key).await;
        let container = container(&world);
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for key in &keys {
            let effective = container.definition.partition_key.effective_key(&crate::common::key(key));
            *counts.entry(container.partition_of(&effective).range_id).or_default() += 1;
        }
        assert_eq!(counts.len(), 8);
        assert!(counts.values().all(|count| (11_250..=13_750).contains(count)), "{version}: {counts:?}");
    }
}

/// And so do the bytes of what is really stored: 100,000 keys in the long runs, which take a minute for it.
#[tokio::test]
async fn stored_bytes_spread_evenly() {
    let keys: u64 = if std::env::var_os("ORRERY_SOAK_ROUNDS").is_some() { 100_000 } else { 8_000 };
    let world = World::with_partitions(Engine::Memory, 8).await;
    let policy = r#""indexingPolicy":{"indexingMode":"none","automatic":false}"#;
    world.create_container(&format!("{BY_PK},{policy}")).await;
    let create = async |from: u64| {
        for n in (from..keys).step_by(8) {
            let body = Bytes::from(format!(r#"{{"id":"{n}","pk":"customer-{n}","n":{n}}}"#));
            let options = with_key(&format!(r#"["customer-{n}"]"#));
            world.database.create_item(&mut Receipt::default(), PLACE, &options, &body).await.unwrap();
        }
    };
    tokio::join!(create(0), create(1), create(2), create(3), create(4), create(5), create(6), create(7));
    let view = world.database.container_view(DATABASE, "items").await.unwrap();
    let bytes: Vec<u64> = view.partitions.iter().map(|partition| partition.bytes).collect();
    let even = bytes.iter().sum::<u64>() / 8;
    assert_eq!(bytes.len(), 8);
    assert!(bytes.iter().all(|bytes| bytes * 10 >= even * 9 && bytes * 10 <= even * 11), "{bytes:?}");
    assert_eq!(view.partitions.iter().map(|partition| partition.items).sum::<u64>(), keys);
}
