//! The report: ratios first, then what they are made of.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use crate::load::Figures;
use crate::plot::{Group, bars, short};
use crate::results::{Measured, Results, Scale};
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
                "Operations a second, 16 connections",
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
                "Processor time of the server for one operation",
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

fn rate(scale: &Scale, workload: Workload, connections: u64, kind: Kind) -> Option<f64> {
    closed(scale, workload, connections, kind).and_then(Measured::throughput)
}

/// A target of the project: what, its value here, the bound.
struct Target {
    what: String,
    value: Option<f64>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    unit: &'static str,
}

impl Target {
    fn ratio(what: &str, above: Option<f64>, below: Option<f64>, at_least: f64) -> Self {
        let value = above.zip(below).filter(|(_, below)| *below > 0.0).map(|(above, below)| above / below);
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
    let best = |workload: Workload, kinds: &[Kind]| {
        let rates = kinds.iter().filter_map(|kind| rate(first, workload, 16, *kind));
        rates.fold(None, |best: Option<f64>, rate| Some(best.map_or(rate, |best| best.max(rate))))
    };
    // At the number of connections where Orrery is nearest to its limit's work: all cores are busy.
    let busy = 64;
    let orrery = |workload, connections| rate(first, workload, connections, Kind::Orrery);
    let mut targets = vec![
        Target::ratio(
            "point read / bare hyper with signature check, 64 connections",
            orrery(Workload::PointRead, busy),
            results.limits.signed.get(&busy).copied(),
            0.6,
        ),
        Target::ratio(
            "durable create / storage engine alone, 64 connections",
            orrery(Workload::Create, busy),
            results.limits.engine.get(&busy).copied(),
            0.6,
        ),
        Target::ratio(
            "point read / PostgreSQL, 16 connections",
            orrery(Workload::PointRead, 16),
            rate(first, Workload::PointRead, 16, Kind::Postgres),
            2.0,
        ),
        Target::ratio(
            "durable create / PostgreSQL with GIN index, 16 connections",
            orrery(Workload::Create, 16),
            rate(first, Workload::Create, 16, Kind::Postgres),
            2.0,
        ),
    ];
    let emulators = [Kind::Cosmium, Kind::Vercel];
    let worst = Workload::ALL.into_iter().filter_map(|workload| {
        let peer = best(workload, &emulators)?;
        Some((workload, orrery(workload, 16)? / peer))
    });
    let worst = worst.min_by(|first, second| first.1.total_cmp(&second.1));
    targets.push(Target {
        what: match &worst {
            Some((workload, _)) => {
                format!("every workload / best emulator that runs it; the worst is {}", workload.title())
            }
            None => "every workload / best emulator that runs it".to_owned(),
        },
        value: worst.map(|(_, ratio)| ratio),
        at_least: Some(5.0),
        at_most: None,
        unit: "",
    });
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
    line(format_args!("# Orrery measured beside its peers and its limits\n"));
    line(format_args!(
        "Generated by `{}`. One machine, one run, systems in turn, medians of the rounds. Figures of another machine, or of\nanother hour on this one, are not comparable; ratios inside this run are.\n",
        results.command
    ));
    line(format_args!("## Targets\n"));
    line(format_args!("| what | target | here | |\n|---|---|---|---|"));
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
    line(format_args!("\n## How\n"));
    line(format_args!(
        "- Machine: {}, {} processors, {:.0} GB, Linux {}. Load average {:.1} before and {:.1} after the run: above the number of\n  processors, others were using the machine too.",
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
        "- Items of 1 KB with 14 properties, 100 under each partition key; everything is indexed (PostgreSQL: jsonb, primary key,\n  GIN index over the document). The load comes from a process of its own, with kept connections, signed requests, fixed\n  seeds and a warm-up of a third of the measured time. Closed loops do the next operation when the last one is answered;\n  in open loops operations are planned at half of the closed loop's throughput and their time begins when they were\n  planned."
    ));
    line(format_args!(
        "- Orrery and PostgreSQL acknowledge a write when it is on disk. Cosmium and cosmosdb-server keep everything in memory."
    ));
    out
}

type Line<'a> = dyn FnMut(std::fmt::Arguments<'_>) + 'a;

