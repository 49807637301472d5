//! `kill -9` in the middle of splits and merges: writers speak HTTP to the real binary while its partitions are
//! split and merged, it dies at random moments, and after each restart everything that was acknowledged is there.
//!
//! Four rounds, or `ORRERY_SOAK_ROUNDS`. The moments come from a seed, which is printed and can be given as
//! `ORRERY_SEED`.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test binary has no outside, and shares files with another"
)]

#[path = "crash/client.rs"]
mod client;
#[path = "crash/rounds.rs"]
mod rounds;
#[path = "crash/server.rs"]
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use client::Client;
use orrery_model::Value;
use rounds::Rounds;
use server::Served;

const WRITERS: u64 = 4;
const KEYS: u64 = 30;
const ITEMS: u64 = 60;
const PLACE: &str = r#""database":"db","container":"c""#;

/// What a writer knows of its items: the last version that was acknowledged, and one whose fate is unknown.
#[derive(Default)]
struct Known {
    acknowledged: BTreeMap<u64, u64>,
    unknown: BTreeMap<u64, u64>,
    next_version: u64,
}

#[test]
fn splits_survive_being_killed() {
    let mut rounds = Rounds::new("splits", 4);
    let seed = rounds.seed;
    let directory = tempfile::tempdir().unwrap();
    let mut known: Vec<Known> = (0..WRITERS).map(|_| Known::default()).collect();
    let changes = Arc::new(AtomicU64::new(0));
    for round in 0..rounds.count {
        let served = Served::start(directory.path());
        let port = served.port;
        let mut client = Client::new(port);
        if round == 0 {
            post(&mut client, "/dbs", r#"{"id":"db"}"#, 201);
            let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
            post(&mut client, "/dbs/db/colls", body, 201);
        }
        verify(&mut client, &mut known, &format!("seed {seed}, round {round}"));
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = known
            .into_iter()
            .enumerate()
            .map(|(writer, mut own)| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || {
                    write(port, writer as u64, &mut own, &stop);
                    own
                })
            })
            .collect();
        let reshaper = {
            let (stop, changes) = (Arc::clone(&stop), Arc::clone(&changes));
            std::thread::spawn(move || reshape(port, &stop, &changes))
        };
        rounds.wait(150);
        served.kill();
        stop.store(true, Ordering::Relaxed);
        known = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        reshaper.join().unwrap();
    }
    let served = Served::start(directory.path());
    verify(&mut Client::new(served.port), &mut known, &format!("seed {seed}, the end"));
    served.stop();
    let written: usize = known.iter().map(|own| own.acknowledged.len()).sum();
    eprintln!("{} splits and merges finished, {written} items", changes.load(Ordering::Relaxed));
    assert!(written > 0);
}

fn post(client: &mut Client, path: &str, body: &str, status: u16) -> Value {
    let answer = client.send("POST", path, &[("content-type", "application/json")], body.as_bytes()).unwrap();
    assert_eq!(answer.status, status, "{path}: {}", answer.text());
    answer.json()
}

fn write(port: u16, writer: u64, known: &mut Known, stop: &AtomicBool) {
    let mut client = Client::new(port);
    while !stop.load(Ordering::Relaxed) {
        known.next_version += 1;
        let version = known.next_version;
        let id = writer * 1000 + version % ITEMS;
        let key = format!(r#"["k{}"]"#, id % KEYS);
        let body = format!(r#"{{"id":"{id}","pk":"k{}","version":{version}}}"#, id % KEYS);
        let headers = [("x-ms-documentdb-partitionkey", key.as_str()), ("x-ms-documentdb-is-upsert", "true")];
        match client.send("POST", "/dbs/db/colls/c/docs", &headers, body.as_bytes()) {
            Ok(answer) if answer.status < 300 => {
                known.acknowledged.insert(id, version);
                known.unknown.remove(&id);
            }
            // A server that is being killed may fail in any way; what it said nothing about may have happened.
            Ok(answer) if answer.status >= 500 => {
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

/// Splits and merges without pause: up to six partitions, then back.
fn reshape(port: u16, stop: &AtomicBool, changes: &AtomicU64) {
    let mut client = Client::new(port);
    let mut grow = true;
    while !stop.load(Ordering::Relaxed) {
        let Ok(answer) = client.send("GET", "/_orrery/partitions", &[], b"") else { return };
        let view = answer.json();
        let partitions = view.as_array().unwrap()[0].get("partitions").unwrap().as_array().unwrap();
        let ids: Vec<&str> = partitions.iter().map(|one| one.get("id").unwrap().as_str().unwrap()).collect();
        grow = if ids.len() >= 6 { false } else { grow || ids.len() == 1 };
        let (path, body) = if grow {
            let widest = ids[usize::try_from(changes.load(Ordering::Relaxed)).unwrap() % ids.len()];
            ("/_orrery/partitions/split", format!(r#"{{{PLACE},"partition":"{widest}"}}"#))
        } else {
            let body = format!(r#"{{{PLACE},"partitions":["{}","{}"]}}"#, ids[0], ids[1]);
            ("/_orrery/partitions/merge", body)
        };
        match client.send("POST", path, &[], body.as_bytes()) {
            Ok(answer) if answer.status == 200 => {
                changes.fetch_add(1, Ordering::Relaxed);
            }
            // A partition with one key cannot be split; a dying server fails in any way.
            Ok(answer) if answer.status == 400 || answer.status >= 500 => {}
            Ok(answer) => panic!("{}: {}", answer.status, answer.text()),
            Err(_) => return,
        }
    }
}

/// Everything acknowledged is there, once, and nothing that nobody wrote.
fn verify(client: &mut Client, known: &mut [Known], place: &str) {
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    let mut token: Option<String> = None;
    loop {
        let mut headers = vec![("x-ms-max-item-count", "50")];
        if let Some(token) = &token {
            headers.push(("x-ms-continuation", token));
        }
        let answer = client.send("GET", "/dbs/db/colls/c/docs", &headers, b"").unwrap();
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
    let mut expected = 0;
    for own in known.iter_mut() {
        for (id, version) in std::mem::take(&mut own.unknown) {
            // Whichever way it went is now known.
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
    // Partitions cover the key space and none is left between two states.
    let view = client.send("GET", "/_orrery/partitions", &[], b"").unwrap().json();
    let view = &view.as_array().unwrap()[0];
    assert_eq!(view.get("partitionsChanging").unwrap().as_bool(), Some(false), "{place}");
    let partitions = view.get("partitions").unwrap().as_array().unwrap();
    let mut at = String::new();
    for partition in partitions {
        assert_eq!(partition.get("min").unwrap().as_str(), Some(at.as_str()), "{place}");
        partition.get("max").unwrap().as_str().unwrap().clone_into(&mut at);
    }
    assert_eq!(at, "FF", "{place}");
    let items: i64 = partitions.iter().map(|one| one.get("items").unwrap().as_i64().unwrap()).sum();
    assert_eq!(usize::try_from(items).unwrap(), expected, "{place}: the counters");
}
