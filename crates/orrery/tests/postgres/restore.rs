//! The commands of "Backup and restore" in `docs/deploy.md`, run as they are printed there while a server writes. The
//! restored store must be the state of one moment.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use orrery_testing::{Server as PostgresServer, shell};

use crate::common::{Client, DOCS, Server, orrery, run, until};
use crate::{changes, ranges, sql, text, upsert};

const GUIDE: &str = include_str!("../../../../docs/deploy.md");

/// The code blocks of one language in a section of the guide.
fn blocks(section: &str, kind: &str) -> Vec<String> {
    let after = GUIDE.split_once(section).unwrap_or_else(|| panic!("there is no section {section}")).1;
    let text = after.split("\n## ").next().unwrap().split("\n### ").next().unwrap();
    let fence = format!("```{kind}\n");
    text.split(&fence).skip(1).map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

struct Writer {
    stop: Arc<AtomicBool>,
    /// Items below this number were acknowledged; the next one may be in flight.
    done: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Writer {
    /// Creates one item after the other.
    fn start(port: u16) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            let mut client = Client::new(port);
            while !stopped.load(Ordering::Relaxed) {
                let number = counted.load(Ordering::Relaxed);
                let body = format!(r#"{{"id":"{number}","pk":"k","n":{number}}}"#);
                assert_eq!(upsert(&mut client, "k", &body).unwrap().status, 201);
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { stop, done, thread }
    }

    fn wait_for_writes(&self) -> u64 {
        let from = self.done.load(Ordering::Relaxed);
        until("further writes", || (self.done.load(Ordering::Relaxed) >= from + 40).then_some(()));
        self.done.load(Ordering::Relaxed)
    }
}

/// A server on the restored store has the items 0 to some number, consistently, and accepts writes.
fn check(url: &str, at_least: u64, at_most: u64) {
    let (status, listed, failure) = run(&mut orrery(&["store", "status", "--store", url]));
    assert!(status == 0 && listed.contains("tables of version"), "{listed}{failure}");
    let server = Server::on_store(url);
    let mut client = server.client();
    let mut found = BTreeSet::new();
    for range in ranges(&mut client) {
        for item in changes(&mut client, &range, None).0 {
            assert!(found.insert(text(&item, "id").parse::<u64>().unwrap()));
        }
    }
    let count = found.len() as u64;
    assert!(found.iter().copied().eq(0..count), "items are missing: {found:?}");
    assert!((at_least..=at_most).contains(&count), "{count} items, expected {at_least} to {at_most}");
    let query = r#"{"query":"SELECT VALUE COUNT(1) FROM c WHERE c.n >= 0","parameters":[]}"#;
    let headers = [
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-isquery", "true"),
        ("x-ms-documentdb-partitionkey", r#"["k"]"#),
    ];
    let answer = client.send("POST", DOCS, &headers, query.as_bytes()).unwrap().json();
    let counted = answer.get("Documents").unwrap().as_array().unwrap()[0].as_i64();
    assert_eq!(counted, Some(i64::try_from(count).unwrap()), "the index disagrees");
    assert_eq!(upsert(&mut client, "k", r#"{"id":"new","pk":"k"}"#).unwrap().status, 201);
    server.stop();
    eprintln!("restored {count} items, expected {at_least} to {at_most}");
}

fn url(server: &PostgresServer, database: &str) -> String {
    format!("{}/{database}", server.url().strip_suffix("/postgres").unwrap())
}

#[test]
fn the_documented_commands_restore_one_moment() {
    let directory = tempfile::Builder::new().prefix("orrery-back").tempdir_in("/tmp").unwrap();
    let (home, backup) = (directory.path().join("a"), directory.path().join("backup"));
    let restored = directory.path().join("restored");
    let run = |commands: &str, server: Option<&Path>| {
        let commands = commands
            .replace("/backup", backup.to_str().unwrap())
            .replace("/var/lib/postgresql/restored", restored.join("data").to_str().unwrap());
        let host = server.map_or("", |server| server.to_str().unwrap());
        shell(&backup, &[("PGHOST", host), ("PGUSER", "postgres"), ("PGDATABASE", "postgres")], &commands)
    };
    // A server that archives its WAL.
    let server = PostgresServer::start_durable(&home);
    sql(server.url(), "CREATE DATABASE orrery");
    drop(server);
    let settings = blocks("### To a point in time", "ini").concat();
    run(&format!("mkdir wal; cat >>{}/data/postgresql.conf <<'END'\n{settings}END", home.display()), None);
    let server = PostgresServer::start_durable(&home);
    let gateway = Server::on_store(&url(&server, "orrery"));
    gateway.client().create_container(&[]);

    let commands = blocks("### To a point in time", "sh");
    let [back_up, restore] = commands.as_slice() else {
        panic!("the guide has other commands: {commands:?}")
    };
    let writer = Writer::start(gateway.port);
    writer.wait_for_writes();
    run(back_up, Some(&home));
    let at_least = writer.wait_for_writes();
    let moment = sql(server.url(), "SELECT clock_timestamp()").remove(0);
    // One write was in flight, and another may have started since.
    let at_most = writer.done.load(Ordering::Relaxed) + 1;
    writer.wait_for_writes();

    // As a dump of the running store.
    let dump_at_least = writer.done.load(Ordering::Relaxed);
    run(&blocks("### As a file", "sh").concat(), Some(&home));
    let dump_at_most = writer.done.load(Ordering::Relaxed) + 1;
    check(&url(&server, "orrery_restored"), dump_at_least, dump_at_most);

    writer.wait_for_writes();
    writer.stop.store(true, Ordering::Relaxed);
    writer.thread.join().unwrap();
    gateway.stop();
    let last = sql(server.url(), "SELECT pg_walfile_name(pg_switch_wal())").remove(0);
    until("the archive of the last log", || backup.join("wal").join(&last).exists().then_some(()));
    drop(server);

    // Replace the example timestamp of the guide with ours.
    shell(&restored, &[], "");
    let example = "2026-03-01 12:00:00+00";
    assert!(restore.contains(example), "the guide names a moment");
    run(&restore.replace(example, &moment), None);
    let server = PostgresServer::start_durable(&restored);
    until("the end of the recovery", || {
        (sql(server.url(), "SELECT pg_is_in_recovery()") == ["f"]).then_some(())
    });
    check(&url(&server, "orrery"), at_least, at_most);
}
