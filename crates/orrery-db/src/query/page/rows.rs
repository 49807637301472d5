//! The rows of a page as response text.
//!
//! A row that is a whole item is not printed from its value: the stored text with the system properties appended is
//! identical, unless the client's text is not canonical (`is_plain`).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use orrery_env::monotonic;
use orrery_model::Result;
use orrery_model::rid::ContainerRid;
use orrery_query::pipeline::{Output, Pipeline, ResumePoint};

use crate::layout::document::document_value;
use crate::layout::stored::StoredItem;
use crate::query::PAGE_BYTES_MAX;

/// The default number of rows per page.
pub(crate) const PAGE_ROWS_MAX: usize = 1000;

/// A page under construction.
#[derive(Default)]
pub(crate) struct Rows {
    /// The texts, separated by commas.
    pub(crate) text: Vec<u8>,
    pub(crate) count: usize,
    /// The sort position of the last row, if rows are sorted.
    pub(crate) last: Option<ResumePoint>,
    /// The time spent writing them.
    pub(crate) time: Duration,
}

impl Rows {
    pub(crate) fn is_full(&self, rows_max: usize) -> bool {
        self.count >= rows_max || self.text.len() >= PAGE_BYTES_MAX
    }

    /// Adds a row unless it makes the page too large; the first row always fits. `item` is set if the row is a whole
    /// item, which then has no value. Returns whether it was added.
    pub(crate) fn push(
        &mut self,
        output: Output,
        item: Option<&StoredItem>,
        rid: ContainerRid,
    ) -> Result<bool> {
        let (started, length_before) = (monotonic::now(), self.text.len());
        if self.count > 0 {
            self.text.push(b',');
        }
        match item {
            None => self.text.extend_from_slice(output.value.to_json().as_bytes()),
            Some(item) if item.is_plain => item.write_document(rid, &mut self.text),
            Some(item) => self.text.extend_from_slice(document_value(item, rid)?.to_json().as_bytes()),
        }
        self.time += monotonic::elapsed(started);
        if self.count > 0 && self.text.len() > PAGE_BYTES_MAX {
            // Taken back whole, including its comma; the next page begins with it.
            self.text.truncate(length_before);
            return Ok(false);
        }
        self.count += 1;
        self.last = output.position;
        Ok(true)
    }

    /// Adds rows while they fit; returns whether any were left.
    pub(crate) fn fill(
        &mut self,
        outputs: impl Iterator<Item = Output>,
        rows_max: usize,
        kept: Option<&KeptItems>,
        rid: ContainerRid,
    ) -> Result<bool> {
        for output in outputs {
            if self.is_full(rows_max) {
                return Ok(true);
            }
            let item = kept.and_then(|kept| kept.items.get(&output.input));
            if !self.push(output, item, rid)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The items of rows that are being sorted.
#[derive(Default)]
pub(crate) struct KeptItems {
    items: HashMap<u64, StoredItem>,
    /// From this many items on, items whose rows were dropped are released.
    sweep_at: usize,
}

impl KeptItems {
    const SWEEP_MIN: usize = 256;

    /// Retains the item that was fed last, if its row is kept.
    pub(crate) fn after_feed(&mut self, pipeline: &Pipeline, item: &StoredItem) {
        // A row that sorts after the page is dropped by the pipeline, and so is its item.
        if !pipeline.keeps_last() {
            return;
        }
        self.items.insert(pipeline.fed() - 1, item.clone());
        // Swept only when the number has doubled, so that the work stays proportional to the items kept.
        if self.items.len() >= self.sweep_at.max(Self::SWEEP_MIN) {
            let wanted: HashSet<u64> = pipeline.kept_inputs().collect();
            self.items.retain(|input, _| wanted.contains(input));
            self.sweep_at = self.items.len() * 2;
        }
    }
}
