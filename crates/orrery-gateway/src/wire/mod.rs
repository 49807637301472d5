//! How bodies and errors travel: the batch formats, binary JSON, the table of status codes.

pub mod batch_json;
pub mod binary_json;
pub mod hybrid_row;
pub mod status;
