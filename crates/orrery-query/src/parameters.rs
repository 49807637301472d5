//! The parameters of a query, and counts that they may give.

use orrery_model::Value;

use crate::ast::{Count, CountValue};
use crate::limits;

/// The values of a query's parameters, by name with the leading `@`.
pub type Parameters = [(String, Value)];

/// The value of a count, if it is an integer in range.
pub(crate) fn resolve_count(count: &Count, parameters: &Parameters) -> Option<u64> {
    let value = match &count.value {
        CountValue::Literal(value) => Some(*value),
        CountValue::NotInteger(_) => None,
        CountValue::Parameter(name) => {
            let found = parameters.iter().find(|(known, _)| known.as_str() == &**name);
            found.and_then(|(_, value)| value.as_i64()).and_then(|value| u64::try_from(value).ok())
        }
    };
    value.filter(|value| *value <= limits::COUNT_MAX)
}
