//! An item as a document: its text parsed, with the system properties that are stored beside it.

use bytes::Bytes;
use orrery_model::rid::ContainerRid;
use orrery_model::value::{self, ParseError, Value};
use orrery_model::{Error, Result};

use super::stored::{SYSTEM_PROPERTIES, StoredItem};

/// Reads an item as it is stored.
pub(crate) fn decode(bytes: &Bytes) -> Result<StoredItem> {
    StoredItem::decode(bytes).ok_or_else(|| Error::internal("A stored item has an unknown format."))
}

/// The item with its system properties, as queries and conditions see it.
pub(crate) fn document_value(item: &StoredItem, container: ContainerRid) -> Result<Value> {
    let mut text = Vec::with_capacity(item.body.len() + 256);
    item.write_document(container, &mut text);
    parse_object(&text)
}

/// The same with only these of its properties. The whole item need not be looked at for that.
pub(crate) fn document_members(
    item: &StoredItem,
    container: ContainerRid,
    names: &[Box<str>],
) -> Result<Value> {
    if names.iter().any(|name| SYSTEM_PROPERTIES.contains(&name.as_ref())) {
        let mut text = Vec::new();
        item.write_document(container, &mut text);
        return parse_object_members(&text, item.is_plain, names);
    }
    parse_object_members(&item.body, item.is_plain, names)
}

/// Parses a text that must be a JSON object.
pub(crate) fn parse_object(text: &[u8]) -> Result<Value> {
    match parse_json(text)? {
        value @ Value::Object(_) => Ok(value),
        _ => Err(not_an_object()),
    }
}

/// Parses some members of a text that was accepted as an item.
pub(crate) fn parse_object_members(text: &[u8], is_plain: bool, names: &[Box<str>]) -> Result<Value> {
    let parse = if is_plain { value::parse_plain_members } else { value::parse_members };
    parse(text, names).map_err(parse_failure)
}

/// Parses a text that must be JSON.
pub(crate) fn parse_json(text: &[u8]) -> Result<Value> {
    parse_escaped(text).map(|(value, _)| value)
}

/// Parses an item's text, and answers the text to store: strings may hold tabs and line breaks as they are, which JSON
/// does not allow. These are escaped, so that everything that is stored is JSON.
pub(crate) fn parse_item(text: &Bytes) -> Result<(Value, Bytes)> {
    match parse_escaped(text)? {
        (value @ Value::Object(_), escaped) => Ok((value, escaped.map_or_else(|| text.clone(), Bytes::from))),
        _ => Err(not_an_object()),
    }
}

/// The value, and its text in proper JSON if it was not.
fn parse_escaped(text: &[u8]) -> Result<(Value, Option<Vec<u8>>)> {
    let error = match value::parse(text) {
        Ok(value) => return Ok((value, None)),
        Err(error) => error,
    };
    let escaped = value::escape_breaks(text).ok_or_else(|| parse_failure(error.clone()))?;
    let value = value::parse(&escaped).map_err(|_| parse_failure(error))?;
    Ok((value, Some(escaped)))
}

fn parse_failure(error: ParseError) -> Error {
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

pub(crate) fn not_an_object() -> Error {
    Error::bad_request("The input content is invalid because it is not a JSON object.")
}
