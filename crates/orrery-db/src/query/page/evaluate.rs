//! Feeds the items of an access path to the pipeline.

use std::sync::atomic::Ordering;

use orrery_env::monotonic;
use orrery_model::partition_key::EpkRange;
use orrery_model::{Object, Result, Value};
use orrery_query::EvalError;
use orrery_query::context::{Memory, Work};
use orrery_query::pipeline::{Pipeline, ResumePoint, ResumeValue, Row};
use orrery_storage::{Direction, Key, KeyRange};
use parking_lot::Mutex;

use super::position::StreamStart;
use super::run::Run;
use super::stop::{Watch, run_blocking};
use crate::catalog::Partition;
use crate::items::areas::pieces;
use crate::items::insertion_order::ItemStream;
use crate::layout::document::{document_members, document_value};
use crate::layout::keys;
use crate::partition::Receipt;
use crate::query::errors::evaluation_failure;
use crate::query::fetch::ahead::{Extent, ReadAhead, Source};
use crate::query::fetch::lacking;
use crate::query::fetch::reader::{Fetch, Flow, Found, Reader, sequence_from};
use crate::query::plan::access::{AccessPath, Sequence, SequenceBy};

/// The maximum number of join rows per fetch.
const WORK_ROWS_MAX: u64 = 20_000_000;
/// Items without the sort property loaded per batch.
const LACKING_ITEMS: usize = 256;
/// A query that has read this many items is not short.
const SHORT_ITEMS_MAX: u64 = 1000;
/// Nor is a batch of this many bytes of items.
const SHORT_BYTES_MAX: usize = 256 << 10;
/// Nor one where the bytes of the items times the length of the query text exceed this.
const SHORT_PRODUCT_MAX: usize = 64 << 20;
/// Nor one with possibly quadratic functions over more than this many bytes.
const SHORT_SQUARED_BYTES_MAX: usize = 4 << 10;

