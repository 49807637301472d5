//! Point operations on items.

use std::time::{Duration, Instant};

use azure_data_cosmos::models::{ContainerProperties, TimeToLive, UniqueKey, UniqueKeyPolicy};
use azure_data_cosmos::options::{ItemReadOptions, ItemWriteOptions, Precondition};
use orrery_sdk_rust::*;
use serde_json::json;

fn if_match(etag: &str) -> Option<ItemWriteOptions> {
    let precondition = Precondition::if_match(etag.to_owned());
    Some(ItemWriteOptions::default().with_precondition(precondition))
}

#[tokio::test]
async fn item_life_cycle() {
    with_items(async |container| {
        let mut item = json!({"id": "1", "pk": "a", "name": "first", "list": [1, "two", null, {"deep": true}]});
        let created = container.create_item("a", "1", &item, with_content()).await.expect("created");
        assert_eq!(status(&created), 201);
        assert!(created.headers().request_charge().expect("a charge").value() > 0.0);
        assert!(!created.headers().session_token().expect("a token").as_str().is_empty());
        assert!(created.headers().activity_id().is_some());
        let first = etag(&created);
        let value = body(created);
        assert_eq!(value["_etag"], first);
        for name in ["_rid", "_self", "_ts", "_attachments"] {
            assert!(!value[name].is_null(), "{name} is missing");
        }

        let read = container.read_item("a", "1", None).await.expect("read");
        assert_eq!(etag(&read), first);
        assert_eq!(body(read)["list"], item["list"]);

        item["name"] = json!("second");
        let replaced = container.replace_item("a", "1", &item, with_content()).await.expect("replaced");
        assert_eq!(status(&replaced), 200);
        assert_ne!(etag(&replaced), first);
        let second = body(replaced);
        assert_eq!(second["name"], "second");
        assert_eq!(second["_rid"], value["_rid"]);

        let deleted = container.delete_item("a", "1", None).await.expect("deleted");
        assert_eq!(status(&deleted), 204);
        assert_eq!(refusal(container.read_item("a", "1", None).await), (404, 0));
        assert_eq!(refusal(container.delete_item("a", "1", None).await), (404, 0));
        assert_eq!(refusal(container.replace_item("a", "1", &item, None).await), (404, 0));
    })
    .await;
}

#[tokio::test]
async fn writes_are_answered_without_body_by_default() {
    with_items(async |container| {
        let item = json!({"id": "1", "pk": "a"});
        let created = container.create_item("a", "1", &item, None).await.expect("created");
        assert!(etag(&created).starts_with('"'));
        assert!(created.into_body().is_empty());
        let replaced = container.replace_item("a", "1", &item, None).await.expect("replaced");
        assert!(replaced.into_body().is_empty());
        let upserted = container.upsert_item("a", "1", &item, None).await.expect("upserted");
        assert!(upserted.into_body().is_empty());
    })
    .await;
}

#[tokio::test]
async fn upsert_inserts_then_replaces() {
    with_items(async |container| {
        let inserted = container.upsert_item("a", "1", json!({"id": "1", "pk": "a", "n": 1}), with_content()).await.expect("inserted");
        assert_eq!(status(&inserted), 201);
        let updated = container.upsert_item("a", "1", json!({"id": "1", "pk": "a", "n": 2}), with_content()).await.expect("updated");
        assert_eq!(status(&updated), 200);
        let updated = body(updated);
        assert_eq!(updated["n"], 2);
        assert_eq!(updated["_rid"], body(inserted)["_rid"]);
    })
    .await;
}

#[tokio::test]
async fn an_id_is_unique_in_its_logical_partition() {
    with_items(async |container| {
        let item = json!({"id": "1", "pk": "a"});
        container.create_item("a", "1", &item, None).await.expect("created");
        assert_eq!(refusal(container.create_item("a", "1", &item, None).await), (409, 0));
        container.create_item("b", "1", json!({"id": "1", "pk": "b"}), None).await.expect("the same id under another key");
    })
    .await;
}

