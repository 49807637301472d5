//! `kill -9` at every stage of a repartitioning: writers speak HTTP to the real binary while its container gets one
//! key after another; it dies while it copies, compares and switches, and goes on by itself when it is started
//! again. Everything that was acknowledged is there, once, and so are the container's scripts and policies.
//!
//! One kill at each stage, or `ORRERY_SOAK_ROUNDS` times as many. The moments come from a seed, which is printed and
//! can be given as `ORRERY_SEED`.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test binary has no outside, and shares files with another"
)]

#[path = "crash/client.rs"]
mod client;
#[path = "crash/server.rs"]
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{Client, Response};
use orrery_model::Value;
use server::Served;

const WRITERS: u64 = 3;
/// Items that each writer writes over and over; each has this many more that it writes once.
const ITEMS: u64 = 40;
const STILL_ITEMS: u64 = 150;
const ITEMS_PATH: &str = "/dbs/db/colls/c/docs";
/// The keys that the container gets in turn.
const KEYS: [&str; 3] = [
    r#""partitionKey":{"paths":["/VIN"],"kind":"Hash","version":2}"#,
    r#""partitionKey":{"paths":["/partitionKey"],"kind":"Hash","version":2},"syntheticKey":{"format":1,"kind":"precalculatedSuffix","parts":["/date"],"suffix":{"of":["/VIN"],"count":16}}"#,
    r#""partitionKey":{"paths":["/date"],"kind":"Hash","version":2}"#,
];
/// All that a container's definition can say beside its key.
const POLICIES: &str = r#""indexingPolicy":{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/payload/?"},{"path":"/\"_etag\"/?"}],"compositeIndexes":[[{"path":"/date","order":"ascending"},{"path":"/version","order":"descending"}]]},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/number"]}]},"defaultTtl":100000,"computedProperties":[{"name":"year","query":"SELECT VALUE SUBSTRING(c.date, 0, 4) FROM c"}]"#;

/// What a writer knows of its items: the last version that was acknowledged, and one whose fate is unknown.
#[derive(Default)]
struct Known {
    acknowledged: BTreeMap<u64, u64>,
    unknown: BTreeMap<u64, u64>,
    next_version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Snapshot,
    CatchUp,
    Verify,
    Switch,
}