impl Run<'_> {
    /// Reads items along the path and feeds them until `after_each` stops it.
    pub(crate) async fn feed(
        &mut self,
        receipt: &mut Receipt,
        pipeline: &mut Pipeline,
        path: &AccessPath,
        (start, extent): (&StreamStart, Extent),
        mut after_each: impl FnMut(&mut Pipeline, &Found, &EpkRange) -> Result<Flow>,
    ) -> Result<()> {
        let (reader, partitions) = (self.reader, self.reader.partitions());
        // In the order of the keys, which is the order of the rows.
        let sources = partitions.iter().flat_map(|partition| sources(&reader, path, start, partition));
        let mut ahead = ReadAhead::new(reader, extent, sources);
        while let Some(fetched) = ahead.next(receipt).await? {
            let piece = &fetched.source.piece;
            for found in fetched.batches {
                let after_each = |pipeline: &mut Pipeline, found: &Found| after_each(pipeline, found, piece);
                let flow = self.feed_batch(pipeline, found, after_each).await;
                if self.interrupted_at.is_some() {
                    self.interrupted_in = Some(piece.clone());
                }
                // The page is full. Sources that were read ahead are dropped and not charged.
                if flow? != Flow::GoOn {
                    return Ok(());
                }
                tokio::task::yield_now().await;
            }
            // After the items before it: what was read up to the failure is part of the page.
            fetched.outcome?;
            ahead.go_on(fetched.source);
        }
        // These partitions may contain none of the named items.
        if receipt.served.is_empty() {
            self.touch(receipt).await?;
        }
        Ok(())
    }

    /// Reads items in sort order, from each partition only as many as can be in the page.
    pub(crate) async fn feed_sequence(
        &mut self,
        receipt: &mut Receipt,
        pipeline: &mut Pipeline,
        sequence: &Sequence,
        resume: Option<&ResumePoint>,
    ) -> Result<()> {
        let encoded = resume.and_then(|point| sequence.encode(point));
        let is_forward = sequence.direction == Direction::Forward;
        let in_undefined = resume.is_some_and(|point| point.values.first() == Some(&ResumeValue::Undefined));
        // In descending order the items without the property come last, and the resume point is among them.
        let only_undefined = sequence.lacks_undefined && !is_forward && in_undefined;
        let begins_undefined = sequence.lacks_undefined && is_forward && (resume.is_none() || in_undefined);
        let partitions = self.reader.partitions();
        let is_alone = partitions.len() == 1;
        let mut range = sequence_from(sequence, encoded.as_deref());
        // No entries are left to read.
        if only_undefined {
            range.end = Some(range.start.clone());
        }
        let reads_entries = !range.is_empty();
        let sources = partitions.iter().map(|partition| {
            Source::entries(partition, range.clone(), sequence.direction, sequence.composite())
        });
        let mut ahead = ReadAhead::new(self.reader, Extent::EveryBeginning, sources);
        for partition in &partitions {
            if begins_undefined {
                self.feed_without(receipt, pipeline, partition, sequence).await?;
            }
            // An item whose rows sort after the page ends the partition, once the run of equal values is over: ties are
            // ordered by properties that the index does not have. A single partition can stop even earlier, as soon as
            // the page is full.
            let lost_before = pipeline.rows_lost();
            let mut last_run: Option<Vec<u8>> = None;
            let mut settled = begins_undefined && is_alone && pipeline.is_settled();
            let mut is_read = !reads_entries;
            while !is_read && !settled {
                let Some(fetched) = ahead.next(receipt).await? else { break };
                let before_each = |pipeline: &mut Pipeline, found: &Found| {
                    let is_new_run = last_run.as_ref() != Some(&found.run);
                    // A row was dropped because it sorts after the page, or this one partition has filled it.
                    let is_over = pipeline.rows_lost() > lost_before || is_alone && pipeline.is_settled();
                    if is_new_run && last_run.is_some() && is_over {
                        return false;
                    }
                    last_run = Some(found.run.clone());
                    true
                };
                let found = fetched.batches.into_iter().flatten().collect();
                let flow = self.feed_batch_until(pipeline, found, before_each).await?;
                settled = flow == Flow::Stop;
                if settled {
                    ahead.leave();
                } else {
                    fetched.outcome?;
                    is_read = fetched.source.is_read();
                    ahead.go_on(fetched.source);
                }
                tokio::task::yield_now().await;
            }
            if sequence.lacks_undefined && !is_forward && !settled {
                self.feed_without(receipt, pipeline, partition, sequence).await?;
            }
        }
        if receipt.served.is_empty() {
            self.touch(receipt).await?;
        }
        Ok(())
    }

    /// Feeds the items that lack the property of a sequence.
    async fn feed_without(
        &mut self,
        receipt: &mut Receipt,
        pipeline: &mut Pipeline,
        partition: &Partition,
        sequence: &Sequence,
    ) -> Result<()> {
        let SequenceBy::Path(path) = &sequence.by else { return Ok(()) };
        let names = lacking::names(path);
        if let Some(keys) = self.reader.items_lacking(receipt, partition, path).await? {
            for keys in keys.chunks(LACKING_ITEMS) {
                let items = self.reader.load(receipt, partition, keys.to_vec()).await?;
                let mut without = Vec::new();
                for (mark, item) in keys.iter().zip(items) {
                    let Some(item) = item else { continue };
                    // It may have the property by now; then it is in the index.
                    if document_value(&item, self.reader.container.rid)?.at_path(&names).is_none() {
                        without.push(Found { item, mark: mark.clone(), run: Vec::new() });
                    }
                }
                self.feed_batch(pipeline, without, |_, _| Ok(Flow::GoOn)).await?;
                tokio::task::yield_now().await;
            }
            return Ok(());
        }
        // Too many to remember: scan all items for those without the property.
        for window in self.reader.windows.iter().filter_map(|window| partition.range.intersect(window)) {
            let (mut items, mut fetch) = (ItemStream::by_key(window, &NO_KEY), Fetch::default());
            while !items.is_read() {
                let found = self.reader.fetch_items(receipt, partition, &mut items, fetch.next()).await?;
                let mut without = Vec::new();
                for found in found {
                    let value = document_value(&found.item, self.reader.container.rid)?;
                    if value.at_path(&names).is_none() {
                        without.push(found);
                    }
                }
                self.feed_batch(pipeline, without, |_, _| Ok(Flow::GoOn)).await?;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Feeds items until `after_each` stops it.
    pub(crate) async fn feed_batch(
        &mut self,
        pipeline: &mut Pipeline,
        found: Vec<Found>,
        mut after_each: impl FnMut(&mut Pipeline, &Found) -> Result<Flow>,
    ) -> Result<Flow> {
        let bytes = bytes_of(&found);
        self.evaluate(found, bytes, |run, found, work| {
            run.feed_one(pipeline, &found, work)?;
            after_each(pipeline, &found)
        })
        .await
    }

    /// Feeds items while `before_each` allows it.
    async fn feed_batch_until(
        &mut self,
        pipeline: &mut Pipeline,
        found: Vec<Found>,
        mut before_each: impl FnMut(&mut Pipeline, &Found) -> bool,
    ) -> Result<Flow> {
        let bytes = bytes_of(&found);
        self.evaluate(found, bytes, |run, found, work| {
            if !before_each(pipeline, &found) {
                return Ok(Flow::Stop);
            }
            run.feed_one(pipeline, &found, work)?;
            Ok(Flow::GoOn)
        })
        .await
    }

    /// Evaluates some items, or documents in their place, of so many bytes. Long evaluations run off the request threads, at most one per CPU: a runaway query slows
    /// down other queries, not point reads. Short ones stay on the calling thread, because switching threads would take
    /// longer than most pages.
    pub(crate) async fn evaluate<T>(
        &mut self,
        found: Vec<T>,
        bytes: usize,
        mut each: impl FnMut(&mut Self, T, &Work<'_>) -> Result<Flow>,
    ) -> Result<Flow> {
        // Any of these may take longer than a request should hold its thread.
        let is_long = self.work.multiplies
            || bytes > SHORT_BYTES_MAX
            || bytes.saturating_mul(self.text_bytes) > SHORT_PRODUCT_MAX
            || self.work.squares && bytes > SHORT_SQUARED_BYTES_MAX
            || self.metrics.items_read > SHORT_ITEMS_MAX;
        // Waits here, without a thread, while other evaluations have the slots.
        let slot = if is_long {
            Some(self.reader.database.evaluations.acquire(self.reader.container.rid).await)
        } else {
            None
        };
        let watch = Watch { slot: Mutex::new(slot), ..self.watch() };
        let work = self.metered(&watch);
        let go_through = |run: &mut Self| {
            let started = monotonic::now();
            let mut flow = Ok(Flow::GoOn);
            for found in found {
                flow = each(run, found, &work);
                if flow != Ok(Flow::GoOn) {
                    break;
                }
                watch.has_progress.store(true, Ordering::Relaxed);
            }
            run.metrics.evaluation_time += monotonic::elapsed(started);
            flow
        };
        let flow = if is_long { run_blocking(|| go_through(self)) } else { go_through(self) };
        self.metrics.steps += work.steps();
        // Decides how long the next item may take.
        self.has_progress |= watch.has_progress.load(Ordering::Relaxed);
        let flow = flow?;
        self.check_time()?;
        Ok(flow)
    }

    /// Counts the steps of an evaluation, and its memory.
    fn metered<'w>(&self, watch: &'w Watch) -> Work<'w>
    where
        Self: 'w,
    {
        let memory = self.options.memory.as_ref().map(|memory| &*memory.0 as &dyn Memory);
        Work::new(WORK_ROWS_MAX).with_interrupt(watch).with_memory(memory)
    }

    pub(crate) fn feed_one(&mut self, pipeline: &mut Pipeline, found: &Found, work: &Work<'_>) -> Result<()> {
        // The item inside which the last page ended is gone or is another one: its rows are not skipped.
        if self.resumed_in.take().is_some_and(|key| key != found.mark) {
            pipeline.forget_skipped_rows();
        }
        // Only the properties that the program reads are parsed.
        let document = match &self.roots {
            // The item is not read at all.
            Some(roots) if roots.is_empty() => Value::Object(Object::default()),
            Some(roots) => document_members(&found.item, self.reader.container.rid, roots)?,
            None => document_value(&found.item, self.reader.container.rid)?,
        };
        self.metrics.items_read += 1;
        self.metrics.bytes_read += found.item.body.len() as u64;
        let row = Row { document: &document, ordinal: found.item.ordinal, text_bytes: found.item.body.len() };
        if let Err(error) = pipeline.feed(row, &self.context(Some(work))) {
            if error == EvalError::TimedOut {
                self.interrupted_at = Some(found.mark.clone());
            }
            return Err(evaluation_failure(error));
        }
        if let Some(kept) = &mut self.kept {
            kept.after_feed(pipeline, &found.item);
        }
        Ok(())
    }

    /// Finishes the pipeline. Group rows are built here, so JavaScript functions may be called.
    pub(crate) fn finish(&mut self, pipeline: &mut Pipeline) -> Result<()> {
        let watch = self.watch();
        let work = self.metered(&watch);
        let mut finish = || pipeline.finish(&self.context(Some(&work))).map_err(evaluation_failure);
        let is_long = self.functions.is_some() || self.work.multiplies || self.work.squares;
        let finished = if is_long { run_blocking(finish) } else { finish() };
        self.metrics.steps += work.steps();
        finished
    }
}

fn bytes_of(found: &[Found]) -> usize {
    found.iter().map(|found| found.item.body.len()).sum()
}

static NO_KEY: Key = Key::new();
/// Up to this many ranges of entries are read one after the other, to sort their items.
const FEW_RANGES_MAX: usize = 8;

/// The source of a path in one partition, from the start of the page.
fn sources<'a>(
    reader: &Reader<'_>,
    path: &'a AccessPath,
    start: &'a StreamStart,
    partition: &'a Partition,
) -> Vec<Source<'a>> {
    let pieces = pieces(&start.areas, &start.key, &partition.range).into_iter();
    pieces
        .flat_map(|(piece, from)| sources_of(reader, path, start.by_insertion, partition, &piece, from))
        .collect()
}

