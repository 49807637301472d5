//! What the test files share: reading data, running queries over rows in memory, comparing results.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod client;
pub mod merging;
pub mod naive;

use orrery_model::container::DistanceFunction;
use std::path::PathBuf;
use std::sync::Arc;

use orrery_model::{Number, Value, value};
use orrery_query::compile::{ComputedProperty, Settings};
use orrery_query::context::{Context, Policies, Random, UdfCaller};
use orrery_query::error::{EvalError, QueryError, errors_to_value};
use orrery_query::pipeline::{Options, Output, Pipeline, Row, Shape};
use orrery_query::{Program, check};

pub fn read(path: &str) -> Value {
    let full = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(path);
    let text = std::fs::read(&full).unwrap_or_else(|error| panic!("{}: {error}", full.display()));
    value::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", full.display()))
}

pub fn cases(path: &str) -> Vec<Value> {
    let file = read(path);
    let listed = file.get("cases").unwrap_or(&file);
    listed.as_array().unwrap().to_vec()
}

pub fn text<'v>(case: &'v Value, name: &str) -> &'v str {
    case.get(name).and_then(Value::as_str).unwrap_or("")
}

pub fn parameters(case: &Value) -> Vec<(String, Value)> {
    let listed = case.get("parameters").and_then(Value::as_array).unwrap_or(&[]);
    listed
        .iter()
        .map(|parameter| {
            (text(parameter, "name").to_owned(), parameter.get("value").cloned().unwrap_or_default())
        })
        .collect()
}

pub fn policies(case: &Value) -> Policies {
    let mut policies = Policies::default();
    let embeddings = case
        .get("vectorEmbeddingPolicy")
        .and_then(|policy| policy.get("vectorEmbeddings"))
        .or_else(|| case.get("vectorEmbeddings"))
        .and_then(Value::as_array)
        .unwrap_or(&[]);
    for embedding in embeddings {
        let function = DistanceFunction::parse(text(embedding, "distanceFunction")).unwrap();
        policies.vectors.push((text(embedding, "path").to_owned(), function));
    }
    if let Some(policy) = case.get("fullTextPolicy") {
        policies.default_language = policy.get("defaultLanguage").and_then(Value::as_str).map(str::to_owned);
        for path in policy.get("fullTextPaths").and_then(Value::as_array).unwrap_or(&[]) {
            policies.full_text.push((text(path, "path").to_owned(), text(path, "language").to_owned()));
        }
    }
    policies.planar_geometry = text(case, "geospatialType") == "Geometry";
    policies
}

pub fn computed(case: &Value) -> Vec<ComputedProperty> {
    let listed = case.get("computedProperties").and_then(Value::as_array).unwrap_or(&[]);
    listed
        .iter()
        .map(|property| ComputedProperty::parse(text(property, "name"), text(property, "query")).unwrap())
        .collect()
}

/// How a query can fail.
#[derive(Debug)]
pub enum Failure {
    Query(Vec<QueryError>),
    Eval(EvalError),
}

impl Failure {
    pub fn message(&self) -> String {
        match self {
            Self::Query(errors) => errors_to_value(errors).to_json(),
            Self::Eval(error) => error.to_string(),
        }
    }
}

/// Everything around a query but its text and rows.
pub struct Setup<'s> {
    pub parameters: Vec<(String, Value)>,
    pub computed: Vec<ComputedProperty>,
    pub policies: Policies,
    pub udf: Option<&'s dyn UdfCaller>,
}

impl Setup<'static> {
    pub fn of(case: &Value) -> Self {
        Self { parameters: parameters(case), computed: computed(case), policies: policies(case), udf: None }
    }
}

/// 2026-01-01.
pub const NOW_MS: i64 = 1_767_225_600_000;

pub fn compile(query: &str, setup: &Setup<'_>) -> Result<Arc<Program>, Failure> {
    let query = check::parse(query).map_err(Failure::Query)?;
    let settings =
        Settings { parameters: &setup.parameters, computed: &setup.computed, policies: &setup.policies };
    Program::compile(&query, settings).map(Arc::new).map_err(Failure::Query)
}

pub fn run_with(
    query: &str,
    rows: &[Value],
    setup: &Setup<'_>,
    options: Options,
) -> Result<Vec<Output>, Failure> {
    let program = compile(query, setup)?;
    let random = Random::new(7);
    let mut context = Context::new(NOW_MS, &random, &setup.policies);
    if let Some(udf) = setup.udf {
        context = context.with_udf(udf);
    }
    // What reads no documents runs once.
    let rows = if program.shape() == Shape::Once { &[] } else { rows };
    let mut pipeline = Pipeline::new(program, options);
    for (ordinal, document) in rows.iter().enumerate() {
        if pipeline.is_done() {
            break;
        }
        pipeline
            .feed(Row { document, ordinal: ordinal as u64, text_bytes: 0 }, &context)
            .map_err(Failure::Eval)?;
    }
    pipeline.finish(&context).map_err(Failure::Eval)?;
    Ok(pipeline.take())
}

pub fn run(query: &str, rows: &[Value], setup: &Setup<'_>) -> Result<Vec<Value>, Failure> {
    let outputs = run_with(query, rows, setup, Options::default())?;
    Ok(outputs.into_iter().map(|output| output.value).collect())
}

/// Equality with a relative tolerance for numbers; named columns are compared as multisets.
pub fn same(left: &Value, right: &Value, tolerance: f64, unordered: &[&str]) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (Number::as_f64(*a), Number::as_f64(*b));
            left == right
                || (a - b).abs() <= tolerance * a.abs().max(b.abs())
                || (tolerance > 0.0 && (a - b).abs() < 1e-12)
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, tolerance, unordered))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, value)| {
                    b.get(name).is_some_and(|other| match (value, other) {
                        (Value::Array(a), Value::Array(b)) if unordered.contains(&name) => {
                            same_multiset(a, b, tolerance, unordered)
                        }
                        _ => same(value, other, tolerance, unordered),
                    })
                })
        }
        _ => left == right,
    }
}

pub fn same_multiset(left: &[Value], right: &[Value], tolerance: f64, unordered: &[&str]) -> bool {
    let mut rest: Vec<&Value> = right.iter().collect();
    left.len() == right.len()
        && left.iter().all(|value| {
            let found = rest.iter().position(|other| same(value, other, tolerance, unordered));
            found.map(|place| rest.swap_remove(place)).is_some()
        })
}

pub fn same_rows(left: &[Value], right: &[Value], ordered: bool, tolerance: f64, unordered: &[&str]) -> bool {
    if ordered {
        left.len() == right.len() && left.iter().zip(right).all(|(a, b)| same(a, b, tolerance, unordered))
    } else {
        same_multiset(left, right, tolerance, unordered)
    }
}

pub fn json(values: &[Value]) -> String {
    Value::Array(values.to_vec()).to_json()
}
