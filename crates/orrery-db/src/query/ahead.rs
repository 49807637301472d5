//! Reading at several places at once.
//!
//! A page of a query reads one place after another: the run of keys of a logical partition, the entries of a value
//! in a physical one. What it reads is used in that order and no other, so that rows, charges and continuations are
//! those of reading one by one; but the first fetch at the next few places is under way while the one before is
//! waited for. What was read ahead is noted in the request's receipt when it is used. A page that ends before pays
//! nothing for it, is not refused because of it, and does not hear of its failures.
//!
//! Bounds: [`PLACES_MAX`] fetches at once for one request. Where all places will be read anyway each holds up to
//! [`AHEAD_BYTES`], all together about a page; where the page may end at any item, one fetch is read ahead at each
//! place, at one further place for each that has been read to its end, so that little is read in vain.

use std::collections::VecDeque;
use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use orrery_model::Result;
use orrery_storage::{Direction, Key, KeyRange};

use super::access::Candidate;
use super::points::Points;
use super::reader::{Fetch, Found, Reader, Timing};
use super::run::PAGE_BYTES_MAX;
use super::run::Run;
use crate::catalog::Partition;
use crate::partition::Receipt;

/// Places that are read at once.
pub(super) const PLACES_MAX: usize = 8;
/// What is read ahead at a place.
const AHEAD_BYTES: usize = PAGE_BYTES_MAX / PLACES_MAX;
/// Sets of items that are held at once: each may be large.
const SETS_MAX: usize = 2;

/// Items in one partition that are read one fetch after another.
pub(super) struct Place<'a> {
    pub(super) partition: &'a Partition,
    source: Source<'a>,
    fetch: Fetch,
}

enum Source<'a> {
    /// Items by their own keys.
    Items(VecDeque<KeyRange>),
    /// Items by index entries.
    Entries { range: KeyRange, direction: Direction, composite: Option<&'a [bool]> },
    /// Items that are named.
    Keys { keys: VecDeque<Key>, are_points: bool },
    /// Items that a candidate names, from a key on; they are found out by the first fetch.
    Set { candidate: &'a Candidate, from: &'a Key },
}

impl<'a> Place<'a> {
    /// `rows` is how many a page has at most.
    pub(super) fn items(partition: &'a Partition, range: KeyRange, rows: usize) -> Self {
        let place = Self::new(partition, Source::Items(VecDeque::from([range])));
        Self { fetch: Fetch::of_rows(rows), ..place }
    }

    pub(super) fn entries(
        partition: &'a Partition,
        range: KeyRange,
        direction: Direction,
        composite: Option<&'a [bool]>,
    ) -> Self {
        Self::new(partition, Source::Entries { range, direction, composite })
    }

    pub(super) fn points(partition: &'a Partition, points: &Points, from: &Key) -> Self {
        let keys = points.within(partition, from).into();
        Self::new(partition, Source::Keys { keys, are_points: true })
    }

    pub(super) fn set(partition: &'a Partition, candidate: &'a Candidate, from: &'a Key) -> Self {
        Self::new(partition, Source::Set { candidate, from })
    }

    fn new(partition: &'a Partition, source: Source<'a>) -> Self {
        Self { partition, source, fetch: Fetch::default() }
    }

    /// For looking at the first item only.
    pub(super) fn of_one(self) -> Self {
        Self { fetch: Fetch::one(), ..self }
    }

    /// Whether there is nothing left to read.
    pub(super) fn is_read(&self) -> bool {
        match &self.source {
            Source::Items(ranges) => ranges.iter().all(KeyRange::is_empty),
            Source::Entries { range, .. } => range.is_empty(),
            Source::Keys { keys, .. } => keys.is_empty(),
            Source::Set { .. } => false,
        }
    }

    async fn read(&mut self, reader: &Reader<'_>, receipt: &mut Receipt) -> Result<Vec<Found>> {
        let partition = self.partition;
        if let Source::Set { candidate, from } = &self.source {
            let set = reader.item_set(receipt, partition, candidate).await?;
            self.source = match set {
                Some(set) => {
                    let keys = set.into_iter().filter(|key| key >= *from).collect();
                    Source::Keys { keys, are_points: false }
                }
                None => Source::Items(reader.item_ranges(partition, from).into()),
            };
        }
        match &mut self.source {
            Source::Items(ranges) => {
                ranges.retain(|range| !range.is_empty());
                let Some(range) = ranges.front_mut() else { return Ok(Vec::new()) };
                reader.fetch_items(receipt, partition, range, self.fetch.next()).await
            }
            Source::Entries { range, direction, composite } => {
                let count = self.fetch.next();
                reader.fetch_entries(receipt, partition, range, *direction, *composite, count).await
            }
            Source::Keys { keys, are_points } => {
                let count = self.fetch.next().min(keys.len());
                let keys: Vec<Key> = keys.drain(..count).collect();
                if *are_points {
                    reader.timing.count_looked_up(keys.len());
                }
                let items = reader.load(receipt, partition, keys.clone()).await?;
                let found = keys.into_iter().zip(items);
                Ok(found
                    .filter_map(|(mark, item)| Some(Found { item: item?, mark, run: Vec::new() }))
                    .collect())
            }
            Source::Set { .. } => Ok(Vec::new()),
        }
    }
}

