//! The result of a simulation as text, JSON and an HTML page.

use std::fmt::Write;

use serde_json::{Value, json};

use super::bill::{bill_json, bill_sentence};
use super::page::{figure, page, table};
use super::svg::{self, Line, escape, short};
use super::text::{counted, size, wrap};
use crate::rank::{count, percent};
use crate::simulate::{Day, Outcome, Scenario};

/// Rows of the table, at most about.
const ROWS: usize = 13;

/// Renders the result as JSON.
pub fn simulation_json(scenario: &Scenario, outcome: &Outcome) -> Value {
    json!({
        "name": scenario.name,
        "seed": scenario.seed,
        "steps": outcome.steps,
        "items": outcome.items.round(),
        "bytes": outcome.bytes.round(),
        "distinctKeys": outcome.distinct_keys,
        "partitions": outcome.partitions,
        "splits": outcome.splits,
        "stuckPartitions": outcome.stuck,
        "throttledShare": outcome.throttled,
        "cost": outcome.cost,
        "costOfStorage": outcome.cost_of_storage,
        "bill": bill_json(&outcome.bill, &scenario.prices),
        "largestKeyBytes": outcome.largest_key_bytes.round(),
        "keyFullOnDay": outcome.key_full_on_day,
        "days": outcome.days.iter().map(|day| json!({
            "day": day.day,
            "items": day.items.round(),
            "bytes": day.bytes.round(),
            "partitions": day.partitions,
            "splits": day.splits,
            "provisioned": day.provisioned,
            "used": day.used,
            "peak": day.peak,
            "throttledShare": day.throttled,
            "hotFactor": day.hot_factor,
            "cost": day.cost,
        })).collect::<Vec<_>>(),
    })
}

/// The days as rows; `is_narrow` with short numbers and titles.
fn rows(outcome: &Outcome, is_narrow: bool) -> Vec<Vec<String>> {
    let count = |number: f64| if is_narrow && number >= 1e6 { short(number) } else { count(number) };
    let titles = [
        "",
        "DAY",
        "ITEMS",
        "SIZE",
        "PARTS",
        "SPLITS",
        "USED RU/S",
        "PEAK",
        "PAID RU/S",
        "HOT",
        "429",
        "COST",
    ];
    let mut rows: Vec<Vec<String>> = vec![titles.iter().map(|title| (*title).to_owned()).collect()];
    let step = outcome.days.len().div_ceil(ROWS).max(1);
    let last = outcome.days.len().saturating_sub(1);
    let listed = outcome.days.iter().enumerate().filter(|(at, _)| at % step == 0 || *at == last);
    rows.extend(listed.map(|(_, day)| {
        vec![
            String::new(),
            day.day.to_string(),
            count(day.items),
            size(day.bytes),
            day.partitions.to_string(),
            day.splits.to_string(),
            count(day.used),
            count(day.peak),
            count(day.provisioned),
            format!("{:.1}×", day.hot_factor),
            percent(day.throttled),
            count(day.cost),
        ]
    }));
    rows
}

fn summary(scenario: &Scenario, outcome: &Outcome) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{} items, {}, {} keys on {} after {}.",
            count(outcome.items),
            size(outcome.bytes),
            count(outcome.distinct_keys),
            counted(outcome.partitions, "partition", "partitions"),
            counted(outcome.splits, "split", "splits")
        ),
        format!(
            "{} of request units were throttled. Cost {}, including {} for storage.",
            percent(outcome.throttled),
            count(outcome.cost),
            count(outcome.cost_of_storage)
        ),
    ];
    lines.push(bill_sentence(&outcome.bill, &scenario.prices));
    match outcome.key_full_on_day {
        Some(day) => lines.push(format!("The largest key is full on day {day:.0}; later writes to it fail.")),
        None => lines.push(format!("The largest key has {}.", size(outcome.largest_key_bytes))),
    }
    if outcome.stuck > 0 {
        lines.push(format!(
            "{} too large but cannot split, because a single key fills it.",
            counted(outcome.stuck, "partition is", "partitions are")
        ));
    }
    lines
}

