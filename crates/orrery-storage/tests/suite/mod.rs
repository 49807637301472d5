//! The conformance suite: the storage contract as tests, for every engine.
//!
//! `conformance!(name, constructor)` generates one test per function below. The constructor takes the limits that the
//! store must enforce and returns a [`Subject`].

#![allow(dead_code, clippy::print_stderr, reason = "each test binary uses a part of it")]

pub(crate) mod commits;
pub(crate) mod lifecycle;
pub(crate) mod outage;
pub(crate) mod random;
pub(crate) mod reads;

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use orrery_storage::{
    CommitError, Committed, Decision, Entry, Key, KeyRange, Limits, Lsn, Op, PartitionId, PartitionRef,
    PartitionStore, ReadPage, ReadRequest, Scan, StoreError, View, WriteSet, commit,
};

/// A store under test.
pub(crate) struct Subject {
    pub(crate) store: Arc<dyn PartitionStore>,
    /// Reopens the same data after the store was closed and dropped; `None` if nothing persists.
    pub(crate) reopen: Option<Box<dyn Fn() -> Arc<dyn PartitionStore> + Send + Sync>>,
    /// Anything that must live as long as the store, such as its directory.
    pub(crate) keep: Box<dyn Any + Send + Sync>,
}

pub(crate) type Constructor = fn(Limits) -> Subject;

pub(crate) const PARTITION: PartitionRef = PartitionRef { id: PartitionId(1), epoch: 0 };

#[macro_export]
macro_rules! conformance {
    ($name:ident, $constructor:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance!(@ $constructor, commits:
                lsns_are_assigned_in_order, rejected_operations_consume_no_lsn,
                later_operations_see_earlier_ones, operations_may_request_further_reads,
                inconsistent_data_fails_only_that_operation, endless_reads_fail_only_that_operation, a_panic_fails_only_that_operation,
                reading_an_unnamed_key_fails_only_that_operation, writing_a_key_twice_fails,
                unread_keys_are_written, limits_are_enforced, counters_are_exact, multi_key_writes_are_atomic,
                an_empty_write_consumes_an_lsn, partitions_share_nothing);
            $crate::conformance!(@ $constructor, reads:
                gets_return_values_in_request_order, scans_go_both_ways, scans_stop_at_limits, scans_of_keys_only,
                tallies_count_what_scans_return, several_reads_answer_as_each_alone,
                empty_ranges_are_empty, writes_are_read_back, snapshots_are_stable,
                snapshots_are_consistent_under_load, snapshots_expire, large_values_come_back);
            $crate::conformance!(@ $constructor, lifecycle:
                creating_is_idempotent, destroying_is_idempotent, lsns_continue_after_the_initial_one,
                retiring_fences, retiring_waits_for_commits, unknown_partitions_are_fenced,
                destroyed_partitions_are_gone, an_id_can_be_created_again, bulk_load_consumes_no_lsn,
                delete_range_deletes_in_order, waiting_wakes, waiting_times_out, size_grows,
                calls_fail_after_closing, reopening_keeps_everything);
            $crate::conformance!(@ $constructor, random: random_operations);
        }
    };
    (@ $constructor:expr, $module:ident: $($test:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                $crate::suite::$module::$test($constructor).await;
            }
        )+
    };
}

/// An operation made of closures.
pub(crate) struct TestOp<T> {
    pub(crate) reads: Vec<Key>,
    #[allow(clippy::type_complexity)]
    pub(crate) decide: Box<dyn Fn(&dyn View, Lsn) -> Decision<T> + Send + Sync>,
}

impl<T: Send + 'static> Op for TestOp<T> {
    type Out = T;

    fn id(&self) -> u128 {
        0
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        keys.extend(self.reads.iter().cloned());
    }

    fn decide(&self, view: &dyn View, lsn: Lsn) -> Decision<T> {
        (self.decide)(view, lsn)
    }
}

pub(crate) fn op<T>(
    reads: &[&[u8]],
    decide: impl Fn(&dyn View, Lsn) -> Decision<T> + Send + Sync + 'static,
) -> TestOp<T> {
    TestOp { reads: reads.iter().map(|key| key.to_vec()).collect(), decide: Box::new(decide) }
}

/// An operation with these puts and deletes.
pub(crate) fn write(puts: &[(&[u8], &[u8])], deletes: &[&[u8]]) -> TestOp<Lsn> {
    let puts: Vec<(Key, Bytes)> =
        puts.iter().map(|(key, value)| (key.to_vec(), Bytes::copy_from_slice(value))).collect();
    let deletes: Vec<Key> = deletes.iter().map(|key| key.to_vec()).collect();
    op(&[], move |_, lsn| {
        let writes = WriteSet { puts: puts.clone(), deletes: deletes.clone(), ..Default::default() };
        Decision::Write(writes, lsn)
    })
}

pub(crate) async fn opened(constructor: Constructor) -> Subject {
    opened_with(constructor, Limits::COMMON).await
}

/// A store with one empty partition, [`PARTITION`].
pub(crate) async fn opened_with(constructor: Constructor, limits: Limits) -> Subject {
    let subject = constructor(limits);
    subject.store.create(PARTITION.id, 0).await.unwrap();
    subject
}

pub(crate) async fn run<T: Send + 'static>(
    store: &Arc<dyn PartitionStore>,
    op: TestOp<T>,
) -> Result<Committed<T>, CommitError> {
    commit(store.as_ref(), PARTITION, op).await
}

pub(crate) async fn put(store: &Arc<dyn PartitionStore>, key: &[u8], value: &[u8]) -> Lsn {
    run(store, write(&[(key, value)], &[])).await.unwrap().lsn
}

pub(crate) async fn get(store: &Arc<dyn PartitionStore>, key: &[u8]) -> Option<Bytes> {
    let page = store.read(PARTITION, ReadRequest::Get(vec![key.to_vec()])).await.unwrap();
    page.values.into_iter().next().unwrap()
}

pub(crate) async fn scan(store: &Arc<dyn PartitionStore>, scan: Scan) -> ReadPage {
    store.read(PARTITION, ReadRequest::Scan(scan)).await.unwrap()
}

/// All entries, read in small pages, which also tests paging.
pub(crate) async fn everything(store: &Arc<dyn PartitionStore>) -> Vec<(Key, Bytes)> {
    let mut all = Vec::new();
    let mut range = KeyRange::all();
    loop {
        let page = scan(store, Scan::forward(range.clone(), 7)).await;
        all.extend(page.entries.into_iter().map(|entry| (entry.key, entry.value)));
        if !page.more {
            return all;
        }
        range.start = all.last().expect("a page with more to come is not empty").0.clone();
        range.start.push(0);
    }
}

pub(crate) fn keys(page: &ReadPage) -> Vec<&[u8]> {
    page.entries.iter().map(|entry| entry.key.as_slice()).collect()
}

pub(crate) fn entry(key: &[u8], value: &[u8]) -> Entry {
    Entry { key: key.to_vec(), value: Bytes::copy_from_slice(value) }
}

pub(crate) fn is_unavailable<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable(_)))
}