#[tokio::test]
async fn preconditions() {
    with_items(async |container| {
        let item = json!({"id": "1", "pk": "a"});
        let first = etag(&container.create_item("a", "1", &item, None).await.expect("created"));
        let second = etag(&container.replace_item("a", "1", &item, if_match(&first)).await.expect("replaced"));
        assert_eq!(refusal(container.replace_item("a", "1", &item, if_match(&first)).await), (412, 0));
        assert_eq!(refusal(container.upsert_item("a", "1", &item, if_match(&first)).await), (412, 0));
        assert_eq!(refusal(container.delete_item("a", "1", if_match(&first)).await), (412, 0));

        let unchanged = Precondition::if_none_match(second.clone());
        let read = container.read_item("a", "1", Some(ItemReadOptions::default().with_precondition(unchanged))).await;
        match read {
            Ok(response) => assert_eq!(status(&response), 304),
            Err(error) => assert_eq!(u16::from(error.status().status_code()), 304),
        }
        let changed = Precondition::if_none_match(first.clone());
        let read = container.read_item("a", "1", Some(ItemReadOptions::default().with_precondition(changed))).await.expect("read");
        assert_eq!(status(&read), 200);

        container.delete_item("a", "1", if_match("*")).await.expect("deleted");
        assert_eq!(refusal(container.replace_item("a", "1", &item, if_match(&second)).await), (404, 0));
        let inserted = container.upsert_item("a", "1", &item, if_match(&second)).await.expect("inserted");
        assert_eq!(status(&inserted), 201);
    })
    .await;
}

#[tokio::test]
async fn unique_keys() {
    let unique = UniqueKeyPolicy::default().with_unique_key(UniqueKey::default().with_path("/email").with_path("/team/name"));
    let properties = ContainerProperties::new("u", "/pk".into()).with_unique_key_policy(unique);
    with_container(properties, async |container| {
        let person = |id: &str, pk: &str, email: &str, team: &str| json!({"id": id, "pk": pk, "email": email, "team": {"name": team}});
        container.create_item("a", "1", person("1", "a", "x", "red"), None).await.expect("created");
        container.create_item("a", "2", person("2", "a", "x", "blue"), None).await.expect("created");
        container.create_item("b", "1", person("1", "b", "x", "red"), None).await.expect("created");
        let clash = person("3", "a", "x", "red");
        assert_eq!(refusal(container.create_item("a", "3", &clash, None).await), (409, 0));
        assert_eq!(refusal(container.upsert_item("a", "3", &clash, None).await), (409, 0));
        let moved = person("2", "a", "x", "red");
        assert_eq!(refusal(container.replace_item("a", "2", &moved, None).await), (409, 0));
        container.delete_item("a", "1", None).await.expect("deleted");
        container.replace_item("a", "2", &moved, None).await.expect("freed by the delete");
    })
    .await;
}

