//! Type checks: always a boolean, false for undefined.

use orrery_model::Value;

use super::arguments::{exact_integer, value};
use super::{Function, row};
use crate::operand::Operand;

pub(super) static FUNCTIONS: &[Function] = &[
    row!("IS_ARRAY", 1..=1, PreciseScan, |a| check(a, |value| matches!(value, Value::Array(_)))),
    row!("IS_BOOL", 1..=1, PreciseScan, |a| check(a, |value| matches!(value, Value::Bool(_)))),
    row!("IS_DEFINED", 1..=1, PreciseScan, |a| check(a, |_| true)),
    row!("IS_FINITE_NUMBER", 1..=1, PreciseScan, |a| check(a, is_finite_number)),
    row!("IS_INTEGER", 1..=1, PreciseScan, |a| check(a, is_integer)),
    row!("IS_NULL", 1..=1, PreciseScan, |a| check(a, |value| matches!(value, Value::Null))),
    row!("IS_NUMBER", 1..=1, PreciseScan, |a| check(a, |value| matches!(value, Value::Number(_)))),
    row!("IS_OBJECT", 1..=1, PreciseScan, |a| check(a, |value| matches!(value, Value::Object(_)))),
    row!("IS_PRIMITIVE", 1..=1, PreciseScan, |a| check(a, is_primitive)),
    row!("IS_STRING", 1..=1, PreciseScan, |a| check(a, |value| matches!(value, Value::String(_)))),
];

#[expect(clippy::unnecessary_wraps, reason = "rows take optional results")]
fn check(arguments: &[Operand<'_>], holds: fn(&Value) -> bool) -> Option<bool> {
    Some(value(arguments, 0).is_some_and(holds))
}

fn is_finite_number(value: &Value) -> bool {
    value.as_number().is_some_and(|number| number.as_f64().is_finite())
}

fn is_integer(value: &Value) -> bool {
    value.as_number().is_some_and(|number| exact_integer(number).is_some())
}

fn is_primitive(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}
