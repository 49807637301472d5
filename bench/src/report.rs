//! The report: ratios first, then the measurements behind them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use crate::load::Figures;
use crate::plot::{Group, bars, short};
use crate::results::{Measured, Rates, Results, Scale};
use crate::systems::Kind;
use crate::workload::Workload;

pub fn write(results: &Results, directory: &Path) -> io::Result<()> {
    fs::write(directory.join("report.md"), text(results))?;
    for scale in &results.scales {
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| has(scale, *kind)).collect();
        let series: Vec<String> = kinds.iter().map(|kind| kind.title().to_owned()).collect();
        let groups = |figure: &dyn Fn(&Measured) -> Option<f64>| {
            let cells: BTreeSet<Workload> = scale.measured.iter().map(|measured| measured.workload).collect();
            let group = |workload: Workload| Group {
                title: workload.title().to_owned(),
                values: kinds
                    .iter()
                    .map(|kind| closed(scale, workload, 16, *kind).and_then(figure))
                    .collect(),
            };
            cells.into_iter().map(group).collect::<Vec<_>>()
        };
        for (name, title, unit, groups) in [
            (
                "throughput",
                "Operations per second, 16 connections",
                "operations/s",
                groups(&Measured::throughput),
            ),
            (
                "p99",
                "99th percentile, 16 connections, closed loop",
                "microseconds",
                groups(&|measured| measured.failure().is_none().then(|| measured.median_of(|f| f.p99_us))?),
            ),
            (
                "cpu",
                "CPU time of the server per operation",
                "microseconds",
                groups(&|measured| {
                    measured.failure().is_none().then(|| measured.cpu().map(|cpu| cpu * 1e6))?
                }),
            ),
        ] {
            let title = format!("{title}, {} items", scale.items);
            let svg = bars(&title, unit, &series, &groups);
            fs::write(directory.join(format!("plot-{name}-{}.svg", scale.items)), svg)?;
        }
    }
    Ok(())
}

fn has(scale: &Scale, kind: Kind) -> bool {
    scale.systems.iter().any(|system| system.kind == kind)
}

fn closed(scale: &Scale, workload: Workload, connections: u64, kind: Kind) -> Option<&Measured> {
    scale.measured.iter().find(|measured| {
        measured.workload == workload
            && measured.connections == connections
            && measured.kind == kind
            && measured.rate.is_none()
    })
}

fn rates(scale: &Scale, workload: Workload, connections: u64, kind: Kind) -> Option<Rates> {
    closed(scale, workload, connections, kind).and_then(Measured::rates)
}

fn ratio(above: Option<&Rates>, below: Option<&Rates>) -> Option<f64> {
    above?.over(below?)
}

/// The ratio to whichever of these is best at the workload.
fn ratio_to_best(
    above: &Rates,
    scale: &Scale,
    workload: Workload,
    connections: u64,
    kinds: &[Kind],
) -> Option<f64> {
    let ratios = kinds.iter().filter_map(|kind| above.over(&rates(scale, workload, connections, *kind)?));
    ratios.reduce(f64::min)
}

/// They keep everything in memory and have no index.
const EMULATORS: [Kind; 2] = [Kind::Cosmium, Kind::Vercel];

/// A target of the project: what, its value here, the bound.
struct Target {
    what: String,
    value: Option<f64>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    unit: &'static str,
}

impl Target {
    fn ratio(what: &str, above: Option<Rates>, below: Option<Rates>, at_least: f64) -> Self {
        let value = ratio(above.as_ref(), below.as_ref());
        Self { what: what.to_owned(), value, at_least: Some(at_least), at_most: None, unit: "" }
    }

    fn verdict(&self) -> &'static str {
        match (self.value, self.at_least, self.at_most) {
            (None, ..) => "not measured",
            (Some(value), Some(bound), _) if value >= bound => "reached",
            (Some(value), _, Some(bound)) if value <= bound => "reached",
            _ => "**missed**",
        }
    }
}

