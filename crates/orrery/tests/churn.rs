//! Containers are created, split, merged, repartitioned and dropped while another one is written all the time. None of its
//! writes may take long or be lost, and the server stays healthy. `make soak` does this for half an hour with large
//! containers; an ordinary run takes a few seconds.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stdout, reason = "tests")]
#![cfg(unix)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Client, Server};

/// No write may take longer, whatever else happens.
const LONGEST_WRITE: Duration = Duration::from_secs(10);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn send(client: &mut Client, method: &str, path: &str, body: &str, wanted: u16) -> String {
    let response = client.send(method, path, &[], body.as_bytes()).unwrap();
    assert_eq!(response.status, wanted, "{method} {path}: {}", response.text());
    response.text()
}

fn create_container(client: &mut Client, name: &str) {
    let body = format!(r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#);
    send(client, "POST", "/dbs/db/colls", &body, 201);
}

/// Writes an item; returns how long it took. Retries while a partition is being moved, as SDKs do.
fn write(client: &mut Client, container: &str, key: &str, id: &str, text: &str) -> Duration {
    let body = format!(r#"{{"id":"{id}","pk":"{key}","other":"{id}","text":"{text}"}}"#);
    let key = format!("[\"{key}\"]");
    let headers = [("x-ms-documentdb-partitionkey", key.as_str()), ("x-ms-documentdb-is-upsert", "True")];
    let begin = Instant::now();
    loop {
        let path = format!("/dbs/db/colls/{container}/docs");
        let response = client.send("POST", &path, &headers, body.as_bytes()).unwrap();
        match response.status {
            200 | 201 => return begin.elapsed(),
            410 | 429 | 449 | 503 => assert!(begin.elapsed() < LONGEST_WRITE, "{}", response.text()),
            status => panic!("{status}: {}", response.text()),
        }
    }
}

fn partitions(client: &mut Client, name: &str) -> Vec<String> {
    let path = format!("/_orrery/partitions?database=db&container={name}");
    let response = client.send("GET", &path, &[], b"").unwrap().json();
    let container = response.as_array().unwrap()[0].clone();
    let ids = container.get("partitions").and_then(orrery_model::Value::as_array).unwrap().iter();
    ids.map(|partition| partition.get("id").and_then(orrery_model::Value::as_str).unwrap().to_owned())
        .collect()
}

/// The life of one container, from creation to deletion.
fn live(port: u16, round: u64, items: u64) {
    let mut client = Client::new(port);
    let name = format!("churn{round}");
    create_container(&mut client, &name);
    for item in 0..items {
        write(&mut client, &name, &format!("k{}", item % 50), &format!("{item}"), "some text to index");
    }
    let first = partitions(&mut client, &name)[0].clone();
    let place = format!(r#""database":"db","container":"{name}""#);
    send(
        &mut client,
        "POST",
        "/_orrery/partitions/split",
        &format!(r#"{{{place},"partition":"{first}"}}"#),
        200,
    );
    let halves = partitions(&mut client, &name);
    assert_eq!(halves.len(), 2);
    let pair = format!(r#"{{{place},"partitions":["{}","{}"]}}"#, halves[0], halves[1]);
    send(&mut client, "POST", "/_orrery/partitions/merge", &pair, 200);
    let key = r#"{"paths":["/other"],"kind":"Hash","version":2}"#;
    send(&mut client, "POST", "/_orrery/repartition", &format!(r#"{{{place},"partitionKey":{key}}}"#), 200);
    let begin = Instant::now();
    loop {
        let path = format!("/_orrery/repartition?database=db&container={name}");
        let status = client.send("GET", &path, &[], b"").unwrap().text();
        if status.contains("\"done\"") {
            break;
        }
        assert!(!status.contains("\"failed\""), "{status}");
        assert!(begin.elapsed() < Duration::from_mins(10), "{status}");
        std::thread::yield_now();
    }
    send(&mut client, "DELETE", &format!("/dbs/db/colls/{name}"), "", 204);
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn writes_continue_while_containers_come_and_go() {
    let minutes = setting("ORRERY_SOAK_MINUTES", 0);
    let (items, rounds) = if minutes > 0 { (100_000, u64::MAX) } else { (300, 3) };
    let deadline = Instant::now() + Duration::from_secs(minutes * 60);
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::on_directory(&data);
    let port = server.port;
    let mut client = Client::new(port);
    send(&mut client, "POST", "/dbs", r#"{"id":"db"}"#, 201);
    create_container(&mut client, "steady");
    let (stop, longest_ms) = (AtomicBool::new(false), AtomicU64::new(0));
    let (stop, longest_ms) = (&stop, &longest_ms);
    let written: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer: u64| {
                scope.spawn(move || {
                    let mut client = Client::new(port);
                    let mut number = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let took = write(
                            &mut client,
                            "steady",
                            &format!("w{writer}"),
                            &number.to_string(),
                            "steady",
                        );
                        longest_ms.fetch_max(u64::try_from(took.as_millis()).unwrap(), Ordering::Relaxed);
                        number += 1;
                    }
                    number
                })
            })
            .collect();
        // A failure below must stop the writers too, or the scope waits forever.
        let ending = StopOnDrop(stop);
        let mut round = 0;
        while round < rounds && (minutes == 0 || Instant::now() < deadline) {
            live(port, round, items);
            round += 1;
            assert_eq!(client.send("GET", "/ready", &[], b"").unwrap().status, 200);
        }
        drop(ending);
        println!("{round} containers came and went");
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let longest = Duration::from_millis(longest_ms.load(Ordering::Relaxed));
    println!("{written:?} writes beside them, the longest took {longest:?}");
    assert!(longest < LONGEST_WRITE, "a write took {longest:?}");
    // Nothing acknowledged is lost, not even by kill -9.
    server.kill();
    let server = Server::on_directory(&data);
    let mut client = server.client();
    for (writer, count) in written.iter().enumerate() {
        let key = format!("[\"w{writer}\"]");
        for number in (0..*count).step_by(if minutes > 0 { 97 } else { 1 }) {
            let path = format!("/dbs/db/colls/steady/docs/{number}");
            let found = client.send("GET", &path, &[("x-ms-documentdb-partitionkey", &key)], b"").unwrap();
            assert_eq!(found.status, 200, "item {number} of writer {writer}");
        }
    }
    server.stop();
}
