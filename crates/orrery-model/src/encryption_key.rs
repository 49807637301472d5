//! Client encryption keys: data keys created by clients, wrapped by keys that the server never sees. The server
//! validates their format, stores and returns them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::error::{Error, Result};
use crate::ids::{ResourceName, missing_properties};
use crate::value::{Object, Value};

const ALGORITHM: &str = "AEAD_AES_256_CBC_HMAC_SHA256";
/// Bytes of the whole definition. A wrapped key has a few hundred.
const DEFINITION_BYTES_MAX: usize = 64 << 10;
const SYSTEM_PROPERTIES: [&str; 5] = ["_rid", "_self", "_etag", "_ts", "_cts"];

/// A checked key.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientEncryptionKey {
    pub id: ResourceName,
    /// What the client sent, without system properties.
    document: Object,
}

impl ClientEncryptionKey {
    pub fn parse(body: &Value) -> Result<Self> {
        let body = body.as_object().ok_or_else(|| {
            Error::bad_request("The input content is invalid because it is not a JSON object.")
        })?;
        let id = ResourceName::from_body(body)?;
        let algorithm = required_str(body, "encryptionAlgorithm")?;
        if algorithm != ALGORITHM {
            return Err(Error::bad_request(format!(
                "Invalid encryption algorithm '{algorithm}' of the client encryption key: only '{ALGORITHM}' is supported."
            )));
        }
        let wrapped = required_str(body, "wrappedDataEncryptionKey")?;
        // The server cannot unwrap the key, so this is all that it can tell.
        if STANDARD.decode(wrapped).map_or(0, |bytes| bytes.len()) == 0 {
            return Err(Error::bad_request(
                "The property 'wrappedDataEncryptionKey' of the client encryption key must be non-empty base64.",
            ));
        }
        let metadata = body.get("keyWrapMetadata").filter(|value| !matches!(value, Value::Null));
        let metadata = metadata.ok_or_else(|| missing_properties(&["keyWrapMetadata"]))?;
        let metadata = metadata.as_object().ok_or_else(|| {
            Error::bad_request(
                "One of the specified inputs is invalid: the property 'keyWrapMetadata' is not an object.",
            )
        })?;
        // What a client needs to find the wrapping key again.
        for name in ["type", "name", "value", "algorithm"] {
            required_str(metadata, name)?;
        }
        let mut document = Object::new();
        for (name, value) in body.iter().filter(|(name, _)| !SYSTEM_PROPERTIES.contains(name)) {
            document.set(name, value.clone());
        }
        // Unknown properties are kept, so the whole needs a bound.
        if Value::Object(document.clone()).to_json().len() > DEFINITION_BYTES_MAX {
            return Err(Error::new(crate::ErrorKind::TooLarge, "Request size is too large"));
        }
        Ok(Self { id, document })
    }

    /// The key without system properties.
    pub fn to_value(&self) -> Value {
        Value::Object(self.document.clone())
    }
}

fn required_str<'a>(owner: &'a Object, name: &str) -> Result<&'a str> {
    match owner.get(name) {
        None | Some(Value::Null) => Err(missing_properties(&[name])),
        Some(value) => value.as_str().ok_or_else(|| {
            Error::bad_request(format!(
                "One of the specified inputs is invalid: the property '{name}' is not a string."
            ))
        }),
    }
}
