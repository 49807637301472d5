//! How much is read for ranges and orders: both bounds count, the order in which a filter is written does not, and inside
//! one logical partition the index is used as well.

use orrery_db::{FeedScope, PageRequest, QueryOptions, QueryPage, Receipt};

use crate::common::{BY_PK, PLACE, World, parse, with_key};
use crate::run::request;

async fn filled(policy: &str) -> World {
    let world = World::memory().await;
    world.create_container(&format!("{BY_PK}{policy}")).await;
    for number in 0..1500 {
        let (pk, at, color) = (number % 5, (number * 7) % 1500, number % 3);
        let body = format!(
            r#"{{"id":"{number}","pk":"k{pk}","at":{at},"color":"c{color}","grade":{}}}"#,
            number % 700
        );
        world.create(&body).await;
    }
    world
}

async fn page(world: &World, text: &str, key: Option<&str>, rows: i64) -> QueryPage {
    let scope = key.map_or_else(FeedScope::default, |key| FeedScope {
        partition_key: with_key(key).partition_key,
        ..FeedScope::default()
    });
    let options = QueryOptions {
        scope,
        cross_partition: true,
        page: PageRequest { items_max: Some(rows), continuation: None },
        ..QueryOptions::default()
    };
    let page = world.database.query_items(&mut Receipt::default(), PLACE, &options, &request(text)).await;
    page.unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[tokio::test]
async fn two_bounds_form_one_range() {
    let world = filled("").await;
    let between = page(&world, "SELECT * FROM c WHERE c.at BETWEEN 700 AND 710", None, -1).await;
    assert_eq!((between.count, between.metrics.items_read), (11, 11));
    for filter in [
        "c.at >= 700 AND c.at <= 710",
        "c.at <= 710 AND c.at >= 700",
        "c.at > 699 AND c.color != 'x' AND c.at < 711",
        "c.at > 3 AND c.at < 711 AND c.at > 699 AND c.at < 1400",
        "NOT (c.at < 700 OR c.at > 710)",
    ] {
        let found = page(&world, &format!("SELECT * FROM c WHERE {filter}"), None, -1).await;
        assert_eq!((found.count, found.metrics.items_read), (11, 11), "{filter}: {}", found.metrics.access);
    }
    for filter in ["c.at > 5 AND c.at < 5", "c.at > 5 AND c.at > 'x'", "c.at >= 5 AND c.at < 5"] {
        let found = page(&world, &format!("SELECT * FROM c WHERE {filter}"), None, -1).await;
        assert_eq!((found.count, found.metrics.items_read), (0, 0), "{filter}");
    }
}

#[tokio::test]
async fn the_order_of_conditions_does_not_matter() {
    let world = filled("").await;
    // Both have many entries; those of the range are fewer.
    let terms = ["c.color = 'c1'", "c.at >= 100", "c.at < 300"];
    let mut read = Vec::new();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let filter = order.map(|at| terms[at]).join(" AND ");
        let found = page(&world, &format!("SELECT * FROM c WHERE {filter}"), None, -1).await;
        read.push((found.count, found.metrics.items_read, found.metrics.access.clone()));
    }
    assert!(read.windows(2).all(|pair| pair[0] == pair[1]), "{read:?}");
    assert_eq!(read[0].1, 200, "{read:?}");
}

#[tokio::test]
async fn the_latest_items_of_one_key_are_read_in_order() {
    let composite = r#","indexingPolicy":{"includedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/color"},{"path":"/at"}]]}"#;
    let world = filled(composite).await;
    for (text, most) in [
        ("SELECT VALUE c.at FROM c WHERE c.pk = 'k2' ORDER BY c.at DESC", 60),
        ("SELECT VALUE c.at FROM c WHERE c.pk = 'k2' AND c.at < 900 ORDER BY c.at DESC", 60),
        ("SELECT VALUE c.at FROM c WHERE c.pk = 'k2' ORDER BY c.color DESC, c.at DESC", 60),
        ("SELECT VALUE c.at FROM c WHERE c.pk = 'k2' AND c.at > 1450 AND c.at < 1490", 20),
        ("SELECT VALUE c.at FROM c WHERE c.pk = 'k2' AND c.color = 'c1' AND c.at > 1300", 100),
    ] {
        for key in [None, Some(r#"["k2"]"#)] {
            let found = page(&world, text, key, 10).await;
            let options = QueryOptions {
                without_index: true,
                cross_partition: true,
                page: PageRequest { items_max: Some(10), continuation: None },
                ..QueryOptions::default()
            };
            let (mut receipt, request) = (Receipt::default(), request(text));
            let plain = world.database.query_items(&mut receipt, PLACE, &options, &request).await.unwrap();
            let rows = |page: &QueryPage| {
                let mut rows = parse(&[b"[".as_slice(), &page.rows, b"]"].concat()).to_json();
                if !text.contains("ORDER") {
                    rows = page.count.to_string();
                }
                rows
            };
            assert_eq!(rows(&found), rows(&plain), "{text}");
            assert!(
                found.metrics.items_read <= most,
                "{text}: {} items by {}",
                found.metrics.items_read,
                found.metrics.access
            );
        }
    }
}
