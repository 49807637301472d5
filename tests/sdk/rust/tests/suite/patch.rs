//! Patches, by the service and by the client's own read and conditional replace.

use azure_data_cosmos::models::{PatchInstructions, PatchOperation};
use azure_data_cosmos::options::{ContentResponseOnWrite, OperationOptions, PatchItemOptions, PatchStrategy, Precondition};
use orrery_sdk_rust::*;
use serde_json::json;

fn options(strategy: PatchStrategy) -> PatchItemOptions {
    let mut operation = OperationOptions::default();
    operation.content_response_on_write = Some(ContentResponseOnWrite::Enabled);
    PatchItemOptions::default().with_operation_options(operation).with_strategy(strategy)
}

#[tokio::test]
async fn every_operation() {
    with_items(async |container| {
        let item = json!({"id": "1", "pk": "a", "name": "x", "count": 40, "old": true, "from": 5, "list": ["a", "c"], "sub": {"p": 1}});
        for strategy in [PatchStrategy::ServerSide, PatchStrategy::ClientSide, PatchStrategy::Auto] {
            container.upsert_item("a", "1", &item, None).await.expect("written");
            let patch = PatchInstructions::new()
                .with_operation(PatchOperation::set("/name", json!("y")))
                .with_operation(PatchOperation::add("/list/1", json!("b")))
                .with_operation(PatchOperation::add("/list/-", json!("d")))
                .with_operation(PatchOperation::replace("/sub/p", json!(2)))
                .with_operation(PatchOperation::remove("/old"))
                .with_operation(PatchOperation::increment("/count", 2))
                .with_operation(PatchOperation::move_value("/from", "/to"));
            let patched = container.patch_item("a", "1", patch, Some(options(strategy))).await.expect("patched");
            assert_eq!(status(&patched), 200);
            let value = body(container.read_item("a", "1", None).await.expect("read"));
            assert_eq!(value["name"], "y", "{strategy:?}");
            assert_eq!(value["list"], json!(["a", "b", "c", "d"]), "{strategy:?}");
            assert_eq!(value["sub"], json!({"p": 2}), "{strategy:?}");
            assert_eq!(value["count"], 42, "{strategy:?}");
            assert_eq!(value["to"], 5, "{strategy:?}");
            assert!(value.get("old").is_none() && value.get("from").is_none(), "{strategy:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn refused_by_the_service() {
    with_items(async |container| {
        let item = json!({"id": "1", "pk": "a", "s": "text", "list": [1]});
        let before = etag(&container.create_item("a", "1", &item, None).await.expect("created"));
        for operation in [
            PatchOperation::set("/_ts", json!(1)),
            PatchOperation::add("/no/such", json!(1)),
            PatchOperation::replace("/none", json!(1)),
            PatchOperation::remove("/none"),
            PatchOperation::increment("/s", 1),
            PatchOperation::add("/list/5", json!(1)),
        ] {
            let path = operation.path().to_owned();
            let patch = PatchInstructions::new().with_operation(PatchOperation::set("/touched", json!(true))).with_operation(operation);
            let refused = container.patch_item("a", "1", patch, Some(options(PatchStrategy::ServerSide))).await;
            assert_eq!(refusal(refused), (400, 0), "{path}");
        }
        let patch = || PatchInstructions::new().with_operation(PatchOperation::set("/n", json!(1)));
        let absent = container.patch_item("a", "absent", patch(), Some(options(PatchStrategy::ServerSide))).await;
        assert_eq!(refusal(absent), (404, 0));
        let read = container.read_item("a", "1", None).await.expect("read");
        assert_eq!(etag(&read), before);
        let stale = options(PatchStrategy::ServerSide).with_precondition(Precondition::if_match("\"stale\"".to_owned()));
        assert_eq!(refusal(container.patch_item("a", "1", patch(), Some(stale)).await), (412, 0));
    })
    .await;
}
