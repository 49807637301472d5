//! Positions in a sorted result from which a later page resumes.

use std::cmp::Ordering;

use orrery_model::{Object, Value};

use crate::order;

/// One sort value of a place.
#[derive(Clone, Debug, PartialEq)]
pub enum ResumeValue {
    Undefined,
    /// Null, a boolean, a number or a string.
    Scalar(Value),
    /// An array or object, known by its hash.
    Hash {
        array: bool,
        hash: u128,
    },
}

/// A place in the order of a sorted query.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumePoint {
    pub values: Vec<ResumeValue>,
    /// The document at this place; absent: all that have these values.
    pub ordinal: Option<u64>,
    /// The row of that document, where a join makes several.
    pub row: u32,
    /// Whether what is at this place is itself left out.
    pub exclude: bool,
}

impl ResumeValue {
    pub fn of(operand: Option<&Value>) -> Self {
        match operand {
            None => Self::Undefined,
            Some(value @ (Value::Array(_) | Value::Object(_))) => {
                Self::Hash { array: matches!(value, Value::Array(_)), hash: order::hash(value) }
            }
            Some(value) => Self::Scalar(value.clone()),
        }
    }

    /// Reads a value of the `resumeFilter` member: a scalar as it is, `[]` for undefined, an object
    /// with type and hash halves for arrays and objects.
    pub fn parse(value: &Value) -> Option<Self> {
        match value {
            Value::Array(items) => items.is_empty().then_some(Self::Undefined),
            Value::Object(object) => {
                let array = match object.get("type")?.as_str()? {
                    "array" => true,
                    "object" => false,
                    _ => return None,
                };
                // The halves travel as signed integers.
                let half =
                    |name: &str| object.get(name)?.as_i64().map(|half| u128::from(half.cast_unsigned()));
                Some(Self::Hash { array, hash: half("high")? << 64 | half("low")? })
            }
            scalar => Some(Self::Scalar(scalar.clone())),
        }
    }

    /// The form that [`Self::parse`] reads.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Undefined => Value::Array(Vec::new()),
            Self::Scalar(value) => value.clone(),
            Self::Hash { array, hash } => {
                let mut object = Object::new();
                let half = |bits: u128| {
                    Value::from(u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0).cast_signed())
                };
                object.set("type", if *array { "array" } else { "object" }.into());
                object.set("low", half(*hash));
                object.set("high", half(*hash >> 64));
                object.into()
            }
        }
    }

    /// How this value stands to an operand.
    pub fn compare(&self, operand: Option<&Value>) -> Ordering {
        match (self, operand) {
            (Self::Undefined, None) => Ordering::Equal,
            (Self::Undefined, Some(_)) => Ordering::Less,
            (Self::Scalar(value), operand) => order::compare(Some(value), operand),
            (Self::Hash { array, hash }, operand) => {
                // The ranks of arrays and objects in `order::type_rank`.
                let rank = if *array { 6 } else { 7 };
                let same_type = order::type_rank(operand) == rank;
                match operand {
                    Some(value) if same_type => hash.cmp(&order::hash(value)),
                    _ => rank.cmp(&order::type_rank(operand)),
                }
            }
        }
    }
}

impl ResumePoint {
    /// Reads the `resumeFilter` member of a query request. `ordinal` finds a document's number in
    /// its resource id.
    pub fn parse(filter: &Value, ordinal: impl Fn(&str) -> Option<u64>) -> Option<Self> {
        let listed = filter.get("value")?.as_array()?;
        let values = listed.iter().map(ResumeValue::parse).collect::<Option<Vec<_>>>()?;
        let ordinal = match filter.get("rid") {
            // An unreadable resource id invalidates the whole filter: resuming without it would repeat or
            // lose rows.
            Some(Value::String(rid)) => Some(ordinal(rid)?),
            None | Some(Value::Null) => None,
            Some(_) => return None,
        };
        let exclude = filter.get("exclude").and_then(Value::as_bool).unwrap_or(false);
        // Leaving out a document leaves out all of its rows.
        let row = if exclude { u32::MAX } else { 0 };
        Some(Self { values, ordinal, row, exclude })
    }
}
