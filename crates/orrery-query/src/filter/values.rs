//! Sets of values: for each type none, all, or some.

use std::cmp::Ordering;

use orrery_model::Value;
use orrery_model::partition_key::KeyPart;

use super::types::{self, ARRAY, BOOL, DEFINED, FALSE, NULL, NUMBER, OBJECT, STRING, TRUE, Types};
use crate::ast::BinaryOperator;

/// A set of values.
#[derive(Clone, Debug)]
pub(super) struct Values {
    /// The types of which some value is in the set.
    types: Types,
    numbers: Spans<f64>,
    strings: Spans<Box<str>>,
    /// Arrays and objects.
    containers: Containers,
    /// Whether they are only defined as far as nothing says that they are not.
    weak: bool,
}

#[derive(Clone, Debug)]
enum Containers {
    All,
    Only(Vec<Value>),
    AllBut(Vec<Value>),
}

/// Disjoint spans in order.
#[derive(Clone, Debug)]
struct Spans<T>(Vec<Span<T>>);

/// From one end to the other; an end that is left out is open without bound.
#[derive(Clone, Debug)]
struct Span<T> {
    low: Option<(T, bool)>,
    high: Option<(T, bool)>,
}

impl<T: PartialOrd + Clone> Spans<T> {
    fn all() -> Self {
        Self(vec![Span { low: None, high: None }])
    }

    fn is_all(&self) -> bool {
        matches!(&self.0[..], [Span { low: None, high: None }])
    }

    fn point(value: T) -> Self {
        Self(vec![Span { low: Some((value.clone(), true)), high: Some((value, true)) }])
    }

    fn from(value: T, inclusive: bool) -> Self {
        Self(vec![Span { low: Some((value, inclusive)), high: None }])
    }

    fn to(value: T, inclusive: bool) -> Self {
        Self(vec![Span { low: None, high: Some((value, inclusive)) }])
    }

    fn but(value: &T) -> Self {
        let mut spans = Self::to(value.clone(), false).0;
        spans.extend(Self::from(value.clone(), false).0);
        Self(spans)
    }

    fn meet(&self, other: &Self) -> Self {
        let mut met = Vec::new();
        for a in &self.0 {
            for b in &other.0 {
                let low = narrower(a.low.as_ref(), b.low.as_ref(), Ordering::Less);
                let high = narrower(a.high.as_ref(), b.high.as_ref(), Ordering::Greater);
                let holds_some = match (&low, &high) {
                    (Some((low, with_low)), Some((high, with_high))) => match low.partial_cmp(high) {
                        Some(Ordering::Less) => true,
                        Some(Ordering::Equal) => *with_low && *with_high,
                        _ => false,
                    },
                    // Open on one side, and thus taken as not empty.
                    _ => true,
                };
                if holds_some {
                    met.push(Span { low, high });
                }
            }
        }
        Self(met)
    }
}

/// The narrower of two ends, each a value and whether it is included. `wider` says how the wider one compares: a low end
/// is wider if it is less, a high end if it is greater.
fn narrower<T: PartialOrd + Clone>(
    a: Option<&(T, bool)>,
    b: Option<&(T, bool)>,
    wider: Ordering,
) -> Option<(T, bool)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(match a.0.partial_cmp(&b.0) {
            Some(Ordering::Equal) => (a.0.clone(), a.1 && b.1),
            Some(order) if order == wider => b.clone(),
            _ => a.clone(),
        }),
        (end, None) | (None, end) => end.cloned(),
    }
}

impl Values {
    pub(super) fn of_types(types: Types) -> Self {
        Self { types, numbers: Spans::all(), strings: Spans::all(), containers: Containers::All, weak: false }
    }

    pub(super) fn defined() -> Self {
        Self::of_types(DEFINED)
    }