/// Formats the result as text, with one row per listed day.
pub fn simulation_text(scenario: &Scenario, outcome: &Outcome) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        out.write_str(text).expect("a String accepts every write");
        out.push('\n');
    };
    if !scenario.name.is_empty() {
        line(&scenario.name);
    }
    let mut paragraphs = String::new();
    for text in summary(scenario, outcome) {
        wrap(&mut paragraphs, &text, "");
    }
    line(paragraphs.trim_end());
    let rows = rows(outcome, true);
    let columns = rows[0].len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    for row in &rows {
        // Splits are in the summary, and a terminal has 80 columns.
        let shown = row.iter().zip(&widths).zip(rows[0].iter()).filter(|(_, title)| *title != "SPLITS");
        let cells = shown
            .map(|(cell, _)| cell)
            .skip(1)
            .map(|(cell, width)| format!("{}{cell}", " ".repeat(width - cell.chars().count())));
        line(&cells.collect::<Vec<_>>().join("  "));
    }
    out
}

/// Renders the result as one HTML file with plots.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn simulation_html(scenario: &Scenario, outcome: &Outcome) -> String {
    let title = if scenario.name.is_empty() { "Simulation" } else { &scenario.name };
    let mut body = format!("<h1>{}</h1>\n<div class=\"card\">\n", escape(title));
    for text in summary(scenario, outcome) {
        body.push_str(&format!("<p>{}</p>\n", escape(&text)));
    }
    body.push_str("</div>\n<div class=\"card\"><div class=\"plots\">\n");
    let points = |value: fn(&Day) -> f64| {
        outcome.days.iter().map(|day| (f64::from(day.day), value(day))).collect::<Vec<_>>()
    };
    let line = |name, value: fn(&Day) -> f64| Line { name, points: points(value) };
    let load = [
        line("provisioned", |day| day.provisioned),
        line("peak", |day| day.peak),
        line("used", |day| day.used),
    ];
    body.push_str(&figure("Request units per second", &svg::lines("Load", &load, false, "RU/s", "days")));
    let waits = [line("throttled", |day| day.throttled * 100.0)];
    body.push_str(&figure("Throttled request units", &svg::lines("Throttling", &waits, false, "%", "days")));
    let parts = [line("partitions", |day| day.partitions as f64)];
    body.push_str(&figure("Partitions", &svg::lines("Partitions", &parts, false, "", "days")));
    let bytes = [line("bytes", |day| day.bytes)];
    body.push_str(&figure("Data", &svg::lines("Data", &bytes, false, "bytes", "days")));
    let hot = [line("hot", |day| day.hot_factor)];
    body.push_str(&figure(
        "The busiest partition, in multiples of an even share",
        &svg::lines("Heat", &hot, false, "×", "days"),
    ));
    let cost = [line("cost", |day| day.cost)];
    body.push_str(&figure("Cost since the start", &svg::lines("Cost", &cost, false, "", "days")));
    body.push_str(&figure(
        "Bytes by partition at the end",
        &svg::bars("Bytes by partition", &outcome.partition_bytes, None, "bytes", "partition"),
    ));
    body.push_str(&figure(
        "Load by partition at the end",
        &svg::bars("Load by partition", &outcome.partition_load, None, "RU/s", "partition"),
    ));
    body.push_str("</div></div>\n<div class=\"card\">\n");
    body.push_str(&table(&rows(outcome, false), None));
    body.push_str("</div>\n");
    page(title, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::simulate;

    #[test]
    fn the_table_fits_a_terminal() {
        let scenario = Scenario::parse(include_str!("../../tests/data/billion.toml")).unwrap();
        let outcome = simulate(&scenario);
        let text = simulation_text(&scenario, &outcome);
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{widest}: {text}");
        assert!(text.contains("The same load in USD: manual "), "{text}");
    }
}
