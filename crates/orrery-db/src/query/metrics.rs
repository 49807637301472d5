//! Metrics of a query page, for clients that request them and for explanations.

use std::time::Duration;

/// Counts and times of one page.
#[derive(Clone, Debug, Default)]
pub struct QueryMetrics {
    pub total_time: Duration,
    /// Parsing and checking.
    pub parse_time: Duration,
    /// Compiling.
    pub compile_time: Duration,
    /// Finding access paths.
    pub plan_time: Duration,
    /// Reading index entries.
    pub index_time: Duration,
    /// Reading items.
    pub load_time: Duration,
    /// Evaluating the query over them.
    pub evaluation_time: Duration,
    /// Writing rows.
    pub output_time: Duration,
    pub entries_read: u64,
    pub items_read: u64,
    pub bytes_read: u64,
    /// Steps of evaluation, each of a few nanoseconds.
    pub steps: u64,
    pub output_items: u64,
    pub output_bytes: u64,
    /// How the items were found.
    pub access: String,
    /// The alternatives considered, with the index entries counted for each in the first partition.
    pub considered: Vec<Considered>,
}

/// An access path that was considered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Considered {
    pub access: String,
    /// Entries counted in the first partition; `None` if not counted.
    pub entries: Option<usize>,
    /// Whether there are more than counted.
    pub is_more: bool,
}

impl QueryMetrics {
    pub(crate) fn note(&mut self, access: &str) {
        access.clone_into(&mut self.access);
    }
}
