//! Reads several sources concurrently.
//!
//! A query page consumes its sources in order: the keys of a logical partition, the entries of a value in a physical
//! one. Rows, charges and continuations are therefore the same as for sequential reads, but the first fetches of the
//! next few sources run ahead. A read-ahead is recorded in the request's receipt only when it is consumed: a page that
//! ends before does not pay for it, is not throttled by it, and does not see its failures.
//!
//! Bounds: [`SOURCES_MAX`] concurrent fetches per request. If all sources will be read anyway, each buffers up to
//! [`AHEAD_BYTES`], together about a page. If the page may end at any item, one fetch per source is read ahead, at one
//! more source for each exhausted one, so that little is read in vain.

use std::collections::VecDeque;
use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use orrery_model::Result;
use orrery_model::partition_key::EpkRange;
use orrery_storage::{Direction, Key, KeyRange};

use super::reader::{Fetch, Found, Place, Reader, SET_ITEMS_MAX, Timing};
use crate::catalog::Partition;
use crate::items::insertion_order::ItemStream;
use crate::layout::keys;
use crate::partition::Receipt;
use crate::query::PAGE_BYTES_MAX;
use crate::query::plan::access::Candidate;
use crate::query::plan::points::Points;

/// Sources read concurrently.
pub(crate) const SOURCES_MAX: usize = 8;
/// Bytes read ahead per source.
const AHEAD_BYTES: usize = PAGE_BYTES_MAX / SOURCES_MAX;
/// Item sets held concurrently: each may be large.
const SETS_MAX: usize = 2;
/// Up to this many entries of a candidate are sorted by the RIDs of their items.
const FEW_ENTRIES_MAX: usize = 1000;

/// Items of one partition, read in consecutive fetches.
pub(crate) struct Source<'a> {
    pub(crate) partition: &'a Partition,
    /// The part of the partition's keys that a mark of this source speaks of.
    pub(crate) piece: EpkRange,
    /// The query's windows inside the piece, if it is not the whole partition.
    windows: Option<Vec<EpkRange>>,
    kind: SourceKind<'a>,
    fetch: Fetch,
}

