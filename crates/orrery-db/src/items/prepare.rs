//! Prepares an item for writing: validates it, extracts its key and terms, and builds the text to store.

use orrery_model::document::not_an_object;
use std::borrow::Cow;

use bytes::Bytes;
use orrery_env::Env;
use orrery_model::container::ContainerDefinition;
use orrery_model::ids::ItemId;
use orrery_model::partition_key::PartitionKey;
use orrery_model::value::{self, Value};
use orrery_model::{Error, ErrorKind, Result};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::fill::Missing;
use crate::catalog::Container;
use crate::layout::document::parse_item;
use crate::layout::stored::SYSTEM_PROPERTIES;

/// The largest item, in bytes of UTF-8 text.
pub(crate) const ITEM_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A valid item, ready to be written.
#[derive(Clone, Debug)]
pub(crate) struct PreparedItem {
    pub id: ItemId,
    pub value: Value,
    /// The text to store, without system properties: what its value prints as, so that a point read and a query return
    /// the same item where a text says more than a value holds (digits beyond a double, a name twice).
    pub body: Bytes,
    /// Whether queries print the value as this very text. Minus zero is kept, and printed without its sign.
    pub is_plain: bool,
    pub ttl: Option<i32>,
    /// For each unique key of the container: the hash of this item's values.
    pub unique_hashes: Vec<[u8; 32]>,
}

impl PreparedItem {
    /// Validates an item's text.
    pub(crate) fn from_text(definition: &ContainerDefinition, text: &Bytes) -> Result<Self> {
        // Before parsing: an oversized body must not cost more than its bytes.
        if text.len() > ITEM_BYTES_MAX {
            return Err(too_large());
        }
        let (mut value, text) = parse_item(text)?;
        let body = without_system_properties(&text, &value)?;
        remove_system_properties(&mut value);
        Self::new(definition, value, body)
    }

    /// Validates an item's text and adds its synthetic key, if the container has one.
    pub(crate) fn for_container(
        container: &Container,
        text: &Bytes,
        named: Option<&PartitionKey>,
        missing: Missing,
        env: &dyn Env,
    ) -> Result<Self> {
        let Some(policy) = &container.synthetic else { return Self::from_text(&container.definition, text) };
        if text.len() > ITEM_BYTES_MAX {
            return Err(too_large());
        }
        let (mut value, text) = parse_item(text)?;
        let body = without_system_properties(&text, &value)?;
        remove_system_properties(&mut value);
        // The key is added to the text as well as to the value, so that both say the same.
        let body = policy.fill(&mut value, body, named, missing, env)?;
        // Checked again, since the key has made it longer.
        if body.len() > ITEM_BYTES_MAX {
            return Err(too_large());
        }
        Self::new(&container.definition, value, body)
    }

    /// Validates an item built by the server (by a patch or a script).
    pub(crate) fn from_value(definition: &ContainerDefinition, mut value: Value) -> Result<Self> {
        remove_system_properties(&mut value);
        let body = Bytes::from(value.to_exact_json());
        if body.len() > ITEM_BYTES_MAX {
            return Err(too_large());
        }
        Self::new(definition, value, body)
    }

    fn new(definition: &ContainerDefinition, value: Value, body: Bytes) -> Result<Self> {
        let id = ItemId::from_body(value.as_object().ok_or_else(not_an_object)?)?;
        let ttl = item_ttl(&value)?;
        let unique_hashes = unique_hashes(definition, &value)?;
        // Usually the client's text is what the value prints as, and is stored without a copy.
        let printed = value.to_json();
        let (body, is_plain) = if printed.as_bytes() == body {
            (body, true)
        } else {
            let exact = value.to_exact_json();
            let is_plain = exact == printed;
            (Bytes::from(exact), is_plain)
        };
        // Some numbers print longer than they were written.
        if body.len() > ITEM_BYTES_MAX {
            return Err(too_large());
        }
        Ok(Self { id, value, body, is_plain, ttl, unique_hashes })
    }
}

fn too_large() -> Error {
    Error::new(ErrorKind::TooLarge, "Request size is too large")
}

