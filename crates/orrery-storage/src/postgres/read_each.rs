//! Reads from several partitions in one statement.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;

use super::pool::Session;
use super::server_error::ServerError;
use super::shared::Shared;
use super::{Postgres, key, sql};
use crate::contract::{
    Direction, Entry, Key, PartitionRef, PartitionStore, ReadPage, ReadRequest, ReadResult, Scan, StoreError,
    Want,
};

/// Reads that are sent separately run concurrently.
const SEPARATE_MAX: usize = 8;
/// Most entries of a scan that shares a statement: more are worth one of their own.
const SHARED_ENTRIES_MAX: usize = 1024;

/// Whether a read can share a statement with others.
fn can_share(request: &ReadRequest, key_bytes_max: usize) -> bool {
    match request {
        ReadRequest::Get(keys) => !keys.is_empty() && keys.iter().all(|key| key.len() <= key_bytes_max),
        ReadRequest::Scan(scan) => {
            scan.want == Want::Keys && scan.entries_max <= SHARED_ENTRIES_MAX && !scan.range.is_empty()
        }
        ReadRequest::Tally(_) => false,
    }
}

/// Answers several reads: in one statement if all partitions are on one node and every read can share it, otherwise
/// each on its own.
pub(super) async fn read_each(store: &Postgres, reads: Vec<(PartitionRef, ReadRequest)>) -> Vec<ReadResult> {
    let shared = &store.shared;
    let key_bytes_max = shared.options.limits.key_bytes_max;
    let is_shared = reads.len() > 1
        && !shared.cluster.is_citus()
        && reads.iter().all(|(_, request)| can_share(request, key_bytes_max));
    if !is_shared {
        return separately(store, reads).await;
    }
    // A reserved or unknown partition fails alone; it must not make the others fail.
    let checked: Vec<Result<(), StoreError>> =
        reads.iter().map(|(partition, _)| store.open_partition(partition.id)).collect();
    let Some((first, _)) = reads.first() else { return Vec::new() };
    let found = shared.repeat(first.id, || Box::pin(together(shared, &reads))).await;
    let found = match found {
        Ok(found) => found,
        Err(error) => return reads.iter().map(|_| Err(error.clone())).collect(),
    };
    let each = found.into_iter().zip(reads).zip(checked).map(|((found, (partition, _)), checked)| {
        checked?;
        match found {
            Some((epoch, page)) if epoch == partition.epoch => Ok(page),
            _ => Err(StoreError::Fenced),
        }
    });
    each.collect()
}

async fn separately(store: &Postgres, reads: Vec<(PartitionRef, ReadRequest)>) -> Vec<ReadResult> {
    let (mut waiting, mut running, mut pages) = (reads.into_iter(), FuturesOrdered::new(), Vec::new());
    loop {
        // In the order of the requests, with a bound on the connections that one call uses.
        while running.len() < SEPARATE_MAX {
            let Some((partition, request)) = waiting.next() else { break };
            running.push_back(store.read(partition, request));
        }
        match running.next().await {
            Some(page) => pages.push(page),
            None => return pages,
        }
    }
}

/// What the statement found for each read: the epoch of its partition, if there is one, and the page.
type Found = Vec<Option<(u64, ReadPage)>>;

async fn together(shared: &Arc<Shared>, reads: &[(PartitionRef, ReadRequest)]) -> Result<Found, ServerError> {
    let Some((first, _)) = reads.first() else { return Ok(Vec::new()) };
    let session = shared.session(first.id).await?;
    let found = query(&session, reads).await?;
    session.release();
    Ok(found)
}

