//! Synchronous standbys: a commit whose reply was lost is acknowledged only once the standby has it, like every other
//! commit. While commits wait for a standby, reads are served.

use std::time::{Duration, Instant};

use orrery_storage::{CommitError, PartitionId, PartitionRef, ReadRequest};
use orrery_testing::{Server, wait};

use super::*;
use crate::suite::{PARTITION, get, op, put};

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_with_a_lost_reply_waits_for_the_standby() {
    let directory = tempfile::Builder::new().prefix("orrery-doubt").tempdir_in("/tmp").unwrap();
    let place = directory.path().join("pg");
    let server = Server::start_durable(&place);
    let mut options = PostgresOptions::parse(server.url()).unwrap();
    options.resolve_timeout = Duration::from_secs(6);
    options.commit_timeout = Duration::from_mins(1);
    let store: Arc<dyn PartitionStore> = Arc::new(Postgres::open(options).await.unwrap());
    store.create(PARTITION.id, 0).await.unwrap();
    put(&store, b"key", b"before").await;
    let admin = connect(server.url()).await;
    // From now on every commit waits for a standby that does not exist.
    require_standby(&admin, Some("nobody")).await;
    // An administrator cancels the wait: the server reports success, with a warning.
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let (writing, early) = waiting_write(&store, b"cancelled", &admin, cancel).await;
    let error = writing.await.unwrap().unwrap_err();
    assert!(matches!(error, CommitError::Unknown(_)), "{error}");
    require_standby(&admin, None).await;
    assert_eq!(put(&store, b"between", b"value").await, 3 + early);

    // The server is killed during the wait.
    require_standby(&admin, Some("nobody")).await;
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let (writing, earlier) = waiting_write(&store, b"after", &admin, waits).await;
    server.kill();
    server.wait();
    let server = wait::until("PostgreSQL to start again", || {
        std::panic::catch_unwind(|| Server::start_durable(&place)).ok()
    });
    // The server has the commit and shows it to everyone, but its client must not get an acknowledgement.
    let admin = connect(server.url()).await;
    let there = "SELECT count(*) FROM orrery.kv WHERE value = 'after'::bytea";
    assert_eq!(
        admin.query_one(there, &[]).await.unwrap().get::<_, i64>(0),
        1,
        "the test no longer exercises this case"
    );
    let error = writing.await.unwrap().unwrap_err();
    assert!(matches!(error, CommitError::Unknown(_)), "{error}");
    // Once commits are safe again, the store continues from what was committed.
    require_standby(&admin, None).await;
    assert_eq!(put(&store, b"other", b"value").await, 5 + early + earlier);
    assert_eq!(get(&store, b"key").await.unwrap()[..], b"after"[..]);
    store.close().await.unwrap();
}

/// Writes that wait for a standby use only a part of the connections; the others stay free for reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_work_while_commits_wait_for_a_standby() {
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
        // One after the other, so that each has its own transaction, until no write connection is left.
        let before = waiting().await;
        let mut write = write_to(&store, *partition, b"value");
        while before < writing_max && waiting().await == before {
            assert!(began.elapsed() < Duration::from_secs(30), "no write waits for the standby");
            if write.is_finished() {
                write.await.unwrap().unwrap();
                write = write_to(&store, *partition, b"value");
            }
            wait::pause_task().await;
        }
        writes.push(write);
    }
    for _ in 0..50 {
        for partition in &partitions {
            let reading = store.read(*partition, ReadRequest::Get(vec![b"key".to_vec()]));
            tokio::time::timeout(Duration::from_secs(2), reading).await.expect("reads wait too").unwrap();
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting().await, writing_max);
    // Once the standby is no longer required, all of them finish.
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

/// Sets the standby that every commit waits for from now on.
async fn require_standby(admin: &tokio_postgres::Client, name: Option<&str>) {
    let name = name.unwrap_or_default();
    admin.batch_execute(&format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'")).await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    wait::eventually_true("the setting", async || {
        admin.query_one("SHOW synchronous_standby_names", &[]).await.unwrap().get::<_, String>(0) == name
    })
    .await;
}

/// Starts writes until one waits for the standby; returns it and the number of writes before it. The setting reaches
/// the server's processes at different times, so the first ones may succeed.
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
        assert!(began.elapsed() < Duration::from_secs(30), "no write waits for the standby");
        if writing.is_finished() {
            writing.await.unwrap().unwrap();
            done += 1;
            writing = write(store, value);
        }
        wait::pause_task().await;
    }
    (writing, done)
}
