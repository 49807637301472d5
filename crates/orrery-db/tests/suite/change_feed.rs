//! The change feed, latest versions: order, positions, scopes, and what splits do to them.

use bytes::Bytes;
use orrery_db::{
    BatchKind, BatchOperation, ChangeMode, ChangePage, ChangeRequest, ChangeStart, FeedScope, PageRequest,
    Receipt,
};
use orrery_model::{ErrorKind, Result, Value};

use crate::all_versions;
use crate::common::{BY_PK, DATABASE, ENGINES, Engine, PLACE, World, key, parse, with_key};

fn request(start: ChangeStart, items_max: i64) -> ChangeRequest {
    ChangeRequest {
        mode: ChangeMode::LatestVersions,
        scope: FeedScope::default(),
        start,
        modified_since: None,
        session: None,
        page: PageRequest { items_max: Some(items_max), continuation: None },
        envelope: false,
        previous_images: false,
    }
}

async fn read(world: &World, request: &ChangeRequest) -> Result<ChangePage> {
    world.database.read_changes(&mut Receipt::default(), PLACE, None, request).await
}

fn position(page: &ChangePage) -> ChangeStart {
    ChangeStart::After(page.etag.trim_matches('"').parse().unwrap())
}

fn rows(page: &ChangePage) -> Vec<Value> {
    let text = [b"[".as_slice(), &page.documents, b"]"].concat();
    parse(&text).as_array().unwrap().to_vec()
}

/// `id@version` of each row.
fn versions(page: &ChangePage) -> Vec<String> {
    let show = |row: &Value| {
        format!("{}@{}", row.get("id").unwrap().as_str().unwrap(), row.get("version").unwrap().to_json())
    };
    rows(page).iter().map(show).collect()
}

#[tokio::test]
async fn each_item_appears_at_its_last_change() {
    let world = World::with_partitions(Engine::Memory, 1).await;
    world.create_container(BY_PK).await;
    for (pk, id, version) in [("a", "1", 1), ("b", "2", 1), ("a", "3", 1), ("a", "1", 2), ("b", "4", 1)] {
        world.write_version(pk, id, version).await;
    }
    world.delete("a", "3").await;
    let all = read(&world, &request(ChangeStart::Beginning, -1)).await.unwrap();
    assert_eq!(versions(&all), ["2@1", "1@2", "4@1"]);
    let numbers: Vec<i64> = rows(&all).iter().map(|row| row.get("_lsn").unwrap().as_i64().unwrap()).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    let drained = read(&world, &request(position(&all), -1)).await.unwrap();
    assert_eq!((drained.count, &drained.etag), (0, &all.etag));
    world.write_version("a", "5", 1).await;
    let news = read(&world, &request(position(&drained), -1)).await.unwrap();
    assert_eq!(versions(&news), ["5@1"]);
}

/// As in the service, whether versions are kept or not: clients that read up to a number count on it.
#[tokio::test]
async fn the_first_write_of_a_container_has_lsn_2() {
    for engine in ENGINES {
        let plain = World::with_partitions(engine, 1).await;
        plain.create_container(BY_PK).await;
        for world in [plain, all_versions::kept(engine, "").await] {
            let nothing = read(&world, &request(ChangeStart::Beginning, -1)).await.unwrap();
            assert_eq!((nothing.count, &*nothing.etag), (0, "\"1\""));
            for id in ["1", "2", "3"] {
                world.write_version("a", id, 1).await;
            }
            let world = world.restart().await;
            let all = read(&world, &request(ChangeStart::Beginning, -1)).await.unwrap();
            let number = |row: &Value| row.get("_lsn").unwrap().as_i64().unwrap();
            assert_eq!(rows(&all).iter().map(number).collect::<Vec<_>>(), [2, 3, 4]);
            assert_eq!(all.etag, "\"4\"");
        }
    }
}

#[tokio::test]
async fn pages_of_any_size_see_every_change_once() {
    let world = World::with_partitions(Engine::Memory, 1).await;
    world.create_container(BY_PK).await;
    for id in 0..25 {
        world.write_version(&format!("k{}", id % 4), &id.to_string(), 1).await;
    }
    for size in 1..=26 {
        let (mut start, mut seen) = (ChangeStart::Beginning, Vec::new());
        loop {
            let page = read(&world, &request(start, size)).await.unwrap();
            if page.count == 0 {
                break;
            }
            assert!(i64::try_from(page.count).unwrap() <= size);
            seen.extend(versions(&page));
            start = position(&page);
        }
        assert_eq!(seen, (0..25).map(|id| format!("{id}@1")).collect::<Vec<_>>(), "{size}");
    }
}

