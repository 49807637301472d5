//! Queries that the index answers alone: what they give is what a scan gives, and no item is read.

use orrery_db::{FeedScope, PageRequest, QueryMetrics, QueryOptions, Receipt};

use crate::common::{BY_PK, CONTAINER, ENGINES, PLACE, World, everything, with_key};
use crate::run::{Way, canonical, request, rows};

/// The first page of a query over everything.
async fn metrics(world: &World, text: &str) -> QueryMetrics {
    let page = PageRequest { items_max: Some(-1), continuation: None };
    let options = QueryOptions { cross_partition: true, page, ..QueryOptions::default() };
    let page = world.database.query_items(&mut Receipt::default(), PLACE, &options, &request(text)).await;
    page.unwrap_or_else(|error| panic!("{text}: {error}")).metrics
}

/// The rows, the same from the index and from a scan, whatever the size of a page.
async fn checked(world: &World, text: &str, scope: &FeedScope) -> Vec<String> {
    let mut found = Vec::new();
    for (page_size, without_index) in [(-1, true), (-1, false), (1, false), (3, false), (3, true)] {
        let way = Way { scope: scope.clone(), page_size, without_index };
        let rows = rows(world, CONTAINER, &request(text), &way).await;
        let mut texts: Vec<String> =
            rows.unwrap_or_else(|error| panic!("{text}: {error}")).iter().map(canonical).collect();
        // Groups come in order, distinct values in any.
        if text.contains("DISTINCT") {
            texts.sort();
        }
        found.push(texts);
    }
    for other in &found[1..] {
        assert_eq!(*other, found[0], "{text}");
    }
    found.swap_remove(0)
}

