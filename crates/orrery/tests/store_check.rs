//! `orrery store check` on a directory that a server has written, and on one with entries missing.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(unix)]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Client, DOCS, Server, orrery, path_text, run};
use orrery_db::{CATALOG_PARTITION, check_store};
use orrery_env::SystemEnv;
use orrery_storage::{Embedded, EmbeddedOptions, KeyRange, PartitionInfo, PartitionRef, PartitionStore};

const CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1,
    "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/n"]}]},
    "computedProperties":[{"name":"lower","query":"SELECT VALUE LOWER(c.name) FROM c"}],
    "indexingPolicy":{"indexingMode":"consistent","automatic":true,
        "includedPaths":[{"path":"/*"},{"path":"/lower/?"}],"excludedPaths":[{"path":"/hidden/*"}],
        "compositeIndexes":[[{"path":"/name","order":"ascending"},{"path":"/n","order":"descending"}]]}}"#;

fn write(client: &mut Client, method: &str, path: &str, pk: &str, body: &str) -> u16 {
    let key = format!("[\"{pk}\"]");
    client.send(method, path, &[("x-ms-documentdb-partitionkey", &key)], body.as_bytes()).unwrap().status
}

/// A directory that has seen creates, replaces, deletes, arrays, nulls, times to live and a split.
fn used_directory(data: &Path) {
    let server = Server::on_directory(data);
    let mut client = server.client();
    client.post("/dbs", r#"{"id":"db"}"#, 201);
    client.post("/dbs/db/colls", CONTAINER, 201);
    for n in 0..60 {
        let pk = n % 7;
        let body = format!(
            r#"{{"id":"{n}","pk":"{pk}","n":{n},"name":"Name {n}","tags":["a","b","a",{{"x":[1,1,2]}}],"none":null,"hidden":{{"a":{n}}},"ttl":{}}}"#,
            if n % 5 == 0 { 100_000 } else { -1 }
        );
        assert_eq!(write(&mut client, "POST", DOCS, &pk.to_string(), &body), 201);
    }
    for n in 0..20 {
        let pk = (n % 7).to_string();
        let body = format!(r#"{{"id":"{n}","pk":"{pk}","n":{},"changed":true}}"#, n + 1000);
        assert_eq!(write(&mut client, "PUT", &format!("{DOCS}/{n}"), &pk, &body), 200);
    }
    for n in 50..60 {
        assert_eq!(write(&mut client, "DELETE", &format!("{DOCS}/{n}"), &(n % 7).to_string(), ""), 204);
    }
    client.post("/_orrery/partitions/split", r#"{"database":"db","container":"c","partition":"0"}"#, 200);
    server.stop();
}

fn check(data: &Path) -> (i32, String, String) {
    run(&mut orrery(&["store", "check", "--data", path_text(data)]))
}

#[tokio::test]
async fn a_directory_is_whole_and_what_is_missing_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    used_directory(&data);
    let (code, stdout, stderr) = check(&data);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("1 container, 2 partitions, 7 logical partitions, 50 items, "), "{stdout}");

    // An index entry, a composite entry, a RID, and the counters of a logical partition, each from one partition.
    for (prefix, expected) in [
        (0x20, "index entries of item"),
        (0x24, "index entries of item"),
        (0x18, "the RID of item"),
        (0x60, "counts 0 items and 0 bytes, but has "),
    ] {
        let store = Embedded::open(data.join("store"), EmbeddedOptions::default()).unwrap();
        let store: Arc<dyn PartitionStore> = Arc::new(store);
        let before = check_store(Arc::clone(&store), Arc::new(SystemEnv)).await.unwrap().problems_total;
        let mut removed = 0;
        for PartitionInfo { id, epoch, .. } in store.partitions().await.unwrap() {
            if removed == 0 && id != CATALOG_PARTITION.id {
                let at = PartitionRef { id, epoch };
                removed = store.delete_range(at, KeyRange::prefix(&[prefix]), 1).await.unwrap();
            }
        }
        assert_eq!(removed, 1, "{prefix:x}");
        store.close().await.unwrap();
        drop(store);
        let (code, stdout, stderr) = check(&data);
        assert_eq!(code, 1, "{stdout}");
        assert!(stdout.contains(expected), "{stdout}");
        assert!(stderr.contains("restore a backup"), "{stderr}");
        let problems = stdout.lines().filter(|line| line.contains("partition ")).count() as u64;
        assert!(problems > before, "{stdout}");
    }
}

#[test]
fn a_damaged_table_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    used_directory(&data);
    let tables = data.join("store/tree/tables");
    let table = std::fs::read_dir(&tables).unwrap().next().unwrap().unwrap().path();
    let mut content = std::fs::read(&table).unwrap();
    content[10] ^= 1;
    std::fs::write(&table, content).unwrap();
    let (code, stdout, stderr) = check(&data);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains(path_text(&table)) && stderr.contains("checksum"), "{stderr}");
}

#[test]
fn a_directory_in_use_or_of_something_else_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (code, _, stderr) = check(&data);
    assert!(code == 1 && stderr.contains("is not a data directory"), "{stderr}");
    let server = Server::on_directory(&data);
    let (code, _, stderr) = check(&data);
    assert!(code == 1 && stderr.contains("in use"), "{stderr}");
    server.stop();
}
