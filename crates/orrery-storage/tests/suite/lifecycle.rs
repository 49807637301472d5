//! Partitions from creation to destruction, loading, waiting, closing, reopening.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orrery_storage::{CommitError, PartitionId, PartitionInfo, PartitionRef, ReadRequest, commit};

use super::*;

const LONG: Duration = Duration::from_secs(20);

fn sorted(mut infos: Vec<PartitionInfo>) -> Vec<PartitionInfo> {
    infos.sort_by_key(|info| info.id);
    infos
}

pub(crate) async fn creating_is_idempotent(constructor: Constructor) {
    let subject = opened(constructor).await;
    let store = &subject.store;
    put(store, b"key", b"value").await;
    put(store, b"key", b"value").await;
    store.create(PARTITION.id, 0).await.unwrap();
    store.create(PARTITION.id, 1).await.unwrap();
    assert_eq!(get(store, b"key").await.unwrap(), "value");
    let infos = store.partitions().await.unwrap();
    assert_eq!(infos, [PartitionInfo { id: PARTITION.id, epoch: 0, lsn: 2 }]);
    // A larger LSN advances it and wakes its waiters.
    let waiter = {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.wait_lsn(PARTITION.id, 50, LONG).await })
    };
    tokio::task::yield_now().await;
    store.create(PARTITION.id, 77).await.unwrap();
    let reached = tokio::time::timeout(LONG / 2, waiter).await.expect("woken").unwrap();
    assert_eq!(reached.unwrap(), 77);
    assert_eq!(get(store, b"key").await.unwrap(), "value");
    assert_eq!(put(store, b"key", b"again").await, 78);
}

pub(crate) async fn destroying_is_idempotent(constructor: Constructor) {
    let subject = opened(constructor).await;
    subject.store.destroy(PartitionId(99)).await.unwrap();
    subject.store.destroy(PARTITION.id).await.unwrap();
    subject.store.destroy(PARTITION.id).await.unwrap();
    assert!(subject.store.partitions().await.unwrap().is_empty());
}

pub(crate) async fn lsns_continue_after_the_initial_one(constructor: Constructor) {
    let subject = constructor(Limits::COMMON);
    subject.store.create(PARTITION.id, 1_000_000_000_000).await.unwrap();
    let page = subject.store.read(PARTITION, ReadRequest::Get(vec![])).await.unwrap();
    assert_eq!(page.lsn, 1_000_000_000_000);
    assert_eq!(put(&subject.store, b"key", b"value").await, 1_000_000_000_001);
}

pub(crate) async fn retiring_fences(constructor: Constructor) {
    let subject = opened(constructor).await;
    let store = &subject.store;
    put(store, b"key", b"value").await;
    let wrong = PartitionRef { epoch: 1, ..PARTITION };
    assert_eq!(store.retire(wrong).await.unwrap_err(), StoreError::Fenced);
    assert_eq!(store.retire(PARTITION).await.unwrap(), 1);
    assert_eq!(store.retire(PARTITION).await.unwrap_err(), StoreError::Fenced);
    assert_eq!(run(store, write(&[(b"key", b"late")], &[])).await.unwrap_err(), CommitError::Fenced);
    let get_key = || ReadRequest::Get(vec![b"key".to_vec()]);
    assert_eq!(store.read(PARTITION, get_key()).await.unwrap_err(), StoreError::Fenced);
    assert_eq!(store.snapshot(PARTITION).await.err(), Some(StoreError::Fenced));
    assert_eq!(store.bulk_load(PARTITION, vec![entry(b"a", b"b")]).await.unwrap_err(), StoreError::Fenced);
    let result = store.delete_range(PARTITION, KeyRange::all(), 10).await;
    assert_eq!(result.unwrap_err(), StoreError::Fenced);
    // The partition continues in its new epoch.
    let page = store.read(wrong, get_key()).await.unwrap();
    assert_eq!(page.values, [Some(Bytes::from("value"))]);
    assert_eq!(commit(store.as_ref(), wrong, write(&[], &[b"key"])).await.unwrap().lsn, 2);
    let infos = store.partitions().await.unwrap();
    assert_eq!(infos, [PartitionInfo { id: PARTITION.id, epoch: 1, lsn: 2 }]);
}

