//! A server at the limits of its machine: memory, disk, and containers dropped while others are written.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stderr, reason = "tests")]
#![cfg(target_os = "linux")]

mod common;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Client, DOCS, Server, path_text};

const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"a\"]");
const UPSERT: (&str, &str) = ("x-ms-documentdb-is-upsert", "True");

fn create_container(client: &mut Client, name: &str) {
    // The database may exist already.
    client.send("POST", "/dbs", &[], br#"{"id":"db"}"#).unwrap();
    let body = format!(r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#);
    let made = client.send("POST", "/dbs/db/colls", &[], body.as_bytes()).unwrap();
    assert_eq!(made.status, 201, "{}", made.text());
}

/// The peak resident memory of a process.
fn peak_megabytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() >> 10
}

/// Each of these items needs about 14 times its size while it is written.
#[test]
fn concurrent_large_items_stay_within_the_memory_budget() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&["--no-throttle", "--memory-mb", "16", "--data", path_text(&data)]);
    create_container(&mut server.client(), "c");
    let mut numbers = String::new();
    for number in 0..60_000 {
        write!(numbers, "{number},").unwrap();
    }
    let before = peak_megabytes(server.id());
    std::thread::scope(|scope| {
        for writer in 0..48 {
            let item = format!(r#"{{"id":"{writer}","pk":"a","n":[{numbers}0]}}"#);
            let mut client = server.client();
            scope.spawn(move || {
                // Retry when throttled, as every SDK does.
                let begin = Instant::now();
                loop {
                    let made = client.send("POST", DOCS, &[KEY], item.as_bytes()).unwrap();
                    match made.status {
                        201 => break,
                        429 => assert!(begin.elapsed() < Duration::from_mins(2)),
                        other => panic!("{other}: {}", made.text()),
                    }
                }
            });
        }
    });
    let used = peak_megabytes(server.id()) - before;
    // This includes the memtables. Without the budget it was 400 MB.
    assert!(used < 300, "{used} MB");
}

/// What queries sort, group and collect shares the budget too.
#[test]
fn concurrent_sorts_stay_within_the_memory_budget() {
    let server = Server::start(&["--no-throttle", "--in-memory", "--memory-mb", "32"]);
    let mut client = server.client();
    create_container(&mut client, "c");
    for number in 0..400 {
        let text = "x".repeat(50_000);
        let item = format!(r#"{{"id":"{number}","pk":"a","text":"{text}{number}","n":{number}}}"#);
        assert_eq!(client.send("POST", DOCS, &[KEY], item.as_bytes()).unwrap().status, 201);
    }
    let query = |client: &mut Client, text: &str| {
        let body = format!(r#"{{"query":"{text}"}}"#);
        let headers = [KEY, ("x-ms-documentdb-isquery", "True"), ("content-type", "application/query+json")];
        client.send("POST", DOCS, &headers, body.as_bytes()).unwrap().status
    };
    let before = peak_megabytes(server.id());
    // Each holds about 20 MB.
    let queries = [
        "SELECT DISTINCT VALUE c.text FROM c",
        "SELECT c.text, COUNT(1) AS n FROM c GROUP BY c.text",
        "SELECT DISTINCT c.text, c.n FROM c ORDER BY c.n",
    ];
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..24)
            .map(|number| {
                let (mut client, text) = (server.client(), queries[number % queries.len()]);
                scope.spawn(move || query(&mut client, text))
            })
            .collect();
        running.into_iter().map(|query| query.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|status| matches!(status, 200 | 429)), "{answers:?}");
    assert!(answers.contains(&429), "{answers:?}");
    let used = peak_megabytes(server.id()) - before;
    // Without the budget it was more than 500 MB.
    assert!(used < 250, "{used} MB");
    // What they held is free again.
    assert_eq!(query(&mut client, "SELECT VALUE COUNT(1) FROM c GROUP BY c.n % 10"), 200);
}

