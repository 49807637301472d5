//! What resource tokens may do: every kind of token against every operation, by name and by RID.
//!
//! The table says for each request which tokens it is granted to. All others must get 403 and change nothing. Granted
//! means that the request gets past authorisation; the status says what comes then.

use orrery_model::Value;

use crate::client::{Request, Response, send};
use crate::script::authorization;
use crate::server::TestServer;

/// The tokens by the letters that the table uses: mode, what below the container, partition key.
const TOKENS: [(char, &str, &str, Option<&str>); 14] = [
    ('R', "Read", "", None),
    ('W', "All", "", None),
    ('r', "Read", "", Some("a")),
    ('w', "All", "", Some("a")),
    ('i', "All", "docs/{1}", None),
    ('k', "All", "docs/{1}", Some("a")),
    ('j', "Read", "docs/{1}", Some("a")),
    ('p', "All", "sprocs/{s}", None),
    ('q', "Read", "sprocs/{s}", None),
    ('e', "All", "sprocs/{s}", Some("a")),
    ('t', "All", "triggers/{t}", None),
    ('T', "All", "triggers/{t}", Some("a")),
    ('f', "All", "udfs/{u}", None),
    ('F', "All", "udfs/{u}", Some("a")),
];

const ITEM_A: &str = r#"{"id":"1","pk":"a"}"#;
const ITEM_B: &str = r#"{"id":"1","pk":"b","text":"hidden"}"#;
const NEW_A: &str = r#"{"id":"new","pk":"a"}"#;
const NEW_B: &str = r#"{"id":"new","pk":"b"}"#;
const PATCH: &str = r#"{"operations":[{"op":"set","path":"/x","value":1}]}"#;
const QUERY: &str = r#"{"query":"SELECT * FROM c"}"#;
const QUERY_B: &str = r#"{"query":"SELECT * FROM c WHERE c.pk = 'b'"}"#;
const QUERY_UDF: &str = r#"{"query":"SELECT VALUE udf.u() FROM c"}"#;
const BATCH_A: &str = r#"[{"operationType":"Upsert","resourceBody":{"id":"new","pk":"a"}}]"#;
const BATCH_B: &str = r#"[{"operationType":"Upsert","resourceBody":{"id":"new","pk":"b"}}]"#;
const BATCH_READ: &str = r#"[{"operationType":"Read","id":"1"}]"#;
const BULK_AB: &str = r#"[{"operationType":"Upsert","partitionKey":"[\"b\"]","resourceBody":{"id":"1","pk":"b"}},{"operationType":"Read","partitionKey":"[\"b\"]","id":"1"}]"#;
const SCRIPT: &str = r#"{"id":"more","body":"function () {}"}"#;
const TRIGGER: &str = r#"{"id":"more","body":"function () {}","triggerType":"Pre","triggerOperation":"All"}"#;
const PROCEDURE: &str = r#"{"id":"s","body":"function () { __.response.setBody(1); }"}"#;
const PROCEDURE_2: &str = r#"{"id":"s2","body":"function () { __.response.setBody(1); }"}"#;
const TRIGGER_T: &str = r#"{"id":"t","body":"function () {}","triggerType":"Pre","triggerOperation":"All"}"#;
const FUNCTION: &str = r#"{"id":"u","body":"function () { return 1; }"}"#;
const CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;

