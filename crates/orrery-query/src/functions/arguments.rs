//! Reading arguments: each reader answers `None` when the operand is undefined or of another type,
//! which is what makes the whole call undefined.

use orrery_model::{Number, Object, Value};

use crate::operand::Operand;

pub(super) fn value<'v>(arguments: &'v [Operand<'_>], at: usize) -> Option<&'v Value> {
    arguments.get(at)?.as_deref()
}

pub(super) fn string<'v>(arguments: &'v [Operand<'_>], at: usize) -> Option<&'v str> {
    value(arguments, at)?.as_str()
}

pub(super) fn boolean(arguments: &[Operand<'_>], at: usize) -> Option<bool> {
    value(arguments, at)?.as_bool()
}

pub(super) fn number(arguments: &[Operand<'_>], at: usize) -> Option<Number> {
    value(arguments, at)?.as_number()
}

pub(super) fn double(arguments: &[Operand<'_>], at: usize) -> Option<f64> {
    number(arguments, at).map(Number::as_f64)
}

pub(super) fn integer(arguments: &[Operand<'_>], at: usize) -> Option<i64> {
    exact_integer(number(arguments, at)?)
}

pub(super) fn array<'v>(arguments: &'v [Operand<'_>], at: usize) -> Option<&'v [Value]> {
    value(arguments, at)?.as_array()
}

pub(super) fn object<'v>(arguments: &'v [Operand<'_>], at: usize) -> Option<&'v Object> {
    value(arguments, at)?.as_object()
}

/// Reads an argument that may be left out: `Some(None)` if it is, `None` if it is there but wrong.
#[expect(clippy::option_option, reason = "left out and wrong are different answers")]
pub(super) fn optional<'v, 'a, T>(
    arguments: &'v [Operand<'a>],
    at: usize,
    read: impl Fn(&'v [Operand<'a>], usize) -> Option<T>,
) -> Option<Option<T>> {
    if at < arguments.len() { read(arguments, at).map(Some) } else { Some(None) }
}

/// A boolean that counts as false when left out.
pub(super) fn flag(arguments: &[Operand<'_>], at: usize) -> Option<bool> {
    optional(arguments, at, boolean).map(Option::unwrap_or_default)
}

/// The 64-bit integer a number is exactly, if it is one. Doubles count as far as they tell integers apart.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked first")]
pub(super) fn exact_integer(number: Number) -> Option<i64> {
    const SAFE_MAX: f64 = 9_007_199_254_740_991.0;
    match number {
        Number::Int(value) => Some(value),
        Number::Double(value) if value.fract() == 0.0 && value.abs() <= SAFE_MAX => Some(value as i64),
        Number::Double(_) => None,
    }
}

/// Where a value stands in the order of types that minima and maxima follow; arrays and objects
/// have no place in it.
pub(super) fn compare_primitives(left: &Value, right: &Value) -> Option<std::cmp::Ordering> {
    fn rank(value: &Value) -> Option<u8> {
        match value {
            Value::Null => Some(0),
            Value::Bool(_) => Some(1),
            Value::Number(_) => Some(2),
            Value::String(_) => Some(3),
            Value::Array(_) | Value::Object(_) => None,
        }
    }
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => left.partial_cmp(right),
        // Byte order of UTF-8 is code point order.
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => Some(rank(left)?.cmp(&rank(right)?)),
    }
}

/// OR over answers of which some are undefined: true wins, then undefined.
pub(super) fn any_of(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut result = Some(false);
    for answer in answers {
        match answer {
            Some(true) => return Some(true),
            Some(false) => {}
            None => result = None,
        }
    }
    result
}

/// AND over answers of which some are undefined: false wins, then undefined.
pub(super) fn all_of(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    any_of(answers.map(|answer| answer.map(|answer| !answer))).map(|answer| !answer)
}
