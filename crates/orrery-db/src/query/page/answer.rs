//! Queries answered from the index alone: counts, minimum and maximum.

use std::sync::Arc;

use orrery_model::{Object, Result, Value};
use orrery_query::Program;
use orrery_query::ast::Query;
use orrery_query::context::Work;
use orrery_query::pipeline::{Options, Output, Pipeline};
use orrery_query::shortcut::{self, Extreme};
use orrery_storage::Direction;

use super::run::Run;
use crate::layout::index_entry;
use crate::partition::Receipt;
use crate::query::errors::evaluation_failure;
use crate::query::fetch::ahead::{Extent, ReadAhead, Source};
use crate::query::plan::access::{AccessPaths, Candidate};

/// The maximum number of rows per item; there are no joins here.
const WORK_ROWS: u64 = 1000;

impl Run<'_> {
    /// The query's single row, if the index can answer it.
    pub(crate) async fn answer_by_index(
        &mut self,
        receipt: &mut Receipt,
        query: &Query,
        program: &Arc<Program>,
        paths: &AccessPaths,
    ) -> Result<Option<Output>> {
        let value = match self.count_by_index(receipt, query, paths).await? {
            Some(count) => Some(Some(count)),
            None => self.extreme_by_index(receipt, query, program, paths).await?,
        };
        let Some(Some(value)) = value else { return Ok(None) };
        Ok(Some(Output { value, input: 0, row: 0, position: None, passed: 1 }))
    }

    /// Expired and purged items still have entries, as do items of other keys with the same hash.
    pub(crate) fn entries_are_items(&self) -> bool {
        self.reader.container.definition.default_ttl.is_none()
            && self.reader.database.purges.is_idle()
            && self.reader.only.is_none()
    }

    async fn count_by_index(
        &mut self,
        receipt: &mut Receipt,
        query: &Query,
        paths: &AccessPaths,
    ) -> Result<Option<Value>> {
        let Some(shape) = shortcut::count_of_filter(query) else { return Ok(None) };
        if !self.entries_are_items() || self.options.without_index {
            return Ok(None);
        }
        // The counters of the logical partitions know the number of all items.
        if query.filter.is_none() {
            let count = self.reader.count_everywhere(receipt, None).await?;
            self.metrics.note("count of all items");
            return Ok(Some(shape.value(count)));
        }
        // With several conditions an entry of one says nothing about the others.
        let [candidate] = paths.candidates.as_slice() else { return Ok(None) };
        // Every entry must be exactly one matching item of the requested keys.
        if !candidate.is_exact || candidate.repeats || !candidate.is_narrow {
            return Ok(None);
        }
        let count = self.reader.count_everywhere(receipt, Some(candidate)).await?;
        self.metrics.note(&format!("count of {}", candidate.label));
        Ok(Some(shape.value(count)))
    }

    /// The minimum or maximum: only the items at the end of the index can have it, so the query runs over those. An
    /// array or object anywhere makes the result undefined, so one of those is fed as well.
    async fn extreme_by_index(
        &mut self,
        receipt: &mut Receipt,
        query: &Query,
        program: &Arc<Program>,
        paths: &AccessPaths,
    ) -> Result<Option<Option<Value>>> {
        let Some(extreme) = shortcut::extreme_of(query) else { return Ok(None) };
        let Some(values) = &paths.values_of_extreme else { return Ok(None) };
        if extreme.is_counted && !self.entries_are_items() {
            return Ok(None);
        }
        let direction = if extreme.is_max { Direction::Backward } else { Direction::Forward };
        let mut pipeline = Pipeline::new(Arc::clone(program), Options::default());
        let (reader, partitions) = (self.reader, self.reader.partitions());
        let ranges = || values.scalars.iter().chain(&values.others);
        // Of each partition and each kind of value the first entry, or the last.
        let sources = partitions.iter().flat_map(|partition| {
            ranges().map(move |range| Source::entries(partition, range.clone(), direction, None).of_one())
        });
        let mut ahead = ReadAhead::new(reader, Extent::EveryBeginning, sources);
        while self.feed_end(receipt, &mut pipeline, &mut ahead).await? {}
        let counted = Candidate::of_ranges(ranges().cloned().collect());
        let count =
            if extreme.is_counted { self.reader.count_everywhere(receipt, Some(&counted)).await? } else { 0 };
        if receipt.served.is_empty() {
            self.touch(receipt).await?;
        }
        pipeline.finish(&self.context(None)).map_err(evaluation_failure)?;
        let value = pipeline.take().into_iter().next().map(|output| output.value);
        self.metrics.note(&format!("end of {}", extreme.path));
        // The pipeline has seen only the items at the ends, so its count is replaced by that of the index.
        Ok(Some(if extreme.is_counted {
            value.map(|value| with_count(&value, &extreme, count))
        } else {
            value
        }))
    }

    /// Feeds the visible items at one end of the next range of entries: one of them, or all with the same inexact
    /// encoding. Returns whether there was another range.
    async fn feed_end(
        &mut self,
        receipt: &mut Receipt,
        pipeline: &mut Pipeline,
        ahead: &mut ReadAhead<'_>,
    ) -> Result<bool> {
        let watch = self.watch();
        let work = Work::new(WORK_ROWS).with_interrupt(&watch);
        let mut run: Option<Vec<u8>> = None;
        loop {
            let Some(fetched) = ahead.next(receipt).await? else { return Ok(false) };
            for found in fetched.batches.into_iter().flatten() {
                // Past the run: everything from here on is greater, or smaller.
                let is_other = run.as_ref().is_some_and(|run| *run != found.run);
                if !is_other {
                    self.feed_one(pipeline, &found, &work)?;
                }
                // A distinct value is decided by one item; of a truncated or rounded one all items must be compared.
                if is_other || index_entry::is_distinct(&found.run) {
                    ahead.leave();
                    return Ok(true);
                }
                run = Some(found.run);
            }
            fetched.outcome?;
            self.check_time()?;
            tokio::task::yield_now().await;
            if fetched.source.is_read() {
                ahead.leave();
                return Ok(true);
            }
            ahead.go_on(fetched.source);
        }
    }
}

/// Inserts the exact count into `[{"item": …, "item2": {"min": …, "count": …}}]`.
fn with_count(value: &Value, extreme: &Extreme, count: u64) -> Value {
    let first = value.as_array().and_then(<[Value]>::first);
    let mut pair = Object::new();
    let name = if extreme.is_max { "max" } else { "min" };
    let best = first.and_then(|item| item.get("item2")).and_then(|pair| pair.get(name));
    if let Some(best) = best {
        pair.set(name, best.clone());
    }
    pair.set("count", shortcut::count_value(count));
    let mut item = Object::new();
    if let Some(best) = best {
        item.set("item", best.clone());
    }
    item.set("item2", pair.into());
    vec![Value::from(item)].into()
}
