//! What operators see: slow requests and the audit in the log, log files, several addresses.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests")]
#![cfg(unix)]

mod common;

use std::fs;
use std::path::Path;
use std::process::Stdio;

use common::{Client, DOCS, Server, path_text};
use serde_json::Value;

const OTHER_KEY: &str =
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==";

/// The events of a log in JSON with this target.
fn events(log: &str, target: &str) -> Vec<Value> {
    let parsed = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    parsed.filter(|event| event["target"] == target).collect()
}

fn insert(client: &mut Client, id: &str) {
    let body = format!(r#"{{"id":"{id}","pk":"a","secret":"hidden"}}"#);
    client.post_with(DOCS, &[("x-ms-documentdb-partitionkey", "[\"a\"]")], &body, 201);
}

#[test]
fn slow_queries_are_logged_with_text_charge_and_access_but_not_parameters() {
    let mut command = Server::command(&["--in-memory", "--log-format", "json", "--slow-request-ms", "0"]);
    let mut server = Server::spawn(command.stderr(Stdio::piped()));
    let mut client = server.client();
    client.create_container(&[]);
    insert(&mut client, "1");
    let query =
        r#"{"query":"SELECT * FROM c WHERE c.secret = @s","parameters":[{"name":"@s","value":"hidden"}]}"#;
    let headers = [
        ("x-ms-documentdb-isquery", "true"),
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-partitionkey", "[\"a\"]"),
    ];
    let charge = client.post_with(DOCS, &headers, query, 200);
    let charge = charge.header("x-ms-request-charge").unwrap().to_owned();
    server.signal("-TERM");
    let log = server.wait().stderr;
    let slow = events(&log, "slow_request");
    let query = slow.iter().find(|event| event["operation"] == "query").unwrap();
    assert_eq!(query["query"], "\"SELECT * FROM c WHERE c.secret = @s\"");
    assert_eq!(query["container"], "\"dbs/db/colls/c\"");
    assert_eq!(query["charge"].as_str().unwrap(), charge);
    assert!(query["access"].as_str().unwrap().contains("secret"), "{query}");
    assert!(slow.iter().any(|event| event["operation"] == "create" && event["resource"] == "item"));
    assert!(!log.contains("hidden"), "{log}");
}

#[test]
fn without_the_option_no_request_is_slow() {
    let mut command = Server::command(&["--in-memory", "--log-format", "json"]);
    let mut server = Server::spawn(command.stderr(Stdio::piped()));
    server.client().create_container(&[]);
    server.signal("-TERM");
    assert!(events(&server.wait().stderr, "slow_request").is_empty());
}

#[test]
fn changes_of_the_control_plane_and_refusals_are_audited() {
    let mut command = Server::command(&["--in-memory", "--log-format", "json", "--secondary-key", OTHER_KEY]);
    let mut server = Server::spawn(command.env_remove("ORRERY_LOG").stderr(Stdio::piped()));
    let mut client = server.client();
    client.create_container(&[]);
    insert(&mut client, "1");
    client.send("DELETE", "/dbs/db/colls/none", &[], b"").unwrap();
    client.send("POST", "/_orrery/partitions/split", &[], br#"{"database":"db","container":"c"}"#).unwrap();
    let wrong = orrery_gateway::auth::MasterKey::from_bytes(&[9; 64]);
    let mut stranger = Client::with_key(server.port, wrong.reveal());
    assert_eq!(stranger.send("GET", "/dbs/db", &[], b"").unwrap().status, 401);
    assert_eq!(stranger.send("GET", "/_orrery/partitions", &[], b"").unwrap().status, 401);
    assert_eq!(server.raw("GET /dbs HTTP/1.1\r\nhost: evil.example\r\n").0, 403);
    server.signal("-TERM");
    let log = server.wait().stderr;
    let audit = events(&log, "audit");
    let changes: Vec<_> = audit
        .iter()
        .filter(|event| event["message"] == "changed the control plane")
        .map(|event| {
            let text = |name: &str| event[name].as_str().unwrap().trim_matches('"').to_owned();
            (text("operation"), text("path"), event["status"].as_u64().unwrap())
        })
        .collect();
    let change = |operation: &str, path: &str, status| (operation.to_owned(), path.to_owned(), status);
    assert_eq!(
        changes,
        [
            change("create", "/dbs", 201),
            change("create", "/dbs/db/colls", 201),
            change("delete", "/dbs/db/colls/none", 404),
            change("POST", "/_orrery/partitions/split", 400),
        ]
    );
    let refusals: Vec<_> = audit
        .iter()
        .filter(|event| event["message"] == "refused a request")
        .map(|event| (event["reason"].as_str().unwrap(), event["path"].as_str().unwrap()))
        .collect();
    assert_eq!(
        refusals,
        [
            ("wrong signature", "\"/dbs/db\""),
            ("wrong signature", "\"/_orrery/partitions\""),
            ("host name not allowed", "\"/dbs\""),
        ]
    );
    assert!(audit.iter().all(|event| event["peer"].as_str().unwrap().starts_with("127.0.0.1:")));
    assert!(!log.contains(OTHER_KEY) && !log.contains(wrong.reveal()));
}

#[test]
fn refusals_beyond_ten_per_second_are_counted() {
    let mut command = Server::command(&["--in-memory", "--log-format", "json", "--test-controls"]);
    let mut server = Server::spawn(command.env("ORRERY_LOG", "audit=info").stderr(Stdio::piped()));
    let mut client = server.client();
    // The clock stands still, so all fall into one second.
    client.post("/_orrery/clock", r#"{"freeze":true}"#, 200);
    for _ in 0..25 {
        server.raw("GET /dbs HTTP/1.1\r\nhost: localhost\r\n");
    }
    client.post("/_orrery/clock", r#"{"advanceMs":1000}"#, 200);
    server.raw("GET /dbs HTTP/1.1\r\nhost: localhost\r\n");
    server.signal("-TERM");
    let audit = events(&server.wait().stderr, "audit");
    let refusals: Vec<_> = audit.iter().filter(|event| event["message"] == "refused a request").collect();
    assert_eq!(refusals.len(), 11);
    assert_eq!(refusals[10]["omitted"], 15);
}

#[test]
fn the_log_goes_to_a_file_and_is_rotated() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("orrery.log");
    // A file that is full already.
    fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
    let options = ["--in-memory", "--log-file", path_text(&file), "--log-file-mb", "1", "--log-files", "2"];
    let mut command = Server::command(&options);
    let mut server = Server::spawn(command.env("ORRERY_LOG", "info").stderr(Stdio::piped()));
    server.signal("-TERM");
    let exit = server.wait();
    assert_eq!((exit.code, exit.stderr.as_str()), (0, ""));
    let log = fs::read_to_string(&file).unwrap();
    assert!(log.contains("stopped") && !log.contains("xxx"), "{log}");
    assert_eq!(fs::metadata(Path::new(&format!("{}.1", path_text(&file)))).unwrap().len(), 1 << 20);
}

#[test]
fn several_addresses_are_served_and_drained() {
    let mut server = Server::start(&["--in-memory", "--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0"]);
    let others: Vec<_> = server.ready["alsoOn"].as_array().unwrap().clone();
    let ports: Vec<u16> = others
        .iter()
        .map(|address| address.as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(ports.len(), 2);
    let mut clients = [Client::new(server.port), Client::new(ports[0])];
    clients[0].create_container(&[]);
    // The same data on each, and an open connection does not keep the server from ending.
    for client in &mut clients {
        assert_eq!(client.get("/dbs/db").get("id").unwrap().as_str(), Some("db"));
    }
    assert!(std::net::TcpStream::connect(("127.0.0.2", ports[1])).is_ok());
    server.signal("-TERM");
    assert_eq!(server.wait().code, 0);
    assert!(std::net::TcpStream::connect(("127.0.0.1", ports[0])).is_err());
}

/// One address beyond loopback makes the server one that everybody can reach: the well-known key is refused.
#[test]
fn the_most_exposed_address_decides_about_keys() {
    let well_known = orrery_gateway::auth::MasterKey::well_known();
    let arguments =
        ["serve", "--in-memory", "--listen", "127.0.0.1:0,0.0.0.0:0", "--key", well_known.reveal()];
    let (code, _, stderr) = common::run(&mut common::orrery(&arguments));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("0.0.0.0 is not a loopback address"), "{stderr}");
}
