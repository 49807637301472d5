//! What clients see when PostgreSQL keeps them waiting.

use orrery_testing::Server as PostgresServer;

use crate::common::Server;
use crate::{read, sql, upsert};

/// Another session holds the lock of every partition for longer than a write is retried: the client gets a retryable
/// error, nothing was written, and reads are not blocked. Takes fifteen seconds, the time that writes are retried.
#[test]
fn a_write_that_cannot_get_its_lock_fails_and_changes_nothing() {
    let database = PostgresServer::start();
    let url = format!("{}?options=-c%20lock_timeout%3D500", database.url());
    let server = Server::on_store(&url);
    let mut client = server.client();
    client.create_container(&[]);
    let before = upsert(&mut client, "k", r#"{"id":"i","pk":"k","n":1}"#).unwrap();
    assert_eq!(before.status, 201);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let holder = runtime.block_on(async {
        let (holder, connection) =
            tokio_postgres::connect(database.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        holder.batch_execute("BEGIN; SELECT 1 FROM orrery.part FOR UPDATE").await.unwrap();
        holder
    });
    let refused = upsert(&mut client, "k", r#"{"id":"i","pk":"k","n":2}"#).unwrap();
    assert_eq!(refused.status, 503, "{}", refused.text());
    let body = refused.json();
    assert_eq!(body.get("code").and_then(|code| code.as_str()), Some("ServiceUnavailable"));
    assert!(refused.text().contains("Please retry"), "{}", refused.text());
    for header in ["x-ms-activity-id", "x-ms-request-charge"] {
        assert!(refused.header(header).is_some(), "{header}");
    }
    // Reads are not blocked, and the item is unchanged.
    let there = read(&mut client, "k", "i", &[]);
    assert_eq!(there.json().get("n").unwrap().as_i64(), Some(1));
    assert_eq!(there.header("etag"), before.header("etag"));
    runtime.block_on(async { holder.batch_execute("ROLLBACK").await.unwrap() });
    let numbers = sql(&url, "SELECT max(lsn) FROM orrery.part WHERE part <> 0");
    let after = upsert(&mut client, "k", r#"{"id":"i","pk":"k","n":3}"#).unwrap();
    assert_eq!(after.status, 200, "{}", after.text());
    let next = sql(&url, "SELECT max(lsn) FROM orrery.part WHERE part <> 0");
    let number = |rows: &[String]| rows[0].parse::<u64>().unwrap();
    assert_eq!(number(&next), number(&numbers) + 1, "the refused write left a trace");
    server.stop();
}
