//! Counts index entries and items without returning them.

use std::collections::VecDeque;

use futures_util::stream::{FuturesOrdered, StreamExt};
use orrery_model::Result;
use orrery_storage::{
    Direction, KeyRange, ReadPage, ReadRequest, Scan, Snapshot, StoreError, Tally, TallyBy, TallyRun,
};

use super::ahead::SOURCES_MAX;
use super::reader::{Reader, Timing};
use crate::catalog::Partition;
use crate::failure::store_failure;
use crate::items::insertion_order::advance;
use crate::layout::statistics::Statistics;
use crate::layout::{index_entry, keys};
use crate::partition::Receipt;
use crate::partition::read::{TALLIED_BYTES, weight};
use crate::query::plan::access::Candidate;
use crate::query::plan::cover::Cover;

/// Entries counted by the first fetch, on the calling thread.
const FIRST_ENTRIES: usize = 128;
/// Entries counted per fetch; other requests run between two fetches.
const FETCH_ENTRIES: usize = 1 << 14;
/// Entries that only a number is made of, counted per fetch.
const COUNT_ENTRIES: usize = 1 << 16;
/// Runs per fetch.
const FETCH_RUNS: usize = 1024;
/// Counters of logical partitions per fetch.
const FETCH_COUNTERS: usize = 4096;

impl Reader<'_> {
    /// Counts the entries of a candidate in a partition.
    pub(crate) async fn count_entries(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        candidate: &Candidate,
    ) -> Result<u64> {
        let is_whole = self.windows.iter().any(|window| window.covers(&partition.range));
        if !is_whole && candidate.keys.is_empty() {
            return self.count_entries_inside(receipt, partition, candidate).await;
        }
        let mut count = 0;
        for range in candidate.ranges_in(partition) {
            let (mut range, mut entries_max) = (range.clone(), FIRST_ENTRIES);
            while !range.is_empty() {
                let tally = Tally { range: range.clone(), by: TallyBy::Range, entries_max, runs_max: 1 };
                let page = self.read_tally(receipt, partition, tally).await?;
                count += counted(&page);
                advance_tally(&mut range, &page);
                // The first fetch was small, because many counts end there and it ran on the calling thread.
                entries_max = COUNT_ENTRIES;
            }
        }
        // Charged like entries that are read, although they are not returned.
        self.timing.count_entries(count);
        Ok(count)
    }

    /// The same where entries of other keys lie in between.
    async fn count_entries_inside(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        candidate: &Candidate,
    ) -> Result<u64> {
        let mut count = 0;
        for range in candidate.ranges_in(partition) {
            let mut range = range.clone();
            while !range.is_empty() {
                let scan = Scan::forward(range.clone(), FETCH_COUNTERS);
                let page = self.read_index(receipt, partition, scan).await?;
                advance(&mut range, &page, Direction::Forward);
                let inside = page.entries.iter().filter(|entry| {
                    candidate.item_of(&entry.key).is_some_and(|item_key| self.contains_item(&item_key))
                });
                count += inside.count() as u64;
                tokio::task::yield_now().await;
            }
        }
        Ok(count)
    }

    /// Counts the items of a partition by the counters of its logical partitions. Each counts as an index entry.
    pub(crate) async fn count_items(&self, receipt: &mut Receipt, partition: &Partition) -> Result<u64> {
        let mut count = 0;
        let windows = self.windows.iter().filter_map(|window| partition.range.intersect(window));
        for mut range in windows.map(|window| keys::statistics_in(&window)) {
            while !range.is_empty() {
                let scan = ReadRequest::Scan(Scan::forward(range.clone(), FETCH_COUNTERS));
                let page = self.read(receipt, partition, scan).await?;
                advance(&mut range, &page, Direction::Forward);
                let items = items_in(&page);
                // The charge is for the items, so it falls on the partitions that hold them.
                receipt.worked(partition, items * TALLIED_BYTES);
                count += items;
                tokio::task::yield_now().await;
            }
        }
        self.timing.count_entries(count);
        Ok(count)
    }

    async fn read_tally(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        tally: Tally,
    ) -> Result<ReadPage> {
        let page = self.read(receipt, partition, ReadRequest::Tally(tally)).await?;
        tokio::task::yield_now().await;
        Ok(page)
    }
}

fn counted(page: &ReadPage) -> u64 {
    page.runs.iter().map(|run| run.count).sum()
}

/// The items that these counters count.
fn items_in(page: &ReadPage) -> u64 {
    let counters = page.entries.iter().filter_map(|entry| Statistics::decode(&entry.value));
    counters.map(|counters| counters.items).sum()
}

/// Advances a range past what a page has counted.
fn advance_tally(range: &mut KeyRange, page: &ReadPage) {
    match &page.reached {
        Some(last) if page.more => range.start = [last.as_slice(), &[0]].concat(),
        _ => range.end = Some(range.start.clone()),
    }
}

/// Counts the values of a cover in one partition.
pub(crate) struct ValueCounter<'a> {
    pub(crate) partition: &'a Partition,
    ranges: VecDeque<KeyRange>,
    entries_max: usize,
    /// For the items without the property: they are the rest of all items, so both must be of one point in time.
    rest: Option<Rest>,
    is_done: bool,
}

struct Rest {
    snapshot: Option<Box<dyn Snapshot>>,
    /// Entries counted so far.
    entries: u64,
}

