//! Reading at several sources at once.
//!
//! A page of a query reads one source after another: the run of keys of a logical partition, the entries of a value
//! in a physical one. What it reads is used in that order and no other, so that rows, charges and continuations are
//! those of reading one by one; but the first fetch at the next few sources is under way while the one before is
//! waited for. What was read ahead is noted in the request's receipt when it is used. A page that ends before pays
//! nothing for it, is not refused because of it, and does not hear of its failures.
//!
//! Bounds: [`SOURCES_MAX`] fetches at once for one request. Where all sources will be read anyway each holds up to
//! [`AHEAD_BYTES`], all together about a page; where the page may end at any item, one fetch is read ahead at each
//! source, at one further source for each that has been read to its end, so that little is read in vain.

use std::collections::VecDeque;
use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use orrery_model::Result;
use orrery_storage::{Direction, Key, KeyRange};

use super::reader::{Fetch, Found, Reader, Timing};
use crate::catalog::Partition;
use crate::partition::Receipt;
use crate::query::PAGE_BYTES_MAX;
use crate::query::plan::access::Candidate;
use crate::query::plan::points::Points;

/// Places that are read at once.
pub(crate) const SOURCES_MAX: usize = 8;
/// What is read ahead at a source.
const AHEAD_BYTES: usize = PAGE_BYTES_MAX / SOURCES_MAX;
/// Sets of items that are held at once: each may be large.
const SETS_MAX: usize = 2;

/// Items in one partition that are read one fetch after another.
pub(crate) struct Source<'a> {
    pub(crate) partition: &'a Partition,
    kind: SourceKind<'a>,
    fetch: Fetch,
}

enum SourceKind<'a> {
    /// Items by their own keys.
    Items(VecDeque<KeyRange>),
    /// Items by index entries.
    Entries { range: KeyRange, direction: Direction, composite: Option<&'a [bool]> },
    /// Items that are named.
    Keys { keys: VecDeque<Key>, are_points: bool },
    /// Items that a candidate names, from a key on; they are found out by the first fetch.
    Set { candidate: &'a Candidate, from: &'a Key },
}

impl<'a> Source<'a> {
    /// `rows` is how many a page has at most.
    pub(crate) fn items(partition: &'a Partition, range: KeyRange, rows: usize) -> Self {
        let source = Self::new(partition, SourceKind::Items(VecDeque::from([range])));
        Self { fetch: Fetch::of_rows(rows), ..source }
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
        Self { partition, kind, fetch: Fetch::default() }
    }

    /// For looking at the first item only.
    pub(crate) fn of_one(self) -> Self {
        Self { fetch: Fetch::one(), ..self }
    }

    /// Whether there is nothing left to read.
    pub(crate) fn is_read(&self) -> bool {
        match &self.kind {
            SourceKind::Items(ranges) => ranges.iter().all(KeyRange::is_empty),
            SourceKind::Entries { range, .. } => range.is_empty(),
            SourceKind::Keys { keys, .. } => keys.is_empty(),
            SourceKind::Set { .. } => false,
        }
    }

    async fn read(&mut self, reader: &Reader<'_>, receipt: &mut Receipt) -> Result<Vec<Found>> {
        let partition = self.partition;
        if let SourceKind::Set { candidate, from } = &self.kind {
            let set = reader.item_set(receipt, partition, candidate).await?;
            self.kind = match set {
                Some(set) => {
                    let keys = set.into_iter().filter(|key| key >= *from).collect();
                    SourceKind::Keys { keys, are_points: false }
                }
                None => SourceKind::Items(reader.item_ranges(partition, from).into()),
            };
        }
        match &mut self.kind {
            SourceKind::Items(ranges) => {
                ranges.retain(|range| !range.is_empty());
                let Some(range) = ranges.front_mut() else { return Ok(Vec::new()) };
                reader.fetch_items(receipt, partition, range, self.fetch.next()).await
            }
            SourceKind::Entries { range, direction, composite } => {
                let count = self.fetch.next();
                reader.fetch_entries(receipt, partition, range, *direction, *composite, count).await
            }
            SourceKind::Keys { keys, are_points } => {
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
            SourceKind::Set { .. } => Ok(Vec::new()),
        }
    }
}

/// What was read at a source, and what that took.
pub(crate) struct Fetched<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) batches: Vec<Vec<Found>>,
    /// What went wrong after the batches.
    pub(crate) outcome: Result<()>,
    receipt: Receipt,
    timing: Timing,
}

type Fetching<'a> = Pin<Box<dyn Future<Output = Fetched<'a>> + Send + 'a>>;

/// Reads at a source until there are so many bytes; once at least.
fn fetch<'a>(reader: Reader<'a>, mut source: Source<'a>, bytes_max: usize) -> Fetching<'a> {
    Box::pin(async move {
        let (timing, mut receipt) = (Timing::default(), Receipt::default());
        let own = Reader { timing: &timing, ..reader };
        let (mut batches, mut bytes) = (Vec::new(), 0);
        let outcome = loop {
            match source.read(&own, &mut receipt).await {
                Ok(found) => {
                    bytes += found.iter().map(|found| found.item.body.len()).sum::<usize>();
                    batches.push(found);
                }
                Err(error) => break Err(error),
            }
            if source.is_read() || bytes >= bytes_max {
                break Ok(());
            }
        };
        Fetched { source, batches, outcome, receipt, timing }
    })
}

/// Whether a page reads all of its sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// It does.
    Everything,
    /// It may end at any item, but begins at each source.
    EveryBeginning,
    /// It may end at any item. The sources are keys that were worked out one by one, so each is likely small.
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
        // A script's reads go through what it has written.
        let width_max = match (reader.overlay, are_sets) {
            (Some(_), _) => 1,
            (None, true) => SETS_MAX,
            (None, false) => SOURCES_MAX,
        };
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

    /// What the next fetch found; its source is to be given back with [`Self::go_on`] or [`Self::leave`].
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

    /// Reads on at the source of the last fetch, if there is something left.
    pub(crate) fn go_on(&mut self, source: Source<'a>) {
        if source.is_read() {
            self.leave();
        } else {
            self.partitions.push_front(source.partition);
            self.running.push_front(fetch(self.reader, source, self.bytes));
        }
    }

    /// Is done with the source of the last fetch.
    pub(crate) fn leave(&mut self) {
        self.width = (self.width + 1).min(self.width_max);
    }
}

impl Reader<'_> {
    /// Lets the request pass to a partition, before anything that was read there is used.
    pub(crate) fn admit(&self, receipt: &mut Receipt, partition: &Partition) -> Result<()> {
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

impl Reader<'_> {
    /// Counts index entries in all partitions, or items where there is no candidate.
    pub(crate) async fn count_everywhere(
        &self,
        receipt: &mut Receipt,
        candidate: Option<&Candidate>,
    ) -> Result<u64> {
        let (reader, partitions) = (*self, self.partitions());
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
