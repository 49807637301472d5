//! A store that stops taking commits after a number of them: what a crash in the middle of something looks
//! like to whoever opens the data next. It can also keep reads waiting until there are several at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use orrery_storage::{
    CommitError, Entry, ErasedOp, KeyRange, Lsn, PartitionId, PartitionInfo, PartitionRef, PartitionStore,
    Pending, ReadPage, ReadRequest, Snapshot, StoreError,
};

pub struct Faulty {
    inner: Arc<dyn PartitionStore>,
    commits_left: AtomicI64,
    creates_left: AtomicI64,
    changes_left: AtomicI64,
    pretended_bytes: AtomicI64,
    /// How many reads must be under way before any goes on; 0 = they need not wait.
    gathers: AtomicI64,
    reads_under_way: AtomicI64,
    reads_at_once: AtomicI64,
    reads: AtomicI64,
    gathered: tokio::sync::Notify,
}

/// A read that is under way.
struct UnderWay<'a>(&'a Faulty);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.reads_under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Faulty {
    pub fn new(inner: Arc<dyn PartitionStore>) -> Self {
        let unlimited = || AtomicI64::new(i64::MAX);
        Self {
            inner,
            commits_left: unlimited(),
            creates_left: unlimited(),
            changes_left: unlimited(),
            pretended_bytes: AtomicI64::new(-1),
            gathers: AtomicI64::new(0),
            reads_under_way: AtomicI64::new(0),
            reads_at_once: AtomicI64::new(0),
            reads: AtomicI64::new(0),
            gathered: tokio::sync::Notify::new(),
        }
    }

    /// Keeps reads waiting until so many are under way at once; then all go on, and later ones too.
    pub fn gather_reads(&self, count: i64) {
        self.reads_at_once.store(0, Ordering::SeqCst);
        self.reads.store(0, Ordering::SeqCst);
        self.gathers.store(count, Ordering::SeqCst);
    }

    /// The most reads that were under way at once, and how many there were, since the last [`Self::gather_reads`].
    pub fn reads_seen(&self) -> (i64, i64) {
        (self.reads_at_once.load(Ordering::SeqCst), self.reads.load(Ordering::SeqCst))
    }

    async fn gather(&self) -> UnderWay<'_> {
        let gathered = self.gathered.notified();
        self.reads.fetch_add(1, Ordering::SeqCst);
        let now = self.reads_under_way.fetch_add(1, Ordering::SeqCst) + 1;
        let under_way = UnderWay(self);
        self.reads_at_once.fetch_max(now, Ordering::SeqCst);
        let wanted = self.gathers.load(Ordering::SeqCst);
        if now < wanted {
            gathered.await;
        } else if wanted > 0 {
            self.gathers.store(0, Ordering::SeqCst);
            self.gathered.notify_waiters();
        }
        under_way
    }

    /// Lets so many commits pass and no more.
    pub fn fail_after_commits(&self, count: i64) {
        self.commits_left.store(count, Ordering::SeqCst);
    }

    /// Lets so many changes of any kind pass and no more.
    pub fn fail_after_changes(&self, count: i64) {
        self.changes_left.store(count, Ordering::SeqCst);
    }

    /// Says that every partition has this size.
    pub fn pretend_bytes(&self, bytes: i64) {
        self.pretended_bytes.store(bytes, Ordering::SeqCst);
    }

    /// Whether a change was refused since the limit was set.
    pub fn has_failed(&self) -> bool {
        self.changes_left.load(Ordering::SeqCst) < 0
    }

    fn change(&self) -> Result<(), StoreError> {
        if self.changes_left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(StoreError::Unavailable("it was told to fail".to_owned()));
        }
        Ok(())
    }

    /// Lets so many partitions be made and no more.
    pub fn fail_after_creates(&self, count: i64) {
        self.creates_left.store(count, Ordering::SeqCst);
    }
}

impl PartitionStore for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn commit(&self, partition: PartitionRef, op: Box<dyn ErasedOp>) -> Pending<'_, Lsn, CommitError> {
        if self.commits_left.fetch_sub(1, Ordering::SeqCst) <= 0 || self.change().is_err() {
            return Box::pin(async { Err(CommitError::Unavailable("it was told to fail".to_owned())) });
        }
        self.inner.commit(partition, op)
    }

    fn create(&self, id: PartitionId, lsn: Lsn) -> Pending<'_, ()> {
        if self.creates_left.fetch_sub(1, Ordering::SeqCst) <= 0 || self.change().is_err() {
            return Box::pin(async { Err(StoreError::Unavailable("it was told to fail".to_owned())) });
        }
        self.inner.create(id, lsn)
    }

    fn partitions(&self) -> Pending<'_, Vec<PartitionInfo>> {
        self.inner.partitions()
    }

    fn retire(&self, partition: PartitionRef) -> Pending<'_, Lsn> {
        if let Err(error) = self.change() {
            return Box::pin(async { Err(error) });
        }
        self.inner.retire(partition)
    }

    fn destroy(&self, id: PartitionId) -> Pending<'_, ()> {
        if let Err(error) = self.change() {
            return Box::pin(async { Err(error) });
        }
        self.inner.destroy(id)
    }

    fn read(&self, partition: PartitionRef, request: ReadRequest) -> Pending<'_, ReadPage> {
        Box::pin(async move {
            let _under_way = self.gather().await;
            self.inner.read(partition, request).await
        })
    }

    fn snapshot(&self, partition: PartitionRef) -> Pending<'_, Box<dyn Snapshot>> {
        self.inner.snapshot(partition)
    }

    fn bulk_load(&self, partition: PartitionRef, entries: Vec<Entry>) -> Pending<'_, ()> {
        if let Err(error) = self.change() {
            return Box::pin(async { Err(error) });
        }
        self.inner.bulk_load(partition, entries)
    }

    fn delete_range(&self, partition: PartitionRef, range: KeyRange, count_max: usize) -> Pending<'_, usize> {
        if let Err(error) = self.change() {
            return Box::pin(async { Err(error) });
        }
        self.inner.delete_range(partition, range, count_max)
    }

    fn wait_lsn(&self, id: PartitionId, after: Lsn, timeout: Duration) -> Pending<'_, Lsn> {
        self.inner.wait_lsn(id, after, timeout)
    }

    fn size_bytes(&self, id: PartitionId) -> Pending<'_, u64> {
        match u64::try_from(self.pretended_bytes.load(Ordering::SeqCst)) {
            Ok(bytes) => Box::pin(async move { Ok(bytes) }),
            Err(_) => self.inner.size_bytes(id),
        }
    }

    fn close(&self) -> Pending<'_, ()> {
        self.inner.close()
    }
}
