//! Transactions shared by several partitions: an optimisation that must not be observable.

use std::time::Duration;

use orrery_storage::{
    CommitError, Committed, Decision, PartitionId, PartitionRef, ReadRequest, WriteSet, commit,
};

use super::*;
use crate::suite::{TestOp, op};

const PARTITIONS: u32 = 8;

fn partition(number: u32) -> PartitionRef {
    PartitionRef { id: PartitionId(number), epoch: 0 }
}

/// Increments a counter, and adds a row per LSN that is never overwritten.
fn count() -> TestOp<u64> {
    op(&[b"count"], |view, lsn| {
        let count =
            view.get(b"count").map_or(0, |value| u64::from_be_bytes((&value[..]).try_into().unwrap()));
        let mut writes = WriteSet::default();
        writes.put(b"count".to_vec(), (count + 1).to_be_bytes().to_vec());
        for entry in 0..4_u8 {
            writes.put([b"row".as_slice(), &lsn.to_be_bytes(), &[entry]].concat(), Vec::new());
        }
        Decision::Write(writes, count + 1)
    })
}

async fn counted(store: &Arc<dyn PartitionStore>, number: u32) -> Result<Committed<u64>, CommitError> {
    commit(store.as_ref(), partition(number), count()).await
}

/// Transactions that have written to more than one partition.
async fn shared_transactions(admin: &tokio_postgres::Client, url: &str) -> i64 {
    let schema = url.rsplit("schema=").next().unwrap();
    let shared = format!(
        "SELECT count(*) FROM (SELECT xmin::text FROM {schema}.kv GROUP BY 1 HAVING count(DISTINCT part) > 1) t"
    );
    admin.query_one(&shared, &[]).await.unwrap().get(0)
}

/// Two processes, all partitions, more writers than partitions: every answer is the next LSN of its partition. With
/// `cuts` their connections are terminated repeatedly, also during COMMIT.
async fn all_count(cuts: bool) {
    let url = orrery_testing::fresh_store_url();
    let name = format!("together{}{cuts}", std::process::id());
    let named = format!("{url}&application_name={name}");
    let stores = [open(&named, Limits::COMMON), open(&named, Limits::COMMON)];
    for number in 0..PARTITIONS {
        stores[0].create(PartitionId(number), 0).await.unwrap();
    }
    let writers: Vec<_> = (0..64_u32)
        .map(|writer| {
            let store = Arc::clone(&stores[usize::from(writer % 4 == 3)]);
            tokio::spawn(async move {
                let mut answers = Vec::new();
                for turn in 0..20 {
                    let number = (writer * 7 + turn * 3) % PARTITIONS;
                    let done = counted(&store, number).await.unwrap();
                    answers.push((number, done.lsn, done.out));
                }
                answers
            })
        })
        .collect();
    let admin = admin().await;
    if cuts {
        let done = || writers.iter().all(tokio::task::JoinHandle::is_finished);
        assert!(cut_until(&admin, &name, done).await > 0, "the test no longer exercises this case");
    }
    let mut answers = Vec::new();
    for writer in writers {
        answers.extend(writer.await.unwrap());
    }
    answers.sort_unstable();
    let expected: Vec<(u32, u64, u64)> =
        (0..PARTITIONS).flat_map(|number| (1..=160).map(move |count| (number, count, count))).collect();
    assert_eq!(answers, expected);
    if !is_citus(&admin).await {
        assert!(shared_transactions(&admin, &url).await > 0, "the test no longer exercises this case");
    }
    for number in 0..PARTITIONS {
        let read = ReadRequest::Get(vec![b"count".to_vec()]);
        let page = stores[1].read(partition(number), read).await.unwrap();
        assert_eq!((page.lsn, page.values[0].as_deref()), (160, Some(&160_u64.to_be_bytes()[..])));
    }
    for store in stores {
        store.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_transactions_keep_lsns_separate() {
    all_count(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connections_neither_lose_nor_repeat_shared_commits() {
    all_count(true).await;
}

/// One partition's row is locked elsewhere and another partition is retired: the rest is written as usual, the first
/// one waits, and writers to the second one are fenced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_or_retired_partition_is_left_out() {
    let url = orrery_testing::fresh_store_url();
    let store = open(&url, Limits::COMMON);
    for number in 0..PARTITIONS {
        store.create(PartitionId(number), 0).await.unwrap();
    }
    // Writers with its old epoch and with its new one.
    store.retire(partition(2)).await.unwrap();
    let renewed = PartitionRef { id: PartitionId(2), epoch: 1 };
    let mut locking = admin().await;
    let schema = url.rsplit("schema=").next().unwrap();
    let holder = locking.transaction().await.unwrap();
    holder.execute(&format!("SELECT 1 FROM {schema}.part WHERE part = 1 FOR UPDATE"), &[]).await.unwrap();
    let write = |number: u32| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { counted(&store, number).await })
    };
    let renewed: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { commit(store.as_ref(), renewed, count()).await })
        })
        .collect();
    let held: Vec<_> = (0..4).map(|_| write(1)).collect();
    let writers: Vec<_> = (0..64).map(|writer| (writer % PARTITIONS, write(writer % PARTITIONS))).collect();
    let mut late = Vec::new();
    for (number, writer) in writers {
        match number {
            1 => late.push(writer),
            2 => assert!(matches!(writer.await.unwrap(), Err(CommitError::Fenced))),
            _ => drop(writer.await.unwrap().unwrap()),
        }
    }
    let mut answers = Vec::new();
    for writer in renewed {
        answers.push(writer.await.unwrap().unwrap().out);
    }
    answers.sort_unstable();
    assert_eq!(answers, (1..=8).collect::<Vec<u64>>());
    assert!(held.iter().chain(&late).all(|writer| !writer.is_finished()), "the row was held");
    holder.rollback().await.unwrap();
    let mut answers = Vec::new();
    for writer in held.into_iter().chain(late) {
        answers
            .push(tokio::time::timeout(Duration::from_mins(1), writer).await.unwrap().unwrap().unwrap().out);
    }
    answers.sort_unstable();
    assert_eq!(answers, (1..=12).collect::<Vec<u64>>());
    store.close().await.unwrap();
}

/// An unexpected existing entry makes a shared transaction fail: each partition is still written, exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_plain_insert_affects_no_other_partition() {
    let url = orrery_testing::fresh_store_url();
    let store = open(&url, Limits::COMMON);
    for number in 0..PARTITIONS {
        store.create(PartitionId(number), 0).await.unwrap();
    }
    // Always the same entries, which are never read first.
    let blind = || {
        op(&[], |_, _| {
            let mut writes = WriteSet::default();
            for entry in 0..10_u8 {
                writes.put(vec![entry], b"blind".to_vec());
            }
            Decision::Write(writes, 0_u64)
        })
    };
    let writers: Vec<_> = (0..96_u32)
        .map(|writer| {
            let (store, op) = (Arc::clone(&store), if writer % 24 == 0 { blind() } else { count() });
            tokio::spawn(async move { commit(store.as_ref(), partition(writer % PARTITIONS), op).await })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    for number in 0..PARTITIONS {
        let read = ReadRequest::Get(vec![b"count".to_vec()]);
        let page = store.read(partition(number), read).await.unwrap();
        let blind = if number == 0 { 4 } else { 0 };
        assert_eq!((page.lsn, page.values[0].as_deref()), (12, Some(&(12_u64 - blind).to_be_bytes()[..])));
    }
    store.close().await.unwrap();
}
