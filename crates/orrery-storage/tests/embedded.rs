//! Behaviour specific to the embedded store: its queue, its durability modes, many partitions.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests")]

mod operations;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_storage::{
    CommitError, Decision, Durability, Embedded, EmbeddedOptions, Entry, Health, Key, KeyPacker, KeyRange,
    Lsn, Op, PackedKeys, PartitionId, PartitionRef, PartitionStore, ReadRequest, Scan, View, WriteSet,
    commit,
};

use operations::Blind;

fn partition(id: u32) -> PartitionRef {
    PartitionRef { id: PartitionId(id), epoch: 0 }
}

/// Blocks the committer until it is released.
struct Gate {
    entered: Mutex<Sender<()>>,
    leave: Mutex<Receiver<()>>,
}

impl Op for Gate {
    type Out = ();

    fn id(&self) -> u128 {
        0
    }

    fn reads(&self, _: &mut Vec<Key>) {}

    fn decide(&self, _: &dyn View, _: Lsn) -> Decision<()> {
        self.entered.lock().unwrap().send(()).unwrap();
        self.leave.lock().unwrap().recv().unwrap();
        Decision::Reject(())
    }
}

async fn open(options: EmbeddedOptions, partitions: u32) -> (tempfile::TempDir, Arc<Embedded>) {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(directory.path().join("data"), options).unwrap();
    for id in 0..partitions {
        store.create(PartitionId(id), 0).await.unwrap();
    }
    (directory, Arc::new(store))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_bounded() {
    let options = EmbeddedOptions { waiting_max: 5, partition_waiting_max: 3, ..EmbeddedOptions::default() };
    let (_directory, store) = open(options, 4).await;
    let (entered, has_entered) = channel();
    let (leave, may_leave) = channel();
    let gate = Gate { entered: Mutex::new(entered), leave: Mutex::new(may_leave) };
    let spawn = |id: u32, key: u8| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            commit(store.as_ref(), partition(id), Blind::put(vec![key], Bytes::new())).await
        })
    };
    let held = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { commit(store.as_ref(), partition(0), gate).await })
    };
    tokio::task::spawn_blocking(move || has_entered.recv().unwrap()).await.unwrap();
    // Three wait for partition 1, the fourth is rejected; two more fill the shared queue.
    let mut waiting: Vec<_> = (0..4).map(|key| spawn(1, key)).collect();
    let mut turned_away = 0;
    while turned_away == 0 {
        tokio::task::yield_now().await;
        for at in 0..waiting.len() {
            if waiting[at].is_finished() {
                let result = waiting.remove(at).await.unwrap();
                assert_eq!(result.unwrap_err(), CommitError::Busy);
                turned_away += 1;
                break;
            }
        }
    }
    let others: Vec<_> = (2..5).map(|id| spawn(id % 3 + 1, 9)).collect();
    let mut results = Vec::new();
    // Partition 1 is full, so one of these three is rejected at once, by one bound or the other.
    while !others.iter().any(tokio::task::JoinHandle::is_finished) {
        tokio::task::yield_now().await;
    }
    // Reads do not wait for the committer.
    store.read(partition(2), ReadRequest::Get(vec![vec![1]])).await.unwrap();
    leave.send(()).unwrap();
    for other in others {
        results.push(other.await.unwrap());
    }
    assert!(results.iter().any(|result| matches!(result, Err(CommitError::Busy))), "{results:?}");
    assert!(results.iter().all(|result| matches!(result, Ok(_) | Err(CommitError::Busy))), "{results:?}");
    for task in waiting {
        task.await.unwrap().unwrap();
    }
    held.await.unwrap().unwrap();
    // Afterwards the queues accept operations again.
    for key in 0..20 {
        commit(store.as_ref(), partition(1), Blind::put(vec![key], Bytes::new())).await.unwrap();
    }
}

#[tokio::test]
async fn relaxed_durability_survives_a_process_crash() {
    let durability = Durability::Relaxed { interval_ms: 60_000 };
    let options = EmbeddedOptions { durability, ..EmbeddedOptions::default() };
    let (_directory, store) = open(options.clone(), 1).await;
    for key in 0..100 {
        commit(store.as_ref(), partition(0), Blind::put(vec![key], "value")).await.unwrap();
    }
    let path = store.directory().to_owned();
    drop(store);
    let store = Embedded::open(path, options).unwrap();
    assert_eq!(store.partitions().await.unwrap()[0].lsn, 100);
}

