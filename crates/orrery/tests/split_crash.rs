//! Splits and merges under `kill -9`: the server dies at random moments while partitions are split and merged under
//! concurrent writes. After each restart everything acknowledged is there.
//!
//! Four rounds, or `ORRERY_SOAK_ROUNDS`; see `common::Rounds`.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::{Client, Crew, DOCS, Expected, KnownVersions, Rounds, Server};

const WRITERS: u64 = 4;
const KEYS: u64 = 30;
const ITEMS: u64 = 60;
const CONTAINER: &str = r#""database":"db","container":"c""#;

#[test]
fn splits_and_merges_survive_kill_9() {
    let mut rounds = Rounds::new("splits", 4);
    let seed = rounds.seed;
    let directory = tempfile::tempdir().unwrap();
    let mut known: Vec<KnownVersions> = (0..WRITERS).map(|_| KnownVersions::default()).collect();
    let changes = AtomicU64::new(0);
    for round in 0..rounds.count {
        let server = Server::on_directory(directory.path());
        let port = server.port;
        let mut client = Client::new(port);
        if round == 0 {
            client.create_container(&[]);
        }
        verify(&mut client, &mut known, &format!("seed {seed}, round {round}"));
        let client = |number, own: &mut Option<KnownVersions>, crew: &Crew| match own {
            Some(own) => write(port, number, own, crew),
            None => reshape(port, crew, &changes),
        };
        // The writers, and one that changes the partitions.
        let mut crew: Vec<_> = std::mem::take(&mut known).into_iter().map(Some).chain([None]).collect();
        Crew::work(&mut crew, client, |crew| {
            rounds.wait(crew, 100, 1500);
            server.kill();
        });
        known = crew.into_iter().flatten().collect();
    }
    let server = Server::on_directory(directory.path());
    verify(&mut server.client(), &mut known, &format!("seed {seed}, the end"));
    server.stop();
    let written: usize = known.iter().map(|own| own.acknowledged.len()).sum();
    eprintln!("{} splits and merges finished, {written} items", changes.load(Ordering::Relaxed));
    assert!(written > 0);
}

fn write(port: u16, writer: u64, known: &mut KnownVersions, crew: &Crew) {
    let mut client = Client::new(port);
    while !crew.is_stopped() {
        known.next_version += 1;
        let version = known.next_version;
        let id = writer * 1000 + version % ITEMS;
        let key = format!(r#"["k{}"]"#, id % KEYS);
        let body = format!(r#"{{"id":"{id}","pk":"k{}","version":{version}}}"#, id % KEYS);
        let headers = [("x-ms-documentdb-partitionkey", key.as_str()), ("x-ms-documentdb-is-upsert", "true")];
        match client.send("POST", DOCS, &headers, body.as_bytes()) {
            Ok(answer) if answer.status < 300 => {
                known.acknowledge(id, version);
                crew.count();
            }
            // A dying server may fail in any way; the write may or may not have happened.
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

/// Splits and merges without pause: up to six partitions, then back to one.
fn reshape(port: u16, crew: &Crew, changes: &AtomicU64) {
    let mut client = Client::new(port);
    let mut grow = true;
    while !crew.is_stopped() {
        let Ok(answer) = client.send("GET", "/_orrery/partitions", &[], b"") else { return };
        let view = answer.json();
        let partitions = view.as_array().unwrap()[0].get("partitions").unwrap().as_array().unwrap();
        let ids: Vec<&str> = partitions.iter().map(|one| one.get("id").unwrap().as_str().unwrap()).collect();
        grow = if ids.len() >= 6 { false } else { grow || ids.len() == 1 };
        let (path, body) = if grow {
            let widest = ids[usize::try_from(changes.load(Ordering::Relaxed)).unwrap() % ids.len()];
            ("/_orrery/partitions/split", format!(r#"{{{CONTAINER},"partition":"{widest}"}}"#))
        } else {
            let body = format!(r#"{{{CONTAINER},"partitions":["{}","{}"]}}"#, ids[0], ids[1]);
            ("/_orrery/partitions/merge", body)
        };
        match client.send("POST", path, &[], body.as_bytes()) {
            Ok(answer) if answer.status == 200 => {
                changes.fetch_add(1, Ordering::Relaxed);
            }
            // A partition with one key cannot be split, and a dying server may fail in any way.
            Ok(answer) if answer.status == 400 || answer.status >= 500 => {}
            Ok(answer) => panic!("{}: {}", answer.status, answer.text()),
            Err(_) => return,
        }
    }
}

/// Everything acknowledged is there once, nothing else is, and the partitions are consistent.
fn verify(client: &mut Client, known: &mut [KnownVersions], place: &str) {
    let expected = Expected { untracked_items: 0, page_items: 50, may_be_replaced: false };
    let expected = KnownVersions::verify(client, known, &expected, place);
    // The partitions cover the key space, and no split or merge is left half done.
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
