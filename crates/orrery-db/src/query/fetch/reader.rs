//! Fetches the items of a query in batches along an access path.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orrery_env::monotonic;
use orrery_model::Result;
use orrery_model::partition_key::{EffectiveKey, EpkRange, PartitionKey};
use orrery_storage::{Direction, Entry, Key, KeyRange, ReadPage, ReadRequest, Scan, Want};

use orrery_model::session::SessionToken;

use crate::catalog::{Container, Partition};
use crate::items::insertion_order::{ItemStream, View, advance};
use crate::items::point::has_key;
use crate::layout::document::decode;
use crate::layout::stored::StoredItem;
use crate::layout::{index_entry, keys};
use crate::partition::{Overlay, Receipt};
use crate::query::Queries;
use crate::query::plan::access::{Candidate, Sequence};

/// Items or entries per fetch; other requests run between two fetches.
const FETCH_ENTRIES: usize = 256;
/// The maximum number of items in a set; beyond that a full scan is cheaper.
pub(crate) const SET_ITEMS_MAX: usize = 200_000;

/// The time of a page by phase, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    index: AtomicU64,
    load: AtomicU64,
    /// Index entries that were read.
    entries: AtomicU64,
}

impl Timing {
    fn add(counter: &AtomicU64, since: Instant) {
        let spent = u64::try_from(monotonic::elapsed(since).as_nanos()).unwrap_or(u64::MAX);
        counter.fetch_add(spent, Ordering::Relaxed);
    }

    /// Adds the counters of a read-ahead.
    pub(crate) fn join(&self, other: &Self) {
        for (own, other) in
            [(&self.index, &other.index), (&self.load, &other.load), (&self.entries, &other.entries)]
        {
            own.fetch_add(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(crate) fn index_time(&self) -> Duration {
        Duration::from_nanos(self.index.load(Ordering::Relaxed))
    }

    pub(crate) fn load_time(&self) -> Duration {
        Duration::from_nanos(self.load.load(Ordering::Relaxed))
    }

    /// Adds the time since a read started.
    pub(crate) fn loaded_since(&self, started: Instant) {
        Self::add(&self.load, started);
    }

    /// Counts entries that were counted without being returned.
    pub(crate) fn count_entries(&self, entries: u64) {
        self.entries.fetch_add(entries, Ordering::Relaxed);
    }

    /// Counts items looked up by key; each counts as an index entry.
    pub(crate) fn count_looked_up(&self, keys: usize) {
        self.entries.fetch_add(keys as u64, Ordering::Relaxed);
    }

    pub(crate) fn entries_read(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }
}

/// The parameters of reading a container for a query.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub database: &'a Queries,
    pub container: &'a Container,
    pub session: Option<&'a SessionToken>,
    /// The keys that can match, sorted and disjoint.
    pub windows: &'a [EpkRange],
    /// The exact partition key, if other keys may have the same hash.
    pub only: Option<&'a PartitionKey>,
    pub timing: &'a Timing,
    /// The maximum number of rows of a page.
    pub rows_wanted: usize,
    /// The script's view, if a script runs the query.
    pub overlay: Option<&'a Overlay>,
}

/// An item for the pipeline.
pub(crate) struct Found {
    pub item: StoredItem,
    /// The key to resume from: that of the item or of its index entry.
    pub mark: Key,
    /// Items with the same sort values share this; empty if the access path has no order.
    pub run: Vec<u8>,
}

/// Where an item lies.
pub(crate) struct Place {
    /// The key to resume from.
    pub mark: Key,
    pub item_key: Key,
    /// The item's part of its RID.
    pub ordinal: u64,
    /// How many entries were read to find it: those outside the windows come before it.
    pub entries: usize,
}

/// The size of the next fetch: small at first, because few items may be needed.
pub(crate) struct Fetch(usize);

impl Default for Fetch {
    fn default() -> Self {
        Self(FETCH_ENTRIES / 8)
    }
}

impl Fetch {
    /// For plain scans: a page of rows if all items match, plus one to see whether another page follows.
    pub(crate) fn of_rows(rows: usize) -> Self {
        Self(rows.saturating_add(1).clamp(FETCH_ENTRIES / 8, FETCH_ENTRIES / 2))
    }

    /// Fetches a single entry.
    pub(crate) fn one() -> Self {
        Self(1)
    }

    pub(crate) fn next(&mut self) -> usize {
        let count = self.0;
        self.0 = (count * 2).min(FETCH_ENTRIES);
        count
    }
}

/// The consumer's decision after each item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    GoOn,
    Stop,
}

impl Reader<'_> {
    pub(crate) fn partitions(&self) -> Vec<Partition> {
        let any = |partition: &&Partition| self.windows.iter().any(|window| partition.range.overlaps(window));
        self.container.partitions.iter().filter(any).cloned().collect()
    }