#[tokio::test]
async fn a_batch_is_returned_as_a_whole() {
    let world = World::with_partitions(Engine::Memory, 1).await;
    world.create_container(BY_PK).await;
    let operation = |id: u32| BatchOperation {
        kind: BatchKind::Create,
        id: None,
        body: Some(Bytes::from(format!(r#"{{"id":"{id}","pk":"a","version":1}}"#))),
        if_match: None,
        if_none_match: None,
        partition_key: None,
    };
    let operations: Vec<BatchOperation> = (0..5).map(operation).collect();
    world
        .database
        .execute_batch(&mut Receipt::default(), PLACE, &with_key(r#"["a"]"#), &operations)
        .await
        .unwrap();
    let page = read(&world, &request(ChangeStart::Beginning, 2)).await.unwrap();
    assert_eq!(versions(&page), ["0@1", "1@1", "2@1", "3@1", "4@1"]);
    assert_eq!(read(&world, &request(position(&page), 2)).await.unwrap().count, 0);
}

#[tokio::test]
async fn readers_start_now_or_at_a_time_and_see_their_scope() {
    let world = World::with_partitions(Engine::Memory, 1).await;
    world.create_container(BY_PK).await;
    world.write_version("a", "1", 1).await;
    let now = read(&world, &request(ChangeStart::Now, -1)).await.unwrap();
    assert_eq!(now.count, 0);
    world.env.advance_seconds(100);
    world.write_version("b", "2", 1).await;
    assert_eq!(versions(&read(&world, &request(position(&now), -1)).await.unwrap()), ["2@1"]);
    let since = crate::common::env::START_SECONDS + 50;
    let later = ChangeRequest { modified_since: Some(since), ..request(ChangeStart::Beginning, -1) };
    assert_eq!(versions(&read(&world, &later).await.unwrap()), ["2@1"]);
    // What was written in that very second is not later (`ValidateChangeFeedIfModifiedSince` of the .NET client).
    let then = crate::common::env::START_SECONDS + 100;
    let excluded = ChangeRequest { modified_since: Some(then), ..request(ChangeStart::Beginning, -1) };
    assert_eq!(read(&world, &excluded).await.unwrap().count, 0);
    let included = ChangeRequest { modified_since: Some(then - 1), ..excluded };
    assert_eq!(versions(&read(&world, &included).await.unwrap()), ["2@1"]);
    let scope = FeedScope { partition_key: Some(key(r#"["a"]"#)), ..FeedScope::default() };
    let only_a = ChangeRequest { scope, envelope: true, ..request(ChangeStart::Beginning, -1) };
    let page = read(&world, &only_a).await.unwrap();
    let row = &rows(&page)[0];
    assert_eq!((page.count, row.get("current").unwrap().get("id")), (1, Some(&Value::from("1"))));
    assert!(row.get("metadata").unwrap().get("crts").unwrap().as_i64().unwrap() > 0);
    // The position passes what is outside of the scope.
    assert_eq!(page.etag, read(&world, &request(ChangeStart::Now, -1)).await.unwrap().etag);
}

#[tokio::test]
async fn positions_outlive_splits() {
    let world = World::with_partitions(Engine::Memory, 1).await;
    world.create_container(BY_PK).await;
    for id in 0..40 {
        world.write_version(&format!("k{id}"), &id.to_string(), 1).await;
    }
    let first = read(&world, &request(ChangeStart::Beginning, 15)).await.unwrap();
    let container = world.database.catalog().container(DATABASE, "items").unwrap().clone();
    let named = |range_id| FeedScope { range_id: Some(range_id), ..FeedScope::default() };
    world.database.split_partition(container.rid, 0).await.unwrap();
    world.write_version("k1", "1", 2).await;
    let gone = ChangeRequest { scope: named(0), ..request(position(&first), -1) };
    assert_eq!(read(&world, &gone).await.unwrap_err().kind, ErrorKind::PartitionGone);
    // Clients send the parent's position to both children.
    let mut seen = versions(&first);
    for child in [1, 2] {
        let page = read(&world, &ChangeRequest { scope: named(child), ..request(position(&first), -1) })
            .await
            .unwrap();
        seen.extend(versions(&page));
    }
    seen.sort();
    let mut expected: Vec<String> = (0..40).map(|id| format!("{id}@1")).collect();
    expected.push("1@2".to_owned());
    expected.sort();
    assert_eq!(seen, expected);
}
