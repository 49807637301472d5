//! Deleting all items of a key: gone at once, removed in the background, whatever happens in between.

use std::sync::Arc;

use orrery_db::{FeedScope, Receipt};
use orrery_model::ErrorKind;
use orrery_storage::{Memory, PartitionStore};

use crate::common::faulty::Faulty;
use crate::common::raw::{self, ITEM, PURGE, STATISTICS};
use crate::common::{
    BY_PK, CONTAINER, DATABASE, ENGINES, Engine, PLACE, World, check, everything, key, quiet_options,
    with_key,
};

#[tokio::test]
async fn items_of_a_purged_key_are_invisible_at_once() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a"}                   => created as first
        create ["a"] {"id":"2","pk":"a"}                   => created
        create ["b"] {"id":"1","pk":"b"}                   => created
        create [{}] {"id":"3"}                             => created
        purge ["a"]
        read ["a"] 1                                       => NotFound
        feed -                                             => 1 3
        feed ["a"]                                         =>
        query ["a"] SELECT VALUE c.id FROM c               => []
        query - SELECT VALUE COUNT(1) FROM c               => [2]
        query - SELECT VALUE COUNT(1) FROM c WHERE c.id > "" => [2]
        replace ["a"] 1 {"id":"1","pk":"a"}                => NotFound
        patch ["a"] 1 [{"op":"set","path":"/n","value":1}] => NotFound
        delete ["a"] 2 if-match=$first                     => NotFound
        batch ["a"] [{"operationType":"Read","id":"1"}]    => NotFound
        usage                                              => 2 items 29 bytes
        # The same ids can be used again, and these items stay.
        create ["a"] {"id":"1","pk":"a","n":1}             => created
        upsert ["a"] {"id":"2","pk":"a","n":2}             => created
        maintain
        feed ["a"]                                         => 1 2
        read ["a"] 1                                       => read {"id":"1","pk":"a","n":1}
        raw 10                                             => 4
        raw 70                                             => 0
        restart
        feed ["a"]                                         => 1 2
        # Again, and of the key that is none.
        purge ["a"]
        purge []
        maintain
        feed -                                             => 1
        raw 10                                             => 1
        purge ["nothing"]
        maintain
        feed -                                             => 1
        purge -                                            => BadRequest "PartitionKey value must be supplied"
        purge ["a","b"]                                    => PartitionKeyMismatch
    "#;
    check(BY_PK, steps).await;
}

#[tokio::test]
async fn purging_requires_a_full_hierarchical_key() {
    let members = r#""partitionKey":{"paths":["/t","/u"],"kind":"MultiHash","version":2}"#;
    let steps = r#"
        create ["a","b"] {"id":"1","t":"a","u":"b"} => created
        create ["a","c"] {"id":"1","t":"a","u":"c"} => created
        create ["a",{}] {"id":"1","t":"a"}          => created
        purge ["a"]                                 => PartitionKeyMismatch
        purge ["a","b"]
        maintain
        feed ["a"]                                  => 1 1
        purge ["a",{}]
        maintain
        feed ["a"]                                  => 1
        read ["a","c"] 1                            => read
    "#;
    check(members, steps).await;
}