    pub(crate) fn contains(&self, effective: &EffectiveKey) -> bool {
        // Sorted and disjoint, so only the last window that begins at or before the key can contain it.
        let after = self.windows.partition_point(|window| window.min <= *effective);
        after > 0 && self.windows[after - 1].contains(effective)
    }

    /// Whether the item at this key is within the query's windows.
    pub(crate) fn contains_item(&self, item_key: &[u8]) -> bool {
        match self.windows {
            // The usual case of a query over everything: no key need be parsed.
            [window] if window.is_full() => true,
            _ => keys::parse_item(item_key).is_some_and(|(effective, _)| self.contains(&effective)),
        }
    }

    fn shows(&self, item_key: &[u8], item: &StoredItem) -> bool {
        self.database.is_visible_at(self.container, item_key, item)
            // Only where keys may collide does `only` hold one; then each item is compared with it.
            && self.only.is_none_or(|key| has_key(self.container, key, item))
    }

    async fn read_any(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        request: ReadRequest,
    ) -> Result<ReadPage> {
        match self.overlay {
            // A script reads its own snapshot: admitted when it was opened, and never behind a session.
            Some(overlay) => overlay.read(request).await,
            None => self.database.read_partition(receipt, partition, self.session, request).await,
        }
    }

    /// Reads items.
    pub(crate) async fn read(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        request: ReadRequest,
    ) -> Result<ReadPage> {
        let started = monotonic::now();
        let page = self.read_any(receipt, partition, request).await?;
        Timing::add(&self.timing.load, started);
        Ok(page)
    }

    /// Reads the keys of index entries.
    pub(crate) async fn read_index(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        scan: Scan,
    ) -> Result<ReadPage> {
        let started = monotonic::now();
        // Values are not needed: the key of an entry has the term and the item.
        let scan = ReadRequest::Scan(Scan { want: Want::Keys, ..scan });
        let page = self.read_any(receipt, partition, scan).await?;
        Timing::add(&self.timing.index, started);
        self.timing.entries.fetch_add(page.entries.len() as u64, Ordering::Relaxed);
        Ok(page)
    }

    /// The ranges of item keys in a partition, starting at `start`.
    pub(crate) fn item_ranges(&self, partition: &Partition, start: &Key) -> Vec<KeyRange> {
        let windows = self.windows.iter().filter_map(|window| partition.range.intersect(window));
        let ranges = windows.map(|window| {
            let mut range = keys::items_in(&window);
            // The mark of an earlier page cuts the first range and empties those before it.
            range.start = range.start.max(start.clone());
            range
        });
        ranges.filter(|range| !range.is_empty()).collect()
    }

    /// The items of the windows in a piece of a partition, from a mark on.
    pub(crate) fn item_streams(
        &self,
        partition: &Partition,
        piece: &EpkRange,
        from: &Key,
    ) -> Vec<ItemStream> {
        let windows = self.windows.iter().filter_map(|window| partition.range.intersect(window));
        let ranges = windows.filter_map(|window| window.intersect(piece));
        ranges.map(|range| ItemStream::new(range, from)).collect()
    }

    /// One fetch of items.
    pub(crate) async fn fetch_items(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        items: &mut ItemStream,
        count: usize,
    ) -> Result<Vec<Found>> {
        let started = monotonic::now();
        let view =
            View { items: &self.database.items, partition, session: self.session, overlay: self.overlay };
        let placed = items.next(&view, receipt, count).await?;
        Timing::add(&self.timing.load, started);
        // Expired, purged or of another key: read, and thus charged, but not shown.
        let shown = placed.into_iter().filter(|placed| self.shows(&placed.item_key, &placed.item));
        Ok(shown.map(|placed| Found { item: placed.item, mark: placed.mark, run: Vec::new() }).collect())
    }

