//! What letting a point read pass and charging it costs, in processor time of the thread that does it: the machine may
//! be busy. It must stay below two microseconds.

#![allow(clippy::pedantic, unreachable_pub, clippy::unwrap_used, reason = "this is a tool for developers")]

use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use orrery_db::{Database, Options, Receipt, SystemEnv};
use orrery_model::offer::Throughput;
use orrery_storage::Memory;
use rustix::time::{ClockId, clock_gettime};

const CONTAINERS: usize = 200;

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn admission(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = runtime.block_on(async {
        let options = Options { throttle: true, ..Options::default() };
        let database = Database::open(Arc::new(Memory::new()), Arc::new(SystemEnv), options).await.unwrap();
        let mut receipt = Receipt::default();
        database.create_database(&mut receipt, br#"{"id":"db"}"#, None).await.unwrap();
        for number in 0..CONTAINERS {
            let body = format!(
                r#"{{"id":"c{number}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#
            );
            let throughput = Some(Throughput::Manual(10_000));
            database.create_container(&mut receipt, "db", body.as_bytes(), throughput).await.unwrap();
        }
        database
    });
    let mut group = criterion.benchmark_group("admission and metering of a point read");
    group.sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    // One hot key; as many as are followed; a new one each time, which takes the place of another.
    for keys in [1usize, 64, 100_000] {
        let names: Vec<String> = (0..keys).map(|number| format!("[\"customer-{number}\"]")).collect();
        group.bench_function(BenchmarkId::new("keys", keys), |bencher| {
            bencher.iter_custom(|rounds| {
                let started = processor_time();
                database.admission_benchmark(("db", "c0"), &names, rounds);
                processor_time() - started
            });
        });
    }
    group.finish();
    runtime.block_on(database.close()).unwrap();
}

criterion_group!(benches, admission);
criterion_main!(benches);
