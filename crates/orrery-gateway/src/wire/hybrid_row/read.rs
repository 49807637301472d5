//! Batch requests: streams of operation rows.

use super::type_code::{FALSE, FLOAT64, INT32, TRUE, UINT32, UTF8};
use super::{
    HybridRowError, OPERATION_SCHEMA, OperationRow, RECORD_SCHEMA, ROW_VERSION, RowOperation, SEGMENT_SCHEMA,
};

/// The operations of a batch body, at most `rows_max`. Texts and bodies point into the input.
pub fn decode_batch(stream: &[u8], rows_max: usize) -> Result<Vec<OperationRow<'_>>, HybridRowError> {
    let mut reader = Reader { rest: stream };
    // Every stream begins with a segment header, and may have further ones.
    if reader.row_header().map_err(|_| HybridRowError::Segment)? != SEGMENT_SCHEMA {
        return Err(HybridRowError::Segment);
    }
    skip_segment_header(&mut reader)?;
    let mut rows = Vec::new();
    while !reader.rest.is_empty() {
        match reader.row_header()? {
            RECORD_SCHEMA => {
                let length = usize::try_from(reader.u32()?).map_err(|_| HybridRowError::Truncated)?;
                let checksum = reader.u32()?;
                let payload = reader.take(length)?;
                // Before parsing: damaged bytes are reported as such, not as some invalid field.
                if crc32fast::hash(payload) != checksum {
                    return Err(HybridRowError::Checksum);
                }
                if rows.len() >= rows_max {
                    return Err(HybridRowError::TooMany(rows_max));
                }
                rows.push(read_operation(payload)?);
            }
            SEGMENT_SCHEMA => skip_segment_header(&mut reader)?,
            other => return Err(HybridRowError::Schema(other)),
        }
    }
    Ok(rows)
}

/// After the row header of a segment: a presence byte and the length of the whole header, which may also contain a
/// comment and a schema as text, both ignored.
fn skip_segment_header(reader: &mut Reader<'_>) -> Result<(), HybridRowError> {
    const ROW_HEADER_BYTES: u32 = 5;
    const FIXED_BYTES: u32 = 5;
    let presence = reader.byte()?;
    let length = reader.u32()?;
    if presence & 1 == 0 {
        return Err(HybridRowError::Segment);
    }
    let more = length.checked_sub(ROW_HEADER_BYTES + FIXED_BYTES).ok_or(HybridRowError::Segment)?;
    reader.take(usize::try_from(more).map_err(|_| HybridRowError::Segment)?)?;
    Ok(())
}

fn read_operation(payload: &[u8]) -> Result<OperationRow<'_>, HybridRowError> {
    let mut reader = Reader { rest: payload };
    match reader.row_header()? {
        OPERATION_SCHEMA => {}
        other => return Err(HybridRowError::Schema(other)),
    }
    let presence = reader.byte()?;
    let is_present = |bit: u8| presence & 1 << bit != 0;
    // Fixed fields take their space even if they are absent.
    let operation = reader.i32()?;
    let resource_type = reader.i32()?;
    if !is_present(0) {
        return Err(HybridRowError::MissingOperation);
    }
    // The numbers of the .NET client's `OperationType`, not those of frames in direct mode.
    let operation = match operation {
        0 => RowOperation::Create,
        1 => RowOperation::Patch,
        2 => RowOperation::Read,
        4 => RowOperation::Delete,
        5 => RowOperation::Replace,
        20 => RowOperation::Upsert,
        other => return Err(HybridRowError::Operation(other)),
    };
    if is_present(1) && resource_type != 2 {
        return Err(HybridRowError::Resource(resource_type));
    }

    // Present ones follow in the order of their bits, so all must be read to find the next.
    let mut variable = |bit: u8| is_present(bit).then(|| reader.sized()).transpose();
    let partition_key = variable(2)?;
    // The effective key and the binary id are hints for replicas; key and id say the same.
    let _effective_partition_key = variable(3)?;
    let id = variable(4)?;
    let _binary_id = variable(5)?;
    let resource_body = variable(6)?;
    let mut row = OperationRow {
        operation,
        partition_key: partition_key.map(text).transpose()?,
        id: id.map(text).transpose()?,
        resource_body,
        indexing_directive: None,
        if_match: None,
        if_none_match: None,
        time_to_live_seconds: None,
        minimal_return: false,
    };
    while !reader.rest.is_empty() {
        read_sparse(&mut reader, &mut row)?;
    }
    Ok(row)
}

