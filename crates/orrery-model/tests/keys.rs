//! Hashes, paths and effective keys against the vectors of the public clients.

#![allow(clippy::unwrap_used, reason = "a failed expectation should end the test")]

use std::path::Path;

use orrery_model::murmur3;
use orrery_model::partition_key::{EffectiveKey, EpkRange, KeyPart, PartitionKey, PartitionKeyDefinition};
use orrery_model::path;
use orrery_model::value::{self, Value};
use proptest::prelude::*;

fn cases(name: &str) -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let vectors = value::parse(&std::fs::read(file).unwrap()).unwrap();
    let cases = vectors.get("cases").unwrap().as_array().unwrap().to_vec();
    assert_eq!(vectors.get("count").and_then(Value::as_i64), i64::try_from(cases.len()).ok(), "{name}");
    cases
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case.get(name).and_then(Value::as_str).unwrap()
}

#[test]
fn murmur3_vectors() {
    for case in cases("murmur3.json") {
        let input = EffectiveKey::parse(text(&case, "input")).unwrap().into_bytes();
        assert_eq!(format!("{:08X}", murmur3::x86_32(&input, 0)), text(&case, "murmur3_x86_32"), "{case:?}");
        assert_eq!(
            format!("{:032X}", murmur3::x64_128(&input, 0)),
            text(&case, "murmur3_x64_128_be"),
            "{case:?}"
        );
    }
}

#[test]
fn path_vectors() {
    for case in cases("path-parser.json") {
        let parts: Vec<_> = case
            .get("parts")
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part.as_str().unwrap())
            .collect();
        let segments = path::split(text(&case, "path")).unwrap();
        let split: Vec<_> = segments.iter().map(|segment| segment.text.as_ref()).collect();
        assert_eq!(split, parts, "{}", text(&case, "path"));
    }
}

