//! The eight kinds of queries of `query_bench`, over a container that is small enough to be loaded in a second.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![allow(clippy::pedantic, unreachable_pub, clippy::unwrap_used, reason = "this is a tool for developers")]

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use orrery_db::{Database, Options, SystemEnv};
use orrery_storage::{Durability, Embedded, EmbeddedOptions};

#[path = "../examples/query_bench/workload.rs"]
mod workload;

const ITEMS: u64 = 10_000;

fn queries(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions {
        durability: Durability::Relaxed { interval_ms: 1000 },
        ..EmbeddedOptions::default()
    };
    let store = Arc::new(Embedded::open(directory.path(), options).unwrap());
    let database = runtime.block_on(async {
        let database = Database::open(store, Arc::new(SystemEnv), Options::default()).await.unwrap();
        workload::load(&database, ITEMS).await;
        database
    });
    let mut group = criterion.benchmark_group("queries");
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    for shape in &workload::SHAPES {
        let number = Cell::new(0);
        let kind = if shape.is_indexed { "indexed" } else { "all items" };
        group.bench_function(BenchmarkId::new(kind, shape.name), |bencher| {
            bencher.iter(|| {
                number.set(number.get() + 1);
                black_box(runtime.block_on(workload::run(&database, shape, ITEMS, number.get(), false)))
            });
        });
    }
    group.finish();
    runtime.block_on(database.close()).unwrap();
}

criterion_group!(benches, queries);
criterion_main!(benches);
