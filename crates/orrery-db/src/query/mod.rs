//! Queries: from a request body to pages of rows.
//!
//! *Plan*: which windows of the key space, which access path of the index (`access.rs`, `choice.rs`, `points.rs`,
//! `shortcut.rs`). *Fetch*: entries and items, some of them ahead (`reader.rs`, `ahead.rs`, `lacking.rs`). *Page*:
//! evaluated rows, where the page ends and where the next begins (`run.rs`, `feed.rs`, `rows.rs`, `position.rs`).
//!
//! What may live here: queries over items. Queries over metadata are in `resources`.

mod access;
mod ahead;
mod answer;
pub(crate) mod checks;
mod choice;
mod client_merge;
mod documents;
mod evaluation_slots;
mod execute;
mod explain;
mod feed;
mod functions;
mod index_metrics;
mod lacking;
mod metrics;
mod plan;
mod points;
mod position;
mod reader;
mod request;
mod rows;
mod run;
mod shortcut;
mod stop;
mod synthetic_routing;

use std::sync::Arc;

use crate::items::Items;

pub use client_merge::ClientMerge;
pub use documents::MetadataPage;
pub use execute::{QueryOptions, QueryPage, Routing};
pub use metrics::{Considered, QueryMetrics};
pub use request::QueryRequest;
pub use stop::Cancellation;

/// Items with the queries over them.
pub struct Queries {
    pub(crate) items: Arc<Items>,
    /// How many queries may be evaluating long stretches of items at once.
    pub(crate) evaluations: evaluation_slots::EvaluationSlots,
    /// What queries know of items without the property that they sort by.
    pub(crate) lacking: lacking::LackingItems,
}

layer!(Queries { items: Items });

impl Queries {
    pub(crate) fn new(items: Arc<Items>) -> Self {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            items,
            evaluations: evaluation_slots::EvaluationSlots::new(processors),
            lacking: lacking::LackingItems::default(),
        }
    }
}