fn definition(kind: &str, version: i64, paths: usize) -> PartitionKeyDefinition {
    let paths: Vec<_> = (0..paths).map(|n| format!("\"/k{n}\"")).collect();
    let json = format!(r#"{{"kind":"{kind}","version":{version},"paths":[{}]}}"#, paths.join(","));
    PartitionKeyDefinition::parse(&value::parse(json.as_bytes()).unwrap()).unwrap()
}

#[test]
fn effective_key_vectors() {
    for case in cases("epk.json") {
        let header = case.get("pk").unwrap().to_json();
        let key = PartitionKey::parse_json(header.as_bytes()).unwrap();
        let version = case.get("version").and_then(Value::as_i64).unwrap();
        let definition = definition(text(&case, "kind"), version, key.parts().len());
        let effective = definition.effective_key(&key);
        assert_eq!(effective.to_string(), text(&case, "epk"), "{header}");
        assert_eq!(EffectiveKey::parse(&text(&case, "epk").to_lowercase()).unwrap(), effective);
    }
}

#[test]
fn prefix_range_vectors() {
    for case in cases("epk-prefix-ranges.json") {
        let header = case.get("prefix").unwrap().to_json();
        let paths = usize::try_from(case.get("paths").and_then(Value::as_i64).unwrap()).unwrap();
        let definition = definition("MultiHash", 2, paths);
        let key = PartitionKey::parse_json(header.as_bytes()).unwrap();
        let key = definition.check_prefix(&key).unwrap();
        let range = EpkRange::parse(text(&case, "minInclusive"), text(&case, "maxExclusive")).unwrap();
        assert_eq!(definition.prefix_range(&key), range, "{header}");
        assert!(definition.check_full(&key).is_err(), "{header}");
    }
}

/// Boundaries as they appear in the routing maps of the public clients' test suites.
#[test]
fn even_ranges_use_the_boundaries_of_the_service() {
    let boundaries = |definition: &PartitionKeyDefinition, count| -> Vec<String> {
        let ranges = definition.even_ranges(count);
        assert_eq!(ranges.len(), count as usize);
        assert_eq!(
            (&ranges[0].min, &ranges[ranges.len() - 1].max),
            (&EffectiveKey::MIN, &EffectiveKey::max())
        );
        assert!(ranges.windows(2).all(|pair| pair[0].max == pair[1].min && !pair[0].is_empty()));
        ranges[1..].iter().map(|range| range.min.to_string()).collect()
    };
    let v1 = definition("Hash", 1, 1);
    assert_eq!(boundaries(&v1, 1), [""; 0]);
    assert_eq!(boundaries(&v1, 2), ["05C1DFFFFFFFFC"]);
    assert_eq!(boundaries(&v1, 5), ["05C1C9CD673398", "05C1D9CD673398", "05C1E399CD6732", "05C1E9CD673398"]);
    for definition in [definition("Hash", 2, 1), definition("MultiHash", 2, 3)] {
        assert_eq!(boundaries(&definition, 2), ["1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"]);
        assert_eq!(
            boundaries(&definition, 4),
            [
                "0FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
                "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFE",
                "2FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFD"
            ]
        );
        assert_eq!(
            boundaries(&definition, 5),
            [
                "0CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
                "19999999999999999999999999999998",
                "26666666666666666666666666666664",
                "33333333333333333333333333333330"
            ]
        );
        boundaries(&definition, 1000);
    }
}

#[test]
fn headers_are_arrays_of_scalars() {
    let parse = |header: &str| PartitionKey::parse_json(header.as_bytes());
    assert_eq!(
        parse(r#"["\u00e9é", 1e0, true, null, {}]"#).unwrap().parts(),
        [KeyPart::from("éé"), KeyPart::from(1.0), KeyPart::from(true), KeyPart::Null, KeyPart::Undefined]
    );
    assert_eq!(parse("[]").unwrap().parts(), []);
    assert_ne!(parse("[-0.0]").unwrap(), parse("[0]").unwrap());
    assert_eq!(parse("[1.0]").unwrap(), parse("[1]").unwrap());
    for header in
        ["", "abc", "\"abc\"", "{}", r#"[["x"]]"#, r#"[{"a":1}]"#, r#"[{"type":"Infinity"}]"#, "[1e999]"]
    {
        assert!(parse(header).is_err(), "{header}");
    }
    assert!(PartitionKey::parse_json(b"[\"\xff\"]").is_err());
}

#[test]
fn full_keys_have_a_component_for_every_path() {
    let key = |header: &str| PartitionKey::parse_json(header.as_bytes()).unwrap();
    let single = definition("Hash", 2, 1);
    assert_eq!(single.check_full(&key("[]")).unwrap(), key("[{}]"));
    assert_eq!(single.check_prefix(&key("[]")).unwrap(), key("[{}]"));
    let mismatch = "Partition key provided either doesn't correspond to definition in the collection";
    assert!(single.check_full(&key("[1,2]")).unwrap_err().message.starts_with(mismatch));
    let triple = definition("MultiHash", 2, 3);
    assert!(triple.check_full(&key("[1,2]")).unwrap_err().message.starts_with(mismatch));
    assert!(triple.check_prefix(&key("[1,2,3,4]")).is_err());
    assert_eq!(triple.prefix_range(&triple.check_prefix(&key("[]")).unwrap()), EpkRange::full());
    let long = PartitionKey::new(vec![KeyPart::from("x".repeat(2049).as_str())]);
    assert!(single.check_full(&long).is_err());
    assert!(definition("Hash", 1, 1).check_full(&long).is_ok());
}

#[test]
fn keys_are_extracted_through_objects_only() {
    let definition = PartitionKeyDefinition::with_paths(&["/a/b"]).unwrap();
    let extract =
        |item: &str| definition.extract(&value::parse(item.as_bytes()).unwrap()).map(|key| key.to_json());
    assert_eq!(extract(r#"{"a":{"b":1.0}}"#).unwrap(), "[1]");
    assert_eq!(extract(r#"{"a":{"b":-0.0}}"#).unwrap(), "[-0.0]");
    assert_eq!(extract(r#"{"a":{"b":null}}"#).unwrap(), "[null]");
    assert_eq!(extract(r#"{"a":[{"b":1}]}"#).unwrap(), "[{}]");
    assert_eq!(extract("{}").unwrap(), "[{}]");
    // What is no scalar counts as missing: clients send `[{}]` with such items.
    assert_eq!(extract(r#"{"a":{"b":[]}}"#).unwrap(), "[{}]");
    assert_eq!(extract(r#"{"a":{"b":{"c":1}}}"#).unwrap(), "[{}]");
}

#[test]
fn definitions_are_checked() {
    let parse = |json: &str| PartitionKeyDefinition::parse(&value::parse(json.as_bytes()).unwrap());
    let echo = |json: &str| parse(json).unwrap().to_value().to_json();
    assert_eq!(echo(r#"{"paths":["/pk"]}"#), r#"{"paths":["/pk"],"kind":"Hash"}"#);
    assert_eq!(
        echo(r#"{"paths":["/\"a b\"/c"],"kind":"Hash","version":2}"#),
        r#"{"paths":["/\"a b\"/c"],"kind":"Hash","version":2}"#
    );
    assert_eq!(
        echo(r#"{"paths":["/_partitionKey"],"systemKey":true}"#),
        r#"{"paths":["/_partitionKey"],"kind":"Hash","systemKey":true}"#
    );
    // Version 1 comes back only where it was named.
    assert_eq!(echo(r#"{"paths":["/pk"],"version":1}"#), r#"{"paths":["/pk"],"kind":"Hash","version":1}"#);
    // The Java client writes versions as the names of its constants.
    assert_eq!(
        echo(r#"{"paths":["/pk"],"kind":"Hash","version":"V2"}"#),
        r#"{"paths":["/pk"],"kind":"Hash","version":2}"#
    );
    assert!(parse(r#"{"paths":["/id"],"version":2}"#).is_ok());
    assert!(parse(r#"{"paths":["/a","/b","/c"],"kind":"MultiHash","version":2}"#).is_ok());
    for (json, fragment) in [
        (
            r#"{"paths":["/a","/b","/c","/d"],"kind":"MultiHash","version":2}"#,
            "Too many partition key paths (4) specified. A maximum of 3 is allowed.",
        ),
        (r#"{"paths":["/a","/b"],"kind":"Hash","version":2}"#, "Too many partition key paths (2)"),
        (
            r#"{"paths":["/a","/b"],"kind":"MultiHash","version":1}"#,
            "requires partition key definition version 2",
        ),
        (r#"{"paths":["/a","/'a'"],"kind":"MultiHash","version":2}"#, "more than once"),
        (r#"{"paths":["/a"],"kind":"Range"}"#, "kind"),
        (r#"{"paths":["/a"],"version":3}"#, "version"),
        (r#"{"paths":["/_ts"]}"#, "system properties"),
        (r#"{"paths":["/a/*"]}"#, "failed near position '3'"),
        (
            r#"{"paths":["a"]}"#,
            "The partition key component definition path 'a' could not be accepted, failed near position '0'.",
        ),
        (r#"{"paths":["/a/"]}"#, "trailing slash"),
        (r#"{"paths":[]}"#, "at least one path"),
        (r#"{"paths":[1]}"#, "strings"),
        (r#"{"kind":"Hash"}"#, "'paths; '"),
        ("[]", "object"),
    ] {
        let error = parse(json).unwrap_err();
        assert!(error.message.contains(fragment), "{json}: {}", error.message);
    }
}

fn any_part() -> impl Strategy<Value = KeyPart> {
    prop_oneof![
        Just(KeyPart::Undefined),
        Just(KeyPart::Null),
        any::<bool>().prop_map(KeyPart::Bool),
        any::<f64>()
            .prop_filter("JSON has no NaN or infinity", |number| number.is_finite())
            .prop_map(KeyPart::Number),
        any::<String>().prop_map(|text| KeyPart::String(text.into())),
    ]
}

proptest! {
    #[test]
    fn headers_round_trip(parts in proptest::collection::vec(any_part(), 0..4)) {
        let key = PartitionKey::new(parts);
        prop_assert_eq!(PartitionKey::parse_json(key.to_json().as_bytes()).unwrap(), key);
    }

    #[test]
    fn every_key_lies_in_its_prefixes_and_in_one_even_range(parts in proptest::collection::vec(any_part(), 3), count in 1_u32..50) {
        let triple = definition("MultiHash", 2, 3);
        let key = PartitionKey::new(parts);
        let effective = triple.effective_key(&key);
        for length in 0..=3 {
            let prefix = PartitionKey::new(key.parts()[..length].to_vec());
            prop_assert!(triple.prefix_range(&prefix).contains(&effective));
        }
        let single = PartitionKey::new(key.parts()[..1].to_vec());
        for definition in [definition("Hash", 1, 1), definition("Hash", 2, 1)] {
            let effective = definition.effective_key(&single);
            prop_assert!(EpkRange::full().contains(&effective));
            let owners = definition.even_ranges(count).into_iter().filter(|range| range.contains(&effective));
            prop_assert_eq!(owners.count(), 1);
            prop_assert_eq!(EffectiveKey::parse(&effective.to_string()).unwrap(), effective);
        }
    }

    /// The hash leads a version 1 key, so its encoding must sort like the number.
    #[test]
    fn version_1_numbers_keep_their_order(first: u32, second: u32) {
        use orrery_model::partition_key::encode::boundary_v1;
        prop_assert_eq!(boundary_v1(first).cmp(&boundary_v1(second)), first.cmp(&second));
    }
}

#[test]
fn ranges_intersect_and_split() {
    let range = |min: &str, max: &str| EpkRange::parse(min, max).unwrap();
    assert_eq!(range("", "20").intersect(&range("10", "FF")), Some(range("10", "20")));
    assert!(!range("", "10").overlaps(&range("10", "FF")));
    assert!(EpkRange::full().covers(&range("10", "20")) && !range("10", "20").covers(&EpkRange::full()));
    let at = EffectiveKey::parse("1f").unwrap();
    assert_eq!(EpkRange::full().split_at(&at), Some((range("", "1F"), range("1F", "FF"))));
    assert_eq!(EpkRange::full().split_at(&EffectiveKey::MIN), None);
    for (min, max) in [("1", "FF"), ("", "XY"), ("FF", "00"), ("", "\u{e9}")] {
        assert!(EpkRange::parse(min, max).is_err(), "{min} {max}");
    }
}