/// Orrery over each peer, workload by workload.
fn ratios(line: &mut Line<'_>, scale: &Scale) {
    let peers: Vec<Kind> =
        Kind::ALL.into_iter().filter(|kind| *kind != Kind::Orrery && has(scale, *kind)).collect();
    let titles: Vec<&str> = peers.iter().map(|kind| kind.title()).collect();
    line(format_args!("Throughput of Orrery divided by each peer's (more than 1: Orrery is faster).\n"));
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
        let own = rate(scale, workload, connections, Kind::Orrery);
        let mut row = format!(
            "| {} | {connections} | {} |",
            workload.title(),
            own.map_or_else(|| "fails".to_owned(), |rate| short(rate) + "/s")
        );
        for peer in &peers {
            let cell = match (own, closed(scale, workload, connections, *peer)) {
                (_, None) => "–".to_owned(),
                (own, Some(measured)) => match (own, measured.throughput()) {
                    (Some(own), Some(other)) if other > 0.0 => short(own / other),
                    _ => "fails".to_owned(),
                },
            };
            write!(row, " {cell} |").expect("a String accepts every write");
        }
        line(format_args!("{row}"));
        for measured in scale.measured.iter().filter(|measured| measured.workload == workload) {
            if let Some(failure) = measured.failure() {
                let text = format!("{}, {}: {failure}", measured.kind.title(), workload.title());
                if !failures.contains(&text) {
                    failures.push(text);
                }
            }
        }
    }
    for system in &scale.systems {
        if let Some(failure) = &system.failure {
            failures.push(format!("{}: {failure}", system.kind.title()));
        }
    }
    if !failures.is_empty() {
        line(format_args!("\nWhat fails, and why:\n"));
        for failure in failures {
            line(format_args!("- {failure}"));
        }
    }
    for plot in ["throughput", "p99", "cpu"] {
        line(format_args!("\n![{plot}](plot-{plot}-{}.svg)", scale.items));
    }
}

fn systems(line: &mut Line<'_>, scale: &Scale) {
    line(format_args!("\nThe systems themselves:\n"));
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
    line(format_args!("\nEvery measurement (times in microseconds; processor time is the server's):\n"));
    line(format_args!(
        "| workload | connections | loop | system | operations/s | p50 | p99 | p99.9 | processor time/operation |\n|---|---|---|---|---|---|---|---|---|"
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

fn limits(line: &mut Line<'_>, results: &Results) {
    let Some(first) = results.scales.first() else { return };
    line(format_args!("\n## Limits of this machine\n"));
    line(format_args!(
        "| connections | bare hyper, same bytes | with signature check | Orrery point read, share of these | storage engine alone | Orrery create, share |\n|---|---|---|---|---|---|"
    ));
    let connections: BTreeSet<u64> =
        results.limits.bare.keys().chain(results.limits.engine.keys()).copied().collect();
    for connections in connections {
        let optional = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| short(value) + "/s");
        let share = |own: Option<f64>, limit: Option<f64>| {
            let share = own.zip(limit).filter(|(_, limit)| *limit > 0.0).map(|(own, limit)| own / limit);
            share.map_or_else(|| "–".to_owned(), short)
        };
        let bare = results.limits.bare.get(&connections).copied();
        let signed = results.limits.signed.get(&connections).copied();
        let engine = results.limits.engine.get(&connections).copied();
        let read = rate(first, Workload::PointRead, connections, Kind::Orrery);
        let create = rate(first, Workload::Create, connections, Kind::Orrery);
        line(format_args!(
            "| {connections} | {} | {} | {} ({}, {}) | {} | {} ({}) |",
            optional(bare),
            optional(signed),
            optional(read),
            share(read, bare),
            share(read, signed),
            optional(engine),
            optional(create),
            share(create, engine),
        ));
    }
    line(format_args!(
        "\nThe disk takes {} flushes (fdatasync of 4 KB) a second.",
        short(results.limits.disk_flushes)
    ));
}
