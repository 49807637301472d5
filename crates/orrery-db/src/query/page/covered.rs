//! Groups, sums and distinct values from the index alone.
//!
//! The entries of a property are counted by value, and the query runs over one document for each value instead of over
//! all items. Where an entry does not tell the value (long strings, integers that a double rounds, arrays and objects)
//! its items are read. What is worth more than it saves, or could differ from what a scan gives, is given up: then
//! nothing was charged, and the items are read as if this had not been tried.

use std::collections::VecDeque;
use std::sync::Arc;

use orrery_model::{Object, Result, Value};
use orrery_query::pipeline::{Options, Pipeline, Row};
use orrery_query::{EvalError, Program};
use orrery_storage::{Direction, KeyRange, TallyRun};

use super::run::Run;
use crate::catalog::Partition;
use crate::layout::index_entry::{RunValue, run_value};
use crate::partition::Receipt;
use crate::query::errors::evaluation_failure;
use crate::query::fetch::reader::{Flow, Reader, Timing};
use crate::query::fetch::tally::{ValueCounter, count_on};
use crate::query::metrics::Considered;
use crate::query::options::Cancellation;
use crate::query::plan::cover::Cover;

/// So many items may be read one by one, and a share of the entries: beyond that, a scan is cheaper.
const LOOKED_UP_FREE: u64 = 64;
const LOOKED_UP_SHARE: u64 = 4;
/// Items read at once.
const FETCH_ITEMS: usize = 128;
/// About what evaluating one value costs, in bytes of an item.
const RUN_BYTES: usize = 256;

/// What was read so far. It is charged once the answer is certain.
struct Spent<'a> {
    timing: &'a Timing,
    /// One for each partition.
    receipts: Vec<(&'a Partition, Receipt)>,
    entries: u64,
    /// Entries that do not tell their value.
    unknown: u64,
}

impl<'a> Spent<'a> {
    fn new(partitions: &'a [Partition], timing: &'a Timing) -> Self {
        let receipts = partitions.iter().map(|partition| (partition, Receipt::default())).collect();
        Self { timing, receipts, entries: 0, unknown: 0 }
    }

    fn receipt(&mut self, partition: &Partition) -> Option<&mut Receipt> {
        let own = self.receipts.iter_mut().find(|(own, _)| own.store.id == partition.store.id);
        own.map(|(_, receipt)| receipt)
    }

    /// Whether reading the items of these entries, too, is worth it.
    fn may_look_up(&mut self, entries: u64) -> bool {
        // Counts up over all runs, so that many small ones are bounded as well as a large one.
        self.unknown += entries;
        self.unknown <= LOOKED_UP_FREE + self.entries / LOOKED_UP_SHARE
    }

    fn account(&self, reader: &Reader<'_>, receipt: &mut Receipt) {
        for (partition, read) in &self.receipts {
            receipt.join(partition, read);
        }
        reader.timing.join(self.timing);
    }
}

