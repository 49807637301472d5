//! Functions over the item itself.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::arguments::object;
use super::{Function, row};
use crate::operand::Operand;

pub(super) static FUNCTIONS: &[Function] = &[row!("DOCUMENTID", 1..=1, PreciseScan, document_id)];

/// The number of the item within its partition: the last eight bytes of its resource id.
fn document_id(arguments: &[Operand<'_>]) -> Option<i64> {
    // Resource ids are base64 with `-` for `/`, so that they can stand in addresses.
    let text = object(arguments, 0)?.get("_rid")?.as_str()?.replace('-', "/");
    let bytes = BASE64_STANDARD.decode(text).ok()?;
    let number: [u8; 8] = bytes.get(8..16)?.try_into().ok()?;
    // Only the ids of items are this long.
    (bytes.len() == 16).then(|| i64::from_le_bytes(number))
}
