//! Wire formats of values and errors: batches, binary JSON, the table of status codes, structured headers.
//!
//! Only translation between the wire and the types of the database; no decisions about requests.

pub mod batch_json;
pub mod binary_json;
pub(crate) mod continuation;
pub mod hybrid_row;
pub mod query_metrics;
pub mod status;
pub mod throughput;
