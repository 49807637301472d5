//! Body formats that are not JSON text.

pub mod binary_json;
pub mod hybrid_row;
