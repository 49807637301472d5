//! The change feed of all versions and deletes: what it keeps, for how long, and who may read it.

use bytes::Bytes;
use orrery_db::{
    BatchKind, ChangeMode, ChangePage, ChangeRequest, ChangeStart, FeedScope, PageRequest, Receipt,
};
use orrery_model::{ErrorKind, Result, Value};

use crate::common::raw::{self, HISTORY, RECORDING};
use crate::common::{
    BY_PK, DATABASE, ENGINES, Engine, PLACE, World, check, key, operation, parse, quiet_options, with_key,
};

const KEPT: &str = r#""changeFeedPolicy":{"retentionDuration":10}"#;

pub(crate) fn request(start: ChangeStart) -> ChangeRequest {
    ChangeRequest {
        mode: ChangeMode::AllVersions,
        scope: FeedScope::default(),
        start,
        modified_since: None,
        session: None,
        page: PageRequest { items_max: Some(-1), continuation: None },
        envelope: true,
        previous_images: false,
    }
}

pub(crate) async fn read(world: &World, request: &ChangeRequest) -> Result<ChangePage> {
    world.database.read_changes(&mut Receipt::default(), PLACE, None, request).await
}

pub(crate) async fn now(world: &World) -> ChangeStart {
    let page = read(world, &request(ChangeStart::Now)).await.unwrap();
    assert_eq!(page.count, 0);
    position(&page)
}

fn position(page: &ChangePage) -> ChangeStart {
    ChangeStart::After(page.etag.trim_matches('"').parse().unwrap())
}

pub(crate) fn rows(page: &ChangePage) -> Vec<Value> {
    let text = [b"[".as_slice(), &page.documents, b"]"].concat();
    let rows = parse(&text).as_array().unwrap().to_vec();
    assert_eq!(rows.len(), page.count);
    rows
}

/// `create id@version`, or `delete id`, with a `!` if its lifetime was over.
pub(crate) fn story(page: &ChangePage) -> Vec<String> {
    let tell = |row: &Value| {
        let metadata = row.get("metadata").unwrap();
        let happened = metadata.get("operationType").and_then(Value::as_str).unwrap();
        let (current, text) =
            (row.get("current").unwrap(), |value: &Value| value.as_str().unwrap().to_owned());
        if happened == "delete" {
            assert!(current.as_object().unwrap().is_empty(), "{current:?}");
            let mark = if metadata.get("timeToLiveExpired") == Some(&Value::from(true)) { "!" } else { "" };
            return format!("delete {}{mark}", text(metadata.get("id").unwrap()));
        }
        let version = current.get("version").map(Value::to_json).unwrap_or_default();
        format!("{happened} {}@{version}", text(current.get("id").unwrap()))
    };
    rows(page).iter().map(tell).collect()
}

pub(crate) async fn kept(engine: Engine, members: &str) -> World {
    let world = World::with_partitions(engine, 1).await;
    world.create_container(&format!("{BY_PK},{KEPT}{members}")).await;
    world
}

