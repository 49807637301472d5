//! JSON texts that must be documents: request bodies and stored items.

use crate::error::{Error, Result};
use crate::value::{self, ParseError, Value};

/// Parses a text that must be JSON.
pub fn parse_json(text: &[u8]) -> Result<Value> {
    parse_escaped(text).map(|(value, _)| value)
}

/// Parses JSON that may contain unescaped tabs and line breaks in strings. Also returns the text as valid JSON, if it
/// was not.
pub fn parse_escaped(text: &[u8]) -> Result<(Value, Option<Vec<u8>>)> {
    // Valid JSON, nearly every text, is parsed once and not copied.
    let error = match value::parse(text) {
        Ok(value) => return Ok((value, None)),
        Err(error) => error,
    };
    let escaped = value::escape_breaks(text).ok_or_else(|| malformed(error.clone()))?;
    // The message of the first attempt fits the text that was sent.
    let value = value::parse(&escaped).map_err(|_| malformed(error))?;
    Ok((value, Some(escaped)))
}

/// Parses a text that must be a JSON object.
pub fn parse_object(text: &[u8]) -> Result<Value> {
    match parse_json(text)? {
        value @ Value::Object(_) => Ok(value),
        _ => Err(not_an_object()),
    }
}

/// Parses some members of a previously accepted item.
pub fn parse_object_members(text: &[u8], is_plain: bool, names: &[Box<str>]) -> Result<Value> {
    let parse = if is_plain { value::parse_plain_members } else { value::parse_members };
    parse(text, names).map_err(malformed)
}

/// The error for a body that is JSON but not an object.
pub fn not_an_object() -> Error {
    Error::bad_request("The input content is invalid because it is not a JSON object.")
}

fn malformed(error: ParseError) -> Error {
    match error {
        ParseError::TooDeep => Error::bad_request(format!(
            "The input content is invalid because its nesting is deeper than {} levels.",
            value::NESTING_MAX
        )),
        ParseError::Syntax(detail) => Error::bad_request(format!(
            "The input content is invalid because it is not valid JSON: {detail}."
        )),
    }
}
