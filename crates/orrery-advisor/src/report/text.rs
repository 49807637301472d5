//! A report for a terminal.

use std::fmt::Write;

use super::bill::{WAYS, costs};
use crate::advise::Report;
use crate::measured::Measured;
use crate::moment;
use crate::planner::{Plan, PlanInput, TOLERANCE};
use crate::rank::{ERROR, count, percent};
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

/// Adds a line.
pub(super) fn line(out: &mut String, text: &str) {
    line!(out, "{text}");
}

/// Columns of a terminal.
const COLUMNS: usize = 80;
/// Letters of a candidate's name in the table.
const NAME_LETTERS: usize = 32;

/// Formats the advisor's report as text.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    head(report, &mut out);
    line!(out);
    table(report, &mut out);
    line!(out);
    verdict(report, &mut out);
    for (at, one) in report.measured.iter().take(EXPLAINED).enumerate() {
        wrap(&mut out, &format!("{}. {}", at + 1, one.candidate.name), "   ");
        for reason in &one.verdict.good {
            wrap(&mut out, &format!("   + {reason}"), "     ");
        }
        for reason in &one.verdict.bad {
            wrap(&mut out, &format!("   - {reason}"), "     ");
        }
        if let Some(alternative) = &one.verdict.alternative {
            wrap(&mut out, &format!("   An alternative without this risk: {alternative}."), "     ");
        }
        wrap(&mut out, &format!("   Evidence: {}.", one.verdict.evidence.join("; ")), "     ");
    }
    line!(out);
    costs_table(report, &mut out);
    for plan in &report.plans {
        line!(out);
        let by = plan.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        line!(out, "Suffixes of {}{by}:", plan.base);
        out.push_str(&plan_text(&plan.input, &plan.plan));
    }
    line!(out);
    wrap(
        &mut out,
        &format!(
            "Distinct values have a standard error of {}; a key with more than a thousandth of the bytes is never missed.",
            percent(DISTINCT_ERROR)
        ),
        "",
    );
    out + &service_text(&report.service, &report.notes)
}

/// What the service measured, and notes.
pub fn service_text(service: &[String], notes: &[String]) -> String {
    let mut out = String::new();
    if !service.is_empty() {
        line!(out, "Measured at the service:");
        for sentence in service {
            wrap(&mut out, &format!("  {sentence}"), "  ");
        }
    }
    for note in notes {
        wrap(&mut out, &format!("Note: {note}"), "  ");
    }
    out
}

/// The recommendation, or what is missing for one.
fn verdict(report: &Report, out: &mut String) {
    let Some(best) = report.measured.first() else { return };
    if !report.missing.is_empty() {
        line!(out, "No recommendation:");
        report.missing.iter().for_each(|missing| wrap(out, &format!("  {missing}"), "  "));
        line!(out);
        return;
    }
    line!(out, "Recommended: {}", best.candidate.name);
    wrap(out, &format!("  {}", distance(report)), "  ");
    wrap(out, &format!("  Partition key: {}", best.candidate.partition_key()), "    ");
    if let Some(definition) = &best.candidate.definition {
        wrap(out, &format!("  Definition: {}", definition.to_json()), "    ");
    }
    line!(out);
}

/// How far the next candidate is.
pub(super) fn distance(report: &Report) -> String {
    let [best, others @ ..] = report.measured.as_slice() else { return String::new() };
    let tied: Vec<&str> =
        others.iter().filter(|one| one.verdict.is_tied).map(|one| one.candidate.name.as_str()).collect();
    let error = percent(ERROR);
    match (tied.as_slice(), others.first()) {
        ([], None) => "It is the only candidate.".to_owned(),
        ([], Some(next)) => {
            let more = next.verdict.score / best.verdict.score.max(1e-9) - 1.0;
            if next.verdict.unfit.is_some() {
                "No other candidate is usable.".to_owned()
            } else {
                format!("The next one, {}, costs {} more.", next.candidate.name, percent(more))
            }
        }
        (tied, _) => format!(
            "It ties with {}: their costs differ by less than the forecast's error of {error}. The simplest one comes first.",
            tied.join(", ")
        ),
    }
}