fn targets(results: &Results) -> Vec<Target> {
    let Some(first) = results.scales.first() else { return Vec::new() };
    let last = results.scales.last().unwrap_or(first);
    // At the number of connections where Orrery is nearest to its limit's work: all cores are busy.
    let busy = 64;
    let orrery = |workload, connections| rates(first, workload, connections, Kind::Orrery);
    let own = |kind, workload, connections| rates(first, workload, connections, kind);
    let mut targets = Vec::new();
    for (connections, at_least) in [(16, 1.8), (busy, 2.2)] {
        targets.push(Target::ratio(
            &format!("point read / PostgreSQL, {connections} connections"),
            orrery(Workload::PointRead, connections),
            own(Kind::Postgres, Workload::PointRead, connections),
            at_least,
        ));
    }
    targets.push(Target::ratio(
        "point read / bare hyper with the same headers and bytes, 64 connections",
        orrery(Workload::PointRead, busy),
        results.limits.bare.get(&busy).cloned(),
        0.9,
    ));
    let cpu = closed(first, Workload::PointRead, busy, Kind::Orrery).and_then(Measured::cpu);
    let bare_cpu = results.limits.bare_cpu.get(&busy).and_then(Rates::median);
    targets.push(Target {
        what: "CPU time of a point read / bare hyper's, 64 connections".to_owned(),
        value: cpu.zip(bare_cpu).map(|(own, bare)| own / bare),
        at_least: None,
        at_most: Some(1.2),
        unit: "",
    });
    for (workload, connections, at_least) in [
        (Workload::Create, 16, 2.0),
        (Workload::Create, busy, 2.5),
        (Workload::Upsert, 16, 1.8),
        (Workload::Batch50, 16, 1.8),
        (Workload::YcsbA, 16, 1.8),
        (Workload::YcsbF, 16, 1.8),
    ] {
        targets.push(Target::ratio(
            &format!("{} / PostgreSQL, {connections} connections", workload.title()),
            orrery(workload, connections),
            own(Kind::Postgres, workload, connections),
            at_least,
        ));
    }
    targets.push(Target::ratio(
        "create, in memory / on disk, 16 connections",
        own(Kind::OrreryMemory, Workload::Create, 16),
        orrery(Workload::Create, 16),
        1.5,
    ));
    for workload in [Workload::Create, Workload::Upsert, Workload::Batch50, Workload::YcsbA] {
        let what = workload.title().trim_start_matches("durable ");
        targets.push(Target::ratio(
            &format!("{what}, in memory / Cosmium, 16 connections"),
            own(Kind::OrreryMemory, workload, 16),
            own(Kind::Cosmium, workload, 16),
            1.5,
        ));
    }
    let create_p50 = |kind| {
        let measured = closed(first, Workload::Create, 1, kind)?;
        measured.median_of(|figures| figures.p50_us)
    };
    targets.push(Target {
        what: "durable create, one connection, p50 / PostgreSQL's".to_owned(),
        value: create_p50(Kind::Orrery).zip(create_p50(Kind::Postgres)).map(|(own, other)| own / other),
        at_least: None,
        at_most: Some(1.0),
        unit: "",
    });
    for (kind, whose) in [
        (Kind::Orrery, "every workload / best emulator that runs it (they store nothing on disk)"),
        (Kind::OrreryMemory, "the same for Orrery in memory"),
    ] {
        let worst = Workload::ALL.into_iter().filter_map(|workload| {
            let own = rates(first, workload, 16, kind)?;
            Some((workload, ratio_to_best(&own, first, workload, 16, &EMULATORS)?))
        });
        let worst = worst.min_by(|first, second| first.1.total_cmp(&second.1));
        targets.push(Target {
            what: match &worst {
                Some((workload, _)) => format!("{whose}; the worst is {}", workload.title()),
                None => whose.to_owned(),
            },
            value: worst.map(|(_, ratio)| ratio),
            at_least: Some(5.0),
            at_most: None,
            unit: "",
        });
    }
    let p50 = |scale: &Scale| {
        closed(scale, Workload::PointRead, 1, Kind::Orrery)
            .or_else(|| closed(scale, Workload::PointRead, 16, Kind::Orrery))
            .and_then(|measured| measured.median_of(|figures| figures.p50_us))
    };
    let million = results.scales.iter().find(|scale| scale.items >= 1_000_000);
    targets.push(Target {
        what: "point read p50 with 1 M items / with 10 k items".to_owned(),
        value: million.and_then(p50).zip(p50(first)).map(|(large, small)| large / small),
        at_least: None,
        at_most: Some(1.3),
        unit: "",
    });
    let orrery_system =
        |scale: &Scale| scale.systems.iter().find(|system| system.kind == Kind::Orrery).cloned();
    targets.push(Target {
        what: "start-up on 1 M items".to_owned(),
        value: million.and_then(orrery_system).and_then(|system| system.restart_ms),
        at_least: None,
        at_most: Some(300.0),
        unit: " ms",
    });
    targets.push(Target {
        what: "idle memory".to_owned(),
        value: orrery_system(first).map(|system| system.idle_memory_mb).filter(|memory| *memory > 0.0),
        at_least: None,
        at_most: Some(30.0),
        unit: " MB",
    });
    targets.push(Target {
        what: format!("memory at the end, {} items, peak", last.items),
        value: orrery_system(last).map(|system| system.memory.peak_mb).filter(|memory| *memory > 0.0),
        at_least: None,
        at_most: Some(512.0),
        unit: " MB",
    });
    targets
}

