//! Queries that visit several keys or partitions read at them at the same time: a store that keeps reads waiting until
//! several are under way would keep a query that reads one by one waiting for ever. What comes out, what it costs
//! and where the next page begins is what reading one by one gives.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orrery_db::{Options, PageRequest, QueryOptions, QueryPage, QueryRequest, Receipt};
use orrery_model::Value;
use orrery_model::offer::Throughput;
use orrery_storage::{Memory, PartitionStore};

use crate::common::faulty::Faulty;
use crate::common::{BY_PK, CONTAINER, PLACE, World, parse, quiet_options};

/// Only a query that waits for ever takes so long.
const PATIENCE: Duration = Duration::from_mins(1);

/// A container of 8 partitions on a store that the test has a hand on.
async fn world(members: &str) -> (World, Arc<Faulty>) {
    let store = Arc::new(Faulty::new(Arc::new(Memory::new())));
    let options = Options { partitions_at_creation: Some(8), ..quiet_options() };
    let world = World::on(Arc::clone(&store) as Arc<dyn PartitionStore>, options).await;
    world.create_container(members).await;
    (world, store)
}

async fn write(world: &World, body: &str) {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let options = orrery_db::ItemOptions::default();
    world.database.create_item(&mut Receipt::default(), PLACE, &options, &body).await.unwrap();
}

