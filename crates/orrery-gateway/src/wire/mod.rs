//! How values and errors travel: the batch formats, binary JSON, the one table of status codes, headers with a format of
//! their own.
//!
//! What may live here: translation between the wire and the types of the database, without any decision about a request.

pub mod batch_json;
pub mod binary_json;
pub mod hybrid_row;
pub mod query_metrics;
pub mod status;
pub mod throughput;