    /// One read of the entries of a candidate: the places in the windows, and how many entries were read after the last
    /// of them. Entries are counted when a place is used. Advances the range.
    pub(crate) async fn fetch_places(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        candidate: &Candidate,
        range: &mut KeyRange,
        count: usize,
    ) -> Result<(Vec<Place>, usize)> {
        let started = monotonic::now();
        let scan = ReadRequest::Scan(Scan::forward(range.clone(), count));
        let page = self.read_any(receipt, partition, scan).await?;
        Timing::add(&self.timing.index, started);
        advance(range, &page, Direction::Forward);
        let mut entries = 0;
        let place = |entry: Entry| {
            entries += 1;
            // An entry outside the windows is counted with the next one inside: what is
            // read is paid for where it is used.
            let item_key = candidate.item_of(&entry.key).filter(|item_key| self.contains_item(item_key))?;
            let ordinal = u64::from_be_bytes(entry.value.as_ref().try_into().ok()?);
            Some(Place { mark: entry.key, item_key, ordinal, entries: std::mem::take(&mut entries) })
        };
        let places = page.entries.into_iter().filter_map(place).collect();
        Ok((places, entries))
    }

    /// The visible items at these places. An item created anew since its entry was read has another place by now.
    pub(crate) async fn load_places(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        places: Vec<Place>,
    ) -> Result<Vec<Found>> {
        let item_keys = places.iter().map(|place| place.item_key.clone()).collect();
        let items = self.load(receipt, partition, item_keys).await?;
        // The ordinal in the entry is that of the item it was made for.
        let found = places.into_iter().zip(items).filter_map(|(place, item)| {
            let item = item.filter(|item| item.ordinal == place.ordinal)?;
            Some(Found { item, mark: place.mark, run: Vec::new() })
        });
        Ok(found.collect())
    }

    /// One fetch of items by their index entries, in the order of the index.
    pub(crate) async fn fetch_entries(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        range: &mut KeyRange,
        direction: Direction,
        composite: Option<&[bool]>,
        count: usize,
    ) -> Result<Vec<Found>> {
        let scan = Scan { direction, ..Scan::forward(range.clone(), count) };
        let page = self.read_index(receipt, partition, scan).await?;
        advance(range, &page, direction);
        let mut places = Vec::with_capacity(page.entries.len());
        for Entry { key: mark, .. } in page.entries {
            let parsed = match composite {
                None => index_entry::parse_entry(&mark).map(|(value, item)| (value.to_vec(), item)),
                Some(descending) => index_entry::parse_composite_entry(&mark, descending)
                    .map(|(at, item)| (mark[..at].to_vec(), item)),
            };
            let Some((run, item_key)) = parsed else { continue };
            if self.contains_item(&item_key) {
                places.push((mark, run, item_key));
            }
        }
        let item_keys = places.iter().map(|(_, _, key)| key.clone()).collect();
        let items = self.load(receipt, partition, item_keys).await?;
        // An entry whose item is gone meanwhile yields none; one that has changed is judged by the filter.
        let found = places
            .into_iter()
            .zip(items)
            .filter_map(|((mark, run, _), item)| Some(Found { item: item?, mark, run }));
        Ok(found.collect())
    }

    /// The visible items at these keys.
    pub(crate) async fn load(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        item_keys: Vec<Key>,
    ) -> Result<Vec<Option<StoredItem>>> {
        if item_keys.is_empty() {
            return Ok(Vec::new());
        }
        // One read for all of them, which a remote store answers in one round trip.
        let page = self.read(receipt, partition, ReadRequest::Get(item_keys.clone())).await?;
        let mut items = Vec::with_capacity(item_keys.len());
        for (key, value) in item_keys.iter().zip(page.values) {
            let item = value.map(|value| decode(&value)).transpose()?;
            items.push(item.filter(|item| self.shows(key, item)));
        }
        Ok(items)
    }

