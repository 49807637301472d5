//! Servers on PostgreSQL: moving stores, failover, backups, timeouts, and what several servers share.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod failover;
mod restore;
mod sharing;
mod statements;
mod store_move;
mod timeouts;

use common::{Client, DOCS, Response};
use orrery_model::Value;

fn upsert(client: &mut Client, key: &str, body: &str) -> std::io::Result<Response> {
    let key = format!(r#"["{key}"]"#);
    let headers = [("x-ms-documentdb-partitionkey", key.as_str()), ("x-ms-documentdb-is-upsert", "true")];
    client.send("POST", DOCS, &headers, body.as_bytes())
}

fn read(client: &mut Client, key: &str, id: &str, more: &[(&str, &str)]) -> Response {
    let key = format!(r#"["{key}"]"#);
    let mut headers = vec![("x-ms-documentdb-partitionkey", key.as_str())];
    headers.extend_from_slice(more);
    client.send("GET", &format!("{DOCS}/{id}"), &headers, b"").unwrap()
}

/// The changes of a partition after a position, and the next position.
fn changes(client: &mut Client, range: &str, after: Option<&str>) -> (Vec<Value>, String) {
    let mut headers = vec![("a-im", "Incremental feed"), ("x-ms-documentdb-partitionkeyrangeid", range)];
    headers.extend(after.map(|after| ("if-none-match", after)));
    let (mut items, mut next) = (Vec::new(), after.map(str::to_owned));
    loop {
        let mut headers = headers.clone();
        headers.retain(|(name, _)| *name != "if-none-match");
        headers.extend(next.as_deref().map(|next| ("if-none-match", next)));
        let answer = client.send("GET", DOCS, &headers, b"").unwrap();
        let position = answer.header("etag").unwrap().to_owned();
        if answer.status == 304 {
            return (items, position);
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        items.extend(answer.json().get("Documents").unwrap().as_array().unwrap().iter().cloned());
        next = Some(position);
    }
}

fn ranges(client: &mut Client) -> Vec<String> {
    let answer = client.send("GET", "/dbs/db/colls/c/pkranges", &[], b"").unwrap().json();
    let ranges = answer.get("PartitionKeyRanges").unwrap().as_array().unwrap();
    ranges.iter().map(|range| range.get("id").unwrap().as_str().unwrap().to_owned()).collect()
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).unwrap().as_str().unwrap()
}

/// Runs statements as an administrator; returns the first column of each row.
fn sql(url: &str, statement: &str) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = url.split('?').next().unwrap();
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let messages = client.simple_query(statement).await.unwrap();
        drop(client);
        connection.await.unwrap().ok();
        messages
            .iter()
            .filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
            .collect()
    })
}
