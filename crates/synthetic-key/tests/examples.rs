//! The examples of the service's documentation of synthetic partition keys, computed by hand, and related
//! behaviour.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};
use std::collections::HashSet;
use synthetic_key::{Definition, Fixed, KeyError, Seeded, murmur3};

fn define(definition: &Value) -> Definition {
    Definition::from_json(definition).unwrap()
}

fn random_dates() -> Definition {
    define(&json!({ "format": 1, "kind": "randomSuffix", "parts": ["/date"], "suffix": { "count": 400 } }))
}

fn vehicles(count: u32) -> Value {
    json!({ "kind": "precalculatedSuffix", "parts": ["/date"], "suffix": { "of": ["/VIN"], "count": count } })
}

#[test]
fn device_and_year_are_concatenated() {
    let definition = define(&json!({ "format": 1, "kind": "concatenate", "parts": ["/deviceId", "/date"] }));
    let mut item = json!({ "deviceId": "abc-123", "date": 2018 });
    let key = definition.insert_into(&mut item, &mut Fixed(0)).unwrap();
    assert_eq!(key.as_text(), Some("abc-123-2018"));
    assert_eq!(item, json!({ "deviceId": "abc-123", "date": 2018, "partitionKey": "abc-123-2018" }));
}

#[test]
fn dates_get_random_suffixes_of_1_to_400_evenly() {
    let definition = random_dates();
    let item = json!({ "date": "2018-08-09" });
    let wanted: HashSet<String> = (1..=400).map(|number| format!("2018-08-09.{number}")).collect();
    let mut drawn: std::collections::HashMap<String, u32> = std::collections::HashMap::new();
    let mut random = Seeded::new(7);
    for _ in 0..200_000 {
        let key = definition.apply(&item, &mut random).unwrap();
        *drawn.entry(key.as_text().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(drawn.keys().cloned().collect::<HashSet<_>>(), wanted);
    // 500 of each are expected; more than 6 standard deviations (134) cannot be chance.
    assert!(drawn.values().all(|count| (366..=634).contains(count)), "{drawn:?}");
    let keys = definition.keys_for(&item).unwrap();
    assert_eq!(keys.len(), 400);
    assert_eq!(keys.iter().map(|key| key.as_text().unwrap().to_owned()).collect::<HashSet<_>>(), wanted);
}

#[test]
fn the_suffix_of_a_vehicle_is_reproducible() {
    let mut definition = vehicles(400);
    definition["format"] = json!(1);
    let definition = define(&definition);
    let item = json!({ "date": "2018-08-09", "VIN": "1HGCM82633A004352" });
    let suffix = 1 + murmur3::x86_32(b"1HGCM82633A004352", 0) % 400;
    let key = definition.apply(&item, &mut Fixed(0)).unwrap();
    assert_eq!(key.as_text(), Some(format!("2018-08-09.{suffix}").as_str()));
    assert_eq!(definition.keys_for(&item).unwrap(), [key]);
    assert_eq!(definition.keys_for(&json!({ "date": "2018-08-09" })).unwrap().len(), 400);
    let error = definition.keys_for(&json!({ "VIN": "1HGCM82633A004352" })).unwrap_err();
    assert_eq!(error, KeyError::Undetermined { path: "/date".to_owned() });
}

#[test]
fn more_suffixes_are_a_new_version_and_reads_visit_both() {
    let (mut first, mut second) = (vehicles(400), vehicles(800));
    first["version"] = json!(1);
    second["version"] = json!(2);
    let mut source = json!({ "format": 1, "versionProperty": "keyVersion", "versions": [first, second] });
    let definition = define(&source);
    let mut item = json!({ "date": "2018-08-09", "VIN": "WVWZZZ1JZXW000001" });
    let hash = murmur3::x86_32(b"WVWZZZ1JZXW000001", 0);
    let (old, new) = (format!("2018-08-09.{}", 1 + hash % 400), format!("2018-08-09.{}", 1 + hash % 800));
    let keys = definition.keys_for(&item).unwrap();
    let texts: Vec<&str> = keys.iter().map(|key| key.as_text().unwrap()).collect();
    assert_eq!(texts, if old == new { vec![&*new] } else { vec![&*new, &*old] });
    // An item written earlier keeps its key and gets its version recorded.
    item["partitionKey"] = json!(old);
    if old != new {
        assert_eq!(definition.insert_into(&mut item, &mut Fixed(0)).unwrap().version, 1);
        assert_eq!(item["keyVersion"], 1);
        assert_eq!(definition.keys_for(&item).unwrap().len(), 1);
    }
    source["versions"][0]["retired"] = json!(true);
    let filter = json!({ "date": "2018-08-09", "VIN": "WVWZZZ1JZXW000001" });
    assert_eq!(define(&source).keys_for(&filter).unwrap()[0].as_text(), Some(new.as_str()));
    assert_eq!(define(&source).keys_for(&filter).unwrap().len(), 1);
}

#[test]
fn a_renamed_property_is_found_under_all_its_names() {
    let mut first = vehicles(400);
    first["version"] = json!(1);
    let second = json!({
        "version": 2, "kind": "precalculatedSuffix", "parts": ["/date"],
        "suffix": { "of": [{ "path": "/vehicle/vin", "was": ["/VIN"] }], "count": 400 }
    });
    let definition = define(&json!({ "format": 1, "versions": [first, second] }));
    let old = json!({ "date": "2018-08-09", "VIN": "X1" });
    let new = json!({ "date": "2018-08-09", "vehicle": { "vin": "X1" } });
    let key = definition.apply(&old, &mut Fixed(0)).unwrap();
    assert_eq!(key, definition.apply(&new, &mut Fixed(0)).unwrap());
    // The same property and count: both versions yield the same key, which is visited once.
    assert_eq!(definition.keys_for(&new).unwrap(), std::slice::from_ref(&key));
    assert_eq!(definition.keys_for(&old).unwrap(), [key]);
}

#[test]
fn escaping_keeps_different_parts_apart() {
    let mut source =
        json!({ "format": 1, "kind": "concatenate", "parts": ["/a", "/b"], "missing": { "text": "none" } });
    let key = |source: &Value, item: Value| {
        define(source).apply(&item, &mut Fixed(0)).unwrap().as_text().unwrap().to_owned()
    };
    let (left, right) = (json!({ "a": "a-b", "b": "c" }), json!({ "a": "a", "b": "b-c" }));
    assert_eq!(key(&source, left.clone()), key(&source, right.clone()));
    source["escape"] = json!(true);
    assert_eq!(key(&source, left), "a%2Db-c");
    assert_eq!(key(&source, right), "a-b%2Dc");
    assert_eq!(key(&source, json!({ "a": "none" })), "none-%~none");
    assert_eq!(key(&source, json!({ "a": "%~none", "b": "none" })), "%25~none-none");
}

#[test]
fn a_key_that_does_not_match_is_a_contradiction() {
    let definition = random_dates();
    let check = |key: Value| {
        let item = json!({ "date": "2018-08-09", "partitionKey": key });
        definition.key_of(&item, &mut Fixed(0)).map_err(|error| error.code())
    };
    assert!(check(json!("2018-08-09.400")).is_ok());
    for wrong in [
        "2018-08-09.401",
        "2018-08-09.0",
        "2018-08-09.007",
        "2018-08-09.+7",
        "2018-08-10.7",
        "2018-08-09",
        "",
    ] {
        assert_eq!(check(json!(wrong)), Err("contradiction"), "{wrong}");
    }
    assert_eq!(check(json!(7)), Err("contradiction"));
    assert_eq!(check(Value::Null), Err("contradiction"));
}

#[test]
fn hierarchical_keys_are_truncated_to_the_determined_levels() {
    let definition = define(&json!({ "format": 1, "kind": "hierarchical", "levels": [
        { "kind": "property", "path": "/tenant" },
        { "property": "/day", "kind": "randomSuffix", "parts": [{ "path": "/at", "date": "day" }], "suffix": { "count": 3 } },
        { "kind": "property", "path": "/id" },
    ] }));
    let mut item = json!({ "id": "7", "tenant": "contoso", "at": "2018-08-09T23:30:00-01:00" });
    definition.insert_into(&mut item, &mut Fixed(1)).unwrap();
    assert_eq!(item["day"], "2018-08-10.2");
    let keys = |filter: Value| -> Result<Vec<Value>, _> {
        Ok::<_, KeyError>(definition.keys_for(&filter)?.iter().map(synthetic_key::Key::to_json).collect())
    };
    assert_eq!(keys(json!({ "tenant": "contoso" })).unwrap(), [json!(["contoso"])]);
    assert_eq!(
        keys(json!({ "tenant": "contoso", "at": "2018-08-10" })).unwrap(),
        [
            json!(["contoso", "2018-08-10.1"]),
            json!(["contoso", "2018-08-10.2"]),
            json!(["contoso", "2018-08-10.3"])
        ]
    );
    assert_eq!(keys(json!({ "tenant": "contoso", "at": "2018-08-10", "id": "7" })).unwrap().len(), 3);
    assert_eq!(keys(json!({ "at": "2018-08-10" })).unwrap_err().code(), "undetermined");
}

#[test]
fn two_names_of_a_property_must_agree() {
    let definition = define(&json!({
        "format": 1, "kind": "concatenate", "parts": [{ "path": "/vehicle/vin", "was": ["/VIN"] }]
    }));
    let code = |item: Value| definition.apply(&item, &mut Fixed(0)).map_err(|error| error.code());
    assert!(code(json!({ "VIN": "a", "vehicle": { "vin": "a" } })).is_ok());
    assert_eq!(code(json!({ "VIN": "a", "vehicle": { "vin": "b" } })), Err("ambiguous"));
    assert_eq!(code(json!({ "VIN": null, "vehicle": { "vin": "b" } })), Err("ambiguous"));
}
