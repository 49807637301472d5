//! The store on a Citus cluster: routing, placement, and moving shards without loss.
//!
//! These tests need a running cluster, named by `ORRERY_TEST_STORE_URL`; without one they are skipped with a message.
//! `ORRERY_TEST_CITUS_RESTART` may name a command that kills and restarts a worker, and `ORRERY_TEST_CITUS_SPARE` a
//! server (host:port) that may join the cluster.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::print_stderr,
    unused_macros,
    reason = "tests"
)]

#[path = "citus/outages.rs"]
mod outages;
#[macro_use]
mod suite;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orrery_storage::{
    CommitError, PartitionId, PartitionStore, Postgres, PostgresOptions, ReadRequest, commit,
};
use orrery_testing::citus::{self, Citus};
use orrery_testing::wait;
use tokio::sync::{Mutex, MutexGuard};

use crate::suite::outage::{increment, place};

/// Exclusive use of the cluster: some tests kill nodes that the others need.
async fn cluster() -> Option<(Citus, MutexGuard<'static, ()>)> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    let alone = ALONE.lock().await;
    let found = Citus::find().await;
    if found.is_none() {
        eprintln!("skipped: ORRERY_TEST_STORE_URL names no Citus cluster with two workers");
    }
    Some((found?, alone))
}

async fn open(url: &str) -> Arc<dyn PartitionStore> {
    let mut options = PostgresOptions::parse(url).unwrap();
    options.connections_max = 6;
    Arc::new(Postgres::open(options).await.unwrap())
}

/// Reads and writes of a partition go to its owner and touch no other worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_to_the_owner() {
    let Some((cluster, _alone)) = cluster().await else { return };
    let workers = cluster.workers().await;
    for worker in &workers {
        let url = orrery_testing::fresh_store_url();
        let schema = orrery_testing::schema_of(&url).to_owned();
        Postgres::initialise(&PostgresOptions::parse(&url).unwrap()).await.unwrap();
        let mut number = 0;
        while cluster.owner(&schema, number).await.1 != *worker {
            number += 1;
        }
        let partition = place(PartitionId(number.cast_unsigned()));
        let name = format!("owner{}_{number}", std::process::id());
        let store = open(&format!("{url}&application_name={name}")).await;
        store.create(partition.id, 0).await.unwrap();
        for _ in 0..20 {
            commit(&*store, partition, increment()).await.unwrap();
            store.read(partition, ReadRequest::Get(vec![b"count".to_vec()])).await.unwrap();
        }
        for node in &workers {
            let client = cluster.connect(node).await;
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 \
                 AND (query LIKE '%kv%' OR query = 'COMMIT')";
            let sessions: i64 = client.query_one(sql, &[&name]).await.unwrap().get(0);
            assert_eq!(sessions > 0, node == worker, "{sessions} sessions at {node:?}, owner {worker:?}");
        }
        store.close().await.unwrap();
    }
}

/// New partitions are spread over all nodes and shards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_partitions_are_spread_out() {
    let Some((cluster, _alone)) = cluster().await else { return };
    let url = orrery_testing::fresh_store_url();
    let schema = orrery_testing::schema_of(&url).to_owned();
    let store = open(&url).await;
    let chosen = store.choose_ids(1, 8, Vec::new()).await.unwrap();
    assert!(chosen.is_sorted() && chosen[0].0 >= 1);
    let (mut shards, mut nodes) = (BTreeSet::new(), BTreeMap::<_, usize>::new());
    for id in &chosen {
        store.create(*id, 0).await.unwrap();
        let (shard, node) = cluster.owner(&schema, id.0.cast_signed()).await;
        shards.insert(shard);
        *nodes.entry(node).or_default() += 1;
    }
    assert_eq!(shards.len(), 8, "{chosen:?}");
    let (least, most) = (nodes.values().min().unwrap(), nodes.values().max().unwrap());
    assert_eq!(nodes.len(), cluster.workers().await.len());
    assert!(most - least <= 1, "{nodes:?}");
    // The children of a split are on two nodes, as far from their siblings as possible.
    let next = chosen.last().unwrap().0 + 1;
    let children = store.choose_ids(next, 2, vec![chosen[0]]).await.unwrap();
    let (_, one) = cluster.owner(&schema, children[0].0.cast_signed()).await;
    let (_, other) = cluster.owner(&schema, children[1].0.cast_signed()).await;
    assert_ne!(one, other);
    let status = Postgres::status(&PostgresOptions::parse(&url).unwrap()).await.unwrap();
    assert!(status.citus_version.is_some());
    let listed: usize = status.nodes.iter().map(|node| node.partitions.len()).sum();
    assert_eq!(listed, 8);
    for node in status.nodes.iter().filter(|node| !node.partitions.is_empty()) {
        assert!(node.index_bytes > 0 && node.shards > 0 && node.failure.is_none(), "{node:?}");
    }
    store.close().await.unwrap();
}

