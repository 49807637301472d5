//! What only the embedded store does: its queue, its durability modes, many partitions.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_storage::{
    CommitError, Decision, Durability, Embedded, EmbeddedOptions, Key, Lsn, Op, PartitionId, PartitionRef,
    PartitionStore, ReadRequest, View, WriteSet, commit,
};

fn partition(id: u32) -> PartitionRef {
    PartitionRef { id: PartitionId(id), epoch: 0 }
}

struct Put(Key, Bytes);

impl Op for Put {
    type Out = ();

    fn id(&self) -> u128 {
        0
    }

    fn reads(&self, _: &mut Vec<Key>) {}

    fn decide(&self, _: &dyn View, _: Lsn) -> Decision<()> {
        let mut writes = WriteSet::default();
        writes.put(self.0.clone(), self.1.clone());
        Decision::Write(writes, ())
    }
}

/// Holds the committer up until it is told to go on.
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
        tokio::spawn(async move { commit(store.as_ref(), partition(id), Put(vec![key], Bytes::new())).await })
    };
    let held = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { commit(store.as_ref(), partition(0), gate).await })
    };
    tokio::task::spawn_blocking(move || has_entered.recv().unwrap()).await.unwrap();
    // Three wait for partition 1, the fourth is turned away; two more fill the queue of all.
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
    // Partition 1 is full, so one of these three is turned away at once, by one bound or the other.
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
    // Afterwards there is room again.
    for key in 0..20 {
        commit(store.as_ref(), partition(1), Put(vec![key], Bytes::new())).await.unwrap();
    }
}

#[tokio::test]
async fn relaxed_durability_keeps_what_a_process_acknowledged() {
    let durability = Durability::Relaxed { interval_ms: 60_000 };
    let options = EmbeddedOptions { durability, ..EmbeddedOptions::default() };
    let (_directory, store) = open(options.clone(), 1).await;
    for key in 0..100 {
        commit(store.as_ref(), partition(0), Put(vec![key], Bytes::from("value"))).await.unwrap();
    }
    let path = store.directory().to_owned();
    drop(store);
    let store = Embedded::open(path, options).unwrap();
    assert_eq!(store.partitions().await.unwrap()[0].lsn, 100);
}

/// Test suites make and drop containers by the hundred.
#[tokio::test]
async fn thousands_of_partitions_are_cheap() {
    let durability = Durability::Relaxed { interval_ms: 1000 };
    let (_directory, store) = open(EmbeddedOptions { durability, ..EmbeddedOptions::default() }, 0).await;
    let started = Instant::now();
    for id in 0..3000 {
        store.create(PartitionId(id), 0).await.unwrap();
        commit(store.as_ref(), partition(id), Put(b"key".to_vec(), Bytes::from("value"))).await.unwrap();
    }
    for id in 0..2990 {
        store.destroy(PartitionId(id)).await.unwrap();
    }
    // Some tens of microseconds each; the bound only catches a flush or a file per partition.
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
