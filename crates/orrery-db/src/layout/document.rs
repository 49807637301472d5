//! An item as a document: its parsed text with the system properties that are stored beside it.

use bytes::Bytes;
use orrery_model::document::{not_an_object, parse_escaped, parse_object, parse_object_members};
use orrery_model::rid::ContainerRid;
use orrery_model::{Error, Result, Value};

use super::stored::{SYSTEM_PROPERTIES, StoredItem};

/// Decodes a stored item.
pub(crate) fn decode(bytes: &Bytes) -> Result<StoredItem> {
    StoredItem::decode(bytes).ok_or_else(|| Error::internal("A stored item has an unknown format."))
}

/// The item with its system properties, as queries and conditions see it.
pub(crate) fn document_value(item: &StoredItem, container: ContainerRid) -> Result<Value> {
    let mut text = Vec::with_capacity(item.body.len() + 256);
    item.write_document(container, &mut text);
    parse_object(&text)
}

/// The same with only these properties, without parsing the whole item.
pub(crate) fn document_members(
    item: &StoredItem,
    container: ContainerRid,
    names: &[Box<str>],
) -> Result<Value> {
    // System properties are not in the body, so the whole document is written first.
    if names.iter().any(|name| SYSTEM_PROPERTIES.contains(&name.as_ref())) {
        let mut text = Vec::new();
        item.write_document(container, &mut text);
        return parse_object_members(&text, item.is_plain, names);
    }
    parse_object_members(&item.body, item.is_plain, names)
}

/// Parses an item's text and returns the text to store, which is always valid JSON.
pub(crate) fn parse_item(text: &Bytes) -> Result<(Value, Bytes)> {
    match parse_escaped(text)? {
        (value @ Value::Object(_), escaped) => Ok((value, escaped.map_or_else(|| text.clone(), Bytes::from))),
        _ => Err(not_an_object()),
    }
}
