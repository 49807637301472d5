//! Repartitioning under `kill -9`: the server dies while it copies, verifies and cuts over, under concurrent writes, and
//! resumes by itself when it is started again. Everything acknowledged is there once, and so are the container's scripts
//! and policies.
//!
//! One kill at each stage, or `ORRERY_SOAK_ROUNDS` times as many; see `common::Rounds`.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{Client, Crew, DOCS, Expected, KnownVersions, Response, Rounds, Server, until_within};
use orrery_model::Value;

const WRITERS: u64 = 3;
/// Items that each writer overwrites again and again, and items of each that are written once.
const ITEMS: u64 = 40;
const STILL_ITEMS: u64 = 150;
/// The partition keys that the container gets in turn.
const KEYS: [&str; 3] = [
    r#""partitionKey":{"paths":["/VIN"],"kind":"Hash","version":2}"#,
    r#""partitionKey":{"paths":["/partitionKey"],"kind":"Hash","version":2},"syntheticKey":{"format":1,"kind":"precalculatedSuffix","parts":["/date"],"suffix":{"of":["/VIN"],"count":16}}"#,
    r#""partitionKey":{"paths":["/date"],"kind":"Hash","version":2}"#,
];
/// Everything else in a container's definition, which must survive.
const POLICIES: &str = r#""indexingPolicy":{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/payload/?"},{"path":"/\"_etag\"/?"}],"compositeIndexes":[[{"path":"/date","order":"ascending"},{"path":"/version","order":"descending"}]]},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/number"]}]},"defaultTtl":100000,"computedProperties":[{"name":"year","query":"SELECT VALUE SUBSTRING(c.date, 0, 4) FROM c"}]"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Snapshot,
    CatchUp,
    Verify,
    Switch,
}

