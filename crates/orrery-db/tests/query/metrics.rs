//! What queries tell about themselves: the indexes they use, what they read, how they could be better.

use std::time::Duration;

use orrery_db::{QueryOptions, QueryPage, Receipt};
use orrery_model::Value;

use crate::common::{BY_PK, PLACE, World, parse};
use crate::run::{canonical, request};

async fn page(world: &World, text: &str) -> QueryPage {
    let options =
        QueryOptions { cross_partition: true, index_metrics: true, advice: true, ..QueryOptions::default() };
    let page = world.database.query_items(&mut Receipt::default(), PLACE, &options, &request(text)).await;
    page.unwrap_or_else(|error| panic!("{text}: {error}"))
}

async fn filled(members: &str) -> World {
    let world = World::memory().await;
    world.create_container(members).await;
    for number in 0..300 {
        let body = format!(
            r#"{{"id":"{number}","pk":"k{}","name":"n{}","age":{},"rare":{}}}"#,
            number % 10,
            number % 3,
            number % 50,
            number / 299
        );
        world.create(&body).await;
    }
    world
}

#[tokio::test]
async fn index_metrics_are_those_of_the_service() {
    let world = World::memory().await;
    world.create_container(BY_PK).await;
    let file = parse(include_bytes!("../data/index-metrics.json"));
    let cases = file.get("cases").and_then(Value::as_array).unwrap();
    for case in cases {
        let text = case.get("query").and_then(Value::as_str).unwrap();
        let found = page(&world, text).await.index_metrics.unwrap().to_value();
        let expected = case.get("indexMetrics").unwrap();
        assert_eq!(canonical(&found), canonical(expected), "{text}");
    }
    assert_eq!(cases.len(), 27);
}