/// What a month costs under the best candidates, in each way to pay.
fn costs_table(report: &Report, out: &mut String) {
    let mut rows: Vec<Vec<String>> =
        vec![vec![String::new(), format!("{} PER MONTH", report.prices.currency)]];
    rows[0].extend(WAYS.map(str::to_uppercase));
    for (at, one) in report.measured.iter().take(EXPLAINED).enumerate() {
        let mut row = vec![(at + 1).to_string(), cut(&one.candidate.name, NAME_LETTERS)];
        row.extend(costs(&one.bill));
        rows.push(row);
    }
    columns(&rows, out);
    wrap(
        out,
        &format!(
            "The replayed load around the clock, with storage, at the list prices of {} (--prices for others). – beyond a serverless partition's 5,000 RU/s.",
            report.prices.date
        ),
        "",
    );
}

/// Aligned columns; the second one to the left.
pub(super) fn columns(rows: &[Vec<String>], out: &mut String) {
    let count = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..count)
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

/// Adds a paragraph in lines of a terminal's width.
pub(super) fn wrap(out: &mut String, text: &str, indent: &str) {
    let start = text.len() - text.trim_start().len();
    let (mut line, mut is_empty) = (text[..start].to_owned(), true);
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            line!(out, "{line}");
            (line, is_empty) = (indent.to_owned(), true);
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    line!(out, "{line}");
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn head(report: &Report, out: &mut String) {
    let sizes = format!(
        "{} items of {} bytes on average, {} in total, growing by {} per day.",
        count(report.items_total),
        count(report.bytes / report.items_total.max(1.0)),
        size(report.bytes),
        size(report.growth_per_day)
    );
    wrap(out, &sizes, "");
    if let (Some((first, last)), Some(path)) = (report.time, &report.time_path) {
        let times = format!("Written from {} to {}, by {path}.", moment::print(first), moment::print(last));
        wrap(out, &times, "");
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
    let titles = ["", "CANDIDATE", "VALUES", "HOT", "ONE PART.", "429", "NEEDS RU/S"];
    let mut rows: Vec<Vec<String>> = vec![titles.iter().map(|title| (*title).to_owned()).collect()];
    rows.extend(report.measured.iter().enumerate().map(|(at, one)| row(at, one)));
    columns(&rows, out);
    line!(out, "HOT: load of the busiest partition over an even share. ONE PART.: reads that");
    line!(out, "visit one partition. = ties with the first. ! unusable, see its reasons.");
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn row(at: usize, one: &Measured) -> Vec<String> {
    let reads = one.prediction.reads;
    let all = (reads.point + reads.single + reads.fan_out) as f64;
    let share = |count: u64| if all > 0.0 { percent(count as f64 / all) } else { "–".to_owned() };
    let mark = match (&one.verdict.unfit, one.verdict.is_tied) {
        (Some(_), _) => "!",
        (None, true) => "=",
        (None, false) => "",
    };
    vec![
        format!("{}{mark}", at + 1),
        cut(&one.candidate.name, NAME_LETTERS),
        count(one.distinct),
        format!("{:.1}×", one.prediction.hot_factor()),
        share(reads.point + reads.single),
        percent(one.prediction.throttled_share()),
        count(one.verdict.needed_now),
    ]
}

/// A name truncated to this many letters.
pub(super) fn cut(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    name.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}

/// Formats the planner's curve as a table.
pub fn plan_text(input: &PlanInput, plan: &Plan) -> String {
    let mut out = String::new();
    let given = format!(
        "  {} RU/s of writes, {} RU/s of reads that specify the suffix, {} reads/s over all suffixes, {}:",
        count(input.write_units),
        count(input.known_units),
        count(input.all_reads),
        counted(input.partitions, "partition", "partitions")
    );
    wrap(&mut out, &given, "  ");
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
    wrap(&mut out, &format!("  {}", plan_sentence(plan)), "  ");
    out
}

/// Which count is chosen, and by which rule.
pub(super) fn plan_sentence(plan: &Plan) -> String {
    let least = plan.curve.iter().min_by(|a, b| a.needed.total_cmp(&b.needed));
    let chosen = plan.curve.iter().find(|point| point.suffixes == plan.best);
    let (Some(least), Some(chosen)) = (least, chosen) else { return String::new() };
    format!(
        "Chosen: {}, the smallest count within {} of the least throughput ({} RU/s with {}, {} RU/s with {}).",
        plan.best,
        percent(TOLERANCE),
        count(chosen.needed),
        plan.best,
        count(least.needed),
        least.suffixes
    )
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
