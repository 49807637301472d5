//! Effective partition keys: the bytes that place a key value among the partitions.
//!
//! Every component is a marker byte and a payload. Version 2 hashes marker and payload to 128
//! bits per component; version 1 hashes all components to 32 bits and appends an order-preserving
//! encoding of the components themselves. Depends on [`KeyPart`] and the hash alone, so that the
//! published key library can share it; `tests/data/epk.json` pins the results.

use super::part::KeyPart;
use crate::murmur3;

mod marker {
    pub(super) const UNDEFINED: u8 = 0x00;
    pub(super) const NULL: u8 = 0x01;
    pub(super) const FALSE: u8 = 0x02;
    pub(super) const TRUE: u8 = 0x03;
    pub(super) const NUMBER: u8 = 0x05;
    pub(super) const STRING: u8 = 0x08;
}

/// UTF-16 code units of a string that version 1 looks at.
const V1_STRING_UNITS_MAX: usize = 100;
/// UTF-8 bytes of a string that version 1 writes into the key.
const V1_STRING_BYTES_MAX: usize = 101;

/// The key of one component in version 2: 16 bytes, the two top bits clear, because the key space
/// ends at `FF`.
pub fn component_v2(part: &KeyPart) -> [u8; 16] {
    let mut input = Vec::with_capacity(64);
    write_for_hash(part, 0xFF, &mut input);
    let mut key = murmur3::x64_128(&input, 0).to_be_bytes();
    key[0] &= 0x3F;
    key
}

/// The key of a whole `Hash` value in version 2. Clients hash all components together.
pub fn effective_key_v2(parts: &[KeyPart]) -> Vec<u8> {
    // The empty prefix: the start of the key space, which no hash is.
    if parts.is_empty() {
        return Vec::new();
    }
    let mut input = Vec::with_capacity(64);
    for part in parts {
        write_for_hash(part, 0xFF, &mut input);
    }
    let mut key = murmur3::x64_128(&input, 0).to_be_bytes();
    key[0] &= 0x3F;
    key.to_vec()
}

/// The key of a hierarchical value, or of a prefix of one: the components' keys side by side.
pub fn effective_key_multi(parts: &[KeyPart]) -> Vec<u8> {
    parts.iter().flat_map(component_v2).collect()
}

/// The key of a `Hash` value in version 1: the hash as a number, then the components.
pub fn effective_key_v1(parts: &[KeyPart]) -> Vec<u8> {
    if parts.is_empty() {
        return Vec::new();
    }
    let mut input = Vec::with_capacity(64);
    for part in parts {
        match part {
            KeyPart::String(text) => {
                input.push(marker::STRING);
                // Only the beginning is hashed, so long strings may collide; the components behind the hash tell
                // them apart as far as they go.
                input.extend_from_slice(v1_prefix(text).as_bytes());
                input.push(0x00);
            }
            // Not a string, so the terminator is not used.
            other => write_for_hash(other, 0x00, &mut input),
        }
    }
    let mut key = Vec::with_capacity(32);
    // The hash comes first, in the encoding of a number, as in the clients.
    write_v1_number(f64::from(murmur3::x86_32(&input, 0)), &mut key);
    for part in parts {
        write_v1(part, &mut key);
    }
    key
}

/// The start of all version 1 keys with this hash: what partition boundaries look like.
pub fn boundary_v1(hash: u32) -> Vec<u8> {
    let mut key = Vec::with_capacity(8);
    write_v1_number(f64::from(hash), &mut key);
    key
}

/// Writes a component in the encoding that keeps the order of values.
pub fn write_ordered(part: &KeyPart, out: &mut Vec<u8>) {
    write_v1(part, out);
}

/// What stands before and after all numbers, and after all strings, in that encoding.
pub const ORDERED_NUMBER_MIN: u8 = 0x04;
pub const ORDERED_NUMBER_MAX: u8 = 0x06;
pub const ORDERED_STRING_MAX: u8 = 0x09;

fn write_for_hash(part: &KeyPart, string_end: u8, out: &mut Vec<u8>) {
    match part {
        KeyPart::Undefined => out.push(marker::UNDEFINED),
        KeyPart::Null => out.push(marker::NULL),
        KeyPart::Bool(false) => out.push(marker::FALSE),
        KeyPart::Bool(true) => out.push(marker::TRUE),
        KeyPart::Number(number) => {
            // -0 is hashed as it stands: no client folds it into 0.
            out.push(marker::NUMBER);
            out.extend_from_slice(&number.to_bits().to_le_bytes());
        }
        KeyPart::String(text) => {
            out.push(marker::STRING);
            out.extend_from_slice(text.as_bytes());
            out.push(string_end);
        }
    }
}

fn write_v1(part: &KeyPart, out: &mut Vec<u8>) {
    match part {
        KeyPart::Undefined => out.push(marker::UNDEFINED),
        KeyPart::Null => out.push(marker::NULL),
        KeyPart::Bool(false) => out.push(marker::FALSE),
        KeyPart::Bool(true) => out.push(marker::TRUE),
        KeyPart::Number(number) => write_v1_number(*number, out),
        KeyPart::String(text) => {
            let bytes = v1_prefix(text).as_bytes();
            out.push(marker::STRING);
            // Each byte is raised by one to keep zero for the terminator; UTF-8 has no `FF`, so none overflows.
            out.extend(bytes.iter().take(V1_STRING_BYTES_MAX).map(|byte| byte.saturating_add(1)));
            // 100 UTF-16 units can be 300 bytes; what was cut gets no terminator.
            if bytes.len() < V1_STRING_BYTES_MAX {
                out.push(0x00);
            }
        }
    }
}

/// Order-preserving: eight bits, then groups of seven with a continuation bit.
fn write_v1_number(number: f64, out: &mut Vec<u8>) {
    out.push(marker::NUMBER);
    let bits = number.to_bits();
    // Positive numbers after negative ones, and of the negative ones the larger magnitudes first.
    let mut rest = if bits >> 63 == 0 { bits ^ 1 << 63 } else { bits.wrapping_neg() };
    out.push(rest.to_be_bytes()[0]);
    rest <<= 8;
    loop {
        // Seven bits at the top; the lowest bit says whether another group follows. Trailing zeros are left out.
        let group = rest.to_be_bytes()[0] & 0xFE;
        rest <<= 7;
        if rest == 0 {
            out.push(group);
            return;
        }
        out.push(group | 1);
    }
}

/// The first 100 UTF-16 units. A surrogate pair cut in half counts as cut off: the half would not
/// be valid text.
fn v1_prefix(text: &str) -> &str {
    let mut units = 0;
    for (at, character) in text.char_indices() {
        units += character.len_utf16();
        if units > V1_STRING_UNITS_MAX {
            return &text[..at];
        }
    }
    text
}