enum SourceKind<'a> {
    /// Items by their own keys, or by their RIDs.
    Items(VecDeque<ItemStream>),
    /// Items by index entries.
    Entries { range: KeyRange, direction: Direction, composite: Option<&'a [bool]> },
    /// Items named by the filter.
    Keys { keys: VecDeque<Key>, are_points: bool },
    /// Items of a candidate, each once; determined by the first fetch.
    Set { candidate: &'a Candidate, from: &'a Key },
    /// Items of a candidate in the order in which they were inserted, if there are few; determined by the first fetch.
    Few { candidate: &'a Candidate, from: &'a Key },
    /// Items at known places, and then those of further entries.
    Places { places: VecDeque<Place>, counts: bool, rest: VecDeque<KeyRange>, candidate: &'a Candidate },
}

impl<'a> Source<'a> {
    /// `rows` is how many a page has at most.
    pub(crate) fn items(partition: &'a Partition, piece: EpkRange, items: ItemStream, rows: usize) -> Self {
        let source = Self::new(partition, SourceKind::Items(VecDeque::from([items])));
        Self { fetch: Fetch::of_rows(rows), piece, ..source }
    }

    /// The entries of a candidate in the order in which the items were inserted, if there are few.
    pub(crate) fn few(partition: &'a Partition, candidate: &'a Candidate, from: &'a Key) -> Self {
        Self::new(partition, SourceKind::Few { candidate, from })
    }

    /// Only items of this part of the partition.
    pub(crate) fn of_piece(self, reader: &Reader<'_>, piece: &EpkRange) -> Self {
        // The whole partition: nothing to narrow.
        if piece.covers(&self.partition.range) {
            return self;
        }
        let windows = reader.windows.iter().filter_map(|window| window.intersect(piece)).collect();
        Self { piece: piece.clone(), windows: Some(windows), ..self }
    }

    pub(crate) fn entries(
        partition: &'a Partition,
        range: KeyRange,
        direction: Direction,
        composite: Option<&'a [bool]>,
    ) -> Self {
        Self::new(partition, SourceKind::Entries { range, direction, composite })
    }

    pub(crate) fn points(partition: &'a Partition, points: &Points, from: &Key) -> Self {
        let keys = points.within(partition, from).into();
        Self::new(partition, SourceKind::Keys { keys, are_points: true })
    }

    pub(crate) fn set(partition: &'a Partition, candidate: &'a Candidate, from: &'a Key) -> Self {
        Self::new(partition, SourceKind::Set { candidate, from })
    }

    fn new(partition: &'a Partition, kind: SourceKind<'a>) -> Self {
        Self { partition, piece: partition.range.clone(), windows: None, kind, fetch: Fetch::default() }
    }

    /// Reads only the first item.
    pub(crate) fn of_one(self) -> Self {
        Self { fetch: Fetch::one(), ..self }
    }

    /// Whether there is nothing left to read.
    pub(crate) fn is_read(&self) -> bool {
        match &self.kind {
            SourceKind::Items(items) => items.iter().all(ItemStream::is_read),
            SourceKind::Entries { range, .. } => range.is_empty(),
            SourceKind::Keys { keys, .. } => keys.is_empty(),
            SourceKind::Set { .. } | SourceKind::Few { .. } => false,
            SourceKind::Places { places, rest, .. } => {
                places.is_empty() && rest.iter().all(KeyRange::is_empty)
            }
        }
    }

    async fn read(&mut self, reader: &Reader<'_>, receipt: &mut Receipt) -> Result<Vec<Found>> {
        let partition = self.partition;
        let windows = self.windows.take();
        // A reader of its own windows, so that what lies outside the piece is neither read nor shown twice.
        let clipped = Reader { windows: windows.as_deref().unwrap_or(reader.windows), ..*reader };
        let found = self.read_clipped(&clipped, receipt, partition).await;
        self.windows = windows;
        found
    }

    async fn read_clipped(
        &mut self,
        reader: &Reader<'_>,
        receipt: &mut Receipt,
        partition: &Partition,
    ) -> Result<Vec<Found>> {
        // What these two read is known only now; they turn into another kind with the first fetch.
        match self.kind {
            SourceKind::Set { candidate, from } => {
                self.kind = self.set_of(reader, receipt, candidate, from).await?;
            }
            SourceKind::Few { candidate, from } => {
                self.kind = self.few_of(reader, receipt, candidate, from).await?;
            }
            _ => {}
        }
        match &mut self.kind {
            SourceKind::Items(items) => {
                items.retain(|items| !items.is_read());
                let Some(items) = items.front_mut() else { return Ok(Vec::new()) };
                reader.fetch_items(receipt, partition, items, self.fetch.next()).await
            }
            SourceKind::Places { places, counts, rest, candidate } => {
                let count = self.fetch.next();
                // The sorted ones are used up. What follows are entries in their own order.
                if places.is_empty() {
                    rest.retain(|range| !range.is_empty());
                    let Some(range) = rest.front_mut() else { return Ok(Vec::new()) };
                    let (more, others) =
                        reader.fetch_places(receipt, partition, candidate, range, count).await?;
                    let used: usize = more.iter().map(|place| place.entries).sum();
                    reader.timing.count_looked_up(used + others);
                    return reader.load_places(receipt, partition, more).await;
                }
                let places: Vec<Place> = places.drain(..count.min(places.len())).collect();
                if *counts {
                    reader.timing.count_looked_up(places.iter().map(|place| place.entries).sum());
                }
                reader.load_places(receipt, partition, places).await
            }
            SourceKind::Entries { range, direction, composite } => {
                let count = self.fetch.next();
                reader.fetch_entries(receipt, partition, range, *direction, *composite, count).await
            }
            SourceKind::Keys { keys, are_points } => {
                let count = self.fetch.next().min(keys.len());
                let keys: Vec<Key> = keys.drain(..count).collect();
                // An item that the filter names costs a look-up whether or not it exists.
                if *are_points {
                    reader.timing.count_looked_up(keys.len());
                }
                let items = reader.load(receipt, partition, keys.clone()).await?;
                let found = keys.into_iter().zip(items);
                Ok(found
                    .filter_map(|(mark, item)| Some(Found { item: item?, mark, run: Vec::new() }))
                    .collect())
            }
            SourceKind::Set { .. } | SourceKind::Few { .. } => Ok(Vec::new()),
        }
    }

    /// The items of a candidate, each once.
    async fn set_of(
        &self,
        reader: &Reader<'_>,
        receipt: &mut Receipt,
        candidate: &'a Candidate,
        from: &Key,
    ) -> Result<SourceKind<'a>> {
        // Too many for a set: all items instead, in the order that the mark belongs to.
        let Some(set) = reader.item_set(receipt, self.partition, candidate).await? else {
            return Ok(SourceKind::Items(reader.item_streams(self.partition, &self.piece, from).into()));
        };
        // An earlier page went by item keys, so this one does too.
        if !from.is_empty() && !keys::is_rid(from) {
            let keys = set.into_keys().filter(|key| key >= from).collect();
            return Ok(SourceKind::Keys { keys, are_points: false });
        }
        let places = set.into_iter().map(|(item_key, ordinal)| Place {
            mark: Key::new(),
            item_key,
            ordinal,
            entries: 1,
        });
        let places = in_insertion_order(places.collect(), from);
        Ok(SourceKind::Places { places, counts: false, rest: VecDeque::new(), candidate })
    }

    /// The items of a candidate in the order in which they were inserted, or if there are many in that of the entries.
    async fn few_of(
        &self,
        reader: &Reader<'_>,
        receipt: &mut Receipt,
        candidate: &'a Candidate,
        from: &Key,
    ) -> Result<SourceKind<'a>> {
        // On later pages more are read: their order was promised by the first page.
        let count_max = if from.is_empty() { FEW_ENTRIES_MAX } else { SET_ITEMS_MAX };
        let mut rest: VecDeque<KeyRange> = candidate.ranges_in(self.partition).cloned().collect();
        let (mut places, mut fetch, mut read, mut others) = (Vec::<Place>::new(), Fetch::default(), 0, 0);
        while let Some(range) = rest.front_mut().filter(|_| read <= count_max) {
            if range.is_empty() {
                rest.pop_front();
                continue;
            }
            let (more, after) =
                reader.fetch_places(receipt, self.partition, candidate, range, fetch.next()).await?;
            read += after + more.iter().map(|place| place.entries).sum::<usize>();
            others += after;
            places.extend(more);
        }
        // Entries behind the last place were read as well and have to be paid for.
        match places.last_mut() {
            Some(last) => last.entries += others,
            None => reader.timing.count_looked_up(others),
        }
        let counts = true;
        // All entries are known, so they can be sorted.
        if rest.is_empty() {
            let places = in_insertion_order(places, from);
            return Ok(SourceKind::Places { places, counts, rest, candidate });
        }
        // Too many, and no order was promised yet: in the order of the entries.
        if from.is_empty() {
            return Ok(SourceKind::Places { places: places.into(), counts, rest, candidate });
        }
        // Too many since the first page: the order of RIDs is kept by going through all items.
        Ok(SourceKind::Items(reader.item_streams(self.partition, &self.piece, from).into()))
    }
}

