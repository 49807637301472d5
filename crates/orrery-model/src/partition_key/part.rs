//! One component of a partition key value.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use crate::Value;

/// A scalar that a partition key is made of.
///
/// Numbers are doubles and compare by their bits, because that is how they are hashed: `1` and
/// `1.0` are one key, `0` and `-0` are two.
#[derive(Clone, Debug)]
pub enum KeyPart {
    /// The property is absent.
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    String(Box<str>),
}

impl KeyPart {
    /// The component that a value of an item makes. What is not a scalar is undefined: clients send `[{}]` for such
    /// items and the service stores them so.
    pub fn of(value: Option<&Value>) -> Self {
        match value {
            None | Some(Value::Array(_) | Value::Object(_)) => Self::Undefined,
            Some(Value::Null) => Self::Null,
            Some(Value::Bool(flag)) => Self::Bool(*flag),
            // Integers beyond 2^53 lose precision here, as in the clients that hash them.
            Some(Value::Number(number)) => Self::Number(number.as_f64()),
            Some(Value::String(text)) => Self::String(text.clone()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Undefined => 0,
            Self::Null => 1,
            Self::Bool(false) => 2,
            Self::Bool(true) => 3,
            Self::Number(_) => 4,
            Self::String(_) => 5,
        }
    }
}

impl Ord for KeyPart {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            // By bits, because that is how they are hashed: `0` and `-0` are two keys.
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::String(a), Self::String(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for KeyPart {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for KeyPart {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for KeyPart {}

impl Hash for KeyPart {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rank().hash(state);
        match self {
            Self::Number(number) => number.to_bits().hash(state),
            Self::String(text) => text.hash(state),
            Self::Undefined | Self::Null | Self::Bool(_) => {}
        }
    }
}

impl From<&str> for KeyPart {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<f64> for KeyPart {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for KeyPart {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}
