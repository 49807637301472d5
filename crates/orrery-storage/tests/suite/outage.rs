//! Clients that write and read during an outage of the servers behind two stores. Afterwards every answer is compared
//! with the stored data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orrery_storage::{
    CommitError, Decision, PartitionId, PartitionRef, PartitionStore, ReadRequest, WriteSet, commit,
};

use orrery_testing::wait;

use super::{TestOp, op};

/// What the clients observed.
#[derive(Default)]
pub(crate) struct ClientReport {
    pub(crate) acknowledged: usize,
    pub(crate) refused: Vec<String>,
    pub(crate) reads: usize,
    pub(crate) reads_failed: Vec<String>,
    pub(crate) longest: Duration,
}

impl ClientReport {
    pub(crate) fn report(&self, what: &str) {
        eprintln!(
            "{what}: {} writes acknowledged, {} refused, {} reads, {} failed, longest {} ms",
            self.acknowledged,
            self.refused.len(),
            self.reads,
            self.reads_failed.len(),
            self.longest.as_millis()
        );
        for text in self.refused.iter().chain(&self.reads_failed).collect::<BTreeSet<_>>() {
            eprintln!("  {text}");
        }
    }

    pub(crate) fn assert_no_failures(&self) {
        assert_eq!(self.refused, [""; 0], "writes");
        assert_eq!(self.reads_failed, [""; 0], "reads");
    }
}

pub(crate) fn increment() -> TestOp<u64> {
    op(&[b"count"], |view, _| {
        let count = view.get(b"count").map_or(0, |value| number(&value));
        let mut writes = WriteSet::default();
        writes.put(b"count".to_vec(), (count + 1).to_be_bytes().to_vec());
        writes.put(count.to_be_bytes().to_vec(), vec![7; 300]);
        Decision::Write(writes, count + 1)
    })
}

pub(crate) fn place(id: PartitionId) -> PartitionRef {
    PartitionRef { id, epoch: 0 }
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

/// Runs two clients per partition, one on each store, during an event. The partitions exist and are empty.
pub(crate) async fn through(
    stores: &[Arc<dyn PartitionStore>; 2],
    partitions: &[PartitionId],
    happens: impl AsyncFnOnce(),
) -> ClientReport {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..2 * partitions.len())
        .map(|at| {
            let (store, id) = (Arc::clone(&stores[at % 2]), partitions[at / 2]);
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            tokio::spawn(async move { (id, client(&*store, id, &stop, &done).await) })
        })
        .collect();
    let go_on = async || {
        let from = done.load(Ordering::Relaxed);
        wait::eventually_true("the clients to go on", async || done.load(Ordering::Relaxed) >= from + 200)
            .await;
    };
    go_on().await;
    happens().await;
    go_on().await;
    stop.store(true, Ordering::Relaxed);
    let mut all = ClientReport::default();
    let mut answers: BTreeMap<PartitionId, Vec<(u64, u64)>> = BTreeMap::new();
    for client in clients {
        let (id, (own, report)) = client.await.unwrap();
        answers.entry(id).or_default().extend(own);
        all.refused.extend(report.refused);
        all.reads_failed.extend(report.reads_failed);
        all.reads += report.reads;
        all.longest = all.longest.max(report.longest);
    }
    for (id, mut answers) in answers {
        answers.sort_unstable();
        all.acknowledged += answers.len();
        let expected: Vec<(u64, u64)> = (1..=answers.len() as u64).map(|number| (number, number)).collect();
        assert_eq!(answers, expected, "partition {id:?}, refused: {:?}", all.refused);
        for store in stores {
            let page = store.read(place(id), ReadRequest::Get(vec![b"count".to_vec()])).await.unwrap();
            assert_eq!(number(page.values[0].as_deref().unwrap()), answers.len() as u64);
            let keys = (0..answers.len() as u64).map(|number| number.to_be_bytes().to_vec()).collect();
            let page = store.read(place(id), ReadRequest::Get(keys)).await.unwrap();
            assert!(page.values.iter().all(Option::is_some));
        }
    }
    all
}

/// Writes and reads until stopped. Returns the LSNs and counts of acknowledged writes.
async fn client(
    store: &dyn PartitionStore,
    id: PartitionId,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> (Vec<(u64, u64)>, ClientReport) {
    let (mut answers, mut report) = (Vec::new(), ClientReport::default());
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        match commit(store, place(id), increment()).await {
            Ok(answer) => answers.push((answer.lsn, answer.out)),
            // The store guarantees that nothing was written.
            Err(CommitError::Unavailable(text)) => report.refused.push(text),
            Err(error) => panic!("{error}"),
        }
        report.longest = report.longest.max(began.elapsed());
        let began = Instant::now();
        match store.read(place(id), ReadRequest::Get(vec![b"count".to_vec()])).await {
            Ok(page) => {
                let count = page.values[0].as_deref().map_or(0, number);
                assert!(count >= answers.last().map_or(0, |(_, count)| *count), "a write is not there");
                report.reads += 1;
            }
            Err(error) => report.reads_failed.push(error.to_string()),
        }
        report.longest = report.longest.max(began.elapsed());
        done.fetch_add(1, Ordering::Relaxed);
    }
    (answers, report)
}