/// Test suites create and drop containers by the hundred.
#[tokio::test]
async fn thousands_of_partitions_are_cheap() {
    let durability = Durability::Relaxed { interval_ms: 1000 };
    let (_directory, store) = open(EmbeddedOptions { durability, ..EmbeddedOptions::default() }, 0).await;
    let started = Instant::now();
    for id in 0..3000 {
        store.create(PartitionId(id), 0).await.unwrap();
        commit(store.as_ref(), partition(id), Blind::put(b"key".to_vec(), "value")).await.unwrap();
    }
    for id in 0..2990 {
        store.destroy(PartitionId(id)).await.unwrap();
    }
    // Each takes tens of microseconds; the bound only catches an fsync or a file per partition.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let path = store.directory().to_owned();
    drop(store);
    let started = Instant::now();
    let store = Embedded::open(path, EmbeddedOptions::default()).unwrap();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(store.partitions().await.unwrap().len(), 10);
    let page = store.read(partition(2999), ReadRequest::Get(vec![b"key".to_vec()])).await.unwrap();
    assert_eq!(page.values, [Some(Bytes::from("value"))]);
}

/// Writers wait for merges when young tables pile up, and the merger also sweeps, so it must not wait for writers.
/// With small sizes tables pile up within a few thousand writes, as they do with the default sizes after dropping three
/// containers of 250,000 items.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_continue_while_destroyed_partitions_are_swept() {
    let sizes = EmbeddedOptions { memtable_bytes: 32 << 10, ..EmbeddedOptions::default() };
    let (directory, store) = open(sizes.clone(), 4).await;
    let entry = |key: u32| Entry { key: key.to_be_bytes().to_vec(), value: vec![7; 20].into() };
    // Interleave the partitions, so that tables mix them.
    for piece in 0..40_u32 {
        for id in 1..=3 {
            let entries = (piece * 1000..(piece + 1) * 1000).map(entry).collect();
            store.bulk_load(partition(id), entries).await.unwrap();
        }
    }
    for id in 1..=3 {
        store.destroy(PartitionId(id)).await.unwrap();
    }
    let write = async |store: &Embedded, key: u32| {
        let put = Blind::put(key.to_be_bytes().to_vec(), vec![7; 500]);
        let written = tokio::time::timeout(Duration::from_secs(20), commit(store, partition(0), put)).await;
        written.expect("a write got no reply").unwrap();
    };
    for key in 0..600 {
        write(&store, key).await;
    }
    // Sweeping continues after a restart.
    store.close().await.unwrap();
    drop(store);
    let store = Embedded::open(directory.path().join("data"), sizes).unwrap();
    for key in 600..1200 {
        write(&store, key).await;
    }
    let closed = tokio::time::timeout(Duration::from_secs(20), store.close()).await;
    closed.expect("the store did not close").unwrap();
}

fn bytes_on_disk(path: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    // A file may be removed while it is counted.
    entries
        .map(
            |path| {
                if path.is_dir() {
                    bytes_on_disk(&path)
                } else {
                    path.metadata().map_or(0, |file| file.len())
                }
            },
        )
        .sum()
}

/// The space of destroyed partitions comes back although nothing else is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_is_reclaimed_in_an_idle_store() {
    let sizes =
        EmbeddedOptions { memtable_bytes: 128 << 10, table_bytes: 128 << 10, ..EmbeddedOptions::default() };
    let (directory, store) = open(sizes, 4).await;
    // Incompressible, so that sizes say something.
    let value = |key: u32| {
        let mut state = u64::from(key) + 1;
        let bytes = (0..200).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        Bytes::from(bytes.collect::<Vec<u8>>())
    };
    let entry = |key: u32| Entry { key: key.to_be_bytes().to_vec(), value: value(key) };
    for id in [1, 2, 3, 0] {
        // What stays is small, and written last.
        let count = if id == 0 { 500 } else { 20_000 };
        store.bulk_load(partition(id), (0..count).map(entry).collect()).await.unwrap();
    }
    let before = bytes_on_disk(directory.path());
    assert!(before > 10 << 20, "{before}");
    for id in 1..=3 {
        store.destroy(PartitionId(id)).await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_mins(1);
    while bytes_on_disk(directory.path()) > 2 << 20 {
        assert!(Instant::now() < deadline, "{} of {before} bytes remain", bytes_on_disk(directory.path()));
        tokio::task::yield_now().await;
    }
    let page = store.read(partition(0), ReadRequest::Get(vec![7_u32.to_be_bytes().to_vec()])).await.unwrap();
    assert_eq!(page.values, [Some(value(7))]);
}