#[tokio::test]
async fn many_items_are_removed_in_the_background() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 2).await;
        world.create_container(BY_PK).await;
        for n in 0..230 {
            world
                .create(&format!(r#"{{"id":"{n}","pk":"{}"}}"#, if n % 3 == 0 { "other" } else { "a" }))
                .await;
        }
        let mut receipt = Receipt::default();
        world.database.delete_by_partition_key(&mut receipt, PLACE, &with_key(r#"["a"]"#)).await.unwrap();
        assert_eq!(receipt.served.len(), 1);
        assert_eq!(world.feed(&everything(), 1000).await.unwrap().len(), 77);
        world.database.maintain().await.unwrap();
        raw::check_consistency(&world).await.unwrap();
        assert_eq!(raw::count(&world, ITEM).await, 77);
        assert_eq!(raw::count(&world, PURGE).await, 0);
        assert_eq!(raw::count(&world, STATISTICS).await, 2);
    }
}

/// A container gets 400 units a second, of which removing may use 40: six or seven items.
#[tokio::test]
async fn removal_uses_a_tenth_of_the_throughput() {
    let options = orrery_db::Options { throttle: true, partitions_at_creation: Some(1), ..quiet_options() };
    let world = World::open(Engine::Memory, options).await;
    world.create_container(BY_PK).await;
    for n in 0..200 {
        world.create(&format!(r#"{{"id":"{n}","pk":"a"}}"#)).await;
    }
    world.delete_key("a").await;
    assert!(world.feed(&everything(), 10).await.unwrap().is_empty());
    let mut seconds = 0;
    while raw::count(&world, PURGE).await > 0 {
        let before = raw::count(&world, ITEM).await;
        world.database.maintain().await.unwrap();
        let removed = before - raw::count(&world, ITEM).await;
        assert!(removed <= 10, "{removed} in one second");
        assert!(seconds < 60, "it does not come to an end");
        world.env.advance_seconds(1);
        seconds += 1;
    }
    assert!(seconds >= 20, "{seconds}");
    assert_eq!(raw::count(&world, ITEM).await, 0);
    raw::check_consistency(&world).await.unwrap();

    // Requests that use everything leave nothing to it.
    for n in 0..10 {
        world.create(&format!(r#"{{"id":"{n}","pk":"b"}}"#)).await;
    }
    world.delete_key("b").await;
    let mut refused = false;
    for n in 0..100_000 {
        let body = bytes::Bytes::from(format!(r#"{{"id":"{n}","pk":"c"}}"#));
        let mut receipt = Receipt::default();
        let written = world.database.upsert_item(&mut receipt, PLACE, &with_key(r#"["c"]"#), &body).await;
        world.database.settle(&receipt);
        if written.is_err() {
            refused = true;
            break;
        }
    }
    assert!(refused);
    let before = raw::count(&world, ITEM).await;
    world.database.maintain().await.unwrap();
    assert_eq!(raw::count(&world, ITEM).await, before);
}

#[tokio::test]
async fn a_stop_during_a_purge_is_invisible_to_readers() {
    // The store dies after so many commits of the removal; whoever opens it next goes on.
    for commits in 1..8 {
        let memory: Arc<dyn PartitionStore> = Arc::new(Memory::new());
        let faulty = Arc::new(Faulty::new(Arc::clone(&memory)));
        let world = World::on(faulty.clone(), quiet_options()).await;
        world.create_container(BY_PK).await;
        for n in 0..120 {
            world.create(&format!(r#"{{"id":"{n}","pk":"a"}}"#)).await;
        }
        world.create(r#"{"id":"1","pk":"b"}"#).await;
        faulty.fail_after_commits(commits);
        let mut receipt = Receipt::default();
        world.database.delete_by_partition_key(&mut receipt, PLACE, &with_key(r#"["a"]"#)).await.unwrap();
        drop(world.database.maintain().await);
        drop(world);

        let world = World::on(Arc::clone(&memory), quiet_options()).await;
        let gone = FeedScope { partition_key: Some(key(r#"["a"]"#)), ..FeedScope::default() };
        assert!(world.feed(&gone, 10).await.unwrap().is_empty());
        let read =
            world.database.read_item(&mut receipt, (DATABASE, CONTAINER, "77"), &with_key(r#"["a"]"#)).await;
        assert_eq!(read.unwrap_err().kind, ErrorKind::NotFound);
        assert_eq!(world.usage().await.0, 1);
        world.create(r#"{"id":"77","pk":"a","new":true}"#).await;
        world.database.maintain().await.unwrap();
        raw::check_consistency(&world).await.unwrap();
        assert_eq!(raw::count(&world, ITEM).await, 2);
        assert_eq!(raw::count(&world, PURGE).await, 0);
        assert_eq!(world.feed(&gone, 10).await.unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_may_run_concurrently_with_purges() {
    for engine in ENGINES {
        let world = World::open(engine, quiet_options()).await;
        world.create_container(BY_PK).await;
        let writer = {
            let database = Arc::clone(&world.database);
            tokio::spawn(async move {
                let mut receipt = Receipt::default();
                for n in 0..300 {
                    let body = bytes::Bytes::from(format!(r#"{{"id":"{}","pk":"a","n":{n}}}"#, n % 40));
                    database.upsert_item(&mut receipt, PLACE, &with_key(r#"["a"]"#), &body).await.unwrap();
                }
            })
        };
        for _ in 0..20 {
            let mut receipt = Receipt::default();
            world.database.delete_by_partition_key(&mut receipt, PLACE, &with_key(r#"["a"]"#)).await.unwrap();
            tokio::task::yield_now().await;
        }
        writer.await.unwrap();
        world.database.maintain().await.unwrap();
        raw::check_consistency(&world).await.unwrap();
        let seen = world.feed(&everything(), 1000).await.unwrap().len();
        assert_eq!(seen, raw::count(&world, ITEM).await);
        let mut receipt = Receipt::default();
        world.database.delete_by_partition_key(&mut receipt, PLACE, &with_key(r#"["a"]"#)).await.unwrap();
        world.database.maintain().await.unwrap();
        assert_eq!(world.usage().await, (0, 0));
        assert_eq!(raw::count(&world, ITEM).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purged_items_are_never_visible_again() {
    // The background removes the items while they are being read: a reader that has taken them out of the
    // store just before must not show them.
    for engine in ENGINES {
        let world = World::open(engine, quiet_options()).await;
        world.create_container(BY_PK).await;
        for round in 0..10 {
            for n in 0..40 {
                world.create(&format!(r#"{{"id":"{n}","pk":"a","round":{round}}}"#)).await;
            }
            let mut receipt = Receipt::default();
            world.database.delete_by_partition_key(&mut receipt, PLACE, &with_key(r#"["a"]"#)).await.unwrap();
            for _ in 0..20 {
                assert_eq!(world.feed(&everything(), 100).await.unwrap(), []);
                let place = (DATABASE, CONTAINER, "39");
                let read = world.database.read_item(&mut receipt, place, &with_key(r#"["a"]"#)).await;
                assert_eq!(read.unwrap_err().kind, ErrorKind::NotFound);
            }
        }
    }
}
