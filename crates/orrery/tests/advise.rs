//! Advice from end to end: a server records what it is asked, and the advisor takes data and workload from it.

#![allow(clippy::unwrap_used, clippy::float_cmp, clippy::cast_precision_loss, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

fn orrery(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// Runs a command that must succeed.
fn run(arguments: &[&str]) -> String {
    let output = orrery(arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {message}");
    String::from_utf8(output.stdout).unwrap()
}

struct Server {
    child: Child,
    endpoint: String,
}

impl Server {
    fn start() -> Self {
        let mut command = orrery(&["serve", "--in-memory", "--listen", "127.0.0.1:0", "--output", "json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        Self { endpoint: format!("http://127.0.0.1:{}", ready["port"]), child }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_recording_holds_requests_and_no_items_and_is_a_workload() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let items = directory.path().join("items.jsonl");
    let mut file = std::fs::File::create(&items).unwrap();
    for number in 0..200 {
        writeln!(file, r#"{{"id":"i{number}","customer":"c{}","secret":"hidden-{number}"}}"#, number % 20)
            .unwrap();
    }
    drop(file);
    let (items, endpoint) = (items.to_str().unwrap(), server.endpoint.as_str());
    let place = ["-d", "shop", "-c", "orders", "--endpoint", endpoint];
    let with = |first: &[&'static str]| {
        let all: Vec<&str> = first.iter().copied().chain(place).collect();
        run(&all)
    };
    let import = |more: &[&str]| {
        let all: Vec<&str> = ["import", items].iter().chain(&place).chain(more).copied().collect();
        run(&all)
    };
    import(&["--create", "--partition-key", "/customer"]);
    with(&["record", "start"]);
    import(&[]);
    let stopped: serde_json::Value = serde_json::from_str(&with(&["record", "stop"])).unwrap();
    assert_eq!(stopped["running"], false, "{stopped}");
    // What comes after the end is not recorded.
    import(&[]);
    let recording = with(&["record", "download"]);
    let lines: Vec<serde_json::Value> =
        recording.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["recording"], &lines[0]["partitionKey"][0]), (&1.into(), &"/customer".into()));
    assert_eq!(lines[0]["requests"], lines.len() - 1);
    assert!(lines.len() > 1 && !recording.contains("hidden-"), "{recording}");
    // A bulk import is as many requests as it has items, not transactions; what had to wait is marked.
    let done: Vec<_> = lines[1..].iter().filter(|line| line["status"] != 429).collect();
    assert!(done.len() >= 200, "{}", done.len());
    for line in &done {
        assert_eq!(line["operation"], "upsert", "{line}");
        assert!(
            line["id"].as_str().unwrap().starts_with('i') && line["charge"].as_f64().unwrap() > 0.0,
            "{line}"
        );
    }
    let workload = directory.path().join("recording.jsonl");
    std::fs::write(&workload, &recording).unwrap();
    let workload = workload.to_str().unwrap();
    let all: Vec<&str> =
        ["advise", "--workload", workload, "--output", "json"].iter().chain(&place).copied().collect();
    let report: serde_json::Value = serde_json::from_str(&run(&all)).unwrap();
    assert_eq!(report["data"]["items"], 200);
    let names: Vec<&str> =
        report["candidates"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"/customer") && names.contains(&"/id"), "{names:?}");
    with(&["record", "discard"]);
    assert_eq!(run(&["record", "list", "--endpoint", endpoint]), "");
    assert!(!orrery(&["record", "stop"]).args(place).output().unwrap().status.success());
}

#[test]
fn pages_are_whole_and_simulations_repeat() {
    let page = run(&["advise", "--example", "telemetry", "--items-max", "2000", "--output", "html"]);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    // One file: nothing is fetched, nothing runs.
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("href="));
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert!(
        page.contains("Heat over time") && page.contains("Growth") && page.contains("Recommended: /deviceId")
    );
    let directory = tempfile::tempdir().unwrap();
    let scenario = directory.path().join("scenario.toml");
    std::fs::write(&scenario, "days = 30\n[keys]\nkind = \"time\"\nsuffixes = 10\n").unwrap();
    let scenario = scenario.to_str().unwrap();
    let first = run(&["simulate", scenario, "--output", "json"]);
    assert_eq!(first, run(&["simulate", scenario, "--output", "json"]));
    let outcome: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(outcome["days"].as_array().unwrap().len(), 30);
    assert!(run(&["simulate", scenario, "--output", "html"]).contains("</html>"));
    let plan = run(&["advise", "suffix", "--writes", "1000", "--throughput", "48000", "--output", "json"]);
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert!(plan["best"].as_u64().unwrap() > 8 && plan["curve"].as_array().unwrap().len() > 10, "{plan}");
    let refused = orrery(&["simulate", "no-such-file"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
}

/// Every figure that the advisor promises, for a candidate whose answer to each is known from how the data is made.
#[test]
fn every_figure_is_reported() {
    let arguments = ["advise", "--example", "tenants", "--items-max", "5000", "--output", "json"];
    let report: serde_json::Value = serde_json::from_str(&run(&arguments)).unwrap();
    let candidates = report["candidates"].as_array().unwrap();
    let named = |name: &str| {
        let found = candidates.iter().find(|candidate| candidate["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is not among the candidates"))
    };
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    let tenant = named("/tenantId");
    let partitions = usize::try_from(report["partitions"].as_u64().unwrap()).unwrap();
    // A giant and 300 others; the giant has three items of ten.
    assert!((250.0..=310.0).contains(&number(&tenant["distinctValues"])));
    assert!((0.25..=0.35).contains(&number(&tenant["largestKey"]["share"])));
    assert_eq!(tenant["heaviestKeys"][0]["key"], r#"["tenant-000"]"#);
    assert!(
        number(&tenant["largestKey"]["bytes"]) > 0.0 && number(&tenant["largestKey"]["daysUntilFull"]) > 0.0
    );
    let spread = &tenant["spread"];
    assert_eq!(spread["items"].as_array().unwrap().len(), partitions);
    assert_eq!(spread["items"].as_array().unwrap().iter().map(number).sum::<f64>(), 5000.0);
    assert!(number(&spread["unevenness"]) > 1.0 && number(&spread["unevennessInTime"]) > 1.0);
    let growth = tenant["growth"].as_array().unwrap();
    assert!(growth.len() > 3 && growth.iter().all(|stage| number(&stage["partitions"]) >= partitions as f64));
    // The tenant is always known, so nothing fans out; reads by id and key are point reads.
    let reads = &tenant["reads"];
    assert!(number(&reads["pointShare"]) > 0.3 && number(&reads["singlePartitionShare"]) > 0.5);
    assert_eq!(number(&reads["fanOutShare"]), 0.0);
    // A key that nobody knows sends queries everywhere.
    let unknown =
        candidates.iter().find(|candidate| number(&candidate["reads"]["fanOutShare"]) > 0.0).unwrap();
    assert!(number(&unknown["reads"]["fanOutPartitions"]) > 1.0);
    assert!(number(&tenant["requestUnitsPerHour"]) > 0.0);
    assert!(number(&tenant["throttled"]["share"]) >= 0.0 && number(&tenant["hotFactor"]) > 1.0);
    assert!(number(&tenant["neededThroughput"]["inAYear"]) >= number(&tenant["neededThroughput"]["now"]));
    assert!(!tenant["against"].as_array().unwrap().is_empty(), "the giant is a reason against it");
    assert!(!candidates[0]["for"].as_array().unwrap().is_empty());
    assert!(!report["suffixPlans"].as_array().unwrap().is_empty());
    // What is written together: kept by the customer, lost by the date.
    let arguments =
        ["advise", "--example", "orders", "--items-max", "4000", "--candidate", "/date", "--output", "json"];
    let report: serde_json::Value = serde_json::from_str(&run(&arguments)).unwrap();
    let of = |name: &str| {
        let all = report["candidates"].as_array().unwrap();
        all.iter().find(|candidate| candidate["name"] == name).unwrap()["transactions"].clone()
    };
    assert_eq!(of("/customerId"), "kept");
    assert!(of("/date")["lost"].as_f64().is_some_and(|share| share > 0.9), "{}", of("/date"));
}
