//! Failover: a primary with a synchronous standby is killed while two servers write to it, and the standby is promoted.
//! Nothing acknowledged is lost, and writes resume.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use orrery_storage::{Postgres, PostgresError, PostgresOptions};
use orrery_testing::Server as PostgresServer;

use crate::common::{Client, DOCS, Server, orrery, pause, run, until};
use crate::{changes, ranges, read, sql, text, upsert};

const CLIENTS: usize = 8;

#[derive(Default)]
struct Known {
    acknowledged: Vec<String>,
    unknown: Vec<String>,
}

fn key(id: &str) -> String {
    format!("k{}", id.len() % 3)
}

/// Creates items until it is stopped.
fn write(number: usize, port: u16, stop: &AtomicBool, done: &AtomicU64) -> Known {
    let mut known = Known::default();
    let mut client = Client::new(port);
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let id = format!("{number}-{round}");
        let body = format!(r#"{{"id":"{id}","pk":"{}"}}"#, key(&id));
        let partition_key = format!(r#"["{}"]"#, key(&id));
        let headers = [("x-ms-documentdb-partitionkey", partition_key.as_str())];
        match client.send("POST", DOCS, &headers, body.as_bytes()) {
            Ok(answer) if answer.status == 201 => {
                known.acknowledged.push(id);
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(answer) if answer.status < 500 && answer.status != 449 && answer.status != 408 => {
                // A conflict would mean that a write was repeated after it had succeeded.
                panic!("{id}: {} {}", answer.status, answer.text());
            }
            _ => {
                known.unknown.push(id);
                pause();
            }
        }
    }
    known
}

/// What `orrery store status` reports about the standby, to an administrator and to a user without the privilege.
fn check_status(url: &str, primary: &str) {
    let (status, listed, failure) = run(&mut orrery(&["store", "status", "--store", url]));
    assert_eq!(status, 0, "{failure}");
    let line = listed.lines().find(|line| line.contains("standby")).unwrap_or_else(|| panic!("{listed}"));
    assert!(
        line.starts_with("    standby standby: streaming/sync, ") && line.contains(" bytes behind"),
        "{line}"
    );
    let arguments = ["store", "status", "--output", "json", "--store", url];
    let listed = orrery_model::value::parse(run(&mut orrery(&arguments)).1.as_bytes()).unwrap();
    let node = &listed.get("nodes").unwrap().as_array().unwrap()[0];
    let standby = &node.get("standbys").unwrap().as_array().unwrap()[0];
    assert_eq!(text(standby, "state"), "streaming/sync");
    assert!(standby.get("behindBytes").unwrap().as_i64().unwrap() >= 0);
    sql(primary, "CREATE ROLE modest LOGIN; GRANT USAGE ON SCHEMA orrery TO modest");
    sql(primary, "GRANT SELECT ON ALL TABLES IN SCHEMA orrery TO modest");
    let modest = url.replacen("postgres@", "modest@", 1);
    let (status, listed, failure) = run(&mut orrery(&["store", "status", "--store", &modest]));
    assert!(status == 0 && listed.contains("grant pg_read_all_stats"), "{listed}{failure}");
}

#[test]
fn a_failover_loses_nothing() {
    let directory = tempfile::Builder::new().prefix("orrery-ha").tempdir_in("/tmp").unwrap();
    let primary = PostgresServer::start_with_port(&directory.path().join("a"));
    let standby = PostgresServer::start_standby(&directory.path().join("b"), &primary);
    sql(primary.url(), "ALTER SYSTEM SET synchronous_standby_names = 'standby'");
    sql(primary.url(), "SELECT pg_reload_conf()");
    let state = "SELECT sync_state FROM pg_stat_replication";
    until("synchronous replication", || (sql(primary.url(), state) == ["sync"]).then_some(()));

    // A standby alone cannot serve as a store.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let alone = format!("postgres://postgres@127.0.0.1:{}/postgres", standby.port().unwrap());
    let refused = runtime.block_on(Postgres::open(PostgresOptions::parse(&alone).unwrap())).err().unwrap();
    assert!(matches!(refused, PostgresError::ReadOnly { .. }), "{refused}");

    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
        primary.port().unwrap(),
        standby.port().unwrap()
    );
    let servers = [(); 2].map(|()| Server::on_store(&url));
    let mut client = servers[0].client();
    client.create_container(&[]);
    let mut other = servers[1].client();
    until("news of the container", || {
        (other.send("GET", "/dbs/db/colls/c", &[], b"").unwrap().status == 200).then_some(())
    });

    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (port, stop, done) = (servers[number % 2].port, Arc::clone(&stop), Arc::clone(&done));
            std::thread::spawn(move || write(number, port, &stop, &done))
        })
        .collect();
    let wait_for_writes = |count: u64| {
        let from = done.load(Ordering::Relaxed);
        until("further writes", || (done.load(Ordering::Relaxed) >= from + count).then_some(()));
    };
    wait_for_writes(200);
    check_status(&url, primary.url());
    // A server shows operators the same.
    let shown = client.get("/_orrery/store");
    let node = &shown.get("nodes").unwrap().as_array().unwrap()[0];
    assert_eq!(text(&node.get("standbys").unwrap().as_array().unwrap()[0], "state"), "streaming/sync");
    let killed = Instant::now();
    primary.kill();
    let at_kill = done.load(Ordering::Relaxed);
    assert_eq!(sql(standby.url(), "SELECT pg_promote(true, 60)"), ["t"]);
    let promoted = killed.elapsed();
    until("a write after the failover", || (done.load(Ordering::Relaxed) > at_kill + 8).then_some(()));
    let resumed = killed.elapsed();
    wait_for_writes(200);
    stop.store(true, Ordering::Relaxed);
    let known: Vec<Known> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();

    let acknowledged: BTreeSet<&str> =
        known.iter().flat_map(|known| &known.acknowledged).map(String::as_str).collect();
    let unknown: BTreeSet<&str> = known.iter().flat_map(|known| &known.unknown).map(String::as_str).collect();
    for client in [&mut client, &mut other] {
        let mut found = BTreeMap::new();
        for range in ranges(client) {
            let mut last = 0;
            for item in changes(client, &range, None).0 {
                let lsn = item.get("_lsn").unwrap().as_i64().unwrap();
                assert!(lsn > last, "the feed is out of order");
                last = lsn;
                assert!(found.insert(text(&item, "id").to_owned(), lsn).is_none(), "an item is there twice");
            }
        }
        for id in &acknowledged {
            assert!(found.contains_key(*id), "the acknowledged {id} is lost");
        }
        for id in found.keys() {
            assert!(acknowledged.contains(id.as_str()) || unknown.contains(id.as_str()), "nobody wrote {id}");
        }
        for id in acknowledged.iter().take(50) {
            assert_eq!(read(client, &key(id), id, &[]).status, 200);
        }
    }
    assert_eq!(upsert(&mut client, "k", r#"{"id":"last","pk":"k"}"#).unwrap().status, 201);
    eprintln!(
        "{} acknowledged, {} without an answer; promoted {} ms, writing {} ms after the kill",
        acknowledged.len(),
        unknown.len(),
        promoted.as_millis(),
        resumed.as_millis()
    );
    for server in servers {
        server.stop();
    }
    primary.wait();
    drop(standby);
}