/// What one fetch has counted.
pub(crate) struct Counted {
    pub(crate) runs: Vec<TallyRun>,
    /// Items without the property, after the last run.
    pub(crate) undefined: u64,
    /// What it took.
    pub(crate) receipt: Receipt,
    pub(crate) timing: Timing,
}

impl<'a> ValueCounter<'a> {
    pub(crate) fn new(partition: &'a Partition, cover: &Cover) -> Self {
        let rest = cover.lacks_undefined.then_some(Rest { snapshot: None, entries: 0 });
        let ranges = cover.ranges.iter().cloned().collect();
        Self { partition, ranges, entries_max: FIRST_ENTRIES, rest, is_done: false }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// The next fetch; `None` = a snapshot has become too old, or does not add up.
    async fn next(&mut self, reader: &Reader<'_>) -> Result<Option<Counted>> {
        let (timing, mut receipt) = (Timing::default(), Receipt::default());
        let own = Reader { timing: &timing, ..*reader };
        // Entries and counters are read one after the other, so only a snapshot makes their difference exact.
        if let Some(rest) = &mut self.rest
            && rest.snapshot.is_none()
        {
            // Waits for the client's session; what is taken afterwards is at least as new.
            own.read(&mut receipt, self.partition, ReadRequest::Get(Vec::new())).await?;
            let snapshot = reader.database.store.snapshot(self.partition.store).await;
            rest.snapshot = Some(snapshot.map_err(store_failure)?);
        }
        let mut counted = Counted { runs: Vec::new(), undefined: 0, receipt, timing: Timing::default() };
        if let Some(range) = self.ranges.front_mut() {
            let tally = Tally {
                range: range.clone(),
                by: TallyBy::Beginning(index_entry::run_length),
                entries_max: self.entries_max,
                runs_max: FETCH_RUNS,
            };
            let request = ReadRequest::Tally(tally);
            let Some(page) =
                read(&own, &mut counted.receipt, self.partition, self.rest.as_ref(), request).await?
            else {
                return Ok(None);
            };
            advance_tally(range, &page);
            if range.is_empty() {
                self.ranges.pop_front();
            }
            self.entries_max = FETCH_ENTRIES;
            if let Some(rest) = &mut self.rest {
                rest.entries += self::counted(&page);
            }
            counted.runs = page.runs;
        }
        // All values are counted; the items that are left lack the property.
        if self.ranges.is_empty() {
            self.is_done = true;
            let Some(items) = self.items(&own, &mut counted.receipt).await? else { return Ok(None) };
            let entries = self.rest.as_ref().map_or(items, |rest| rest.entries);
            // More entries than items: something has not been counted as expected, so the cover is given up.
            let Some(undefined) = items.checked_sub(entries) else { return Ok(None) };
            counted.undefined = undefined;
        }
        counted.timing = timing;
        Ok(Some(counted))
    }

    /// The number of items, if those without entries count.
    async fn items(&self, reader: &Reader<'_>, receipt: &mut Receipt) -> Result<Option<u64>> {
        if self.rest.is_none() {
            return Ok(Some(0));
        }
        let (mut items, mut range) = (0, keys::statistics_in(&self.partition.range));
        while !range.is_empty() {
            let request = ReadRequest::Scan(Scan::forward(range.clone(), FETCH_COUNTERS));
            let Some(page) = read(reader, receipt, self.partition, self.rest.as_ref(), request).await? else {
                return Ok(None);
            };
            advance(&mut range, &page, Direction::Forward);
            items += items_in(&page);
        }
        Ok(Some(items))
    }
}

/// Reads from the snapshot, if there is one; `None` = it has become too old.
async fn read(
    reader: &Reader<'_>,
    receipt: &mut Receipt,
    partition: &Partition,
    rest: Option<&Rest>,
    request: ReadRequest,
) -> Result<Option<ReadPage>> {
    let Some(snapshot) = rest.and_then(|rest| rest.snapshot.as_ref()) else {
        return reader.read(receipt, partition, request).await.map(Some);
    };
    let started = orrery_env::monotonic::now();
    match snapshot.read(request).await {
        Ok(page) => {
            receipt.served_by(partition, page.lsn);
            receipt.worked(partition, weight(&page));
            reader.timing.loaded_since(started);
            Ok(Some(page))
        }
        // Not an error for the client: the page goes through the items instead.
        Err(StoreError::SnapshotExpired) => Ok(None),
        Err(error) => Err(store_failure(error)),
    }
}

/// The next fetch of each of the first counters, concurrently; `None` = a snapshot has become too old.
pub(crate) async fn count_on<'a>(
    reader: &Reader<'_>,
    counters: &mut VecDeque<ValueCounter<'a>>,
) -> Result<Option<Vec<(&'a Partition, Counted)>>> {
    let fetches = counters.iter_mut().take(SOURCES_MAX).map(|counter| async move {
        let partition = counter.partition;
        (partition, counter.next(reader).await)
    });
    let fetched: Vec<_> = fetches.collect::<FuturesOrdered<_>>().collect().await;
    let each = |(partition, counted): (_, Result<Option<Counted>>)| -> Result<Option<_>> {
        Ok(counted?.map(|counted| (partition, counted)))
    };
    fetched.into_iter().map(each).collect()
}