fn request(text: &str) -> QueryRequest {
    QueryRequest::parse(format!(r#"{{"query":{}}}"#, Value::from(text).to_json()).as_bytes()).unwrap()
}

fn page_of(items_max: i64, continuation: Option<String>) -> QueryOptions {
    let page = PageRequest { items_max: Some(items_max), continuation };
    QueryOptions { cross_partition: true, page, ..QueryOptions::default() }
}

async fn page(world: &World, text: &str, options: &QueryOptions) -> (QueryPage, Receipt) {
    let mut receipt = Receipt::default();
    let request = request(text);
    let query = world.database.query_items(&mut receipt, PLACE, options, &request);
    let page = tokio::time::timeout(PATIENCE, query).await.expect("reads wait for each other");
    (page.unwrap_or_else(|error| panic!("{text}: {error}")), receipt)
}

/// Runs a query whose reads wait until so many are under way; it must give the same without.
async fn check(world: &World, store: &Faulty, text: &str, together: i64) {
    let options = page_of(-1, None);
    store.gather_reads(0);
    let (before, receipt_before) = page(world, text, &options).await;
    store.gather_reads(together);
    let (after, receipt_after) = page(world, text, &options).await;
    assert_eq!(before.rows, after.rows, "{text}");
    assert_eq!(receipt_before.charge, receipt_after.charge, "{text}");
    assert_eq!(receipt_before.session_token(), receipt_after.session_token(), "{text}");
    let (at_once, _) = store.reads_seen();
    // Bounded, whatever the number of keys and partitions.
    assert!((together..=8).contains(&at_once), "{text}: {at_once} at once");
}

#[tokio::test]
async fn partitions_are_read_concurrently() {
    let (world, store) = world(&format!(
        r#"{BY_PK},"indexingPolicy":{{"includedPaths":[{{"path":"/*"}},{{"path":"/n/?"}}],"excludedPaths":[{{"path":"/plain/*"}}]}}"#
    ))
    .await;
    for number in 0..400 {
        let (n, plain) = (number * 7 % 101, number % 5);
        write(&world, &format!(r#"{{"id":"{number}","pk":"k{number}","n":{n},"plain":{plain}}}"#)).await;
    }
    for text in [
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT VALUE COUNT(1) FROM c WHERE c.n = 14",
        "SELECT VALUE MAX(c.n) FROM c",
        "SELECT VALUE SUM(c.plain) FROM c",
        "SELECT c.plain, COUNT(1) AS count FROM c GROUP BY c.plain",
        "SELECT VALUE AVG(c.n) FROM c WHERE c.plain = 3",
        "SELECT TOP 10 c.id FROM c ORDER BY c.n",
        "SELECT TOP 10 c.id FROM c ORDER BY c.n DESC",
        "SELECT c.id FROM c WHERE c.plain = 1 ORDER BY c.n OFFSET 3 LIMIT 20",
    ] {
        check(&world, &store, text, 8).await;
    }
}

const RANDOM: &str = r#""partitionKey":{"paths":["/partitionKey"],"kind":"Hash","version":2},"orrerySyntheticKey":{"format":1,"kind":"randomSuffix","parts":["/date"],"suffix":{"count":40}}"#;

#[tokio::test]
async fn the_possible_keys_of_a_random_suffix_are_read_concurrently() {
    let (world, store) = world(RANDOM).await;
    for number in 0..300 {
        write(
            &world,
            &format!(r#"{{"id":"{number}","date":"2018-08-{:02}","n":{}}}"#, number % 3 + 1, number % 9),
        )
        .await;
    }
    for text in [
        "SELECT c.id, c.partitionKey FROM c WHERE c.date = '2018-08-02'",
        "SELECT c.id FROM c WHERE c.date = '2018-08-02' ORDER BY c.n",
        "SELECT VALUE COUNT(1) FROM c WHERE c.date = '2018-08-02'",
        "SELECT DISTINCT VALUE c.n FROM c WHERE c.date = '2018-08-02'",
    ] {
        check(&world, &store, text, 8).await;
        let (page, _) = page(&world, text, &page_of(-1, None)).await;
        assert!(page.routing.by_synthetic_key && page.routing.keys == Some(40), "{text}");
    }
    // Pages of any size are the whole in the same order, each row once.
    let text = "SELECT VALUE c.id FROM c WHERE c.date = '2018-08-02'";
    let (whole, _) = page(&world, text, &page_of(-1, None)).await;
    for size in [1, 7, 50] {
        let (mut rows, mut continuation) = (Vec::new(), None);
        loop {
            store.gather_reads(0);
            let (page, receipt) = page(&world, text, &page_of(size, continuation)).await;
            rows.extend(parse(&[b"[", page.rows.as_slice(), b"]"].concat()).as_array().unwrap().to_vec());
            // A page pays for the items that it has looked at and not for those that were read ahead: it looks
            // for one row more than it returns, through no more than 64 items.
            assert!(page.metrics.items_read <= u64::try_from(size).unwrap() + 64, "{:?}", page.metrics);
            assert!(receipt.served.len() <= 8);
            continuation = page.continuation;
            if continuation.is_none() {
                break;
            }
        }
        assert_eq!(Value::from(rows).to_json(), format!("[{}]", String::from_utf8_lossy(&whole.rows)));
    }
}

#[tokio::test]
async fn a_page_that_ends_early_reads_little_ahead_and_is_not_charged_for_it() {
    let (world, store) = world(BY_PK).await;
    for number in 0..800 {
        write(&world, &format!(r#"{{"id":"{number}","pk":"k{}"}}"#, number % 200)).await;
    }
    // The first partition has enough: the others are left alone.
    store.gather_reads(0);
    let (page, receipt) = page(&world, "SELECT c.id FROM c", &page_of(10, None)).await;
    assert_eq!((page.count, receipt.served.len()), (10, 1));
    let (at_once, reads) = store.reads_seen();
    assert!(at_once == 1 && reads <= 4, "{at_once} at once, {reads} in all");
}

#[tokio::test]
async fn a_throttled_partition_stops_only_pages_that_need_it() {
    let store = Arc::new(Faulty::new(Arc::new(Memory::new())));
    let options = Options { partitions_at_creation: Some(2), throttle: true, ..quiet_options() };
    let world = World::on(store, options).await;
    let mut receipt = Receipt::default();
    world.database.create_database(&mut receipt, br#"{"id":"db"}"#, None).await.unwrap();
    world.create_named(CONTAINER, BY_PK, Some(Throughput::Manual(20_000))).await.unwrap();
    let mut written = Vec::new();
    for number in 0..40 {
        let body = format!(r#"{{"id":"{number}","pk":"k{number}"}}"#);
        let mut receipt = Receipt::default();
        let bytes = Bytes::from(body);
        let options = orrery_db::ItemOptions::default();
        world.database.create_item(&mut receipt, PLACE, &options, &bytes).await.unwrap();
        written.push(receipt.served[0].range_id);
    }
    let second = *written.iter().max().unwrap();
    // The second partition has spent this second's units.
    let key = written.iter().position(|range| *range == second).unwrap();
    let key = crate::common::with_key(&format!(r#"["k{key}"]"#));
    for _ in 0..20_000 {
        let mut receipt = Receipt::default();
        let read = world.database.read_item(&mut receipt, (PLACE.0, PLACE.1, "none"), &key).await;
        let is_throttled =
            read.is_err_and(|error| matches!(error.kind, orrery_model::ErrorKind::TooManyRequests { .. }));
        world.database.settle(&receipt);
        if is_throttled {
            break;
        }
    }
    // A page of the first partition's keys reads ahead at the second, and is not refused for that.
    let first: Vec<String> =
        (0..40).filter(|at| written[*at] != second).map(|at| format!("'k{at}'")).collect();
    let last = written.iter().rposition(|range| *range == second).unwrap();
    let text = format!("SELECT c.id FROM c WHERE c.pk IN ({},'k{last}')", first.join(","));
    let mut receipt = Receipt::default();
    let refused = world.database.query_items(&mut receipt, PLACE, &page_of(-1, None), &request(&text)).await;
    assert!(matches!(refused.unwrap_err().kind, orrery_model::ErrorKind::TooManyRequests { .. }));
    let (some, receipt) = page(&world, &text, &page_of(1, None)).await;
    assert_eq!((some.count, receipt.served.len()), (1, 1));
    assert!(some.continuation.is_some());
}
