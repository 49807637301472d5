//! Queries: from a request body to pages of rows.

mod access;
mod ahead;
mod answer;
pub(crate) mod checks;
mod choice;
mod client_merge;
mod execute;
mod explain;
mod feed;
mod index_metrics;
mod lacking;
mod metadata;
mod metrics;
mod plan;
mod points;
mod position;
mod reader;
mod request;
mod rows;
mod run;
mod shortcut;

pub(crate) use feed::beside_requests;
pub(crate) use lacking::LackingItems;

pub use client_merge::ClientMerge;
pub use execute::{QueryOptions, QueryPage, Routing};
pub use metrics::{Considered, QueryMetrics};
pub use request::QueryRequest;
