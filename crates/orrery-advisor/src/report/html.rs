//! The advisor's report as an HTML page: the ranking, and plots of spread, heat over time, growth and cost per suffix
//! count for the best candidates.

use super::bill::{WAYS, costs};
use super::page::{copied, figure, page, table};
use super::svg::{self, Line, escape};
use super::text::{counted, distance, plan_sentence, size};
use super::what_if::{self, Answer};
use crate::advise::Report;
use crate::measured::Measured;
use crate::moment;
use crate::rank::{count, percent};

/// Candidates that are shown in detail.
const SHOWN: usize = 6;

/// Renders the advisor's report as one HTML file.
pub fn html(report: &Report) -> String {
    html_with(report, &[])
}

/// The same with the answers to what-if questions.
pub fn html_with(report: &Report, answers: &[Answer]) -> String {
    let mut body = String::from("<h1>Partition key advice</h1>\n");
    body.push_str(&head(report));
    if let Some(best) = report.measured.first() {
        body.push_str(&recommended(best, report));
    }
    body.push_str("<h2>Ranking</h2>\n<div class=\"card\">\n");
    body.push_str(&ranking(report));
    body.push_str("<p class=\"dim\">Hot: the load of the busiest partition as a multiple of its even share. Needs: request units per second to provision so that the busiest partition does not throttle.</p>\n</div>\n");
    if !answers.is_empty() {
        body.push_str("<h2>What if</h2>\n<div class=\"card\">\n");
        body.push_str(&table(&what_if::rows(report, answers), None));
        body.push_str("</div>\n");
    }
    body.push_str("<h2>Workload</h2>\n<div class=\"card\">\n");
    body.push_str(&workload(report));
    body.push_str("</div>\n<h2>Candidates</h2>\n");
    for (at, one) in report.measured.iter().take(SHOWN).enumerate() {
        body.push_str(&candidate(at, one, report));
    }
    body.push_str("<h2>Cost per month</h2>\n<div class=\"card\">\n");
    body.push_str(&costs_table(report));
    body.push_str("</div>\n");
    if !report.plans.is_empty() {
        body.push_str("<h2>Suffix counts</h2>\n");
        body.push_str(&plans(report));
    }
    if !report.service.is_empty() {
        body.push_str("<h2>Measured at the service</h2>\n<div class=\"card\">\n");
        for sentence in &report.service {
            body.push_str(&format!("<p>{}</p>\n", escape(sentence)));
        }
        body.push_str("</div>\n");
    }
    if !report.notes.is_empty() {
        body.push_str("<h2>Notes</h2>\n<div class=\"card\">\n");
        for note in &report.notes {
            body.push_str(&format!("<p>{}</p>\n", escape(note)));
        }
        body.push_str("</div>\n");
    }
    page("Partition key advice", &body)
}

/// What a month costs under the best candidates, in each way to pay.
fn costs_table(report: &Report) -> String {
    let mut rows: Vec<Vec<String>> = vec![vec![String::new(), "Candidate".to_owned()]];
    rows[0].extend(WAYS.map(str::to_owned));
    for (at, one) in report.measured.iter().take(SHOWN).enumerate() {
        let mut row = vec![(at + 1).to_string(), one.candidate.name.clone()];
        row.extend(costs(&one.bill));
        rows.push(row);
    }
    table(&rows, None)
        + &format!(
            "<p class=\"dim\">{}: the replayed load around the clock, with storage, at the list prices of {}. Dynamic: autoscale of each partition by itself. –: beyond a serverless partition's 5,000 RU/s.</p>\n",
            escape(&report.prices.currency),
            escape(&report.prices.date)
        )
}