impl Run<'_> {
    /// A pipeline that was fed from the index, if that gives what the items would give, and no more distinct rows than
    /// this.
    pub(crate) async fn feed_values(
        &mut self,
        receipt: &mut Receipt,
        program: &Arc<Program>,
        cover: &Cover,
        distinct_max: usize,
    ) -> Result<Option<Pipeline>> {
        // Where an entry may stand for no visible item, counts would be wrong.
        if !self.entries_are_items() || self.reader.overlay.is_some() {
            return Ok(None);
        }
        let (partitions, timing) = (self.reader.partitions(), Timing::default());
        for partition in &partitions {
            self.reader.admit(receipt, partition)?;
        }
        let mut spent = Spent::new(&partitions, &timing);
        // Kept, to undo the metrics if this is given up.
        let (before, mut pipeline) =
            (self.metrics.clone(), Pipeline::new(Arc::clone(program), Options::default()));
        if !self.feed_counted(&mut pipeline, cover, distinct_max, &mut spent).await?
            // A result that depends on the order of rows would differ from that of a scan.
            || pipeline.depends_on_order()
        {
            self.metrics = before;
            return Ok(None);
        }
        // Charged only now, when the answer is certain.
        spent.account(&self.reader, receipt);
        let access = cover.label.clone();
        self.metrics.note(&access);
        self.metrics.considered.push(Considered { access, entries: None, is_more: false });
        Ok(Some(pipeline))
    }

    /// Feeds what the index tells; false = it is not enough, or takes longer than a scan.
    async fn feed_counted(
        &mut self,
        pipeline: &mut Pipeline,
        cover: &Cover,
        distinct_max: usize,
        spent: &mut Spent<'_>,
    ) -> Result<bool> {
        let reader = Reader { timing: spent.timing, ..self.reader };
        let partitions: Vec<&Partition> = spent.receipts.iter().map(|(partition, _)| *partition).collect();
        let counters = partitions.into_iter().map(|partition| ValueCounter::new(partition, cover));
        let mut counters: VecDeque<_> = counters.collect();
        while !counters.is_empty() && !pipeline.is_done() {
            if self.options.cancellation.as_ref().is_some_and(Cancellation::look) {
                return Err(evaluation_failure(EvalError::Cancelled));
            }
            self.check_time()?;
            // A snapshot was too old: read the items.
            let Some(fetched) = count_on(&reader, &mut counters).await? else { return Ok(false) };
            counters.retain(|counter| !counter.is_done());
            for (partition, counted) in fetched {
                if let Some(own) = spent.receipt(partition) {
                    own.join(partition, &counted.receipt);
                }
                spent.timing.join(&counted.timing);
                let mut documents = Vec::with_capacity(counted.runs.len() + 1);
                // One document stands for all items with this value.
                for run in &counted.runs {
                    spent.entries += run.count;
                    match run_value(&run.beginning) {
                        RunValue::Exactly(value) => documents.push((document(&cover.path, value), run.count)),
                        RunValue::Undefined => documents.push((empty(), run.count)),
                        RunValue::Unknown if !spent.may_look_up(run.count) => return Ok(false),
                        // Few entries that do not tell their value: read their items.
                        RunValue::Unknown => {
                            self.feed_items_of(pipeline, partition, run, spent).await?;
                            continue;
                        }
                    }
                    spent.timing.count_entries(run.count);
                }
                if counted.undefined > 0 {
                    documents.push((empty(), counted.undefined));
                    if cover.path.is_empty() {
                        spent.timing.count_entries(counted.undefined);
                    }
                }
                self.feed_documents(pipeline, documents).await?;
            }
            // Checked after each fetch, so that a query with too many values gives up early.
            if pipeline.depends_on_order() || pipeline.ready() > distinct_max {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Feeds documents as often as they were counted.
    async fn feed_documents(&mut self, pipeline: &mut Pipeline, documents: Vec<(Value, u64)>) -> Result<()> {
        let bytes = documents.len() * RUN_BYTES;
        let fed = self.evaluate(documents, bytes, |run, (document, times), work| {
            let row = Row { document: &document, ordinal: 0, text_bytes: 0 };
            let times = i64::try_from(times).unwrap_or(i64::MAX);
            pipeline.feed_times(row, times, &run.context(Some(work))).map_err(evaluation_failure)?;
            Ok(if pipeline.is_done() { Flow::Stop } else { Flow::GoOn })
        });
        fed.await.map(|_| ())
    }

    /// Feeds the items of a run.
    async fn feed_items_of(
        &mut self,
        pipeline: &mut Pipeline,
        partition: &Partition,
        run: &TallyRun,
        spent: &mut Spent<'_>,
    ) -> Result<()> {
        let reader = Reader { timing: spent.timing, ..self.reader };
        let mut range = KeyRange::prefix(&run.beginning);
        let mut read = Receipt::default();
        while !range.is_empty() {
            let way = Direction::Forward;
            let found =
                reader.fetch_entries(&mut read, partition, &mut range, way, None, FETCH_ITEMS).await?;
            self.feed_batch(pipeline, found, |_, _| Ok(Flow::GoOn)).await?;
        }
        if let Some(own) = spent.receipt(partition) {
            own.join(partition, &read);
        }
        Ok(())
    }
}

/// A document with nothing but a value at a path.
fn document(path: &[Box<str>], value: Value) -> Value {
    path.iter().rev().fold(value, |value, name| {
        let mut object = Object::new();
        object.set(name.clone(), value);
        object.into()
    })
}

fn empty() -> Value {
    Object::default().into()
}