#[test]
fn another_key_survives_being_killed_at_every_stage() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let rounds = number("ORRERY_SOAK_ROUNDS").unwrap_or(1).max(1);
    let seed = number("ORRERY_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("repartitioning under kill -9: {rounds} rounds of four stages with ORRERY_SEED={seed}");
    let directory = tempfile::tempdir().unwrap();
    let mut served = Served::start(directory.path());
    let made = set_up(&mut Client::new(served.port));
    let mut known: Vec<Known> = (0..WRITERS).map(|_| Known::default()).collect();
    let mut random = seed;
    let mut killed: BTreeMap<String, u32> = BTreeMap::new();
    let mut keys = KEYS.iter().cycle();
    for _ in 0..rounds {
        for stage in [Stage::Snapshot, Stage::CatchUp, Stage::Verify, Stage::Switch] {
            let place = format!("seed {seed}, {stage:?}");
            let key = keys.next().unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let writers = start_writers(served.port, known, &stop);
            let begin = format!(r#"{{"database":"db","container":"c",{key}}}"#);
            let mut client = Client::new(served.port);
            post(&mut client, "/_orrery/repartition", &begin, 200);
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let phase = wait_for(&mut client, &begin, stage, Duration::from_millis((random >> 33) % 8));
            *killed.entry(phase).or_default() += 1;
            served.kill();
            stop.store(true, Ordering::Relaxed);
            known = writers.into_iter().map(|writer| writer.join().unwrap()).collect();

            // It goes on by itself, with writers that learn the new key when the old one is refused.
            served = Served::start(directory.path());
            let mut client = Client::new(served.port);
            resolve(&mut client, &mut known, &place);
            let stop = Arc::new(AtomicBool::new(false));
            let writers = start_writers(served.port, known, &stop);
            finish(&mut client, &begin, &place);
            stop.store(true, Ordering::Relaxed);
            known = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            resolve(&mut client, &mut known, &place);
            check_container(&mut client, &made, key, &place);
        }
    }
    served.stop();
    let written: usize = known.iter().map(|own| own.acknowledged.len()).sum();
    eprintln!("{written} items; killed while the server said {killed:?}");
    assert!(written > 0);
}

/// Makes the container with all that belongs to one; answers its definition.
fn set_up(client: &mut Client) -> Value {
    post(client, "/dbs", r#"{"id":"db"}"#, 201);
    let body = format!(r#"{{"id":"c",{},{POLICIES}}}"#, KEYS[2]);
    post(client, "/dbs/db/colls", &body, 201);
    let body = r#"{"id":"double","body":"function double(x) { return 2 * x; }"}"#;
    post(client, "/dbs/db/colls/c/udfs", body, 201);
    let body = r#"{"id":"hello","body":"function hello() { getContext().getResponse().setBody('hello'); }"}"#;
    post(client, "/dbs/db/colls/c/sprocs", body, 201);
    let body =
        r#"{"id":"stamp","triggerType":"Pre","triggerOperation":"Create","body":"function stamp() {}"}"#;
    post(client, "/dbs/db/colls/c/triggers", body, 201);
    for id in 0..WRITERS * STILL_ITEMS {
        let writer = id % WRITERS;
        let id = writer * 10_000 + 1000 + id / WRITERS;
        let answer = upsert(client, "/date", id, 0).unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    get(client, "/dbs/db/colls/c")
}

fn post(client: &mut Client, path: &str, body: &str, status: u16) -> Value {
    let answer = client.send("POST", path, &[("content-type", "application/json")], body.as_bytes()).unwrap();
    assert_eq!(answer.status, status, "{path}: {}", answer.text());
    answer.json()
}

fn get(client: &mut Client, path: &str) -> Value {
    let answer = client.send("GET", path, &[], b"").unwrap();
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// Writes an item as clients do, with the key under the path that they believe the container has.
fn upsert(client: &mut Client, key_path: &str, id: u64, version: u64) -> std::io::Result<Response> {
    let (date, vin) = (format!("2018-08-{:02}", id % 28 + 1), format!("V{}", id % 97));
    let key = match key_path {
        "/date" => format!(r#"["{date}"]"#),
        "/VIN" => format!(r#"["{vin}"]"#),
        // The server makes it.
        _ => "[{}]".to_owned(),
    };
    let body = format!(r#"{{"id":"{id}","date":"{date}","VIN":"{vin}","number":{id},"version":{version}}}"#);
    let headers = [("x-ms-documentdb-partitionkey", key.as_str()), ("x-ms-documentdb-is-upsert", "true")];
    client.send("POST", ITEMS_PATH, &headers, body.as_bytes())
}

fn key_path(client: &mut Client) -> Option<String> {
    let answer =
        client.send("GET", "/dbs/db/colls/c", &[], b"").ok().filter(|answer| answer.status == 200)?;
    let paths = answer.json().get("partitionKey")?.get("paths")?.as_array()?.to_vec();
    Some(paths.first()?.as_str()?.to_owned())
}

fn start_writers(
    port: u16,
    known: Vec<Known>,
    stop: &Arc<AtomicBool>,
) -> Vec<std::thread::JoinHandle<Known>> {
    let each = known.into_iter().enumerate().map(|(writer, mut own)| {
        let stop = Arc::clone(stop);
        std::thread::spawn(move || {
            write(port, writer as u64, &mut own, &stop);
            own
        })
    });
    each.collect()
}

fn write(port: u16, writer: u64, known: &mut Known, stop: &AtomicBool) {
    let mut client = Client::new(port);
    let Some(mut path) = key_path(&mut client) else { return };
    while !stop.load(Ordering::Relaxed) {
        known.next_version += 1;
        let version = known.next_version;
        let id = writer * 10_000 + version % ITEMS;
        match upsert(&mut client, &path, id, version) {
            Ok(answer) if answer.status < 300 => {
                known.acknowledged.insert(id, version);
                known.unknown.remove(&id);
            }
            // The container has another key by now: clients look at it again.
            Ok(answer) if matches!(answer.status, 400 | 404 | 410) => match key_path(&mut client) {
                Some(new) => {
                    let is_known = new == path && !answer.text().contains("artition");
                    assert!(!is_known, "{}: {}", answer.status, answer.text());
                    path = new;
                }
                None => return,
            },
            // A server that is being killed may fail in any way; what it said nothing about may have happened.
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

/// Waits until it is at this stage, or past it, and a little longer; tells what the server said last.
fn wait_for(client: &mut Client, begin: &str, stage: Stage, longer: Duration) -> String {
    loop {
        // Repeating what began it tells how far it is.
        let status = post(client, "/_orrery/repartition", begin, 200);
        let text = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let count = |name: &str| status.get(name).and_then(Value::as_i64).unwrap_or(0);
        let phase = text("phase");
        assert_ne!(phase, "failed", "{}", text("message"));
        // Everything was copied once, so what is copied now are changes.
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
            std::thread::sleep(longer);
            return phase;
        }
    }
}

/// Waits for the end, which the command that began it, repeated, tells too.
fn finish(client: &mut Client, begin: &str, place: &str) {
    let patience = Instant::now();
    loop {
        let answer = client.send("POST", "/_orrery/repartition", &[], begin.as_bytes()).unwrap();
        // What was made and not recorded when the server was killed is in the way for a minute.
        if answer.status == 409 && patience.elapsed() < Duration::from_mins(3) {
            std::thread::sleep(Duration::from_secs(1));
            continue;
        }
        assert_eq!(answer.status, 200, "{place}: {}", answer.text());
        match answer.json().get("phase").and_then(Value::as_str) {
            Some("done") => return,
            Some("failed") => panic!("{place}: {}", answer.text()),
            _ => assert!(patience.elapsed() < Duration::from_mins(5), "{place}: {}", answer.text()),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Everything acknowledged is there, once, and nothing that nobody wrote; what was in doubt is known from here on.
fn resolve(client: &mut Client, known: &mut [Known], place: &str) {
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    let mut token: Option<String> = None;
    loop {
        let mut headers = vec![("x-ms-max-item-count", "1000")];
        if let Some(token) = &token {
            headers.push(("x-ms-continuation", token));
        }
        let answer = client.send("GET", ITEMS_PATH, &headers, b"").unwrap();
        if answer.status == 404 || answer.status == 400 || answer.status == 410 {
            // The container was replaced between two pages: clients begin anew.
            (found, token) = (BTreeMap::new(), None);
            continue;
        }
        assert_eq!(answer.status, 200, "{place}: {}", answer.text());
        for item in answer.json().get("Documents").unwrap().as_array().unwrap() {
            let id = item.get("id").unwrap().as_str().unwrap().parse().unwrap();
            let version = u64::try_from(item.get("version").unwrap().as_i64().unwrap()).unwrap();
            assert!(found.insert(id, version).is_none(), "{place}: {id} is there twice");
        }
        token = answer.header("x-ms-continuation").map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    let mut expected = usize::try_from(WRITERS * STILL_ITEMS).unwrap();
    for own in known.iter_mut() {
        for (id, version) in std::mem::take(&mut own.unknown) {
            if found.get(&id) == Some(&version) {
                own.acknowledged.insert(id, version);
            }
        }
        for (id, version) in &own.acknowledged {
            assert_eq!(found.get(id), Some(version), "{place}: {id}");
        }
        expected += own.acknowledged.len();
    }
    assert_eq!(found.len(), expected, "{place}");
}

/// The container is the one that was asked for, with all that belonged to the first, and nothing is left of the work.
fn check_container(client: &mut Client, made: &Value, key: &str, place: &str) {
    let containers = get(client, "/dbs/db/colls");
    let containers = containers.get("DocumentCollections").unwrap().as_array().unwrap();
    assert_eq!(containers.len(), 1, "{place}");
    let wanted = orrery_model::value::parse(format!("{{{key}}}").as_bytes()).unwrap();
    let paths = |definition: &Value| definition.get("partitionKey").unwrap().get("paths").unwrap().clone();
    assert_eq!(paths(&containers[0]), paths(&wanted), "{place}");
    let has_policy = containers[0].get("orrerySyntheticKey").is_some();
    assert_eq!(has_policy, wanted.get("syntheticKey").is_some(), "{place}");
    for name in ["indexingPolicy", "uniqueKeyPolicy", "defaultTtl", "computedProperties"] {
        assert!(made.get(name).is_some(), "{name}");
        assert_eq!(containers[0].get(name), made.get(name), "{place}: {name}");
    }
    let headers = [("x-ms-documentdb-partitionkey", r#"["any"]"#)];
    let hello = client.send("POST", "/dbs/db/colls/c/sprocs/hello", &headers, b"[]").unwrap();
    assert_eq!((hello.status, hello.text().as_str()), (200, r#""hello""#), "{place}");
    assert_eq!(get(client, "/dbs/db/colls/c/udfs/double").get("id").unwrap().as_str(), Some("double"));
    let trigger = get(client, "/dbs/db/colls/c/triggers/stamp");
    assert_eq!(trigger.get("triggerOperation").unwrap().as_str(), Some("Create"), "{place}");
}
