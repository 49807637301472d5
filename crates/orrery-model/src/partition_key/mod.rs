//! Partition keys: the definition a container has, the value an item or a request carries, and
//! the effective key that places the value among the container's partitions.

mod definition;
mod effective;
pub mod encode;
mod part;

pub use definition::{KeyKind, KeyVersion, PartitionKeyDefinition, VALUE_BYTES_MAX};
pub use effective::{EffectiveKey, EpkRange};
pub use part::KeyPart;

use crate::error::{Error, Result};
use crate::value::{self, Number, Object, Value};

/// A key value: one component per path of the definition, fewer for a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey(pub Vec<KeyPart>);

/// Longest text accepted: three components of the longest kind, every byte escaped.
const TEXT_BYTES_MAX: usize = 64 << 10;

impl PartitionKey {
    pub fn new(parts: Vec<KeyPart>) -> Self {
        Self(parts)
    }

    pub fn parts(&self) -> &[KeyPart] {
        &self.0
    }

    /// Reads the JSON array in which requests name a key. `{}` is undefined.
    pub fn parse_json(text: &[u8]) -> Result<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Error::bad_request("The partition key header is too long."));
        }
        let invalid =
            || Error::bad_request(format!("Partition key {} is invalid.", String::from_utf8_lossy(text)));
        let Ok(Value::Array(parts)) = value::parse(text) else { return Err(invalid()) };
        let parts = parts.iter().map(|part| match part {
            // Only the empty object stands for undefined; other structures are no key.
            Value::Object(object) if !object.is_empty() => None,
            Value::Array(_) => None,
            scalar => Some(KeyPart::of(Some(scalar))),
        });
        parts.collect::<Option<Vec<_>>>().map(Self).ok_or_else(invalid)
    }

    /// The JSON form as a value: `["a",5,{}]`.
    pub fn to_value(&self) -> Value {
        let parts = self.0.iter().map(|part| match part {
            KeyPart::Undefined => Value::Object(Object::new()),
            KeyPart::Null => Value::Null,
            KeyPart::Bool(flag) => Value::Bool(*flag),
            KeyPart::Number(number) => Value::Number(Number::Double(*number)),
            KeyPart::String(text) => Value::String(text.clone()),
        });
        Value::Array(parts.collect())
    }

    /// The JSON form as text. Reading it back gives the same key, `-0` included.
    pub fn to_json(&self) -> String {
        let mut text = String::from("[");
        for (index, part) in self.0.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            match part {
                KeyPart::Undefined => text.push_str("{}"),
                KeyPart::Null => text.push_str("null"),
                KeyPart::Bool(flag) => text.push_str(if *flag { "true" } else { "false" }),
                // The JavaScript form of -0 is 0, which is another key.
                KeyPart::Number(number) if *number == 0.0 && number.is_sign_negative() => {
                    text.push_str("-0.0");
                }
                KeyPart::Number(number) => Value::from(*number).write_json(&mut text),
                KeyPart::String(string) => value::write_json_string(string, &mut text),
            }
        }
        text.push(']');
        text
    }

    /// Whether this key equals `prefix` as far as `prefix` goes.
    pub fn starts_with(&self, prefix: &Self) -> bool {
        self.0.starts_with(&prefix.0)
    }
}

impl std::fmt::Display for PartitionKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.to_json())
    }
}
