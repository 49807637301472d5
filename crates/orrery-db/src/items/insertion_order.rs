//! Items of one partition in the order in which they were inserted, as the service returns rows that nothing sorts.
//!
//! That order is the order of RIDs, and the store keeps items by key, so it costs something. A few items are read as
//! they lie and sorted. For many, one more read and one look-up per item would be the price: those come in key order.
//! Which of the two applies is decided when a partition is begun. The mark of an item says how it was read, by its
//! first byte, so a continuation keeps to it: where a partition has grown meanwhile, or was split or merged, its items
//! are found by their RIDs one by one.

use std::collections::{HashSet, VecDeque};

use orrery_model::Result;
use orrery_model::partition_key::EpkRange;
use orrery_model::session::SessionToken;
use orrery_storage::{Direction, Entry, Key, KeyRange, PartitionId, ReadPage, ReadRequest, Scan};
use parking_lot::Mutex;

use super::Items;
use crate::catalog::Partition;
use crate::layout::document::decode;
use crate::layout::keys;
use crate::layout::statistics::Statistics;
use crate::layout::stored::StoredItem;
use crate::partition::{Overlay, Receipt};

/// The maximum number of items that are sorted.
pub(crate) const SORTED_ITEMS_MAX: usize = 1000;
/// Their maximum number of bytes.
const SORTED_BYTES_MAX: u64 = 1 << 20;
/// The maximum number of partitions that are remembered as large.
const LARGE_MAX: usize = 4096;

/// Partitions seen to hold more than can be sorted: they need not be counted again.
#[derive(Debug, Default)]
pub(crate) struct LargePartitions(Mutex<HashSet<PartitionId>>);

impl LargePartitions {
    fn contains(&self, partition: &Partition) -> bool {
        self.0.lock().contains(&partition.store.id)
    }

    fn insert(&self, partition: &Partition) {
        let mut large = self.0.lock();
        // A cache: forgetting all of it costs one count per partition.
        if large.len() >= LARGE_MAX {
            large.clear();
        }
        large.insert(partition.store.id);
    }
}

/// A partition as a request sees it.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub items: &'a Items,
    pub partition: &'a Partition,
    pub session: Option<&'a SessionToken>,
    /// The view of a script, if one is running.
    pub overlay: Option<&'a Overlay>,
}

impl View<'_> {
    pub(crate) async fn read(&self, receipt: &mut Receipt, request: ReadRequest) -> Result<ReadPage> {
        match self.overlay {
            Some(overlay) => overlay.read(request).await,
            None => self.items.read_partition(receipt, self.partition, self.session, request).await,
        }
    }

    /// Whether the items of a range are few enough to be sorted.
    async fn is_small(&self, receipt: &mut Receipt, range: &EpkRange) -> Result<bool> {
        // A part of a partition may be small although the whole is large, so only wholes are remembered.
        let is_whole = range.covers(&self.partition.range);
        if is_whole && self.items.large.contains(self.partition) {
            return Ok(false);
        }
        // More logical partitions than items may be sorted are too many in any case, so the rest is not read.
        let scan = Scan::forward(keys::statistics_in(range), SORTED_ITEMS_MAX + 1);
        let page = self.read(receipt, ReadRequest::Scan(scan)).await?;
        let (mut items, mut bytes) = (0u64, 0u64);
        for counted in page.entries.iter().filter_map(|entry| Statistics::decode(&entry.value)) {
            items = items.saturating_add(counted.items);
            bytes = bytes.saturating_add(counted.bytes);
        }
        let is_small = !page.more && items <= SORTED_ITEMS_MAX as u64 && bytes <= SORTED_BYTES_MAX;
        if is_whole && !is_small {
            // Never taken back: a partition that shrinks keeps the order of keys.
            self.items.large.insert(self.partition);
        }
        Ok(is_small)
    }
}

/// An item, and where it lies.
pub(crate) struct Placed {
    /// The key to resume from: that of the item, or of its RID.
    pub mark: Key,
    pub item_key: Key,
    pub item: StoredItem,
}

/// The items of a range of one partition, in consecutive reads. Items that are no longer visible are among them.
pub(crate) struct ItemStream {
    range: EpkRange,
    state: State,
}

enum State {
    /// Nothing was read: the order is yet to be decided.
    Begun,
    /// In key order.
    ByKey(KeyRange),
    /// Read and sorted.
    Sorted(VecDeque<Placed>),
    /// In the order of RIDs, from this mark on.
    From(Key),
    /// One by one in the order of RIDs.
    ByRid(KeyRange),
}

impl ItemStream {
    /// The items of a range, which lies within the partition, from a mark on; an empty mark is the beginning.
    pub(crate) fn new(range: EpkRange, from: &Key) -> Self {
        let all = keys::items_in(&range);
        // The mark tells how the earlier pages were read; without one the order is open.
        let state = if keys::is_rid(from) {
            State::From(from.clone())
        } else if *from > all.start {
            State::ByKey(KeyRange { start: from.clone(), ..all })
        } else {
            State::Begun
        };
        Self { range, state }
    }

    /// The same in key order, where the order does not matter.
    pub(crate) fn by_key(range: EpkRange, from: &Key) -> Self {
        let all = keys::items_in(&range);
        let start = all.start.clone().max(from.clone());
        Self { range, state: State::ByKey(KeyRange { start, ..all }) }
    }