fn item_ttl(value: &Value) -> Result<Option<i32>> {
    let Some(ttl) = value.get("ttl") else { return Ok(None) };
    let number = ttl.as_number().and_then(|_| ttl.as_i64()).and_then(|ttl| i32::try_from(ttl).ok());
    match number {
        Some(ttl) if ttl == -1 || ttl > 0 => Ok(Some(ttl)),
        _ => Err(Error::bad_request(format!(
            "The input ttl '{}' is invalid. Ensure to provide a nonzero positive integer less than or equal to '{}', or -1.",
            ttl.to_json(),
            i32::MAX
        ))),
    }
}

/// For each unique key of the container: the hash of an item's values.
pub(crate) fn unique_hashes(definition: &ContainerDefinition, value: &Value) -> Result<Vec<[u8; 32]>> {
    definition.unique_keys.iter().map(|paths| unique_hash(value, paths)).collect()
}

/// The values at the paths, in an injective encoding, hashed to a fixed length because a tuple may be longer than a
/// key. A missing value counts as null, as in the service.
fn unique_hash(value: &Value, paths: &[orrery_model::path::KeyPath]) -> Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    for path in paths {
        match value.at_path(path.segments()) {
            // Each type has its own first byte, so that "1" and 1 are different values.
            None | Some(Value::Null) => hasher.update([1]),
            Some(Value::Bool(flag)) => hasher.update([if *flag { 3 } else { 2 }]),
            Some(Value::Number(number)) => {
                hasher.update([5]);
                // Minus zero equals zero here, unlike in a partition key's hash.
                hasher.update((number.as_f64() + 0.0).to_bits().to_be_bytes());
            }
            Some(Value::String(text)) => {
                hasher.update([8]);
                // The length makes the encoding injective: ("ab", "c") differs from ("a", "bc").
                hasher.update((text.len() as u64).to_be_bytes());
                hasher.update(text.as_bytes());
            }
            Some(Value::Array(_)) => {
                return Err(Error::bad_request(format!(
                    "The unique key path '{}' must not lead to an array.",
                    path.as_str()
                )));
            }
            Some(object @ Value::Object(_)) => {
                let text = canonical(object).to_json();
                hasher.update([9]);
                hasher.update((text.len() as u64).to_be_bytes());
                hasher.update(text.as_bytes());
            }
        }
    }
    Ok(hasher.finalize().into())
}

/// The value with the members of every object sorted by name, so that equal objects have equal text.
pub(crate) fn canonical(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(canonical).collect()),
        Value::Object(object) => {
            let mut members: Vec<(Box<str>, Value)> =
                object.iter().map(|(name, value)| (name.into(), canonical(value))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(orrery_model::Object::from_members(members))
        }
        Value::Number(number) => Value::from(number.as_f64() + 0.0),
        other => other.clone(),
    }
}

/// Client-supplied values of these are neither stored nor indexed.
fn remove_system_properties(value: &mut Value) {
    if let Some(object) = value.as_object_mut() {
        for name in SYSTEM_PROPERTIES {
            object.remove(name);
        }
    }
}

/// The text to store: nearly always the input. Only a text with system properties is rebuilt, from the original texts
/// of its other members.
fn without_system_properties(text: &Bytes, value: &Value) -> Result<Bytes> {
    let trimmed = trim_json_space(text);
    if !SYSTEM_PROPERTIES.iter().any(|name| value.get(name).is_some()) {
        return Ok(trimmed);
    }
    // Parsed as raw texts: printing the value would change numbers and repeated names.
    let members: Members<'_> = serde_json::from_slice(&trimmed)
        .map_err(|error| Error::bad_request(format!("The input content is invalid because {error}.")))?;
    let mut out = String::with_capacity(trimmed.len());
    out.push('{');
    for (name, raw) in &members.0 {
        if SYSTEM_PROPERTIES.contains(&name.as_ref()) {
            continue;
        }
        if out.len() > 1 {
            out.push(',');
        }
        value::write_json_string(name, &mut out);
        out.push(':');
        out.push_str(raw.get());
    }
    out.push('}');
    Ok(out.into())
}

