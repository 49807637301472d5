//! Two servers on one PostgreSQL, thirty-two clients on five items of one partition. Meanwhile the partition is split, one
//! server is killed, and then PostgreSQL itself. In the end acknowledgements, versions, LSNs, index entries and both
//! change feeds agree.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Client, DOCS, Server, pause, until, until_within, windows};
use orrery_model::Value;
use orrery_storage::{
    KeyRange, PartitionRef, PartitionStore, Postgres, PostgresOptions, ReadRequest, Scan, Want,
};
use orrery_testing::Server as PostgresServer;
use orrery_testing::citus::Citus;

const CLIENTS: usize = 32;
const ITEMS: usize = 5;

/// What one client knows.
#[derive(Default)]
struct Known {
    /// Marks that were acknowledged, by item.
    acknowledged: Vec<(usize, String)>,
    /// Marks whose fate is unknown.
    unknown: Vec<(usize, String)>,
    /// Where each acknowledged write landed, by its mark: the partition key range and the LSN.
    positions: BTreeMap<String, (String, u64)>,
}

#[test]
fn two_servers_on_one_store_agree() {
    let directory = tempfile::Builder::new().prefix("orrery-two").tempdir_in("/tmp").unwrap();
    let database = PostgresServer::start_durable(&directory.path().join("pg"));
    let url = database.url().to_owned();
    let mut database = Some(database);
    agree(&url, &mut || {
        let running = database.take().unwrap();
        running.kill();
        running.wait();
        database = Some(restarted(&directory.path().join("pg")));
    });
}

/// The same on a Citus cluster, if `ORRERY_TEST_STORE_URL` names one: instead of killing PostgreSQL all shards are moved,
/// and a worker is killed if the environment says how (see `orrery_testing::citus`).
#[test]
fn two_servers_on_a_citus_cluster_agree() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let Some(cluster) = runtime.block_on(Citus::find()) else {
        eprintln!("skipped: ORRERY_TEST_STORE_URL names no Citus cluster with two workers");
        return;
    };
    let url = orrery_testing::fresh_store_url();
    agree(&url, &mut || {
        let moved = runtime.block_on(cluster.move_everything(orrery_testing::schema_of(&url)));
        eprintln!("{moved} shards moved, worker killed: {}", orrery_testing::citus::restart_worker());
    });
}

