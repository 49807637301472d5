//! `orrery keys`: replacing the account's keys while clients work.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(unix)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{Client, DOCS, Server, orrery, path_text, run, until};

fn start(data: &Path) -> Server {
    Server::start(&["--no-throttle", "--profile", "production", "--data", path_text(data)])
}

fn stored(data: &Path, name: &str) -> String {
    let path = data.join(name);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

/// Runs `orrery keys …` with a key: exit code, standard output without its last line break, standard error.
fn keys(server: &Server, key: &str, arguments: &[&str]) -> (i32, String, String) {
    let url = server.url();
    let all = [&["keys"], arguments, &["--endpoint", &url]].concat();
    let (code, stdout, stderr) = run(orrery(&all).env("ORRERY_KEY", key));
    (code, stdout.trim_end().to_owned(), stderr)
}

fn rotate(server: &Server, key: &str, kind: &str) -> String {
    let (code, new, stderr) = keys(server, key, &["rotate", kind]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!((new.len(), new.lines().count()), (88, 1), "{new}");
    new
}

/// The status of a request that any key allows.
fn status(server: &Server, key: &str) -> u16 {
    Client::with_key(server.port, key).send("GET", "/dbs", &[], b"").unwrap().status
}

#[test]
fn keys_are_replaced_while_a_client_writes_and_survive_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = start(&data);
    let first = stored(&data, "account-key");
    Client::with_key(server.port, &first).create_container(&[]);

    let secondary = rotate(&server, &first, "secondary");
    assert_eq!(stored(&data, "account-key-secondary"), secondary);
    let (written, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let primary = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = Client::with_key(server.port, &secondary);
            while !stop.load(Ordering::Relaxed) {
                let number = written.load(Ordering::Relaxed);
                let key = ("x-ms-documentdb-partitionkey", "[\"a\"]");
                let body = format!("{{\"id\":\"{number}\",\"pk\":\"a\"}}");
                client.post_with(DOCS, &[key], &body, 201);
                written.store(number + 1, Ordering::Relaxed);
            }
        });
        let more = |than: usize| (written.load(Ordering::Relaxed) > than).then_some(());
        until("the first writes", || more(2));
        let primary = rotate(&server, &first, "primary");
        let before = written.load(Ordering::Relaxed);
        until("writes after the rotation", || more(before + 2));
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        primary
    });
    assert_eq!(stored(&data, "account-key"), primary);
    assert_eq!([&first, &primary, &secondary].map(|key| status(&server, key)), [401, 200, 200]);

    server.kill();
    let server = start(&data);
    assert_eq!([&first, &primary, &secondary].map(|key| status(&server, key)), [401, 200, 200]);
    let next = rotate(&server, &primary, "secondary");
    assert_eq!([&secondary, &primary, &next].map(|key| status(&server, key)), [401, 200, 200]);
    server.stop();
}

#[test]
fn read_only_keys_are_made_too_and_have_no_part_in_keys() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let primary = stored(directory.path(), "account-key");
    let read_only = rotate(&server, &primary, "primaryReadonly");
    let other = rotate(&server, &primary, "secondary-readonly");
    assert_eq!([&read_only, &other].map(|key| status(&server, key)), [200, 200]);
    let refused = Client::with_key(server.port, &other).send("POST", "/dbs", &[], br#"{"id":"d"}"#).unwrap();
    assert_eq!(refused.status, 403, "{}", refused.text());
    for arguments in [&["list"][..], &["rotate", "secondary"], &["rotate", "primaryReadonly"]] {
        let (code, stdout, stderr) = keys(&server, &read_only, arguments);
        assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    }

    // Keys are never told again.
    let (code, listed, _) = keys(&server, &primary, &["list", "--output", "csv"]);
    assert_eq!(code, 0);
    let expected = "kind,source\nprimary,own\nsecondary,none\nprimaryReadonly,own\nsecondaryReadonly,own";
    assert_eq!(listed.replace("\r\n", "\n"), expected);
    let (code, json, _) = keys(&server, &primary, &["rotate", "secondaryReadonly", "--output", "json"]);
    assert!(code == 0 && json.starts_with(r#"{"kind":"secondaryReadonly","key":""#), "{json}");
    assert_eq!(status(&server, &other), 401);
    server.stop();
}

#[test]
fn keys_that_a_restart_would_bring_back_are_not_replaced() {
    let well_known = orrery_gateway::auth::WELL_KNOWN_KEY;
    let server = Server::start(&["--in-memory"]);
    let (code, stdout, stderr) = keys(&server, well_known, &["rotate", "primary"]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("well-known"), "{stderr}");
    // In memory, further keys live as long as the data.
    let (code, secondary, stderr) = keys(&server, well_known, &["rotate", "secondary"]);
    assert!(code == 0 && stderr.contains("gone when it stops"), "{stderr}");
    assert_eq!(status(&server, &secondary), 200);

    let given = orrery_gateway::auth::MasterKey::from_bytes(&[7; 64]).reveal().to_owned();
    let server = Server::start_with(&["--in-memory"], &[("ORRERY_KEY", &given)]);
    let (code, _, stderr) = keys(&server, &given, &["rotate", "primary"]);
    assert!(code == 1 && stderr.contains("set by the server's options"), "{stderr}");
    assert_eq!(status(&server, &given), 200);
}