/// The sources of a path in a piece of a partition, from a mark on.
fn sources_of<'a>(
    reader: &Reader<'_>,
    path: &'a AccessPath,
    by_insertion: bool,
    partition: &'a Partition,
    piece: &EpkRange,
    from: &'a Key,
) -> Vec<Source<'a>> {
    match path {
        AccessPath::Entries(candidate) if keys::is_rid(from) => {
            vec![Source::few(partition, candidate, from).of_piece(reader, piece)]
        }
        AccessPath::Entries(candidate) => {
            let ranges = candidate.ranges_in(partition).map(|range| KeyRange {
                start: range.start.clone().max(from.clone()),
                end: range.end.clone(),
            });
            let composite = candidate.composite.as_deref();
            let ranges: Vec<KeyRange> = ranges.filter(|range| !range.is_empty()).collect();
            // Several keys that the filter names are read concurrently, one after the other.
            let is_one = candidate.keys.is_empty() || ranges.len() == 1;
            if by_insertion && from.is_empty() && is_one && ranges.len() <= FEW_RANGES_MAX {
                return vec![Source::few(partition, candidate, from).of_piece(reader, piece)];
            }
            let sources = ranges.into_iter();
            sources
                .map(|range| Source::entries(partition, range, Direction::Forward, composite))
                .map(|source| source.of_piece(reader, piece))
                .collect()
        }
        AccessPath::Set(candidate) => {
            vec![Source::set(partition, candidate, from).of_piece(reader, piece)]
        }
        AccessPath::Points(points) => vec![Source::points(partition, points, from)],
        AccessPath::Items | AccessPath::Sequence(_) => {
            let windows = reader.windows.iter().filter_map(|window| piece.intersect(window));
            let sources = windows.map(|window| {
                let items = if by_insertion {
                    ItemStream::new(window.clone(), from)
                } else {
                    ItemStream::by_key(window.clone(), from)
                };
                Source::items(partition, window, items, reader.rows_wanted)
            });
            sources.collect()
        }
    }
}
