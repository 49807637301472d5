//! Reads: where they run, and what a snapshot is.
//!
//! A page of keys or entries is read on the calling thread: nearly always it is in the memtable, in the block cache or
//! in the page cache, which takes some microseconds, less than the way to another thread and back. The rare
//! read that goes to the disk costs a fraction of a millisecond there. Larger ones run on a bounded number of blocking
//! threads, and so do all scans for a while after one that took long: it may have passed over any number of removed
//! entries, and the next one may have to do that again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::layout::Slot;
use super::shared::{Partition, Shared};
use super::tree::{Fault, LeaseId, Pin};
use crate::contract::{BoxFuture, Lsn, ReadPage, ReadRequest, Snapshot, StoreError};

/// Up to this many keys or entries are read on the calling thread.
const INLINE_ENTRIES_MAX: usize = 128;
/// A scan that takes so long did not only read a page. Well above what a thread may be kept waiting for a processor.
const LONG_SCAN: Duration = Duration::from_millis(10);
/// Scans that do not run on the calling thread after a long one.
const WARY_SCANS: usize = 32;

/// How many scans are to run elsewhere.
#[derive(Default)]
pub(super) struct Wariness(AtomicUsize);

impl Wariness {
    fn is_over(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.0.load(Ordering::Relaxed) == 0
            || self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
    }

    fn note(&self, scan_time: Duration) {
        if scan_time >= LONG_SCAN {
            self.0.store(WARY_SCANS, Ordering::Relaxed);
        }
    }
}

pub(super) enum ReadError {
    Store(StoreError),
    Fault(Fault),
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

pub(super) fn is_slow(shared: &Shared, request: &ReadRequest) -> bool {
    match request {
        ReadRequest::Get(keys) => keys.len() > INLINE_ENTRIES_MAX,
        ReadRequest::Scan(scan) => scan.entries_max > INLINE_ENTRIES_MAX || !shared.wariness.is_over(),
    }
}

/// Runs a read where it belongs.
pub(super) async fn run<T: Send + 'static>(
    shared: &Arc<Shared>,
    slow_reads: &Arc<Semaphore>,
    slow: bool,
    read: impl FnOnce(&Shared) -> Result<T, ReadError> + Send + 'static,
) -> Result<T, StoreError> {
    if !slow {
        // Nothing waits below, so a task that only reads must be made to give way to others once in a while.
        tokio::task::coop::consume_budget().await;
        match read(shared) {
            Ok(done) => return Ok(done),
            Err(ReadError::Store(error)) => return Err(error),
            // Finding the file to blame may read all of them.
            Err(ReadError::Fault(fault)) => {
                return run_blocking(shared, slow_reads, |shared| Err(shared.explain(fault))).await;
            }
        }
    }
    run_blocking(shared, slow_reads, |shared| {
        read(shared).map_err(|error| match error {
            ReadError::Store(error) => error,
            ReadError::Fault(fault) => shared.explain(fault),
        })
    })
    .await
}

pub(super) fn read_pinned(
    shared: &Shared,
    pin: &Pin<'_>,
    slot: Slot,
    request: &ReadRequest,
) -> Result<ReadPage, ReadError> {
    match request {
        ReadRequest::Scan(scan) => {
            let started = Instant::now();
            let page = pin.scan(slot, scan)?;
            // A large page has a right to its time.
            if scan.entries_max <= INLINE_ENTRIES_MAX {
                shared.wariness.note(started.elapsed());
            }
            Ok(page)
        }
        ReadRequest::Get(keys) => {
            // Nothing longer was ever written.
            let storable = |key: &&Vec<u8>| key.len() <= shared.options.limits.key_bytes_max;
            let get = |key: &Vec<u8>| match Some(key).filter(storable) {
                Some(key) => pin.get(&slot.key(key)),
                None => Ok(None),
            };
            let values = keys.iter().map(get).collect::<Result<_, Fault>>()?;
            Ok(ReadPage { values, ..ReadPage::default() })
        }
    }
}

async fn run_blocking<T: Send + 'static>(
    shared: &Arc<Shared>,
    slow_reads: &Arc<Semaphore>,
    read: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let permit = Arc::clone(slow_reads).acquire_owned().await;
    let permit = permit.map_err(|error| StoreError::Unavailable(error.to_string()))?;
    let shared = Arc::clone(shared);
    let done = tokio::task::spawn_blocking(move || {
        let result = read(&shared);
        drop(permit);
        result
    });
    done.await.map_err(|error| StoreError::Unavailable(format!("a read did not end: {error}")))?
}

/// A moment of one partition, readable until its lease ends.
pub(super) struct EmbeddedSnapshot {
    shared: Arc<Shared>,
    slow_reads: Arc<Semaphore>,
    partition: Arc<Partition>,
    lease: LeaseId,
    lsn: Lsn,
}

impl EmbeddedSnapshot {
    pub(super) fn new(
        shared: Arc<Shared>,
        slow_reads: Arc<Semaphore>,
        partition: Arc<Partition>,
        lease: LeaseId,
        lsn: Lsn,
    ) -> Self {
        Self { shared, slow_reads, partition, lease, lsn }
    }
}

impl Snapshot for EmbeddedSnapshot {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn read(&self, request: ReadRequest) -> BoxFuture<'_, Result<ReadPage, StoreError>> {
        Box::pin(async move {
            self.shared.health.check().map_err(StoreError::Unavailable)?;
            let (partition, lease, lsn) = (Arc::clone(&self.partition), self.lease, self.lsn);
            let slow = is_slow(&self.shared, &request);
            run(&self.shared, &self.slow_reads, slow, move |shared| {
                let pin = shared.tree.pin_lease(lease)?;
                partition.check_present()?;
                let page = read_pinned(shared, &pin, partition.slot, &request)?;
                Ok(ReadPage { lsn, ..page })
            })
            .await
        })
    }
}

impl Drop for EmbeddedSnapshot {
    fn drop(&mut self) {
        self.shared.tree.end_lease(self.lease);
    }
}
