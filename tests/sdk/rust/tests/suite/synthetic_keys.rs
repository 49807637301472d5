//! Synthetic partition keys: made by the library in the application, and made by the server.

use azure_data_cosmos::FeedScope;
use azure_data_cosmos::models::ContainerProperties;
use futures::TryStreamExt;
use orrery_sdk_rust::*;
use serde_json::{Value, json};
use synthetic_key::{Definition, SystemRandom};

const VIN: &str = "1HGCM82633A004352";

fn definition(source: &Value) -> Definition {
    Definition::from_json(source).expect("a definition")
}

fn random_dates() -> Value {
    json!({"format": 1, "kind": "randomSuffix", "parts": ["/date"], "suffix": {"count": 400}})
}

fn vehicles() -> Value {
    json!({"format": 1, "kind": "precalculatedSuffix", "parts": ["/date"], "suffix": {"of": ["/VIN"], "count": 400}})
}

fn by_partition_key() -> ContainerProperties {
    ContainerProperties::new("items", "/partitionKey".into())
}

#[tokio::test]
async fn concatenated_by_the_application() {
    with_container(by_partition_key(), async |container| {
        let definition = definition(&json!({"format": 1, "kind": "concatenate", "parts": ["/deviceId", "/date"]}));
        let mut item = json!({"id": "1", "deviceId": "abc-123", "date": 2018});
        let key = definition.insert_into(&mut item, &mut SystemRandom::new()).expect("a key");
        let key = key.as_text().expect("a plain key").to_owned();
        assert_eq!(key, "abc-123-2018");
        container.create_item(key, "1", &item, None).await.expect("created");
        let read = container.read_item("abc-123-2018", "1", None).await.expect("read");
        assert_eq!(body(read)["partitionKey"], "abc-123-2018");
    })
    .await;
}

#[tokio::test]
async fn random_suffixes_by_the_application() {
    with_container(by_partition_key(), async |container| {
        let definition = definition(&random_dates());
        let keys = definition.keys_for(&json!({"date": "2018-08-09"})).expect("keys");
        let keys: Vec<&str> = keys.iter().map(|key| key.as_text().expect("a plain key")).collect();
        assert_eq!((keys.len(), keys[0], keys[399]), (400, "2018-08-09.1", "2018-08-09.400"));
        let mut random = SystemRandom::new();
        for id in 0..10 {
            let mut item = json!({"id": id.to_string(), "date": "2018-08-09"});
            let key = definition.insert_into(&mut item, &mut random).expect("a key");
            let key = key.as_text().expect("a plain key").to_owned();
            assert!(keys.contains(&key.as_str()));
            container.create_item(key.clone(), &id.to_string(), &item, None).await.expect("created");
            let read = container.read_item(key, &id.to_string(), None).await.expect("read");
            assert_eq!(body(read)["date"], "2018-08-09");
        }
    })
    .await;
}

#[tokio::test]
async fn a_vehicle_is_read_back_with_one_point_read() {
    with_container(by_partition_key(), async |container| {
        let definition = definition(&vehicles());
        let mut item = json!({"id": "1", "date": "2018-08-09", "VIN": VIN});
        let key = definition.insert_into(&mut item, &mut SystemRandom::new()).expect("a key");
        container.create_item(key.as_text().expect("a plain key").to_owned(), "1", &item, None).await.expect("created");
        let keys = definition.keys_for(&json!({"date": "2018-08-09", "VIN": VIN})).expect("keys");
        let texts: Vec<&str> = keys.iter().map(|key| key.as_text().expect("a plain key")).collect();
        assert_eq!(texts, ["2018-08-09.353"]);
        let read = container.read_item("2018-08-09.353", "1", None).await.expect("read");
        assert_eq!(body(read)["VIN"], VIN);
    })
    .await;
}

/// This client's containers are typed and know no extensions: the command line sets the definition.
#[tokio::test]
async fn the_server_makes_the_key() {
    with_database(async |database| {
        let container = create(&database, by_partition_key()).await;
        let azure_data_cosmos::ResourceIdentity::Name(name) = database.id() else { panic!("the database has a name") };
        set_definition(name, &vehicles());
        // The client wants a key beside each item; the item itself need not carry it.
        let item = json!({"id": "1", "date": "2018-08-09", "VIN": VIN});
        let created = container.create_item("2018-08-09.353", "1", &item, with_content()).await.expect("created");
        assert_eq!(body(created)["partitionKey"], "2018-08-09.353");
        let read = container.read_item("2018-08-09.353", "1", None).await.expect("read");
        assert_eq!(body(read)["partitionKey"], "2018-08-09.353");
        let other = json!({"id": "2", "date": "2018-08-09", "VIN": VIN});
        assert_eq!(refusal(container.create_item("2018-08-09.1", "2", &other, None).await).0, 400);
        let query = format!("SELECT * FROM c WHERE c.date = '2018-08-09' AND c.VIN = '{VIN}'");
        let rows: Vec<Value> = container
            .query_items(query, FeedScope::full_container(), None)
            .await
            .expect("planned")
            .try_collect()
            .await
            .expect("collected");
        assert_eq!(rows.len(), 1);
    })
    .await;
}

fn set_definition(database: &str, definition: &Value) {
    let binary = std::env::var("ORRERY_BIN").unwrap_or_else(|_| "orrery".to_owned());
    let set = std::process::Command::new(binary)
        .args(["containers", "synthetic", "set", &definition.to_string()])
        .args(["--database", database, "--container", "items", "--endpoint", &endpoint()])
        .output()
        .expect("the command runs");
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
}
