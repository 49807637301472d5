//! The test vectors shared by all implementations. `scripts/synthetic-vectors.py` generates them
//! independently of this crate.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;

use serde_json::{Value, json};
use synthetic_key::{Definition, Key, KeyError, murmur3};

fn vectors() -> (Value, HashMap<String, Definition>) {
    let vectors: Value = serde_json::from_str(include_str!("data/vectors.json")).unwrap();
    let definitions = vectors["definitions"].as_object().unwrap();
    let definitions = definitions.iter().map(|(name, source)| {
        let definition = Definition::from_json(source).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name.clone(), definition)
    });
    let definitions = definitions.collect();
    (vectors, definitions)
}

fn list<'v>(vectors: &'v Value, section: &str) -> &'v Vec<Value> {
    vectors[section].as_array().unwrap()
}

fn code(error: &KeyError) -> Value {
    json!({ "error": error.code() })
}

fn expected_error(vector: &Value) -> Value {
    json!({ "error": vector["error"] })
}

/// JSON numbers compare by value: 5 equals 5.0.
fn normal(value: &Value) -> Value {
    match value {
        Value::Array(values) => values.iter().map(normal).collect(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), normal(value))).collect(),
        Value::Number(number) => json!(number.as_f64()),
        other => other.clone(),
    }
}

#[test]
fn hashes() {
    for vector in list(&vectors().0, "hashes") {
        let hash = murmur3::x86_32(vector["text"].as_str().unwrap().as_bytes(), 0);
        assert_eq!(u64::from(hash), vector["hash"].as_u64().unwrap(), "{vector}");
    }
}

#[test]
fn keys() {
    let (vectors, definitions) = vectors();
    assert!(list(&vectors, "keys").len() >= 300);
    for vector in list(&vectors, "keys") {
        let definition = &definitions[vector["definition"].as_str().unwrap()];
        let draw = u32::try_from(vector["draw"].as_u64().unwrap_or(0)).unwrap();
        let found = definition.apply(&vector["item"], &mut |_: u32| draw);
        let is_error = vector.get("error").is_some();
        let expected =
            if is_error { expected_error(vector) } else { json!([vector["version"], vector["key"]]) };
        let found = match &found {
            Ok(key) => json!([key.version, key.to_json()]),
            Err(error) => code(error),
        };
        assert_eq!(normal(&found), normal(&expected), "{vector}");
    }
}

#[test]
fn reads() {
    let (vectors, definitions) = vectors();
    for vector in list(&vectors, "reads") {
        let definition = &definitions[vector["definition"].as_str().unwrap()];
        let found = match definition.keys_for(&vector["filter"]) {
            Ok(keys) => keys.iter().map(Key::to_json).collect(),
            Err(error) => code(&error),
        };
        let expected = if vector.get("error").is_some() {
            expected_error(vector)
        } else if let Some(prefix) = vector.get("prefix") {
            let (first, count) = (vector["first"].as_u64().unwrap(), vector["count"].as_u64().unwrap());
            (first..first + count)
                .map(|number| json!([format!("{}{number}", prefix.as_str().unwrap())]))
                .collect()
        } else {
            vector["keys"].clone()
        };
        assert_eq!(normal(&found), normal(&expected), "{vector}");
    }
}

#[test]
fn inserts() {
    let (vectors, definitions) = vectors();
    for vector in list(&vectors, "inserts") {
        let definition = &definitions[vector["definition"].as_str().unwrap()];
        let draw = u32::try_from(vector["draw"].as_u64().unwrap()).unwrap();
        let mut item = vector["item"].clone();
        match definition.insert_into(&mut item, &mut |_: u32| draw) {
            Ok(_) => assert_eq!(normal(&item), normal(&vector["result"]), "{vector}"),
            Err(error) => assert_eq!(code(&error), expected_error(vector), "{vector}"),
        }
    }
}

#[test]
fn invalid_definitions() {
    for source in list(&vectors().0, "invalid") {
        assert!(Definition::from_json(source).is_err(), "{source}");
    }
}