    pub(super) fn with_prefix(prefix: &str) -> Self {
        let mut values = Self::of_types(STRING);
        let mut strings = Spans::from(Box::from(prefix), true);
        let mut end: Vec<char> = prefix.chars().collect();
        // Without a next character the set has no upper end, which only makes it larger.
        if let Some(last) = end.pop()
            && let Some(next) = char::from_u32(u32::from(last) + 1)
        {
            end.push(next);
            strings = strings.meet(&Spans::to(end.into_iter().collect::<String>().into(), false));
        }
        values.strings = strings;
        values
    }

    pub(super) fn one_of<'v>(listed: impl Iterator<Item = &'v Value>) -> Self {
        let mut values = Self {
            types: 0,
            numbers: Spans(Vec::new()),
            strings: Spans(Vec::new()),
            containers: Containers::Only(Vec::new()),
            weak: false,
        };
        for value in listed {
            // Nothing equals a number that is none.
            if value.as_number().is_some_and(|number| number.as_f64().is_nan()) {
                continue;
            }
            values.types |= types::of_value(Some(value));
            match value {
                Value::Number(number) => values.numbers.0.extend(Spans::point(number.as_f64()).0),
                Value::String(text) => values.strings.0.extend(Spans::point(text.clone()).0),
                Value::Array(_) | Value::Object(_) => {
                    if let Containers::Only(listed) = &mut values.containers {
                        listed.push(value.clone());
                    }
                }
                _ => {}
            }
        }
        values
    }

    /// The values that compare to this one in this way.
    pub(super) fn compared(operator: BinaryOperator, value: &Value) -> Self {
        use BinaryOperator as B;
        match operator {
            B::Equal => return Self::one_of(std::iter::once(value)),
            B::NotEqual => return Self::one_of(std::iter::once(value)).complement().meet(&Self::defined()),
            _ => {}
        }
        let upward = matches!(operator, B::Greater | B::GreaterOrEqual);
        let inclusive = matches!(operator, B::GreaterOrEqual | B::LessOrEqual);
        match value {
            Value::Null => Self::of_types(if inclusive { NULL } else { 0 }),
            // False is less than true.
            Value::Bool(flag) => Self::of_types(match (flag, upward, inclusive) {
                (false, true, true) | (true, false, true) => BOOL,
                (false, true, false) | (true, true, true) => TRUE,
                (false, false, true) | (true, false, false) => FALSE,
                _ => 0,
            }),
            Value::Number(number) => {
                let mut values = Self::of_types(NUMBER);
                let end = number.as_f64();
                // Nothing compares to NaN, and nothing is beyond infinity.
                if end.is_nan() || (end.is_infinite() && end.is_sign_positive() == upward && !inclusive) {
                    return Self::of_types(0);
                }
                values.numbers = if upward { Spans::from(end, inclusive) } else { Spans::to(end, inclusive) };
                values
            }
            Value::String(text) => {
                let mut values = Self::of_types(STRING);
                if text.is_empty() && !upward {
                    // Nothing is less than the empty string.
                    return if inclusive { Self::one_of(std::iter::once(value)) } else { Self::of_types(0) };
                }
                values.strings = if upward {
                    Spans::from(text.clone(), inclusive)
                } else {
                    Spans::to(text.clone(), inclusive)
                };
                values
            }
            Value::Array(_) | Value::Object(_) => Self::of_types(0),
        }
    }

    /// All values that are not in a set of single values.
    pub(super) fn complement(&self) -> Self {
        // Of these types single values were listed; of others there is all or nothing.
        let mut values = Self::of_types(!self.types | NUMBER | STRING | ARRAY | OBJECT);
        for span in &self.numbers.0 {
            if let (NUMBER, Some((value, _))) = (self.types & NUMBER, &span.low) {
                values.numbers = values.numbers.meet(&Spans::but(value));
            }
        }
        for span in &self.strings.0 {
            if let (STRING, Some((value, _))) = (self.types & STRING, &span.low) {
                values.strings = values.strings.meet(&Spans::but(value));
            }
        }
        if let Containers::Only(listed) = &self.containers {
            values.containers = Containers::AllBut(listed.clone());
        }
        values
    }

    pub(super) fn meet(&self, other: &Self) -> Self {
        let mut types = self.types & other.types;
        let numbers = self.numbers.meet(&other.numbers);
        let strings = self.strings.meet(&other.strings);
        if numbers.0.is_empty() {
            types &= !NUMBER;
        }
        if strings.0.is_empty() {
            types &= !STRING;
        }
        let containers = match (&self.containers, &other.containers) {
            (Containers::All, met) | (met, Containers::All) => met.clone(),
            (Containers::Only(a), Containers::Only(b)) => {
                Containers::Only(a.iter().filter(|value| b.contains(value)).cloned().collect())
            }
            (Containers::Only(a), Containers::AllBut(b)) | (Containers::AllBut(b), Containers::Only(a)) => {
                Containers::Only(a.iter().filter(|value| !b.contains(value)).cloned().collect())
            }
            (Containers::AllBut(a), Containers::AllBut(b)) => {
                Containers::AllBut(a.iter().chain(b).cloned().collect())
            }
        };
        if let Containers::Only(left) = &containers {
            let has = |kind: Types| left.iter().any(|value| types::of_value(Some(value)) == kind);
            if !has(ARRAY) {
                types &= !ARRAY;
            }
            if !has(OBJECT) {
                types &= !OBJECT;
            }
        }
        let weak = self.weak && other.weak;
        // A weak statement that a value is defined yields to one that it is not.
        if types == 0 && (self.weak || other.weak) {
            types = (self.types | other.types) & types::UNDEFINED;
        }
        Self { types, numbers, strings, containers, weak }
    }

    /// The values as parts of keys, if they are single ones.
    pub(super) fn points(&self) -> Option<Vec<KeyPart>> {
        let mut points = Vec::new();
        if self.types & types::UNDEFINED != 0 {
            return None;
        }
        for (kind, part) in
            [(NULL, KeyPart::Null), (FALSE, KeyPart::Bool(false)), (TRUE, KeyPart::Bool(true))]
        {
            if self.types & kind != 0 {
                points.push(part);
            }
        }
        if self.types & NUMBER != 0 {
            // Keys list single values, so a span of several is no restriction.
            for span in &self.numbers.0 {
                match (&span.low, &span.high) {
                    (Some((low, true)), Some((high, true))) if low.total_cmp(high).is_eq() => {
                        points.push(KeyPart::Number(*low));
                    }
                    _ => return None,
                }
            }
        }
        if self.types & STRING != 0 {
            for span in &self.strings.0 {
                match (&span.low, &span.high) {
                    (Some((low, true)), Some((high, true))) if low == high => {
                        points.push(KeyPart::String(low.clone()));
                    }
                    _ => return None,
                }
            }
        }
        if self.types & (ARRAY | OBJECT) != 0 {
            // No item has such a key. The service looks where the undefined ones are.
            match &self.containers {
                Containers::Only(_) => points.push(KeyPart::Undefined),
                _ => return None,
            }
        }
        Some(points)
    }

    /// The arrays and objects, if the set has no other values.
    pub(super) fn only_containers(&self) -> Option<&[Value]> {
        match &self.containers {
            Containers::Only(listed) if self.types & !(ARRAY | OBJECT) == 0 => Some(listed),
            _ => None,
        }
    }

    pub(super) fn weaken(&mut self) {
        self.weak = true;
    }

    pub(super) fn add_undefined(&mut self) {
        self.types |= types::UNDEFINED;
    }

    /// Whether these are all values there are, at least.
    pub(super) fn is_anything_defined(&self) -> bool {
        self.types & DEFINED == DEFINED
            && self.numbers.is_all()
            && self.strings.is_all()
            && matches!(self.containers, Containers::All)
    }

    /// Whether all of them have one of these types.
    pub(super) fn is_of(&self, types: Types) -> bool {
        self.types & !types == 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.types == 0
    }

    pub(super) fn has_undefined(&self) -> bool {
        self.types & types::UNDEFINED != 0
    }
}
