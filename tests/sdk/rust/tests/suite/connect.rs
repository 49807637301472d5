//! Ways to reach the server: HTTP/2 with prior knowledge, HTTP/1.1, TLS, binary and text bodies.

use azure_data_cosmos::CosmosClient;
use azure_data_cosmos::models::ContainerProperties;
use orrery_sdk_rust::*;
use serde_json::json;

async fn round_trip(client: &CosmosClient, http2: bool) {
    round_trip_framed(client, http2, http2 && uses_gateway_v2()).await;
}

/// `expected_framed`: whether items go over Gateway 2.0.
async fn round_trip_framed(client: &CosmosClient, http2: bool, expected_framed: bool) {
    with_database_of(client, async |database| {
        let container = create(&database, ContainerProperties::new("c", "/pk".into())).await;
        let item = json!({"id": "1", "pk": "a", "n": 1.5, "list": [1, -2, null, true, "text"]});
        let created = container.create_item("a", "1", &item, None).await.expect("created");
        assert_eq!(status(&created), 201);
        let read = container.read_item("a", "1", None).await.expect("read");
        let versions: Vec<bool> = read.diagnostics().requests().iter().map(|request| request.transport_http_version().is_http2()).collect();
        assert!(versions.iter().all(|version| *version == http2), "HTTP/2 {versions:?}, expected {http2}");
        let framed = read.diagnostics().requests().iter().any(|request| request.transport_kind().is_gateway_v2());
        assert_eq!(framed, expected_framed, "Gateway 2.0");
        let value = body(read);
        assert_eq!(value["n"], 1.5);
        assert_eq!(value["list"], item["list"]);
    })
    .await;
}

#[tokio::test]
async fn plain_http_speaks_http2_with_prior_knowledge() {
    round_trip(&client().await, true).await;
}

#[tokio::test]
async fn plain_http_by_host_name() {
    let address = endpoint().replace("127.0.0.1", "localhost");
    let client = try_client_at(&address, EMULATOR_KEY, None, true).await.expect("connected");
    round_trip(&client, true).await;
}

#[tokio::test]
async fn plain_http_speaks_http1() {
    let client = try_client_at(&endpoint(), EMULATOR_KEY, None, false).await.expect("connected");
    round_trip(&client, false).await;
}

#[tokio::test]
async fn tls_speaks_http2() {
    for host in ["localhost", "127.0.0.1"] {
        let client = try_client_at(&secure_endpoint(host), EMULATOR_KEY, None, true).await.expect("connected");
        // The client accepts an emulator's certificate, but not for probing Gateway 2.0, which it then leaves alone.
        round_trip_framed(&client, true, false).await;
    }
}

#[tokio::test]
async fn tls_speaks_http1() {
    let client = try_client_at(&secure_endpoint("localhost"), EMULATOR_KEY, None, false).await.expect("connected");
    round_trip(&client, false).await;
}

#[tokio::test]
async fn text_bodies() {
    let client = try_client_at(&endpoint(), EMULATOR_KEY, Some(false), true).await.expect("connected");
    round_trip(&client, true).await;
}

#[tokio::test]
async fn binary_bodies() {
    let client = try_client_at(&endpoint(), EMULATOR_KEY, Some(true), true).await.expect("connected");
    round_trip(&client, true).await;
}

/// What is written as binary reads the same as what is written as text.
#[tokio::test]
async fn binary_and_text_agree() {
    let binary = try_client_at(&endpoint(), EMULATOR_KEY, Some(true), true).await.expect("connected");
    let text = try_client_at(&endpoint(), EMULATOR_KEY, Some(false), true).await.expect("connected");
    with_database_of(&binary, async |database| {
        let container = create(&database, ContainerProperties::new("c", "/pk".into())).await;
        let name = database.name().expect("named").to_owned();
        let other = text.database_client(&name).container_client("c", None).await.expect("found");
        for (number, value) in binary_json_cases().into_iter().enumerate() {
            let id = format!("{number}");
            let item = json!({"id": id, "pk": "a", "value": value});
            container.create_item("a", &id, &item, None).await.expect("created as binary");
            let read = body(other.read_item("a", &id, None).await.expect("read as text"));
            assert_eq!(doubles(&read["value"]), doubles(&value), "binary to text, case {number}");
            other.upsert_item("a", &id, &item, None).await.expect("written as text");
            let read = body(container.read_item("a", &id, None).await.expect("read as binary"));
            assert_eq!(doubles(&read["value"]), doubles(&value), "text to binary, case {number}");
        }
    })
    .await;
}

/// Values that exercise every marker the client's encoder can emit.
fn binary_json_cases() -> Vec<serde_json::Value> {
    let long = |length: usize| "x".repeat(length);
    vec![
        json!(null),
        json!(true),
        json!(false),
        json!([0, 31, 32, 255, 256, -1, -128, -129, 32767, 32768, 65535, 2147483647i64, 2147483648i64, -2147483649i64]),
        json!([9007199254740991i64, -9007199254740991i64, 0.1, -1.5, 1e300, 5e-324, 3.5e38]),
        json!(["", "a", long(63), long(64), long(255), long(256), long(65535), long(65536)]),
        json!([
            "0123456789abcdef",
            "0123456789ABCDEF",
            "2026-11-15T20:21:22.123Z",
            "d5a5cd4d-3c2e-4b7a-9f0e-1b2c3d4e5f60",
            "D5A5CD4D-3C2E-4B7A-9F0E-1B2C3D4E5F60"
        ]),
        json!(["id", "_etag", "coordinates", "Point", "é", "日本語", "😀", "\u{0}", "line\nbreak", "\"quoted\" \\"]),
        json!(["repeated string value", "repeated string value", "repeated string value"]),
        json!([]),
        json!({}),
        json!([[]]),
        json!({"one": 1}),
        json!({"a": {"b": {"c": [{"d": null}]}}}),
        json!((0..300).collect::<Vec<i32>>()),
        json!((0..300).map(|n| n as f64 * 0.375).collect::<Vec<f64>>()),
        json!((0..300).map(|n| format!("item {n}")).collect::<Vec<String>>()),
        json!([[1, 2, 3], [4, 5, 6], [7, 8, 9]]),
        json!({"type": "Point", "coordinates": [31.9, -4.8]}),
        json!((0..70000).map(|n| n % 7).collect::<Vec<i32>>()),
    ]
}

#[tokio::test]
async fn a_wrong_key_is_refused() {
    use std::error::Error as _;
    let wrong = "a2".repeat(42) + "aw==";
    let error = match try_client_at(&endpoint(), &wrong, None, true).await {
        Err(error) => error,
        Ok(client) => client.create_database(&unique_name("rust"), None).await.err().expect("the wrong key was accepted"),
    };
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(" / {cause}");
        source = cause.source();
    }
    assert!(u16::from(error.status().status_code()) == 401 || text.contains("401"), "not a 401: {text}");
}