/// The operations with their rates, and what they cost under the first candidate.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn workload(report: &Report) -> String {
    let titles = ["Operation", "Per second", "RU each", "Partitions"];
    let mut rows: Vec<Vec<String>> = vec![titles.iter().map(|title| (*title).to_owned()).collect()];
    let Some(best) = report.measured.first() else { return String::new() };
    for (operation, own) in report.workload.operations.iter().zip(&best.prediction.operations) {
        let requests = (own.requests as f64).max(1.0);
        let (charge, partitions) = if own.is_estimated {
            (format!("{:.2}", own.charge / requests), format!("{:.1}", own.partitions as f64 / requests))
        } else {
            ("not estimated".to_owned(), "–".to_owned())
        };
        rows.push(vec![operation.name.clone(), format!("{:.1}", operation.per_second), charge, partitions]);
    }
    let given = if report.has_workload { "" } else { " No workload was given: this one is assumed." };
    let caption =
        format!("<p class=\"dim\">Charges are those under {}.{given}</p>\n", escape(&best.candidate.name));
    table(&rows, None) + &caption
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn head(report: &Report) -> String {
    let mut text = format!(
        "<p class=\"dim\">{} items, {}, growing by {} per day; {} RU/s on {}; {} requests replayed over {:.0} s.",
        count(report.items_total),
        size(report.bytes),
        size(report.growth_per_day),
        count(report.limits.throughput.into()),
        counted(report.limits.partition_count(), "partition", "partitions"),
        count(report.replay_requests as f64),
        report.replay_seconds
    );
    if let Some((first, last)) = report.time {
        text.push_str(&format!(" Written from {} to {}.", moment::print(first), moment::print(last)));
    }
    text + "</p>\n"
}

fn recommended(best: &Measured, report: &Report) -> String {
    if !report.missing.is_empty() {
        let missing = report.missing.iter().map(|missing| format!("<li>{}</li>", escape(missing)));
        let missing: String = missing.collect();
        return format!("<div class=\"card\"><h3>No recommendation</h3>\n<ul>{missing}</ul></div>\n");
    }
    let mut text = format!("<div class=\"card\"><h3>Recommended: {}</h3>\n", escape(&best.candidate.name));
    text.push_str(&format!("<p>{}</p>\n", escape(&distance(report))));
    text.push_str(&reasons(best));
    text.push_str(&format!("<p>Partition key {}</p>\n", copied(&best.candidate.partition_key().to_string())));
    if let Some(definition) = &best.candidate.definition {
        text.push_str(&format!("<p>Definition {}</p>\n", copied(&definition.to_json().to_string())));
    }
    text + "</div>\n"
}

