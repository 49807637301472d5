//! Item queries.

use std::num::NonZeroU32;

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::ContainerProperties;
use azure_data_cosmos::options::{CreateContainerOptions, MaxItemCountHint, QueryOptions};
use azure_data_cosmos::{FeedScope, Query};
use futures::TryStreamExt;
use orrery_sdk_rust::*;
use serde_json::{Value, json};

async fn filled(test: impl AsyncFnOnce(ContainerClient)) {
    with_items(async |container| {
        for n in 0..20 {
            let (id, pk) = (format!("{n:02}"), format!("p{}", n % 4));
            container.create_item(pk.clone(), &id, json!({"id": id, "pk": pk, "n": n}), None).await.expect("created");
        }
        test(container).await;
    })
    .await;
}

async fn ids(container: &ContainerClient, query: impl Into<Query>, scope: FeedScope) -> Vec<String> {
    let rows: Vec<Value> = container.query_items(query, scope, None).await.expect("planned").try_collect().await.expect("collected");
    rows.iter().map(|row| row["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn one_partition() {
    filled(async |container| {
        let found = ids(&container, "SELECT * FROM c ORDER BY c.n DESC", FeedScope::partition("p1")).await;
        assert_eq!(found, ["17", "13", "09", "05", "01"]);
        let query = Query::from("SELECT * FROM c WHERE c.n > @n ORDER BY c.n").with_parameter("@n", 8).expect("a parameter");
        assert_eq!(ids(&container, query, FeedScope::partition("p1")).await, ["09", "13", "17"]);
    })
    .await;
}

#[tokio::test]
async fn pages() {
    filled(async |container| {
        let two = MaxItemCountHint::Limit(NonZeroU32::new(2).expect("not zero"));
        let mut pages = container
            .query_items::<Value>(
                "SELECT * FROM c ORDER BY c.n",
                FeedScope::partition("p2"),
                Some(QueryOptions::default().with_max_item_count(two)),
            )
            .await
            .expect("planned")
            .into_pages();
        let first = pages.try_next().await.expect("a page").expect("a page");
        assert!(first.items().len() <= 2);
        let token = pages.to_continuation_token().expect("a token");
        let rest: Vec<Value> = container
            .query_items(
                "SELECT * FROM c ORDER BY c.n",
                FeedScope::partition("p2"),
                Some(QueryOptions::default().with_continuation_token(token)),
            )
            .await
            .expect("planned")
            .try_collect()
            .await
            .expect("collected");
        assert_eq!(first.items().len() + rest.len(), 5);
    })
    .await;
}

#[tokio::test]
async fn across_partitions() {
    with_database(async |database| {
        let options = CreateContainerOptions::default().with_throughput(azure_data_cosmos::models::ThroughputProperties::manual(30_000));
        database.create_container(ContainerProperties::new("wide", "/pk".into()), Some(options)).await.expect("created");
        let container = database.container_client("wide", None).await.expect("found");
        for n in 0..40 {
            let (id, pk) = (format!("{n:02}"), format!("p{n}"));
            container.create_item(pk.clone(), &id, json!({"id": id, "pk": pk, "n": n}), None).await.expect("created");
        }
        let mut found = ids(&container, "SELECT * FROM c WHERE c.n >= 36", FeedScope::full_container()).await;
        found.sort();
        assert_eq!(found, ["36", "37", "38", "39"]);
        let ordered = ids(&container, "SELECT * FROM c WHERE c.n < 6 ORDER BY c.n DESC", FeedScope::full_container()).await;
        assert_eq!(ordered, ["05", "04", "03", "02", "01", "00"]);
        let top = ids(&container, "SELECT TOP 3 * FROM c ORDER BY c.n", FeedScope::full_container()).await;
        assert_eq!(top, ["00", "01", "02"]);
        // This client merges no aggregates, says so, and is therefore refused a plan for one.
        let counted = container.query_items::<i64>("SELECT VALUE COUNT(1) FROM c", FeedScope::full_container(), None).await;
        assert_eq!(refusal(counted), (400, 1004));
    })
    .await;
}

#[tokio::test]
async fn a_prefix_of_a_hierarchical_key() {
    with_container(ContainerProperties::new("h", ("/tenant", "/user").into()), async |container| {
        for n in 0..6 {
            let (id, tenant, user) = (format!("{n}"), format!("t{}", n % 2), format!("u{n}"));
            container
                .create_item((tenant.clone(), user.clone()), &id, json!({"id": id, "tenant": tenant, "user": user}), None)
                .await
                .expect("created");
        }
        let mut found = ids(&container, "SELECT * FROM c", FeedScope::partition("t1")).await;
        found.sort();
        assert_eq!(found, ["1", "3", "5"]);
    })
    .await;
}

#[tokio::test]
async fn a_query_that_is_refused() {
    filled(async |container| {
        let rows = match container.query_items::<Value>("SELECT FROM WHERE", FeedScope::partition("p1"), None).await {
            Ok(rows) => rows.try_collect::<Vec<Value>>().await,
            Err(error) => Err(error),
        };
        let error = rows.expect_err("refused");
        assert_eq!(u16::from(error.status().status_code()), 400, "{error}");
    })
    .await;
}
