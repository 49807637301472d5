//! The PostgreSQL store: the conformance suite, and behaviour specific to it.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

#[macro_use]
mod suite;

#[path = "postgres/access.rs"]
mod access;
#[path = "postgres/durability.rs"]
mod durability;
#[path = "postgres/migrations.rs"]
mod migrations;
#[path = "postgres/routes.rs"]
mod routes;
#[path = "postgres/statements.rs"]
mod statements;
#[path = "postgres/together.rs"]
mod together;

use std::sync::Arc;

use orrery_storage::{Limits, PartitionStore, Postgres, PostgresOptions};
use orrery_testing::wait;

use crate::suite::Subject;

fn open(url: &str, limits: Limits) -> Arc<dyn PartitionStore> {
    let mut options = PostgresOptions::parse(url).unwrap();
    options.limits = limits;
    options.connections_max = 6;
    let opening = async move { Postgres::open(options).await.unwrap() };
    Arc::new(tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(opening)))
}

fn postgres(limits: Limits) -> Subject {
    let url = orrery_testing::fresh_store_url();
    let store = open(&url, limits);
    Subject { store, reopen: Some(Box::new(move || open(&url, limits))), keep: Box::new(()) }
}

conformance!(postgres_store, postgres);

async fn admin() -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(&orrery_testing::store_url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn is_citus(admin: &tokio_postgres::Client) -> bool {
    !admin.query("SELECT 1 FROM pg_extension WHERE extname = 'citus'", &[]).await.unwrap().is_empty()
}

/// Terminates busy connections with this application name (on a cluster, on all nodes) until `done`; returns how many.
async fn cut_until(admin: &tokio_postgres::Client, name: &str, done: impl Fn() -> bool) -> usize {
    let cutting = if is_citus(admin).await {
        "SELECT r.result FROM run_command_on_all_nodes(format('SELECT count(pg_terminate_backend(pid)) \
         FROM pg_stat_activity WHERE application_name = %L AND state <> ''idle''', $1::text)) AS r \
         WHERE r.result <> '0'"
    } else {
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE application_name = $1::text AND state <> 'idle'"
    };
    let mut cut = 0;
    while !done() {
        cut += admin.query(cutting, &[&name]).await.unwrap().len();
        wait::pause_task().await;
    }
    cut
}

mod shared {
    //! Two processes on one store, simulated by two store instances.

    use std::time::Duration;

    use bytes::Bytes;
    use orrery_storage::{CommitError, Decision, PostgresError, ReadRequest, WriteSet};

    use super::*;
    use crate::suite::{PARTITION, get, op, put, run};

    fn increment() -> crate::suite::TestOp<u64> {
        op(&[b"count"], |view, _| {
            let count =
                view.get(b"count").map_or(0, |value| u64::from_be_bytes((&value[..]).try_into().unwrap()));
            let mut writes = WriteSet::default();
            writes.put(b"count".to_vec(), (count + 1).to_be_bytes().to_vec());
            Decision::Write(writes, count + 1)
        })
    }

    /// Writers on two stores whose connections are terminated repeatedly: every answer must be true.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn lost_connections_neither_lose_nor_repeat_commits() {
        let url = orrery_testing::fresh_store_url();
        let name = format!("cut{}", std::process::id());
        let named = format!("{url}&application_name={name}");
        let stores = [open(&named, Limits::COMMON), open(&named, Limits::COMMON)];
        stores[0].create(PARTITION.id, 0).await.unwrap();
        let writers: Vec<_> = (0..16)
            .map(|writer| {
                let store = Arc::clone(&stores[writer % 2]);
                tokio::spawn(async move {
                    let mut answers = Vec::new();
                    for _ in 0..60 {
                        let done = run(&store, increment()).await.unwrap();
                        answers.push((done.lsn, done.out));
                    }
                    answers
                })
            })
            .collect();
        let done = || writers.iter().all(tokio::task::JoinHandle::is_finished);
        let cut = cut_until(&admin().await, &name, done).await;
        let mut answers = Vec::new();
        for writer in writers {
            answers.extend(writer.await.unwrap());
        }
        answers.sort_unstable();
        let expected: Vec<(u64, u64)> = (1..=960).map(|number| (number, number)).collect();
        assert_eq!(answers, expected, "after {cut} cuts");
        assert_eq!(get(&stores[1], b"count").await.unwrap()[..], 960_u64.to_be_bytes());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn stores_are_notified_of_each_others_writes() {
        let url = orrery_testing::fresh_store_url();
        let [one, other] = [open(&url, Limits::COMMON), open(&url, Limits::COMMON)];
        one.create(PARTITION.id, 0).await.unwrap();
        let waiting = {
            let other = Arc::clone(&other);
            tokio::spawn(async move { other.wait_lsn(PARTITION.id, 0, Duration::from_secs(20)).await })
        };
        assert_eq!(put(&one, b"key", b"value").await, 1);
        assert_eq!(waiting.await.unwrap().unwrap(), 1);
        one.retire(PARTITION).await.unwrap();
        assert_eq!(run(&other, increment()).await.unwrap_err(), CommitError::Fenced);
        assert!(other.read(PARTITION, ReadRequest::Get(vec![])).await.is_err());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn duties_and_notes() {
        let url = orrery_testing::fresh_store_url();
        let [one, other] = [open(&url, Limits::COMMON), open(&url, Limits::COMMON)];
        let (here, there) = (one.coordination().unwrap(), other.coordination().unwrap());
        let duty = here.try_duty("work").await.unwrap().expect("the duty is free");
        duty.check().await.unwrap();
        assert!(there.try_duty("work").await.unwrap().is_none());
        assert!(there.try_duty("other work").await.unwrap().is_some());
        duty.release().await;
        let duty = there.try_duty("work").await.unwrap().expect("it was released");
        // A process that dies loses its duty.
        drop(duty);
        let _taken = wait::eventually("the duty", async || here.try_duty("work").await.unwrap()).await;
        let age = Duration::from_mins(1);
        assert_eq!(here.exchange_notes(Bytes::from("a"), age).await.unwrap(), ["a"]);
        assert_eq!(there.exchange_notes(Bytes::from("b"), age).await.unwrap(), ["b", "a"]);
        assert_eq!(here.exchange_notes(Bytes::from("c"), age).await.unwrap(), ["c", "b"]);
        other.close().await.unwrap();
        assert_eq!(here.exchange_notes(Bytes::from("d"), age).await.unwrap(), ["d"]);
    }

    async fn refusal(url: &str) -> PostgresError {
        Postgres::open(PostgresOptions::parse(url).unwrap()).await.err().expect("it is refused")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn unusable_servers_are_reported() {
        let url = orrery_testing::fresh_store_url();
        let error = refusal(&format!("{url}&pool_max=5000")).await;
        assert!(matches!(error, PostgresError::TooFewConnections { .. }), "{error}");
        let error = refusal("postgres://nobody@127.0.0.1:1/none").await;
        assert!(matches!(error, PostgresError::Unreachable { .. }), "{error}");
        // Tables of a later version.
        let (before, version) = Postgres::initialise(&PostgresOptions::parse(&url).unwrap()).await.unwrap();
        assert!(before == 0 && version > 1, "{before} to {version}");
        let again = Postgres::initialise(&PostgresOptions::parse(&url).unwrap()).await.unwrap();
        assert_eq!(again, (version, version));
        let status = Postgres::status(&PostgresOptions::parse(&url).unwrap()).await.unwrap();
        assert_eq!((status.schema_version, status.gateways), (version, 0));
        assert!(!status.nodes.is_empty());
        let schema = url.rsplit("schema=").next().unwrap();
        let admin = admin().await;
        admin.batch_execute(&format!("UPDATE {schema}.meta SET value = '99'")).await.unwrap();
        let error = refusal(&url).await;
        assert!(matches!(error, PostgresError::SchemaTooNew { found: 99, .. }), "{error}");
        // A user without the privilege to create tables.
        let user = format!("poor_{}", std::process::id());
        admin.batch_execute(&format!("DROP ROLE IF EXISTS {user}; CREATE ROLE {user} LOGIN")).await.unwrap();
        let fresh = orrery_testing::fresh_store_url().replacen("postgres@", &format!("{user}@"), 1);
        let error = refusal(&fresh).await;
        assert!(matches!(error, PostgresError::MissingRight { .. }), "{error}");
        // A read-only server.
        admin
            .batch_execute(&format!("ALTER ROLE {user} SET default_transaction_read_only = on"))
            .await
            .unwrap();
        let error = refusal(&fresh).await;
        assert!(matches!(error, PostgresError::ReadOnly { .. }), "{error}");
        admin.batch_execute(&format!("DROP ROLE {user}")).await.unwrap();
    }
}