/// Writers on two stores while every shard moves, a node joins and leaves, and a worker is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_shards_loses_nothing() {
    let Some((cluster, _alone)) = cluster().await else { return };
    let url = orrery_testing::fresh_store_url();
    let schema = orrery_testing::schema_of(&url).to_owned();
    let stores = [open(&url).await, open(&url).await];
    let partitions = stores[0].choose_ids(1, 8, Vec::new()).await.unwrap();
    for id in &partitions {
        stores[0].create(*id, 0).await.unwrap();
    }
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..16)
        .map(|number| {
            let (store, id) = (Arc::clone(&stores[number % 2]), partitions[number / 2]);
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            tokio::spawn(async move {
                let (mut answers, mut failures, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    match commit(&*store, place(id), increment()).await {
                        Ok(answer) => answers.push((answer.lsn, answer.out)),
                        // The store guarantees that nothing was written.
                        Err(CommitError::Unavailable(text)) => failures.push(text),
                        Err(error) => panic!("{error}"),
                    }
                    longest = longest.max(began.elapsed());
                    done.fetch_add(1, Ordering::Relaxed);
                }
                (id, answers, failures, longest)
            })
        })
        .collect();
    let go_on = async || {
        let from = done.load(Ordering::Relaxed);
        wait::eventually_true("the writers to go on", async || done.load(Ordering::Relaxed) >= from + 200)
            .await;
    };
    go_on().await;
    let moved = cluster.move_everything(&schema).await + cluster.move_everything(&schema).await;
    go_on().await;
    if let Some(spare) = citus::spare() {
        let client = cluster.client();
        let add = "SELECT citus_add_node($1::text, $2::int)";
        client.query(add, &[&spare.host, &spare.port]).await.unwrap();
        // Only this store: leftovers of earlier tests in the cluster would take hours to move.
        let own = format!("'{schema}.part'::regclass");
        client.batch_execute(&format!("SELECT rebalance_table_shards({own})")).await.unwrap();
        go_on().await;
        assert!(
            cluster.shards(&schema).await.iter().any(|(_, node)| *node == spare),
            "no shard was moved there"
        );
        let keep_clear = "SELECT citus_set_node_property($1::text, $2::int, 'shouldhaveshards', false)";
        client.query(keep_clear, &[&spare.host, &spare.port]).await.unwrap();
        client
            .batch_execute(&format!("SELECT rebalance_table_shards({own}, drain_only := true)"))
            .await
            .unwrap();
        go_on().await;
        let remove = "SELECT citus_remove_node($1::text, $2::int)";
        client.query(remove, &[&spare.host, &spare.port]).await.unwrap();
        go_on().await;
        eprintln!("a node joined, was filled, emptied and left");
    }
    let killed = tokio::task::spawn_blocking(citus::restart_worker).await.unwrap();
    go_on().await;
    stop.store(true, Ordering::Relaxed);
    let mut answers: BTreeMap<PartitionId, Vec<(u64, u64)>> = BTreeMap::new();
    let (mut failed, mut longest) = (Vec::new(), Duration::ZERO);
    for writer in writers {
        let (id, own, failures, wait) = writer.await.unwrap();
        answers.entry(id).or_default().extend(own);
        failed.extend(failures);
        longest = longest.max(wait);
    }
    let mut total = 0;
    for (id, mut answers) in answers {
        answers.sort_unstable();
        let expected: Vec<(u64, u64)> = (1..=answers.len() as u64).map(|number| (number, number)).collect();
        assert_eq!(answers, expected, "partition {id:?}, killed: {killed}, failures: {failed:?}");
        total += answers.len();
        for store in &stores {
            let keys = (0..answers.len() as u64).map(|number| number.to_be_bytes().to_vec()).collect();
            let page = store.read(place(id), ReadRequest::Get(keys)).await.unwrap();
            assert!(page.values.iter().all(Option::is_some));
        }
    }
    assert!(killed || failed.is_empty(), "{failed:?}");
    eprintln!(
        "{moved} moves, killed: {killed}: {total} acknowledged, {} refused, longest {} ms",
        failed.len(),
        longest.as_millis()
    );
}
