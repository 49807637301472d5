//! The invariants of a transaction: writes keep them, and one that finds or would leave them broken is refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use orrery_env::SeededEnv;
use orrery_model::document::parse_object;
use orrery_model::partition_key::PartitionKey;
use orrery_storage::{CommitError, Decision, Health, Key, KeyRange, Memory, Op, ReadRequest, Scan, View};

use super::{Action, ActionKind, ItemTransaction, Working};
use crate::catalog::Container;
use crate::items::prepare::PreparedItem;
use crate::layout::keys;
use crate::layout::stored::StoredItem;
use crate::{BatchKind, BatchOperation, Database, ItemOptions, Options, Receipt};

const PLACE: (&str, &str) = ("d", "c");

async fn open() -> Arc<Database> {
    let env = Arc::new(SeededEnv::new(7, 1_767_225_600_000));
    let options = Options { sweep_interval_ms: 24 * 3_600_000, ..Options::default() };
    let database = Database::open(Arc::new(Memory::new()), env, options).await.unwrap();
    let mut receipt = Receipt::default();
    database.create_database(&mut receipt, br#"{"id":"d"}"#, None).await.unwrap();
    let body = br#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
        "indexingPolicy":{"includedPaths":[{"path":"/*"},{"path":"/n/?"}],"excludedPaths":[{"path":"/hidden/*"}],
        "compositeIndexes":[[{"path":"/n"},{"path":"/s","order":"descending"}]]},
        "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}}"#;
    database.create_container(&mut receipt, "d", body, None).await.unwrap();
    database
}

fn container(database: &Database) -> Arc<Container> {
    Arc::clone(database.catalog().container(PLACE.0, PLACE.1).unwrap())
}

/// An upsert of an item under the key "a".
fn upsert(container: &Arc<Container>, body: &'static str) -> ItemTransaction {
    let partition_key = PartitionKey::parse_json(br#"["a"]"#).unwrap();
    let item = PreparedItem::from_text(&container.definition, &Bytes::from_static(body.as_bytes())).unwrap();
    let action =
        Action { id: item.id.clone(), kind: ActionKind::Upsert(item), if_match: None, if_none_match: None };
    let transaction = ItemTransaction {
        operation_id: 1,
        container: Arc::clone(container),
        range_id: 0,
        effective: container.definition.partition_key.effective_key(&partition_key),
        partition_key,
        now_ms: 1_767_225_600_000,
        logical_partition_bytes_max: 1 << 20,
        actions: Arc::new(vec![action]),
        entries: Vec::new(),
        script: None,
    };
    transaction.with_entries()
}

#[tokio::test]
async fn index_entries_of_another_item_take_the_partition_offline() {
    let other_ids = [r#"{"id":"2","pk":"a","n":1}"#, r#"{"id":"1","pk":"a","n":2}"#];
    for other in other_ids {
        let database = open().await;
        let container = container(&database);
        let partition = &container.partitions[0];
        let item = r#"{"id":"1","pk":"a","n":1}"#;
        let wrong =
            ItemTransaction { entries: upsert(&container, other).entries, ..upsert(&container, item) };
        let refused = database.commit(partition, wrong).await.unwrap_err();
        let CommitError::Inconsistent(reason) = &refused else { panic!("{refused:?}") };
        assert!(reason.contains("index entries"), "{reason}");
        // Nothing was written, and nothing will be.
        let refused = database.commit(partition, upsert(&container, item)).await.unwrap_err();
        assert_eq!(refused, CommitError::Inconsistent(reason.clone()));
        assert_eq!(entries(&database, partition.store).await, [Vec::new(), Vec::new()]);
        assert!(matches!(database.store_health(), Health::Impaired(reason) if reason.contains("offline")));
    }
}

/// A store with one entry.
struct Only(Key, &'static [u8]);

impl View for Only {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        (key == self.0).then(|| Bytes::from_static(self.1))
    }

    fn has_read(&self, _: &[u8]) -> bool {
        true
    }
}

#[tokio::test]
async fn stored_values_in_an_unknown_format_are_inconsistent() {
    let database = open().await;
    let container = container(&database);
    let transaction = upsert(&container, r#"{"id":"1","pk":"a"}"#);
    let effective = &transaction.effective;
    for (key, invariant) in [
        (keys::statistics(effective), "counters have a known format"),
        (keys::item(effective, "1"), "items have a known format"),
    ] {
        let decision = transaction.decide(&Only(key, &[0xFF]), 1);
        assert!(
            matches!(&decision, Decision::Inconsistent(reason) if reason.contains(invariant)),
            "{decision:?}"
        );
    }
    let decision = transaction.decide(&Only(Key::new(), &[]), 1);
    assert!(matches!(decision, Decision::Write(..)), "{decision:?}");
}

#[tokio::test]
async fn writes_outside_the_logical_partition_are_inconsistent() {
    let database = open().await;
    let container = container(&database);
    let transaction = upsert(&container, r#"{"id":"1","pk":"a"}"#);
    let nothing = Only(Key::new(), &[]);
    for (id, fits) in [("a", true), ("b", false)] {
        let key = PartitionKey::parse_json(format!(r#"["{id}"]"#).as_bytes()).unwrap();
        let effective = container.definition.partition_key.effective_key(&key);
        let mut working = Working::new(&transaction, &nothing, 1);
        working.writes.insert(keys::item(&effective, "1"), Some(Bytes::new()));
        assert_eq!(working.into_writes().is_ok(), fits, "{id}");
    }
}

/// The entries of the partition: items, and the keys of the index.
async fn entries(database: &Database, partition: orrery_storage::PartitionRef) -> [Vec<(Key, Bytes)>; 2] {
    let scan = Scan { bytes_max: usize::MAX, ..Scan::forward(KeyRange::all(), usize::MAX) };
    let page = database.store.read(partition, ReadRequest::Scan(scan)).await.unwrap();
    let of = |prefixes: &[u8]| {
        let entries = page.entries.iter().filter(|entry| prefixes.contains(&entry.key[0]));
        entries.map(|entry| (entry.key.clone(), entry.value.clone())).collect()
    };
    [of(&[0x10]), of(&[0x20, 0x24])]
}

/// Compares the index of the partition with the terms of the items in it.
async fn assert_index(database: &Database, step: &str) {
    let container = container(database);
    let [items, index] = entries(database, container.partitions[0].store).await;
    let mut terms = BTreeSet::new();
    for (key, value) in &items {
        let (effective, id) = keys::parse_item(key).unwrap();
        let item = StoredItem::decode(value).unwrap();
        let transaction = ItemTransaction { effective, ..upsert(&container, r#"{"id":"x","pk":"a"}"#) };
        let entries = transaction.entries_of(&parse_object(&item.body).unwrap(), item.timestamp, id);
        let ordinal = Bytes::copy_from_slice(&item.ordinal.to_be_bytes());
        terms.extend(entries.keys.iter().map(|key| (key.to_vec(), ordinal.clone())));
    }
    assert_eq!(index.into_iter().collect::<BTreeSet<_>>(), terms, "after {step}");
}

/// Random items, with values that appear, change, repeat and disappear.
fn body(random: u64, id: u64) -> Bytes {
    let mut text = format!(r#"{{"id":"{id}","pk":"a","u":{},"s":"{}""#, random % 9, random % 3);
    for (bit, member) in
        [r#","n":null"#, r#","list":[1,2,2,{"x":1}]"#, r#","deep":{"a":{"b":true}}"#, r#","hidden":{"h":1}"#]
            .into_iter()
            .enumerate()
    {
        if random >> (8 + bit) & 1 == 1 {
            text.push_str(member);
        }
    }
    Bytes::from(text + "}")
}

#[tokio::test]
async fn index_entries_are_exactly_the_terms_after_any_writes() {
    let database = open().await;
    let env = SeededEnv::new(11, 0);
    let options = ItemOptions {
        partition_key: Some(PartitionKey::parse_json(br#"["a"]"#).unwrap()),
        ..ItemOptions::default()
    };
    let mut written = 0;
    for step in 0..400 {
        let random = orrery_env::Env::random_u64(&env);
        let (id, other) = (random >> 20 & 7, random >> 24 & 7);
        let text = id.to_string();
        let at = (PLACE.0, PLACE.1, text.as_str());
        let mut receipt = Receipt::default();
        let kind = random >> 32 & 7;
        let outcome = match kind {
            0 => database.create_item(&mut receipt, PLACE, &options, &body(random, id)).await.map(|_| ()),
            1 | 2 => database.upsert_item(&mut receipt, PLACE, &options, &body(random, id)).await.map(|_| ()),
            // Renames the item if the ids differ.
            3 => database.replace_item(&mut receipt, at, &options, &body(random, other)).await.map(|_| ()),
            4 => database.delete_item(&mut receipt, at, &options).await.map(|_| ()),
            5 => {
                let patch = Bytes::from(format!(r#"[{{"op":"set","path":"/n","value":{}}}]"#, random % 5));
                database.patch_item(&mut receipt, at, &options, &patch).await.map(|_| ())
            }
            // Writes one item twice.
            _ => {
                let write = |kind, body| BatchOperation {
                    kind,
                    id: Some(text.clone()),
                    body,
                    if_match: None,
                    if_none_match: None,
                    partition_key: None,
                };
                let operations = [
                    write(BatchKind::Upsert, Some(body(random, id))),
                    write(BatchKind::Upsert, Some(body(random >> 7, id))),
                    write(BatchKind::Delete, None),
                    write(BatchKind::Create, Some(body(random >> 9, id))),
                ];
                let operations = &operations[..2 + (random >> 40 & 3).min(2) as usize];
                database.execute_batch(&mut receipt, PLACE, &options, operations).await.map(|_| ())
            }
        };
        written += u32::from(outcome.is_ok());
        assert_index(&database, &format!("step {step}, kind {kind}")).await;
    }
    assert!(written > 100, "only {written} of the writes succeeded");
}
