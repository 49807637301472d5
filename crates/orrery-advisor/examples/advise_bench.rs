//! Measures the advisor's throughput: telemetry items under 20 candidates, on one thread.
//!
//! `cargo run --release -p orrery-advisor --example advise_bench -- 10000000` generates items in chunks, measures only the
//! time from JSON text to sketches, and then simulates a year of a billion items.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![allow(
    clippy::pedantic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "this is a tool for developers"
)]

use std::time::{Duration, Instant};

use orrery_advisor::datasets::DataSet;
use orrery_advisor::simulate::{Scenario, simulate};
use orrery_advisor::{Advisor, Config};

const CHUNK: usize = 50_000;

const BILLION: &str = include_str!("../tests/data/billion.toml");

fn main() {
    let count: u64 = std::env::args().nth(1).map_or(1_000_000, |text| text.parse().unwrap());
    let set = DataSet::Telemetry;
    let more = ["/firmware", "/celsius", "/model,/deviceId", "/site,/deviceId", "/deviceId,/day"];
    let config =
        Config { candidates: more.map(str::to_owned).to_vec(), candidates_max: 20, ..Config::default() };
    let mut advisor = Advisor::new(config, Some(&set.workload())).unwrap();
    let mut items = set.items(count, 1);
    let (mut spent, mut bytes, mut done) = (Duration::ZERO, 0usize, 0u64);
    let mut chunk: Vec<String> = vec![String::new(); CHUNK];
    loop {
        let mut filled = 0;
        while filled < CHUNK && items.write_next(&mut chunk[filled]) {
            filled += 1;
        }
        if filled == 0 {
            break;
        }
        let started = Instant::now();
        for item in &chunk[..filled] {
            advisor.add(item.as_bytes()).unwrap();
            bytes += item.len();
        }
        spent += started.elapsed();
        done += filled as u64;
    }
    let candidates = advisor.candidates().len();
    let rate = done as f64 / spent.as_secs_f64();
    println!(
        "{done} items of {} bytes under {candidates} candidates: {:.1} s, {rate:.0} items/s, {:.1} µs each",
        bytes as u64 / done.max(1),
        spent.as_secs_f64(),
        1e6 / rate
    );
    let started = Instant::now();
    let report = advisor.finish().unwrap();
    println!(
        "replay and report: {:.1} s; first: {}",
        started.elapsed().as_secs_f64(),
        report.measured[0].candidate.name
    );
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
        println!("peak memory: {}", peak.trim_start_matches("VmHWM:").trim());
    }
    let scenario = Scenario::parse(BILLION).unwrap();
    let started = Instant::now();
    let outcome = simulate(&scenario);
    println!(
        "simulated {:.2e} items on {} partitions over {} days in {:.1} s",
        outcome.items,
        outcome.partitions,
        outcome.days.len(),
        started.elapsed().as_secs_f64()
    );
}