fn text(results: &Results) -> String {
    let mut out = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        out.write_fmt(text).expect("a String accepts every write");
        out.push('\n');
    };
    line(format_args!("# Orrery compared with its peers and its limits\n"));
    line(format_args!(
        "Generated by `{}`. One machine, one run, alternating systems, medians over rounds. Ratios compare measurements of the same round,\ntaken one after the other, and are medians over rounds too. Absolute figures from another machine, or from another hour on\nthis one, are not comparable; ratios within this run are.\n",
        results.command
    ));
    line(format_args!("## Targets\n"));
    line(format_args!("| measure | target | here | |\n|---|---|---|---|"));
    for target in targets(results) {
        let bound = match (target.at_least, target.at_most) {
            (Some(bound), _) => format!("at least {}{}", short(bound), target.unit),
            (_, Some(bound)) => format!("at most {}{}", short(bound), target.unit),
            _ => String::new(),
        };
        let value = target.value.map_or_else(|| "–".to_owned(), |value| short(value) + target.unit);
        line(format_args!("| {} | {bound} | {value} | {} |", target.what, target.verdict()));
    }
    for scale in &results.scales {
        line(format_args!("\n## {} items\n", scale.items));
        ratios(&mut line, scale);
        systems(&mut line, scale);
        details(&mut line, scale);
    }
    limits(&mut line, results);
    line(format_args!("\n## Method\n"));
    line(format_args!(
        "- Machine: {}, {} CPUs, {:.0} GB, Linux {}. Load average {:.1} before and {:.1} after the run: above the\n  number of CPUs, other processes were using the machine too.",
        results.machine.processor,
        results.machine.processors,
        results.machine.memory_gb,
        results.machine.system,
        results.machine.load_before,
        results.machine.load_after,
    ));
    for (name, version) in &results.versions {
        line(format_args!("- {name}: {version}"));
    }
    line(format_args!(
        "- Items of 1 KB with 14 properties, 100 under each partition key; everything is indexed (PostgreSQL: jsonb, primary key,\n  GIN index over the document, VACUUM ANALYZE after loading). The load comes from a separate process with one thread, as light as wrk and pgbench, with persistent connections, signed requests, fixed\n  seeds and a warm-up of a third of the measured time. Closed loops start the next operation when the previous one has\n  completed; in open loops operations are scheduled at half of the closed loop's throughput, and latency is measured from the\n  scheduled time. Where a connection completes fewer than four operations in the measured time, all of them count, from the\n  start of the first to the end of the last."
    ));
    line(format_args!(
        "- A round runs read-only workloads first, then those that change items, then those that create items. A system that has a\n  tenth more items than stated, or has failed, is restarted empty and reloaded before its next measurement. A workload that\n  fails is not retried in later rounds."
    ));
    line(format_args!(
        "- Orrery and PostgreSQL acknowledge a write when it is on disk. Cosmium, cosmosdb-server and Orrery in memory keep\n  everything in memory."
    ));
    out
}