/// A stalled committer is reported, and so is its recovery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_write_is_reported() {
    let options = EmbeddedOptions { stall_after: Duration::from_millis(100), ..EmbeddedOptions::default() };
    let (_directory, store) = open(options, 1).await;
    assert_eq!(store.health(), Health::Ready);
    let (entered, has_entered) = channel();
    let (leave, may_leave) = channel();
    let gate = Gate { entered: Mutex::new(entered), leave: Mutex::new(may_leave) };
    let stuck = tokio::spawn({
        let store = Arc::clone(&store);
        async move { commit(&*store, partition(0), gate).await }
    });
    tokio::task::spawn_blocking(move || has_entered.recv()).await.unwrap().unwrap();
    let reason = loop {
        match store.health() {
            Health::Ready => tokio::task::yield_now().await,
            Health::Impaired(reason) => break reason,
            failed @ Health::Failed(_) => panic!("{failed:?}"),
        }
    };
    assert!(reason.contains("committer deciding and writing a group"), "{reason}");
    // Reads do not wait for the committer.
    store.read(partition(0), ReadRequest::Get(vec![b"key".to_vec()])).await.unwrap();
    leave.send(()).unwrap();
    stuck.await.unwrap().unwrap();
    while store.health() != Health::Ready {
        tokio::task::yield_now().await;
    }
}

/// Keys that no operation reads wait outside the memtable's order. Writers and scanners go on while memtables are sealed
/// and written to tables: whoever scans sees all that was acknowledged, and so does a store that was never closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unread_keys_are_found_at_any_time() {
    const WRITERS: u32 = 4;
    const ROUNDS: u32 = 400;
    const KEYS: u32 = 10;
    for memtable_bytes in [64 << 10, 16 << 20] {
        let options = EmbeddedOptions {
            memtable_bytes,
            durability: Durability::Relaxed { interval_ms: 60_000 },
            ..EmbeddedOptions::default()
        };
        let (directory, store) = open(options.clone(), WRITERS / 2).await;
        let writers = (0..WRITERS).map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let partition = partition(writer % (WRITERS / 2));
                for round in 0..ROUNDS {
                    let keys = (0..KEYS).map(|key| unread_key(writer, key, round));
                    commit(store.as_ref(), partition, Unread::put(keys)).await.unwrap();
                    if (round + writer) % 37 == 0 {
                        // Of every key number, all rounds up to this one.
                        let found = unread_keys(&store, partition, writer).await;
                        assert_eq!(found.len(), ((round + 1) * KEYS) as usize);
                    }
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        let expected = |writer| {
            let rounds = |key| (0..ROUNDS).map(move |round| unread_key(writer, key, round));
            (0..KEYS).flat_map(rounds).collect::<Vec<Key>>()
        };
        drop(store);
        let store = Embedded::open(directory.path().join("data"), options).unwrap();
        for writer in 0..WRITERS {
            let found = unread_keys(&store, partition(writer % (WRITERS / 2)), writer).await;
            assert_eq!(found, expected(writer));
        }
    }
}

fn unread_key(writer: u32, key: u32, round: u32) -> Key {
    format!("{writer}/a common prefix of index entries/{key}/{round:08}").into_bytes()
}

async fn unread_keys(store: &Embedded, partition: PartitionRef, writer: u32) -> Vec<Key> {
    let range = KeyRange::prefix(format!("{writer}/").as_bytes());
    let scan = Scan::forward(range, usize::MAX);
    let page = store.read(partition, ReadRequest::Scan(scan)).await.unwrap();
    page.entries.into_iter().map(|entry| entry.key).collect()
}

/// Puts keys that no operation reads.
struct Unread(PackedKeys);

impl Unread {
    fn put(keys: impl Iterator<Item = Key>) -> Self {
        let mut packer = KeyPacker::default();
        for key in keys {
            packer.bytes().extend_from_slice(&key);
            packer.end_key();
        }
        Self(packer.finish())
    }
}

impl Op for Unread {
    type Out = ();

    fn id(&self) -> u128 {
        0
    }

    fn reads(&self, _: &mut Vec<Key>) {}

    fn decide(&self, _: &dyn View, _: Lsn) -> Decision<()> {
        let unread = vec![(self.0.clone(), Some(Bytes::from_static(b"1")))];
        Decision::Write(WriteSet { unread, ..WriteSet::default() }, ())
    }
}
