//! What a query page did, for clients that ask for it and for explanations.

use std::time::Duration;

/// Counts and times of one page.
#[derive(Clone, Debug, Default)]
pub struct QueryMetrics {
    pub total_time: Duration,
    /// Reading the text and checking it.
    pub parse_time: Duration,
    /// Making a program of it.
    pub compile_time: Duration,
    /// Finding what the index offers.
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
    /// What else was considered, with the index entries that were seen of each in the first partition.
    pub considered: Vec<Considered>,
}

/// An access path that was weighed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Considered {
    pub access: String,
    /// Entries in the first partition, as far as they were counted; `None` if nobody looked.
    pub entries: Option<usize>,
    /// Whether there are more than were counted.
    pub is_more: bool,
}

impl QueryMetrics {
    pub(crate) fn note(&mut self, access: &str) {
        access.clone_into(&mut self.access);
    }
}
