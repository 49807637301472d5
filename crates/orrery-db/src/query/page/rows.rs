//! The rows of a page, as the text that clients get.
//!
//! A row that is a whole item is not made from its value: the stored text with the system properties at its end is
//! what would be printed, unless the client wrote it in another form (`is_plain`).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use orrery_env::monotonic;
use orrery_model::Result;
use orrery_model::rid::ContainerRid;
use orrery_query::pipeline::{Output, Pipeline, ResumePoint};

use crate::layout::document::document_value;
use crate::layout::stored::StoredItem;
use crate::query::PAGE_BYTES_MAX;

/// Rows in a page when the server may decide.
pub(crate) const PAGE_ROWS_MAX: usize = 1000;

/// A page in the making.
#[derive(Default)]
pub(crate) struct Rows {
    /// The texts, separated by commas.
    pub(crate) text: Vec<u8>,
    pub(crate) count: usize,
    /// Where the last row stands, if rows are sorted.
    pub(crate) last: Option<ResumePoint>,
    /// What writing them took.
    pub(crate) time: Duration,
}

impl Rows {
    pub(crate) fn is_full(&self, rows_max: usize) -> bool {
        self.count >= rows_max || self.text.len() >= PAGE_BYTES_MAX
    }

    /// Adds a row unless it makes the page too large; a first row always fits. `item` is given if the row is a whole
    /// item, whose value was left out. Answers whether it was added.
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
            self.text.truncate(length_before);
            return Ok(false);
        }
        self.count += 1;
        self.last = output.position;
        Ok(true)
    }

    /// Adds rows while they fit; answers whether some were left.
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

/// The items whose rows wait to be sorted.
#[derive(Default)]
pub(crate) struct KeptItems {
    items: HashMap<u64, StoredItem>,
    /// From so many items on, those whose rows were dropped meanwhile are let go.
    sweep_at: usize,
}

impl KeptItems {
    const SWEEP_MIN: usize = 256;

    /// Keeps the item that was fed last, if its row is kept.
    pub(crate) fn after_feed(&mut self, pipeline: &Pipeline, item: &StoredItem) {
        if !pipeline.keeps_last() {
            return;
        }
        self.items.insert(pipeline.fed() - 1, item.clone());
        if self.items.len() >= self.sweep_at.max(Self::SWEEP_MIN) {
            let wanted: HashSet<u64> = pipeline.kept_inputs().collect();
            self.items.retain(|input, _| wanted.contains(input));
            self.sweep_at = self.items.len() * 2;
        }
    }
}