async fn query(session: &Session, reads: &[(PartitionRef, ReadRequest)]) -> Result<Found, ServerError> {
    let (mut get_numbers, mut get_parts, mut get_keys) = (Vec::new(), Vec::new(), Vec::new());
    let (mut forward, mut backward) = (Scans::default(), Scans::default());
    // Each read has a number, by which its rows are recognised in the one answer.
    for (number, (partition, request)) in (0_i32..).zip(reads) {
        match request {
            ReadRequest::Get(keys) => {
                for wanted in keys {
                    get_numbers.push(number);
                    get_parts.push(key::column(partition.id));
                    get_keys.push(key::stored(partition.id, wanted));
                }
            }
            ReadRequest::Scan(scan) if scan.direction == Direction::Forward => {
                forward.push(number, *partition, scan);
            }
            ReadRequest::Scan(scan) => backward.push(number, *partition, scan),
            ReadRequest::Tally(_) => {}
        }
    }
    let parameters: super::pool::Parameters<'_> = &[
        &get_numbers,
        &get_parts,
        &get_keys,
        &forward.numbers,
        &forward.parts,
        &forward.starts,
        &forward.ends,
        &forward.limits,
        &backward.numbers,
        &backward.parts,
        &backward.starts,
        &backward.ends,
        &backward.limits,
    ];
    let rows = session.query(sql::READ_EACH, parameters).await?;
    let mut answers: Vec<Answer> = reads.iter().map(|_| Answer::default()).collect();
    for row in &rows {
        let number = usize::try_from(row.get::<_, i32>(0)).unwrap_or(usize::MAX);
        let Some(answer) = answers.get_mut(number) else { continue };
        // A negative epoch, of a partition that is being destroyed, leaves no head.
        answer.head = u64::try_from(row.get::<_, i64>(1)).ok().map(|epoch| (epoch, row.get::<_, i64>(2)));
        if let Some(stored) = row.get::<_, Option<&[u8]>>(3) {
            let value = row.get::<_, Option<&[u8]>>(4).map(Bytes::copy_from_slice);
            answer.found.push((key::own(stored), value));
        }
    }
    Ok(answers.into_iter().zip(reads).map(|(answer, (_, request))| answer.page(request)).collect())
}

/// The parameters of the scans in one direction.
#[derive(Default)]
struct Scans {
    numbers: Vec<i32>,
    parts: Vec<i32>,
    starts: Vec<Vec<u8>>,
    ends: Vec<Vec<u8>>,
    limits: Vec<i64>,
}

impl Scans {
    fn push(&mut self, number: i32, partition: PartitionRef, scan: &Scan) {
        let (start, end) = key::bounds(partition.id, &scan.range);
        self.numbers.push(number);
        self.parts.push(key::column(partition.id));
        self.starts.push(start);
        self.ends.push(end);
        // One more than requested, to know whether there are more.
        self.limits.push(i64::try_from(scan.entries_max.saturating_add(1)).unwrap_or(i64::MAX));
    }
}

/// The rows of one read.
#[derive(Default)]
struct Answer {
    /// Epoch and LSN, which every row carries; a partition that is being destroyed counts as absent.
    head: Option<(u64, i64)>,
    found: Vec<(Key, Option<Bytes>)>,
}

impl Answer {
    fn page(self, request: &ReadRequest) -> Option<(u64, ReadPage)> {
        let (epoch, lsn) = self.head?;
        let page = match request {
            ReadRequest::Get(keys) => {
                // Rows come in any order, and absent keys have none.
                let found: HashMap<Key, Option<Bytes>> = self.found.into_iter().collect();
                let values = keys.iter().map(|key| found.get(key).cloned().flatten()).collect();
                ReadPage { values, ..ReadPage::default() }
            }
            ReadRequest::Scan(scan) => keys_of(self.found, scan),
            ReadRequest::Tally(_) => ReadPage::default(),
        };
        Some((epoch, ReadPage { lsn: lsn.cast_unsigned(), ..page }))
    }
}

/// A page of keys, within the limits of its scan.
fn keys_of(found: Vec<(Key, Option<Bytes>)>, scan: &Scan) -> ReadPage {
    let mut keys: Vec<Key> = found.into_iter().map(|(key, _)| key).collect();
    // SQL does not guarantee the order of the inner side.
    keys.sort_unstable();
    if scan.direction == Direction::Backward {
        keys.reverse();
    }
    let (all, mut bytes) = (keys.len(), 0);
    // At least one entry, as in every page.
    let fits = |key: &&Key| {
        let is_within = bytes < scan.bytes_max.max(1);
        bytes += key.len();
        is_within
    };
    let kept = keys.iter().take(scan.entries_max).take_while(fits).count();
    keys.truncate(kept);
    let entries = keys.into_iter().map(|key| Entry { key, value: Bytes::new() }).collect();
    ReadPage { entries, more: all > kept, ..ReadPage::default() }
}
