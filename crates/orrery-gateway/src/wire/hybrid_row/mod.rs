//! RecordIO streams of HybridRow records: the batch and bulk bodies of the .NET SDK.
//!
//! A stream is a segment header and records, each with its length and CRC-32. A record is one row of a fixed
//! schema: the byte `81`, the schema id, presence bits, the fixed fields (which always take their space), the
//! present variable fields with their lengths, then sparse fields, each with type and path. Only the two
//! schemas of batches exist here: an operation (in) and its result (out).

mod read;
mod write;

pub use read::decode_batch;
pub use write::encode_results;

/// The first byte of every row, and so of every stream; no JSON text begins with it.
pub const ROW_VERSION: u8 = 0x81;

const SEGMENT_SCHEMA: u32 = 2_147_473_648;
const RECORD_SCHEMA: u32 = 2_147_473_649;
const OPERATION_SCHEMA: u32 = 2_145_473_648;
const RESULT_SCHEMA: u32 = 2_145_473_649;

/// Type codes of sparse fields that these schemas declare.
mod type_code {
    pub(super) const FALSE: u8 = 2;
    pub(super) const TRUE: u8 = 3;
    pub(super) const INT32: u8 = 7;
    pub(super) const UINT32: u8 = 11;
    pub(super) const FLOAT64: u8 = 16;
    pub(super) const UTF8: u8 = 20;
}

/// Whether a body claims to be in this format.
pub fn is_hybrid_row(body: &[u8]) -> bool {
    body.first() == Some(&ROW_VERSION)
}

/// What one operation of a batch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOperation {
    Create,
    Patch,
    Read,
    Delete,
    Replace,
    Upsert,
}

/// One operation of a batch, as the client wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationRow<'a> {
    pub operation: RowOperation,
    /// The text of a JSON array; only in bulk requests.
    pub partition_key: Option<&'a str>,
    pub id: Option<&'a str>,
    /// JSON text or binary JSON: an item, or the operations of a patch.
    pub resource_body: Option<&'a [u8]>,
    pub indexing_directive: Option<&'a str>,
    pub if_match: Option<&'a str>,
    pub if_none_match: Option<&'a str>,
    pub time_to_live_seconds: Option<i32>,
    pub minimal_return: bool,
}

/// One result of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultRow<'a> {
    pub status: u16,
    pub substatus: u16,
    /// With its quotes.
    pub etag: Option<&'a str>,
    pub resource_body: Option<&'a [u8]>,
    pub retry_after_ms: Option<u32>,
    pub request_charge: Option<f64>,
}

/// Why a stream cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HybridRowError {
    #[error("the batch does not begin with a segment header")]
    Segment,
    #[error("the batch ends in the middle of a record")]
    Truncated,
    #[error("a record of the batch does not match its checksum")]
    Checksum,
    #[error("a record of the batch has schema {0}, which is not a batch operation")]
    Schema(u32),
    #[error("a text of the batch is not valid UTF-8")]
    Text,
    #[error("operation type {0} of the batch is not known")]
    Operation(i32),
    #[error("resource type {0} of the batch is not an item")]
    Resource(i32),
    #[error("a batch operation has no operation type")]
    MissingOperation,
    #[error("a field of the batch has type {0} where another one is expected")]
    FieldType(u8),
    #[error("a field of the batch is written twice, has a wrong path or a wrong length")]
    Field,
    #[error("the batch has more than {0} operations")]
    TooMany(usize),
}

#[cfg(test)]
mod tests;