fn agree(url: &str, disturb_database: &mut dyn FnMut()) {
    let start = || Server::on_store(url);
    let first = start();
    let mut second = start();
    let mut client = first.client();
    client.post("/dbs", r#"{"id":"db"}"#, 201);
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
        "changeFeedPolicy":{"retentionDuration":600}}"#;
    client.post("/dbs/db/colls", body, 201);
    for item in 0..ITEMS {
        let body = format!(r#"{{"id":"i{item}","pk":"k{item}","n":0,"log":[]}}"#);
        let key = format!(r#"["k{item}"]"#);
        let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
        assert_eq!(client.send("POST", DOCS, &headers, body.as_bytes()).unwrap().status, 201);
    }
    visible_within_a_second(second.port);
    let mut from_here = Vec::new();
    assert!(
        windows::read(&mut client, windows::from_now(), &windows::ALL_VERSIONS, &mut from_here).is_empty()
    );

    let ports = [Arc::new(AtomicU16::new(first.port)), Arc::new(AtomicU16::new(second.port))];
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (port, stop, done) = (Arc::clone(&ports[number % 2]), Arc::clone(&stop), Arc::clone(&done));
            std::thread::spawn(move || write(number, &port, &stop, &done))
        })
        .collect();
    let wait_for_writes = |count: u64| {
        let from = done.load(Ordering::Relaxed);
        until("the writers to go on", || (done.load(Ordering::Relaxed) >= from + count).then_some(()));
    };
    wait_for_writes(100);
    let place = r#"{"database":"db","container":"c","partition":"0"}"#;
    client.post("/_orrery/partitions/split", place, 200);
    wait_for_writes(100);
    second.kill();
    wait_for_writes(50);
    second = start();
    ports[1].store(second.port, Ordering::Relaxed);
    wait_for_writes(100);
    disturb_database();
    wait_for_writes(100);
    stop.store(true, Ordering::Relaxed);
    let known: Vec<Known> = clients.into_iter().map(|client| client.join().unwrap()).collect();

    let mut other = second.client();
    let items = check_items(&mut client, &known);
    assert_eq!(items, check_items(&mut other, &known), "both servers say the same");
    check_positions(&known, &items);
    check_feed(&mut client, &items, &known);
    check_versions(&mut other, from_here, &items, &known);
    check_queries(&mut other, &items);
    // The same items in a container of their own have as many index entries.
    let body = r#"{"id":"r","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    client.post("/dbs/db/colls", body, 201);
    for (at, item) in items.iter().enumerate() {
        let key = format!(r#"["k{at}"]"#);
        let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
        let body = item.to_json();
        assert_eq!(
            client.send("POST", "/dbs/db/colls/r/docs", &headers, body.as_bytes()).unwrap().status,
            201
        );
    }
    let partitions = |client: &mut Client| {
        let view = client.send("GET", "/_orrery/partitions", &[], b"").unwrap().json();
        view.as_array()
            .unwrap()
            .iter()
            .map(|one| one.get("partitions").unwrap().as_array().unwrap().len())
            .collect::<Vec<_>>()
    };
    assert_eq!(partitions(&mut client), [2, 1]);
    first.stop();
    second.stop();
    let entries = index_entries(url);
    // The catalog's partition has none; the last one is the reference.
    let reference = *entries.values().last().unwrap();
    let split: usize = entries.values().sum::<usize>() - reference;
    assert_eq!(split, reference, "{entries:?}");
    let written: usize = known.iter().map(|known| known.acknowledged.len()).sum();
    let doubtful: usize = known.iter().map(|known| known.unknown.len()).sum();
    eprintln!("{written} acknowledged, {doubtful} without an answer, {reference} index entries");
}

/// A container created on one server is soon visible on the other.
fn visible_within_a_second(port: u16) {
    let mut client = Client::new(port);
    let began = Instant::now();
    // The goal is a second; a busy machine gets more.
    until_within(Duration::from_secs(20), "the other server to see the container", || {
        (client.send("GET", "/dbs/db/colls/c", &[], b"").unwrap().status == 200).then_some(())
    });
    eprintln!("seen by the other server after {} ms", began.elapsed().as_millis());
}

/// Adds marks to items until it is stopped.
fn write(number: usize, port: &AtomicU16, stop: &AtomicBool, done: &AtomicU64) -> Known {
    let mut known = Known::default();
    let mut at = port.load(Ordering::Relaxed);
    let mut client = Client::new(at);
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let now = port.load(Ordering::Relaxed);
        if now != at {
            (at, client) = (now, Client::new(now));
        }
        let item = (number + round) % ITEMS;
        let mark = format!("{number}-{round}");
        let body = format!(
            r#"{{"operations":[{{"op":"incr","path":"/n","value":1}},{{"op":"add","path":"/log/-","value":"{mark}"}}]}}"#
        );
        let key = format!(r#"["k{item}"]"#);
        let headers =
            [("x-ms-documentdb-partitionkey", key.as_str()), ("content-type", "application/json_patch+json")];
        match client.send("PATCH", &format!("{DOCS}/i{item}"), &headers, body.as_bytes()) {
            Ok(answer) if answer.status == 200 => {
                let position = position(answer.header("x-ms-session-token").unwrap());
                known.positions.insert(mark.clone(), position);
                known.acknowledged.push((item, mark));
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(answer) if answer.status >= 500 || answer.status == 449 => {
                known.unknown.push((item, mark));
                pause();
            }
            Ok(answer) => panic!("{}: {}", answer.status, answer.text()),
            Err(_) => {
                known.unknown.push((item, mark));
                pause();
            }
        }
    }
    known
}

/// `range:version#lsn`.
fn position(token: &str) -> (String, u64) {
    let (range, rest) = token.split_once(':').unwrap();
    (range.to_owned(), rest.rsplit('#').next().unwrap().parse().unwrap())
}

/// Every acknowledged mark is there once, and no mark that nobody wrote.
fn check_items(client: &mut Client, known: &[Known]) -> Vec<Value> {
    (0..ITEMS)
        .map(|item| {
            let key = format!(r#"["k{item}"]"#);
            let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
            let answer = client.send("GET", &format!("{DOCS}/i{item}"), &headers, b"").unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
            let value = answer.json();
            let log = value.get("log").unwrap().as_array().unwrap();
            let marks: Vec<&str> = log.iter().map(|mark| mark.as_str().unwrap()).collect();
            let set: BTreeSet<&str> = marks.iter().copied().collect();
            assert_eq!(set.len(), marks.len(), "a mark is there twice");
            let of_item = |marks: &'_ [(usize, String)]| -> Vec<String> {
                marks.iter().filter(|(at, _)| *at == item).map(|(_, mark)| mark.clone()).collect()
            };
            let acknowledged: BTreeSet<String> =
                known.iter().flat_map(|known| of_item(&known.acknowledged)).collect();
            let unknown: BTreeSet<String> = known.iter().flat_map(|known| of_item(&known.unknown)).collect();
            for mark in &acknowledged {
                assert!(set.contains(mark.as_str()), "the acknowledged {mark} is lost");
            }
            for mark in &set {
                assert!(acknowledged.contains(*mark) || unknown.contains(*mark), "nobody wrote {mark}");
            }
            assert_eq!(value.get("n").unwrap().as_i64(), Some(i64::try_from(marks.len()).unwrap()));
            value
        })
        .collect()
}

/// No LSN was used twice, those of one item rise with its versions, also across the split, and an LSN without an
/// acknowledged write belongs to a write whose answer was lost.
fn check_positions(known: &[Known], items: &[Value]) {
    let mut of_ranges: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for (range, number) in known.iter().flat_map(|known| known.positions.values()) {
        let is_new = of_ranges.entry(range).or_default().insert(*number);
        assert!(is_new, "{range}:{number} was handed out twice");
    }
    assert!(of_ranges.contains_key("0") && of_ranges.len() > 1, "before the split and after it");
    let position = |mark: &str| known.iter().find_map(|known| known.positions.get(mark));
    let mut unanswered = 0;
    for item in items {
        let mut last = 0;
        for mark in item.get("log").unwrap().as_array().unwrap() {
            let Some((range, number)) = position(mark.as_str().unwrap()) else {
                unanswered += 1;
                continue;
            };
            assert!(*number > last, "{mark:?} is {range}:{number} and follows {last}");
            last = *number;
        }
    }
    let missing: u64 = of_ranges
        .values()
        .map(|numbers| numbers.last().unwrap() - numbers.first().unwrap() + 1 - numbers.len() as u64)
        .sum();
    // One belongs to the split itself, which starts with a write to the partition.
    assert!(missing <= unanswered + 1, "{missing} numbers have no write, {unanswered} writes no answer");
}

/// The feed has every item once, in its current version, in LSN order.
fn check_feed(client: &mut Client, items: &[Value], known: &[Known]) {
    let ranges = client.send("GET", "/dbs/db/colls/c/pkranges", &[], b"").unwrap().json();
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    for range in ranges.get("PartitionKeyRanges").unwrap().as_array().unwrap() {
        let id = range.get("id").unwrap().as_str().unwrap();
        let headers = [("a-im", "Incremental feed"), ("x-ms-documentdb-partitionkeyrangeid", id)];
        let answer = client.send("GET", DOCS, &headers, b"").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let mut last = 0;
        for item in answer.json().get("Documents").unwrap().as_array().unwrap() {
            let lsn = item.get("_lsn").unwrap().as_i64().unwrap();
            assert!(lsn > last);
            last = lsn;
            let mark = item.get("log").unwrap().as_array().unwrap().last().unwrap().as_str().unwrap();
            if let Some(position) = known.iter().find_map(|known| known.positions.get(mark)) {
                assert_eq!((id, lsn), (position.0.as_str(), i64::try_from(position.1).unwrap()));
            }
            let mut item = item.clone();
            item.as_object_mut().unwrap().remove("_lsn");
            let id = item.get("id").unwrap().as_str().unwrap().to_owned();
            assert!(found.insert(id, item).is_none(), "an item is in the feed twice");
        }
    }
    assert_eq!(found.into_values().collect::<Vec<_>>(), items);
}

/// The feed of all versions has every version once and in order, with the LSN its writer saw.
fn check_versions(client: &mut Client, from: Vec<windows::Window>, items: &[Value], known: &[Known]) {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in windows::read(client, from, &windows::ALL_VERSIONS, &mut Vec::new()) {
        let (item, metadata) = (row.get("current").unwrap(), row.get("metadata").unwrap());
        let log = item.get("log").unwrap().as_array().unwrap();
        let mark = log.last().unwrap().as_str().unwrap();
        let of_item = versions.entry(item.get("id").unwrap().as_str().unwrap().to_owned()).or_default();
        of_item.push(mark.to_owned());
        assert_eq!(log.len(), of_item.len(), "{mark} does not follow the version before it");
        if let Some((range, number)) = known.iter().find_map(|known| known.positions.get(mark)) {
            let told = metadata.get("lsn").unwrap().as_i64();
            assert_eq!(told, Some(i64::try_from(*number).unwrap()), "{mark} in {range}");
        }
    }
    for (item, versions) in items.iter().zip(versions.values()) {
        let log = item.get("log").unwrap().as_array().unwrap();
        assert!(log.iter().map(|mark| mark.as_str().unwrap()).eq(versions.iter().map(String::as_str)));
    }
    assert_eq!(versions.len(), ITEMS);
}

/// The index finds each item by its current version and not by an earlier one.
fn check_queries(client: &mut Client, items: &[Value]) {
    let mut query = |text: &str| {
        let body = format!(r#"{{"query":"{text}","parameters":[]}}"#);
        let headers = [
            ("content-type", "application/query+json"),
            ("x-ms-documentdb-isquery", "true"),
            ("x-ms-documentdb-query-enablecrosspartition", "true"),
        ];
        let answer = client.send("POST", DOCS, &headers, body.as_bytes()).unwrap();
        assert_eq!(answer.status, 200, "{text}: {}", answer.text());
        answer.json().get("Documents").unwrap().as_array().unwrap().to_vec()
    };
    for item in items {
        let (id, n) = (item.get("id").unwrap().as_str().unwrap(), item.get("n").unwrap().as_i64().unwrap());
        let now = query(&format!("SELECT VALUE c.id FROM c WHERE c.n = {n} AND c.id = '{id}'"));
        assert_eq!(now, [Value::from(id)]);
        let before = query(&format!("SELECT VALUE c.id FROM c WHERE c.n = {} AND c.id = '{id}'", n - 1));
        assert!(before.is_empty());
    }
    assert_eq!(query("SELECT VALUE c.id FROM c WHERE c.n >= 0").len(), ITEMS);
}

/// Index entries per partition, straight from the store.
fn index_entries(url: &str) -> BTreeMap<u32, usize> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Postgres::open(PostgresOptions::parse(url).unwrap()).await.unwrap();
        let mut entries = BTreeMap::new();
        for partition in store.partitions().await.unwrap() {
            let place = PartitionRef { id: partition.id, epoch: partition.epoch };
            let range = KeyRange::new(vec![0x20], vec![0x25]);
            let scan = Scan { want: Want::Keys, bytes_max: usize::MAX, ..Scan::forward(range, 40_000) };
            let page = store.read(place, ReadRequest::Scan(scan)).await.unwrap();
            assert!(!page.more);
            if partition.id.0 != 0 {
                entries.insert(partition.id.0, page.entries.len());
            }
        }
        store.close().await.unwrap();
        entries
    })
}

/// Starts PostgreSQL again. A killed one may leave a stale lock, so this retries.
fn restarted(directory: &Path) -> PostgresServer {
    until("PostgreSQL to start again", || {
        std::panic::catch_unwind(|| PostgresServer::start_durable(directory)).ok()
    })
}
