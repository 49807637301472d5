//! Budgets: who must wait, who need not, and what is known about it.

use bytes::Bytes;
use orrery_db::{AccountChange, Options, Receipt, RequestContext, ThrottleCause};
use orrery_model::offer::Throughput;
use orrery_model::{ErrorKind, Result};

use crate::common::{BY_PK, DATABASE, Engine, World, quiet_options, with_key};

async fn world(partitions: u32) -> World {
    let options = Options { throttle: true, partitions_at_creation: Some(partitions), ..quiet_options() };
    World::open(Engine::Memory, options).await
}

async fn container(world: &World, id: &str, throughput: Option<Throughput>) {
    let body = format!(r#"{{"id":"{DATABASE}"}}"#);
    drop(world.database.create_database(&mut Receipt::default(), body.as_bytes(), None).await);
    world.create_named(id, BY_PK, throughput).await.unwrap();
}

/// Writes an item and settles what it cost, as the gateway does.
async fn write(world: &World, container: &str, key: &str, id: u64) -> Result<f64> {
    let body = Bytes::from(format!(r#"{{"id":"{id}","pk":"{key}"}}"#));
    let mut receipt = Receipt::default();
    let options = with_key(&format!(r#"["{key}"]"#));
    let result = world.database.upsert_item(&mut receipt, (DATABASE, container), &options, &body).await;
    world.database.settle(&receipt);
    result.map(|_| receipt.charge.as_f64())
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
                    // The refusal tells which limit was met, and who used it up.
                    for part in [
                        "Partition key range ",
                        " request units per second and ",
                        "The partition key [",
                        " % of ",
                    ] {
                        assert!(error.message.contains(part), "{part}: {error}");
                    }
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
    let cold = (0..1000).map(|n| format!("cold{n}")).find(|key| partition_of(key) != hot).unwrap();
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
    world.database.create_database(&mut Receipt::default(), body.as_bytes(), throughput).await.unwrap();
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
        world.database.list_offers(&mut Receipt::default(), &orrery_db::PageRequest::default()).unwrap();
    let offer = &offers.resources[0];
    let rid = offer.get("id").unwrap().as_str().unwrap().to_owned();
    let replace = |units: u32| {
        let body = format!(r#"{{"content":{{"offerThroughput":{units}}}}}"#);
        let rid = rid.clone();
        let database = world.database.clone();
        async move { database.replace_offer(&mut Receipt::default(), &rid, body.as_bytes(), None, None).await }
    };
    assert!(!replace(10_000).await.unwrap().pending);
    assert!(replace(25_000).await.unwrap().pending);
    assert_eq!(replace(30_000).await.unwrap_err().kind, ErrorKind::Locked);
    world.database.maintain().await.unwrap();
    assert!(!world.database.read_offer(&mut Receipt::default(), &rid).unwrap().pending);
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

/// A stop in the middle of growing: the next start goes on at once, though the background would look much later.
#[tokio::test]
async fn interrupted_growth_resumes_at_the_next_start() {
    let inner: std::sync::Arc<dyn orrery_storage::PartitionStore> =
        std::sync::Arc::new(orrery_storage::Memory::new());
    let faulty = std::sync::Arc::new(crate::common::faulty::Faulty::new(inner.clone()));
    let world = World::on(faulty.clone(), quiet_options()).await;
    container(&world, "items", Some(Throughput::Manual(400))).await;
    let page = orrery_db::PageRequest::default();
    let offers = world.database.list_offers(&mut Receipt::default(), &page).unwrap();
    let rid = offers.resources[0].get("id").unwrap().as_str().unwrap().to_owned();
    faulty.fail_after_changes(1);
    let body = br#"{"content":{"offerThroughput":40000}}"#;
    let replaced = world.database.replace_offer(&mut Receipt::default(), &rid, body, None, None).await;
    assert!(replaced.unwrap().pending);
    drop(world);
    let reopened = World::on(inner, quiet_options()).await;
    let long = std::time::Duration::from_mins(1);
    assert!(!reopened.database.wait_for_offer(&rid, long).await.unwrap().pending);
    let catalog = reopened.database.catalog();
    assert_eq!(catalog.container(DATABASE, "items").unwrap().partitions.len(), 4);
}

#[tokio::test]
async fn buckets_are_limited_to_their_share() {
    let world = world(1).await;
    let body = format!(r#"{{"id":"{DATABASE}"}}"#);
    world.database.create_database(&mut Receipt::default(), body.as_bytes(), None).await.unwrap();
    let buckets = r#""throughputBuckets":[{"id":1,"maxThroughputPercentage":20},{"id":3,"maxThroughputPercentage":50}]"#;
    let members = format!("{BY_PK},{buckets}");
    world.create_named("items", &members, Some(Throughput::Manual(1000))).await.unwrap();
    let write = async |bucket: Option<u8>, id: u64| {
        let body = Bytes::from(format!(r#"{{"id":"{id}","pk":"a"}}"#));
        let mut receipt = Receipt::open(RequestContext { bucket, ..RequestContext::default() });
        let options = with_key(r#"["a"]"#);
        let result = world.database.upsert_item(&mut receipt, (DATABASE, "items"), &options, &body).await;
        world.database.settle(&receipt);
        result.map(|_| receipt.charge.as_f64())
    };
    let mut delivered = 0.0;
    for second in 0..20 {
        for id in 0.. {
            match write(Some(1), id % 50).await {
                Ok(charge) => delivered += charge,
                Err(error) => {
                    assert!(matches!(error.kind, ErrorKind::TooManyRequests { .. }), "{error}");
                    break;
                }
            }
            assert!(id < 1000, "nobody had to wait in second {second}");
        }
        // The others have their own part.
        write(Some(3), 1).await.unwrap();
        write(None, 2).await.unwrap();
        world.env.advance_seconds(1);
    }
    assert!((20.0 * 200.0 * 0.95..=20.0 * 200.0 * 1.05).contains(&delivered), "{delivered}");
    assert_eq!(world.database.throttle_events()[0].cause, orrery_db::ThrottleCause::Bucket(1));
    assert_eq!(write(Some(2), 1).await.unwrap_err().kind, ErrorKind::BadRequest);
    // A replace that does not mention them keeps them.
    let body = format!(r#"{{"id":"items",{BY_PK}}}"#);
    let place = (DATABASE, "items");
    let replaced =
        world.database.replace_container(&mut Receipt::default(), place, body.as_bytes(), None).await;
    assert!(replaced.unwrap().value.to_json().contains("throughputBuckets"));
}

#[tokio::test]
async fn an_autoscale_offer_reports_its_current_throughput() {
    let world = world(1).await;
    let autoscale = Throughput::Autoscale { max: 4000, increment_percent: None };
    container(&world, "items", Some(autoscale)).await;
    let current = || {
        let page = orrery_db::PageRequest::default();
        let offers = world.database.list_offers(&mut Receipt::default(), &page).unwrap();
        let content = offers.resources[0].get("content").unwrap().clone();
        content.get("offerThroughput").unwrap().as_i64().unwrap()
    };
    assert_eq!(current(), 400);
    let mut used = 0.0;
    while used < 1000.0 {
        used += write(&world, "items", "a", 1).await.unwrap();
    }
    assert!((1000..1020).contains(&current()), "{}", current());
    overload(&world, "items", "a", 1).await;
    assert_eq!(current(), 4000);
    world.env.advance_seconds(2);
    assert_eq!(current(), 400);
}

#[tokio::test]
async fn stored_data_raises_the_minimum() {
    let faulty = std::sync::Arc::new(crate::common::faulty::Faulty::new(std::sync::Arc::new(
        orrery_storage::Memory::new(),
    )));
    let options = Options { partition_bytes_max: u64::MAX, ..quiet_options() };
    let world = World::on(faulty.clone(), options).await;
    container(&world, "items", Some(Throughput::Manual(1000))).await;
    let minimum = || {
        let page = orrery_db::PageRequest::default();
        let offers = world.database.list_offers(&mut Receipt::default(), &page).unwrap();
        let rid = offers.resources[0].get("id").unwrap().as_str().unwrap().to_owned();
        world.database.read_offer(&mut Receipt::default(), &rid).unwrap().minimum
    };
    assert_eq!(minimum(), 400);
    faulty.pretend_bytes(750 << 30);
    world.database.maintain().await.unwrap();
    assert_eq!(minimum(), 800);
    // The most that was ever stored counts.
    faulty.pretend_bytes(1 << 30);
    world.database.maintain().await.unwrap();
    assert_eq!(minimum(), 800);
}

/// A query is charged to the partitions it has read from, each for its part.
#[tokio::test]
async fn a_query_is_charged_to_the_partitions_it_read() {
    let world = world(4).await;
    container(&world, "items", Some(Throughput::Manual(40_000))).await;
    for id in 0..100 {
        write(&world, "items", "hot", id).await.unwrap();
    }
    world.env.advance_seconds(10);
    let request = orrery_db::QueryRequest {
        text: "SELECT * FROM c".to_owned(),
        parameters: Vec::new(),
        resume_filter: None,
    };
    let options = orrery_db::QueryOptions { cross_partition: true, ..orrery_db::QueryOptions::default() };
    let mut receipt = Receipt::default();
    world.database.query_items(&mut receipt, (DATABASE, "items"), &options, &request).await.unwrap();
    world.database.settle(&receipt);
    world.env.advance_seconds(1);
    let view = world.database.container_view(DATABASE, "items").await.unwrap();
    let used: Vec<f64> = view.partitions.iter().map(|one| one.heat.last_second.as_f64()).collect();
    let total: f64 = used.iter().sum();
    assert!((total - receipt.charge.as_f64()).abs() < 0.001, "{used:?} of {}", receipt.charge);
    let most = used.iter().copied().fold(0.0, f64::max);
    assert!(most > total * 0.8, "{used:?}");
    let hot = view.partitions.iter().find(|one| one.items == 100).unwrap();
    assert_eq!((hot.largest[0].key.as_str(), hot.largest[0].items), (r#"["hot"]"#, 100));
    assert_eq!(hot.request_units_per_second, 10_000);
}

/// Metadata has a budget of its own, 240 units a second for the whole account: an overload of it gets that over a
/// minute, once what was kept for a burst is spent, and items do not notice.
#[tokio::test]
async fn metadata_has_its_own_budget() {
    let world = world(1).await;
    container(&world, "items", Some(Throughput::Manual(400))).await;
    let overload = async |seconds: i64| {
        let mut delivered = 0.0;
        for _ in 0..seconds {
            loop {
                let mut receipt = Receipt::default();
                if let Err(refused) = world.database.admit_metadata(&mut receipt) {
                    let ErrorKind::TooManyRequests { retry_after_ms } = refused.kind else {
                        panic!("{refused}")
                    };
                    assert!((1..=1000).contains(&retry_after_ms), "{retry_after_ms}");
                    assert!(refused.message.contains("metadata"), "{refused}");
                    break;
                }
                world.database.read_container(&mut receipt, DATABASE, "items").unwrap();
                world.database.settle(&receipt);
                delivered += receipt.charge.as_f64();
            }
            world.env.advance_seconds(1);
        }
        delivered
    };
    let burst = overload(60).await;
    assert!(burst > 70_000.0, "{burst}");
    let delivered = overload(60).await;
    assert!((60.0 * 240.0 * 0.95..=60.0 * 240.0 * 1.05).contains(&delivered), "{delivered}");
    let mut refused = Receipt::default();
    while world.database.admit_metadata(&mut refused).is_ok() {
        refused.charge = orrery_model::Charge::from_hundredths(10_000);
        world.database.settle(&refused);
    }
    write(&world, "items", "a", 1).await.unwrap();
    let event = &world.database.throttle_events()[0];
    assert_eq!((event.cause, event.container.as_deref()), (ThrottleCause::Metadata, None));
}

/// The figures are those of the service: <https://learn.microsoft.com/azure/cosmos-db/concepts-limits>
#[tokio::test]
async fn account_limits_apply_where_they_are_asked_for() {
    for (change, allowed, seconds) in [
        (AccountChange::CreateDatabase, 100, 60),
        (AccountChange::CreateContainer, 100, 60),
        (AccountChange::ReplaceOffer, 25, 300),
    ] {
        let unlimited = World::memory().await;
        for _ in 0..1000 {
            unlimited.database.admit_change(change).unwrap();
        }
        let scaled = Options { account_limits_scale: Some(0.2), ..quiet_options() };
        for (options, allowed) in
            [(Options { account_limits_scale: Some(1.0), ..quiet_options() }, allowed), (scaled, allowed / 5)]
        {
            let world = World::open(Engine::Memory, options).await;
            world.database.admit_change(change).unwrap();
            world.env.advance_seconds(10);
            for _ in 1..allowed {
                world.database.admit_change(change).unwrap();
            }
            let refused = world.database.admit_change(change).unwrap_err();
            let delay = u32::try_from(seconds - 10).unwrap() * 1000;
            assert_eq!(refused.kind, ErrorKind::TooManyRequests { retry_after_ms: delay });
            assert!(refused.message.contains(&format!("allows {allowed} ")), "{refused}");
            assert!(refused.message.contains(&format!("in {seconds} seconds")), "{refused}");
            let event = &world.database.throttle_events()[0];
            assert_eq!((event.cause, event.retry_after_ms), (ThrottleCause::AccountLimit, delay));
            // The delay is true: one request leaves the window, and only one.
            world.env.advance_seconds(seconds - 10);
            world.database.admit_change(change).unwrap();
            world.database.admit_change(change).unwrap_err();
        }
    }
}
