//! `orrery backup` and `orrery restore` with the real binary: while writing, after `kill -9`, to a point in time.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests")]
#![cfg(unix)]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{DOCS, Server, orrery, path_text, run, until};
use orrery_advisor::moment;
use orrery_env::{Env, SystemEnv};
use orrery_model::Value;

fn back_up(server: &Server, into: &Path) -> Value {
    let url = server.url();
    let arguments = ["backup", path_text(into), "--endpoint", &url, "--output", "json"];
    let (code, stdout, stderr) = run(&mut orrery(&arguments));
    assert_eq!(code, 0, "{stderr}");
    orrery_model::value::parse(stdout.as_bytes()).unwrap()
}

fn restore(from: &Path, data: &Path, more: &[&str]) -> (i32, String, String) {
    let arguments = [&["restore", path_text(from), "--data", path_text(data)], more].concat();
    run(&mut orrery(&arguments))
}

fn create(client: &mut common::Client, id: u64) {
    let body = format!(r#"{{"id":"{id}","pk":"a","n":{id}}}"#);
    client.post_with(DOCS, &[("x-ms-documentdb-partitionkey", "[\"a\"]")], &body, 201);
}

fn count(server: &Server) -> u64 {
    let headers = [
        ("x-ms-documentdb-isquery", "true"),
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-partitionkey", "[\"a\"]"),
    ];
    let query = r#"{"query":"SELECT VALUE COUNT(1) FROM c"}"#;
    let answer = server.client().post_with(DOCS, &headers, query, 200).json();
    let count = answer.get("Documents").unwrap().as_array().unwrap()[0].as_i64().unwrap();
    count.cast_unsigned()
}

#[test]
fn a_backup_taken_while_writing_holds_everything_acknowledged_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let (data, backups) = (directory.path().join("data"), directory.path().join("backups"));
    let server = Server::on_directory(&data);
    server.client().create_container(&[]);
    let (written, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writer = std::thread::spawn({
        let (mut client, written, stop) = (server.client(), Arc::clone(&written), Arc::clone(&stop));
        move || {
            while !stop.load(Ordering::Acquire) {
                create(&mut client, written.load(Ordering::Acquire));
                written.fetch_add(1, Ordering::AcqRel);
            }
        }
    });
    let mut least = 0;
    for round in 1..=3 {
        until("some writes", || (written.load(Ordering::Acquire) >= round * 50).then_some(()));
        least = written.load(Ordering::Acquire);
        back_up(&server, &backups);
    }
    stop.store(true, Ordering::Release);
    writer.join().unwrap();
    server.kill();
    let (code, stdout, _) = run(&mut orrery(&["backup", path_text(&backups), "--verify"]));
    assert_eq!((code, stdout.lines().count()), (0, 3), "{stdout}");

    let restored = directory.path().join("restored");
    let (code, stdout, stderr) = restore(&backups, &restored, &[]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("restored "), "{stdout}");
    let server = Server::on_directory(&restored);
    let found = count(&server);
    assert!(found >= least, "{found} of {least}");
    // It serves and keeps writing like any other.
    create(&mut server.client(), 1_000_000);
    server.kill();
    assert_eq!(count(&Server::on_directory(&restored)), found + 1);
}

#[test]
fn a_server_that_keeps_its_log_can_be_restored_to_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let (data, backups) = (directory.path().join("data"), directory.path().join("backups"));
    let server = Server::start(&["--no-throttle", "--data", path_text(&data), "--keep-log", "24h"]);
    server.client().create_container(&[]);
    let mut client = server.client();
    create(&mut client, 0);
    back_up(&server, &backups);
    let mut next = 1;
    // Ends as the clock shows a new second, so that the moment can be named.
    let mut write_for_seconds = |seconds: i64| {
        let begun = SystemEnv.now_seconds();
        while SystemEnv.now_seconds() < begun + seconds {
            create(&mut client, next);
            next += 1;
        }
        next
    };
    write_for_seconds(2);
    let moment_ms = SystemEnv.now_ms();
    let before = write_for_seconds(0);
    let after = write_for_seconds(3);
    back_up(&server, &backups);
    server.stop();

    let restored = directory.path().join("restored");
    let (code, _, stderr) = restore(&backups, &restored, &["--until", &moment::print(moment_ms)]);
    assert_eq!(code, 0, "{stderr}");
    let found = count(&Server::on_directory(&restored));
    // The time is recorded every 10 ms, so a few writes after the moment may be there.
    assert!(found > 1 && found <= before + (after - before) / 10, "{found} of {before}, {after}");

    let elsewhere = directory.path().join("elsewhere");
    for (until, reason) in [
        ("2001-01-01", "before the oldest backup"),
        ("2101-01-01", "after the newest backup"),
        ("yesterday", "expected a time such as"),
    ] {
        let (code, _, stderr) = restore(&backups, &elsewhere, &["--until", until]);
        assert!(code != 0 && stderr.contains(reason), "{code}: {stderr}");
    }
    // Nothing is written over.
    let (code, _, stderr) = restore(&backups, &restored, &[]);
    assert!(code == 1 && stderr.contains("not empty"), "{code}: {stderr}");
}