/// Answers that clients do not take are counted.
#[test]
fn unread_answers_stay_within_the_memory_budget() {
    use std::io::Write;
    let server = Server::start(&["--no-throttle", "--in-memory", "--memory-mb", "64"]);
    let mut client = server.client();
    create_container(&mut client, "c");
    let item = format!(r#"{{"id":"1","pk":"a","text":"{}"}}"#, "x".repeat(1_900_000));
    assert_eq!(client.send("POST", DOCS, &[KEY], item.as_bytes()).unwrap().status, 201);
    assert_eq!(client.send("POST", DOCS, &[KEY], br#"{"id":"2","pk":"a"}"#).unwrap().status, 201);
    let before = peak_megabytes(server.id());
    let path = format!("{DOCS}/1");
    let unread: Vec<_> = (0..100)
        .map(|_| {
            let date = orrery_gateway::auth::print_date(orrery_env::Env::now_seconds(&orrery_env::SystemEnv));
            let key = orrery_gateway::auth::MasterKey::well_known();
            let authorization = orrery_gateway::auth::sign_request(&key, "GET", &path, None, &date);
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            // The system's buffers hold some answers; enough are asked for to fill them.
            let request = format!(
                "GET {path} HTTP/1.1\r\nhost: localhost\r\nx-ms-date: {date}\r\nauthorization: {authorization}\r\n\
                 x-ms-documentdb-partitionkey: [\"a\"]\r\n\r\n"
            );
            stream.write_all(request.repeat(16).as_bytes()).unwrap();
            stream
        })
        .collect();
    // Small answers are still given, and a large one is throttled instead of making the process grow.
    assert_eq!(client.send("GET", &format!("{DOCS}/2"), &[KEY], b"").unwrap().status, 200);
    common::until("large answers to be throttled", || {
        (client.send("GET", &path, &[KEY], b"").unwrap().status == 429).then_some(())
    });
    let used = peak_megabytes(server.id()) - before;
    // Without the budget it was 200 MB.
    assert!(used < 120, "{used} MB");
    // Once the clients have gone there is room again.
    drop(unread);
    common::until("room for answers", || {
        (client.send("GET", &path, &[KEY], b"").unwrap().status == 200).then_some(())
    });
}

/// A small file system in memory, unmounted at the end of the test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(megabytes: u32) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory.path()).output();
        if mount.is_ok_and(|output| output.status.success()) {
            return Some(Self(directory));
        }
        eprintln!("skipped: a file system cannot be mounted here");
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.path()).status().ok();
    }
}