#[tokio::test]
async fn time_to_live() {
    let properties = ContainerProperties::new("t", "/pk".into()).with_default_ttl(TimeToLive::Seconds(1));
    with_container(properties, async |container| {
        container.create_item("a", "short", json!({"id": "short", "pk": "a"}), None).await.expect("created");
        container.create_item("a", "ever", json!({"id": "ever", "pk": "a", "ttl": -1}), None).await.expect("created");
        let end = Instant::now() + Duration::from_secs(10);
        while container.read_item("a", "short", None).await.is_ok() {
            assert!(Instant::now() < end, "the item did not expire");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(refusal(container.read_item("a", "short", None).await), (404, 0));
        container.read_item("a", "ever", None).await.expect("still there");
        container.create_item("a", "short", json!({"id": "short", "pk": "a"}), None).await.expect("created again");
        for ttl in [json!(0), json!(-2), json!("5"), json!(1.5), json!(null)] {
            let item = json!({"id": "bad", "pk": "a", "ttl": ttl});
            assert_eq!(refusal(container.create_item("a", "bad", &item, None).await), (400, 0), "{ttl}");
        }
    })
    .await;
}

#[tokio::test]
async fn size_limit() {
    with_items(async |container| {
        let fits = "x".repeat(2 * 1024 * 1024 - 2048);
        let item = json!({"id": "1", "pk": "a", "text": fits});
        container.create_item("a", "1", &item, None).await.expect("created");
        let read = body(container.read_item("a", "1", None).await.expect("read"));
        assert!(read["text"] == item["text"]);
        let large = json!({"id": "2", "pk": "a", "text": "x".repeat(2 * 1024 * 1024 + 1)});
        assert_eq!(refusal(container.create_item("a", "2", &large, None).await), (413, 0));
    })
    .await;
}

#[tokio::test]
async fn bodies_that_are_refused() {
    with_items(async |container| {
        for item in [
            json!({"pk": "a"}),
            json!({"id": 1, "pk": "a"}),
            json!({"id": "", "pk": "a"}),
            json!({"id": "i".repeat(1024), "pk": "a"}),
            json!([{"id": "1", "pk": "a"}]),
            json!("1"),
        ] {
            let refused = container.create_item("a", "1", &item, None).await;
            assert_eq!(refusal(refused).0, 400, "{item}");
        }
        let wrong = json!({"id": "1", "pk": "b"});
        assert_eq!(refusal(container.create_item("a", "1", &wrong, None).await), (400, 1001));
        assert_eq!(refusal(container.upsert_item("a", "1", &wrong, None).await), (400, 1001));
        container.create_item("a", "1", json!({"id": "1", "pk": "a"}), None).await.expect("created");
        // A replace may give the item another id.
        container.replace_item("a", "1", json!({"id": "2", "pk": "a"}), None).await.expect("renamed");
        assert_eq!(refusal(container.read_item("a", "1", None).await), (404, 0));
        container.read_item("a", "2", None).await.expect("read");
    })
    .await;
}

#[tokio::test]
async fn system_properties_in_the_body_are_replaced() {
    with_items(async |container| {
        let item = json!({"id": "1", "pk": "a", "_etag": "mine", "_ts": 1, "_rid": "mine", "_self": "mine"});
        let value = body(container.create_item("a", "1", &item, with_content()).await.expect("created"));
        for name in ["_etag", "_ts", "_rid", "_self"] {
            assert_ne!(value[name], item[name], "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn session_tokens() {
    with_items(async |container| {
        let item = json!({"id": "1", "pk": "a"});
        let created = container.create_item("a", "1", &item, None).await.expect("created");
        let token = created.headers().session_token().expect("a token").clone();
        container.read_item("a", "1", Some(ItemReadOptions::default().with_session_token(token))).await.expect("read in the session");
    })
    .await;
}

#[tokio::test]
async fn odd_ids() {
    with_items(async |container| {
        let long = "i".repeat(1023);
        for id in [
            "with space",
            " leading",
            "a+b",
            "a%20b",
            "100%",
            "a&b=c",
            "a;b,c",
            "é",
            "日本語",
            "😀",
            "'quoted'",
            "\"double\"",
            "a:b",
            "a@b",
            "$",
            "a.b",
            "...",
            "~tilde~",
            "(round)[square]{curly}",
            "<tag>",
            "a|b",
            "`tick`",
            "^",
            "dbs",
            "docs",
            long.as_str(),
        ] {
            let item = json!({"id": id, "pk": "a"});
            if let Err(error) = container.create_item("a", id, &item, None).await {
                panic!("create {id:?}: {error}");
            }
            let read = match container.read_item("a", id, None).await {
                Ok(read) => body(read),
                Err(error) => panic!("read {id:?}: {error}"),
            };
            assert_eq!(read["id"], id);
            container.replace_item("a", id, &item, None).await.expect("replaced");
            container.delete_item("a", id, None).await.expect("deleted");
            assert_eq!(refusal(container.read_item("a", id, None).await), (404, 0), "{id:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_recreated_container_is_empty() {
    with_database(async |database| {
        let properties = ContainerProperties::new("c", "/pk".into());
        let container = create(&database, properties.clone()).await;
        container.create_item("a", "1", json!({"id": "1", "pk": "a"}), None).await.expect("created");
        container.delete(None).await.expect("deleted");
        let container = create(&database, properties).await;
        assert_eq!(refusal(container.read_item("a", "1", None).await), (404, 0));
    })
    .await;
}
