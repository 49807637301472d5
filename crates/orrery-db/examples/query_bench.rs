//! Six kinds of queries over containers of different sizes, on the embedded store.
//!
//! `cargo run --release -p orrery-db --example query_bench -- 100000 1000000` loads so many items of about 1 KB,
//! measures each query, and prints how much longer it takes in the larger container. Where the index applies the
//! cost must follow the result, not the container: the ratio stays near 1.

#![allow(
    clippy::pedantic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "this is a tool for developers"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_db::{
    Database, FeedScope, ItemOptions, Options, PageRequest, QueryMetrics, QueryOptions, QueryRequest,
    SystemEnv, Trace,
};
use orrery_model::Value;
use orrery_model::partition_key::PartitionKey;
use orrery_storage::{Durability, Embedded, EmbeddedOptions};

const PLACE: (&str, &str) = ("bench", "items");
/// Items of one logical partition, and of one customer.
const PER_KEY: u64 = 100;
const PER_CUSTOMER: u64 = 10;
const LOADERS: u64 = 64;

struct Shape {
    name: &'static str,
    text: &'static str,
    /// How often it is run.
    runs: u64,
    in_one_key: bool,
    is_indexed: bool,
}

const SHAPES: [Shape; 6] = [
    Shape {
        name: "equality on an indexed property",
        text: "SELECT * FROM c WHERE c.customer = @customer",
        runs: 200,
        in_one_key: false,
        is_indexed: true,
    },
    Shape {
        name: "range with ORDER BY and TOP 10",
        text: "SELECT TOP 10 * FROM c WHERE c.score > @score ORDER BY c.score",
        runs: 200,
        in_one_key: false,
        is_indexed: true,
    },
    Shape {
        name: "filter inside one logical partition",
        text: "SELECT * FROM c WHERE c.category = 3 AND c.score >= 0",
        runs: 200,
        in_one_key: true,
        is_indexed: true,
    },
    Shape {
        name: "COUNT by equality",
        text: "SELECT VALUE COUNT(1) FROM c WHERE c.customer = @customer",
        runs: 200,
        in_one_key: false,
        is_indexed: true,
    },
    Shape {
        name: "GROUP BY over everything",
        text: "SELECT c.category, COUNT(1) AS n, SUM(c.score) AS sum FROM c GROUP BY c.category",
        runs: 2,
        in_one_key: false,
        is_indexed: false,
    },
    Shape {
        name: "scan with an unindexed predicate",
        text: "SELECT VALUE COUNT(1) FROM c WHERE c.hidden = 7",
        runs: 2,
        in_one_key: false,
        is_indexed: false,
    },
];

fn item(number: u64) -> String {
    let filler: String =
        (0..25).map(|at| format!("{:032x}", u128::from(number) * 0x9E37_79B9 + at)).collect();
    format!(
        r#"{{"id":"{number}","pk":"p{}","customer":{},"score":{number},"category":{},"hidden":{},"filler":"{filler}"}}"#,
        number / PER_KEY,
        number / PER_CUSTOMER,
        number % 50,
        number % 1000,
    )
}

async fn load(database: &Arc<Database>, count: u64) {
    let mut trace = Trace::default();
    database.create_database(&mut trace, br#"{"id":"bench"}"#, None).await.unwrap();
    let body = br#"{"id":"items","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/hidden/?"},{"path":"/filler/?"}]}}"#;
    database.create_container(&mut trace, "bench", body, None).await.unwrap();
    let loaders: Vec<_> = (0..LOADERS)
        .map(|loader| {
            let database = Arc::clone(database);
            tokio::spawn(async move {
                for number in (loader..count).step_by(usize::try_from(LOADERS).unwrap()) {
                    let body = Bytes::from(item(number));
                    let options = ItemOptions::default();
                    database.create_item(&mut Trace::default(), PLACE, &options, &body).await.unwrap();
                }
            })
        })
        .collect();
    for loader in loaders {
        loader.await.unwrap();
    }
}

async fn run(database: &Database, shape: &Shape, count: u64, run: u64) -> (Duration, u64, QueryMetrics) {
    // Spread over the container, the same in every run.
    let at = run.wrapping_mul(0x9E37_79B9_7F4A_7C15) % count;
    let request = QueryRequest {
        text: shape.text.to_owned(),
        parameters: vec![
            ("@customer".to_owned(), Value::from(i64::try_from(at / PER_CUSTOMER).unwrap())),
            ("@score".to_owned(), Value::from(i64::try_from(at).unwrap())),
        ],
        resume_filter: None,
    };
    let key = format!("[\"p{}\"]", at / PER_KEY);
    let scope = FeedScope {
        partition_key: shape.in_one_key.then(|| PartitionKey::parse_header(key.as_bytes()).unwrap()),
        ..FeedScope::default()
    };
    let page = PageRequest { items_max: Some(-1), continuation: None };
    let options = QueryOptions { scope, page, cross_partition: true, ..QueryOptions::default() };
    let started = Instant::now();
    let mut trace = Trace::default();
    let page = database.query_items(&mut trace, PLACE, &options, &request).await.unwrap();
    (started.elapsed(), page.count as u64, page.metrics)
}

async fn measure(count: u64) -> Vec<Duration> {
    let directory = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions {
        durability: Durability::Relaxed { interval_ms: 1000 },
        ..EmbeddedOptions::default()
    };
    let store = Arc::new(Embedded::open(directory.path(), options).unwrap());
    let database = Database::open(store, Arc::new(SystemEnv), Options::default()).await.unwrap();
    let started = Instant::now();
    load(&database, count).await;
    println!("{count} items loaded in {:.1} s", started.elapsed().as_secs_f64());
    let mut medians = Vec::new();
    for shape in &SHAPES {
        let mut times = Vec::new();
        let mut last = None;
        for number in 0..shape.runs {
            let (time, rows, metrics) = run(&database, shape, count, number).await;
            times.push(time);
            last = Some((rows, metrics));
        }
        times.sort();
        let median = times[times.len() / 2];
        let (rows, metrics) = last.unwrap();
        println!(
            "  {:<38} {:>10.3} ms median {:>10.3} ms worst  {rows} rows, {} items and {} entries read by {}",
            shape.name,
            median.as_secs_f64() * 1000.0,
            times.last().unwrap().as_secs_f64() * 1000.0,
            metrics.items_read,
            metrics.entries_read,
            metrics.access,
        );
        medians.push(median);
    }
    database.close().await.unwrap();
    medians
}

#[tokio::main]
async fn main() {
    let counts: Vec<u64> = std::env::args().skip(1).map(|text| text.parse().unwrap()).collect();
    let counts = if counts.is_empty() { vec![100_000] } else { counts };
    let mut all = Vec::new();
    for &count in &counts {
        all.push(measure(count).await);
    }
    for (pair, names) in all.windows(2).zip(counts.windows(2)) {
        println!("From {} to {} items:", names[0], names[1]);
        for ((shape, before), after) in SHAPES.iter().zip(&pair[0]).zip(&pair[1]) {
            let ratio = after.as_secs_f64() / before.as_secs_f64();
            let verdict = match (shape.is_indexed, ratio <= 1.5) {
                (true, true) => "follows the result",
                (true, false) => "GROWS WITH THE CONTAINER",
                (false, _) => "reads everything",
            };
            println!("  {:<38} {ratio:>6.2} times, {verdict}", shape.name);
        }
    }
}
