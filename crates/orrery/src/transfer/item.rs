//! Preparing an item to be written: its id, its partition key, and the partition that key belongs to.

use bytes::Bytes;
use orrery_model::partition_key::{EffectiveKey, PartitionKeyDefinition};
use orrery_model::{Value, value};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// An item that is ready to be written.
#[derive(Clone, Debug)]
pub(crate) struct PreparedItem {
    pub(crate) id: String,
    /// The partition key as JSON.
    pub(crate) key: String,
    pub(crate) effective: EffectiveKey,
    pub(crate) body: Bytes,
}

/// Where ids come from.
#[derive(Clone, Debug)]
pub(crate) enum IdRule {
    /// The item has one.
    Required,
    /// This property holds it.
    FromProperty(String),
    /// Derived from position and content if the item has none, so that a repeated import gives the same ids.
    Generate,
}

/// Finds an item's id and partition key. `number` is its position in the input.
///
/// An error is the reason and, if the record is JSON, the item.
pub(crate) fn prepare(
    definition: &PartitionKeyDefinition,
    rule: &IdRule,
    number: u64,
    text: Vec<u8>,
) -> Result<PreparedItem, (String, Vec<u8>)> {
    let mut item = match value::parse(&text) {
        Ok(item @ Value::Object(_)) => item,
        Ok(_) => return Err(("the record is not a JSON object".to_owned(), text)),
        Err(error) => return Err((format!("the record is not valid JSON: {error}"), Vec::new())),
    };
    let new_id = match rule {
        IdRule::FromProperty(property) => match item.get(property) {
            Some(Value::String(id)) => Some(id.to_string()),
            Some(number @ Value::Number(_)) => Some(number.to_json()),
            _ => {
                return Err((
                    format!("the property `{property}` holds no id: expected a string or a number"),
                    text,
                ));
            }
        },
        IdRule::Generate if item.get("id").is_none() => {
            // The position is part of the hash, so that equal items get different ids.
            Some(format!("{:032x}", xxh3_128_with_seed(&text, number)))
        }
        IdRule::Required | IdRule::Generate => None,
    };
    let body = match new_id {
        // The original text keeps numbers as they were written.
        None => Bytes::from(text),
        Some(id) => {
            if let Some(object) = item.as_object_mut() {
                object.set("id", Value::from(id.as_str()));
            }
            Bytes::from(item.to_exact_json())
        }
    };
    let id = match item.get("id") {
        Some(Value::String(id)) => id.to_string(),
        Some(_) => return Err(("the id is not a string".to_owned(), body.into())),
        None => return Err(("the item has no id".to_owned(), body.into())),
    };
    let key = match definition.extract(&item) {
        Ok(key) => key,
        Err(error) => return Err((error.message, body.into())),
    };
    let effective = definition.effective_key(&key);
    Ok(PreparedItem { id, key: key.to_json(), effective, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_taken_from_a_property_or_generated() {
        let definition = PartitionKeyDefinition::with_paths(&["/pk"]).unwrap();
        let check = |rule: &IdRule, text: &str| {
            prepare(&definition, rule, 7, text.as_bytes().to_vec())
                .map(|item| (item.id, item.key, String::from_utf8(item.body.to_vec()).unwrap()))
                .map_err(|(reason, _)| reason)
        };
        let text = r#"{"id":"a","pk":1.50}"#;
        let expected = ("a".to_owned(), "[1.5]".to_owned(), text.to_owned());
        assert_eq!(check(&IdRule::Required, text), Ok(expected.clone()));
        assert_eq!(check(&IdRule::Generate, text), Ok(expected));
        let (id, key, body) = check(&IdRule::FromProperty("n".to_owned()), r#"{"n":12}"#).unwrap();
        assert_eq!((id.as_str(), key.as_str(), body.as_str()), ("12", "[{}]", r#"{"n":12,"id":"12"}"#));
        let generated = check(&IdRule::Generate, r#"{"pk":"x"}"#).unwrap();
        assert_eq!(generated, check(&IdRule::Generate, r#"{"pk":"x"}"#).unwrap());
        assert_eq!(generated.0.len(), 32);
        for (text, reason) in [
            ("[1]", "not a JSON object"),
            ("{", "not valid JSON"),
            ("{}", "no id"),
            (r#"{"id":1}"#, "not a string"),
        ] {
            assert!(check(&IdRule::Required, text).unwrap_err().contains(reason), "{text}");
        }
    }
}
