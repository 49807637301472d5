//! Data directories that earlier versions wrote, opened by this one: every format on disk stays readable.
//!
//! `tests/stores/*.tar.gz` are never rewritten. A change of a format adds new ones, written by
//! `ORRERY_WRITE_STORES=NAME cargo test -p orrery-db --test kept_stores`, one closed cleanly and one killed, whose
//! journal must be replayed.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use orrery_db::{Database, ItemOptions, Options, QueryOptions, QueryRequest, Receipt, SystemEnv};
use orrery_model::Value;
use orrery_model::partition_key::PartitionKey;
use orrery_storage::{Embedded, EmbeddedOptions};

const ITEMS: usize = 120;

fn stores() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores")
}

async fn open(directory: &Path) -> Arc<Database> {
    // Small tables, so that few items fill several.
    let sizes = EmbeddedOptions { memtable_bytes: 64 << 10, ..EmbeddedOptions::default() };
    let store = Arc::new(Embedded::open(directory, sizes).unwrap());
    Database::open(store, Arc::new(SystemEnv), Options::default()).await.unwrap()
}

/// The containers, by what of the formats they use.
const CONTAINERS: [(&str, &str); 4] = [
    (
        "plain",
        r#"{"id":"plain","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/code"]}]}}"#,
    ),
    ("first", r#"{"id":"first","partitionKey":{"paths":["/pk"],"kind":"Hash","version":1}}"#),
    (
        "levels",
        r#"{"id":"levels","partitionKey":{"paths":["/pk","/id"],"kind":"MultiHash","version":2},"defaultTtl":-1}"#,
    ),
    (
        "sorted",
        r#"{"id":"sorted","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"indexingPolicy":{"includedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/n"},{"path":"/code"}]]}}"#,
    ),
];

fn item(number: usize) -> String {
    format!(
        r#"{{"id":"i{number}","pk":"k{}","n":{},"code":"c{number}","deep":{{"list":[1,"two",null,{number}.5]}},"text":"größer"}}"#,
        number % 7,
        number % 10
    )
}

async fn write(directory: &Path) -> Arc<Database> {
    let database = open(directory).await;
    database.create_database(&mut Receipt::default(), br#"{"id":"db"}"#, None).await.unwrap();
    for (name, definition) in CONTAINERS {
        database.create_container(&mut Receipt::default(), "db", definition.as_bytes(), None).await.unwrap();
        for number in 0..ITEMS {
            let body = Bytes::from(item(number));
            database
                .create_item(&mut Receipt::default(), ("db", name), &ItemOptions::default(), &body)
                .await
                .unwrap();
        }
    }
    let script = br#"{"id":"sum","body":"function sum(a, b) { return a + b }"}"#;
    let function = orrery_db::ScriptKind::Function;
    database.create_script(&mut Receipt::default(), ("db", "plain"), function, script, false).await.unwrap();
    let rid = database.catalog().container("db", "plain").unwrap().rid;
    database.split_partition(rid, 0).await.unwrap();
    database
}

async fn check(directory: &Path) {
    let database = open(directory).await;
    for (name, _) in CONTAINERS {
        let mut options = QueryOptions::default();
        options.page.items_max = Some(-1);
        options.cross_partition = true;
        let count = |text: &str| QueryRequest::parse(format!(r#"{{"query":"{text}"}}"#).as_bytes()).unwrap();
        let ask = async |text: &str| {
            let request = count(text);
            let page = database
                .query_items(&mut Receipt::default(), ("db", name), &options, &request)
                .await
                .unwrap();
            String::from_utf8_lossy(&page.rows).into_owned()
        };
        assert_eq!(ask("SELECT VALUE COUNT(1) FROM c").await, ITEMS.to_string(), "{name}");
        assert_eq!(
            ask("SELECT VALUE c.id FROM c WHERE c.n = 3 AND c.code = 'c13'").await,
            "\"i13\"",
            "{name}"
        );
        let key = if name == "levels" { r#"["k6","i13"]"# } else { r#"["k6"]"# };
        let partition_key = Some(PartitionKey::parse_json(key.as_bytes()).unwrap());
        let at = ItemOptions { partition_key, ..ItemOptions::default() };
        let read = database.read_item(&mut Receipt::default(), ("db", name, "i13"), &at).await.unwrap();
        let read = orrery_model::value::parse(&read.document()).unwrap();
        let expected = orrery_model::value::parse(item(13).as_bytes()).unwrap();
        for (property, value) in expected.as_object().unwrap().iter() {
            assert_eq!(read.get(property), Some(value), "{name}: {property}");
        }
        assert!(read.get("_etag").and_then(Value::as_str).is_some());
        // And it can be written.
        let body = Bytes::from(item(ITEMS));
        database
            .create_item(&mut Receipt::default(), ("db", name), &ItemOptions::default(), &body)
            .await
            .unwrap();
    }
    let plain = Arc::clone(database.catalog().container("db", "plain").unwrap());
    assert_eq!(plain.partitions.len(), 2);
    assert_eq!(database.script_counts(&plain), (0, 0, 1));
    let twice = Bytes::from(item(5).replace("\"i5\"", "\"other\""));
    let refused =
        database.create_item(&mut Receipt::default(), ("db", "plain"), &ItemOptions::default(), &twice).await;
    assert_eq!(refused.unwrap_err().kind, orrery_model::ErrorKind::Conflict);
    database.close().await.unwrap();
}

fn tar(arguments: &[&str], directory: &Path) {
    let status = Command::new("tar").args(arguments).current_dir(directory).status().unwrap();
    assert!(status.success(), "tar {arguments:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_of_earlier_versions_can_be_opened() {
    if let Ok(name) = std::env::var("ORRERY_WRITE_STORES") {
        for kind in ["closed", "killed"] {
            let directory = tempfile::tempdir().unwrap();
            let database = write(&directory.path().join("store")).await;
            if kind == "closed" {
                database.close().await.unwrap();
            }
            // Without a close the journal is there as a crash would leave it.
            drop(database);
            let archive = stores().join(format!("{name}-{kind}.tar.gz"));
            assert!(!archive.exists(), "kept stores are never rewritten");
            tar(&["-czf", archive.to_str().unwrap(), "--exclude=LOCK", "store"], directory.path());
        }
    }
    let mut archives: Vec<PathBuf> =
        std::fs::read_dir(stores()).unwrap().map(|entry| entry.unwrap().path()).collect();
    archives.retain(|path| path.extension().is_some_and(|extension| extension == "gz"));
    assert!(archives.len() >= 2, "there are no kept stores");
    for archive in archives {
        let directory = tempfile::tempdir().unwrap();
        tar(&["-xzf", archive.to_str().unwrap()], directory.path());
        check(&directory.path().join("store")).await;
    }
}