fn trim_json_space(text: &Bytes) -> Bytes {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let start = text.iter().position(|byte| !is_space(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last + 1);
    text.slice(start..end)
}

/// The members of an object with the original text of each value, including repeated names.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                // A list and not a map: repeated names are kept, in their order.
                let mut members = Vec::new();
                while let Some(name) = access.next_key::<String>()? {
                    members.push((Cow::Owned(name), access.next_value::<&'de RawValue>()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(extra: &str) -> ContainerDefinition {
        let text =
            format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{extra}}}"#);
        ContainerDefinition::create(&value::parse(text.as_bytes()).unwrap()).unwrap()
    }

    fn prepare(text: &str) -> Result<PreparedItem> {
        PreparedItem::from_text(&definition(""), &Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn system_properties_are_left_out() {
        let check = |text: &str, stored: &str| assert_eq!(prepare(text).unwrap().body, stored.as_bytes());
        check(r#"{"_ts":1,"id":"a","n":1.50,"_etag":"x","_rid":"r"}"#, r#"{"id":"a","n":1.5}"#);
        check(r#"{"id":"a","deep":{"_ts":1}}"#, r#"{"id":"a","deep":{"_ts":1}}"#);
    }

    /// Reads and queries must not differ.
    #[test]
    fn the_stored_text_is_what_the_value_prints_as() {
        let check = |text: &str, stored: &str, plain: bool| {
            let item = prepare(text).unwrap();
            assert_eq!((item.body.as_ref(), item.is_plain), (stored.as_bytes(), plain), "{text}");
        };
        let plain = r#"{"id":"a","n":1.5,"x":[1,-2,null,true,{"é":"\n\""}]}"#;
        check(plain, plain, true);
        for (text, stored) in [
            (r#" {"id":"a","_ts":5,"n":1} "#, r#"{"id":"a","n":1}"#),
            (r#"{"id":"a","n": 1}"#, r#"{"id":"a","n":1}"#),
            (r#"{"id":"a","n":1.0}"#, r#"{"id":"a","n":1}"#),
            (r#"{"id":"a","n":1.50}"#, r#"{"id":"a","n":1.5}"#),
            (r#"{"id":"a","n":1e2}"#, r#"{"id":"a","n":100}"#),
            (r#"{"id":"a","n":12345678901234567890}"#, r#"{"id":"a","n":12345678901234567000}"#),
            (r#"{"id":"a","n":0.12345678901234567890}"#, r#"{"id":"a","n":0.12345678901234568}"#),
            (r#"{"id":"\u0061"}"#, r#"{"id":"a"}"#),
            (r#"{"id":"a","n":"\/"}"#, r#"{"id":"a","n":"/"}"#),
            (r#"{"id":"a","n":1,"n":2}"#, r#"{"id":"a","n":2}"#),
        ] {
            check(text, stored, true);
        }
        // Minus zero is a partition key of its own.
        check(r#"{"id":"a","n":-0}"#, r#"{"id":"a","n":-0.0}"#, false);
    }

    #[test]
    fn invalid_items_are_refused() {
        for text in [
            "[]",
            "5",
            "{",
            "{}",
            r#"{"id":1}"#,
            r#"{"id":""}"#,
            r#"{"id":"a","ttl":0}"#,
            r#"{"id":"a","ttl":-2}"#,
            r#"{"id":"a","ttl":1.5}"#,
            r#"{"id":"a","ttl":"5"}"#,
            r#"{"id":"a","ttl":null}"#,
        ] {
            assert_eq!(prepare(text).unwrap_err().kind, ErrorKind::BadRequest, "{text}");
        }
        let large = format!(r#"{{"id":"a","x":"{}"}}"#, "y".repeat(ITEM_BYTES_MAX));
        assert_eq!(prepare(&large).unwrap_err().kind, ErrorKind::TooLarge);
        assert!(prepare("{}").unwrap_err().message.contains("'id; '"));
    }

    #[test]
    fn unique_tuples_compare_by_value() {
        let definition = definition(r#","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/b/c"]}]}"#);
        let hash = |text: &str| {
            PreparedItem::from_text(&definition, &Bytes::copy_from_slice(text.as_bytes()))
                .unwrap()
                .unique_hashes[0]
        };
        assert_eq!(hash(r#"{"id":"1","a":1}"#), hash(r#"{"id":"2","a":1.0,"b":{"c":null}}"#));
        assert_ne!(hash(r#"{"id":"1","a":"x","b":{"c":"y"}}"#), hash(r#"{"id":"1","a":"xy","b":{"c":""}}"#));
        assert_ne!(hash(r#"{"id":"1","a":1}"#), hash(r#"{"id":"1","a":"1"}"#));
    }
}
