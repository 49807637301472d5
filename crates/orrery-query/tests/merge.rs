//! The merge that clients do: planned execution over four partitions gives what one gives.
#![allow(clippy::unwrap_used, clippy::pedantic, reason = "tests may be blunt")]

mod common;

use common::client::{Partitions, run_planned};
use common::{Failure, Setup, cases, json, read, run, same_multiset, same_rows, text};
use orrery_model::{Object, Value};
use orrery_query::check;

const FAMILIES: [&str; 30] = [
    "aggregate",
    "array",
    "bitwise",
    "computed",
    "conditional",
    "datetime",
    "distinct",
    "error",
    "from",
    "fulltext",
    "groupby",
    "join",
    "lexical",
    "like",
    "math",
    "offsetlimit",
    "operator",
    "orderby",
    "parameter",
    "scalar",
    "select",
    "spatial",
    "string",
    "subquery",
    "syntax",
    "top",
    "typecheck",
    "udf",
    "vector",
    "where",
];

const COMPOSITION: &str = "Compositions of aggregates";

fn strip_rids(rows: Vec<Value>) -> Vec<Value> {
    let strip = |mut row: Value| {
        if let Some(object) = row.as_object_mut() {
            object.remove("_rid");
        }
        row
    };
    rows.into_iter().map(strip).collect()
}