/// Method, path, headers in short, body, status once granted (by name), tokens that it is granted to.
type Row = (&'static str, &'static str, &'static str, &'static str, u16, &'static str);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    // The account and databases: nothing but the account document.
    ("GET", "/", "", "", 200, "R W r w i k j p q e t T f F"),
    ("GET", "/dbs", "", "", 0, ""),
    ("POST", "/dbs", "a", r#"{"id":"x"}"#, 0, ""),
    ("POST", "/dbs", "query", QUERY, 0, ""),
    ("GET", "/dbs/{d}", "a", "", 0, ""),
    ("DELETE", "/dbs/{d}", "a", "", 0, ""),
    ("GET", "/dbs/{d}/colls", "a", "", 0, ""),
    ("POST", "/dbs/{d}/colls", "a", r#"{"id":"x","partitionKey":{"paths":["/pk"],"kind":"Hash"}}"#, 0, ""),
    ("POST", "/dbs/{d}/colls", "a query", QUERY, 0, ""),
    ("GET", "/dbs/{d}/users", "a", "", 0, ""),
    ("POST", "/dbs/{d}/users", "a", r#"{"id":"x"}"#, 0, ""),
    ("GET", "/dbs/{d}/users/u", "a", "", 0, ""),
    ("PUT", "/dbs/{d}/users/u", "a", r#"{"id":"x"}"#, 0, ""),
    ("DELETE", "/dbs/{d}/users/u", "a", "", 0, ""),
    ("GET", "/dbs/{d}/users/u/permissions", "a", "", 0, ""),
    ("POST", "/dbs/{d}/users/u/permissions", "a", r#"{"id":"x","permissionMode":"All","resource":"dbs/db/colls/c"}"#, 0, ""),
    ("GET", "/dbs/{d}/users/u/permissions/W", "a", "", 0, ""),
    ("PUT", "/dbs/{d}/users/u/permissions/r", "a", r#"{"id":"r","permissionMode":"All","resource":"dbs/db/colls/c"}"#, 0, ""),
    ("DELETE", "/dbs/{d}/users/u/permissions/W", "a", "", 0, ""),
    ("GET", "/dbs/{d}/clientencryptionkeys", "a", "", 0, ""),
    ("POST", "/dbs/{d}/clientencryptionkeys", "a", "{}", 0, ""),
    ("GET", "/offers", "a", "", 0, ""),
    ("POST", "/offers", "a query", QUERY, 0, ""),
    ("GET", "/offers/{o}", "a", "", 0, ""),
    ("PUT", "/offers/{o}", "a", "{}", 0, ""),
    ("GET", "/addresses", "a", "", 0, ""),
    ("GET", "/_orrery/partitions", "a", "", 0, ""),
    ("POST", "/_orrery/partitions/split", "a", "{}", 0, ""),
    ("GET", "/dbs/{d}/colls/other", "a", "", 0, ""),
    ("GET", "/dbs/{d}/colls/other/pkranges", "a", "", 0, ""),
    ("GET", "/dbs/{d}/colls/other/docs", "a", "", 0, ""),
    ("GET", "/dbs/{d}/colls/other/docs/1", "a", "", 0, ""),
    ("POST", "/dbs/{d}/colls/other/docs", "a plan", QUERY, 0, ""),
    ("POST", "/dbs/{d}/colls/other/docs", "a", NEW_A, 0, ""),
    // The container.
    ("GET", "{c}", "", "", 200, "R W r w i k j p q e"),
    ("HEAD", "{c}", "", "", 200, "R W r w i k j p q e"),
    ("GET", "{c}/pkranges", "", "", 200, "R W r w i k j p q e"),
    ("GET", "{c}", "a quota", "", 200, "R W"),
    ("GET", "{c}", "a statistics", "", 200, "R W"),
    ("PUT", "{c}", "", CONTAINER, 200, "W"),
    ("PUT", "{c}", "a", CONTAINER, 200, "W"),
    ("PATCH", "{c}", "a", CONTAINER, 405, "W"),
    ("POST", "{c}", "a", CONTAINER, 405, "W"),
    ("POST", "{c}/pkranges", "a", "{}", 405, "W"),
    ("GET", "{c}/conflicts", "a", "", 200, "R W"),
    ("POST", "{c}/conflicts", "a query", QUERY, 200, "R W"),
    ("POST", "{c}/conflicts", "a plan", QUERY, 405, "R W"),
    ("DELETE", "{c}/conflicts/1", "a", "", 404, "W"),
    // Reading items.
    ("GET", "{c}/docs/{1}", "a", "", 200, "R W r w i k j"),
    ("HEAD", "{c}/docs/{1}", "a", "", 200, "R W r w i k j"),
    ("GET", "{c}/docs/{1}", "b", "", 200, "R W i"),
    ("GET", "{c}/docs/{1}", "", "", 400, "R W i"),
    ("GET", "{c}/docs/{2}", "a", "", 200, "R W r w"),
    ("GET", "{c}/docs", "", "", 200, "R W"),
    ("GET", "{c}/docs", "a", "", 200, "R W r w"),
    ("GET", "{c}/docs", "b", "", 200, "R W"),
    ("GET", "{c}/docs", "range", "", 200, "R W"),
    ("GET", "{c}/docs", "a range window", "", 200, "R W r w"),
    ("GET", "{c}/docs", "changes", "", 200, "R W"),
    ("GET", "{c}/docs", "a changes", "", 200, "R W r w"),
    ("GET", "{c}/docs", "b changes", "", 200, "R W"),
    ("GET", "{c}/docs", "range changes", "", 200, "R W"),
    ("GET", "{c}/docs", "a versions", "", 400, "R W r w"),
    ("GET", "{c}/docs", "range versions", "", 400, "R W"),
    ("POST", "{c}/docs", "a query", QUERY, 200, "R W r w"),
    ("POST", "{c}/docs", "a query", QUERY_B, 200, "R W r w"),
    ("POST", "{c}/docs", "a query", QUERY_UDF, 200, "R W r w"),
    ("POST", "{c}/docs", "b query", QUERY, 200, "R W"),
    ("POST", "{c}/docs", "query", QUERY, 400, "R W"),
    ("POST", "{c}/docs", "query cross", QUERY, 200, "R W"),
    ("POST", "{c}/docs", "query range", QUERY, 200, "R W"),
    ("POST", "{c}/docs", "query window", QUERY, 200, "R W"),
    ("POST", "{c}/docs", "a query range window cross", QUERY_B, 200, "R W r w"),
    ("POST", "{c}/docs", "empty query", QUERY, 200, "R W"),
    ("POST", "{c}/docs", "plan", QUERY, 200, "R W r w"),
    ("POST", "{c}/docs", "a plan", QUERY, 200, "R W r w"),
    ("POST", "{c}/docs", "b plan", QUERY, 200, "R W"),
    // Writing items.
    ("POST", "{c}/docs", "a upsert", NEW_A, 0, "W w"),
    ("POST", "{c}/docs", "b upsert", NEW_B, 0, "W"),
    ("POST", "{c}/docs", "upsert", NEW_B, 0, "W"),
    ("POST", "{c}/docs", "empty upsert", NEW_B, 400, "W"),
    ("POST", "{c}/docs", "a", ITEM_A, 409, "W w"),
    ("POST", "{c}/docs", "b", ITEM_B, 409, "W"),
    ("POST", "{c}/docs", "a", NEW_B, 400, "W w"),
    ("POST", "{c}/docs", "a upsert before", NEW_A, 0, "W w"),
    ("POST", "{c}/docs", "b upsert before", NEW_B, 0, "W"),
    ("PUT", "{c}/docs/{1}", "a", ITEM_A, 200, "W w i k"),
    ("PUT", "{c}/docs/{1}", "b", ITEM_B, 200, "W i"),
    ("PUT", "{c}/docs/{1}", "a", ITEM_B, 400, "W w i k"),
    ("PUT", "{c}/docs/{2}", "a", r#"{"id":"2","pk":"a"}"#, 200, "W w"),
    ("PATCH", "{c}/docs/{1}", "a", PATCH, 200, "W w i k"),
    ("PATCH", "{c}/docs/{1}", "b", PATCH, 200, "W i"),
    ("POST", "{c}/docs/{1}", "a", ITEM_A, 405, "W w i k"),
    ("POST", "{c}/docs", "a batch", BATCH_A, 200, "W w"),
    ("POST", "{c}/docs", "a batch", BATCH_B, 207, "W w"),
    ("POST", "{c}/docs", "b batch", BATCH_B, 200, "W"),
    ("POST", "{c}/docs", "a batch", BATCH_READ, 200, "W w"),
    ("POST", "{c}/docs", "a bulk", BULK_AB, 207, "W w"),
    ("POST", "{c}/docs", "range bulk", BULK_AB, 200, "W"),
    ("POST", "{c}/docs", "bulk", BULK_AB, 200, "W"),
    // Scripts.
    ("GET", "{c}/sprocs", "", "", 200, "R W"),
    ("GET", "{c}/sprocs", "a", "", 200, "R W"),
    ("POST", "{c}/sprocs", "a query", QUERY, 200, "R W"),
    ("POST", "{c}/sprocs", "a plan", QUERY, 405, "R W"),
    ("POST", "{c}/sprocs", "a upsert", SCRIPT, 0, "W"),
    ("GET", "{c}/sprocs/{s}", "a", "", 200, "R W p q"),
    ("PUT", "{c}/sprocs/{s}", "a", PROCEDURE, 200, "W p"),
    ("POST", "{c}/sprocs/{s}", "a", "[]", 200, "W w p e"),
    ("POST", "{c}/sprocs/{s}", "b", "[]", 200, "W p"),
    ("POST", "{c}/sprocs/{s}", "", "[]", 400, "W p"),
    ("POST", "{c}/sprocs/{s}", "range", "[]", 400, "W p"),
    ("GET", "{c}/sprocs/{s2}", "a", "", 200, "R W"),
    ("PUT", "{c}/sprocs/{s2}", "a", PROCEDURE_2, 200, "W"),
    ("POST", "{c}/sprocs/{s2}", "a", "[]", 200, "W w"),
    ("GET", "{c}/triggers", "a", "", 200, "R W"),
    ("POST", "{c}/triggers", "a upsert", TRIGGER, 0, "W"),
    ("GET", "{c}/triggers/{t}", "a", "", 200, "R W t"),
    ("PUT", "{c}/triggers/{t}", "a", TRIGGER_T, 200, "W t"),
    ("POST", "{c}/triggers/{t}", "a", "[]", 405, "W t"),
    ("GET", "{c}/udfs", "a", "", 200, "R W"),
    ("POST", "{c}/udfs", "a upsert", SCRIPT, 0, "W"),
    ("GET", "{c}/udfs/{u}", "a", "", 200, "R W f"),
    ("PUT", "{c}/udfs/{u}", "a", FUNCTION, 200, "W f"),
    ("POST", "{c}/udfs/{u}", "a", "[]", 405, "W f"),
    // What ends things comes last.
    ("DELETE", "{c}/docs/{2}", "a", "", 204, "W w"),
    ("DELETE", "{c}/docs/{1}", "b", "", 204, "W i"),
    ("DELETE", "{c}/docs/{1}", "a", "", 204, "W w i k"),
    ("POST", "{c}/operations/partitionkeydelete", "b", "", 200, "W"),
    ("POST", "{c}/operations/partitionkeydelete", "", "", 400, "W"),
    ("POST", "{c}/operations/partitionkeydelete", "a", "", 200, "W w"),
    ("DELETE", "{c}/sprocs/{s2}", "a", "", 204, "W"),
    ("DELETE", "{c}/sprocs/{s}", "a", "", 204, "W p"),
    ("DELETE", "{c}/triggers/{t}", "a", "", 204, "W t"),
    ("DELETE", "{c}/udfs/{u}", "a", "", 204, "W f"),
    ("DELETE", "{c}", "a", "", 204, "W"),
];

fn headers_of(short: &str) -> Vec<(String, String)> {
    let pairs = short.split_whitespace().flat_map(|word| -> &[(&str, &str)] {
        match word {
            "a" => &[("x-ms-documentdb-partitionkey", r#"["a"]"#)],
            "b" => &[("x-ms-documentdb-partitionkey", r#"["b"]"#)],
            "empty" => &[("x-ms-documentdb-partitionkey", "[]")],
            "query" => &[("x-ms-documentdb-isquery", "True"), ("content-type", "application/query+json")],
            "plan" => &[("x-ms-cosmos-is-query-plan-request", "True"), ("x-ms-documentdb-isquery", "True")],
            "cross" => &[("x-ms-documentdb-query-enablecrosspartition", "True")],
            "range" => &[("x-ms-documentdb-partitionkeyrangeid", "0")],
            "window" => &[("x-ms-start-epk", ""), ("x-ms-end-epk", "FF")],
            "changes" => &[("a-im", "Incremental feed")],
            "versions" => &[("a-im", "Full-Fidelity Feed")],
            "upsert" => &[("x-ms-documentdb-is-upsert", "True")],
            "before" => &[("x-ms-documentdb-pre-trigger-include", "t")],
            "batch" => &[("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-atomic", "True")],
            "bulk" => &[("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-atomic", "False")],
            "quota" => &[("x-ms-documentdb-populatequotainfo", "True")],
            "statistics" => &[("x-ms-documentdb-populatepartitionstatistics", "True")],
            other => panic!("unknown header {other}"),
        }
    });
    pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A server with what the table speaks of.
struct World {
    server: TestServer,
    /// What the placeholders of paths stand for.
    names: Vec<(&'static str, String)>,
}

impl World {
    async fn start(by_rid: bool) -> Self {
        let mut world = Self { server: TestServer::start().await, names: Vec::new() };
        let rid = |value: &Value| value.get("_rid").and_then(Value::as_str).unwrap().to_owned();
        let database = world.create("/dbs", "", r#"{"id":"db"}"#).await;
        let container = world.create("/dbs/db/colls", "", CONTAINER).await;
        world.create("/dbs/db/colls", "", &CONTAINER.replace("\"c\"", "\"other\"")).await;
        world.create("/dbs/db/users", "", r#"{"id":"u"}"#).await;
        let made = world.restore().await;
        let offers = world.master("GET", "/offers", "", "").await.json().unwrap();
        let offers = offers.get("Offers").and_then(Value::as_array).unwrap().to_vec();
        let link = container.get("_self").and_then(Value::as_str).unwrap().trim_matches('/').to_owned();
        let (d, c) = if by_rid {
            (rid(&database), format!("/{link}"))
        } else {
            ("db".to_owned(), "/dbs/db/colls/c".to_owned())
        };
        world.names = vec![("{d}", d), ("{c}", c), ("{o}", rid(&offers[0]))];
        for (name, value) in ["{1}", "{2}", "{s}", "{s2}", "{t}", "{u}"].into_iter().zip(&made) {
            let id = value.get("id").and_then(Value::as_str).unwrap().to_owned();
            world.names.push((name, if by_rid { rid(value) } else { id }));
        }
        world
    }

    /// Makes again what a granted request may have changed or removed.
    async fn restore(&self) -> Vec<Value> {
        self.create("/dbs/db/colls/c/docs", "b upsert", ITEM_B).await;
        let mut made = Vec::new();
        for (path, headers, body) in [
            ("docs", "a upsert", ITEM_A),
            ("docs", "a upsert", r#"{"id":"2","pk":"a"}"#),
            ("sprocs", "upsert", PROCEDURE),
            ("sprocs", "upsert", PROCEDURE_2),
            ("triggers", "upsert", TRIGGER_T),
            ("udfs", "upsert", FUNCTION),
        ] {
            made.push(self.create(&format!("/dbs/db/colls/c/{path}"), headers, body).await);
        }
        made
    }

    async fn create(&self, path: &str, headers: &str, body: &str) -> Value {
        let response = self.master("POST", path, headers, body).await;
        assert!(response.status < 300, "{path} {}", response.text());
        response.json().unwrap()
    }

    fn filled(&self, path: &str) -> String {
        self.names.iter().fold(path.to_owned(), |path, (name, value)| path.replace(name, value))
    }

    async fn master(&self, method: &str, path: &str, headers: &str, body: &str) -> Response {
        self.send("primary", method, path, headers, body).await
    }

    async fn send(&self, caller: &str, method: &str, path: &str, headers: &str, body: &str) -> Response {
        let target = self.filled(path);
        let mut headers = headers_of(headers);
        headers.extend(authorization(&self.server, caller, method, &target));
        let request = Request { method: method.to_owned(), target, headers, body: body.as_bytes().to_vec() };
        send(self.server.address, &request).await
    }

    /// Everything that a refused request must not have changed.
    async fn fingerprint(&self) -> Vec<Option<Value>> {
        let mut parts = Vec::new();
        for path in ["", "/docs", "/sprocs", "/triggers", "/udfs"] {
            let response = self.master("GET", &format!("/dbs/db/colls/c{path}"), "", "").await;
            parts.push(response.json());
        }
        for path in ["/dbs", "/dbs/db/colls", "/dbs/db/users", "/offers"] {
            parts.push(self.master("GET", path, "", "").await.json());
        }
        parts
    }

    async fn token(&self, token: (char, &str, &str, Option<&str>)) -> String {
        let (letter, mode, below, key) = token;
        // Tokens for the container are by name, whichever way it is used; those below it are as they are used.
        let link = match below {
            "" => "dbs/db/colls/c".to_owned(),
            below => self.filled(&format!("{{c}}/{below}")),
        };
        let key = key.map_or(String::new(), |key| format!(r#","resourcePartitionKey":["{key}"]"#));
        let body = format!(r#"{{"id":"{letter}","permissionMode":"{mode}","resource":"{link}"{key}}}"#);
        let created = self.create("/dbs/db/users/u/permissions", "", &body).await;
        format!("bearer {}", created.get("_token").and_then(Value::as_str).unwrap())
    }
}

async fn check(by_rid: bool) {
    let mut failures = Vec::new();
    for token in TOKENS {
        let world = World::start(by_rid).await;
        let caller = world.token(token).await;
        let letter = token.0;
        let is_granted = |row: &&Row| row.5.contains(letter);
        let before = world.fingerprint().await;
        for row in ROWS.iter().filter(|row| !is_granted(row)) {
            let &(method, path, headers, body, ..) = row;
            let response = world.send(&caller, method, path, headers, body).await;
            if response.status != 403 {
                failures
                    .push(format!("{letter} {method} {path} {headers} is not refused: {}", response.text()));
            }
        }
        if world.fingerprint().await != before {
            failures.push(format!("{letter}: a refused request has changed something"));
        }
        for row in ROWS.iter().filter(is_granted) {
            let &(method, path, headers, body, status, _) = row;
            let response = world.send(&caller, method, path, headers, body).await;
            let context = format!("{letter} {method} {path} {headers} {}", response.text());
            let expected = if by_rid || status == 0 { response.status } else { status };
            if matches!(response.status, 401 | 403) || response.status != expected {
                failures.push(format!("{} {context}", response.status));
            }
            // Nothing of another key comes with it.
            if token.3.is_some() && response.text().contains("hidden") {
                failures.push(format!("another key: {context}"));
            }
            if method != "GET" && path != "{c}" {
                world.restore().await;
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test]
async fn tokens_grant_what_the_table_says_by_name() {
    check(false).await;
}

#[tokio::test]
async fn tokens_grant_what_the_table_says_by_rid() {
    check(true).await;
}

/// Tokens end with what they were issued for, over the wire too.
#[tokio::test]
async fn tokens_are_revoked_at_once() {
    for (method, path, body, still_reads) in [
        ("DELETE", "/dbs/db/users/u/permissions/W", "", false),
        ("DELETE", "/dbs/db/users/u", "", false),
        ("DELETE", "/dbs/db/colls/c", "", false),
        ("DELETE", "/dbs/db", "", false),
        (
            "PUT",
            "/dbs/db/users/u/permissions/W",
            r#"{"id":"W","permissionMode":"Read","resource":"dbs/db/colls/c"}"#,
            true,
        ),
    ] {
        let world = World::start(false).await;
        let caller = world.token(TOKENS[1]).await;
        let write = async || world.send(&caller, "PUT", "{c}/docs/{1}", "a", ITEM_A).await.status;
        let read = async || world.send(&caller, "GET", "{c}/docs/{1}", "a", "").await.status;
        assert_eq!((write().await, read().await), (200, 200));
        let response = world.master(method, path, "", body).await;
        assert!(response.status < 300, "{path} {}", response.text());
        assert_eq!(write().await, 403, "{path}");
        assert_eq!(read().await, if still_reads { 200 } else { 403 }, "{path}");
        if path == "/dbs/db/colls/c" {
            // Another container of this name is none of the token's business.
            world.create("/dbs/db/colls", "", CONTAINER).await;
            world.restore().await;
            assert_eq!((write().await, read().await), (403, 403));
        }
    }
}

/// The same names on another server: a token of one account is worth nothing at another.
#[tokio::test]
async fn tokens_cannot_be_replayed_at_another_account() {
    let (world, other) = (World::start(false).await, World::start(false).await);
    let caller = other.token(TOKENS[1]).await;
    world.token(TOKENS[1]).await;
    assert_eq!(other.send(&caller, "GET", "{c}/docs/{1}", "a", "").await.status, 200);
    assert_eq!(world.send(&caller, "GET", "{c}/docs/{1}", "a", "").await.status, 401);
}
