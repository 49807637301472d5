//! Tests of the functions by table: published calls, edges, and arguments of every kind.

mod edges;
mod geography;
mod hostile;

use std::borrow::Cow;

use orrery_model::{Number, Object, Value, value};

use super::{Function, all, lookup};
use crate::context::{Context, Policies, Random};
use crate::error::EvalError;
use crate::operand::Operand;

/// 2026-01-02T03:04:05.678Z
const NOW_MS: i64 = 1_767_323_045_678;

/// Evaluates a call of values; `{"$word": …}` stands for undefined, NaN or an infinity.
fn call(name: &str, arguments: &[Value]) -> Result<Option<Value>, EvalError> {
    call_with(&Policies::default(), name, arguments)
}

fn call_with(policies: &Policies, name: &str, arguments: &[Value]) -> Result<Option<Value>, EvalError> {
    let random = Random::new(7);
    let context = Context::new(NOW_MS, &random, policies);
    evaluate(&context, name, arguments)
}

fn evaluate(context: &Context<'_>, name: &str, arguments: &[Value]) -> Result<Option<Value>, EvalError> {
    let function = lookup(name).unwrap_or_else(|| panic!("{name} is not in the tables"));
    assert!(function.arity.contains(&arguments.len()), "{name} takes {:?}", function.arity);
    let operands: Vec<Operand<'_>> =
        arguments.iter().map(|argument| read(context, argument).map(Cow::Owned)).collect();
    Ok((function.body)(context, &operands)?.map(Cow::into_owned))
}

fn read(context: &Context<'_>, argument: &Value) -> Option<Value> {
    match argument {
        Value::Object(object) => {
            if let Some(word) = object.get("$word") {
                return match word.as_str().unwrap() {
                    "undefined" => None,
                    "NaN" => Some(f64::NAN.into()),
                    "Infinity" => Some(f64::INFINITY.into()),
                    "-Infinity" => Some(f64::NEG_INFINITY.into()),
                    other => panic!("{other}"),
                };
            }
            if let Some(name) = object.get("$call") {
                let arguments = object.get("$args").unwrap().as_array().unwrap();
                return evaluate(context, name.as_str().unwrap(), arguments).unwrap();
            }
            let members =
                object.iter().filter_map(|(name, value)| Some((name.into(), read(context, value)?)));
            Some(Object::from_members(members.collect()).into())
        }
        Value::Array(items) => {
            Some(items.iter().filter_map(|item| read(context, item)).collect::<Vec<_>>().into())
        }
        other => Some(other.clone()),
    }
}

fn same(left: &Value, right: &Value, tolerance: f64) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) if tolerance > 0.0 => {
            let (left, right) = (left.as_f64(), right.as_f64());
            (left - right).abs() <= tolerance * right.abs().max(1.0)
        }
        (Value::Array(left), Value::Array(right)) if tolerance > 0.0 => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| same(left, right, tolerance))
        }
        _ => left == right,
    }
}