/// Sorts places by the RIDs of their items, and drops those before a mark.
fn in_insertion_order(mut places: Vec<Place>, from: &Key) -> VecDeque<Place> {
    for place in &mut places {
        place.mark = keys::rid(place.ordinal);
    }
    places.retain(|place| place.mark >= *from);
    places.sort_by_key(|place| place.ordinal);
    places.into()
}

/// The result of a fetch and its cost.
pub(crate) struct Fetched<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) batches: Vec<Vec<Found>>,
    /// The failure after these batches, if any.
    pub(crate) outcome: Result<()>,
    receipt: Receipt,
    timing: Timing,
}

type Fetching<'a> = Pin<Box<dyn Future<Output = Fetched<'a>> + Send + 'a>>;

/// Reads a source until this many bytes are buffered; at least once.
fn fetch<'a>(reader: Reader<'a>, mut source: Source<'a>, bytes_max: usize) -> Fetching<'a> {
    Box::pin(async move {
        // Recorded apart; `account` adds it when the page uses the result.
        let (timing, mut receipt) = (Timing::default(), Receipt::default());
        let own = Reader { timing: &timing, ..reader };
        let (mut batches, mut bytes) = (Vec::new(), 0);
        let outcome = loop {
            match source.read(&own, &mut receipt).await {
                Ok(found) => {
                    bytes += found.iter().map(|found| found.item.body.len()).sum::<usize>();
                    batches.push(found);
                }
                // Kept with what was read before: the page may end before it comes to the failure.
                Err(error) => break Err(error),
            }
            if source.is_read() || bytes >= bytes_max {
                break Ok(());
            }
        };
        Fetched { source, batches, outcome, receipt, timing }
    })
}

/// How much of its sources a page reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of them.
    Everything,
    /// It may end at any item, but reads each source.
    EveryBeginning,
    /// It may end at any item. The sources are individually computed keys, so each is likely small.
    SmallSources,
    /// It may end at any item.
    Unknown,
}

/// The sources of a page, in their order.
pub(crate) struct ReadAhead<'a> {
    reader: Reader<'a>,
    waiting: Box<dyn Iterator<Item = Source<'a>> + Send + 'a>,
    running: FuturesOrdered<Fetching<'a>>,
    /// The partitions of what is running.
    partitions: VecDeque<&'a Partition>,
    width: usize,
    width_max: usize,
    bytes: usize,
}

