//! The counters of logical partitions: exact after every operation, whoever writes at the same time.

use std::sync::Arc;

use bytes::Bytes;
use orrery_db::{BatchKind, BatchOperation, Health, ItemOptions, Receipt};
use orrery_model::ErrorKind;

use crate::common::raw::{self, STATISTICS};
use crate::common::{BY_PK, CONTAINER, DATABASE, ENGINES, PLACE, World, check, quiet_options, with_key};

#[tokio::test]
async fn every_operation_is_counted() {
    let steps = r#"
        usage                                               => 0 items 0 bytes
        create ["a"] {"id":"1","pk":"a"}                    => created
        usage                                               => 1 items 19 bytes
        create ["a"] {"id":"1","pk":"a"}                    => Conflict
        usage                                               => 1 items 19 bytes
        create ["b"] {"id":"1","pk":"b","n":1}              => created
        usage                                               => 2 items 44 bytes
        replace ["a"] 1 {"id":"1","pk":"a","n":10}          => replaced
        usage                                               => 2 items 51 bytes
        replace ["a"] 1 {"id":"1","pk":"a"} if-match="x"    => PreconditionFailed
        usage                                               => 2 items 51 bytes
        patch ["a"] 1 [{"op":"remove","path":"/n"}]         => replaced
        usage                                               => 2 items 44 bytes
        upsert ["a"] {"id":"2","pk":"a"}                    => created
        usage                                               => 3 items 63 bytes
        # System properties and blanks around the item are not counted.
        upsert ["a"] {"id":"2","pk":"a","_ts":1,"_etag":"x"} => replaced
        usage                                               => 3 items 63 bytes
        delete ["a"] 1                                      => deleted
        usage                                               => 2 items 44 bytes
        batch ["a"] [{"operationType":"Create","resourceBody":{"id":"3","pk":"a"}},{"operationType":"Delete","id":"2"},{"operationType":"Upsert","resourceBody":{"id":"3","pk":"a","n":1}}] => 201 204 200
        usage                                               => 2 items 50 bytes
        batch ["a"] [{"operationType":"Create","resourceBody":{"id":"4","pk":"a"}},{"operationType":"Delete","id":"9"}] => 424 NotFound
        usage                                               => 2 items 50 bytes
        restart
        usage                                               => 2 items 50 bytes
        purge ["a"]
        usage                                               => 1 items 25 bytes
        delete ["b"] 1                                      => deleted
        usage                                               => 0 items 0 bytes
    "#;
    check(BY_PK, steps).await;
}

