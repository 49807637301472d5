//! Validates client-chosen ids: a value of these types is valid, so nothing below checks again.

use std::fmt;
use std::ops::Deref;

use crate::error::{Error, Result};
use crate::value::{Object, Value};

/// Characters of a database, container, user, … id.
pub const RESOURCE_NAME_CHARACTERS_MAX: usize = 255;
/// UTF-8 bytes of an item id.
pub const ITEM_ID_BYTES_MAX: usize = 1023;

/// The id of anything but an item: 1 to 255 characters, without `/`, `\`, `#` or `?`, not ending
/// in a space.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceName(Box<str>);

/// The id of an item: 1 to 1023 bytes.
///
/// Any character is allowed. The service documents `/`, `\`, `#` and `?` as not allowed but accepts them in items: the
/// Go client's suite creates `Disallowed/Chars`, `Disallowed\Chars` and others and gets 201 for each.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(Box<str>);

impl ResourceName {
    pub fn parse(text: &str) -> Result<Self> {
        // Counted no further than needed: the text may be megabytes.
        let characters = text.chars().take(RESOURCE_NAME_CHARACTERS_MAX + 1).count();
        if !(1..=RESOURCE_NAME_CHARACTERS_MAX).contains(&characters) {
            return Err(wrong_length(text, 255));
        }
        // Names are segments of URLs, where these mean something else.
        if let Some(character) = text.chars().find(|character| matches!(character, '/' | '\\' | '#' | '?')) {
            return Err(invalid_character(character));
        }
        if text.ends_with(' ') {
            return Err(Error::bad_request("The resource name can't end with space."));
        }
        Ok(Self(text.into()))
    }

    /// The `id` of a resource body.
    pub fn from_body(body: &Object) -> Result<Self> {
        Self::parse(id_of(body)?)
    }
}

impl ItemId {
    pub fn parse(text: &str) -> Result<Self> {
        if !(1..=ITEM_ID_BYTES_MAX).contains(&text.len()) {
            // The service's sentence names the first length that is too long.
            return Err(wrong_length(text, 1024));
        }
        Ok(Self(text.into()))
    }

    /// The `id` of an item.
    pub fn from_body(body: &Object) -> Result<Self> {
        Self::parse(id_of(body)?)
    }
}

/// The error for properties that a body lacks; clients match the sentence.
pub fn missing_properties(names: &[&str]) -> Error {
    let names = names.join("; ") + "; ";
    Error::bad_request(format!(
        "The input content is invalid because the required properties - '{names}' - are missing"
    ))
}

fn id_of(body: &Object) -> Result<&str> {
    match body.get("id") {
        Some(Value::String(text)) => Ok(text),
        None => Err(missing_properties(&["id"])),
        Some(_) => {
            Err(Error::bad_request("The input content is invalid because the property 'id' is not a string."))
        }
    }
}

fn wrong_length(text: &str, below: usize) -> Error {
    // The text comes back in the response, so a long one is cut.
    let shown: String = text.chars().take(64).collect();
    let dots = if shown.len() < text.len() { "…" } else { "" };
    Error::bad_request(format!(
        "The input name '{shown}{dots}' is invalid. Ensure to provide a unique non-empty string less than '{below}' characters."
    ))
}

fn invalid_character(character: char) -> Error {
    Error::bad_request(format!("The resource name presented contains invalid character '{character}'."))
}

macro_rules! text_id {
    ($($id:ty),+) => {$(
        impl $id {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Deref for $id {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $id {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    )+};
}

text_id!(ResourceName, ItemId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_names_are_checked() {
        for name in ["a", "a b", "é", "dbs", &"é".repeat(255)] {
            assert_eq!(ResourceName::parse(name).unwrap().as_str(), name);
        }
        let length = "Ensure to provide a unique non-empty string less than '255' characters.";
        for (name, fragment) in [
            ("", length),
            (&"a".repeat(256), length),
            ("a/b", "invalid character '/'"),
            ("a\\b", "invalid character '\\'"),
            ("a#", "invalid character '#'"),
            ("?", "invalid character '?'"),
            ("a ", "can't end with space"),
        ] {
            let error = ResourceName::parse(name).unwrap_err();
            assert!(error.message.contains(fragment), "{name}: {error}");
        }
    }

    #[test]
    fn item_ids_are_checked() {
        for id in ["a", "a ", "a#?", "a/b", "a\\b", "\n", &"a".repeat(1023)] {
            assert_eq!(ItemId::parse(id).unwrap().as_str(), id);
        }
        for id in ["", &"é".repeat(512)] {
            assert!(ItemId::parse(id).unwrap_err().message.contains("less than '1024' characters."));
        }
    }

    #[test]
    fn a_missing_id_is_named() {
        let error = ItemId::from_body(&Object::new()).unwrap_err();
        assert_eq!(
            error.message,
            "The input content is invalid because the required properties - 'id; ' - are missing"
        );
        let mut body = Object::new();
        body.set("id", Value::from(5));
        assert!(ItemId::from_body(&body).is_err());
    }
}