/// Fills the disk, but for some megabytes.
fn take_the_rest(path: &Path) {
    use std::io::Write;
    let mut file = fs::File::create(path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let length = file.metadata().unwrap().len();
    file.set_len(length.saturating_sub(4 << 20)).unwrap();
}

#[test]
fn a_full_disk_is_reported_and_recovers() {
    let Some(disk) = SmallDisk::mount(96) else { return };
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![1; 60 << 20]).unwrap();
    let data = disk.path().join("data");
    let server = Server::start(&["--no-throttle", "--disk-reserve-mb", "8", "--data", path_text(&data)]);
    let mut client = server.client();
    create_container(&mut client, "c");
    let body = "x".repeat(500_000);
    let mut written = 0;
    let write = |client: &mut Client, number: usize| {
        let item = format!(r#"{{"id":"{number}","pk":"a","body":"{body}"}}"#);
        client.send("POST", DOCS, &[KEY], item.as_bytes()).unwrap()
    };
    while write(&mut client, written).status == 201 {
        written += 1;
        assert!(written < 200, "the disk never filled up");
    }
    // Tables replace journals meanwhile, which may make room again: take all that is left.
    let rest = disk.path().join("rest");
    take_the_rest(&rest);
    for path in ["/_orrery/health", "/ready"] {
        let begin = Instant::now();
        let health = loop {
            let health = client.send("GET", path, &[], b"").unwrap();
            if health.status == 503 {
                break health.text();
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "{}", health.text());
        };
        let reasons = ["kept in reserve", "could not be", "No space left on device"];
        assert!(reasons.iter().any(|reason| health.contains(reason)), "{health}");
    }
    let refused = write(&mut client, written);
    assert_eq!(refused.status, 507, "{}", refused.text());
    assert!(refused.text().contains("InsufficientStorage"), "{}", refused.text());
    let metrics = client.send("GET", "/_orrery/metrics", &[], b"").unwrap().text();
    assert!(metrics.contains("\norrery_store_health 1\n"), "{metrics}");
    assert_eq!(client.send("GET", "/alive", &[], b"").unwrap().status, 200);
    // Reads and deletes still work.
    let item = "/dbs/db/colls/c/docs/0";
    assert_eq!(client.send("GET", item, &[KEY], b"").unwrap().status, 200);
    assert_eq!(client.send("DELETE", item, &[KEY], b"").unwrap().status, 204);
    fs::remove_file(&filler).unwrap();
    fs::remove_file(&rest).unwrap();
    let begin = Instant::now();
    while client.send("GET", "/ready", &[], b"").unwrap().status != 200 {
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
    let again = format!(r#"{{"id":"again","pk":"a","body":"{body}"}}"#);
    assert_eq!(client.send("POST", DOCS, &[KEY], again.as_bytes()).unwrap().status, 201);
    for number in 1..written {
        let item = format!("/dbs/db/colls/c/docs/{number}");
        assert_eq!(client.send("GET", &item, &[KEY], b"").unwrap().status, 200);
    }
    server.stop();
}

/// Three containers are filled and dropped while a fourth is written, also after a restart. `make soak` uses containers
/// large enough to fill all levels of the tree.
#[test]
fn dropping_containers_does_not_block_writes() {
    let rounds = std::env::var("ORRERY_SOAK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let items_each = 600 * rounds;
    let server = Server::start(&["--no-throttle", "--data", path_text(&data)]);
    let mut client = server.client();
    for name in ["a", "b", "c", "d"] {
        create_container(&mut client, name);
    }
    let fill = |port: u16, name: &'static str, from: usize, count: usize| {
        let mut client = Client::new(port);
        let mut longest = Duration::ZERO;
        for number in from..from + count {
            let tags: Vec<String> = (0..20).map(|tag| format!("\"tag {tag} of {number}\"")).collect();
            let item = format!(r#"{{"id":"{number}","pk":"a","tags":[{}]}}"#, tags.join(","));
            let path = format!("/dbs/db/colls/{name}/docs");
            let begin = Instant::now();
            let made = client.send("POST", &path, &[KEY, UPSERT], item.as_bytes()).unwrap();
            longest = longest.max(begin.elapsed());
            assert_eq!(made.status, 201, "{}", made.text());
        }
        longest
    };
    let port = server.port;
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            scope.spawn(move || fill(port, name, 0, items_each));
        }
    });
    for name in ["a", "b", "c"] {
        assert_eq!(client.send("DELETE", &format!("/dbs/db/colls/{name}"), &[], b"").unwrap().status, 204);
    }
    let longest = fill(server.port, "d", 0, items_each);
    assert!(longest < Duration::from_secs(10), "a write took {longest:?}");
    assert_eq!(client.send("GET", "/ready", &[], b"").unwrap().status, 200);
    server.kill();
    let server = Server::start(&["--no-throttle", "--data", path_text(&data)]);
    let longest = fill(server.port, "d", items_each, items_each);
    assert!(longest < Duration::from_secs(10), "a write took {longest:?}");
    server.stop();
}

/// Where the store cannot go on writing, reads do, health says why, and the exit code is not 0.
#[test]
fn a_failed_store_reports_it() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut server = Server::start(&["--no-throttle", "--data", path_text(&data)]);
    let mut client = server.client();
    create_container(&mut client, "c");
    // The next journal cannot be made.
    for number in 2..50 {
        fs::create_dir(data.join(format!("store/journal/{number:010}.tmp"))).unwrap();
    }
    let body = "x".repeat(1_000_000);
    let mut written = 0;
    let refused = loop {
        let item = format!(r#"{{"id":"{written}","pk":"a","body":"{body}"}}"#);
        let made = client.send("POST", DOCS, &[KEY], item.as_bytes()).unwrap();
        if made.status != 201 {
            break made;
        }
        written += 1;
        assert!(written < 100, "writing never failed");
    };
    assert_eq!(refused.status, 503, "{}", refused.text());
    let health = client.send("GET", "/_orrery/health", &[], b"").unwrap();
    assert_eq!(health.status, 503);
    assert!(health.text().contains("\"failed\"") && health.text().contains("restart"), "{}", health.text());
    for number in 0..written {
        let item = format!("{DOCS}/{number}");
        assert_eq!(client.send("GET", &item, &[KEY], b"").unwrap().status, 200);
    }
    server.signal("-TERM");
    assert_ne!(server.wait().code, 0);
}
