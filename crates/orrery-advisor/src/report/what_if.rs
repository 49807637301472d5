//! Answers to what-if questions beside a report: what would be recommended, and what it and the report's own first choice
//! would need.

use serde_json::{Value, json};

use super::text::{columns, cut, line};
use crate::advise::Report;
use crate::measured::Measured;
use crate::rank::count;

/// A question and its answer.
pub(super) type Answer = (String, Report);

/// The first choice of an answer, unless nothing is recommended.
fn recommended(report: &Report) -> Option<&Measured> {
    report.measured.first().filter(|_| report.missing.is_empty())
}

/// The rows of the table of answers, the report itself first.
pub(super) fn rows(report: &Report, answers: &[Answer]) -> Vec<Vec<String>> {
    let titles = ["", "IF", "PARTS", "FIRST", "NEEDS", "SAME KEY"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    let own = report.measured.first().map(|one| one.candidate.name.clone()).unwrap_or_default();
    let unchanged = std::iter::once(("nothing changes", report));
    for (question, answer) in unchanged.chain(answers.iter().map(|(text, report)| (text.as_str(), report))) {
        let Some(first) = answer.measured.first() else { continue };
        let name =
            if recommended(answer).is_some() { cut(&first.candidate.name, 24) } else { "none".to_owned() };
        let here = answer.measured.iter().find(|one| one.candidate.name == own);
        rows.push(vec![
            String::new(),
            cut(question, 24),
            answer.limits.partition_count().to_string(),
            name,
            count(first.verdict.needed_now),
            here.map_or_else(|| "–".to_owned(), |one| count(one.verdict.needed_now)),
        ]);
    }
    rows
}

/// The table of answers; empty without questions.
pub fn what_if_text(report: &Report, answers: &[Answer]) -> String {
    let mut out = String::new();
    if answers.is_empty() {
        return out;
    }
    line(&mut out, "");
    line(&mut out, "What if");
    columns(&rows(report, answers), &mut out);
    line(&mut out, "NEEDS: RU/s that the first choice needs. SAME KEY: that this report's needs.");
    out
}

/// The answers as JSON.
pub fn what_if_json(answers: &[Answer]) -> Value {
    let answer = |(question, report): &Answer| {
        let candidate = |one: &Measured| {
            json!({
                "name": one.candidate.name,
                "neededThroughput": { "now": one.verdict.needed_now, "inAYear": one.verdict.needed_later },
                "hotFactor": one.prediction.hot_factor(),
                "throttledShare": one.prediction.throttled_share(),
                "tied": one.verdict.is_tied,
                "unfit": one.verdict.unfit,
            })
        };
        json!({
            "if": question,
            "throughput": report.limits.throughput,
            "partitions": report.limits.partition_count(),
            "itemsTotal": report.items_total,
            "recommended": recommended(report).map(|one| one.candidate.name.clone()),
            "missing": report.missing,
            "candidates": report.measured.iter().map(candidate).collect::<Vec<_>>(),
        })
    };
    answers.iter().map(answer).collect()
}