/// What was read at a place, and what that took.
pub(super) struct Fetched<'a> {
    pub(super) place: Place<'a>,
    pub(super) batches: Vec<Vec<Found>>,
    /// What went wrong after the batches.
    pub(super) outcome: Result<()>,
    receipt: Receipt,
    timing: Timing,
}

type Fetching<'a> = Pin<Box<dyn Future<Output = Fetched<'a>> + Send + 'a>>;

/// Reads at a place until there are so many bytes; once at least.
fn fetch<'a>(reader: Reader<'a>, mut place: Place<'a>, bytes_max: usize) -> Fetching<'a> {
    Box::pin(async move {
        let (timing, mut receipt) = (Timing::default(), Receipt::default());
        let own = Reader { timing: &timing, ..reader };
        let (mut batches, mut bytes) = (Vec::new(), 0);
        let outcome = loop {
            match place.read(&own, &mut receipt).await {
                Ok(found) => {
                    bytes += found.iter().map(|found| found.item.body.len()).sum::<usize>();
                    batches.push(found);
                }
                Err(error) => break Err(error),
            }
            if place.is_read() || bytes >= bytes_max {
                break Ok(());
            }
        };
        Fetched { place, batches, outcome, receipt, timing }
    })
}

/// Whether a page reads all of its places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// It does.
    Everything,
    /// It may end at any item, but begins at each place.
    EveryBeginning,
    /// It may end at any item. The places are keys that were worked out one by one, so each is likely small.
    SmallPlaces,
    /// It may end at any item.
    Unknown,
}

/// The places of a page, in their order.
pub(super) struct ReadAhead<'a> {
    reader: Reader<'a>,
    waiting: Box<dyn Iterator<Item = Place<'a>> + Send + 'a>,
    running: FuturesOrdered<Fetching<'a>>,
    /// The partitions of what is running.
    partitions: VecDeque<&'a Partition>,
    width: usize,
    width_max: usize,
    bytes: usize,
}

impl<'a> ReadAhead<'a> {
    pub(super) fn new(
        reader: Reader<'a>,
        extent: Extent,
        places: impl Iterator<Item = Place<'a>> + Send + 'a,
    ) -> Self {
        let mut waiting = places.filter(|place| !place.is_read()).peekable();
        let are_sets = matches!(waiting.peek(), Some(Place { source: Source::Set { .. }, .. }));
        // A script's reads go through what it has written.
        let width_max = match (reader.overlay, are_sets) {
            (Some(_), _) => 1,
            (None, true) => SETS_MAX,
            (None, false) => PLACES_MAX,
        };
        let (width, bytes) = match extent {
            Extent::Everything => (width_max, AHEAD_BYTES),
            Extent::EveryBeginning | Extent::SmallPlaces => (width_max, 0),
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

    /// What the next fetch found; its place is to be given back with [`Self::go_on`] or [`Self::leave`].
    pub(super) async fn next(&mut self, receipt: &mut Receipt) -> Result<Option<Fetched<'a>>> {
        while self.running.len() < self.width {
            let Some(place) = self.waiting.next() else { break };
            self.partitions.push_back(place.partition);
            self.running.push_back(fetch(self.reader, place, self.bytes));
        }
        let Some(partition) = self.partitions.pop_front() else { return Ok(None) };
        // Nothing has been read yet, unless it was read ahead.
        self.reader.admit(receipt, partition)?;
        let Some(fetched) = self.running.next().await else { return Ok(None) };
        self.reader.account(receipt, partition, &fetched.receipt, &fetched.timing);
        Ok(Some(fetched))
    }

    /// Reads on at the place of the last fetch, if there is something left.
    pub(super) fn go_on(&mut self, place: Place<'a>) {
        if place.is_read() {
            self.leave();
        } else {
            self.partitions.push_front(place.partition);
            self.running.push_front(fetch(self.reader, place, self.bytes));
        }
    }

    /// Is done with the place of the last fetch.
    pub(super) fn leave(&mut self) {
        self.width = (self.width + 1).min(self.width_max);
    }
}

impl Reader<'_> {
    /// Lets the request pass to a partition, before anything that was read there is used.
    pub(super) fn admit(&self, receipt: &mut Receipt, partition: &Partition) -> Result<()> {
        match receipt.container.clone() {
            Some(container) if self.overlay.is_none() => self.database.admit(receipt, &container, partition),
            _ => Ok(()),
        }
    }

    /// Notes what reading took, now that the request uses it.
    fn account(&self, receipt: &mut Receipt, partition: &Partition, read: &Receipt, timing: &Timing) {
        receipt.join(partition, read);
        self.timing.join(timing);
    }
}

impl Run<'_> {
    /// Counts index entries in all partitions, or items where there is no candidate.
    pub(super) async fn count_everywhere(
        &self,
        receipt: &mut Receipt,
        candidate: Option<&Candidate>,
    ) -> Result<u64> {
        let (reader, partitions) = (self.reader, self.reader.partitions());
        for partition in &partitions {
            reader.admit(receipt, partition)?;
        }
        let width = if reader.overlay.is_some() { 1 } else { PLACES_MAX };
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
