//! Cosmos binary JSON: the Rust SDK sends item bodies in it, and some clients request it for responses.
//!
//! A buffer is the byte `80` and one value. Every value begins with a marker that holds its type and, for short ones,
//! its length or content; integers are little-endian. Orrery stores items as JSON text, so the decoder writes text
//! directly. It supports every marker of the format except user dictionary strings, whose dictionary gateway clients do
//! not have, and 16-bit floats.

mod decode;
mod encode;
mod strings;

pub use decode::decode;
pub use encode::encode;

/// The first byte of every buffer; no JSON text begins with it.
pub const PREAMBLE: u8 = 0x80;

/// The maximum nesting depth of arrays and objects.
pub const NESTING_MAX: usize = 256;

/// Whether a body claims to be in this format.
pub fn is_binary(body: &[u8]) -> bool {
    body.first() == Some(&PREAMBLE)
}

/// Why a buffer cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BinaryJsonError {
    #[error("the binary JSON does not begin with its preamble")]
    Preamble,
    #[error("the binary JSON ends in the middle of a value")]
    Truncated,
    #[error("the binary JSON has bytes after its value")]
    Trailing,
    #[error("the type marker {0:#04x} is not valid here")]
    Marker(u8),
    #[error("the type marker {0:#04x} is not supported")]
    Unsupported(u8),
    #[error("a string is not valid UTF-8, or has characters outside its alphabet")]
    Text,
    #[error("a reference does not point to an earlier string")]
    Reference,
    #[error("the length or count of an array or object does not match its content")]
    Length,
    #[error("a number is not finite")]
    NotFinite,
    #[error("the nesting is deeper than {NESTING_MAX} levels")]
    TooDeep,
    #[error("the text is longer than {0} bytes")]
    TooLarge(usize),
}

/// Strings that take one byte: markers `20` to `3F`.
const SYSTEM_STRINGS: [&str; 32] = [
    "$s",
    "$t",
    "$v",
    "_attachments",
    "_etag",
    "_rid",
    "_self",
    "_ts",
    "attachments/",
    "coordinates",
    "geometry",
    "GeometryCollection",
    "id",
    "url",
    "Value",
    "label",
    "LineString",
    "link",
    "MultiLineString",
    "MultiPoint",
    "MultiPolygon",
    "name",
    "Name",
    "Type",
    "Point",
    "Polygon",
    "properties",
    "type",
    "value",
    "Feature",
    "FeatureCollection",
    "_id",
];

#[cfg(test)]
mod tests;
