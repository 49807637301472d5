//! Reads: where they run, and what a snapshot is.
//!
//! A few keys are read on the calling thread: nearly always they are in the memtable, in the block cache or
//! in the page cache, which takes a few microseconds, less than the way to another thread and back. The rare
//! read that goes to the disk costs a fraction of a millisecond there. Scans and long lists of keys run on a
//! bounded number of blocking threads.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::layout::Slot;
use super::shared::{Partition, Shared};
use super::tree::{Fault, LeaseId, Pin};
use crate::contract::{BoxFuture, Lsn, ReadPage, ReadRequest, Snapshot, StoreError};

/// Up to this many keys are read on the calling thread.
const INLINE_KEYS_MAX: usize = 16;

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

pub(super) fn is_slow(request: &ReadRequest) -> bool {
    match request {
        ReadRequest::Get(keys) => keys.len() > INLINE_KEYS_MAX,
        ReadRequest::Scan(_) => true,
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
        ReadRequest::Scan(scan) => Ok(pin.scan(slot, scan)?),
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
            let slow = is_slow(&request);
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
