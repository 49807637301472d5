//! Batch responses: streams of result rows.

use super::type_code::{FLOAT64, UINT32};
use super::{RECORD_SCHEMA, RESULT_SCHEMA, ROW_VERSION, ResultRow, SEGMENT_SCHEMA};

/// The response body of a batch, one row per operation, in the same order.
pub fn encode_results<'a>(rows: impl IntoIterator<Item = ResultRow<'a>>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    write_row_header(SEGMENT_SCHEMA, &mut out);
    // Only the length of this header itself is present.
    out.push(1);
    out.extend_from_slice(&10_u32.to_le_bytes());
    // A record's length and checksum precede it, so each is built aside, in one buffer for all.
    let mut payload = Vec::new();
    for row in rows {
        payload.clear();
        write_result(&row, &mut payload);
        write_row_header(RECORD_SCHEMA, &mut out);
        let length = u32::try_from(payload.len()).expect("a response page ends far below 4 GB");
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
        out.extend_from_slice(&payload);
    }
    out
}

fn write_result(row: &ResultRow<'_>, out: &mut Vec<u8>) {
    write_row_header(RESULT_SCHEMA, out);
    // The status codes are always present; clients treat a sub-status of 0 as none.
    let presence = 0b11 | u8::from(row.etag.is_some()) << 2 | u8::from(row.resource_body.is_some()) << 3;
    out.push(presence);
    out.extend_from_slice(&i32::from(row.status).to_le_bytes());
    out.extend_from_slice(&i32::from(row.substatus).to_le_bytes());
    for variable in [row.etag.map(str::as_bytes), row.resource_body].into_iter().flatten() {
        write_varuint(variable.len(), out);
        out.extend_from_slice(variable);
    }
    if let Some(retry_after_ms) = row.retry_after_ms {
        // Type code, then the path token that the result's schema declares for the field.
        out.extend_from_slice(&[UINT32, 5]);
        out.extend_from_slice(&retry_after_ms.to_le_bytes());
    }
    if let Some(charge) = row.request_charge {
        out.extend_from_slice(&[FLOAT64, 6]);
        out.extend_from_slice(&charge.to_le_bytes());
    }
}

fn write_row_header(schema: u32, out: &mut Vec<u8>) {
    out.push(ROW_VERSION);
    out.extend_from_slice(&schema.to_le_bytes());
}

fn write_varuint(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}
