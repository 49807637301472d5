//! Reads the fields of a definition, with uniform error messages.

use crate::error::{Error, Result};
use crate::value::{Object, Value};

pub(super) fn wrong_type(name: &str, expected: &str) -> Error {
    Error::bad_request(format!(
        "One of the specified inputs is invalid: the property '{name}' is not {expected}."
    ))
}

pub(super) fn object<'a>(value: &'a Value, name: &str) -> Result<&'a Object> {
    value.as_object().ok_or_else(|| wrong_type(name, "an object"))
}

/// The member as an object; none if absent or null.
pub(super) fn optional_object<'a>(owner: &'a Object, name: &str) -> Result<Option<&'a Object>> {
    present(owner, name).map(|value| object(value, name)).transpose()
}

/// The member as an array; empty if absent or null.
pub(super) fn array<'a>(owner: &'a Object, name: &str) -> Result<&'a [Value]> {
    match present(owner, name) {
        None => Ok(&[]),
        Some(value) => value.as_array().ok_or_else(|| wrong_type(name, "an array")),
    }
}

/// The member as text; none if absent or null.
pub(super) fn optional_str<'a>(owner: &'a Object, name: &str) -> Result<Option<&'a str>> {
    present(owner, name).map(|value| value.as_str().ok_or_else(|| wrong_type(name, "a string"))).transpose()
}

pub(super) fn required_str<'a>(owner: &'a Object, name: &str) -> Result<&'a str> {
    optional_str(owner, name)?.ok_or_else(|| crate::ids::missing_properties(&[name]))
}

pub(super) fn optional_bool(owner: &Object, name: &str) -> Result<Option<bool>> {
    present(owner, name).map(|value| value.as_bool().ok_or_else(|| wrong_type(name, "a boolean"))).transpose()
}

pub(super) fn optional_i64(owner: &Object, name: &str) -> Result<Option<i64>> {
    present(owner, name).map(|value| value.as_i64().ok_or_else(|| wrong_type(name, "an integer"))).transpose()
}

pub(super) fn present<'a>(owner: &'a Object, name: &str) -> Option<&'a Value> {
    owner.get(name).filter(|value| !matches!(value, Value::Null))
}
