//! Queries that would take minutes: they end with their page's time or their client, pay for what they did, and leave
//! room for others.

use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_db::{Cancellation, ItemOptions, QueryOptions, QueryRequest, Receipt};
use orrery_model::{Charge, ErrorKind, Result};
use orrery_testing::wait;

use crate::common::{BY_PK, CONTAINER, DATABASE, World};

/// Without the arrays, which would take longest to index.
const POLICY: &str =
    r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/n/*"}]}"#;

/// True for every item, after looking for each element of its array among all of them.
const QUADRATIC: &str = "SELECT VALUE c.id FROM c WHERE (SELECT VALUE COUNT(1) FROM x IN c.n WHERE ARRAY_CONTAINS(c.n, -x - 1)) = 0";
const COUNTED: &str = "SELECT VALUE COUNT(1) FROM c JOIN x IN c.n WHERE ARRAY_CONTAINS(c.n, -x - 1)";

async fn put(world: &World, container: &str, id: &str, numbers: usize) {
    let numbers: Vec<String> = (0..numbers).map(|number| number.to_string()).collect();
    let body = Bytes::from(format!(r#"{{"id":"{id}","pk":"a","n":[{}]}}"#, numbers.join(",")));
    let at = (DATABASE, container);
    let mut receipt = Receipt::default();
    world.database.create_item(&mut receipt, at, &ItemOptions::default(), &body).await.unwrap();
}

async fn world() -> World {
    let world = World::memory().await;
    world.create_container(&format!("{BY_PK},{POLICY}")).await;
    world.create_named("other", &format!("{BY_PK},{POLICY}"), None).await.unwrap();
    world
}

/// The rows and the continuation of a page, and what it cost.
async fn page(
    world: &World,
    container: &str,
    text: &str,
    options: &QueryOptions,
) -> (Result<(String, Option<String>)>, Charge) {
    let request = QueryRequest { text: text.to_owned(), parameters: Vec::new(), resume_filter: None };
    let options = QueryOptions { cross_partition: true, ..options.clone() };
    let mut receipt = Receipt::default();
    let page = world.database.query_items(&mut receipt, (DATABASE, container), &options, &request).await;
    let page = page.map(|page| (String::from_utf8(page.rows).unwrap(), page.continuation));
    (page, receipt.charge)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_ends_when_its_time_is_up_and_the_next_one_continues() {
    let world = world().await;
    for (id, numbers) in [("1", 3), ("2", 30), ("3", 200_000), ("4", 3)] {
        put(&world, CONTAINER, id, numbers).await;
    }
    let started = Instant::now();
    let mut options = QueryOptions::default();
    let (first, charge) = page(&world, CONTAINER, QUADRATIC, &options).await;
    let (rows, continuation) = first.unwrap();
    assert_eq!(rows, r#""1","2""#);
    assert!(continuation.is_some());
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    // How much was done in the time depends on the machine; it is more than the base charge.
    assert!(charge > Charge::from_hundredths(500), "{charge}");
    // The next page has nothing but the item that takes too long.
    let started = Instant::now();
    options.page.continuation = continuation;
    let (second, charge) = page(&world, CONTAINER, QUADRATIC, &options).await;
    assert_eq!(second.unwrap_err().kind, ErrorKind::Timeout);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    // How much was done in the time depends on the machine; it is more than the base charge.
    assert!(charge > Charge::from_hundredths(500), "{charge}");
    // The same query over ordinary items costs what it always did.
    put(&world, "other", "1", 30).await;
    let (page, charge) = page(&world, "other", QUADRATIC, &QueryOptions::default()).await;
    assert_eq!(page.unwrap().0, r#""1""#);
    assert!(charge < Charge::from_hundredths(300), "{charge}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_cancelled_when_its_client_disconnects() {
    let world = world().await;
    put(&world, CONTAINER, "1", 200_000).await;
    let text = "a".repeat(1_500_000);
    let body = Bytes::from(format!(r#"{{"id":"2","pk":"a","s":"{text}","n":[]}}"#));
    let at = (DATABASE, CONTAINER);
    let created =
        world.database.create_item(&mut Receipt::default(), at, &ItemOptions::default(), &body).await;
    created.unwrap();
    for text in [COUNTED, "SELECT VALUE COUNT(1) FROM c WHERE RegexMatch(c.s, '(?=a*b)x')"] {
        let cancellation = Cancellation::default();
        let options = QueryOptions { cancellation: Some(cancellation.clone()), ..QueryOptions::default() };
        // The query blocks its thread, so the cancellation needs another one.
        let leave = tokio::task::spawn_blocking(move || {
            wait::until("the query to work", || (cancellation.looks() > 5000).then_some(()));
            cancellation.cancel();
            Instant::now()
        });
        let (outcome, charge) = page(&world, CONTAINER, text, &options).await;
        assert_eq!(outcome.unwrap_err().kind, ErrorKind::Timeout, "{text}");
        let left = leave.await.unwrap();
        assert!(left.elapsed() < Duration::from_secs(5), "{text}: {:?}", left.elapsed());
        assert!(charge > Charge::from_hundredths(500), "{text}: {charge}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_queries_of_one_container_do_not_starve_another() {
    let world = std::sync::Arc::new(world().await);
    put(&world, CONTAINER, "1", 200_000).await;
    for number in 0..20 {
        put(&world, "other", &number.to_string(), 5).await;
    }
    let cancellation = Cancellation::default();
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let slow: Vec<_> = (0..processors * 3)
        .map(|_| {
            let (world, cancellation) = (std::sync::Arc::clone(&world), cancellation.clone());
            tokio::spawn(async move {
                let options = QueryOptions { cancellation: Some(cancellation), ..QueryOptions::default() };
                page(&world, CONTAINER, COUNTED, &options).await.0
            })
        })
        .collect();
    wait::eventually_true("the queries to work", async || cancellation.looks() > 100).await;
    let started = Instant::now();
    let (outcome, _) = page(&world, "other", COUNTED, &QueryOptions::default()).await;
    assert_eq!(outcome.unwrap().0, "0");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    cancellation.cancel();
    for query in slow {
        assert_eq!(query.await.unwrap().unwrap_err().kind, ErrorKind::Timeout);
    }
}

/// One item whose join gives far more than a page: the page ends inside of it, and the next one goes on there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_ends_inside_an_item_whose_rows_are_large() {
    const ROWS: i64 = 1500;
    let world = world().await;
    put(&world, CONTAINER, "0", 2).await;
    let numbers: Vec<String> = (0..ROWS).map(|number| number.to_string()).collect();
    // Small as text, large in memory.
    let pairs = vec!["[1]"; 2000].join(",");
    let (text, numbers) = ("a".repeat(20_000), numbers.join(","));
    let body = format!(r#"{{"id":"1","pk":"a","s":"{text}","n":[{numbers}],"deep":[{pairs}]}}"#);
    let at = (DATABASE, CONTAINER);
    let options = ItemOptions::default();
    world.database.create_item(&mut Receipt::default(), at, &options, &Bytes::from(body)).await.unwrap();
    for projected in ["[x, c.s]", "{'x': x, 'd': c.deep}", "[x, c.deep]"] {
        let text = format!("SELECT VALUE {projected} FROM c JOIN x IN c.n");
        let mut options = QueryOptions::default();
        options.page.items_max = Some(1000);
        let (mut pages, mut seen) = (0, Vec::new());
        loop {
            let (page, _) = page(&world, CONTAINER, &text, &options).await;
            let (rows, continuation) = page.unwrap();
            assert!(rows.len() < 8 << 20, "{} bytes", rows.len());
            let rows = orrery_model::value::parse(format!("[{rows}]").as_bytes()).unwrap();
            for row in rows.as_array().unwrap() {
                let number = row.as_array().map_or_else(|| row.get("x"), |parts| parts.first());
                seen.push(number.and_then(orrery_model::Value::as_i64).unwrap());
            }
            pages += 1;
            options.page.continuation = continuation;
            if options.page.continuation.is_none() {
                break;
            }
        }
        let expected: Vec<i64> = (0..2).chain(0..ROWS).collect();
        assert_eq!(seen, expected, "{projected}");
        assert!(pages > 3, "{projected}: {pages}");
    }
    // Rows that stay inside one item have a bound instead.
    for query in [
        "SELECT VALUE ARRAY(SELECT VALUE c FROM x IN c.n) FROM c",
        "SELECT VALUE COUNT(1) FROM c JOIN y IN (SELECT VALUE c FROM x IN c.n)",
    ] {
        let (outcome, _) = page(&world, CONTAINER, query, &QueryOptions::default()).await;
        assert_eq!(outcome.unwrap_err().kind, ErrorKind::BadRequest, "{query}");
    }
}