/// Values of every type, several of them missing, and the count of items without any.
async fn filled(engine: crate::common::Engine, members: &str) -> World {
    let world = World::with_partitions(engine, 3).await;
    world.create_container(members).await;
    let values = ["1", "2.5", "-7", r#""a""#, r#""a\u0000b""#, "true", "false", "null", "0", r#""""#];
    for number in 0..120_usize {
        let value = values.get(number % 12).map_or_else(String::new, |value| format!(r#","v":{value}"#));
        let part = if number % 5 == 0 { String::new() } else { format!(r#","o":{{"p":{}}}"#, number % 4) };
        let body = format!(r#"{{"id":"{number}","pk":"k{}","n":{}{value}{part}}}"#, number % 17, number % 9);
        world.create(&body).await;
    }
    world
}

const QUERIES: [&str; 20] = [
    "SELECT c.v AS v, COUNT(1) AS n FROM c GROUP BY c.v",
    "SELECT c.v, COUNT(c.v) AS n, MIN(c.v) AS low, MAX(c.v) AS high FROM c GROUP BY c.v",
    "SELECT VALUE {\"v\": c.v, \"n\": COUNT(1)} FROM c GROUP BY c.v",
    "SELECT IS_STRING(c.v) AS s, COUNT(1) AS n FROM c GROUP BY IS_STRING(c.v)",
    "SELECT c.o.p, COUNT(1) AS n FROM c GROUP BY c.o.p",
    "SELECT COUNT(1) AS n, SUM(c.n) AS s, AVG(c.n) AS a, MIN(c.n) AS low, MAX(c.n) AS high FROM c",
    "SELECT VALUE SUM(c.n) FROM c WHERE c.n > 3",
    "SELECT SUM(c.v) AS s, COUNT(1) AS n FROM c WHERE IS_STRING(c.v)",
    "SELECT VALUE AVG(c.o.p) FROM c WHERE IS_DEFINED(c.o.p)",
    "SELECT VALUE COUNT(1) FROM c WHERE LENGTH(c.v) > 0",
    "SELECT VALUE COUNT(1) FROM c WHERE NOT IS_DEFINED(c.v)",
    "SELECT VALUE COUNT(1) FROM c WHERE c.v = 1 OR c.v = 'a' OR IS_NULL(c.v)",
    "SELECT VALUE COUNT(1) FROM c WHERE c.v IN (1, 'a', null, 17) AND NOT IS_NULL(c.v)",
    "SELECT VALUE COUNT(1) FROM c WHERE c.v LIKE 'a%' AND c.v >= 'a'",
    "SELECT COUNTIF(c.n > 4) AS many FROM c",
    "SELECT DISTINCT VALUE c.v FROM c",
    "SELECT DISTINCT c.o.p FROM c",
    "SELECT DISTINCT VALUE c.n FROM c WHERE c.n BETWEEN 2 AND 5",
    "SELECT COUNT(1) AS n FROM c",
    "SELECT TOP 2 c.n, COUNT(1) AS count FROM c GROUP BY c.n",
];

#[tokio::test]
async fn values_in_the_index_give_the_rows_of_a_scan() {
    for engine in ENGINES {
        let world = filled(engine, BY_PK).await;
        for text in QUERIES {
            assert!(!checked(&world, text, &everything()).await.is_empty(), "{text}");
            let found = metrics(&world, text).await;
            assert_eq!((found.items_read, found.bytes_read), (0, 0), "{engine:?} {text}: {}", found.access);
        }
        // One range at a time, as clients that merge them ask.
        let ranges: Vec<u32> = {
            let catalog = world.database.catalog();
            let container = catalog.container(PLACE.0, PLACE.1).unwrap();
            container.partitions.iter().map(|partition| partition.range_id).collect()
        };
        assert_eq!(ranges.len(), 3);
        for range in ranges {
            let scope = FeedScope { range_id: Some(range), ..FeedScope::default() };
            for text in QUERIES {
                checked(&world, text, &scope).await;
            }
        }
        // Inside one key the entries of other keys lie in between.
        let scope =
            FeedScope { partition_key: Some(crate::common::key(r#"["k3"]"#)), ..FeedScope::default() };
        for text in QUERIES {
            checked(&world, text, &scope).await;
        }
    }
}

#[tokio::test]
async fn writes_and_deletes_are_counted_at_once() {
    for engine in ENGINES {
        let world = filled(engine, BY_PK).await;
        let text = "SELECT c.v AS v, COUNT(1) AS n FROM c GROUP BY c.v";
        let before = checked(&world, text, &everything()).await;
        // One more without the property, one with another value, one less.
        world.create(r#"{"id":"new","pk":"k1"}"#).await;
        let body = bytes::Bytes::from_static(br#"{"id":"0","pk":"k0","v":"changed"}"#);
        let key = with_key(r#"["k0"]"#);
        world.database.upsert_item(&mut Receipt::default(), PLACE, &key, &body).await.unwrap();
        world.delete("k1", "1").await;
        let world = world.restart().await;
        let after = checked(&world, text, &everything()).await;
        assert_eq!(metrics(&world, text).await.items_read, 0);
        assert_eq!(before.len() + 1, after.len());
        assert_eq!(after.last().unwrap(), r#"{"n":1,"v":"changed"}"#);
        assert_eq!((before[0].as_str(), after[0].as_str()), (r#"{"n":20}"#, r#"{"n":21}"#));
        // A key whose items are being removed: their entries are there until they are gone.
        world.delete_key("k2").await;
        let found = checked(&world, "SELECT COUNT(1) AS n FROM c WHERE c.n >= 0", &everything()).await;
        let scanned = checked(&world, "SELECT VALUE c.id FROM c", &everything()).await;
        // The new item and the one that was replaced have no number.
        assert_eq!(found, [format!("{{\"n\":{}}}", scanned.len() - 2)]);
    }
}

/// What entries do not tell is read from the items, and a property full of it is scanned.
#[tokio::test]
async fn values_that_entries_do_not_tell_are_looked_up() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 2).await;
        world.create_container(BY_PK).await;
        let long = "x".repeat(150);
        for number in 0..400 {
            let value = match number {
                7 => format!("\"{long}1\""),
                8 | 9 => format!("\"{long}2\""),
                10 => "[1,2]".to_owned(),
                11 => "{\"a\":1}".to_owned(),
                12 => "9007199254740993".to_owned(),
                13 => "-0.0".to_owned(),
                number => (number % 3).to_string(),
            };
            let body = format!(
                r#"{{"id":"{number}","pk":"k{}","v":{value},"long":"{long}{}","f":{}}}"#,
                number % 7,
                number % 5,
                f64::from(number) / 10.0
            );
            world.create(&body).await;
        }
        for (text, items) in [
            ("SELECT c.v, COUNT(1) AS n FROM c GROUP BY c.v", 6),
            ("SELECT VALUE COUNT(1) FROM c WHERE ENDSWITH(c.v, '2')", 3),
            ("SELECT VALUE COUNT(1) FROM c WHERE IS_ARRAY(c.v) OR c.v = {\"a\": 1}", 2),
        ] {
            checked(&world, text, &everything()).await;
            let found = metrics(&world, text).await;
            assert_eq!(found.items_read, items, "{engine:?} {text}: {found:?}");
        }
        for text in [
            // All values are longer than what the index keeps.
            "SELECT c.long, COUNT(1) AS n FROM c GROUP BY c.long",
            // The sum of fractions depends on their order.
            "SELECT VALUE SUM(c.f) FROM c",
        ] {
            checked(&world, text, &everything()).await;
            let found = metrics(&world, text).await;
            assert_eq!(found.items_read, 400, "{engine:?} {text}");
        }
    }
}

#[tokio::test]
async fn entries_do_not_count_where_items_may_have_expired() {
    let world = filled(crate::common::Engine::Memory, &format!("{BY_PK},\"defaultTtl\":-1")).await;
    world.create(r#"{"id":"short","pk":"k0","v":"short","ttl":5}"#).await;
    let text = "SELECT c.v AS v, COUNT(1) AS n FROM c GROUP BY c.v";
    let before = checked(&world, text, &everything()).await;
    world.env.advance_seconds(6);
    let after = checked(&world, text, &everything()).await;
    assert_eq!(before.len(), after.len() + 1);
    assert!(metrics(&world, text).await.items_read > 0);
}

/// A property that the policy leaves out, names, or that is computed.
#[tokio::test]
async fn only_what_the_policy_indexes_is_answered() {
    let policy = r#""indexingPolicy":{"includedPaths":[{"path":"/v/?"}],"excludedPaths":[{"path":"/*"}]}"#;
    let computed = r#""computedProperties":[{"name":"n","query":"SELECT VALUE c.v FROM c"}]"#;
    let world = filled(crate::common::Engine::Memory, &format!("{BY_PK},{policy},{computed}")).await;
    for (text, is_covered) in [
        ("SELECT c.v, COUNT(1) AS n FROM c GROUP BY c.v", true),
        ("SELECT c.o.p, COUNT(1) AS n FROM c GROUP BY c.o.p", false),
        // The computed property stands for another one, and hides the stored one of its name.
        ("SELECT c.n, COUNT(1) AS count FROM c GROUP BY c.n", true),
        ("SELECT c.n, c.v, COUNT(1) AS count FROM c GROUP BY c.n, c.v", true),
        ("SELECT c.v, c.pk, COUNT(1) AS n FROM c GROUP BY c.v, c.pk", false),
    ] {
        checked(&world, text, &everything()).await;
        assert_eq!(metrics(&world, text).await.items_read == 0, is_covered, "{text}");
    }
    // While another index is being filled, and after.
    let policy = r#""indexingPolicy":{"includedPaths":[{"path":"/o/*"}],"excludedPaths":[{"path":"/*"}]}"#;
    world.replace_container(&format!("{BY_PK},{policy}")).await.unwrap();
    for (text, is_covered) in
        [("SELECT c.v, COUNT(1) AS n FROM c GROUP BY c.v", false), ("SELECT DISTINCT c.o.p FROM c", true)]
    {
        checked(&world, text, &everything()).await;
        world.database.maintain().await.unwrap();
        checked(&world, text, &everything()).await;
        assert_eq!(metrics(&world, text).await.items_read == 0, is_covered, "{text}");
    }
}

/// Writers change values and split partitions while groups are counted: each answer has every item exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_add_up_during_writes() {
    let world = World::with_partitions(crate::common::Engine::Embedded, 2).await;
    world.create_container(BY_PK).await;
    for number in 0..300 {
        world.create(&format!(r#"{{"id":"{number}","pk":"k{}","v":{}}}"#, number % 11, number % 4)).await;
    }
    let database = std::sync::Arc::clone(&world.database);
    let writer = tokio::spawn(async move {
        for round in 0..600_u32 {
            let (number, pk) = (round % 300, format!(r#"["k{}"]"#, round % 300 % 11));
            // Some lose the property, others get it back.
            let value = if round % 3 == 0 { String::new() } else { format!(r#","v":{}"#, round % 5) };
            let body = format!(r#"{{"id":"{number}","pk":"k{}"{value}}}"#, number % 11);
            let (options, body) = (with_key(&pk), bytes::Bytes::from(body));
            database.upsert_item(&mut Receipt::default(), PLACE, &options, &body).await.unwrap();
        }
    });
    let text = "SELECT VALUE COUNT(1) FROM c GROUP BY c.v";
    while !writer.is_finished() {
        let way = Way { scope: everything(), page_size: -1, without_index: false };
        let rows = rows(&world, CONTAINER, &request(text), &way).await.unwrap();
        let sum: i64 = rows.iter().map(|row| row.as_i64().unwrap()).sum();
        assert_eq!(sum, 300);
    }
    writer.await.unwrap();
    assert_eq!(metrics(&world, text).await.items_read, 0);
}