type Line<'a> = dyn FnMut(std::fmt::Arguments<'_>) + 'a;

fn per_second(rates: Option<&Rates>) -> Option<String> {
    Some(short(rates?.median()?) + "/s")
}

/// Orrery over each peer, workload by workload.
fn ratios(line: &mut Line<'_>, scale: &Scale) {
    let peers: Vec<Kind> =
        Kind::ALL.into_iter().filter(|kind| *kind != Kind::Orrery && has(scale, *kind)).collect();
    let titles: Vec<&str> = peers.iter().map(|kind| kind.title()).collect();
    line(format_args!("Throughput of Orrery divided by that of each peer (above 1: Orrery is faster).\n"));
    line(format_args!(
        "In brackets, the CPU time of Orrery's operation, and of each peer's divided by it (above 1: Orrery needs less).\n"
    ));
    line(format_args!("| workload | connections | Orrery | / {} |", titles.join(" | / ")));
    line(format_args!("|---|---|---|{}", "---|".repeat(peers.len())));
    let cells: BTreeSet<(Workload, u64)> = scale
        .measured
        .iter()
        .filter(|measured| measured.rate.is_none())
        .map(|measured| (measured.workload, measured.connections))
        .collect();
    let mut failures: Vec<String> = Vec::new();
    for (workload, connections) in cells {
        let own = rates(scale, workload, connections, Kind::Orrery);
        let cpu = |kind| {
            let measured = closed(scale, workload, connections, kind)?;
            measured.cpu().filter(|cpu| measured.failure().is_none() && *cpu > 0.0)
        };
        let own_cpu = cpu(Kind::Orrery);
        let mut row = format!(
            "| {} | {connections} | {}{} |",
            workload.title(),
            per_second(own.as_ref()).unwrap_or_else(|| "fails".to_owned()),
            own_cpu.map_or_else(String::new, |cpu| format!(" ({} µs)", short(cpu * 1e6))),
        );
        for peer in &peers {
            let cell = match closed(scale, workload, connections, *peer).map(Measured::rates) {
                None => "–".to_owned(),
                Some(other) => match (&own, &other) {
                    (Some(own), Some(other)) => own.over(other).map(short),
                    // Orrery fails, the other does not.
                    (None, other) => per_second(other.as_ref()).map(|rate| format!("({rate})")),
                    (Some(_), None) => None,
                }
                .unwrap_or_else(|| "fails".to_owned()),
            };
            let times = cpu(*peer).zip(own_cpu).map(|(other, own)| format!(" ({})", short(other / own)));
            write!(row, " {cell}{} |", times.unwrap_or_default()).expect("a String accepts every write");
        }
        line(format_args!("{row}"));
        for measured in scale
            .measured
            .iter()
            .filter(|measured| measured.workload == workload && measured.connections == connections)
        {
            if let Some(failure) = measured.failure() {
                let planned = if measured.rate.is_some() { ", open loop" } else { "" };
                let title = measured.kind.title();
                let title = format!("{title}, {}, {connections} connections{planned}", workload.title());
                failures.push(format!("{title}: {failure}"));
            }
        }
    }
    for system in &scale.systems {
        if let Some(failure) = &system.failure {
            failures.push(format!("{}: {failure}", system.kind.title()));
        }
    }
    if !failures.is_empty() {
        line(format_args!("\nFailures:\n"));
        for failure in failures {
            line(format_args!("- {failure}"));
        }
    }
    for plot in ["throughput", "p99", "cpu"] {
        line(format_args!("\n![{plot}](plot-{plot}-{}.svg)", scale.items));
    }
}

