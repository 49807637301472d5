//! The result of an expression: a value, or undefined.
//!
//! `undefined` is not a JSON value, so it is not a [`Value`]: it is absence. Values read from a
//! document are borrowed from it; computed ones are owned.

use std::borrow::Cow;

use orrery_model::Value;

/// The result of an expression: `None` is `undefined`.
pub type Operand<'a> = Option<Cow<'a, Value>>;

/// An operand that owns its value.
pub fn owned<'a>(value: impl Into<Value>) -> Operand<'a> {
    Some(Cow::Owned(value.into()))
}

/// An operand that borrows its value.
pub fn borrowed(value: &Value) -> Operand<'_> {
    Some(Cow::Borrowed(value))
}

/// The value itself, copied if it was borrowed.
pub fn into_value(operand: Operand<'_>) -> Option<Value> {
    operand.map(Cow::into_owned)
}