    pub(crate) fn is_read(&self) -> bool {
        match &self.state {
            State::Begun | State::From(_) => false,
            State::ByKey(range) | State::ByRid(range) => range.is_empty(),
            State::Sorted(items) => items.is_empty(),
        }
    }

    /// The next items, at most so many; there may be more even if there are none of them.
    pub(crate) async fn next(
        &mut self,
        view: &View<'_>,
        receipt: &mut Receipt,
        count: usize,
    ) -> Result<Vec<Placed>> {
        if matches!(self.state, State::Begun | State::From(_))
            // Items that `begin` has read anyway are this call's result.
            && let Some(first) = self.begin(view, receipt, count).await?
        {
            return Ok(first);
        }
        match &mut self.state {
            State::Begun | State::From(_) => Ok(Vec::new()),
            State::Sorted(items) => Ok(items.drain(..count.min(items.len())).collect()),
            State::ByKey(range) => by_key(view, receipt, range, count).await,
            State::ByRid(rids) => by_rid(view, receipt, rids, &self.range, count).await,
        }
    }

    /// Decides the order. Items that were read although they cannot be sorted are returned.
    async fn begin(
        &mut self,
        view: &View<'_>,
        receipt: &mut Receipt,
        count: usize,
    ) -> Result<Option<Vec<Placed>>> {
        let mut left = keys::items_in(&self.range);
        let mut items = Vec::new();
        let mark = if let State::From(mark) = &self.state { Some(mark.clone()) } else { None };
        // After a mark of a RID the first read would start at the wrong place.
        if mark.is_none() {
            // Often this is all there is.
            items = by_key(view, receipt, &mut left, count).await?;
        }
        if !left.is_empty() && view.is_small(receipt, &self.range).await? {
            while !left.is_empty() && items.len() <= SORTED_ITEMS_MAX {
                // One beyond the limit, which shows that the counters were out of date.
                let more = SORTED_ITEMS_MAX + 1 - items.len();
                items.extend(by_key(view, receipt, &mut left, more).await?);
            }
        }
        if left.is_empty() {
            items.sort_by_key(|placed| placed.item.ordinal);
            for placed in &mut items {
                placed.mark = keys::rid(placed.item.ordinal);
            }
            // What earlier pages have returned lies before the mark.
            items.retain(|placed| mark.as_ref().is_none_or(|mark| placed.mark >= *mark));
            self.state = State::Sorted(items.into());
            return Ok(None);
        }
        // The range has grown since the first page. Its order stays, at a look-up per item.
        if let Some(mark) = mark {
            self.state = State::ByRid(KeyRange { start: mark, ..keys::rids() });
            return Ok(None);
        }
        self.state = State::ByKey(left);
        Ok(Some(items))
    }
}

/// One read in key order. Advances the range.
async fn by_key(
    view: &View<'_>,
    receipt: &mut Receipt,
    range: &mut KeyRange,
    count: usize,
) -> Result<Vec<Placed>> {
    let scan = Scan::forward(range.clone(), count);
    let page = view.read(receipt, ReadRequest::Scan(scan)).await?;
    advance(range, &page, Direction::Forward);
    let placed = page
        .entries
        .into_iter()
        .map(|Entry { key, value }| Ok(Placed { mark: key.clone(), item_key: key, item: decode(&value)? }));
    placed.collect()
}

/// One read in the order of RIDs. Advances the range.
async fn by_rid(
    view: &View<'_>,
    receipt: &mut Receipt,
    rids: &mut KeyRange,
    range: &EpkRange,
    count: usize,
) -> Result<Vec<Placed>> {
    let page = view.read(receipt, ReadRequest::Scan(Scan::forward(rids.clone(), count))).await?;
    advance(rids, &page, Direction::Forward);
    // RIDs of the whole partition are in between, also those of other keys.
    let is_inside = |entry: &Entry| {
        keys::parse_item(&entry.value).is_some_and(|(effective, _)| range.contains(&effective))
    };
    let found: Vec<(Key, Key)> =
        page.entries.into_iter().filter(is_inside).map(|entry| (entry.key, entry.value.to_vec())).collect();
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let item_keys = found.iter().map(|(_, item_key)| item_key.clone()).collect();
    let values = view.read(receipt, ReadRequest::Get(item_keys)).await?.values;
    let mut placed = Vec::with_capacity(found.len());
    for ((mark, item_key), value) in found.into_iter().zip(values) {
        // Deleted since the first read.
        let Some(value) = value else { continue };
        let item = decode(&value)?;
        // An item created anew since the first read comes at the place of its new RID.
        if keys::rid(item.ordinal) == mark {
            placed.push(Placed { mark, item_key, item });
        }
    }
    Ok(placed)
}

/// Advances a range past what a page has returned.
pub(crate) fn advance(range: &mut KeyRange, page: &ReadPage, direction: Direction) {
    match (page.entries.last(), direction) {
        (Some(last), Direction::Forward) if page.more => range.start = [last.key.as_slice(), &[0]].concat(),
        (Some(last), Direction::Backward) if page.more => range.end = Some(last.key.clone()),
        // Nothing is left: an empty range.
        _ => range.end = Some(range.start.clone()),
    }
}
