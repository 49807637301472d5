//! Judges the advisor on data that no test has seen: every candidate of its report is measured on the database under
//! the same workload, with and without throttling, and compared with the forecast.
//!
//! `cargo run --release -p orrery-advisor --example held_out -- items.jsonl workload.json [RU/s] [items] [requests]`
//!
//! The measured cost of a candidate is what must be provisioned so that its busiest partition is not throttled. The
//! first choice has to be within 10 % of the best one, unless the report says that it cannot tell.

#![allow(
    clippy::pedantic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "this is a tool for developers"
)]

#[path = "../tests/agreement/server.rs"]
mod server;

use orrery_advisor::advise::Report;
use orrery_advisor::matching::Matching;
use orrery_advisor::measured::Measured as Forecast;
use orrery_advisor::{Advisor, Config, Limits};
use server::{Measured, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, workload, rest @ ..] = arguments.as_slice() else { panic!("pass the items and the workload") };
    let number = |at: usize, usual: u64| rest.get(at).map_or(usual, |text| text.parse().unwrap());
    let (throughput, items_max, requests_max) = (number(0, 24_000), number(1, 40_000), number(2, 6000));
    let bodies: Vec<String> =
        std::fs::read_to_string(data).unwrap().lines().take(items_max as usize).map(str::to_owned).collect();
    let workload = std::fs::read_to_string(workload).unwrap();
    let config = Config {
        limits: Limits { throughput: throughput as u32, ..Limits::default() },
        throughput_is_given: true,
        requests_max: requests_max as usize,
        ..Config::default()
    };
    let advisor = || {
        let mut advisor = Advisor::new(config.clone(), Some(&workload)).unwrap();
        bodies.iter().for_each(|body| advisor.add(body.as_bytes()).unwrap());
        advisor
    };
    let report = advisor().finish().unwrap();
    let (analysis, replay, config) = advisor().replay().unwrap();
    let matching = Matching::new(&replay, analysis.sample.len(), bodies.len() as f64);
    println!(
        "{data}: {} items, {} requests over {:.0} s",
        bodies.len(),
        replay.requests.len(),
        replay.seconds
    );
    for (at, reason) in &matching.failures {
        println!("not estimated: {}: {reason}", replay.operations[*at].name);
    }
    let mut faults = 0;
    let mut costs: Vec<(String, f64)> = Vec::new();
    for one in &report.measured {
        let start_ms = replay.requests[0].at_ms;
        let mut runs = Vec::new();
        for throttle in [true, false] {
            let candidate = &one.candidate;
            let Ok(running) = Server::start(candidate, &config.limits, &bodies, start_ms, throttle).await
            else {
                println!("{}: the items cannot exist under this key", candidate.name);
                break;
            };
            runs.push(running.run(candidate, &bodies, (&analysis, &replay), 0).await);
            running.close().await;
        }
        let [throttled, free] = runs.as_slice() else { continue };
        faults += compare(one, throttled, &replay);
        let cost = needed(free, replay.seconds, replay.segments(), replay.is_recorded);
        println!("    needs {:.0} RU/s forecast, {cost:.0} measured", one.verdict.needed_now);
        if (one.verdict.needed_now / cost - 1.0).abs() > 0.1 {
            println!("    FAULT: the need is off by more than 10 %");
            faults += 1;
        }
        costs.push((one.candidate.name.clone(), cost));
    }
    judge(&report, &costs);
    println!("{faults} faults");
}

/// What must be provisioned so that the busiest partition is not throttled, at any of the replayed points in time.
fn needed(run: &Measured, seconds: f64, segments: usize, is_recorded: bool) -> f64 {
    let count = run.partitions.len() as f64;
    let overall = run.partitions.iter().copied().fold(0.0, f64::max) * count / seconds;
    if is_recorded {
        return overall;
    }
    let length = run.seconds[0].len();
    let width = (seconds.round() as usize).clamp(1, length);
    let first = length - width;
    let mut sum = 0.0;
    for segment in 0..segments {
        let (from, to) = (first + segment * width / segments, first + (segment + 1) * width / segments);
        sum += run.seconds.iter().map(|used| used[from..to].iter().sum::<f64>()).fold(0.0, f64::max);
    }
    overall.max(sum * count / seconds)
}

fn compare(one: &Forecast, run: &Measured, replay: &orrery_advisor::replay::Replay) -> usize {
    let said = &one.prediction;
    let hottest = |partitions: &[f64]| partitions.iter().copied().fold(0.0, f64::max);
    let (hot_said, hot) = (hottest(&said.delivered_by_partition), hottest(&run.partitions));
    let share = |count: u64| count as f64 / run.requests as f64 * 100.0;
    println!(
        "{}{}: RU {:.0} forecast, {:.0} measured; 429 {:.1} %, {:.1} %; busiest {hot_said:.0}, {hot:.0}",
        if one.verdict.unfit.is_some() { "! " } else { "" },
        one.candidate.name,
        said.delivered,
        run.delivered,
        share(said.throttled),
        share(run.throttled)
    );
    let mut faults = 0;
    let mut check = |is_good: bool, what: &str| {
        if !is_good {
            println!("    FAULT: {what}");
            faults += 1;
        }
    };
    let placed: Vec<u64> = one.partitions.iter().map(|(items, _)| *items).collect();
    let close = |said: f64, found: f64| (said - found).abs() <= found.abs() * 0.1;
    check(placed == run.items, "the items are placed differently");
    check(close(said.delivered, run.delivered), "request units differ by more than 10 %");
    check((share(said.throttled) - share(run.throttled)).abs() <= 3.0, "429s differ by more than 3 points");
    check(close(hot_said, hot), "the busiest partition differs by more than 10 %");
    let wrong = run.visited.iter().filter(|(at, visited)| said.visited.get(at) != Some(visited)).count();
    check(wrong == 0, &format!("{wrong} queries visit other partitions"));
    for (at, (charge, count)) in run.operations.iter().enumerate() {
        let own = &said.operations[at];
        let served = (own.requests - own.throttled).max(1) as f64;
        let (said, found) = (own.delivered / served, charge / (*count).max(1) as f64);
        if *count > 0 && !close(said, found) {
            println!("      {said:.2} RU forecast, {found:.2} measured: {}", replay.operations[at].name);
        }
    }
    faults
}

fn judge(report: &Report, costs: &[(String, f64)]) {
    let Some(first) = report.measured.first() else { return };
    let of = |name: &str| costs.iter().find(|(own, _)| own == name).map(|(_, cost)| *cost);
    let usable = |name: &str| {
        report.measured.iter().any(|one| one.candidate.name == name && one.verdict.unfit.is_none())
    };
    let best = costs.iter().filter(|(name, _)| usable(name)).min_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(cost), Some((best, least))) = (of(&first.candidate.name), best) else { return };
    let tied: Vec<&str> =
        report.measured.iter().filter(|one| one.verdict.is_tied).map(|one| &*one.candidate.name).collect();
    println!(
        "first choice {}: {cost:.0} RU/s; best measured {best}: {least:.0} RU/s; {:+.1} %; tied: {tied:?}; missing: {:?}",
        first.candidate.name,
        (cost / least - 1.0) * 100.0,
        report.missing
    );
    if cost > least * 1.1 && report.missing.is_empty() {
        println!("FAULT: the first choice is not within 10 % of the best");
    }
}