fn reasons(one: &Measured) -> String {
    let mut text = String::from("<ul>");
    for (class, list) in [("good", &one.verdict.good), ("bad", &one.verdict.bad)] {
        for reason in list {
            text.push_str(&format!("<li class=\"{class}\">{}</li>", escape(reason)));
        }
    }
    text.push_str("</ul>\n");
    if let Some(alternative) = &one.verdict.alternative {
        text.push_str(&format!("<p>An alternative without this risk: {}.</p>\n", escape(alternative)));
    }
    text + &format!("<p>Evidence: {}.</p>\n", escape(&one.verdict.evidence.join("; ")))
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn ranking(report: &Report) -> String {
    let titles = [
        "",
        "Candidate",
        "Values",
        "Largest key",
        "Full in",
        "Hot",
        "Point reads",
        "One partition",
        "Fan-out",
        "RU/hour",
        "429",
        "Needs RU/s",
        "Transactions",
    ];
    let mut rows: Vec<Vec<String>> = vec![titles.iter().map(|title| (*title).to_owned()).collect()];
    for (at, one) in report.measured.iter().enumerate() {
        let reads = one.prediction.reads;
        let all = (reads.point + reads.single + reads.fan_out) as f64;
        let share = |number: u64| if all > 0.0 { percent(number as f64 / all) } else { "–".to_owned() };
        let fan_out = if reads.fan_out > 0 {
            format!(
                "{} × {:.1}",
                share(reads.fan_out),
                reads.fan_out_partitions as f64 / reads.fan_out as f64
            )
        } else {
            share(0)
        };
        rows.push(vec![
            (at + 1).to_string(),
            one.candidate.name.clone(),
            count(one.distinct),
            percent(one.largest_share),
            one.days_until_full
                .map_or_else(|| "never".to_owned(), |days| format!("{} days", count(days.ceil()))),
            format!("{:.1}×", one.prediction.hot_factor()),
            share(reads.point),
            share(reads.single),
            fan_out,
            count(one.prediction.per_hour()),
            percent(one.prediction.throttled_share()),
            count(one.verdict.needed_now),
            match one.scope {
                crate::measured::Scope::Kept => "kept".to_owned(),
                crate::measured::Scope::Lost(share) => format!("{} lost", percent(share)),
                crate::measured::Scope::Unknown => "–".to_owned(),
            },
        ]);
    }
    table(&rows, Some(0))
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn candidate(at: usize, one: &Measured, report: &Report) -> String {
    let mut text = format!("<div class=\"card\"><h3>{}. {}</h3>\n", at + 1, escape(&one.candidate.name));
    text.push_str(&reasons(one));
    text.push_str("<div class=\"plots\">\n");
    let bytes: Vec<f64> = one.partitions.iter().map(|(_, bytes)| *bytes as f64).collect();
    text.push_str(&figure(
        "Bytes by partition",
        &svg::bars("Bytes by partition", &bytes, None, "bytes", "partition, in key order"),
    ));
    let seconds = one.prediction.seconds.max(1e-9);
    let load: Vec<f64> = one.prediction.partitions.iter().map(|units| units / seconds).collect();
    let share = f64::from(report.limits.share());
    text.push_str(&figure(
        "Request units per second by partition; the line is the budget of each",
        &svg::bars("Load by partition", &load, Some(share), "RU/s", "partition"),
    ));
    if one.heat.len() > 1 {
        let columns: Vec<Vec<f64>> =
            one.heat.iter().map(|row| row.iter().map(|count| f64::from(*count)).collect()).collect();
        let below = format!("{} windows of {}", one.heat.len(), duration(report.window_ms));
        let (first, last) = report
            .time
            .map_or_else(Default::default, |(first, last)| (moment::print(first), moment::print(last)));
        text.push_str(&figure(
            "Where items were written over time",
            &svg::heat("Heat over time", &columns, (&first, &last), &below),
        ));
    }
    text.push_str(&figure(
        "Where the replayed load goes",
        &svg::heat(
            "Heat of the replay",
            &one.prediction.timeline,
            ("0", &format!("{seconds:.0}")),
            "seconds",
        ),
    ));
    let points = |value: fn(&crate::growth::Stage) -> f64| {
        one.growth.iter().map(|stage| (stage.days, value(stage))).collect::<Vec<_>>()
    };
    let series = [
        Line { name: "partitions", points: points(|stage| stage.partitions as f64) },
        Line { name: "largest ÷ even share", points: points(|stage| stage.unevenness) },
    ];
    text.push_str(&figure("As the data grows", &svg::lines("Growth", &series, false, "", "days from now")));
    text.push_str("</div></div>\n");
    text
}

fn plans(report: &Report) -> String {
    let mut text = String::from("<div class=\"card\"><div class=\"plots\">\n");
    for plan in &report.plans {
        let needed = plan.plan.curve.iter().map(|point| (f64::from(point.suffixes), point.needed)).collect();
        let used = plan.plan.curve.iter().map(|point| (f64::from(point.suffixes), point.used)).collect();
        let series = [Line { name: "needed", points: needed }, Line { name: "used", points: used }];
        let by = plan.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let caption = format!(
            "{}{by}: request units per second by suffix count. {}",
            plan.base,
            plan_sentence(&plan.plan)
        );
        text.push_str(&figure(
            &caption,
            &svg::lines("Cost by suffix count", &series, true, "RU/s", "suffixes"),
        ));
    }
    text + "</div></div>\n"
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn duration(ms: i64) -> String {
    let seconds = ms as f64 / 1000.0;
    match seconds {
        s if s >= 86_400.0 => format!("{:.1} days", s / 86_400.0),
        s if s >= 3600.0 => format!("{:.1} hours", s / 3600.0),
        s if s >= 60.0 => format!("{:.1} minutes", s / 60.0),
        s => format!("{s:.0} seconds"),
    }
}
