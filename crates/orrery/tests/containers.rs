//! `orrery containers` against a running server: another key for a container, and keys made by the server.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start() -> Self {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--output", "json", "--in-memory"];
        let mut command = orrery(&arguments);
        command.args(["--partitions-at-creation", "4"]).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no start: {line}"));
        Self { child, url: format!("http://127.0.0.1:{}", ready["port"]) }
    }

    fn run(&self, arguments: &[&str], input: &str) -> (i32, String, String) {
        let mut command = orrery(arguments);
        command.args(["-d", "db", "--endpoint", &self.url]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn succeed(&self, arguments: &[&str], input: &str) -> String {
        let (code, stdout, stderr) = self.run(arguments, input);
        assert_eq!(code, 0, "{arguments:?}: {stderr}");
        stdout
    }

    fn items(&self, container: &str) -> Vec<Value> {
        let text = self.succeed(&["export", "-c", container, "-q"], "");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn orrery(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

const DEFINITION: &str =
    r#"{"format":1,"kind":"precalculatedSuffix","parts":["/date"],"suffix":{"of":["/VIN"],"count":400}}"#;

#[test]
fn a_container_gets_another_key_and_makes_it_from_then_on() {
    let server = Server::start();
    let line =
        |n: usize, vin: &str| format!("{{\"id\":\"{n}\",\"date\":\"2018-08-09\",\"VIN\":\"{vin}\"}}\n");
    let input: String =
        (0..200).map(|n| line(n, &format!("V{n}"))).chain([line(200, "1HGCM82633A004352")]).collect();
    server.succeed(&["import", "-c", "cars", "--create", "--partition-key=/date", "-q"], &input);

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
    let (code, _, stderr) = server.run(&repartition, "");
    assert_eq!(code, 2, "what becomes of the old container must be said: {stderr}");
    let whole = [&repartition[..], &["--keep-as", "cars-before", "--output", "json"]].concat();
    let status: Value = serde_json::from_str(&server.succeed(&whole, "")).unwrap();
    assert_eq!(status["phase"], "done");
    assert_eq!((&status["items"], &status["keptAs"]), (&Value::from(201), &Value::from("cars-before")));
    assert_eq!(status["checksum"].as_str().unwrap().len(), 32);
    let items = server.items("cars");
    assert_eq!(items.len(), 201);
    let known = items.iter().find(|item| item["VIN"] == "1HGCM82633A004352").unwrap();
    assert_eq!(known["partitionKey"], "2018-08-09.353");
    assert!(server.items("cars-before").iter().all(|item| item.get("partitionKey").is_none()));

    // New items get their key, and a query by the properties goes to one of four partitions.
    server.succeed(&["import", "-c", "cars", "-q"], &line(201, "WVWZZZ1JZXW000001"));
    let shown = server.succeed(&["containers", "synthetic", "show", "-c", "cars", "--output", "json"], "");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["definition"], serde_json::from_str::<Value>(DEFINITION).unwrap());
    assert_eq!(shown["routesQueries"], true);
    let query =
        "SELECT VALUE c.partitionKey FROM c WHERE c.date = '2018-08-09' AND c.VIN = 'WVWZZZ1JZXW000001'";
    let explained = server.succeed(&["query", "explain", query, "-c", "cars", "--output", "json"], "");
    let explained: Value = serde_json::from_str(&explained).unwrap();
    assert_eq!(
        (&explained["routedBy"], &explained["logicalPartitions"]),
        (&"syntheticKey".into(), &1.into())
    );
    assert_eq!(explained["partitionsVisited"].as_array().unwrap().len(), 1);
    assert_eq!(explained["rows"]["returned"], 1);

    server.succeed(&["containers", "synthetic", "remove", "-c", "cars"], "");
    let (code, _, stderr) = server.run(&["containers", "synthetic", "show", "-c", "cars"], "");
    assert!(code == 1 && stderr.contains("no synthetic key"), "{stderr}");
    server.succeed(&["containers", "synthetic", "set", DEFINITION, "-c", "cars"], "");
    // The old container has no key property, so the definition does not fit it.
    let (code, _, stderr) =
        server.run(&["containers", "synthetic", "set", DEFINITION, "-c", "cars-before"], "");
    assert!(code == 1 && stderr.contains("/partitionKey"), "{stderr}");
    let (code, _, stderr) = server.run(&["containers", "synthetic", "set", "no-such-file", "-c", "cars"], "");
    assert_eq!(code, 2, "{stderr}");
    let (code, _, stderr) = server.run(&["containers", "repartition", "-c", "cars", "--abort"], "");
    assert!(code == 1 && stderr.contains("not being repartitioned"), "{stderr}");
}