fn systems(line: &mut Line<'_>, scale: &Scale) {
    line(format_args!("\nResource usage of the systems:\n"));
    line(format_args!(
        "| | start-up | with the data | idle memory | memory at the end (peak) | bulk import | on disk | split |\n|---|---|---|---|---|---|---|---|"
    ));
    for system in scale.systems.iter().filter(|system| system.failure.is_none()) {
        let optional =
            |value: Option<f64>, unit: &str| value.map_or_else(|| "–".to_owned(), |v| short(v) + unit);
        line(format_args!(
            "| {} | {:.0} ms | {} | {:.0} MB | {:.0} MB ({:.0}) | {} items/s | {} | {} |",
            system.kind.title(),
            system.start_up_ms,
            optional(system.restart_ms, " ms"),
            system.idle_memory_mb,
            system.memory.now_mb,
            system.memory.peak_mb,
            short(system.import_rate),
            optional((system.bytes_per_item > 0.0).then_some(system.bytes_per_item), " bytes/item"),
            optional(system.split_seconds, " s"),
        ));
    }
}

fn details(line: &mut Line<'_>, scale: &Scale) {
    line(format_args!("\nAll measurements (times in microseconds; CPU time of the server):\n"));
    line(format_args!(
        "| workload | connections | loop | system | operations/s | p50 | p99 | p99.9 | CPU time/operation |\n|---|---|---|---|---|---|---|---|---|"
    ));
    for measured in &scale.measured {
        let figure = |figure: &dyn Fn(&Figures) -> u64| {
            measured.median_of(figure).map_or_else(|| "–".to_owned(), short)
        };
        let loop_name = match measured.rate {
            None => "closed".to_owned(),
            Some(rate) => format!("open, {}/s", short(rate)),
        };
        let throughput = measured.throughput().map_or_else(|| "fails".to_owned(), short);
        let ok = measured.failure().is_none();
        line(format_args!(
            "| {} | {} | {loop_name} | {} | {throughput} | {} | {} | {} | {} |",
            measured.workload.title(),
            measured.connections,
            measured.kind.title(),
            if ok { figure(&|f| f.p50_us) } else { "–".to_owned() },
            if ok { figure(&|f| f.p99_us) } else { "–".to_owned() },
            if ok { figure(&|f| f.p999_us) } else { "–".to_owned() },
            measured.cpu().filter(|_| ok).map_or_else(|| "–".to_owned(), |cpu| short(cpu * 1e6)),
        ));
    }
}

