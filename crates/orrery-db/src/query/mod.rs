//! Queries: from a request body to pages of rows.
//!
//! `execute.rs` is the list of steps: *prepare* (parse, check, compile), *plan* (windows of the key space, access
//! paths), *fetch* (entries and items, some of them ahead), *page* (rows, where the page ends and the next one starts).
//! Each of these uses only the ones before it; `execute.rs` and `explain.rs` use them all.
//!
//! Only queries over items and over other documents (`documents.rs`) belong here. Which metadata can be queried is
//! decided in `resources`.

pub(crate) mod checks;
mod documents;
mod errors;
mod execute;
mod explain;
mod fetch;
mod item_work;
mod metrics;
mod options;
mod page;
mod plan;
mod prepare;
mod walk;

use std::sync::Arc;

use crate::items::Items;

pub use documents::MetadataPage;
pub use execute::{QueryPage, Routing};
pub use metrics::{Considered, QueryMetrics};
pub use options::{Cancellation, ClientMerge, QueryOptions, StateMemory};
pub use orrery_query::QueryRequest;
pub use plan::index_metrics::IndexMetrics;

/// Bytes of rows in one page.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Items with the queries over them.
pub struct Queries {
    pub(crate) items: Arc<Items>,
    /// Limits concurrent long evaluations.
    pub(crate) evaluations: page::evaluation_slots::EvaluationSlots,
    /// Cache of items without a sort property.
    pub(crate) lacking: fetch::lacking::LackingItems,
}

layer!(Queries { items: Items });

impl Queries {
    pub(crate) fn new(items: Arc<Items>) -> Self {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            items,
            evaluations: page::evaluation_slots::EvaluationSlots::new(processors),
            lacking: fetch::lacking::LackingItems::default(),
        }
    }
}