    /// All items of a candidate in a partition, once each, with their ordinals, or `None` if there are too many.
    pub(crate) async fn item_set(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        candidate: &Candidate,
    ) -> Result<Option<BTreeMap<Key, u64>>> {
        // In key order, and each item once, however many of its entries match.
        let mut set = BTreeMap::new();
        for range in candidate.ranges_in(partition) {
            let mut range = range.clone();
            while !range.is_empty() {
                let (places, others) =
                    self.fetch_places(receipt, partition, candidate, &mut range, FETCH_ENTRIES * 4).await?;
                let used: usize = places.iter().map(|place| place.entries).sum();
                self.timing.count_looked_up(used + others);
                set.extend(places.into_iter().map(|place| (place.item_key, place.ordinal)));
                // Given up: the caller reads all items instead, which needs no memory.
                if set.len() > SET_ITEMS_MAX {
                    return Ok(None);
                }
                tokio::task::yield_now().await;
            }
        }
        Ok(Some(set))
    }

    /// How many entries a candidate has in a partition, counting only up to `count_max`.
    pub(crate) async fn probe(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        candidate: &Candidate,
        count_max: usize,
    ) -> Result<usize> {
        let ranges = candidate.ranges_in(partition).filter(|range| !range.is_empty()).cloned();
        self.count_in(receipt, partition, ranges, count_max).await
    }

    /// [`Self::probe`] without charging for the entries that were counted.
    pub(crate) async fn probe_unpaid(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        candidate: &Candidate,
        count_max: usize,
    ) -> Result<usize> {
        let count = self.probe(receipt, partition, candidate, count_max).await?;
        self.timing.entries.fetch_sub(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    /// How many items of the windows a partition has, counting only up to `count_max`.
    pub(crate) async fn probe_items(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        count_max: usize,
    ) -> Result<usize> {
        let ranges = self.item_ranges(partition, &Key::new()).into_iter();
        self.count_in(receipt, partition, ranges, count_max).await
    }

    /// How many entries there are in several ranges, counting only up to `count_max`.
    async fn count_in(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        ranges: impl Iterator<Item = KeyRange> + Send,
        count_max: usize,
    ) -> Result<usize> {
        let mut count = 0;
        for range in ranges {
            // Ranges are disjoint, so their counts add up.
            let scan = Scan::forward(range, count_max - count);
            count += self.read_index(receipt, partition, scan).await?.entries.len();
            if count >= count_max {
                break;
            }
        }
        Ok(count)
    }

    /// How many of the first entries of a sequence belong to items in the windows, and how many were read.
    pub(crate) async fn probe_sequence(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        sequence: &Sequence,
        count: usize,
    ) -> Result<(usize, usize)> {
        let scan = Scan { direction: sequence.direction, ..Scan::forward(sequence.range.clone(), count) };
        let page = self.read_index(receipt, partition, scan).await?;
        let is_own = |entry: &&Entry| {
            let item = match sequence.composite() {
                None => index_entry::parse_entry(&entry.key).map(|(_, item)| item),
                Some(descending) => {
                    index_entry::parse_composite_entry(&entry.key, descending).map(|(_, item)| item)
                }
            };
            item.is_some_and(|item_key| self.contains_item(&item_key))
        };
        Ok((page.entries.iter().filter(is_own).count(), page.entries.len()))
    }
}

/// The rest of a sequence after a resume point with this encoded value.
pub(crate) fn sequence_from(sequence: &Sequence, encoded: Option<&[u8]>) -> KeyRange {
    let mut range = sequence.range.clone();
    let Some(encoded) = encoded else { return range };
    // All entries with the sort values of the last row; those before it are skipped by the pipeline.
    let run = KeyRange::prefix(encoded);
    match sequence.direction {
        Direction::Forward => range.start = range.start.max(run.start),
        // A backward scan starts at the end of its range.
        Direction::Backward => {
            range.end = match (range.end, run.end) {
                (Some(end), Some(run_end)) => Some(end.min(run_end)),
                (end, run_end) => end.or(run_end),
            };
        }
    }
    range
}
