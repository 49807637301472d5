//! Queries with the answers of the service's own planner (Microsoft.Azure.Cosmos 3.64.0, asked in November 2026).
//!
//! One JSON object a line: the query, its parameters and partition key, and either the first error (code, message,
//! place) or the plan: every member that is not empty, and whether all ranges are asked, none, or how many.
#![allow(clippy::unwrap_used, clippy::pedantic, reason = "tests may be blunt")]

mod common;

use common::{parameters, policies, text};
use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::{Object, Value, value};
use orrery_query::error::{Code, QueryError};
use orrery_query::plan::{Features, Plan, PlanRequest, plan};

fn planned(case: &Value) -> Result<Plan, Vec<QueryError>> {
    let mut key = Object::new();
    key.set("paths", case.get("pk").cloned().unwrap());
    key.set("kind", case.get("pkKind").cloned().unwrap_or_else(|| "Hash".into()));
    key.set("version", 2.into());
    let definition = PartitionKeyDefinition::parse(&key.into()).unwrap();
    let request = PlanRequest {
        parameters: &parameters(case),
        definition: Some(&definition),
        policies: &policies(case),
        computed: &[],
        features: Features::ALL,
    };
    plan(text(case, "query"), request)
}

/// The members that say something: null, false, 0 and what is empty say nothing, and true is 1.
fn bare(value: &Value) -> Value {
    match value {
        Value::Bool(flag) => Value::from(i64::from(*flag)),
        Value::Array(items) => items.iter().map(bare).collect::<Vec<_>>().into(),
        Value::Object(object) => {
            let mut kept = Object::new();
            for (name, value) in object.iter() {
                let value = bare(value);
                if !says_nothing(&value) {
                    kept.set(name, value);
                }
            }
            kept.into()
        }
        other => other.clone(),
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == 0.0,
        Value::Array(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(_) => false,
    }
}

fn difference(case: &Value) -> Option<String> {
    let answer = planned(case);
    if let Some(expected) = case.get("error") {
        let Err(errors) = answer else { return Some("accepted".into()) };
        let error = &errors[0];
        let code = match error.code {
            Code::Sc(code) => format!("SC{code:04}").as_str().into(),
            Code::Number(code) => Value::from(i64::from(code)),
            Code::None => Value::Null,
        };
        let mut found = Object::new();
        found.set("code", code);
        if let Some(place) = error.location {
            found.set("start", i64::from(place.start).into());
            found.set("end", i64::from(place.end).into());
        }
        found.set("message", error.message.as_str().into());
        let found = Value::from(found);
        // A place is compared where the service gives one.
        let same = ["code", "start", "end", "message"].iter().all(|name| match expected.get(name) {
            Some(wanted) => found.get(name) == Some(wanted),
            None => *name != "code" || found.get(name) == Some(&Value::Null),
        });
        return (!same).then(|| format!("{} instead of {}", found.to_json(), expected.to_json()));
    }
    let plan = match answer {
        Ok(plan) => plan.to_value(),
        Err(errors) => return Some(format!("refused: {}", errors[0])),
    };
    let none = Value::from(Object::new());
    for (ours, theirs) in [("queryInfo", "plan"), ("hybridSearchQueryInfo", "hybrid")] {
        let found = bare(plan.get(ours).filter(|info| info.as_object().is_some()).unwrap_or(&none));
        let expected = bare(case.get(theirs).unwrap_or(&none));
        let names = found.as_object().into_iter().chain(expected.as_object()).flat_map(|info| info.iter());
        for (name, _) in names.collect::<Vec<_>>() {
            let is_none = |value: Option<&Value>| {
                matches!(value, None | Some(Value::Null)) || value == Some(&"None".into())
            };
            let (a, b) = (found.get(name), expected.get(name));
            if a != b && !(is_none(a) && is_none(b)) {
                let text = |value: Option<&Value>| value.map_or("nothing".into(), Value::to_json);
                return Some(format!("{name}: {} instead of {}", text(a), text(b)));
            }
        }
    }
    let ranges = plan.get("queryRanges").unwrap().as_array().unwrap();
    let found: Value = match ranges {
        [range] if text(range, "min").is_empty() => {
            if text(range, "max") == "FF" { "all" } else { "none" }.into()
        }
        ranges => i64::try_from(ranges.len()).unwrap().into(),
    };
    (Some(&found) != case.get("ranges"))
        .then(|| format!("ranges {} instead of {}", found.to_json(), case.get("ranges").unwrap().to_json()))
}

fn agrees(file: &str, count: usize) {
    let mut failed = Vec::new();
    let mut total = 0;
    for line in file.lines() {
        let case = value::parse(line.as_bytes()).unwrap();
        total += 1;
        if let Some(difference) = difference(&case) {
            failed.push(format!("{}\n    {difference}", text(&case, "query")));
        }
    }
    assert_eq!(total, count);
    assert!(
        failed.is_empty(),
        "{} of {total} differ:\n{}",
        failed.len(),
        failed[..failed.len().min(20)].join("\n")
    );
}

#[test]
fn common_queries_are_planned_as_by_the_service() {
    agrees(include_str!("data/planner-common.jsonl"), 3_600);
}

#[test]
fn unusual_queries_are_planned_as_by_the_service() {
    agrees(include_str!("data/planner-unusual.jsonl"), 1_700);
}

/// Constant conditions, contradictions between parts of a value, sources of one row, distances, and the functions of
/// the service's interface for MongoDB.
#[test]
fn constants_are_folded_like_the_service() {
    agrees(include_str!("data/planner-folding.jsonl"), 480);
}

/// What object mappers write, filters on keys, groups, types, scopes, search, broken texts, and one query for each error.
#[test]
fn queries_of_other_shapes_are_planned_as_by_the_service() {
    agrees(include_str!("data/planner-shapes.jsonl"), 2_965);
}

/// Subqueries over one row, FROM subqueries in each other, operators, spellings, and every function.
#[test]
fn the_whole_language_is_planned_as_by_the_service() {
    agrees(include_str!("data/planner-language.jsonl"), 1_460);
}

/// What the planner now accepts is also answered.
#[test]
fn planned_queries_can_be_executed() {
    let documents: Vec<Value> = (0..8)
        .map(|n| {
            let text = format!(r#"{{"id":"{n}","a":{},"b":{n},"tags":[{n},{}]}}"#, n % 4, n + 1);
            value::parse(text.as_bytes()).unwrap()
        })
        .collect();
    let setup = common::Setup::of(&Object::new().into());
    for (query, expected) in [
        ("SELECT VALUE c.a FROM c GROUP BY c.a ORDER BY c.a DESC", "[3,2,1,0]"),
        ("SELECT VALUE c.a FROM c GROUP BY c.a ORDER BY c.a OFFSET 1 LIMIT 2", "[1,2]"),
        (
            "SELECT VALUE [c.a, COUNT(1)] FROM c WHERE c.b > 4 GROUP BY c.a ORDER BY c.a",
            "[[1,1],[2,1],[3,1]]",
        ),
        ("SELECT VALUE (LET x = c.b * 2 IN x + 1) FROM c WHERE c.id = '3'", "[7]"),
        ("SELECT VALUE SUM((SELECT VALUE MAX(t) FROM t IN c.tags)) FROM c", "[36]"),
        ("SELECT VALUE COUNT(1) FROM c ORDER BY COUNT(1)", "[8]"),
        ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.a FROM c) s", "[4]"),
        ("SELECT VALUE ARRAY(SELECT VALUE c.b WHERE MAX(c.a) = 3) FROM c WHERE c.b > 5", "[[],[7]]"),
        (
            "SELECT VALUE (SELECT MAX(t), COUNT(1) AS n, t AS x FROM c.b AS t) FROM c WHERE c.b = 5",
            r#"[{"$1":5,"n":1,"x":5}]"#,
        ),
        (
            "SELECT VALUE (SELECT COUNT(1) AS n, t AS x FROM c.b AS t WHERE t > 9) FROM c WHERE c.b = 5",
            r#"[{"n":0}]"#,
        ),
        (
            "SELECT COUNT(1) AS n, t FROM (SELECT VALUE COUNT(1) FROM c) t WHERE MAX(t) > 1",
            r#"[{"n":1,"t":8}]"#,
        ),
        ("SELECT VALUE c.b FROM c ORDER BY (c.a > [] ? c.a : c.b) DESC OFFSET 0 LIMIT 3", "[7,6,5]"),
        (
            "SELECT VALUE c.b FROM c ORDER BY ST_DISTANCE({type: 'Point', coordinates: [c.b, 0]}, {type: 'Point', coordinates: [5, 0]}) OFFSET 0 LIMIT 1",
            "[5]",
        ),
        ("SELECT VALUE INDEX_OF('aNa', 'a', -1) FROM c WHERE c.id = '1'", "[-1]"),
        ("SELECT VALUE HASH(c.a, 1000) FROM c WHERE c.id = '1'", "[778]"),
        ("SELECT VALUE LastSubstringAfter('a-b-c', '-') FROM c WHERE c.id = '1'", r#"["c"]"#),
        ("SELECT VALUE DateTimePart('hh', '2021-06-15T08:00:00+02:00') FROM c WHERE c.id = '1'", "[6]"),
    ] {
        let rows =
            common::run(query, &documents, &setup).unwrap_or_else(|error| panic!("{query}: {error:?}"));
        assert_eq!(common::json(&rows), expected, "{query}");
    }
    // What nobody has documented is planned, and says so when it is evaluated.
    let error =
        common::run("SELECT VALUE RegexReplace('a', 'b', 'c') FROM c", &documents, &setup).unwrap_err();
    assert!(error.message().contains("not documented"), "{error:?}");
}
