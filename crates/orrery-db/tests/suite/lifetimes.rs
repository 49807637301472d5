//! Time to live: when items vanish, and that they really go.

use orrery_db::{Options, Receipt};
use orrery_model::Charge;
use orrery_model::offer::Throughput;

use crate::common::raw::{self, EXPIRY, FEED, ITEM};
use crate::common::{
    BY_PK, CONTAINER, DATABASE, ENGINES, Engine, PLACE, World, check, everything, ids, key, quiet_options,
    with_key,
};

/// The container's default, the item's own, and whether it is gone after so many seconds.
#[tokio::test]
async fn items_expire_when_their_time_is_up() {
    let off = "";
    let forever = r#","defaultTtl":-1"#;
    let ten = r#","defaultTtl":10"#;
    let cases: [(&str, &str, i64, bool); 20] = [
        (off, "", 1_000_000_000, false),
        (off, r#","ttl":1"#, 1_000_000_000, false),
        (off, r#","ttl":-1"#, 1_000_000_000, false),
        (forever, "", 1_000_000_000, false),
        (forever, r#","ttl":-1"#, 1_000_000_000, false),
        (forever, r#","ttl":5"#, 4, false),
        (forever, r#","ttl":5"#, 5, true),
        (forever, r#","ttl":5"#, 6, true),
        (forever, r#","ttl":2147483647"#, 2_147_483_646, false),
        (forever, r#","ttl":2147483647"#, 2_147_483_647, true),
        (forever, r#","ttl":5.0"#, 5, true),
        (ten, "", 9, false),
        (ten, "", 10, true),
        (ten, r#","ttl":5"#, 4, false),
        (ten, r#","ttl":5"#, 5, true),
        (ten, r#","ttl":20"#, 10, false),
        (ten, r#","ttl":20"#, 19, false),
        (ten, r#","ttl":20"#, 20, true),
        (ten, r#","ttl":-1"#, 10, false),
        (ten, r#","ttl":-1"#, 1_000_000_000, false),
    ];
    for (default, own, seconds, gone) in cases {
        let (read, feed, rows, left) =
            if gone { ("NotFound", "", "[]", 0) } else { ("read", "1", r#"["1"]"#, 1) };
        let again = if gone { "created" } else { "Conflict" };
        let steps = format!(
            r#"
            create ["a"] {{"id":"1","pk":"a"{own}}}        => created
            clock {seconds}
            read ["a"] 1                                   => {read}
            feed -                                         => {feed}
            query - SELECT VALUE c.id FROM c               => {rows}
            batch ["a"] [{{"operationType":"Read","id":"1"}}] => {batch}
            restart
            read ["a"] 1                                   => {read}
            # It still lies in the store until it is swept.
            raw 10                                         => 1
            maintain
            raw 10                                         => {left}
            usage                                          => {usage}
            read ["a"] 1                                   => {read}
            create ["a"] {{"id":"1","pk":"a"}}             => {again}
        "#,
            batch = if gone { "NotFound" } else { "200" },
            usage =
                if gone { "0 items 0 bytes".to_owned() } else { format!("1 items {} bytes", 19 + own.len()) },
        );
        check(&format!("{BY_PK}{default}"), &steps).await;
    }
}

#[tokio::test]
async fn any_write_restarts_the_time_to_live() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a"}                       => created
        clock 9
        replace ["a"] 1 {"id":"1","pk":"a"}                    => replaced
        clock 9
        patch ["a"] 1 [{"op":"set","path":"/n","value":1}]     => replaced
        clock 9
        upsert ["a"] {"id":"1","pk":"a","ttl":3}               => replaced
        clock 2
        maintain
        read ["a"] 1                                           => read
        patch ["a"] 1 [{"op":"remove","path":"/ttl"}]          => replaced
        clock 9
        maintain
        read ["a"] 1                                           => read
        patch ["a"] 1 [{"op":"set","path":"/ttl","value":-1}]  => replaced
        clock 1000
        maintain
        read ["a"] 1                                           => read
        patch ["a"] 1 [{"op":"set","path":"/ttl","value":2}]   => replaced
        clock 2
        # Writes meet the expired item as if it were not there.
        replace ["a"] 1 {"id":"1","pk":"a"}                    => NotFound
        patch ["a"] 1 [{"op":"set","path":"/n","value":1}]     => NotFound
        delete ["a"] 1                                         => NotFound
        upsert ["a"] {"id":"1","pk":"a"} if-match="x"          => created
        usage                                                  => 1 items 19 bytes
        raw 50                                                 => 0
    "#;
    check(&format!(r#"{BY_PK},"defaultTtl":10"#), steps).await;
}

#[tokio::test]
async fn invalid_ttl_values_are_rejected() {
    let step = |ttl: &str| {
        format!(r#"create ["a"] {{"id":"1","pk":"a","ttl":{ttl}}} => BadRequest "The input ttl""#)
    };
    let values = ["0", "-2", "1.5", "\"5\"", "null", "true", "2147483648", "[]"];
    let steps = values.map(step).join("\n");
    // Whether or not the container lets items expire.
    check(BY_PK, &steps).await;
    check(&format!(r#"{BY_PK},"defaultTtl":-1"#), &steps).await;
}

#[tokio::test]
async fn a_changed_default_applies_to_existing_items() {
    let steps = format!(
        r#"
        create ["a"] {{"id":"1","pk":"a"}}            => created
        create ["a"] {{"id":"2","pk":"a","ttl":50}}   => created
        create ["a"] {{"id":"3","pk":"a","ttl":-1}}   => created
        clock 60
        maintain
        feed -                                        => 1 2 3
        # Switched on, the item's own time counts from its last write.
        define {BY_PK},"defaultTtl":-1
        feed -                                        => 1 3
        define {BY_PK},"defaultTtl":100
        feed -                                        => 1 3
        maintain
        raw 10                                        => 2
        feed -                                        => 1 3
        clock 40
        feed -                                        => 3
        maintain
        raw 10                                        => 1
        define {BY_PK}
        feed -                                        => 3
        # A longer default saves what the sweeper has passed over.
        define {BY_PK},"defaultTtl":10
        create ["a"] {{"id":"4","pk":"a"}}            => created
        clock 9
        maintain
        define {BY_PK},"defaultTtl":1000
        clock 10
        maintain
        feed -                                        => 3 4
        define {BY_PK},"defaultTtl":5
        maintain
        raw 10                                        => 1
    "#
    );
    check(BY_PK, &steps).await;
}

#[tokio::test]
async fn the_sweeper_removes_all_traces_of_many_items() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 2).await;
        world.create_container(&format!(r#"{BY_PK},"defaultTtl":100"#)).await;
        // More than the sweeper looks at together; some live for ever, some shorter, some longer.
        for n in 0..400 {
            let own = match n % 8 {
                0 => r#","ttl":-1"#,
                1 => r#","ttl":1000"#,
                2 => r#","ttl":50"#,
                _ => "",
            };
            world.create(&format!(r#"{{"id":"{n}","pk":{}{own}}}"#, n % 7)).await;
            if n % 100 == 99 {
                world.env.advance_seconds(1);
            }
        }
        let left = async |seconds: i64| {
            world.env.advance_seconds(seconds);
            let seen = world.feed(&everything(), 1000).await.unwrap().len();
            world.database.maintain().await.unwrap();
            raw::check_consistency(&world).await.unwrap();
            let stored = raw::count(&world, ITEM).await;
            assert_eq!(seen, stored);
            assert_eq!(world.feed(&everything(), 1000).await.unwrap().len(), stored);
            stored
        };
        assert_eq!(left(0).await, 400);
        assert_eq!(left(50).await, 350);
        assert_eq!(left(50).await, 100);
        // Again, now from where the sweeper has stopped.
        world.create(r#"{"id":"late","pk":1}"#).await;
        world.create(r#"{"id":"late","pk":2,"ttl":1}"#).await;
        assert_eq!(left(1).await, 101);
        assert_eq!(left(99).await, 100);
        assert_eq!(left(1000).await, 50);
        let items = world.feed(&everything(), 1000).await.unwrap();
        assert!(ids(&items).iter().all(|id| id.parse::<u32>().unwrap() % 8 == 0));
        assert_eq!(raw::count(&world, EXPIRY).await, 0);
        assert_eq!(raw::count(&world, FEED).await, 50);
    }
}

#[tokio::test]
async fn a_batch_with_different_lifetimes_is_swept_item_by_item() {
    let steps = r#"
        batch ["a"] [{"operationType":"Create","resourceBody":{"id":"1","pk":"a","ttl":-1}},{"operationType":"Create","resourceBody":{"id":"2","pk":"a"}},{"operationType":"Create","resourceBody":{"id":"3","pk":"a","ttl":20}},{"operationType":"Create","resourceBody":{"id":"4","pk":"a","ttl":-1}}] => 201 201 201 201
        create [-0.0] {"id":"5","pk":-0.0}                          => created
        patch [-0.0] 5 [{"op":"set","path":"/n","value":1}]         => replaced
        clock 10
        maintain
        feed -                                                      => 1 3 4
        raw 10                                                      => 3
        clock 10
        maintain
        raw 10                                                      => 2
    "#;
    check(&format!(r#"{BY_PK},"defaultTtl":10"#), steps).await;
}

#[tokio::test]
async fn merged_partitions_are_swept_completely() {
    // Both partitions have counted from one: their first items have the same number and different ages.
    let world = World::with_partitions(crate::common::Engine::Memory, 2).await;
    world.create_container(&format!(r#"{BY_PK},"defaultTtl":10"#)).await;
    let catalog = world.database.catalog();
    let container = std::sync::Arc::clone(catalog.container(DATABASE, CONTAINER).unwrap());
    let home = |n: u32| {
        let effective = container.definition.partition_key.effective_key(&key(&format!("[{n}]")));
        container.partition_of(&effective).range_id
    };
    let key_of = |range_id: u32| (0..1000).find(|n| home(*n) == range_id).unwrap();
    world.create(&format!(r#"{{"id":"for ever","pk":{},"ttl":-1}}"#, key_of(0))).await;
    world.env.advance_seconds(5);
    world.create(&format!(r#"{{"id":"for now","pk":{}}}"#, key_of(1))).await;
    world.database.merge_partitions(container.rid, [0, 1]).await.unwrap();
    for (seconds, left) in [(5, 2), (4, 2), (1, 1)] {
        world.env.advance_seconds(seconds);
        world.database.maintain().await.unwrap();
        assert_eq!(raw::count(&world, ITEM).await, left);
    }
}

/// One of two merged partitions was written to long ago and had come far, the other has begun lately: what is old
/// goes when its time is over, though younger items with lower numbers stay.
#[tokio::test]
async fn merged_partitions_are_swept_in_time() {
    for young in [0, 1] {
        let world = World::with_partitions(crate::common::Engine::Memory, 2).await;
        world.create_container(&format!(r#"{BY_PK},"defaultTtl":10"#)).await;
        let catalog = world.database.catalog();
        let container = std::sync::Arc::clone(catalog.container(DATABASE, CONTAINER).unwrap());
        let key_of = |range_id: u32| {
            let home = |n: &u32| {
                let effective = container.definition.partition_key.effective_key(&key(&format!("[{n}]")));
                container.partition_of(&effective).range_id
            };
            (0..1000).find(|n| home(n) == range_id).unwrap()
        };
        for n in 0..300 {
            world.create(&format!(r#"{{"id":"old {n}","pk":{}}}"#, key_of(1 - young))).await;
        }
        world.env.advance_seconds(5);
        world.create(&format!(r#"{{"id":"young","pk":{}}}"#, key_of(young))).await;
        world.database.merge_partitions(container.rid, [0, 1]).await.unwrap();
        world.create(&format!(r#"{{"id":"new","pk":{}}}"#, key_of(young))).await;
        for (seconds, left) in [(4, 302), (1, 2), (4, 2), (1, 0)] {
            world.env.advance_seconds(seconds);
            world.database.maintain().await.unwrap();
            assert_eq!(raw::count(&world, ITEM).await, left);
        }
        raw::check_consistency(&world).await.unwrap();
    }
}

/// Expired items are removed with request units that requests have left over, and wait while there are none:
/// <https://learn.microsoft.com/azure/cosmos-db/nosql/time-to-live>
#[tokio::test]
async fn expired_items_are_removed_with_what_is_left_over() {
    let options = Options { throttle: true, ..quiet_options() };
    let world = World::open(Engine::Memory, options).await;
    drop(
        world
            .database
            .create_database(&mut Receipt::default(), format!(r#"{{"id":"{DATABASE}"}}"#).as_bytes(), None)
            .await,
    );
    let members = format!(r#"{BY_PK},"defaultTtl":10"#);
    world.create_named(CONTAINER, &members, Some(Throughput::Manual(400))).await.unwrap();
    for n in 0..300 {
        world.create(&format!(r#"{{"id":"{n}","pk":"a"}}"#)).await;
    }
    let busy = async |seconds: i64| {
        for _ in 0..seconds {
            let mut receipt = Receipt::default();
            let (place, options) = ((PLACE.0, PLACE.1, "0"), with_key(r#"["a"]"#));
            drop(world.database.read_item(&mut receipt, place, &options).await);
            assert!(!receipt.served.is_empty(), "the request is not throttled");
            receipt.charge = Charge::from_hundredths(40_000);
            world.database.settle(&receipt);
            world.env.advance_seconds(1);
        }
    };
    let stored = async || {
        world.database.maintain().await.unwrap();
        assert!(world.feed(&everything(), 1000).await.unwrap().is_empty(), "nobody sees them");
        raw::count(&world, ITEM).await
    };
    busy(12).await;
    assert_eq!(stored().await, 300, "requests have used everything");
    // One second is left over, and the next one's requests do not notice that it was used.
    world.env.advance_seconds(1);
    let left = stored().await;
    assert!((200..260).contains(&left), "{left}");
    busy(5).await;
    assert_eq!(stored().await, left);
    world.env.advance_seconds(10);
    assert_eq!(stored().await, 0);
}