#[tokio::test]
async fn every_version_and_delete_is_returned_in_order() {
    for engine in ENGINES {
        let world = kept(engine, "").await;
        world.write_version("a", "0", 1).await;
        let start = now(&world).await;
        for (id, version) in [("1", 1), ("2", 1), ("1", 2), ("1", 3)] {
            world.write_version("a", id, version).await;
        }
        world.delete("a", "1").await;
        world.write_version("a", "1", 4).await;
        let expected = ["create 1@1", "create 2@1", "replace 1@2", "replace 1@3", "delete 1", "create 1@4"];
        let world = world.restart().await;
        let page = read(&world, &request(start)).await.unwrap();
        assert_eq!(story(&page), expected);
        assert_eq!(read(&world, &request(position(&page))).await.unwrap().count, 0);

        let rows = rows(&page);
        let number =
            |row: usize, name: &str| rows[row].get("metadata").unwrap().get(name).and_then(Value::as_i64);
        assert!((1..6).all(|row| number(row - 1, "lsn") < number(row, "lsn")), "{rows:?}");
        assert_eq!(number(0, "previousImageLSN"), None);
        assert_eq!(number(2, "previousImageLSN"), number(0, "lsn"));
        assert_eq!(number(4, "previousImageLSN"), number(3, "lsn"));
        assert_eq!(number(4, "crts"), Some(crate::common::env::START_SECONDS));
        let deleted = rows[4].get("metadata").unwrap();
        assert_eq!(deleted.get("partitionKey").unwrap().to_json(), r#"{"pk":"a"}"#);
        let current = rows[5].get("current").unwrap();
        assert_eq!(current.get("_ts").and_then(Value::as_i64), number(5, "crts"));

        // In pages of any size, of one key or of another.
        for size in 1..=7 {
            let (mut at, mut seen) = (start, Vec::new());
            loop {
                let page = PageRequest { items_max: Some(size), continuation: None };
                let page = read(&world, &ChangeRequest { page, ..request(at) }).await.unwrap();
                if page.count == 0 {
                    break;
                }
                assert!(i64::try_from(page.count).unwrap() <= size);
                seen.extend(story(&page));
                at = position(&page);
            }
            assert_eq!(seen, expected, "{size}");
        }
        for (wanted, count) in [("a", 6), ("b", 0)] {
            let scope =
                FeedScope { partition_key: Some(key(&format!(r#"["{wanted}"]"#))), ..FeedScope::default() };
            let of_key = read(&world, &ChangeRequest { scope, ..request(start) }).await.unwrap();
            assert_eq!((of_key.count, &of_key.etag), (count, &page.etag), "{wanted}");
        }
    }
}

#[tokio::test]
async fn a_batch_is_recorded_step_by_step_and_returned_as_a_whole() {
    let world = kept(Engine::Memory, "").await;
    let start = now(&world).await;
    let operations = [
        operation(BatchKind::Create, "1", Some(r#"{"id":"1","pk":"a","version":1}"#)),
        operation(
            BatchKind::Patch,
            "1",
            Some(r#"{"operations":[{"op":"set","path":"/version","value":2}]}"#),
        ),
        operation(BatchKind::Create, "2", Some(r#"{"id":"2","pk":"a","version":1}"#)),
        operation(BatchKind::Delete, "1", None),
    ];
    let options = with_key(r#"["a"]"#);
    world.database.execute_batch(&mut Receipt::default(), PLACE, &options, &operations).await.unwrap();
    let page = PageRequest { items_max: Some(1), continuation: None };
    let whole = read(&world, &ChangeRequest { page, ..request(start) }).await.unwrap();
    assert_eq!(story(&whole), ["create 1@1", "replace 1@2", "create 2@1", "delete 1"]);
    // What is refused is not in it.
    let refused = [operations[2].clone(), operations[3].clone()];
    world.database.execute_batch(&mut Receipt::default(), PLACE, &options, &refused).await.unwrap();
    assert_eq!(read(&world, &request(position(&whole))).await.unwrap().count, 0);
}

#[tokio::test]
async fn expiry_and_purges_appear_as_deletes() {
    let world = kept(Engine::Memory, r#","defaultTtl":-1"#).await;
    let start = now(&world).await;
    for id in ["1", "2"] {
        let body = Bytes::from(format!(r#"{{"id":"{id}","pk":"a","version":1,"ttl":5}}"#));
        world
            .database
            .create_item(&mut Receipt::default(), PLACE, &with_key(r#"["a"]"#), &body)
            .await
            .unwrap();
    }
    for id in ["3", "4"] {
        world.write_version("b", id, 1).await;
    }
    world.env.advance_seconds(10);
    // One comes back before the sweeper has seen it.
    world.write_version("a", "1", 2).await;
    world.database.maintain().await.unwrap();
    world
        .database
        .delete_by_partition_key(&mut Receipt::default(), PLACE, &with_key(r#"["b"]"#))
        .await
        .unwrap();
    world.write_version("b", "3", 2).await;
    world.database.maintain().await.unwrap();
    let page = read(&world, &request(start)).await.unwrap();
    let story = story(&page);
    let until_the_purge = [
        "create 1@1",
        "create 2@1",
        "create 3@1",
        "create 4@1",
        "delete 1!",
        "create 1@2",
        "delete 2!",
        "delete 3",
    ];
    assert_eq!(story[..until_the_purge.len()], until_the_purge);
    // The background may have removed both items before the one came back.
    let mut rest = story[until_the_purge.len()..].to_vec();
    rest.sort_unstable();
    assert_eq!(rest, ["create 3@2", "delete 4"]);
}

#[tokio::test]
async fn versions_are_trimmed_after_the_retention_time() {
    for engine in ENGINES {
        let world = kept(engine, "").await;
        let start = now(&world).await;
        world.write_version("a", "1", 1).await;
        world.env.advance_seconds(500);
        world.write_version("a", "1", 2).await;
        let between = now(&world).await;
        world.env.advance_seconds(101);
        // Too old, whether it has been removed already or not.
        for _ in 0..2 {
            let refused = read(&world, &request(start)).await.unwrap_err();
            assert_eq!(refused.kind, ErrorKind::BadRequest);
            assert!(
                refused.message.contains("You must read the change feed from within the retention period.")
            );
            world.database.maintain().await.unwrap();
        }
        assert_eq!(raw::count(&world, HISTORY).await, 1);
        world.write_version("a", "1", 3).await;
        assert_eq!(story(&read(&world, &request(between)).await.unwrap()), ["replace 1@3"]);
        world.env.advance_seconds(10_000);
        world.database.maintain().await.unwrap();
        assert_eq!(raw::count(&world, HISTORY).await, 0);
        let world = world.restart().await;
        assert_eq!(read(&world, &request(between)).await.unwrap_err().kind, ErrorKind::BadRequest);
        assert_eq!(read(&world, &request(now(&world).await)).await.unwrap().count, 0);
        // The latest version has nothing to do with it.
        let latest = ChangeRequest { mode: ChangeMode::LatestVersions, ..request(ChangeStart::Beginning) };
        assert_eq!(read(&world, &latest).await.unwrap().count, 1);
    }
}

#[tokio::test]
async fn readers_need_a_policy_and_a_start_position() {
    let world = World::with_partitions(Engine::Memory, 1).await;
    world.create_container(BY_PK).await;
    world.write_version("a", "1", 1).await;
    let refused = read(&world, &request(ChangeStart::Now)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::BadRequest);
    assert!(refused.message.contains("'All Versions and Deletes' mode must be enabled"), "{refused}");
    assert_eq!(raw::count(&world, RECORDING).await + raw::count(&world, HISTORY).await, 0);

    // Kept from now on, and no earlier.
    let before = ChangeStart::After(1);
    world.replace_container(&format!("{BY_PK},{KEPT}")).await.unwrap();
    let start = now(&world).await;
    world.write_version("a", "1", 2).await;
    assert_eq!(story(&read(&world, &request(start)).await.unwrap()), ["replace 1@2"]);
    let early = read(&world, &request(before)).await.unwrap_err();
    assert!(early.message.contains("within the retention period"), "{early}");
    for begin in [
        request(ChangeStart::Beginning),
        ChangeRequest { modified_since: Some(1), ..request(ChangeStart::Beginning) },
        ChangeRequest { modified_since: Some(1), ..request(start) },
    ] {
        assert_eq!(read(&world, &begin).await.unwrap_err().kind, ErrorKind::BadRequest);
    }

    // No longer kept: everything goes; kept again, it begins anew.
    world
        .replace_container(&format!(r#"{BY_PK},"changeFeedPolicy":{{"retentionDuration":0}}"#))
        .await
        .unwrap();
    assert_eq!(read(&world, &request(start)).await.unwrap_err().kind, ErrorKind::BadRequest);
    world.write_version("a", "1", 3).await;
    world.database.maintain().await.unwrap();
    assert_eq!(raw::count(&world, RECORDING).await + raw::count(&world, HISTORY).await, 0);
    world.replace_container(&format!("{BY_PK},{KEPT}")).await.unwrap();
    assert!(read(&world, &request(start)).await.is_err());
    let start = now(&world).await;
    world.write_version("a", "1", 4).await;
    assert_eq!(story(&read(&world, &request(start)).await.unwrap()), ["replace 1@4"]);
}

#[tokio::test]
async fn the_server_can_retain_versions_of_every_container() {
    let options = orrery_db::Options { partitions_at_creation: Some(1), ..quiet_options() };
    let world = World::open(Engine::Embedded, options).await;
    world.create_container(BY_PK).await;
    world.write_version("a", "1", 1).await;
    let world = world.restart_with(|options| options.change_feed_retention_minutes = Some(60)).await;
    let start = now(&world).await;
    world.write_version("a", "1", 2).await;
    assert_eq!(story(&read(&world, &request(start)).await.unwrap()), ["replace 1@2"]);
    let world = world.restart_with(|options| options.change_feed_retention_minutes = None).await;
    assert!(read(&world, &request(start)).await.is_err());
    world.database.maintain().await.unwrap();
    assert_eq!(raw::count(&world, RECORDING).await + raw::count(&world, HISTORY).await, 0);
}

#[tokio::test]
async fn versions_survive_splits_and_merges() {
    let world = World::with_partitions(Engine::Memory, 2).await;
    world.create_container(&format!("{BY_PK},{KEPT}")).await;
    let container = || world.database.catalog().container(DATABASE, "items").unwrap().clone();
    let named = |range_id| FeedScope { range_id: Some(range_id), ..FeedScope::default() };
    let halves: Vec<_> = container().partitions.iter().map(|partition| partition.range.clone()).collect();
    let windowed = |at: usize| FeedScope { window: Some(halves[at].clone()), ..FeedScope::default() };
    let mut starts = Vec::new();
    for at in 0..2 {
        let page = read(&world, &ChangeRequest { scope: windowed(at), ..request(ChangeStart::Now) }).await;
        starts.push(position(&page.unwrap()));
    }
    for round in 1..=3 {
        for id in 0..20 {
            world.write_version(&format!("k{id}"), &id.to_string(), round).await;
        }
    }
    world.delete("k7", "7").await;
    let both = [container().partitions[0].range_id, container().partitions[1].range_id];
    world.database.merge_partitions(container().rid, both).await.unwrap();
    world.write_version("k8", "8", 4).await;
    let seen = async |scopes: &[(FeedScope, ChangeStart)]| {
        let mut seen = Vec::new();
        for (scope, start) in scopes {
            let asked = ChangeRequest { scope: scope.clone(), ..request(*start) };
            seen.extend(story(&read(&world, &asked).await.unwrap()));
        }
        seen.sort();
        seen
    };
    let mut expected: Vec<String> = (0..20)
        .flat_map(|id| [format!("create {id}@1"), format!("replace {id}@2"), format!("replace {id}@3")])
        .collect();
    expected.extend(["delete 7".to_owned(), "replace 8@4".to_owned()]);
    expected.sort();
    let merged = [(windowed(0), starts[0]), (windowed(1), starts[1])];
    assert_eq!(seen(&merged).await, expected);

    let merged_id = container().partitions[0].range_id;
    world.database.split_partition(container().rid, merged_id).await.unwrap();
    let gone = ChangeRequest { scope: named(merged_id), ..request(starts[0]) };
    assert_eq!(read(&world, &gone).await.unwrap_err().kind, ErrorKind::PartitionGone);
    world.write_version("k9", "9", 4).await;
    expected.push("replace 9@4".to_owned());
    expected.sort();
    let mut scopes = Vec::new();
    for (half, start) in halves.iter().zip(&starts) {
        for partition in &container().partitions {
            if let Some(window) = partition.range.intersect(half) {
                scopes.push((FeedScope { window: Some(window), ..FeedScope::default() }, *start));
            }
        }
    }
    assert_eq!(seen(&scopes).await, expected);
    raw::check_consistency(&world).await.unwrap();
}

#[tokio::test]
async fn containers_with_history_behave_like_others() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a"}                   => created
        upsert ["a"] {"id":"1","pk":"a","n":1}             => replaced
        raw 38                                             => 2
        delete ["a"] 1                                     => deleted
        raw 38                                             => 3
        raw 36                                             => 1
        feed -                                             =>
        usage                                              => 0 items 0 bytes
        delete ["a"] 1                                     => NotFound
        raw 38                                             => 3
        restart
        raw 36                                             => 1
    "#;
    check(&format!("{BY_PK},{KEPT}"), steps).await;
}

/// The suite of the .NET SDK reads the item that a delete has ended; those of the Java and Rust SDKs want none.
#[tokio::test]
async fn deletes_come_with_the_item_that_they_have_ended_where_that_is_wanted() {
    for engine in ENGINES {
        let world = kept(engine, r#","defaultTtl":-1"#).await;
        // It was written before the reader began, and is long gone from the history of changes that it will see.
        world.create(r#"{"id":"1","pk":"a","text":"before"}"#).await;
        world.create(r#"{"id":"2","pk":"a","ttl":5}"#).await;
        let start = now(&world).await;
        world.delete("a", "1").await;
        world.env.advance_seconds(6);
        world.database.maintain().await.unwrap();
        let world = world.restart().await;
        let without = read(&world, &request(start)).await.unwrap();
        assert_eq!(story(&without), ["delete 1", "delete 2!"]);
        assert!(rows(&without).iter().all(|row| row.get("previous").is_none()));
        let wanted = ChangeRequest { previous_images: true, ..request(start) };
        let rows = rows(&read(&world, &wanted).await.unwrap());
        let previous = |at: usize, name: &str| rows[at].get("previous").unwrap().get(name).cloned();
        assert_eq!(previous(0, "text"), Some(Value::from("before")));
        assert_eq!(previous(1, "ttl"), Some(Value::from(5)));
        assert!(previous(0, "_ts").is_some() && previous(0, "_etag").is_some());
    }
}