#[test]
fn repartitioning_survives_kill_9_at_every_stage() {
    let Rounds { count: rounds, seed, mut dice } = Rounds::new("the four stages of repartitioning", 1);
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::on_directory(directory.path());
    let original = set_up(&mut server.client());
    let mut known: Vec<KnownVersions> = (0..WRITERS).map(|_| KnownVersions::default()).collect();
    let mut killed: BTreeMap<String, u32> = BTreeMap::new();
    let mut keys = KEYS.iter().cycle();
    for _ in 0..rounds {
        for stage in [Stage::Snapshot, Stage::CatchUp, Stage::Verify, Stage::Switch] {
            let place = format!("seed {seed}, {stage:?}");
            let key = keys.next().unwrap();
            let begin = format!(r#"{{"database":"db","container":"c",{key}}}"#);
            let (port, mut client) = (server.port, server.client());
            let writer = |number, own: &mut KnownVersions, crew: &Crew| write(port, number, own, crew);
            Crew::work(&mut known, writer, |crew| {
                client.post("/_orrery/repartition", &begin, 200);
                let phase = wait_for(&mut client, &begin, stage);
                crew.wait_for(dice.below(8));
                *killed.entry(phase).or_default() += 1;
                server.kill();
            });

            // The server resumes by itself; writers learn the new key when the old one is refused.
            server = Server::on_directory(directory.path());
            let mut client = server.client();
            resolve(&mut client, &mut known, &place);
            let port = server.port;
            let writer = |number, own: &mut KnownVersions, crew: &Crew| write(port, number, own, crew);
            Crew::work(&mut known, writer, |_| finish(&mut client, &begin, &place));
            resolve(&mut client, &mut known, &place);
            check_container(&mut client, &original, key, &place);
        }
    }
    server.stop();
    let written: usize = known.iter().map(|own| own.acknowledged.len()).sum();
    eprintln!("{written} items; killed while the server said {killed:?}");
    assert!(written > 0);
}

/// Creates the container with everything that can belong to one; returns its definition.
fn set_up(client: &mut Client) -> Value {
    client.post("/dbs", r#"{"id":"db"}"#, 201);
    let body = format!(r#"{{"id":"c",{},{POLICIES}}}"#, KEYS[2]);
    client.post("/dbs/db/colls", &body, 201);
    let body = r#"{"id":"double","body":"function double(x) { return 2 * x; }"}"#;
    client.post("/dbs/db/colls/c/udfs", body, 201);
    let body = r#"{"id":"hello","body":"function hello() { getContext().getResponse().setBody('hello'); }"}"#;
    client.post("/dbs/db/colls/c/sprocs", body, 201);
    let body =
        r#"{"id":"stamp","triggerType":"Pre","triggerOperation":"Create","body":"function stamp() {}"}"#;
    client.post("/dbs/db/colls/c/triggers", body, 201);
    for id in 0..WRITERS * STILL_ITEMS {
        let writer = id % WRITERS;
        let id = writer * 10_000 + 1000 + id / WRITERS;
        let answer = upsert(client, "/date", id, 0).unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    client.get("/dbs/db/colls/c")
}

/// Writes an item as clients do, with the partition key path they have cached.
fn upsert(client: &mut Client, key_path: &str, id: u64, version: u64) -> std::io::Result<Response> {
    let (date, vin) = (format!("2018-08-{:02}", id % 28 + 1), format!("V{}", id % 97));
    let key = match key_path {
        "/date" => format!(r#"["{date}"]"#),
        "/VIN" => format!(r#"["{vin}"]"#),
        // The server builds it.
        _ => "[{}]".to_owned(),
    };
    let body = format!(r#"{{"id":"{id}","date":"{date}","VIN":"{vin}","number":{id},"version":{version}}}"#);
    let headers = [("x-ms-documentdb-partitionkey", key.as_str()), ("x-ms-documentdb-is-upsert", "true")];
    client.send("POST", DOCS, &headers, body.as_bytes())
}

fn key_path(client: &mut Client) -> Option<String> {
    let answer =
        client.send("GET", "/dbs/db/colls/c", &[], b"").ok().filter(|answer| answer.status == 200)?;
    let paths = answer.json().get("partitionKey")?.get("paths")?.as_array()?.to_vec();
    Some(paths.first()?.as_str()?.to_owned())
}

fn write(port: u16, writer: u64, known: &mut KnownVersions, crew: &Crew) {
    let mut client = Client::new(port);
    let Some(mut path) = key_path(&mut client) else { return };
    while !crew.is_stopped() {
        known.next_version += 1;
        let version = known.next_version;
        let id = writer * 10_000 + version % ITEMS;
        match upsert(&mut client, &path, id, version) {
            Ok(answer) if answer.status < 300 => {
                known.acknowledge(id, version);
                crew.count();
            }
            // The container has another key by now: clients refresh its definition.
            Ok(answer) if matches!(answer.status, 400 | 404 | 410) => match key_path(&mut client) {
                Some(new) => {
                    let is_known = new == path && !answer.text().contains("artition");
                    assert!(!is_known, "{}: {}", answer.status, answer.text());
                    path = new;
                }
                None => return,
            },
            // A dying server may fail in any way; the write may or may not have happened.
            Ok(answer) if answer.status >= 500 || answer.status == 449 => {
                known.unknown.insert(id, version);
            }
            Ok(answer) => panic!("{}: {}", answer.status, answer.text()),
            Err(_) => {
                known.unknown.insert(id, version);
                return;
            }
        }
    }
}

/// Waits until this stage is reached; returns the phase that the server reported last.
fn wait_for(client: &mut Client, begin: &str, stage: Stage) -> String {
    loop {
        // Repeating the request that started it reports its progress.
        let status = client.post("/_orrery/repartition", begin, 200);
        let text = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let count = |name: &str| status.get(name).and_then(Value::as_i64).unwrap_or(0);
        let phase = text("phase");
        assert_ne!(phase, "failed", "{}", text("message"));
        // Everything was copied once, so further copies are changes.
        let has_caught_up = count("items") > 0 && count("copied") > count("items");
        let now = match phase.as_str() {
            "copying" if !has_caught_up => Stage::Snapshot,
            "copying" => Stage::CatchUp,
            "verifying" => Stage::Verify,
            _ => Stage::Switch,
        };
        let at_the_end =
            stage == Stage::Switch && now == Stage::Verify && count("compared") >= 2 * count("items");
        if now >= stage || at_the_end {
            return phase;
        }
    }
}

/// Waits for completion by repeating the request that started it.
fn finish(client: &mut Client, begin: &str, place: &str) {
    until_within(Duration::from_mins(5), &format!("{place}: the end of the repartitioning"), || {
        let answer = client.send("POST", "/_orrery/repartition", &[], begin.as_bytes()).unwrap();
        // A container created but not recorded when the server was killed is in the way for a minute.
        if answer.status == 409 {
            return None;
        }
        assert_eq!(answer.status, 200, "{place}: {}", answer.text());
        match answer.json().get("phase").and_then(Value::as_str) {
            Some("failed") => panic!("{place}: {}", answer.text()),
            phase => (phase == Some("done")).then_some(()),
        }
    });
}

/// Everything acknowledged is there once, and nothing that nobody wrote.
fn resolve(client: &mut Client, known: &mut [KnownVersions], context: &str) {
    let untracked_items = usize::try_from(WRITERS * STILL_ITEMS).unwrap();
    let expected = Expected { untracked_items, page_items: 1000, may_be_replaced: true };
    KnownVersions::verify(client, known, &expected, context);
}

/// The container has the new key and everything that belonged to the original, and nothing is left over.
fn check_container(client: &mut Client, original: &Value, key: &str, place: &str) {
    let containers = client.get("/dbs/db/colls");
    let containers = containers.get("DocumentCollections").unwrap().as_array().unwrap();
    assert_eq!(containers.len(), 1, "{place}");
    let wanted = orrery_model::value::parse(format!("{{{key}}}").as_bytes()).unwrap();
    let paths = |definition: &Value| definition.get("partitionKey").unwrap().get("paths").unwrap().clone();
    assert_eq!(paths(&containers[0]), paths(&wanted), "{place}");
    let has_policy = containers[0].get("orrerySyntheticKey").is_some();
    assert_eq!(has_policy, wanted.get("syntheticKey").is_some(), "{place}");
    for name in ["indexingPolicy", "uniqueKeyPolicy", "defaultTtl", "computedProperties"] {
        assert!(original.get(name).is_some(), "{name}");
        assert_eq!(containers[0].get(name), original.get(name), "{place}: {name}");
    }
    let headers = [("x-ms-documentdb-partitionkey", r#"["any"]"#)];
    let hello = client.send("POST", "/dbs/db/colls/c/sprocs/hello", &headers, b"[]").unwrap();
    assert_eq!((hello.status, hello.text().as_str()), (200, r#""hello""#), "{place}");
    assert_eq!(client.get("/dbs/db/colls/c/udfs/double").get("id").unwrap().as_str(), Some("double"));
    let trigger = client.get("/dbs/db/colls/c/triggers/stamp");
    assert_eq!(trigger.get("triggerOperation").unwrap().as_str(), Some("Create"), "{place}");
}
