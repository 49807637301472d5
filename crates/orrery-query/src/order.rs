//! The total order and the hash of values.
//!
//! `undefined < null < false < true < numbers < strings < arrays < objects`. Arrays among
//! themselves, and objects among themselves, follow a 128-bit hash: stable, without meaning. It is
//! the hash clients compute when they merge sorted ranges, so a position they send back in a resume
//! filter falls where they expect it.

use std::cmp::Ordering;

use orrery_model::{Number, Value};

use crate::hash::{Hash, Wide};

/// Where the hash of rows and of their values starts.
const ROOT: <Wide as Hash>::State = (0xbfc2_359e_afc0_e2b7, 0x8846_e002_84c4_cf1f);

/// Orders two operands; `None` is undefined.
pub fn compare(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    match (left, right) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => compare_numbers(*a, *b),
        (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(b),
        (Some(a @ Value::Array(_)), Some(b @ Value::Array(_)))
        | (Some(a @ Value::Object(_)), Some(b @ Value::Object(_))) => {
            if a == b {
                Ordering::Equal
            } else {
                hash(a).cmp(&hash(b))
            }
        }
        (a, b) => type_rank(a).cmp(&type_rank(b)),
    }
}

/// Orders numbers; NaN comes before all others, so that the order is total.
pub fn compare_numbers(a: Number, b: Number) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.as_f64().is_nan().cmp(&a.as_f64().is_nan()))
}

/// The place of a value's type in the order; false and true have their own.
pub fn type_rank(operand: Option<&Value>) -> u8 {
    match operand {
        None => 0,
        Some(Value::Null) => 1,
        Some(Value::Bool(false)) => 2,
        Some(Value::Bool(true)) => 3,
        Some(Value::Number(_)) => 4,
        Some(Value::String(_)) => 5,
        Some(Value::Array(_)) => 6,
        Some(Value::Object(_)) => 7,
    }
}

/// A hash that equal values share: numbers by value, objects whatever the order of their members.
pub fn hash(value: &Value) -> u128 {
    join(Wide::value(value, ROOT))
}

/// The hash of a tuple of operands, undefined ones included.
pub fn hash_operands<'v>(operands: impl Iterator<Item = Option<&'v Value>>) -> u128 {
    let mut state = ROOT;
    for operand in operands {
        state = match operand {
            Some(value) => Wide::value(value, state),
            None => Wide::stir(&[0xFF], state),
        };
    }
    join(state)
}

/// Scalars and containers in a value, long strings counting more than once: what memory bounds
/// are counted in.
pub fn cells(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.len() / 256,
        Value::Array(items) => 1 + items.iter().map(cells).sum::<usize>(),
        Value::Object(object) => {
            1 + object.iter().map(|(name, value)| name.len() / 256 + cells(value)).sum::<usize>()
        }
        _ => 1,
    }
}

/// About how many bytes a value takes in memory.
pub fn bytes(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(bytes).sum(),
            Value::Object(object) => object.iter().map(|(name, value)| 16 + name.len() + bytes(value)).sum(),
            _ => 0,
        }
}

fn join((low, high): <Wide as Hash>::State) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}
