//! Computed properties that the policy names are in the index, and queries use it.

use orrery_db::{FeedScope, QueryMetrics, QueryOptions, Receipt};

use crate::common::{BY_PK, ENGINES, PLACE, World};
use crate::run::{Way, canonical, request, rows};

const POLICY: &str = r#""indexingPolicy":{"includedPaths":[{"path":"/*"},{"path":"/lower/?"},{"path":"/double/?"}],
    "compositeIndexes":[[{"path":"/lower"},{"path":"/n"}]]}"#;

fn members(lower: &str) -> String {
    format!(
        r#"{BY_PK},{POLICY},"computedProperties":[{{"name":"lower","query":"{lower}"}},{{"name":"double","query":"SELECT VALUE c.n * 2 FROM c"}},{{"name":"aside","query":"SELECT VALUE c.n + 1 FROM c"}},{{"name":"moment","query":"SELECT VALUE c._ts + 1 FROM c"}}]"#
    )
}

async fn metrics(world: &World, text: &str) -> QueryMetrics {
    let options = QueryOptions { cross_partition: true, ..QueryOptions::default() };
    let page = world.database.query_items(&mut Receipt::default(), PLACE, &options, &request(text)).await;
    page.unwrap_or_else(|error| panic!("{text}: {error}")).metrics
}

/// The rows, the same with the index and without.
async fn checked(world: &World, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for without_index in [false, true] {
        let way = Way { scope: FeedScope::default(), page_size: 7, without_index };
        let rows = rows(world, "items", &request(text), &way).await;
        let mut texts: Vec<String> =
            rows.unwrap_or_else(|error| panic!("{text}: {error}")).iter().map(canonical).collect();
        if !text.contains("ORDER BY") {
            texts.sort();
        }
        found.push(texts);
    }
    assert_eq!(found[0], found[1], "{text}");
    found.swap_remove(0)
}

#[tokio::test]
async fn a_named_computed_property_is_indexed_and_used() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 2).await;
        world.create_container(&members("SELECT VALUE LOWER(c.name) FROM c")).await;
        for number in 0..300 {
            // A stored property of the same name is hidden, and one item has no name at all.
            let name = if number == 7 { String::new() } else { format!(r#","name":"Name{}""#, number % 100) };
            let body =
                format!(r#"{{"id":"{number}","pk":"k{}","n":{number},"lower":"hidden"{name}}}"#, number % 10);
            world.create(&body).await;
        }
        let world = world.restart().await;
        let by_name = "SELECT VALUE c.n FROM c WHERE c.lower = 'name42'";
        assert_eq!(checked(&world, by_name).await, ["142", "242", "42"]);
        let found = metrics(&world, by_name).await;
        assert!(found.items_read <= 3, "{engine:?} {found:?}");
        assert!(checked(&world, "SELECT VALUE c.n FROM c WHERE c.lower = 'hidden'").await.is_empty());
        assert_eq!(checked(&world, "SELECT VALUE COUNT(1) FROM c WHERE c.double >= 590").await, ["5"]);
        let found = metrics(&world, "SELECT * FROM c WHERE c.double >= 590").await;
        assert!(found.items_read <= 5, "{engine:?} {found:?}");
        // In the order of the index, items without the property first.
        let sorted = checked(&world, "SELECT VALUE c.n FROM c ORDER BY c.lower, c.n").await;
        assert_eq!((sorted.len(), sorted[0].as_str()), (300, "7"));
        let found = metrics(&world, "SELECT TOP 3 VALUE c.n FROM c ORDER BY c.double DESC").await;
        assert!(found.items_read <= 20, "{engine:?} {found:?}");
        // Neither one that the policy does not name nor one that depends on what the server adds.
        assert_eq!(checked(&world, "SELECT VALUE c.n FROM c WHERE c.aside = 6").await, ["5"]);
        assert_eq!(checked(&world, "SELECT VALUE COUNT(1) FROM c WHERE c.moment > 0").await, ["300"]);

        // Writes keep the entries.
        let body = bytes::Bytes::from_static(br#"{"id":"42","pk":"k2","n":42,"name":"Other"}"#);
        let options = crate::common::with_key(r#"["k2"]"#);
        world.database.upsert_item(&mut Receipt::default(), PLACE, &options, &body).await.unwrap();
        assert_eq!(checked(&world, by_name).await, ["142", "242"]);
        assert_eq!(checked(&world, "SELECT VALUE c.n FROM c WHERE c.lower = 'other'").await, ["42"]);

        // Another definition counts at once, before its index is filled and after.
        world.replace_container(&members("SELECT VALUE UPPER(c.name) FROM c")).await.unwrap();
        let by_name = "SELECT VALUE c.n FROM c WHERE c.lower = 'NAME43'";
        assert_eq!(checked(&world, by_name).await, ["143", "243", "43"]);
        world.database.maintain().await.unwrap();
        assert_eq!(checked(&world, by_name).await, ["143", "243", "43"]);
        let found = metrics(&world, by_name).await;
        assert!(found.items_read <= 3, "{engine:?} {found:?}");
        assert!(checked(&world, "SELECT VALUE c.n FROM c WHERE c.lower = 'name43'").await.is_empty());
    }
}
