//! Budgets: who must wait, who need not, and what is known about it.

use bytes::Bytes;
use orrery_db::{Options, Trace};
use orrery_model::offer::Throughput;
use orrery_model::{ErrorKind, Result};

use crate::common::{BY_PK, DATABASE, Engine, World, quiet_options, with_key};

async fn world(partitions: u32) -> World {
    let options = Options { throttle: true, partitions_at_creation: Some(partitions), ..quiet_options() };
    World::open(Engine::Memory, options).await
}

async fn container(world: &World, id: &str, throughput: Option<Throughput>) {
    let body = format!(r#"{{"id":"{DATABASE}"}}"#);
    drop(world.database.create_database(&mut Trace::default(), body.as_bytes(), None).await);
    world.create_named(id, BY_PK, throughput).await.unwrap();
}

/// Writes an item and settles what it cost, as the gateway does.
async fn write(world: &World, container: &str, key: &str, id: u64) -> Result<f64> {
    let body = Bytes::from(format!(r#"{{"id":"{id}","pk":"{key}"}}"#));
    let mut trace = Trace::default();
    let options = with_key(&format!(r#"["{key}"]"#));
    let result = world.database.upsert_item(&mut trace, (DATABASE, container), &options, &body).await;
    world.database.settle(&trace);
    result.map(|_| trace.charge.as_f64())
}

/// Writes as fast as one can for some seconds, ten tries a tick; answers the units that were delivered.
async fn overload(world: &World, container: &str, key: &str, seconds: i64) -> f64 {
    let mut delivered = 0.0;
    for second in 0..seconds {
        let mut id = 0;
        loop {
            id += 1;
            match write(world, container, key, id % 50).await {
                Ok(charge) => delivered += charge,
                Err(error) => {
                    let ErrorKind::TooManyRequests { retry_after_ms } = error.kind else { panic!("{error}") };
                    assert!(retry_after_ms > 0);
                    break;
                }
            }
            assert!(id < 10_000, "nobody was told to wait in second {second}");
        }
        world.env.advance_seconds(1);
    }
    delivered
}

#[tokio::test]
async fn an_overloaded_container_delivers_what_is_provisioned() {
    let world = world(1).await;
    container(&world, "items", Some(Throughput::Manual(500))).await;
    let delivered = overload(&world, "items", "a", 60).await;
    assert!((500.0 * 60.0 * 0.95..=500.0 * 60.0 * 1.05).contains(&delivered), "{delivered}");
}

#[tokio::test]
async fn a_hot_key_throttles_its_partition_and_no_other() {
    let world = world(4).await;
    container(&world, "items", Some(Throughput::Manual(4000))).await;
    let catalog = world.database.catalog();
    let there = catalog.container(DATABASE, "items").unwrap();
    let partition_of = |key: &str| {
        let effective =
            there.definition.partition_key.effective_key(&crate::common::key(&format!(r#"["{key}"]"#)));
        there.partition_of(&effective).range_id
    };
    let hot = partition_of("hot");
    let cold = (0..).map(|n| format!("cold{n}")).find(|key| partition_of(key) != hot).unwrap();
    let delivered = overload(&world, "items", "hot", 10).await;
    assert!((10_000.0 * 0.95..=10_000.0 * 1.05).contains(&delivered), "{delivered}");
    for id in 0..50 {
        write(&world, "items", &cold, id).await.unwrap();
    }
    let event = &world.database.throttle_events()[0];
    assert_eq!((event.range_id, event.key.as_deref()), (hot, Some(r#"["hot"]"#)));
    assert_eq!((event.key_share_percent, event.budget_per_second), (100, 1000));
}

#[tokio::test]
async fn containers_share_their_database_s_throughput() {
    let world = world(1).await;
    let body = format!(r#"{{"id":"{DATABASE}"}}"#);
    let throughput = Some(Throughput::Manual(400));
    world.database.create_database(&mut Trace::default(), body.as_bytes(), throughput).await.unwrap();
    for id in ["first", "second"] {
        world.create_named(id, BY_PK, None).await.unwrap();
    }
    world.create_named("own", BY_PK, Some(Throughput::Manual(400))).await.unwrap();
    let delivered = overload(&world, "first", "a", 1).await;
    assert!(delivered >= 400.0);
    // The clock has moved on by a second; use up the new one with the other container.
    while write(&world, "second", "a", 1).await.is_ok() {}
    assert!(write(&world, "first", "b", 1).await.is_err());
    write(&world, "own", "a", 1).await.unwrap();
}

#[tokio::test]
async fn more_throughput_takes_effect_and_splits_when_a_share_grows_too_large() {
    let world = world(1).await;
    container(&world, "items", Some(Throughput::Manual(400))).await;
    for id in 0..40 {
        write(&world, "items", &format!("k{id}"), id).await.unwrap();
        world.env.advance_seconds(1);
    }
    let offers =
        world.database.list_offers(&mut Trace::default(), &orrery_db::PageRequest::default()).unwrap();
    let offer = &offers.resources[0];
    let rid = offer.get("id").unwrap().as_str().unwrap().to_owned();
    let replace = |units: u32| {
        let body = format!(r#"{{"content":{{"offerThroughput":{units}}}}}"#);
        let rid = rid.clone();
        let database = world.database.clone();
        async move { database.replace_offer(&mut Trace::default(), &rid, body.as_bytes(), None, None).await }
    };
    assert!(!replace(10_000).await.unwrap().pending);
    assert!(replace(25_000).await.unwrap().pending);
    assert_eq!(replace(30_000).await.unwrap_err().kind, ErrorKind::Locked);
    world.database.maintain().await.unwrap();
    assert!(!world.database.read_offer(&mut Trace::default(), &rid).unwrap().pending);
    let catalog = world.database.catalog();
    assert_eq!(catalog.container(DATABASE, "items").unwrap().partitions.len(), 3);
    assert_eq!(
        world
            .database
            .container_usage(DATABASE, "items")
            .await
            .unwrap()
            .iter()
            .map(|(_, usage)| usage.items)
            .sum::<u64>(),
        40
    );
}
