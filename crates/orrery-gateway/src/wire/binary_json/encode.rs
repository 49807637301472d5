//! Encodes values as binary JSON, for clients that request it. Uses only basic markers: lengths with counts for
//! containers, the string table, the smallest integer that fits.

use orrery_model::{Number, Value};

use super::{PREAMBLE, SYSTEM_STRINGS};

/// The buffer of a value.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    out.push(PREAMBLE);
    write_value(value, &mut out);
    out
}

fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0xD0),
        Value::Bool(false) => out.push(0xD1),
        Value::Bool(true) => out.push(0xD2),
        Value::Number(Number::Int(value)) => write_integer(*value, out),
        Value::Number(Number::Double(value)) => {
            out.push(0xCC);
            out.extend_from_slice(&value.to_le_bytes());
        }
        Value::String(text) => write_string(text, out),
        Value::Array(items) => write_container(0xE0, items.len(), out, |out| {
            for item in items {
                write_value(item, out);
            }
        }),
        Value::Object(object) => write_container(0xE8, object.len(), out, |out| {
            for (name, value) in object.iter() {
                write_string(name, out);
                write_value(value, out);
            }
        }),
    }
}

fn write_integer(value: i64, out: &mut Vec<u8>) {
    if let Ok(small) = u8::try_from(value) {
        // Below that the marker itself is the number.
        if small >= 0x20 {
            out.push(0xC8);
        }
        out.push(small);
    } else if let Ok(value) = i16::try_from(value) {
        out.push(0xC9);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(0xCA);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        out.push(0xCB);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    let known = SYSTEM_STRINGS.iter().zip(0x20..).find(|(known, _)| **known == text);
    if let Some((_, marker)) = known {
        out.push(marker);
        return;
    }
    match text.len() {
        length @ 0..=0x3F => out.push(0x80 | low_byte(length)),
        length => write_sized(0xC0, &[length], out),
    }
    out.extend_from_slice(text.as_bytes());
}

/// Writes the content first, then puts the header with its length in front.
fn write_container(kind: u8, count: usize, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    if count == 0 {
        out.push(kind);
        return;
    }
    let start = out.len();
    content(out);
    let mut header = Vec::with_capacity(9);
    write_sized(kind + 5, &[out.len() - start, count], &mut header);
    // The width of the header depends on the length of the content, so no place could be kept for it.
    out.splice(start..start, header);
}

/// A marker that determines the width of the sizes after it: 1, 2 or 4 bytes.
fn write_sized(marker: u8, sizes: &[usize], out: &mut Vec<u8>) {
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let (step, width) = match largest {
        0..=0xFF => (0, 1),
        0x100..=0xFFFF => (1, 2),
        _ => (2, 4),
    };
    out.push(marker + step);
    for size in sizes {
        // Pages end at 4 MB, so four bytes hold every size.
        out.extend_from_slice(&size.to_le_bytes()[..width]);
    }
}

fn low_byte(value: usize) -> u8 {
    value.to_le_bytes()[0]
}
