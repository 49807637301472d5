//! `orrery containers` against a running server: repartitioning and synthetic keys.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Server, run_with_input};
use serde_json::Value;

/// Runs a command against the database `db` of a server.
fn run(server: &Server, arguments: &[&str], input: &str) -> (i32, String, String) {
    let url = server.url();
    run_with_input(&[arguments, &["-d", "db", "--endpoint", &url]].concat(), input.as_bytes())
}

fn succeed(server: &Server, arguments: &[&str], input: &str) -> String {
    let (code, stdout, stderr) = run(server, arguments, input);
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stdout
}

fn items(server: &Server, container: &str) -> Vec<Value> {
    let text = succeed(server, &["export", "-c", container, "-q"], "");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const DEFINITION: &str =
    r#"{"format":1,"kind":"precalculatedSuffix","parts":["/date"],"suffix":{"of":["/VIN"],"count":400}}"#;

#[test]
fn a_container_is_repartitioned_by_a_synthetic_key() {
    let server = Server::start(&["--in-memory", "--partitions-at-creation", "4"]);
    let line =
        |n: usize, vin: &str| format!("{{\"id\":\"{n}\",\"date\":\"2018-08-09\",\"VIN\":\"{vin}\"}}\n");
    let input: String =
        (0..200).map(|n| line(n, &format!("V{n}"))).chain([line(200, "1HGCM82633A004352")]).collect();
    succeed(&server, &["import", "-c", "cars", "--create", "--partition-key=/date", "-q"], &input);

    let repartition = [
        "containers",
        "repartition",
        "-c",
        "cars",
        "--partition-key",
        "/partitionKey",
        "--synthetic",
        DEFINITION,
    ];
    let (code, _, stderr) = run(&server, &repartition, "");
    assert_eq!(code, 2, "either --keep-as or --drop is required: {stderr}");
    let whole = [&repartition[..], &["--keep-as", "cars-before", "--output", "json"]].concat();
    let status: Value = serde_json::from_str(&succeed(&server, &whole, "")).unwrap();
    assert_eq!(status["phase"], "done");
    assert_eq!((&status["items"], &status["keptAs"]), (&Value::from(201), &Value::from("cars-before")));
    assert_eq!(status["checksum"].as_str().unwrap().len(), 32);
    let stored = items(&server, "cars");
    assert_eq!(stored.len(), 201);
    let known = stored.iter().find(|item| item["VIN"] == "1HGCM82633A004352").unwrap();
    assert_eq!(known["partitionKey"], "2018-08-09.353");
    assert!(items(&server, "cars-before").iter().all(|item| item.get("partitionKey").is_none()));

    // New items get their key from the server, and a query by its sources goes to one of four partitions.
    succeed(&server, &["import", "-c", "cars", "-q"], &line(201, "WVWZZZ1JZXW000001"));
    let shown = succeed(&server, &["containers", "synthetic", "show", "-c", "cars", "--output", "json"], "");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["definition"], serde_json::from_str::<Value>(DEFINITION).unwrap());
    assert_eq!(shown["routesQueries"], true);
    let query =
        "SELECT VALUE c.partitionKey FROM c WHERE c.date = '2018-08-09' AND c.VIN = 'WVWZZZ1JZXW000001'";
    let explained = succeed(&server, &["query", "explain", query, "-c", "cars", "--output", "json"], "");
    let explained: Value = serde_json::from_str(&explained).unwrap();
    assert_eq!(
        (&explained["routedBy"], &explained["logicalPartitions"]),
        (&"syntheticKey".into(), &1.into())
    );
    assert_eq!(explained["partitionsVisited"].as_array().unwrap().len(), 1);
    assert_eq!(explained["rows"]["returned"], 1);

    succeed(&server, &["containers", "synthetic", "remove", "-c", "cars"], "");
    let (code, _, stderr) = run(&server, &["containers", "synthetic", "show", "-c", "cars"], "");
    assert!(code == 1 && stderr.contains("no synthetic key"), "{stderr}");
    succeed(&server, &["containers", "synthetic", "set", DEFINITION, "-c", "cars"], "");
    // The original has no key property, so the definition does not match it.
    let (code, _, stderr) =
        run(&server, &["containers", "synthetic", "set", DEFINITION, "-c", "cars-before"], "");
    assert!(code == 1 && stderr.contains("/partitionKey"), "{stderr}");
    let (code, _, stderr) =
        run(&server, &["containers", "synthetic", "set", "no-such-file", "-c", "cars"], "");
    assert_eq!(code, 2, "{stderr}");
    let (code, _, stderr) = run(&server, &["containers", "repartition", "-c", "cars", "--abort"], "");
    assert!(code == 1 && stderr.contains("not being repartitioned"), "{stderr}");
}
