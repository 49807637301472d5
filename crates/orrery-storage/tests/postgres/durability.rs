//! A commit whose answer was lost is acknowledged only when it is as safe as all others: where a standby must
//! have every commit, that one too.

use std::time::{Duration, Instant};

use orrery_storage::CommitError;
use orrery_testing::Server;

use super::*;
use crate::suite::{PARTITION, get, op, put, run};

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_not_taken_for_safe_before_the_standby_has_it() {
    let directory = tempfile::Builder::new().prefix("orrery-doubt").tempdir_in("/tmp").unwrap();
    let place = directory.path().join("pg");
    let server = Server::start_durable(&place);
    let mut options = PostgresOptions::parse(server.url()).unwrap();
    options.doubt_patience = Duration::from_secs(8);
    options.commit_patience = Duration::from_secs(60);
    let store: Arc<dyn PartitionStore> = Arc::new(Postgres::open(options).await.unwrap());
    store.create(PARTITION.id, 0).await.unwrap();
    put(&store, b"key", b"before").await;
    let admin = connect(server.url()).await;
    // From now on every commit waits for a standby, and there is none.
    admin.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let shown = |row: &tokio_postgres::Row| row.get::<_, String>(0) == "nobody";
    while !shown(&admin.query_one("SHOW synchronous_standby_names", &[]).await.unwrap()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let write = op(&[], |_, _| {
        let mut writes = orrery_storage::WriteSet::default();
        writes.put(b"key".to_vec(), b"after".to_vec());
        orrery_storage::Decision::Write(writes, ())
    });
    let writing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { run(&store, write).await })
    };
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let began = Instant::now();
    while admin.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(began.elapsed() < Duration::from_secs(30) && !writing.is_finished(), "nobody waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.kill();
    server.wait();
    let server = loop {
        if let Ok(server) = std::panic::catch_unwind(|| Server::start_durable(&place)) {
            break server;
        }
        assert!(began.elapsed() < Duration::from_mins(2), "PostgreSQL does not start again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    // The server has the commit, as everybody can see, and its client must not be told so.
    let admin = connect(server.url()).await;
    let there =
        admin.query_one("SELECT count(*) FROM orrery.kv WHERE value = 'after'::bytea", &[]).await.unwrap();
    assert_eq!(there.get::<_, i64>(0), 1, "the test has lost its point");
    let error = writing.await.unwrap().unwrap_err();
    assert!(matches!(error, CommitError::Unknown(_)), "{error}");
    // Once commits are safe again, work goes on from what was committed.
    admin.batch_execute("ALTER SYSTEM RESET synchronous_standby_names").await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    assert_eq!(put(&store, b"other", b"value").await, 3);
    assert_eq!(get(&store, b"key").await.unwrap()[..], b"after"[..]);
    store.close().await.unwrap();
}
