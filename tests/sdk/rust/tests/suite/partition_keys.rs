//! Every kind of partition key value, in both hash versions and in hierarchies.

use azure_data_cosmos::PartitionKey;
use azure_data_cosmos::models::*;
use orrery_sdk_rust::*;
use serde_json::{Value, json};

#[tokio::test]
async fn every_kind_of_key() {
    for version in [PartitionKeyVersion::V1, PartitionKeyVersion::V2] {
        let definition = PartitionKeyDefinition::from("/pk").with_version(version);
        with_container(ContainerProperties::new("k", definition), async |container| {
            let long = "k".repeat(1000);
            let number = |value: f64| PartitionKey::try_from(value).expect("a number");
            let cases: Vec<(PartitionKey, Value)> = vec![
                ("a".into(), json!("a")),
                ("".into(), json!("")),
                ("é日本😀".into(), json!("é日本😀")),
                ("say \"hi\" \\ there".into(), json!("say \"hi\" \\ there")),
                (long.clone().into(), json!(long)),
                (0.into(), json!(0)),
                (1.into(), json!(1.0)),
                (number(-12.5), json!(-12.5)),
                (number(0.1), json!(0.1)),
                (number(1.5e300), json!(1.5e300)),
                (9_007_199_254_740_991i64.into(), json!(9_007_199_254_740_991i64)),
                (true.into(), json!(true)),
                (false.into(), json!(false)),
                (PartitionKey::NULL.into(), json!(null)),
            ];
            for (key, value) in cases {
                let item = json!({"id": "1", "pk": value});
                if let Err(error) = container.create_item(key.clone(), "1", &item, None).await {
                    panic!("{version:?} {value}: {error}");
                }
                let again = container.create_item(key.clone(), "1", &item, None).await;
                assert_eq!(refusal(again), (409, 0), "{version:?} {value}");
                let read = container.read_item(key.clone(), "1", None).await.expect("read");
                assert_eq!(doubles(&body(read)["pk"]), doubles(&value));
                container.replace_item(key.clone(), "1", &item, None).await.expect("replaced");
                container.delete_item(key, "1", None).await.expect("deleted");
            }
            // A missing property is a key of its own, apart from null.
            let undefined = || PartitionKey::from(PartitionKey::UNDEFINED);
            container.create_item(undefined(), "1", json!({"id": "1"}), None).await.expect("created");
            container.read_item(undefined(), "1", None).await.expect("read");
            let null = container.read_item(PartitionKey::NULL, "1", None).await;
            assert_eq!(refusal(null), (404, 0));
            container.delete_item(undefined(), "1", None).await.expect("deleted");
        })
        .await;
    }
}

#[tokio::test]
async fn nested_and_quoted_paths() {
    with_database(async |database| {
        let nested = create(&database, ContainerProperties::new("n", "/a/b".into())).await;
        nested.create_item("x", "1", json!({"id": "1", "a": {"b": "x"}}), None).await.expect("created");
        nested.read_item("x", "1", None).await.expect("read");
        let quoted = create(&database, ContainerProperties::new("q", "/\"a b\"/c".into())).await;
        quoted.create_item("x", "1", json!({"id": "1", "a b": {"c": "x"}}), None).await.expect("created");
        quoted.read_item("x", "1", None).await.expect("read");
        let by_id = create(&database, ContainerProperties::new("i", "/id".into())).await;
        by_id.create_item("1", "1", json!({"id": "1"}), None).await.expect("created");
        by_id.read_item("1", "1", None).await.expect("read");
    })
    .await;
}

#[tokio::test]
async fn hierarchical_keys() {
    let definition = ("/tenant", "/user", "/session").into();
    with_container(ContainerProperties::new("h", definition), async |container| {
        let cases: Vec<(PartitionKey, Value)> = vec![
            (("t", "u", "s").into(), json!({"id": "1", "tenant": "t", "user": "u", "session": "s"})),
            (("t", 7, true).into(), json!({"id": "1", "tenant": "t", "user": 7, "session": true})),
            (("t", PartitionKey::NULL, "").into(), json!({"id": "1", "tenant": "t", "user": null, "session": ""})),
            (("t", "u", PartitionKey::UNDEFINED).into(), json!({"id": "1", "tenant": "t", "user": "u"})),
        ];
        for (key, item) in cases {
            container.create_item(key.clone(), "1", &item, None).await.expect("created");
            let read = container.read_item(key.clone(), "1", None).await.expect("read");
            assert_eq!(body(read)["tenant"], "t");
            container.upsert_item(key, "1", &item, None).await.expect("upserted");
        }
        let item = json!({"id": "2", "tenant": "t", "user": "u", "session": "s"});
        let other = container.create_item(("t", "u", "other"), "2", &item, None).await;
        assert_eq!(refusal(other), (400, 1001));
        assert_eq!(refusal(container.read_item(("t", "u", "other"), "1", None).await), (404, 0));
    })
    .await;
}