/// Every workload beside what it could reach at most.
fn limits(line: &mut Line<'_>, results: &Results) {
    let Some(first) = results.scales.first() else { return };
    line(format_args!("\n## Limits of this machine\n"));
    line(format_args!(
        "The limit for reads is a bare hyper server that checks the signature and repeats the same response; for writes, the storage\nengine alone with the same batches and the same group commit, without HTTP; for a mix, its parts one after the other. The\nlast columns show how much faster than its peers Orrery would be at its limit.\n"
    ));
    line(format_args!(
        "| workload | connections | limit | Orrery | share | limit / PostgreSQL | limit / best emulator |\n|---|---|---|---|---|---|---|"
    ));
    let cells: BTreeSet<(Workload, u64)> = first
        .measured
        .iter()
        .filter(|measured| measured.rate.is_none() && measured.kind == Kind::Orrery)
        .map(|measured| (measured.workload, measured.connections))
        .collect();
    for (workload, connections) in cells {
        let Some(limit) = results.limits.of(workload, connections) else { continue };
        let own = rates(first, workload, connections, Kind::Orrery);
        let shown = |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), short);
        let over = |kinds: &[Kind]| shown(ratio_to_best(&limit, first, workload, connections, kinds));
        line(format_args!(
            "| {} | {connections} | {} | {} | {} | {} | {} |",
            workload.title(),
            per_second(Some(&limit)).unwrap_or_default(),
            per_second(own.as_ref()).unwrap_or_else(|| "fails".to_owned()),
            shown(ratio(own.as_ref(), Some(&limit))),
            over(&[Kind::Postgres]),
            over(&EMULATORS),
        ));
    }
    for (connections, bare) in &results.limits.bare {
        let signed = results.limits.of(Workload::PointRead, *connections);
        let own = rates(first, Workload::PointRead, *connections, Kind::Orrery);
        let shown = |rates: Option<&Rates>| per_second(rates).unwrap_or_else(|| "–".to_owned());
        line(format_args!(
            "| point read, without signature check | {connections} | {} ({} with it) | {} | {} | | |",
            shown(Some(bare)),
            shown(signed.as_ref()),
            shown(own.as_ref()),
            ratio(own.as_ref(), Some(bare)).map_or_else(|| "–".to_owned(), short),
        ));
    }
    line(format_args!(
        "\nThe disk takes {} flushes per second (fdatasync of 4 KB).",
        short(results.limits.disk_flushes)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Memory;
    use crate::results::{ByConnections, SystemFigures};

    fn system(kind: Kind, failure: Option<&str>) -> SystemFigures {
        SystemFigures {
            kind,
            failure: failure.map(str::to_owned),
            start_up_ms: 50.0,
            idle_memory_mb: 20.0,
            import_rate: 1000.0,
            bytes_per_item: 1500.0,
            memory: Memory { now_mb: 100.0, peak_mb: 200.0 },
            restart_ms: Some(90.0),
            split_seconds: None,
        }
    }

    fn measured(kind: Kind, connections: u64, rates: &[u64]) -> Measured {
        let round = |rate: &u64| Figures { operations: *rate, seconds: 1.0, ..Figures::default() };
        Measured {
            kind,
            workload: Workload::PointRead,
            connections,
            rate: None,
            rounds: rates.iter().map(round).collect(),
            cpu_seconds_per_operation: vec![0.000_05],
        }
    }

    fn results() -> Results {
        let mut failing = measured(Kind::Cosmium, 16, &[]);
        failing.rounds.push(Figures { failure: Some("status 500".to_owned()), ..Figures::default() });
        let scale = Scale {
            items: 10_000,
            systems: vec![
                system(Kind::Orrery, None),
                system(Kind::Postgres, None),
                system(Kind::Cosmium, None),
                system(Kind::Vercel, Some("npm is not there")),
            ],
            measured: vec![
                measured(Kind::Orrery, 16, &[100, 300, 200]),
                measured(Kind::Orrery, 64, &[300]),
                measured(Kind::Postgres, 16, &[80, 60, 40]),
                failing,
            ],
        };
        let mut results = Results { scales: vec![scale], ..Results::default() };
        let signed = ByConnections::from([(16, Rates(vec![500.0, 500.0, 400.0])), (64, Rates(vec![400.0]))]);
        results.limits.signed.insert(Workload::PointRead, signed);
        results.limits.bare = ByConnections::from([(64, Rates(vec![320.0]))]);
        results.limits.bare_cpu = ByConnections::from([(64, Rates(vec![0.000_03]))]);
        results
    }

    /// Rounds are compared with the same rounds, and what fails is named with its reason.
    #[test]
    fn ratios_shares_and_failures_are_in_the_report() {
        let text = text(&results());
        assert!(text.contains("| point read | 16 | 200/s (50 µs) | 5 (1) | fails | – |"), "{text}");
        assert!(text.contains("- Cosmium, point read, 16 connections: status 500"), "{text}");
        assert!(text.contains("- cosmosdb-server: npm is not there"), "{text}");
        assert!(text.contains("| point read | 16 | 500/s | 200/s | 0.5 | 8.33 | – |"), "{text}");
        assert!(text.contains("| point read | 64 | 400/s | 300/s | 0.75 | – | – |"), "{text}");
    }

    #[test]
    fn targets_say_whether_they_are_reached() {
        let targets = targets(&results());
        let verdict = |start: &str| {
            let target = targets.iter().find(|target| target.what.starts_with(start)).unwrap();
            target.verdict()
        };
        assert_eq!(verdict("point read / bare hyper"), "reached");
        assert_eq!(verdict("CPU time of a point read / bare hyper"), "**missed**");
        assert_eq!(verdict("point read / PostgreSQL, 16"), "reached");
        assert_eq!(verdict("point read / PostgreSQL, 64"), "not measured");
        assert_eq!(verdict("durable create / PostgreSQL"), "not measured");
        assert_eq!(verdict("start-up on 1 M items"), "not measured");
        assert_eq!(verdict("idle memory"), "reached");
    }
}