pub(crate) async fn retiring_waits_for_commits(constructor: Constructor) {
    let subject = opened(constructor).await;
    let writers: Vec<_> = (0..8_u8)
        .map(|writer| {
            let store = Arc::clone(&subject.store);
            tokio::spawn(async move {
                let mut last = 0;
                loop {
                    match run(&store, write(&[(&[writer], b"value")], &[])).await {
                        Ok(done) => last = done.lsn,
                        Err(CommitError::Fenced) => return last,
                        Err(error) => panic!("{error}"),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    while subject.store.partitions().await.unwrap()[0].lsn < 50 {
        tokio::task::yield_now().await;
    }
    let last = subject.store.retire(PARTITION).await.unwrap();
    let mut highest = 0;
    for writer in writers {
        highest = highest.max(writer.await.unwrap());
    }
    assert_eq!(highest, last);
    assert_eq!(subject.store.partitions().await.unwrap()[0].lsn, last);
}

pub(crate) async fn unknown_partitions_are_fenced(constructor: Constructor) {
    let subject = opened(constructor).await;
    let unknown = PartitionRef { id: PartitionId(42), epoch: 0 };
    let store = &subject.store;
    let result = commit(store.as_ref(), unknown, write(&[(b"a", b"b")], &[])).await;
    assert_eq!(result.unwrap_err(), CommitError::Fenced);
    assert_eq!(store.read(unknown, ReadRequest::Get(vec![])).await.unwrap_err(), StoreError::Fenced);
    assert_eq!(store.snapshot(unknown).await.err(), Some(StoreError::Fenced));
    assert_eq!(store.retire(unknown).await.unwrap_err(), StoreError::Fenced);
    assert_eq!(store.size_bytes(unknown.id).await.unwrap_err(), StoreError::Fenced);
    assert_eq!(store.wait_lsn(unknown.id, 0, LONG).await.unwrap_err(), StoreError::Fenced);
}

pub(crate) async fn destroyed_partitions_are_gone(constructor: Constructor) {
    let subject = opened(constructor).await;
    let store = &subject.store;
    let other = PartitionRef { id: PartitionId(2), epoch: 0 };
    store.create(other.id, 0).await.unwrap();
    commit(store.as_ref(), other, write(&[(b"key", b"value")], &[])).await.unwrap();
    for key in 0..200_u8 {
        put(store, &[key], b"value").await;
    }
    let snapshot = store.snapshot(PARTITION).await.unwrap();
    store.retire(PARTITION).await.unwrap();
    store.destroy(PARTITION.id).await.unwrap();
    assert_eq!(store.read(PARTITION, ReadRequest::Get(vec![])).await.unwrap_err(), StoreError::Fenced);
    assert_eq!(run(store, write(&[(b"a", b"b")], &[])).await.unwrap_err(), CommitError::Fenced);
    let result = snapshot.read(ReadRequest::Get(vec![vec![0]])).await;
    assert_eq!(result.unwrap_err(), StoreError::Fenced);
    assert_eq!(store.partitions().await.unwrap(), [PartitionInfo { id: other.id, epoch: 0, lsn: 1 }]);
    let page = store.read(other, ReadRequest::Get(vec![b"key".to_vec()])).await.unwrap();
    assert_eq!(page.values, [Some(Bytes::from("value"))]);
}

pub(crate) async fn an_id_can_be_created_again(constructor: Constructor) {
    let subject = opened(constructor).await;
    for round in 0..5_u8 {
        assert!(everything(&subject.store).await.is_empty(), "round {round}");
        assert_eq!(put(&subject.store, b"key", &[round]).await, 1);
        // Both at once, so that a grouping store has them in one group.
        let (destroyed, created) =
            tokio::join!(subject.store.destroy(PARTITION.id), subject.store.create(PARTITION.id, 0));
        destroyed.unwrap();
        created.unwrap();
        subject.store.create(PARTITION.id, 0).await.unwrap();
    }
}

pub(crate) async fn bulk_load_consumes_no_lsn(constructor: Constructor) {
    let subject = opened(constructor).await;
    let store = &subject.store;
    put(store, b"key 0000", b"replaced").await;
    let entries: Vec<Entry> =
        (0..3000).map(|key| entry(format!("key {key:04}").as_bytes(), &[7; 2000])).collect();
    store.bulk_load(PARTITION, entries.clone()).await.unwrap();
    store.bulk_load(PARTITION, entries.clone()).await.unwrap();
    store.bulk_load(PARTITION, Vec::new()).await.unwrap();
    let page = scan(store, Scan { bytes_max: usize::MAX, ..Scan::forward(KeyRange::all(), 5000) }).await;
    assert_eq!(page.entries, entries);
    assert_eq!(page.lsn, 1);
    assert_eq!(put(store, b"key", b"value").await, 2);
}

pub(crate) async fn delete_range_deletes_in_order(constructor: Constructor) {
    let subject = opened(constructor).await;
    let store = &subject.store;
    let entries: Vec<Entry> = (0..2500_u32).map(|key| entry(&key.to_be_bytes(), b"value")).collect();
    store.bulk_load(PARTITION, entries).await.unwrap();
    let range = |from: u32, to: u32| KeyRange::new(from.to_be_bytes().to_vec(), to.to_be_bytes().to_vec());
    assert_eq!(store.delete_range(PARTITION, range(0, 10), 4).await.unwrap(), 4);
    assert_eq!(store.delete_range(PARTITION, range(0, 10), 100).await.unwrap(), 6);
    assert_eq!(store.delete_range(PARTITION, range(0, 10), 100).await.unwrap(), 0);
    assert_eq!(store.delete_range(PARTITION, range(20, 10), 100).await.unwrap(), 0);
    assert_eq!(store.delete_range(PARTITION, range(0, 100), 0).await.unwrap(), 0);
    assert_eq!(store.delete_range(PARTITION, range(0, 2200), 100_000).await.unwrap(), 2190);
    let page = scan(store, Scan::forward(KeyRange::all(), 5000)).await;
    assert_eq!((page.entries.len(), page.lsn), (300, 0));
    assert_eq!(page.entries[0].key, 2200_u32.to_be_bytes());
    assert_eq!(store.delete_range(PARTITION, KeyRange::all(), usize::MAX).await.unwrap(), 300);
    assert!(everything(store).await.is_empty());
}

pub(crate) async fn waiting_wakes(constructor: Constructor) {
    let subject = opened(constructor).await;
    let store = &subject.store;
    put(store, b"key", b"value").await;
    assert_eq!(store.wait_lsn(PARTITION.id, 0, LONG).await.unwrap(), 1);
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let store = Arc::clone(store);
            tokio::spawn(async move { store.wait_lsn(PARTITION.id, 2, LONG).await })
        })
        .collect();
    tokio::task::yield_now().await;
    put(store, b"key", b"value").await;
    put(store, b"key", b"value").await;
    for waiter in waiters {
        let reached = tokio::time::timeout(LONG / 2, waiter).await.expect("woken").unwrap().unwrap();
        assert_eq!(reached, 3);
    }
    // Destroying a partition wakes its waiters too.
    let waiter = {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.wait_lsn(PARTITION.id, 100, LONG).await })
    };
    tokio::task::yield_now().await;
    store.destroy(PARTITION.id).await.unwrap();
    let result = tokio::time::timeout(LONG / 2, waiter).await.expect("woken").unwrap();
    assert_eq!(result.unwrap_err(), StoreError::Fenced);
}

pub(crate) async fn waiting_times_out(constructor: Constructor) {
    let subject = opened(constructor).await;
    put(&subject.store, b"key", b"value").await;
    let reached = subject.store.wait_lsn(PARTITION.id, 1, Duration::from_millis(5)).await;
    assert_eq!(reached.unwrap(), 1);
    assert_eq!(subject.store.wait_lsn(PARTITION.id, 1, Duration::ZERO).await.unwrap(), 1);
}

pub(crate) async fn size_grows(constructor: Constructor) {
    let subject = opened(constructor).await;
    let before = subject.store.size_bytes(PARTITION.id).await.unwrap();
    for key in 0..100_u8 {
        put(&subject.store, &[key], &[key; 1000]).await;
    }
    let after = subject.store.size_bytes(PARTITION.id).await.unwrap();
    assert!(after >= before + 50_000, "{before} then {after}");
    assert!(after < before + 1_000_000, "{before} then {after}");
}

pub(crate) async fn calls_fail_after_closing(constructor: Constructor) {
    let subject = opened(constructor).await;
    let store = &subject.store;
    put(store, b"key", b"value").await;
    let snapshot = store.snapshot(PARTITION).await.unwrap();
    let waiter = {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.wait_lsn(PARTITION.id, Lsn::MAX, LONG).await })
    };
    let writers: Vec<_> = (0..8_u8)
        .map(|writer| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                loop {
                    match run(&store, write(&[(&[writer], b"value")], &[])).await {
                        Ok(_) => tokio::task::yield_now().await,
                        Err(CommitError::Unavailable(_)) => return,
                        Err(error) => panic!("{error:?}"),
                    }
                }
            })
        })
        .collect();
    tokio::task::yield_now().await;
    store.close().await.unwrap();
    store.close().await.unwrap();
    for writer in writers {
        tokio::time::timeout(LONG / 2, writer).await.expect("the call returns").unwrap();
    }
    let waited = tokio::time::timeout(LONG / 2, waiter).await.expect("the call returns").unwrap();
    assert!(is_unavailable(&waited), "{waited:?}");
    let get_key = ReadRequest::Get(vec![b"key".to_vec()]);
    assert!(is_unavailable(&store.read(PARTITION, get_key.clone()).await));
    assert!(is_unavailable(&snapshot.read(get_key).await));
    assert!(is_unavailable(&store.snapshot(PARTITION).await.map(|_| ())));
    assert!(is_unavailable(&store.partitions().await));
    assert!(is_unavailable(&store.create(PartitionId(5), 0).await));
    assert!(is_unavailable(&store.retire(PARTITION).await));
    assert!(is_unavailable(&store.destroy(PARTITION.id).await));
    assert!(is_unavailable(&store.bulk_load(PARTITION, vec![entry(b"a", b"b")]).await));
    assert!(is_unavailable(&store.delete_range(PARTITION, KeyRange::all(), 1).await));
    assert!(is_unavailable(&store.wait_lsn(PARTITION.id, 0, LONG).await));
    assert!(is_unavailable(&store.size_bytes(PARTITION.id).await));
}