#[test]
fn cases_pass_across_partitions() {
    let datasets = read("cases/datasets.json");
    let (mut compared, mut refused, mut udf, mut errors) = (0, 0, 0, 0);
    let mut failures = Vec::new();
    for family in FAMILIES {
        for case in cases(&format!("cases/{family}.json")) {
            let query = text(&case, "query");
            let Some(expected) = case.get("expected").and_then(Value::as_array) else {
                errors += 1;
                continue;
            };
            if case.get("udfs").is_some() {
                udf += 1;
                continue;
            }
            let documents = case.get("documents").or_else(|| datasets.get(text(&case, "dataset")));
            let partitions = Partitions::new(documents.and_then(Value::as_array).unwrap_or(&[]), "id", 4);
            let rows = match run_planned(query, &partitions, &Setup::of(&case)) {
                Ok(rows) => strip_rids(rows),
                Err(Failure::Query(errors)) if errors[0].message.starts_with(COMPOSITION) => {
                    refused += 1;
                    continue;
                }
                Err(failure) => {
                    failures.push(format!("{family}: {query}\n    failed: {}", failure.message()));
                    continue;
                }
            };
            let parsed = check::parse(query).unwrap();
            let sorted = parsed.order_by.is_some();
            let cut = parsed.select.top.is_some() || parsed.offset_limit.is_some();
            let tolerance = case
                .get("tolerance")
                .and_then(Value::as_number)
                .map_or(1e-14, |number| number.as_f64().max(1e-14));
            let unordered = case.get("unorderedArrays").and_then(Value::as_array).unwrap_or(&[]);
            let unordered: Vec<&str> = unordered.iter().filter_map(Value::as_str).collect();
            // Without an order, rows come partition by partition, and a cut takes any of them.
            let holds = if cut && !sorted {
                rows.len() == expected.len()
            } else {
                let ordered = sorted && case.get("ordered").and_then(Value::as_bool).unwrap();
                same_rows(&rows, expected, ordered, tolerance, &unordered)
            };
            compared += 1;
            if !holds {
                failures.push(format!(
                    "{family}: {query}\n    gave     {}\n    expected {}",
                    json(&rows),
                    json(expected)
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    assert_eq!((compared, refused, udf, errors), (1124, 1, 4, 59));
}

#[test]
fn recorded_scenarios_hold() {
    let cases = cases("data/query-results.json");
    assert_eq!(cases.len(), 29);
    for case in &cases {
        let query = text(case, "query");
        let documents = case.get("documents").and_then(Value::as_array).unwrap();
        let setup = Setup::of(&Object::new().into());
        let partitions = Partitions::new(documents, "pk", 4);
        for rows in [
            run(query, documents, &setup).unwrap(),
            strip_rids(run_planned(query, &partitions, &setup).unwrap()),
        ] {
            check_scenario(case, &rows);
        }
    }
}

fn check_scenario(case: &Value, rows: &[Value]) {
    let query = text(case, "query");
    let assertion = text(case, "assertion");
    if let Some(count) = case.get("expectedCount").and_then(Value::as_i64) {
        assert_eq!(rows.len() as i64, count, "{query}");
    }
    let ordered = assertion == "exactOrdered" || (assertion.is_empty() && query.contains("ORDER BY"));
    if let Some(expected) = case.get("expectedValues").and_then(Value::as_array) {
        assert!(same_rows(rows, expected, ordered, 0.0, &[]), "{query}: {}", json(rows));
    }
    if let Some(expected) = case.get("expectedIds").and_then(Value::as_array) {
        let ids: Vec<Value> = rows.iter().map(|row| row.get("id").unwrap().clone()).collect();
        assert!(same_rows(&ids, expected, ordered, 0.0, &[]), "{query}: {}", json(&ids));
    }
}

#[test]
fn recorded_groups_hold() {
    let documents = read("data/group-by-documents.json");
    let documents = documents.as_array().unwrap();
    let setup = Setup::of(&Object::new().into());
    let partitions = Partitions::new(documents, "id", 4);
    let cases = cases("data/group-by-results.json");
    assert_eq!(cases.len(), 21);
    for case in &cases {
        let query = text(case, "query");
        let expected = case.get("results").and_then(Value::as_array).unwrap();
        for rows in [run(query, documents, &setup).unwrap(), run_planned(query, &partitions, &setup).unwrap()]
        {
            assert!(
                same_multiset(&rows, expected, 1e-14, &[]),
                "{query}: {} {}",
                json(&rows),
                json(expected)
            );
        }
    }
}

/// Ranking inside the server and ranking by a client agree.
#[test]
fn fused_ranking_is_the_same_on_client_and_server() {
    let texts = [
        "a red bicycle on a mountain road",
        "swimming and running",
        "mountain bicycle race, bicycle repair",
        "nothing of interest here",
        "red mountain",
        "the bicycle thief",
    ];
    let documents: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(number, text)| {
            let mut document = Object::new();
            document.set("id", number.to_string().into());
            document.set("text", (*text).into());
            document.set("v", vec![Value::from(number as f64), Value::from(1.0)].into());
            document.into()
        })
        .chain(std::iter::once(orrery_model::value::parse(br#"{"id":"x","text":5}"#).unwrap()))
        .collect();
    let setup = Setup::of(&Object::new().into());
    let partitions = Partitions::new(&documents, "id", 4);
    for rank in [
        "FullTextScore(c.text, 'bicycle')",
        "FullTextScore(c.text, 'bicycle', 'mountain')",
        "RRF(FullTextScore(c.text, 'bicycle'), VectorDistance(c.v, [1, 0]))",
        "RRF(FullTextScore(c.text, 'red'), FullTextScore(c.text, 'mountain'), [3, 1])",
    ] {
        for window in ["TOP 3", "TOP 7"] {
            let query = format!("SELECT {window} c.id FROM c ORDER BY RANK {rank}");
            let here = run(&query, &documents, &setup).unwrap();
            let there = run_planned(&query, &partitions, &setup).unwrap();
            assert_eq!(json(&here), json(&there), "{query}");
        }
    }
    // Whoever has the word comes before whoever does not, and all are there.
    let all =
        run("SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'bicycle')", &documents, &setup)
            .unwrap();
    assert_eq!(all.len(), 7);
    let mut first: Vec<&str> = all[..3].iter().map(|id| id.as_str().unwrap()).collect();
    first.sort_unstable();
    assert_eq!(first, ["0", "2", "5"]);
}
