//! The keys that a definition builds: one component for a plain key, up to three for a hierarchical
//! one, fewer if a filter determines only the first levels.

use serde_json::Value;

/// One component of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Component {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
}

impl Component {
    /// The component as a JSON value.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => Value::Bool(*flag),
            // Whole numbers are written without a fraction, as clients send them.
            #[expect(clippy::cast_possible_truncation, reason = "whole and in the exact range")]
            Self::Number(number) if number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 => {
                Value::from(*number as i64)
            }
            Self::Number(number) => Value::from(*number),
            Self::Text(text) => Value::String(text.clone()),
        }
    }
}

/// The key of an item, or the prefix of one that a read visits.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The version of the strategy that built it.
    pub version: u32,
    pub components: Vec<Component>,
}

impl Key {
    /// The text of a plain key; `None` for hierarchical ones.
    pub fn as_text(&self) -> Option<&str> {
        match self.components.as_slice() {
            [Component::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The components as an array, in the format of the partition key header.
    pub fn to_json(&self) -> Value {
        self.components.iter().map(Component::to_json).collect()
    }
}