#[test]
fn an_in_memory_store_reports_that_it_has_no_backups() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&["--in-memory"]);
    let url = server.url();
    let (code, _, stderr) =
        run(&mut orrery(&["backup", path_text(&directory.path().join("b")), "--endpoint", &url]));
    assert!(code == 1 && stderr.contains("memory store has no checkpoints"), "{code}: {stderr}");
}

#[test]
fn checkpoints_need_the_account_key_and_are_few() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::on_directory(&directory.path().join("data"));
    let (status, _) =
        server.raw("POST /_orrery/checkpoints HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n");
    assert_eq!(status, 401);
    let mut client = server.client();
    let taken: Vec<Value> = (0..4).map(|_| client.post("/_orrery/checkpoints", "", 201)).collect();
    client.post("/_orrery/checkpoints", "", 409);
    let id = taken[0].get("id").unwrap().as_str().unwrap();
    let mut send = |method: &str, rest: &str| {
        client.send(method, &format!("/_orrery/checkpoints/{id}{rest}"), &[], b"").unwrap().status
    };
    assert_eq!(send("GET", "/files?path=FORMAT"), 200);
    assert_eq!(send("GET", "/files?path=..%2F..%2Faccount-key"), 404);
    assert_eq!(send("GET", "/files?path=FORMAT&offset=x"), 400);
    assert_eq!(send("DELETE", ""), 204);
    assert_eq!(send("DELETE", ""), 404);
    client.post("/_orrery/checkpoints", "", 201);
}

#[test]
fn a_backup_can_be_a_single_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("backup.tar");
    let server = Server::on_directory(&directory.path().join("data"));
    server.client().create_container(&[]);
    for id in 0..20 {
        create(&mut server.client(), id);
    }
    assert!(back_up(&server, &file).get("bytes").unwrap().as_i64() > Some(0));
    // Not twice, and nothing else stays behind.
    let url = server.url();
    let (code, _, stderr) = run(&mut orrery(&["backup", path_text(&file), "--endpoint", &url]));
    assert!(code == 1 && stderr.contains("exists"), "{stderr}");
    let (code, stdout, _) = run(&mut orrery(&["backup", path_text(&file), "--verify"]));
    assert!(code == 0 && stdout.contains("verified"), "{stdout}");
    let restored = directory.path().join("restored");
    let (code, _, stderr) = restore(&file, &restored, &[]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(count(&Server::on_directory(&restored)), 20);
    let mut left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["backup.tar", "data", "restored"]);

    // A damaged file is refused.
    let mut content = std::fs::read(&file).unwrap();
    content[600] ^= 1;
    std::fs::write(&file, content).unwrap();
    let (code, _, stderr) = restore(&file, &directory.path().join("again"), &[]);
    assert!(code == 1 && stderr.contains("damaged"), "{stderr}");
}
