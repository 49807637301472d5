//! What a query page did, for the headers that ask for it.

use std::time::Duration;

/// Counts and times of one page.
#[derive(Clone, Debug, Default)]
pub struct QueryMetrics {
    pub total_time: Duration,
    pub compile_time: Duration,
    pub items_read: u64,
    pub bytes_read: u64,
    pub output_items: u64,
    pub output_bytes: u64,
    /// How the items were found.
    pub access: String,
}

impl QueryMetrics {
    pub(crate) fn note(&mut self, access: &str) {
        access.clone_into(&mut self.access);
    }

    /// The value of `x-ms-documentdb-query-metrics`.
    pub fn to_header(&self) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let run = self.total_time.saturating_sub(self.compile_time);
        #[expect(clippy::cast_precision_loss, reason = "a ratio of counts of items")]
        let ratio = match self.items_read {
            0 => 1.0,
            read => (self.output_items as f64 / read as f64).min(1.0),
        };
        format!(
            "totalExecutionTimeInMs={:.2};queryCompileTimeInMs={:.2};queryLogicalPlanBuildTimeInMs=0.00;queryPhysicalPlanBuildTimeInMs=0.00;queryOptimizationTimeInMs=0.00;VMExecutionTimeInMs={:.2};indexLookupTimeInMs=0.00;instructionCount={};documentLoadTimeInMs=0.00;systemFunctionExecuteTimeInMs=0.00;userFunctionExecuteTimeInMs=0.00;retrievedDocumentCount={};retrievedDocumentSize={};outputDocumentCount={};outputDocumentSize={};writeOutputTimeInMs=0.00;indexUtilizationRatio={ratio:.2}",
            ms(self.total_time),
            ms(self.compile_time),
            ms(run),
            self.items_read,
            self.items_read,
            self.bytes_read,
            self.output_items,
            self.output_bytes,
        )
    }
}
