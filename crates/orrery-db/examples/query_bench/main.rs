//! Eight kinds of queries over containers of different sizes, on the embedded store.
//!
//! `cargo run --release -p orrery-db --example query_bench -- 100000 1000000` loads so many items of about 1 KB
//! into one container each, measures each query in all of them, and prints how much more it costs in the larger
//! ones. Where the index applies the cost must follow the result, not the container: the ratio stays near 1.
//!
//! The containers take turns, so that whatever else the machine does falls on all of them alike, and the median of
//! the rounds counts. Beside the time on the wall, which a busy machine stretches, each query's time on the
//! processors is measured, over all threads of the process. With `--keep DIRECTORY` the containers are left there
//! and found again by the next run. With `--scan` what reads everything is measured a second time without the index.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![allow(
    clippy::pedantic,
    clippy::print_stdout,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "this is a tool for developers"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_db::{Database, Options, SystemEnv};
use orrery_storage::{Durability, Embedded, EmbeddedOptions};
use rustix::time::{ClockId, clock_gettime};

use self::workload::{SHAPES, Shape};

mod workload;

/// The time that all threads of this process have spent on processors.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

/// Waits until the stores have written and merged what the loading left them.
async fn settle() {
    let started = Instant::now();
    let mut quiet = 0;
    while quiet < 5 && started.elapsed() < Duration::from_mins(5) {
        let before = processor_time();
        tokio::time::sleep(Duration::from_millis(200)).await;
        quiet = if processor_time() - before < Duration::from_millis(10) { quiet + 1 } else { 0 };
    }
    println!("settled after {:.1} s", started.elapsed().as_secs_f64());
}

/// Rounds, and queries in each.
fn repetitions(shape: &Shape) -> (u64, u64) {
    if shape.is_indexed { (15, 200) } else { (3, 1) }
}

struct Loaded {
    count: u64,
    database: Arc<Database>,
}

impl Loaded {
    async fn open(count: u64, directory: &Path) -> Self {
        let options = EmbeddedOptions {
            durability: Durability::Relaxed { interval_ms: 1000 },
            ..EmbeddedOptions::default()
        };
        let done = directory.join("loaded");
        let store = Arc::new(Embedded::open(directory.join("data"), options).unwrap());
        let database = Database::open(store, Arc::new(SystemEnv), Options::default()).await.unwrap();
        if !done.exists() {
            let started = Instant::now();
            workload::load(&database, count).await;
            println!("{count} items loaded in {:.1} s", started.elapsed().as_secs_f64());
            std::fs::write(done, "").unwrap();
        }
        Self { count, database }
    }

    async fn round(&self, shape: &Shape, round: u64, without_index: bool) -> Sample {
        let (_, queries) = repetitions(shape);
        let processor_before = processor_time();
        let mut sample = Sample::default();
        let mut times = Vec::new();
        for query in 0..queries {
            let number = round * queries + query;
            let started = Instant::now();
            let page = workload::run(&self.database, shape, self.count, number, without_index).await;
            times.push(started.elapsed().as_secs_f64());
            let metrics = page.metrics;
            sample.planning += (metrics.parse_time + metrics.compile_time + metrics.plan_time).as_secs_f64();
            sample.rows += page.count as u64;
            sample.entries += metrics.entries_read;
            sample.items += metrics.items_read;
            sample.bytes += metrics.bytes_read;
            sample.access = metrics.access;
        }
        sample.processor = (processor_time() - processor_before).as_secs_f64() / queries as f64;
        sample.wall = median(times);
        sample
    }
}

/// What one round of queries of one shape needed; seconds are per query, the rest is their sum.
#[derive(Default)]
struct Sample {
    wall: f64,
    processor: f64,
    /// Parsing, compiling and finding access paths.
    planning: f64,
    rows: u64,
    entries: u64,
    items: u64,
    bytes: u64,
    access: String,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn measure(shape: &Shape, containers: &[Loaded], without_index: bool) {
    let way = if without_index { " (without the index)" } else { "" };
    println!("{}{way}: {}", shape.name, shape.text);
    let (rounds, queries) = repetitions(shape);
    let mut samples: Vec<Vec<Sample>> = containers.iter().map(|_| Vec::new()).collect();
    // The first round warms the caches and does not count.
    for round in 0..=rounds {
        for (container, samples) in containers.iter().zip(&mut samples) {
            let sample = container.round(shape, round, without_index).await;
            if round > 0 {
                samples.push(sample);
            }
        }
    }
    let mut before: Option<(u64, f64, f64)> = None;
    for (container, samples) in containers.iter().zip(&samples) {
        let wall = median(samples.iter().map(|sample| sample.wall).collect());
        let processor = median(samples.iter().map(|sample| sample.processor).collect());
        let queries = (rounds * queries) as f64;
        let mean = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>() as f64 / queries;
        println!(
            "  {:>8} items {:>10.3} ms on the wall {:>10.3} ms on processors ({:.1} µs to plan); {:.1} rows, {:.1} items ({:.0} bytes) and {:.1} entries read by {}",
            container.count,
            wall * 1000.0,
            processor * 1000.0,
            samples.iter().map(|sample| sample.planning).sum::<f64>() * 1e6 / queries,
            mean(|sample| sample.rows),
            mean(|sample| sample.items),
            mean(|sample| sample.bytes),
            mean(|sample| sample.entries),
            samples[0].access,
        );
        if let Some((count, wall_before, processor_before)) = before {
            let growth = container.count as f64 / count as f64;
            let (wall, processor) = (wall / wall_before, processor / processor_before);
            let verdict = match (shape.is_indexed, processor <= 1.5) {
                (true, true) => "follows the result",
                (true, false) => "GROWS WITH THE CONTAINER",
                (false, _) => "reads everything",
            };
            println!(
                "  {growth:.0} times the items: {wall:.2} times on the wall, {processor:.2} on processors; {verdict}"
            );
        }
        before = Some((container.count, wall, processor));
    }
}

#[tokio::main]
async fn main() {
    let mut counts: Vec<u64> = Vec::new();
    let mut keep: Option<PathBuf> = None;
    let mut scan = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--scan" => scan = true,
            "--keep" => keep = arguments.next().map(PathBuf::from),
            count => counts.push(count.parse().expect("--scan, --keep DIRECTORY, or counts of items")),
        }
    }
    if counts.is_empty() {
        counts.push(100_000);
    }
    let temporary = tempfile::tempdir().unwrap();
    let directory = keep.unwrap_or_else(|| temporary.path().to_owned());
    let mut containers = Vec::new();
    for count in counts {
        let directory = directory.join(count.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        containers.push(Loaded::open(count, &directory).await);
    }
    settle().await;
    for shape in &SHAPES {
        measure(shape, &containers, false).await;
        if scan && !shape.is_indexed {
            measure(shape, &containers, true).await;
        }
    }
    for container in containers {
        container.database.close().await.unwrap();
    }
}
