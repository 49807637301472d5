//! Queries: from a request body to pages of rows.

mod access;
pub(crate) mod checks;
mod execute;
mod metadata;
mod metrics;
mod plan;
mod position;
mod reader;
mod request;
mod shortcut;

pub use execute::{QueryOptions, QueryPage};
pub use metrics::QueryMetrics;
pub use request::QueryRequest;
