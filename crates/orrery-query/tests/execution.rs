//! What is planned is executed: every query of the planner's vectors, over one partition and over several, with the rows
//! that a plain evaluation of its tree gives.
#![allow(clippy::unwrap_used, clippy::pedantic, reason = "tests may be blunt")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::client::{Partitions, run_planned};
use common::naive::{self, Naive, Stop};
use common::{Failure, NOW_MS, Setup, compile, json, parameters, policies, run, same, same_multiset, text};
use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::{Value, value};
use orrery_query::ast::Query;
use orrery_query::check;
use orrery_query::context::{Context, Random};
use orrery_query::pipeline::Shape;
use orrery_query::plan::{Features, PlanInfo, PlanRequest, plan};

const VECTORS: [&str; 5] = [
    include_str!("data/planner-common.jsonl"),
    include_str!("data/planner-folding.jsonl"),
    include_str!("data/planner-language.jsonl"),
    include_str!("data/planner-shapes.jsonl"),
    include_str!("data/planner-unusual.jsonl"),
];

/// Small documents with the names that the vectors use, of every type and often missing.
fn documents(names: &[&str], count: usize) -> Vec<Value> {
    let values = [
        "1",
        "2",
        "5",
        "-1",
        "1.5",
        "0",
        "\"a\"",
        "\"b\"",
        "\"ab\"",
        "\"\"",
        "\"x y\"",
        "true",
        "false",
        "null",
        "[]",
        "[1,2]",
        "[\"a\",1,null]",
        "[{\"n\":1,\"tags\":[1]},{\"n\":2}]",
        "{}",
        "{\"x\":1,\"k\":1}",
        "{\"y\":{\"z\":2}}",
        "{\"v\":5,\"a\":[3]}",
        "\"2024-05-06T07:08:09Z\"",
    ];
    let random = Random::new(11);
    let below = |count: usize| (random.next() * count as f64) as usize;
    (0..count)
        .map(|number| {
            // As in the partitions.
            let mut members = vec![format!(r#""_rid":"rid-{number:06}""#)];
            members.push(format!(r#""id":"{}""#, ["a", "b", "x", "1"][number % 4]));
            members.push(format!(r#""pk":{}"#, ["1", "5", "\"a\"", "\"x\"", "true", "null"][below(6)]));
            for name in names {
                if below(4) > 0 {
                    members.push(format!("{name:?}:{}", values[below(values.len())]));
                }
            }
            members.push(format!(r#""tags":[{number},"a",{}]"#, values[below(values.len())]));
            value::parse(format!("{{{}}}", members.join(",")).as_bytes()).unwrap()
        })
        .collect()
}

const NAMES: [&str; 21] = [
    "a",
    "b",
    "n",
    "x",
    "name",
    "type",
    "price",
    "qty",
    "address",
    "meta",
    "items",
    "arr",
    "deep",
    "key",
    "odd name",
    "last name",
    "list",
    "v",
    "k",
    "_ts",
    "c",
];

#[derive(Default)]
struct Tally {
    /// Queries whose rows were compared with those of the plain evaluation.
    evaluated: usize,
    /// Queries that were run over several partitions.
    merged: usize,
    /// Queries that are refused when they are run, by reason.
    refused: std::collections::BTreeMap<String, usize>,
    failures: Vec<String>,
}

fn is_cut(query: &Query) -> bool {
    query.select.top.is_some() || query.offset_limit.is_some()
}

/// The order of rows without ORDER BY is free; so is that of rows that sort alike, and what a cut leaves of them.
fn agree(query: &Query, found: &[Value], expected: &[Value]) -> bool {
    if is_cut(query) {
        return found.len() <= expected.len()
            && found.iter().all(|row| expected.iter().any(|other| same(row, other, 1e-12, &[])));
    }
    same_multiset(found, expected, 1e-12, &[])
}

/// Lists that collect rows come in the order of the rows, which is free.
fn collects_lists(text: &str) -> bool {
    let text = text.to_ascii_uppercase();
    text.contains("MAKELIST") || text.contains("MAKESET")
}

fn examine(case: &Value, documents: &[Value], parts: &[Partitions; 2], tally: &mut Tally) {
    let query = text(case, "query");
    // The functions of the vectors exist nowhere, and random numbers are not the same twice.
    if query.contains("udf.") || query.contains("RAND(") {
        return;
    }
    let setup =
        Setup { parameters: parameters(case), computed: Vec::new(), policies: policies(case), udf: None };
    let parsed = check::parse_with(query, &setup.parameters).unwrap();
    let fails = |tally: &mut Tally, what: &str, found: &[Value], expected: &[Value]| {
        tally.failures.push(format!(
            "{query}\n    {what}: {}\n    instead of {}",
            json(found),
            json(expected)
        ));
    };
    let whole = match run(query, documents, &setup) {
        Ok(rows) => rows,
        Err(failure) => {
            let reason = match &failure {
                Failure::Query(errors) => errors[0].message.clone(),
                Failure::Eval(error) => error.to_string(),
            };
            *tally.refused.entry(reason).or_default() += 1;
            return;
        }
    };
    let random = Random::new(7);
    let context = Context::new(NOW_MS, &random, &setup.policies);
    let naive = Naive { documents, parameters: &setup.parameters, context: &context };
    match naive.run(&parsed) {
        Ok(expected) => {
            tally.evaluated += 1;
            let same = if collects_lists(query) {
                whole.len() == expected.len() || is_cut(&parsed)
            } else {
                agree(&parsed, &whole, &expected)
            };
            if !same {
                fails(tally, "gave", &whole, &expected);
            }
        }
        Err(Stop::Unknown) => {}
        Err(stop) => tally.failures.push(format!("{query}\n    has rows, but {stop:?}")),
    }
    let definition = PartitionKeyDefinition::with_paths(&["/pk"]).unwrap();
    let request = PlanRequest {
        parameters: &setup.parameters,
        definition: Some(&definition),
        policies: &setup.policies,
        computed: &[],
        features: Features::ALL,
    };
    let planned = plan(query, request).unwrap();
    // Where the text alone gives rows, or an aggregate in ORDER BY makes one of all, each range gives its own.
    let mut sorted = parsed.order_by.iter().flat_map(|order_by| &order_by.items);
    let one_row_each = sorted.any(|item| naive::has_aggregate(&item.expr));
    let reads_documents = compile(query, &setup).is_ok_and(|program| program.shape() != Shape::Once);
    if one_row_each || !reads_documents {
        return;
    }
    match &planned.info {
        // What collects rows of all documents first is merged by the server alone.
        PlanInfo::Query(info) if info.requires_extended_plan => return,
        // The scores of documents without texts and vectors are all alike; `merge.rs` has those that differ.
        PlanInfo::Hybrid(_) => return,
        PlanInfo::Query(_) => {}
    }
    for parts in parts {
        let merged = catch_unwind(AssertUnwindSafe(|| run_planned(query, parts, &setup)));
        let rows = match merged {
            Ok(Ok(rows)) => rows,
            Ok(Err(failure)) => {
                tally.failures.push(format!("{query}\n    merging fails: {}", failure.message()));
                continue;
            }
            Err(_) => {
                tally.failures.push(format!("{query}\n    its rows cannot be merged"));
                continue;
            }
        };
        tally.merged += 1;
        let same = if is_cut(&parsed) || collects_lists(query) {
            rows.len() == whole.len()
        } else {
            agree(&parsed, &rows, &whole)
        };
        if !same {
            fails(tally, "merged", &rows, &whole);
        }
    }
}

#[test]
fn planned_queries_give_the_same_rows_everywhere() {
    let documents = documents(&NAMES, 14);
    let parts = [Partitions::new(&documents, "pk", 1), Partitions::new(&documents, "pk", 3)];
    let mut tally = Tally::default();
    for case in VECTORS.iter().flat_map(|file| file.lines()) {
        let case = value::parse(case.as_bytes()).unwrap();
        if case.get("plan").is_some() || case.get("hybrid").is_some() {
            examine(&case, &documents, &parts, &mut tally);
        }
    }
    assert!(
        tally.failures.is_empty(),
        "{} failures:\n{}",
        tally.failures.len(),
        tally.failures[..tally.failures.len().min(20)].join("\n")
    );
    // What is planned and not evaluated says why.
    let known = |reason: &str| {
        reason.contains("is not documented by the service")
            || reason.contains("cannot be represented in JSON")
            // In docs/COMPAT.md.
            || reason.contains("are supported in the outermost FROM subquery only")
            // The service finds that out when it has the rows.
            || reason.contains("cardinality of a scalar subquery result set cannot be greater than one")
            || reason.starts_with("Unsupported ORDER BY clause")
    };
    let unknown: Vec<&String> = tally.refused.keys().filter(|reason| !known(reason)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(tally.refused.values().sum::<usize>() < 100, "{:?}", tally.refused);
    assert!(tally.evaluated > 5_300 && tally.merged > 10_300, "{} {}", tally.evaluated, tally.merged);
}
