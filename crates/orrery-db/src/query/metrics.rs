//! What a query page did, for the headers that ask for it.

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

    /// The value of `x-ms-documentdb-query-metrics`.
    pub fn to_header(&self) -> String {
        let ms = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1000.0);
        #[expect(clippy::cast_precision_loss, reason = "a ratio of counts of items")]
        let ratio = match self.items_read {
            0 => 1.0,
            read => (self.output_items as f64 / read as f64).min(1.0),
        };
        let pairs = [
            ("totalExecutionTimeInMs", ms(self.total_time)),
            ("queryCompileTimeInMs", ms(self.parse_time + self.compile_time)),
            ("queryLogicalPlanBuildTimeInMs", ms(self.parse_time)),
            ("queryPhysicalPlanBuildTimeInMs", ms(self.plan_time)),
            ("queryOptimizationTimeInMs", ms(Duration::ZERO)),
            ("VMExecutionTimeInMs", ms(self.evaluation_time)),
            ("indexLookupTimeInMs", ms(self.index_time)),
            ("instructionCount", (self.entries_read + self.items_read + self.output_items).to_string()),
            ("documentLoadTimeInMs", ms(self.load_time)),
            // Built-in functions are part of the evaluation and not measured apart; others do not run yet.
            ("systemFunctionExecuteTimeInMs", ms(Duration::ZERO)),
            ("userFunctionExecuteTimeInMs", ms(Duration::ZERO)),
            ("retrievedDocumentCount", self.items_read.to_string()),
            ("retrievedDocumentSize", self.bytes_read.to_string()),
            ("outputDocumentCount", self.output_items.to_string()),
            ("outputDocumentSize", self.output_bytes.to_string()),
            ("writeOutputTimeInMs", ms(self.output_time)),
            ("indexUtilizationRatio", format!("{ratio:.2}")),
        ];
        let texts: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        texts.join(";")
    }
}
