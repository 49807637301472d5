//! Conversions between strings and other values: ToString, and StringToNumber and its relatives, which parse JSON and
//! accept only a value of their own type.

use orrery_model::{Number, Value, value};

use super::super::arguments;
use crate::operand::Operand;

/// Reads a text as strict JSON, keeping only a result of the wanted type.
pub(super) fn parse(arguments: &[Operand<'_>], wanted: fn(&Value) -> bool) -> Option<Value> {
    let text = arguments::string(arguments, 0)?;
    value::parse(text.as_bytes()).ok().filter(wanted)
}

pub(super) fn to_string(arguments: &[Operand<'_>]) -> Option<String> {
    Some(match arguments::value(arguments, 0)? {
        Value::String(text) => text.to_string(),
        Value::Number(number) => number_to_string(*number),
        other => other.to_json(),
    })
}

/// Prints a number as JSON does, with the service's own exponents.
///
/// From 1e17 on the service prints the shortest digits and an exponent of at least three digits:
/// 2049537175849502700 gives `2.0495371758495027e+018`.
fn number_to_string(number: Number) -> String {
    const FIRST_WITH_EXPONENT: f64 = 1e17;

    let double = number.as_f64();
    if double.is_infinite() {
        return if double > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    if double == 0.0 && double.is_sign_negative() {
        return "-0".into();
    }
    let plain = Value::Number(number).to_json();
    if double.abs() < FIRST_WITH_EXPONENT && !plain.contains('e') {
        return plain;
    }
    let scientific = format!("{double:e}");
    match scientific.split_once('e').map(|(digits, exponent)| (digits, exponent.parse::<i32>())) {
        Some((digits, Ok(exponent))) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:03}", exponent.abs())
        }
        // NaN has no exponent.
        _ => plain,
    }
}