/// Path tokens that the schema declares. Larger ones carry the path as text, of length token − this − 1.
const DECLARED_PATHS: u64 = 12;

fn read_sparse<'a>(reader: &mut Reader<'a>, row: &mut OperationRow<'a>) -> Result<(), HybridRowError> {
    let code = reader.byte()?;
    let token = reader.varuint()?;
    if token > DECLARED_PATHS {
        let length = usize::try_from(token - DECLARED_PATHS - 1).map_err(|_| HybridRowError::Field)?;
        text(reader.take(length)?)?;
        // An undeclared field is one of a newer client: it is skipped, like an unknown JSON property.
        return reader.skip_scalar(code);
    }
    // 8 to 12 are the sparse fields of the schema; smaller tokens name the fields above, which cannot be sparse.
    let slot = match token {
        8 => &mut row.indexing_directive,
        9 => &mut row.if_match,
        10 => &mut row.if_none_match,
        11 => {
            if code != INT32 {
                return Err(HybridRowError::FieldType(code));
            }
            let earlier = row.time_to_live_seconds.replace(reader.i32()?);
            return if earlier.is_none() { Ok(()) } else { Err(HybridRowError::Field) };
        }
        12 => {
            row.minimal_return = match code {
                TRUE => true,
                FALSE => false,
                other => return Err(HybridRowError::FieldType(other)),
            };
            return Ok(());
        }
        _ => return Err(HybridRowError::Field),
    };
    if code != UTF8 {
        return Err(HybridRowError::FieldType(code));
    }
    let earlier = slot.replace(text(reader.sized()?)?);
    if earlier.is_none() { Ok(()) } else { Err(HybridRowError::Field) }
}

fn text(bytes: &[u8]) -> Result<&str, HybridRowError> {
    std::str::from_utf8(bytes).map_err(|_| HybridRowError::Text)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], HybridRowError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(HybridRowError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], HybridRowError> {
        Ok(self.take(N)?.try_into().expect("take answers as many bytes as asked"))
    }

    fn byte(&mut self) -> Result<u8, HybridRowError> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> Result<u32, HybridRowError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn i32(&mut self) -> Result<i32, HybridRowError> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    /// The version byte and the schema id.
    fn row_header(&mut self) -> Result<u32, HybridRowError> {
        match self.byte()? {
            ROW_VERSION => self.u32(),
            _ => Err(HybridRowError::Field),
        }
    }

    /// Seven bits a byte, the lowest first, the top bit set on all but the last.
    fn varuint(&mut self) -> Result<u64, HybridRowError> {
        let mut value = 0;
        // Nine bytes at most; no length needs more.
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(HybridRowError::Field)
    }

    fn sized(&mut self) -> Result<&'a [u8], HybridRowError> {
        let length = self.varuint()?;
        self.take(usize::try_from(length).map_err(|_| HybridRowError::Truncated)?)
    }

    /// Skips the value of a sparse field of any scalar type; arrays and objects are rejected.
    fn skip_scalar(&mut self, code: u8) -> Result<(), HybridRowError> {
        let width = match code {
            1 | FALSE | TRUE => 0,
            5 | 9 => 1,
            6 | 10 => 2,
            INT32 | UINT32 | 15 => 4,
            8 | 12 | FLOAT64 | 18 | 23 => 8,
            17 | 19 | 22 => 16,
            24 => 12,
            13 | 14 => return self.varuint().map(|_| ()),
            UTF8 | 21 => return self.sized().map(|_| ()),
            other => return Err(HybridRowError::FieldType(other)),
        };
        self.take(width).map(|_| ())
    }
}