/// Calls of literals from the published cases: `query` is the text, `call` the same as values.
#[test]
fn published_calls() {
    let cases = value::parse(include_bytes!("calls.json")).unwrap();
    let mut failures = Vec::new();
    for case in cases.as_array().unwrap() {
        let text = case.get("query").unwrap().as_str().unwrap();
        let whole = case.get("call").unwrap();
        let arguments = whole.get("$args").unwrap().as_array().unwrap();
        let actual = call(whole.get("$call").unwrap().as_str().unwrap(), arguments).unwrap();
        let expected = case.get("expected").unwrap().as_array().unwrap().first();
        let tolerance = case.get("tolerance").and_then(Value::as_number).map_or(0.0, Number::as_f64);
        let agrees = match (&actual, expected) {
            (Some(actual), Some(expected)) => same(actual, expected, tolerance),
            (None, None) => true,
            _ => false,
        };
        if !agrees {
            failures.push(format!("{text}\n  expected {expected:?}\n  got {actual:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Calls a function with a JSON array of arguments and compares with JSON text or `undefined`.
fn check(name: &str, arguments: &str, expected: &str) {
    check_with(&Policies::default(), name, arguments, expected);
}

fn check_with(policies: &Policies, name: &str, arguments: &str, expected: &str) {
    let parsed = value::parse(arguments.replace("undefined", r#"{"$word":"undefined"}"#).as_bytes()).unwrap();
    let actual = call_with(policies, name, parsed.as_array().unwrap()).unwrap();
    let actual = actual.map_or_else(|| "undefined".to_owned(), |value| value.to_json());
    assert_eq!(actual, expected, "{name}{arguments}");
}

#[test]
fn names_are_unique_capitals_and_found_in_any_case() {
    let mut names: Vec<&str> = all().map(|function| function.name).collect();
    assert!(names.iter().all(|name| name.to_ascii_uppercase() == **name && name.len() <= 32));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for Function { name, .. } in all() {
        assert_eq!(lookup(&name.to_ascii_lowercase()).unwrap().name, *name);
    }
    for unknown in ["", "COALESCE", "RRF", "COUNT", "SÉLECT", "ABS ", &"A".repeat(1000)] {
        assert!(lookup(unknown).is_none(), "{unknown}");
    }
}

/// Every function is one of the documented ones; the list is the reference's, family by family.
#[test]
fn every_documented_function_is_there() {
    let documented = "ARRAY_CONCAT ARRAY_CONTAINS ARRAY_CONTAINS_ANY ARRAY_CONTAINS_ALL ARRAY_LENGTH ARRAY_SLICE \
        ARRAY_SUM ARRAY_AVG ARRAY_MEDIAN ARRAY_MIN ARRAY_MAX CHOOSE OBJECTTOARRAY SETINTERSECT SETUNION \
        SETDIFFERENCE SETEQUAL IIF DATETIMEADD DATETIMEBIN DATETIMEDIFF DATETIMEFORMAT DATETIMEFROMPARTS \
        DATETIMEPART YEAR MONTH DAY DATETIMETOTICKS DATETIMETOTIMESTAMP TICKSTODATETIME TIMESTAMPTODATETIME \
        GETCURRENTDATETIME GETCURRENTTIMESTAMP GETCURRENTTICKS GETCURRENTDATETIMESTATIC \
        GETCURRENTTIMESTAMPSTATIC GETCURRENTTICKSSTATIC NOW AGO IS_DATETIME FULLTEXTCONTAINS \
        FULLTEXTCONTAINSALL FULLTEXTCONTAINSANY FULLTEXTSCORE _FULLTEXTSCORE _FULLTEXTWORDCOUNT DOCUMENTID ABS \
        ACOS ASIN ATAN ATN2 CEILING FLOOR COS SIN TAN COT DEGREES RADIANS EXP LOG LOG10 NUMBERBIN PI POWER RAND \
        ROUND SIGN SQRT SQUARE TRUNC INTADD INTSUB INTMUL INTDIV INTMOD INTBITAND INTBITOR INTBITXOR INTBITNOT \
        INTBITLEFTSHIFT INTBITRIGHTSHIFT ST_AREA ST_DISTANCE ST_WITHIN ST_INTERSECTS ST_ISVALID \
        ST_ISVALIDDETAILED CONCAT CONTAINS CONTAINS_ANY_CI CONTAINS_ANY_CS CONTAINS_ALL_CI CONTAINS_ALL_CS \
        STARTSWITH ENDSWITH STRINGEQUALS INDEX_OF LASTINDEXOF LEFT RIGHT LENGTH LOWER UPPER LTRIM RTRIM TRIM \
        REGEXMATCH REPLACE REPLICATE REVERSE SUBSTRING STRINGJOIN STRINGSPLIT STRINGTOARRAY STRINGTOOBJECT \
        STRINGTOBOOLEAN STRINGTONULL STRINGTONUMBER TOSTRING IS_ARRAY IS_BOOL IS_NULL IS_NUMBER IS_OBJECT \
        IS_STRING IS_PRIMITIVE IS_DEFINED IS_FINITE_NUMBER IS_INTEGER VECTORDISTANCE";
    let documented: Vec<&str> = documented.split_whitespace().collect();
    for name in &documented {
        assert!(lookup(name).is_some(), "{name}");
    }
    let undocumented = "HASH REGEXEXTRACT REGEXEXTRACTALL REGEXREPLACE REGEXREPLACEALL SUBSTRINGBEFORE SUBSTRINGAFTER \
        LASTSUBSTRINGBEFORE LASTSUBSTRINGAFTER _COMPARE_BSON_BINARYDATA _COMPARE_OBJECTS _OBJECTTOARRAY \
        _PROXY_PROJECTION _REGEX_MATCH _ST_DISTANCE _ST_INTERSECTS _ST_WITHIN _TRY_ARRAY_CONTAINS";
    let undocumented: Vec<&str> = undocumented.split_whitespace().collect();
    for name in &undocumented {
        assert!(lookup(name).is_some(), "{name}");
    }
    // Those of the service's other interface, for MongoDB.
    let foreign = all().filter(|row| row.name.starts_with("_M_")).count();
    assert_eq!(all().count(), documented.len() + undocumented.len() + foreign);
}
