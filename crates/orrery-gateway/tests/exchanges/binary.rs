//! Bodies that are not text: binary JSON, HybridRow, and very large ones.

use orrery_gateway::auth::{print_date, sign_request};
use orrery_gateway::wire::{binary_json, hybrid_row};
use orrery_model::Value;

use crate::client::{Request, Response, send};
use crate::server::TestServer;

async fn post(server: &TestServer, target: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Response {
    let date = print_date(server.now_seconds);
    let authorization = sign_request(&server.primary, "POST", target, None, &date);
    let mut all = vec![("authorization".to_owned(), authorization), ("x-ms-date".to_owned(), date)];
    all.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let request = Request { method: "POST".to_owned(), target: target.to_owned(), headers: all, body };
    send(server.address, &request).await
}

const DOCS: &str = "/dbs/db/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["x"]"#);

async fn with_container() -> TestServer {
    let server = TestServer::start().await;
    assert_eq!(post(&server, "/dbs", &[], br#"{"id":"db"}"#.to_vec()).await.status, 201);
    let body = br#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    assert_eq!(post(&server, "/dbs/db/colls", &[], body.to_vec()).await.status, 201);
    server
}

#[tokio::test]
async fn items_can_be_sent_in_binary() {
    let server = with_container().await;
    let item = r#"{"id":"a","pk":"x","n":1.5,"list":[1,-2,true,null],"text":"é"}"#;
    let value = orrery_model::value::parse(item.as_bytes()).unwrap();
    let response = post(&server, DOCS, &[KEY], binary_json::encode(&value)).await;
    assert_eq!(response.status, 201, "{}", response.text());
    let stored = response.json().expect("answers are text unless something else is demanded");
    assert_eq!(stored.get("n"), value.get("n"));
    assert_eq!(stored.get("list"), value.get("list"));
    assert_eq!(stored.get("text"), value.get("text"));
    // Damaged buffers are the client's fault, and said to be.
    for body in [vec![0x80], vec![0x80, 0xFF, 0xFF], vec![0x80, 0xE8, 9, 9, 9, 9]] {
        let response = post(&server, DOCS, &[KEY], body).await;
        assert_eq!(response.status, 400, "{}", response.text());
    }
}

#[tokio::test]
async fn responses_are_binary_if_clients_support_it() {
    let server = with_container().await;
    let item = br#"{"id":"a","pk":"x","n":1.5,"list":[1,-2,true,null]}"#.to_vec();
    let accepts = ("x-ms-cosmos-supported-serialization-formats", "JsonText, CosmosBinary");
    let demands = ("x-ms-documentdb-content-serialization-format", "CosmosBinary");
    let created = post(&server, DOCS, &[KEY, accepts], item).await;
    let stored = binary_json::decode(&created.body, 10_000).unwrap();
    assert!(stored.starts_with(r#"{"id":"a","pk":"x","n":1.5,"list":[1,-2,true,null],"_rid":"#), "{stored}");
    let query = br#"{"query":"SELECT c.n FROM c"}"#.to_vec();
    let asks = [("content-type", "application/query+json"), KEY];
    let check = async |format: (&str, &str), is_binary: bool| {
        let page = post(&server, DOCS, &[asks[0], asks[1], format], query.clone()).await;
        assert_eq!((page.status, binary_json::is_binary(&page.body)), (200, is_binary), "{format:?}");
        let text = if is_binary { binary_json::decode(&page.body, 10_000).unwrap() } else { page.text() };
        assert!(text.contains(r#""Documents":[{"n":1.5}],"_count":1}"#), "{text}");
    };
    check(accepts, true).await;
    check(demands, true).await;
    for (formats, is_binary) in [
        ("COSMOSBINARY", true),
        ("JsonText, CosmosBinary, HybridRow", true),
        ("jsontext", false),
        ("JsonText CosmosBinary", false),
        ("JsonText, ", false),
        (",,", false),
    ] {
        check((accepts.0, formats), is_binary).await;
    }
}

fn vectors() -> Vec<serde_json::Value> {
    let text = include_str!("../data/hybridrow-batch.json");
    let whole: serde_json::Value = serde_json::from_str(text).unwrap();
    whole["cases"].as_array().unwrap().clone()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[tokio::test]
async fn batches_can_be_sent_as_hybrid_rows() {
    let batch = [
        ("x-ms-cosmos-is-batch-request", "True"),
        ("x-ms-cosmos-batch-atomic", "True"),
        ("x-ms-cosmos-batch-ordered", "True"),
        KEY,
    ];
    let mut sent = 0;
    for case in vectors().iter().filter(|case| case["direction"] == "request") {
        let server = with_container().await;
        // What the operations of the vectors work on.
        for (id, number) in [("b", 1), ("c", 2)] {
            let item = format!(r#"{{"id":"{id}","pk":"x","n":{number}}}"#);
            post(&server, DOCS, &[KEY], item.into_bytes()).await;
        }
        let body = bytes_of(case["bytes"].as_str().unwrap());
        let response = post(&server, DOCS, &batch, body).await;
        assert!(matches!(response.status, 200 | 207), "{case}: {}", response.text());
        assert!(hybrid_row::is_hybrid_row(&response.body), "rows are answered with rows");
        assert_eq!(response.header("content-type"), Some("application/octet-stream"));
        let operations = case["rows"].as_array().unwrap().len();
        // Every result is a record with the schema of results.
        let schema = 2_145_473_649_u32.to_le_bytes();
        let results = response.body.windows(4).filter(|window| *window == schema).count();
        assert_eq!(results, operations, "{case}");
        sent += 1;
    }
    assert!(sent > 3);
    // A whole request that is refused is refused in JSON.
    let server = with_container().await;
    let response = post(&server, DOCS, &batch, vec![0x81, 1, 2, 3]).await;
    assert_eq!(response.status, 400);
    assert_eq!(response.json().unwrap().get("code").and_then(Value::as_str), Some("BadRequest"));
}

#[tokio::test]
async fn large_bodies_are_rejected_with_a_message() {
    let server = with_container().await;
    let sized = |bytes: usize| {
        let empty = r#"{"id":"big","pk":"x","t":""}"#;
        format!(r#"{{"id":"big","pk":"x","t":"{}"}}"#, "y".repeat(bytes - empty.len())).into_bytes()
    };
    let limit = 2 * 1024 * 1024;
    let response = post(&server, DOCS, &[KEY], sized(limit)).await;
    assert_eq!(response.status, 201, "{}", response.text());
    for bytes in [limit + 1, 2 * limit, 8 * limit] {
        let response = post(&server, DOCS, &[KEY], sized(bytes)).await;
        assert_eq!(response.status, 413);
        let body = response.json().unwrap();
        assert_eq!(body.get("code").and_then(Value::as_str), Some("RequestEntityTooLarge"));
        assert!(body.get("message").and_then(Value::as_str).unwrap().contains("Request size is too large"));
        assert!(response.header("x-ms-request-charge").is_some());
    }
}