impl<'a> ReadAhead<'a> {
    pub(crate) fn new(
        reader: Reader<'a>,
        extent: Extent,
        sources: impl Iterator<Item = Source<'a>> + Send + 'a,
    ) -> Self {
        let mut waiting = sources.filter(|source| !source.is_read()).peekable();
        let are_sets = matches!(waiting.peek(), Some(Source { kind: SourceKind::Set { .. }, .. }));
        // A script's reads go through its overlay.
        let width_max = match (reader.overlay, are_sets) {
            (Some(_), _) => 1,
            (None, true) => SETS_MAX,
            (None, false) => SOURCES_MAX,
        };
        // If the page may end at any item, begin with one source and widen as sources run out.
        let (width, bytes) = match extent {
            Extent::Everything => (width_max, AHEAD_BYTES),
            Extent::EveryBeginning | Extent::SmallSources => (width_max, 0),
            Extent::Unknown => (1, 0),
        };
        Self {
            reader,
            waiting: Box::new(waiting),
            running: FuturesOrdered::new(),
            partitions: VecDeque::new(),
            width,
            width_max,
            bytes,
        }
    }

    /// The result of the next fetch; return its source with [`Self::go_on`] or [`Self::leave`].
    pub(crate) async fn next(&mut self, receipt: &mut Receipt) -> Result<Option<Fetched<'a>>> {
        while self.running.len() < self.width {
            let Some(source) = self.waiting.next() else { break };
            self.partitions.push_back(source.partition);
            self.running.push_back(fetch(self.reader, source, self.bytes));
        }
        let Some(partition) = self.partitions.pop_front() else { return Ok(None) };
        // Nothing has been read yet, unless it was read ahead.
        self.reader.admit(receipt, partition)?;
        let Some(fetched) = self.running.next().await else { return Ok(None) };
        self.reader.account(receipt, partition, &fetched.receipt, &fetched.timing);
        Ok(Some(fetched))
    }

    /// Continues reading the source of the last fetch, if anything is left.
    pub(crate) fn go_on(&mut self, source: Source<'a>) {
        if source.is_read() {
            self.leave();
        } else {
            // In front again: the page consumes its sources in order.
            self.partitions.push_front(source.partition);
            self.running.push_front(fetch(self.reader, source, self.bytes));
        }
    }

    /// Drops the source of the last fetch.
    pub(crate) fn leave(&mut self) {
        // A source that ran out without filling the page suggests that more of them are needed.
        self.width = (self.width + 1).min(self.width_max);
    }
}

impl Reader<'_> {
    /// Admits the request to a partition before anything read there is used.
    pub(crate) fn admit(&self, receipt: &mut Receipt, partition: &Partition) -> Result<()> {
        match receipt.container.clone() {
            Some(container) if self.overlay.is_none() => self.database.admit(receipt, &container, partition),
            _ => Ok(()),
        }
    }

    /// Records the cost of a read, now that the request uses it.
    pub(crate) fn account(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        read: &Receipt,
        timing: &Timing,
    ) {
        receipt.join(partition, read);
        self.timing.join(timing);
    }
}

impl Reader<'_> {
    /// Counts index entries in all partitions, or items if there is no candidate.
    pub(crate) async fn count_everywhere(
        &self,
        receipt: &mut Receipt,
        candidate: Option<&Candidate>,
    ) -> Result<u64> {
        let (reader, partitions) = (*self, self.partitions());
        // Before the first read: a throttled query must not have read in half of its partitions.
        for partition in &partitions {
            reader.admit(receipt, partition)?;
        }
        let width = if reader.overlay.is_some() { 1 } else { SOURCES_MAX };
        let (mut waiting, mut running, mut sum) = (partitions.iter(), FuturesOrdered::new(), 0);
        loop {
            while running.len() < width {
                let Some(partition) = waiting.next() else { break };
                running.push_back(count(reader, partition, candidate));
            }
            let Some((partition, counted, read, timing)) = running.next().await else { break };
            reader.account(receipt, partition, &read, &timing);
            sum += counted?;
        }
        Ok(sum)
    }
}

type Counting<'a> = Pin<Box<dyn Future<Output = (&'a Partition, Result<u64>, Receipt, Timing)> + Send + 'a>>;

/// Counts in one partition.
fn count<'a>(reader: Reader<'a>, partition: &'a Partition, candidate: Option<&'a Candidate>) -> Counting<'a> {
    Box::pin(async move {
        let (timing, mut receipt) = (Timing::default(), Receipt::default());
        let own = Reader { timing: &timing, ..reader };
        let counted = match candidate {
            Some(candidate) => own.count_entries(&mut receipt, partition, candidate).await,
            None => own.count_items(&mut receipt, partition).await,
        };
        (partition, counted, receipt, timing)
    })
}
