//! Queries that a container refuses, and what it says.

use orrery_model::{ErrorKind, Result};

use crate::common::{BY_PK, CONTAINER, World, everything};
use crate::run::{self, Way, request};

async fn try_rows(world: &World, text: &str) -> Result<usize> {
    let way = Way { scope: everything(), page_size: -1, without_index: false };
    run::rows(world, CONTAINER, &request(text), &way).await.map(|rows| rows.len())
}

async fn world(members: &str) -> World {
    let world = World::memory().await;
    let comma = if members.is_empty() { "" } else { "," };
    world.create_container(&format!("{BY_PK}{comma}{members}")).await;
    world.create(r#"{"id":"1","pk":"a","a":1,"b":{"c":2},"text":"red bicycle"}"#).await;
    world
}

const EXCLUDED: &str =
    r#"{"Errors":["The index path corresponding to the specified order-by item is excluded."]}"#;
const NO_COMPOSITE: &str = r#"{"Errors":["The order by query does not have a corresponding composite index that it can be served from."]}"#;

async fn check_refused(world: &World, text: &str, message: &str) {
    let error = try_rows(world, text).await.unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::InvalidQuery, message), "{text}");
}

#[tokio::test]
async fn sorting_requires_an_index() {
    let policy = r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/a/?"},{"path":"/b/*"}],"compositeIndexes":[[{"path":"/x"},{"path":"/y"}]]}"#;
    let world = world(policy).await;
    for text in [
        "SELECT * FROM c ORDER BY c.a",
        "SELECT * FROM c ORDER BY c.a DESC",
        "SELECT * FROM c ORDER BY c.b.c",
        "SELECT * FROM c.b AS x ORDER BY x.c",
        "SELECT * FROM c ORDER BY c._etag",
    ] {
        if text.contains("_etag") {
            continue; // This policy includes it.
        }
        check_refused(&world, text, EXCLUDED).await;
    }
    for text in ["SELECT * FROM c ORDER BY c.x DESC, c.y", "SELECT * FROM c ORDER BY c.y, c.x"] {
        check_refused(&world, text, NO_COMPOSITE).await;
    }
    for text in [
        "SELECT * FROM c ORDER BY c.other",
        "SELECT * FROM c ORDER BY c.id",
        "SELECT * FROM c ORDER BY c._ts DESC",
        "SELECT * FROM c ORDER BY c.x, c.y",
        "SELECT * FROM c ORDER BY c.x DESC, c.y DESC",
        // A filter on what is not indexed is a scan, not a fault.
        "SELECT * FROM c WHERE c.a = 1",
    ] {
        assert_eq!(try_rows(&world, text).await, Ok(1), "{text}");
    }
    check_refused(&self::world("").await, "SELECT * FROM c ORDER BY c._etag", EXCLUDED).await;
}

#[tokio::test]
async fn without_an_index_only_sorting_is_rejected() {
    let world = world(r#""indexingPolicy":{"indexingMode":"none","automatic":false}"#).await;
    check_refused(&world, "SELECT * FROM c ORDER BY c.id", EXCLUDED).await;
    for text in
        ["SELECT * FROM c WHERE c.a = 1", "SELECT * FROM c WHERE c.b.c > 1", "SELECT VALUE COUNT(1) FROM c"]
    {
        assert_eq!(try_rows(&world, text).await, Ok(1), "{text}");
    }
}

#[tokio::test]
async fn computed_properties_sort_only_if_the_policy_lists_them() {
    let property = r#""computedProperties":[{"name":"cp","query":"SELECT VALUE c.a * 2 FROM c"}]"#;
    let unnamed = world(property).await;
    check_refused(&unnamed, "SELECT * FROM c ORDER BY c.cp", EXCLUDED).await;
    let policy = r#""indexingPolicy":{"includedPaths":[{"path":"/*"},{"path":"/cp/?"}]}"#;
    let named = world(&format!("{property},{policy}")).await;
    assert_eq!(try_rows(&named, "SELECT VALUE c.cp FROM c ORDER BY c.cp").await, Ok(1));
}

#[tokio::test]
async fn computed_properties_are_validated_on_container_creation() {
    let world = world("").await;
    for (name, query) in [
        ("cp", "SELECT c.a FROM c"),
        ("cp", "SELECT VALUE c.a FROM c WHERE c.a > 1"),
        ("cp", "SELECT VALUE COUNT(1) FROM c"),
        ("cp", "SELECT VALUE udf.f(c.a) FROM c"),
        ("cp", "SELECT VALUE c.cp FROM c"),
        ("cp", "SELECT VALUE"),
    ] {
        let members = format!(r#"{BY_PK},"computedProperties":[{{"name":"{name}","query":"{query}"}}]"#);
        let error = world.create_named("other", &members, None).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::InvalidQuery | ErrorKind::BadRequest), "{query}: {error}");
        let error = world.replace_container(&members).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::InvalidQuery | ErrorKind::BadRequest), "{query}: {error}");
    }
}

/// As in the SDKs' own tests: the index makes it faster, not possible.
#[tokio::test]
async fn full_text_scores_need_no_full_text_index() {
    let policy = r#""fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/text","language":"en-US"}]}"#;
    let index = r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],"fullTextIndexes":[{"path":"/text"}]}"#;
    let text = "SELECT TOP 5 * FROM c ORDER BY RANK FullTextScore(c.text, 'red')";
    for members in [policy.to_owned(), format!("{policy},{index}")] {
        assert_eq!(try_rows(&world(&members).await, text).await, Ok(1), "{members}");
    }
}

#[tokio::test]
async fn user_functions_must_exist() {
    let world = world("").await;
    for text in [
        "SELECT udf.f(c.id) FROM c",
        "SELECT * FROM c WHERE udf.f(c.id) > 1",
        "SELECT VALUE x FROM c JOIN (SELECT VALUE udf.f(c.id)) x",
    ] {
        let error = try_rows(&world, text).await.unwrap_err();
        assert!(error.kind == ErrorKind::BadRequest && error.message.contains("udf.f"), "{text}: {error}");
    }
    // What is not called is not missed.
    let text = "SELECT * FROM c WHERE EXISTS(SELECT VALUE 1 FROM t IN c.nothing WHERE udf.f(t))";
    assert_eq!(try_rows(&world, text).await, Ok(0));
}

#[tokio::test]
async fn unbounded_growth_is_rejected() {
    let world = world("").await;
    let repeated = |text: &str, count: usize, between: &str| vec![text; count].join(between);
    for text in [
        format!("SELECT * FROM c WHERE c.a IN ({})", repeated("1", 16_001, ",")),
        format!("SELECT VALUE {}1{} FROM c", "[".repeat(300), "]".repeat(300)),
        format!("SELECT * FROM c {}", (0..11).map(|n| format!("JOIN t{n} IN c.tags ")).collect::<String>()),
        format!("SELECT * FROM c WHERE {}", repeated("c.a = 1", 8_100, " OR ")),
        format!("SELECT VALUE {} FROM c", repeated("-", 5000, "")),
    ] {
        let result = try_rows(&world, &text).await;
        let refused = matches!(&result, Err(error) if error.kind == ErrorKind::InvalidQuery);
        assert!(refused, "{}: {result:?}", &text[..60]);
    }
    let long = format!(r#"{{"query":"SELECT {} FROM c"}}"#, "1".repeat(512 * 1024));
    let error = orrery_db::QueryRequest::parse(long.as_bytes()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadRequest);
}
