//! Queries: from a request body to pages of rows.

mod execute;
mod metadata;
mod position;
mod request;

pub use execute::{QueryOptions, QueryPage};
pub use request::QueryRequest;
