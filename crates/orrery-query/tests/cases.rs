//! Every query case, run over one partition in memory.
#![allow(clippy::unwrap_used, clippy::pedantic, reason = "tests may be blunt")]

mod common;

use common::{Failure, Setup, json, read, run, same_rows, text};
use orrery_model::{Object, Value};
use orrery_query::ast::Direction;
use orrery_query::check::{self, indexes};
use orrery_query::context::UdfCaller;
use orrery_query::error::{EvalError, QueryError};

/// The two functions of the cases, in Rust: what is tested is the call, not JavaScript.
struct KnownFunctions;

impl UdfCaller for KnownFunctions {
    fn call(&self, name: &str, arguments: &[Value]) -> Result<Option<Value>, EvalError> {
        match name {
            "REGEX_MATCH" => {
                let (input, pattern) = (arguments[0].as_str().unwrap(), arguments[1].as_str().unwrap());
                let found = match pattern.strip_prefix('^') {
                    Some(prefix) => input.starts_with(prefix),
                    None => input.contains(pattern.trim_start_matches(".*")),
                };
                Ok(Some(found.into()))
            }
            "GetMaxNutritionValue" => {
                let nutrients = arguments[0].as_array().unwrap_or(&[]);
                let values =
                    nutrients.iter().filter_map(|nutrient| nutrient.get("nutritionValue")?.as_number());
                Ok(values.map(orrery_model::Number::as_f64).reduce(f64::max).map(Value::from))
            }
            _ => Err(EvalError::UdfFailed(format!("the function {name} does not exist"))),
        }
    }
}

fn composites(case: &Value) -> Vec<Vec<indexes::CompositePath>> {
    let listed = case.get("compositeIndexes").and_then(Value::as_array).unwrap_or(&[]);
    let path = |path: &Value| {
        let descending = text(path, "order").eq_ignore_ascii_case("descending");
        (text(path, "path").to_owned(), if descending { Direction::Descending } else { Direction::Ascending })
    };
    listed.iter().map(|index| index.as_array().unwrap().iter().map(path).collect()).collect()
}

fn evaluate(case: &Value, datasets: &Value) -> Result<Vec<Value>, Failure> {
    let documents = case.get("documents").or_else(|| datasets.get(text(case, "dataset")));
    let documents: Vec<Value> = documents.and_then(Value::as_array).unwrap_or(&[]).to_vec();
    let mut setup = Setup::of(case);
    setup.udf = Some(&KnownFunctions);
    let query = text(case, "query");
    if let Ok(parsed) = check::parse(query) {
        indexes::check_composite_order(&parsed, &composites(case))
            .map_err(|error: QueryError| Failure::Query(vec![error]))?;
    }
    run(query, &documents, &setup)
}

fn check_case(case: &Value, datasets: &Value) -> Result<(), String> {
    let result = evaluate(case, datasets);
    if let Some(expected) = case.get("error") {
        let failure = match result {
            Err(failure) => failure,
            Ok(rows) => return Err(format!("gave {} instead of an error", json(&rows))),
        };
        return check_failure(expected, &failure);
    }
    let rows = result.map_err(|failure| format!("failed: {}", failure.message()))?;
    let expected = case.get("expected").and_then(Value::as_array).unwrap();
    let ordered = case.get("ordered").and_then(Value::as_bool).unwrap();
    let tolerance =
        case.get("tolerance").and_then(Value::as_number).map_or(0.0, orrery_model::Number::as_f64);
    let unordered = case.get("unorderedArrays").and_then(Value::as_array).unwrap_or(&[]);
    let unordered: Vec<&str> = unordered.iter().filter_map(Value::as_str).collect();
    if same_rows(&rows, expected, ordered, tolerance, &unordered) {
        Ok(())
    } else {
        Err(format!("gave      {}\n    expected  {}", json(&rows), json(expected)))
    }
}

fn check_failure(expected: &Value, failure: &Failure) -> Result<(), String> {
    let message = failure.message();
    let parsed = orrery_model::value::parse(message.as_bytes()).unwrap_or_else(|_| Object::new().into());
    let errors = parsed.get("errors").and_then(Value::as_array).unwrap_or(&[]);
    if let Some(codes) = expected.get("codes").and_then(Value::as_array) {
        let found = errors.iter().any(|error| error.get("code").is_some_and(|code| codes.contains(code)));
        if !found {
            return Err(format!("has none of the codes: {message}"));
        }
    }
    let wanted = text(expected, "message");
    let all_text: String = errors
        .iter()
        .map(|error| text(error, "message").to_owned())
        .chain(
            parsed
                .get("Errors")
                .and_then(Value::as_array)
                .unwrap_or(&[])
                .iter()
                .filter_map(|error| error.as_str().map(str::to_owned)),
        )
        .chain(std::iter::once(message.clone()))
        .collect();
    if !all_text.contains(wanted) {
        return Err(format!("does not say so: {message}"));
    }
    if let Some(location) = expected.get("location")
        && !errors.iter().any(|error| error.get("location") == Some(location))
    {
        return Err(format!("is elsewhere: {message}"));
    }
    Ok(())
}

/// Runs the cases of one file. `ORRERY_CASE` limits them to those with this text in their name.
fn check_family(family: &str) {
    let datasets = read("cases/datasets.json");
    let wanted = std::env::var("ORRERY_CASE").unwrap_or_default();
    let mut failures = Vec::new();
    for case in common::cases(&format!("cases/{family}.json")) {
        let name = text(&case, "name");
        assert_eq!(text(&case, "family"), family, "{name}");
        if name.contains(&wanted)
            && let Err(reason) = check_case(&case, &datasets)
        {
            failures.push(format!("{name}\n    {}\n    {reason}", text(&case, "query")));
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

include!("cases/families.rs");

macro_rules! tests {
    ($($name:ident: $file:literal,)*) => {
        $(
            #[test]
            fn $name() {
                check_family($file);
            }
        )*

        /// No file is left out.
        #[test]
        fn every_file_has_a_test() {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
            let mut files: Vec<String> = std::fs::read_dir(folder)
                .unwrap()
                .filter_map(|file| file.unwrap().file_name().to_str()?.strip_suffix(".json").map(str::to_owned))
                .filter(|name| name != "datasets")
                .collect();
            files.sort();
            assert_eq!(files, [$($file),*]);
        }
    };
}

with_case_families!(tests);
