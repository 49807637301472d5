//! A report for a terminal.

use std::fmt::Write;

use crate::advise::Report;
use crate::measured::Measured;
use crate::moment;
use crate::planner::{Plan, PlanInput};
use crate::rank::{count, percent};
use crate::sketch::DISTINCT_ERROR;

/// Candidates whose reasons are listed.
const EXPLAINED: usize = 5;

macro_rules! line {
    ($out:expr) => { $out.push('\n') };
    ($out:expr, $($argument:tt)*) => {{
        write!($out, $($argument)*).expect("a String accepts every write");
        $out.push('\n');
    }};
}

/// Formats the advisor's report as text.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    head(report, &mut out);
    line!(out);
    table(report, &mut out);
    line!(out);
    if let Some(best) = report.measured.first() {
        line!(out, "Recommended: {}", best.candidate.name);
        if let Some(next) = report.measured.get(1) {
            let saved = 1.0 - best.verdict.score / next.verdict.score.max(1e-9);
            line!(
                out,
                "  Its score is {} better than that of the next, {}.",
                percent(saved),
                next.candidate.name
            );
        }
        line!(out, "  Partition key: {}", best.candidate.partition_key());
        if let Some(definition) = &best.candidate.definition {
            line!(out, "  Definition: {}", definition.to_json());
        }
        line!(out);
    }
    for (at, one) in report.measured.iter().take(EXPLAINED).enumerate() {
        line!(out, "{}. {}", at + 1, one.candidate.name);
        for reason in &one.verdict.good {
            line!(out, "   + {reason}");
        }
        for reason in &one.verdict.bad {
            line!(out, "   - {reason}");
        }
    }
    for plan in &report.plans {
        line!(out);
        let by = plan.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        line!(out, "Suffixes of {}{by}:", plan.base);
        out.push_str(&plan_text(&plan.input, &plan.plan));
    }
    line!(out);
    line!(
        out,
        "Distinct values have a standard error of {}; a key with more than a thousandth of the bytes is never missed.",
        percent(DISTINCT_ERROR)
    );
    for note in &report.notes {
        line!(out, "Note: {note}");
    }
    out
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn head(report: &Report, out: &mut String) {
    line!(
        out,
        "{} items of {} bytes on average, {} in total, growing by {} per day.",
        count(report.items_total),
        count(report.bytes / report.items_total.max(1.0)),
        size(report.bytes),
        size(report.growth_per_day)
    );
    if let (Some((first, last)), Some(path)) = (report.time, &report.time_path) {
        line!(out, "Written from {} to {}, according to {path}.", moment::print(first), moment::print(last));
    }
    line!(
        out,
        "{} RU/s on {}; {} requests replayed over {:.0} s.",
        count(report.limits.throughput.into()),
        counted(report.limits.partition_count(), "partition", "partitions"),
        count(report.replay_requests as f64),
        report.replay_seconds
    );
}

fn table(report: &Report, out: &mut String) {
    let titles = [
        "",
        "CANDIDATE",
        "VALUES",
        "LARGEST",
        "FULL IN",
        "HOT",
        "POINT",
        "ONE",
        "FAN-OUT",
        "RU/H",
        "429",
        "NEEDS RU/S",
    ];
    let mut rows: Vec<Vec<String>> = vec![titles.iter().map(|title| (*title).to_owned()).collect()];
    rows.extend(report.measured.iter().enumerate().map(|(at, one)| row(at, one)));
    let widths: Vec<usize> = (0..titles.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let padding = " ".repeat(width - cell.chars().count());
            if column == 1 { format!("{cell}{padding}") } else { format!("{padding}{cell}") }
        });
        line!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn row(at: usize, one: &Measured) -> Vec<String> {
    let reads = one.prediction.reads;
    let all = (reads.point + reads.single + reads.fan_out) as f64;
    let share = |count: u64| if all > 0.0 { percent(count as f64 / all) } else { "–".to_owned() };
    vec![
        (at + 1).to_string(),
        one.candidate.name.clone(),
        count(one.distinct),
        percent(one.largest_share),
        one.days_until_full.map_or_else(|| "never".to_owned(), |days| format!("{} d", count(days.ceil()))),
        format!("{:.1}×", one.prediction.hot_factor()),
        share(reads.point),
        share(reads.single),
        share(reads.fan_out),
        count(one.prediction.per_hour()),
        percent(one.prediction.throttled_share()),
        count(one.verdict.needed_now),
    ]
}

/// Formats the planner's curve as a table.
pub fn plan_text(input: &PlanInput, plan: &Plan) -> String {
    let mut out = String::new();
    line!(
        out,
        "  {} RU/s of writes, {} RU/s of reads that specify the suffix, {} reads/s over all suffixes, {}:",
        count(input.write_units),
        count(input.known_units),
        count(input.all_reads),
        counted(input.partitions, "partition", "partitions")
    );
    line!(out, "  SUFFIXES  NEEDS RU/S  USES RU/S   HOT  PARTITIONS READ");
    for point in &plan.curve {
        let mark = if point.suffixes == plan.best { '*' } else { ' ' };
        line!(
            out,
            "{mark} {:>8}  {:>10}  {:>9}  {:>3.1}×  {:>15.1}",
            point.suffixes,
            count(point.needed),
            count(point.used),
            point.hot_factor,
            point.visited
        );
    }
    line!(out, "  {} the least throughput.", counted(plan.best, "suffix needs", "suffixes need"));
    out
}

/// Formats a count with its noun: `1 partition`, `8 partitions`.
pub(super) fn counted(count: impl std::fmt::Display, one: &str, many: &str) -> String {
    let count = count.to_string();
    let noun = if count == "1" { one } else { many };
    format!("{count} {noun}")
}

/// Formats a size: `1.5 GB`.
pub(super) fn size(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KB", "MB", "GB", "TB", "PB"];
    let (mut bytes, mut unit) = (bytes.max(0.0), 0);
    while bytes >= 1000.0 && unit + 1 < UNITS.len() {
        bytes /= 1024.0;
        unit += 1;
    }
    if unit == 0 || bytes >= 100.0 {
        format!("{bytes:.0} {}", UNITS[unit])
    } else {
        format!("{bytes:.1} {}", UNITS[unit])
    }
}
