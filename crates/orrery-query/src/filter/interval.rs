//! The constraint of a filter on one path of a key: a value, or an interval of values for ordered keys.

use std::cmp::Ordering;

use orrery_model::Value;
use orrery_model::partition_key::KeyPart;

use crate::ast::BinaryOperator;

/// A constraint on the value at a path.
pub(super) trait Constraint: Clone + Ord {
    /// Whether intervals are supported, not only single values.
    const IS_ORDERED: bool;

    fn point(part: KeyPart) -> Self;

    /// The intersection, if it is not empty.
    fn meet(&self, other: &Self) -> Option<Self>;

    /// The values that compare in this way to the given one, if expressible.
    fn compared(operator: BinaryOperator, value: &Value) -> Option<Self>;

    /// The strings with this prefix.
    fn prefix(text: &str) -> Option<Self>;
}

/// Hashed keys: only exact values can be located.
impl Constraint for KeyPart {
    const IS_ORDERED: bool = false;

    fn point(part: KeyPart) -> Self {
        part
    }

    fn meet(&self, other: &Self) -> Option<Self> {
        (self == other).then(|| self.clone())
    }

    fn compared(_: BinaryOperator, _: &Value) -> Option<Self> {
        None
    }

    fn prefix(_: &str) -> Option<Self> {
        None
    }
}

/// One end of an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Part(KeyPart),
    /// Before and after all numbers.
    NumberMin,
    NumberMax,
    /// After all strings.
    StringMax,
}

impl End {
    fn rank(&self) -> u8 {
        match self {
            // Below all numbers. Among each other such values are compared as parts, not by rank.
            Self::Part(KeyPart::Undefined | KeyPart::Null | KeyPart::Bool(_)) => 0,
            Self::NumberMin => 1,
            Self::Part(KeyPart::Number(_)) => 2,
            Self::NumberMax => 3,
            Self::Part(KeyPart::String(_)) => 4,
            Self::StringMax => 5,
        }
    }
}

impl Ord for End {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Part(a), Self::Part(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Values from one end to the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    pub min: End,
    pub max: End,
    pub min_inclusive: bool,
    pub max_inclusive: bool,
}

impl Constraint for Interval {
    const IS_ORDERED: bool = true;

    fn point(part: KeyPart) -> Self {
        let end = End::Part(part);
        Self { min: end.clone(), max: end, min_inclusive: true, max_inclusive: true }
    }

    fn meet(&self, other: &Self) -> Option<Self> {
        // The greater of the lower ends and the lesser of the upper ones.
        let (min, min_inclusive) = match self.min.cmp(&other.min) {
            Ordering::Less => (&other.min, other.min_inclusive),
            Ordering::Equal => (&self.min, self.min_inclusive && other.min_inclusive),
            Ordering::Greater => (&self.min, self.min_inclusive),
        };
        let (max, max_inclusive) = match self.max.cmp(&other.max) {
            Ordering::Less => (&self.max, self.max_inclusive),
            Ordering::Equal => (&self.max, self.max_inclusive && other.max_inclusive),
            Ordering::Greater => (&other.max, other.max_inclusive),
        };
        let holds_some = match min.cmp(max) {
            Ordering::Less => true,
            Ordering::Equal => min_inclusive && max_inclusive,
            Ordering::Greater => false,
        };
        holds_some.then(|| Self { min: min.clone(), max: max.clone(), min_inclusive, max_inclusive })
    }

    fn compared(operator: BinaryOperator, value: &Value) -> Option<Self> {
        // Only values of the same type compare to this one, so the interval ends where its type does.
        let (part, (first, first_inclusive), last) = match value {
            Value::Number(number) => {
                (KeyPart::Number(number.as_f64()), (End::NumberMin, false), End::NumberMax)
            }
            Value::String(text) => {
                let empty = End::Part(KeyPart::String("".into()));
                (KeyPart::String(text.clone()), (empty, true), End::StringMax)
            }
            _ => return None,
        };
        let end = End::Part(part);
        let below = |max_inclusive| Self {
            min: first.clone(),
            max: end.clone(),
            min_inclusive: first_inclusive,
            max_inclusive,
        };
        let above =
            |min_inclusive| Self { min: end.clone(), max: last.clone(), min_inclusive, max_inclusive: false };
        match operator {
            BinaryOperator::Less => Some(below(false)),
            BinaryOperator::LessOrEqual => Some(below(true)),
            BinaryOperator::Greater => Some(above(false)),
            BinaryOperator::GreaterOrEqual => Some(above(true)),
            _ => None,
        }
    }

    fn prefix(text: &str) -> Option<Self> {
        let mut after = text.to_owned();
        // The first string after all those with the prefix: its last character that has a successor is
        // incremented, and what follows is cut off.
        let max = loop {
            match after.pop() {
                None => break End::StringMax,
                Some(last) => {
                    // The next character, skipping the surrogates D800 to DFFF.
                    let next =
                        if last == '\u{D7FF}' { Some('\u{E000}') } else { char::from_u32(last as u32 + 1) };
                    if let Some(next) = next {
                        after.push(next);
                        break End::Part(KeyPart::String(after.into()));
                    }
                }
            }
        };
        let min = End::Part(KeyPart::String(text.into()));
        Some(Self { min, max, min_inclusive: true, max_inclusive: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_before_the_next_text() {
        let end = |text: &str| Interval::prefix(text).unwrap().max;
        let text = |text: &str| End::Part(KeyPart::String(text.into()));
        assert_eq!(end("2"), text("3"));
        assert_eq!(end("ab\u{10FFFF}"), text("ac"));
        assert_eq!(end("\u{D7FF}"), text("\u{E000}"));
        assert_eq!(end(""), End::StringMax);
    }

    #[test]
    fn intervals_meet_where_both_hold() {
        let compared = |operator, number: i64| Interval::compared(operator, &Value::from(number)).unwrap();
        let above = compared(BinaryOperator::GreaterOrEqual, 3);
        assert_eq!(
            above.meet(&compared(BinaryOperator::LessOrEqual, 3)),
            Some(Interval::point(KeyPart::Number(3.0)))
        );
        assert_eq!(above.meet(&compared(BinaryOperator::Less, 3)), None);
        assert_eq!(above.meet(&Interval::point(KeyPart::String("3".into()))), None);
        let narrow = above.meet(&compared(BinaryOperator::Less, 9)).unwrap();
        assert_eq!((narrow.min_inclusive, narrow.max_inclusive), (true, false));
    }
}
