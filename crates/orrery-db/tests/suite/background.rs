//! What operators see of work in the background: each kind while it is under way, and nothing afterwards.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;

use orrery_db::{Database, PageRequest, Receipt, RepartitionRequest};
use orrery_model::{Result, Value};
use orrery_testing::wait;

use crate::common::{BY_PK, CONTAINER, DATABASE, PLACE, World, parse};

/// The tasks under way: kind and detail.
fn tasks(database: &Database) -> Vec<(&'static str, String)> {
    let tasks = database.background_tasks();
    assert!(
        tasks.iter().all(|task| task.container == format!("dbs/{DATABASE}/colls/{CONTAINER}")),
        "{tasks:?}"
    );
    tasks.into_iter().map(|task| (task.kind, task.detail)).collect()
}

/// Runs some work and notes the tasks that are seen between its steps.
async fn seen_during<T>(
    database: &Database,
    work: impl Future<Output = Result<T>>,
) -> BTreeMap<&'static str, String> {
    let mut work = pin!(work);
    let mut seen = BTreeMap::new();
    std::future::poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        seen.extend(tasks(database));
        // Looks again after every other task has had its turn.
        context.waker().wake_by_ref();
        polled
    })
    .await
    .unwrap();
    seen
}

async fn world_with_items() -> World {
    let world = World::memory().await;
    world.create_container(BY_PK).await;
    // More than a copy does in one step, in each of two partitions.
    for n in 0..600 {
        world.create(&format!(r#"{{"id":"{n}","pk":"k{n}","n":{n}}}"#)).await;
    }
    assert_eq!(tasks(&world.database), []);
    world
}

#[tokio::test]
async fn splits_and_merges_are_seen_while_they_run() {
    let world = world_with_items().await;
    let database = &world.database;
    let container = |database: &Database| database.catalog().container(DATABASE, CONTAINER).unwrap().clone();
    let rid = container(database).rid;
    let seen = seen_during(database, database.split_partition(rid, 0)).await;
    assert_eq!(
        seen.get("split").map(String::as_str),
        Some("partition 0 into partitions 1 and 2"),
        "{seen:?}"
    );
    assert_eq!(tasks(database), []);
    let seen = seen_during(database, database.merge_partitions(rid, [1, 2])).await;
    assert_eq!(
        seen.get("merge").map(String::as_str),
        Some("partitions 1 and 2 into partition 3"),
        "{seen:?}"
    );
    assert_eq!(tasks(database), []);
}

#[tokio::test]
async fn a_new_index_is_built_and_the_former_one_removed() {
    let world = world_with_items().await;
    let policy = r#""indexingPolicy":{"includedPaths":[{"path":"/n/?"}],"excludedPaths":[{"path":"/*"}]}"#;
    world.replace_container(&format!("{BY_PK},{policy}")).await.unwrap();
    let begun = world.database.background_tasks();
    assert_eq!(begun.len(), 1, "{begun:?}");
    assert_eq!((begun[0].kind, begun[0].percent), ("index", Some(0)));
    world.database.maintain().await.unwrap();
    // Queries that began with the former index may still read it.
    assert_eq!(
        tasks(&world.database),
        [("index cleanup", "removing the entries of the former index".to_owned())]
    );
    world.env.advance_seconds(121);
    world.database.maintain().await.unwrap();
    assert_eq!(tasks(&world.database), []);
}

#[tokio::test]
async fn throughput_that_needs_more_partitions_is_seen_until_they_are_there() {
    let world = world_with_items().await;
    let mut receipt = Receipt::default();
    let all = PageRequest { items_max: Some(-1), continuation: None };
    let mut offer = world.database.list_offers(&mut receipt, &all).unwrap().resources.remove(0);
    let rid = offer.get("_rid").and_then(Value::as_str).unwrap().to_owned();
    let content = offer.as_object_mut().unwrap().get_mut("content").unwrap();
    content.as_object_mut().unwrap().set("offerThroughput", Value::from(20_000));
    let body = offer.to_json();
    world.database.replace_offer(&mut receipt, &rid, body.as_bytes(), None, None).await.unwrap();
    assert_eq!(tasks(&world.database), [("scale", "adding partitions for the new throughput".to_owned())]);
    world.database.maintain().await.unwrap();
    assert_eq!(tasks(&world.database), []);
}

#[tokio::test]
async fn a_repartitioning_is_seen_with_its_phase() {
    let world = world_with_items().await;
    let request = RepartitionRequest {
        partition_key: parse(br#"{"paths":["/n"],"kind":"Hash","version":2}"#),
        synthetic_key: None,
        keep_as: None,
    };
    let status = world.database.repartition(PLACE, &request).await.unwrap();
    let seen = tasks(&world.database);
    assert_eq!(seen, [("repartition", status.phase.to_owned())]);
    wait::eventually("the end of the repartitioning", async || {
        tasks(&world.database).is_empty().then_some(())
    })
    .await;
    assert_eq!(world.database.repartition_status(DATABASE, CONTAINER).unwrap().phase, "done");
}
