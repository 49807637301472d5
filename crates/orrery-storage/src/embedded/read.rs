//! Which thread a read runs on, and snapshots.
//!
//! A small page is read on the calling thread: its data is almost always in the memtable, the block cache or the page
//! cache, so the read takes a few microseconds, less than a hop to another thread and back. The rare read that reaches
//! the disk blocks the thread for a fraction of a millisecond. Larger reads run on a bounded number of blocking
//! threads. So do all scans for a while after a slow one: it may have skipped any number of tombstones, and the next
//! scan may have to skip them again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use orrery_env::{monotonic, task};

use super::layout::Slot;
use super::shared::{Partition, Shared};
use super::tree::{LeaseId, Pin, TreeError};
use crate::contract::{Lsn, Pending, ReadPage, ReadRequest, Snapshot, StoreError};

/// Up to this many keys or entries are read on the calling thread.
const INLINE_ENTRIES_MAX: usize = 128;
/// A scan this slow did more than read a page. Well above the time a thread may wait to be scheduled.
const SLOW_SCAN: Duration = Duration::from_millis(10);
/// Scans that run on blocking threads after a slow one.
const BACKOFF_SCANS: usize = 32;

/// Moves scans off the calling thread for a while after a slow one.
#[derive(Default)]
pub(super) struct SlowScanBackoff(AtomicUsize);

impl SlowScanBackoff {
    /// Whether a scan may run inline. Counts down the scans that may not.
    fn allows_inline(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.0.load(Ordering::Relaxed) == 0
            // Another scan may have counted down to zero in between; then this one is allowed too.
            || self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
    }

    fn note(&self, scan_time: Duration) {
        if scan_time >= SLOW_SCAN {
            self.0.store(BACKOFF_SCANS, Ordering::Relaxed);
        }
    }
}

pub(super) enum ReadError {
    Store(StoreError),
    Tree(TreeError),
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<TreeError> for ReadError {
    fn from(fault: TreeError) -> Self {
        Self::Tree(fault)
    }
}

pub(super) fn is_slow(shared: &Shared, request: &ReadRequest) -> bool {
    match request {
        // Point reads skip no tombstones, so only their number matters.
        ReadRequest::Get(keys) => keys.len() > INLINE_ENTRIES_MAX,
        ReadRequest::Scan(scan) => {
            scan.entries_max > INLINE_ENTRIES_MAX || !shared.slow_scans.allows_inline()
        }
        // The entries of most runs are few, but nobody knows before they are counted.
        ReadRequest::Tally(tally) => {
            tally.entries_max > INLINE_ENTRIES_MAX || !shared.slow_scans.allows_inline()
        }
    }
}

/// Runs a read on the calling thread, or on a blocking one if it is slow.
pub(super) async fn run<T: Send + 'static>(
    shared: &Arc<Shared>,
    slow_reads: &Arc<Semaphore>,
    slow: bool,
    read: impl FnOnce(&Shared) -> Result<T, ReadError> + Send + 'static,
) -> Result<T, StoreError> {
    if !slow {
        // Nothing below awaits, so consume the task's budget: a task that only reads must yield now and then.
        tokio::task::coop::consume_budget().await;
        match read(shared) {
            Ok(done) => return Ok(done),
            Err(ReadError::Store(error)) => return Err(error),
            // Finding the damaged file may read all of them, so it runs on a blocking thread.
            Err(ReadError::Tree(fault)) => {
                return run_blocking(shared, slow_reads, |shared| Err(shared.explain(fault))).await;
            }
        }
    }
    run_blocking(shared, slow_reads, |shared| {
        read(shared).map_err(|error| match error {
            ReadError::Store(error) => error,
            ReadError::Tree(fault) => shared.explain(fault),
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
            let started = monotonic::now();
            let page = pin.scan(slot, scan)?;
            // A large page is expected to take its time.
            if scan.entries_max <= INLINE_ENTRIES_MAX {
                shared.slow_scans.note(monotonic::elapsed(started));
            }
            Ok(page)
        }
        ReadRequest::Tally(tally) => {
            let started = monotonic::now();
            let page = pin.tally(slot, tally)?;
            if tally.entries_max <= INLINE_ENTRIES_MAX {
                shared.slow_scans.note(monotonic::elapsed(started));
            }
            Ok(page)
        }
        ReadRequest::Get(keys) => {
            // No longer key was ever written.
            let storable = |key: &&Vec<u8>| key.len() <= shared.options.limits.key_bytes_max;
            let get = |key: &Vec<u8>| match Some(key).filter(storable) {
                Some(key) => pin.get(&slot.key(key)),
                None => Ok(None),
            };
            let values = keys.iter().map(get).collect::<Result<_, TreeError>>()?;
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
    let done = task::run_blocking("read", move || {
        let result = read(&shared);
        // Held by the thread, not by the caller: a cancelled caller must not let another slow read start early.
        drop(permit);
        result
    });
    done.await.map_err(|error| StoreError::Unavailable(format!("a read was aborted: {error}")))?
}

/// One partition at a fixed LSN, readable until its lease expires.
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

    fn read(&self, request: ReadRequest) -> Pending<'_, ReadPage> {
        Box::pin(async move {
            self.shared.health.check_open().map_err(StoreError::Unavailable)?;
            let (partition, lease, lsn) = (Arc::clone(&self.partition), self.lease, self.lsn);
            let slow = is_slow(&self.shared, &request);
            run(&self.shared, &self.slow_reads, slow, move |shared| {
                // Pinned first: the lease may expire at any moment, a pin does not.
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