pub(crate) async fn reopening_keeps_everything(constructor: Constructor) {
    let subject = opened(constructor).await;
    let Some(reopen) = &subject.reopen else { return };
    let mut store = subject.store;
    let second = PartitionRef { id: PartitionId(2), epoch: 0 };
    store.create(second.id, 500).await.unwrap();
    store.create(PartitionId(3), 0).await.unwrap();
    for close_first in [true, false, true, false] {
        let before = everything(&store).await;
        for key in 0..50_u8 {
            put(&store, &[key, u8::from(close_first)], &[key; 300]).await;
            run(&store, write(&[], &[&[key / 2, u8::from(!close_first)]])).await.unwrap();
        }
        commit(store.as_ref(), second, write(&[(b"key", b"value")], &[])).await.unwrap();
        assert_ne!(everything(&store).await, before);
        let (infos, entries) = (sorted(store.partitions().await.unwrap()), everything(&store).await);
        if close_first {
            store.close().await.unwrap();
        }
        drop(store);
        store = reopen();
        assert_eq!(sorted(store.partitions().await.unwrap()), infos);
        assert_eq!(everything(&store).await, entries);
    }
    store.retire(second).await.unwrap();
    store.destroy(PartitionId(3)).await.unwrap();
    drop(store);
    let store = reopen();
    let infos = sorted(store.partitions().await.unwrap());
    let expected = [
        PartitionInfo { id: PARTITION.id, epoch: 0, lsn: 400 },
        PartitionInfo { id: second.id, epoch: 1, lsn: 504 },
    ];
    assert_eq!(infos, expected);
    assert_eq!(put(&store, b"key", b"value").await, 401);
}
