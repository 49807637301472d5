//! Transactional batches.

use azure_data_cosmos::TransactionalBatch;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::{ContainerProperties, TransactionalBatchResponse};
use azure_data_cosmos::options::{BatchOptions, BatchReplaceOptions, ContentResponseOnWrite, OperationOptions, Precondition};
use orrery_sdk_rust::*;
use serde_json::{Value, json};

async fn run(container: &ContainerClient, batch: TransactionalBatch) -> TransactionalBatchResponse {
    let mut operation = OperationOptions::default();
    operation.content_response_on_write = Some(ContentResponseOnWrite::Enabled);
    let options = BatchOptions::default().with_operation_options(operation);
    let response = container.execute_transactional_batch(batch, Some(options)).await.expect("executed");
    assert!(response.headers().session_token().is_some());
    response.into_model().expect("a body")
}

fn statuses(response: &TransactionalBatchResponse) -> Vec<u16> {
    response.results().iter().map(|result| result.status_code()).collect()
}

#[tokio::test]
async fn success() {
    with_items(async |container| {
        for id in ["replaced", "deleted", "read"] {
            container.create_item("a", id, json!({"id": id, "pk": "a", "n": 1}), None).await.expect("created");
        }
        let batch = TransactionalBatch::new("a")
            .create_item(json!({"id": "created", "pk": "a"}))
            .and_then(|batch| batch.upsert_item(json!({"id": "upserted", "pk": "a"}), None))
            .and_then(|batch| batch.replace_item("replaced", json!({"id": "replaced", "pk": "a", "n": 2}), None))
            .expect("a batch")
            .delete_item("deleted", None)
            .read_item("read", None)
            .read_item("created", None);
        let response = run(&container, batch).await;
        assert_eq!(statuses(&response), [201, 201, 200, 204, 200, 200]);
        let results = response.results();
        assert!(results[0].etag().expect("an etag").starts_with('"'));
        assert!(results[0].request_charge().expect("a charge") > 0.0);
        assert_eq!(results[2].into_model::<Value>().expect("JSON").expect("a body")["n"], 2);
        assert_eq!(results[5].into_model::<Value>().expect("JSON").expect("a body")["id"], "created");
        assert_eq!(refusal(container.read_item("a", "deleted", None).await), (404, 0));
    })
    .await;
}

#[tokio::test]
async fn failure_changes_nothing() {
    with_items(async |container| {
        container.create_item("a", "there", json!({"id": "there", "pk": "a", "n": 1}), None).await.expect("created");
        let batch = TransactionalBatch::new("a")
            .create_item(json!({"id": "new", "pk": "a"}))
            .and_then(|batch| batch.replace_item("there", json!({"id": "there", "pk": "a", "n": 2}), None))
            .and_then(|batch| batch.create_item(json!({"id": "there", "pk": "a"})))
            .and_then(|batch| batch.upsert_item(json!({"id": "last", "pk": "a"}), None))
            .expect("a batch");
        let failed = container.execute_transactional_batch(batch, None).await;
        match failed {
            Ok(response) => {
                let response = response.into_model().expect("a body");
                assert_eq!(statuses(&response), [424, 424, 409, 424]);
            }
            Err(error) => assert!([207, 409].contains(&u16::from(error.status().status_code())), "{error}"),
        }
        assert_eq!(refusal(container.read_item("a", "new", None).await), (404, 0));
        assert_eq!(refusal(container.read_item("a", "last", None).await), (404, 0));
        assert_eq!(body(container.read_item("a", "there", None).await.expect("read"))["n"], 1);
    })
    .await;
}

#[tokio::test]
async fn preconditions() {
    with_items(async |container| {
        let item = json!({"id": "1", "pk": "a"});
        let first = etag(&container.create_item("a", "1", &item, None).await.expect("created"));
        let second = etag(&container.replace_item("a", "1", &item, None).await.expect("replaced"));
        let replace = |etag: &str| {
            let options = BatchReplaceOptions::default().with_precondition(Precondition::if_match(etag.to_owned()));
            TransactionalBatch::new("a").replace_item("1", json!({"id": "1", "pk": "a", "n": 1}), Some(options)).expect("a batch")
        };
        let stale = container.execute_transactional_batch(replace(&first), None).await;
        match stale {
            Ok(response) => assert_eq!(statuses(&response.into_model().expect("a body")), [412]),
            Err(error) => assert!([207, 412].contains(&u16::from(error.status().status_code())), "{error}"),
        }
        assert_eq!(statuses(&run(&container, replace(&second)).await), [200]);
    })
    .await;
}

#[tokio::test]
async fn limits() {
    with_items(async |container| {
        let fill = |count: usize, text: &str| {
            let mut batch = TransactionalBatch::new("a");
            for number in 0..count {
                batch = batch.create_item(json!({"id": format!("{number}"), "pk": "a", "text": text})).expect("a batch");
            }
            batch
        };
        assert_eq!(refusal(container.execute_transactional_batch(fill(101, ""), None).await), (400, 0));
        let large = "x".repeat(1024 * 1024);
        assert_eq!(refusal(container.execute_transactional_batch(fill(3, &large), None).await), (413, 0));
        assert_eq!(run(&container, fill(100, "")).await.results().len(), 100);
    })
    .await;
}

#[tokio::test]
async fn hierarchical_key() {
    with_container(ContainerProperties::new("h", ("/tenant", "/user").into()), async |container| {
        let batch = TransactionalBatch::new(("t", "u"))
            .create_item(json!({"id": "1", "tenant": "t", "user": "u"}))
            .expect("a batch")
            .read_item("1", None);
        assert_eq!(statuses(&run(&container, batch).await), [201, 200]);
    })
    .await;
}
