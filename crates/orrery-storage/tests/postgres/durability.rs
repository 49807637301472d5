//! A commit whose answer was lost is acknowledged only when it is as safe as all others: where a standby must
//! have every commit, that one too. And while commits wait for it, reads do not.

use std::time::{Duration, Instant};

use orrery_storage::{CommitError, PartitionId, PartitionRef, ReadRequest};
use orrery_testing::Server;

use super::*;
use crate::suite::{PARTITION, get, op, put};

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
    options.doubt_patience = Duration::from_secs(6);
    options.commit_patience = Duration::from_mins(1);
    let store: Arc<dyn PartitionStore> = Arc::new(Postgres::open(options).await.unwrap());
    store.create(PARTITION.id, 0).await.unwrap();
    put(&store, b"key", b"before").await;
    let admin = connect(server.url()).await;
    // From now on every commit waits for a standby, and there is none.
    require_standby(&admin, Some("nobody")).await;
    // An administrator who loses patience: the server says "committed", with a warning.
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let (writing, early) = waiting_write(&store, b"cancelled", &admin, cancel).await;
    let error = writing.await.unwrap().unwrap_err();
    assert!(matches!(error, CommitError::Unknown(_)), "{error}");
    require_standby(&admin, None).await;
    assert_eq!(put(&store, b"between", b"value").await, 3 + early);

    // A server that is killed while it waits.
    require_standby(&admin, Some("nobody")).await;
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let (writing, earlier) = waiting_write(&store, b"after", &admin, waits).await;
    server.kill();
    server.wait();
    let began = Instant::now();
    let server = loop {
        if let Ok(server) = std::panic::catch_unwind(|| Server::start_durable(&place)) {
            break server;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "PostgreSQL does not start again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    // The server has the commit, as everybody can see, and its client must not be told so.
    let admin = connect(server.url()).await;
    let there = "SELECT count(*) FROM orrery.kv WHERE value = 'after'::bytea";
    assert_eq!(admin.query_one(there, &[]).await.unwrap().get::<_, i64>(0), 1, "the test has lost its point");
    let error = writing.await.unwrap().unwrap_err();
    assert!(matches!(error, CommitError::Unknown(_)), "{error}");
    // Once commits are safe again, work goes on from what was committed.
    require_standby(&admin, None).await;
    assert_eq!(put(&store, b"other", b"value").await, 5 + early + earlier);
    assert_eq!(get(&store, b"key").await.unwrap()[..], b"after"[..]);
    store.close().await.unwrap();
}

/// Writes that wait for a standby have connections for themselves; others are left for reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_go_on_while_commits_wait_for_a_standby() {
    const PARTITIONS: u32 = 8;
    let directory = tempfile::Builder::new().prefix("orrery-reads").tempdir_in("/tmp").unwrap();
    let server = Server::start_durable(&directory.path().join("pg"));
    let mut options = PostgresOptions::parse(server.url()).unwrap();
    options.connections_max = 4;
    let writing_max = 3;
    let store: Arc<dyn PartitionStore> = Arc::new(Postgres::open(options).await.unwrap());
    let partitions: Vec<PartitionRef> =
        (1..=PARTITIONS).map(|number| PartitionRef { id: PartitionId(number), epoch: 0 }).collect();
    for partition in &partitions {
        store.create(partition.id, 0).await.unwrap();
    }
    let admin = connect(server.url()).await;
    require_standby(&admin, Some("nobody")).await;
    let waiting = async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0)
    };
    let mut writes: Vec<Write> = Vec::new();
    let began = Instant::now();
    for partition in &partitions {
        // One after the other, so that each has a transaction of its own, until there is no room for more.
        let before = waiting().await;
        let mut write = write_to(&store, *partition, b"value");
        while before < writing_max && waiting().await == before {
            assert!(began.elapsed() < Duration::from_secs(30), "nobody waits");
            if write.is_finished() {
                write.await.unwrap().unwrap();
                write = write_to(&store, *partition, b"value");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        writes.push(write);
    }
    for _ in 0..50 {
        for partition in &partitions {
            let reading = store.read(*partition, ReadRequest::Get(vec![b"key".to_vec()]));
            tokio::time::timeout(Duration::from_secs(2), reading).await.expect("reads wait too").unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(waiting().await, writing_max);
    // Once the standby is not needed any more, all come to their end.
    require_standby(&admin, None).await;
    for write in writes {
        write.await.unwrap().unwrap();
    }
    store.close().await.unwrap();
}

type Write = tokio::task::JoinHandle<Result<orrery_storage::Committed<()>, CommitError>>;

fn write(store: &Arc<dyn PartitionStore>, value: &'static [u8]) -> Write {
    write_to(store, PARTITION, value)
}

fn write_to(store: &Arc<dyn PartitionStore>, partition: PartitionRef, value: &'static [u8]) -> Write {
    let store = Arc::clone(store);
    tokio::spawn(async move {
        let op = op(&[], move |_, _| {
            let mut writes = orrery_storage::WriteSet::default();
            writes.put(b"key".to_vec(), value.to_vec());
            orrery_storage::Decision::Write(writes, ())
        });
        orrery_storage::commit(&*store, partition, op).await
    })
}

/// Whom every commit waits for from now on.
async fn require_standby(admin: &tokio_postgres::Client, name: Option<&str>) {
    let name = name.unwrap_or_default();
    admin.batch_execute(&format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'")).await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    while admin.query_one("SHOW synchronous_standby_names", &[]).await.unwrap().get::<_, String>(0) != name {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A write that waits for the standby, and how many were done before: the process that tells the others to wait may
/// hear of it later than they do. Asks until there is an answer.
async fn waiting_write(
    store: &Arc<dyn PartitionStore>,
    value: &'static [u8],
    admin: &tokio_postgres::Client,
    question: &str,
) -> (Write, u64) {
    let began = Instant::now();
    let mut done = 0;
    let mut writing = write(store, value);
    while admin.query(question, &[]).await.unwrap().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30), "nobody waits");
        if writing.is_finished() {
            writing.await.unwrap().unwrap();
            done += 1;
            writing = write(store, value);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (writing, done)
}