#[tokio::test]
async fn expired_items_count_until_they_are_swept_or_overwritten() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a","ttl":5}  => created
        create ["a"] {"id":"2","pk":"a","ttl":5}  => created
        clock 5
        usage                                     => 2 items 54 bytes
        create ["a"] {"id":"1","pk":"a"}          => created
        usage                                     => 2 items 46 bytes
        maintain
        usage                                     => 1 items 19 bytes
    "#;
    check(&format!(r#"{BY_PK},"defaultTtl":-1"#), steps).await;
}

#[tokio::test]
async fn counters_are_kept_per_partition() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 3).await;
        world.create_container(BY_PK).await;
        for n in 0..30 {
            world.create(&format!(r#"{{"id":"{n:02}","pk":"{n:02}"}}"#)).await;
        }
        let usages = world.database.container_usage(DATABASE, CONTAINER).await.unwrap();
        assert_eq!(usages.iter().map(|(range_id, _)| *range_id).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(usages.iter().all(|(_, usage)| usage.items > 0 && usage.bytes == 21 * usage.items));
        assert_eq!(world.usage().await, (30, 630));
        assert_eq!(raw::count(&world, STATISTICS).await, 30);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_keep_counters_exact() {
    for engine in ENGINES {
        let world = World::open(engine, quiet_options()).await;
        world.create_container(BY_PK).await;
        let tasks = (0..8_usize).map(|task| {
            let database = Arc::clone(&world.database);
            tokio::spawn(async move {
                for step in 0..30_usize {
                    // All tasks use the same few ids of two keys, so that they get in each other's way.
                    let (pk, id) = (step % 2, (task * 7 + step) % 5);
                    let body =
                        Bytes::from(format!(r#"{{"id":"{id}","pk":"{pk}","n":"{}"}}"#, "x".repeat(step)));
                    let options = with_key(&format!(r#"["{pk}"]"#));
                    let mut receipt = Receipt::default();
                    match (task + step) % 4 {
                        0 => drop(database.create_item(&mut receipt, PLACE, &options, &body).await),
                        1 => drop(database.upsert_item(&mut receipt, PLACE, &options, &body).await),
                        2 => {
                            let at = (DATABASE, CONTAINER, id.to_string());
                            drop(database.delete_item(&mut receipt, (at.0, at.1, &at.2), &options).await);
                        }
                        _ => {
                            let operation = |kind| BatchOperation {
                                kind,
                                id: Some(id.to_string()),
                                body: Some(body.clone()),
                                if_match: None,
                                if_none_match: None,
                                partition_key: None,
                            };
                            let operations = [operation(BatchKind::Upsert), operation(BatchKind::Replace)];
                            drop(database.execute_batch(&mut receipt, PLACE, &options, &operations).await);
                        }
                    }
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        raw::check_consistency(&world).await.unwrap();
        assert!(world.usage().await.0 > 0);
    }
}

/// Counters below what is stored, as a lost write would leave them.
#[tokio::test]
async fn a_counter_below_zero_takes_writes_of_the_partition_offline() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 2).await;
        world.create_container(BY_PK).await;
        for pk in 0..20 {
            world.create(&format!(r#"{{"id":"1","pk":"{pk}"}}"#)).await;
        }
        let counted = raw::counted_keys(&world).await;
        let [broken, sound] = &counted[..] else { panic!("{counted:?}") };
        let (pk, other) = (&broken[0], &broken[1]);
        raw::lose_counters(&world, pk).await;

        let create = async |pk: &str, id: &str| {
            let body = Bytes::from(format!(r#"{{"id":"{id}","pk":"{pk}"}}"#));
            world.database.create_item(&mut Receipt::default(), PLACE, &ItemOptions::default(), &body).await
        };
        let delete = async |world: &World, pk: &str| {
            let options = with_key(&format!(r#"["{pk}"]"#));
            world.database.delete_item(&mut Receipt::default(), (DATABASE, CONTAINER, "1"), &options).await
        };
        create(other, "2").await.unwrap();
        assert_eq!(delete(&world, pk).await.unwrap_err().kind, ErrorKind::Unavailable);
        // Other logical partitions of the same partition share its fate; other partitions and reads do not.
        let refused = create(other, "3").await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Unavailable);
        assert!(refused.message.contains("inconsistent"), "{refused}");
        create(&sound[0], "2").await.unwrap();
        let options = with_key(&format!(r#"["{pk}"]"#));
        let at = (DATABASE, CONTAINER, "1");
        world.database.read_item(&mut Receipt::default(), at, &options).await.unwrap();
        let health = world.database.store_health();
        assert!(matches!(&health, Health::Impaired(reason) if reason.contains("offline")), "{health:?}");
        let container = world.database.catalog().container(DATABASE, CONTAINER).cloned().unwrap();
        let split = world.database.split_partition(container.rid, container.partitions[0].range_id).await;
        assert_eq!(split.unwrap_err().kind, ErrorKind::Unavailable);

        // A restart lifts it until the fault is found again.
        let world = world.restart().await;
        assert_eq!(world.database.store_health(), Health::Ready);
        world.create(&format!(r#"{{"id":"3","pk":"{other}"}}"#)).await;
        assert_eq!(delete(&world, pk).await.unwrap_err().kind, ErrorKind::Unavailable);
    }
}