/// An index that leads to all values of a property, or all but one, saves little.
#[tokio::test]
async fn an_index_has_the_impact_of_what_it_leads_to() {
    let world = World::memory().await;
    let policy = r#""indexingPolicy":{"includedPaths":[{"path":"/pk/?"}],"excludedPaths":[{"path":"/*"}]}"#;
    world.create_container(&format!("{BY_PK},{policy}")).await;
    for (filter, impact) in [
        ("c.a = 1", "High"),
        ("c.a > 1", "High"),
        ("c.a IN (1, 2)", "High"),
        ("STARTSWITH(c.a, 'x')", "High"),
        ("c.a != 1", "Low"),
        ("CONTAINS(c.a, 'x')", "Low"),
        ("IS_NUMBER(c.a)", "Low"),
    ] {
        let text = format!("SELECT * FROM c WHERE {filter}");
        let metrics = page(&world, &text).await.index_metrics.unwrap();
        let expected = format!(r#"[{{"IndexSpec":"/a/?","IndexImpactScore":"{impact}"}}]"#);
        let missing =
            metrics.to_value().get("PotentialIndexes").unwrap().get("SingleIndexes").unwrap().to_json();
        assert_eq!(missing, expected, "{filter}");
        let older = metrics.to_older_value();
        let older = &older.get("PotentialSingleIndexes").and_then(Value::as_array).unwrap()[0];
        assert_eq!(older.get("IndexImpactScore").and_then(Value::as_str), Some(impact), "{filter}");
    }
}

#[tokio::test]
async fn missing_and_composite_indexes_are_suggested() {
    let policy = r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/age/?"}],"compositeIndexes":[[{"path":"/name"},{"path":"/rare","order":"descending"}]]}"#;
    let world = World::memory().await;
    world.create_container(&format!("{BY_PK},{policy}")).await;
    let metrics = async |text: &str| page(&world, text).await.index_metrics.unwrap().to_value().to_json();
    assert_eq!(
        metrics("SELECT * FROM c WHERE c.age = 5").await,
        r#"{"UtilizedIndexes":{"SingleIndexes":[],"CompositeIndexes":[]},"PotentialIndexes":{"SingleIndexes":[{"IndexSpec":"/age/?","IndexImpactScore":"High"}],"CompositeIndexes":[]}}"#
    );
    assert_eq!(
        metrics("SELECT * FROM c WHERE c.name = 'x' AND c.rare > 5").await,
        r#"{"UtilizedIndexes":{"SingleIndexes":[{"IndexSpec":"/rare/?"},{"IndexSpec":"/name/?"}],"CompositeIndexes":[{"IndexSpecs":["/name ASC","/rare DESC"]}]},"PotentialIndexes":{"SingleIndexes":[],"CompositeIndexes":[]}}"#
    );
    assert_eq!(
        metrics("SELECT * FROM c ORDER BY c.name, c.rare DESC").await,
        r#"{"UtilizedIndexes":{"SingleIndexes":[],"CompositeIndexes":[{"IndexSpecs":["/name ASC","/rare DESC"]}]},"PotentialIndexes":{"SingleIndexes":[],"CompositeIndexes":[]}}"#
    );
    // The four filters of the documentation.
    let four = metrics("SELECT * FROM c WHERE c.name = 'T' AND c.a > 1 AND c.town = 'x' AND c.ts > 9").await;
    assert!(four.contains(r#"["/name ASC","/town ASC","/a ASC"]"#), "{four}");
    assert!(four.contains(r#"["/name ASC","/town ASC","/ts ASC"]"#), "{four}");
}

/// Items read by one page: what the index cannot spare.
#[tokio::test]
async fn cost_is_proportional_to_the_result() {
    let world = filled(BY_PK).await;
    for (text, read_max) in [
        ("SELECT * FROM c WHERE c.rare = 1", 1),
        ("SELECT * FROM c WHERE c.age = 7", 6),
        ("SELECT * FROM c WHERE c.age = 7 AND c.rare = 1", 1),
        ("SELECT * FROM c WHERE c.rare = 1 OR c.id = '5'", 2),
        ("SELECT * FROM c WHERE c.pk = 'k3' AND c.age = 3", 6),
        ("SELECT * FROM c WHERE STARTSWITH(c.id, '29')", 11),
        ("SELECT TOP 3 * FROM c WHERE c.age >= 0 ORDER BY c.age", 8),
        ("SELECT TOP 3 * FROM c ORDER BY c.age DESC", 8),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.age = 7", 0),
        ("SELECT VALUE COUNT(1) FROM c", 0),
        ("SELECT VALUE MIN(c.age) FROM c", 1),
        ("SELECT VALUE MAX(c.name) FROM c", 1),
        ("SELECT VALUE MAX(c.age) FROM c WHERE c.age < 20", 1),
        ("SELECT DISTINCT TOP 2 VALUE c.name FROM c", 4),
    ] {
        let metrics = page(&world, text).await.metrics;
        assert!(metrics.items_read <= read_max, "{text}: read {} by {}", metrics.items_read, metrics.access);
    }
}

#[tokio::test]
async fn metrics_are_measured() {
    let world = filled(BY_PK).await;
    let metrics = page(&world, "SELECT * FROM c WHERE c.age > 3").await.metrics;
    // A full page, and the one item that told that another follows.
    assert_eq!((metrics.items_read, metrics.output_items), (101, 100), "{metrics:?}");
    let phases = [metrics.index_time, metrics.load_time, metrics.evaluation_time];
    assert!(phases.iter().all(|time| *time > Duration::ZERO), "{metrics:?}");
    assert!(
        phases.iter().sum::<Duration>() <= metrics.total_time + Duration::from_micros(100),
        "{metrics:?}"
    );
}

#[tokio::test]
async fn advice_names_the_function() {
    let world = World::memory().await;
    world.create_container(BY_PK).await;
    let advice = page(&world, "SELECT * FROM c WHERE CONTAINS(c.a, 'x') AND ENDSWITH(c.b, 'y')").await.advice;
    assert_eq!(advice, [("QA1002", "CONTAINS"), ("QA1004", "ENDSWITH")]);
    assert!(page(&world, "SELECT * FROM c WHERE c.a = 1").await.advice.is_empty());
}
