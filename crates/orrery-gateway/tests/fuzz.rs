//! The targets of `fuzz/`, which need a nightly compiler there, run for a short time with blind mutations.
//! `orrery_testing::fuzz` says how to run them longer.

#![allow(
    clippy::unwrap_used,
    clippy::pedantic,
    unused_attributes,
    unreachable_pub,
    reason = "tests, and files that are programs elsewhere"
)]

// The targets name libFuzzer.
extern crate orrery_testing as libfuzzer_sys;

use orrery_model::Value;
use orrery_testing::fuzz::fuzz;

#[path = "../../../fuzz/fuzz_targets/binary_json.rs"]
mod binary_json;
#[path = "../../../fuzz/fuzz_targets/direct_frame.rs"]
mod direct_frame;
#[path = "../../../fuzz/fuzz_targets/header_parser.rs"]
mod header_parser;
#[path = "../../../fuzz/fuzz_targets/hybrid_row.rs"]
mod hybrid_row;
#[path = "../../../fuzz/fuzz_targets/item_parser.rs"]
mod item_parser;
#[path = "../../../fuzz/fuzz_targets/query_parser.rs"]
mod query_parser;

fn cases(file: &str) -> Vec<Value> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
    let value = orrery_model::value::parse(&std::fs::read(path).unwrap()).unwrap();
    value.get("cases").and_then(Value::as_array).unwrap().to_vec()
}

fn bytes(case: &Value, name: &str) -> Vec<u8> {
    let text = case.get(name).and_then(Value::as_str).unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn fuzz_binary_json() {
    let seeds: Vec<_> = cases("binary-json.json").iter().map(|case| bytes(case, "binary")).collect();
    fuzz("binary JSON", &seeds, binary_json::target);
}

#[test]
fn fuzz_hybrid_rows() {
    let seeds: Vec<_> = cases("hybridrow-batch.json").iter().map(|case| bytes(case, "bytes")).collect();
    fuzz("hybrid rows", &seeds, hybrid_row::target);
}

#[test]
fn fuzz_direct_frames() {
    /// A token with a string.
    fn string(id: u8, value: &str) -> Vec<u8> {
        let length = u16::try_from(value.len()).unwrap().to_le_bytes();
        [&[id, 0, 8][..], &length, value.as_bytes()].concat()
    }
    let named = [string(21, "db"), string(22, "c"), string(23, "item"), string(43, "[\"a\"]")].concat();
    // Database, container and item, a number of 32 bits (the size of a page) and one of 8 (the consistency).
    let by_rid = [&[0, 0, 11, 16, 0][..], &[1; 16], &[4, 0, 2, 10, 0, 0, 0, 16, 0, 0, 2]].concat();
    let mut seeds = Vec::new();
    for operation in [1, 2, 3, 4, 5, 6, 8, 9, 15, 17, 19, 37, 66] {
        for resource in [2, 3, 7] {
            seeds.push([&[resource, operation][..], &named].concat());
            seeds.push([&[resource, operation][..], &by_rid].concat());
        }
    }
    // A whole frame, of which the length counts.
    seeds.push([&[28, 0, 0, 0, 3, 0, 3, 0][..], &[9; 16], &[2, 0, 0, 1]].concat());
    fuzz("direct frames", &seeds, direct_frame::target);
}

#[test]
fn fuzz_headers() {
    let mut seeds = vec![
        b"\x012024-01-31T10:00:00.5Z".to_vec(),
        b"\x02[\"a\",5,-0.0,null,true,{}]".to_vec(),
        b"\x03//addresses/?$resolveFor=dbs%2fhLEEAA%3d%3d%2fcolls%2fhLEEAI1YjgA%3d%2fdocs".to_vec(),
    ];
    for case in cases("auth-signatures.json") {
        let header = case.get("authorization").and_then(Value::as_str).unwrap();
        seeds.push([b"\0", header.as_bytes()].concat());
    }
    fuzz("headers", &seeds, header_parser::target);
}

#[test]
fn fuzz_items() {
    let mut seeds: Vec<_> = cases("binary-json.json")
        .iter()
        .map(|case| case.get("json").unwrap().to_json().into_bytes())
        .collect();
    seeds.push(br#"{"id":"a","nested":{"list":[1,-0.5e300,true,null,"\u00e9\n"]},"id":"b"}"#.to_vec());
    fuzz("items", &seeds, item_parser::target);
}

#[test]
fn fuzz_queries() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../orrery-query/tests/cases");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| {
        path.extension().is_some_and(|kind| kind == "json") && !path.ends_with("datasets.json")
    });
    let seeds: Vec<Vec<u8>> = files
        .flat_map(|path| {
            let cases = orrery_model::value::parse(&std::fs::read(path).unwrap()).unwrap();
            let queries = cases
                .as_array()
                .unwrap()
                .iter()
                .map(|case| case.get("query").and_then(Value::as_str).unwrap());
            queries.map(|query| query.as_bytes().to_vec()).collect::<Vec<_>>()
        })
        .collect();
    fuzz("queries", &seeds, query_parser::target);
}
