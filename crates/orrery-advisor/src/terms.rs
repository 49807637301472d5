//! The index of the sampled items: for each property that queries filter or sort by, its values in order.
//!
//! It answers the same tests as the server's index, with sampled items in place of entries.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

use orrery_model::Value;
use orrery_model::container::{IndexPath, IndexStep};
use orrery_query::filter::{Bound, Test, TypeTest};

use crate::analysis::Sampled;

/// A value as in the index: arrays and objects only by type.
#[derive(Clone, Debug, PartialEq)]
enum Entry {
    Null,
    Bool(bool),
    Number(f64),
    Text(Box<str>),
    Array,
    Object,
}

impl Entry {
    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Number(number) => Self::Number(number.as_f64()),
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Number(_) => 2,
            Self::Text(_) => 3,
            Self::Array => 4,
            Self::Object => 5,
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

/// The entries that a test selects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selected {
    /// The items in the order of the index; one with several values appears several times.
    pub items: Vec<u32>,
    /// Separate ranges of entries.
    pub ranges: usize,
}

/// The values of properties, in order.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    by_path: HashMap<IndexPath, Vec<(Entry, u32)>>,
}

impl Terms {
    /// Indexes items by these paths.
    pub fn new(items: &[Sampled], paths: &BTreeSet<IndexPath>) -> Self {
        let by_path = paths.iter().map(|path| {
            let mut entries = Vec::new();
            for (at, item) in (0u32..).zip(items) {
                let first = entries.len();
                if let Some(document) = &item.document {
                    collect(document, &path.0, &mut |value| entries.push((Entry::of(value), at)));
                }
                // An item has one entry for each distinct value.
                if entries.len() > first + 1 {
                    entries[first..].sort_by(|a, b| a.0.compare(&b.0));
                    let mut own = entries.split_off(first);
                    own.dedup();
                    entries.append(&mut own);
                }
            }
            entries.sort_by(|a, b| a.0.compare(&b.0));
            (path.clone(), entries)
        });
        Self { by_path: by_path.collect() }
    }

    /// All items with the path, in the order of its values.
    pub fn all(&self, path: &IndexPath) -> Option<Selected> {
        let entries = self.by_path.get(path)?;
        Some(Selected { items: entries.iter().map(|(_, at)| *at).collect(), ranges: 1 })
    }

    /// The entries that a test selects; none if the index cannot answer it.
    pub fn select(&self, path: &IndexPath, test: &Test) -> Option<Selected> {
        let entries = self.by_path.get(path)?;
        let between = |from: usize, to: usize| entries[from..to.max(from)].iter().map(|(_, at)| *at);
        let equal = |value: &Value| {
            let wanted = Entry::of(value);
            let from = entries.partition_point(|(own, _)| own.compare(&wanted) == Ordering::Less);
            let to = entries.partition_point(|(own, _)| own.compare(&wanted) != Ordering::Greater);
            (from, to)
        };
        let filtered = |is_wanted: &dyn Fn(&Entry) -> bool| {
            entries.iter().filter(|(own, _)| is_wanted(own)).map(|(_, at)| *at).collect()
        };
        let mut ranges = 1;
        let items = match test {
            Test::Equal(value) => {
                let (from, to) = equal(value);
                between(from, to).collect()
            }
            Test::In(values) => {
                let mut places: Vec<(usize, usize)> = values.iter().map(equal).collect();
                places.sort_unstable();
                // Equal values have the same range. Empty ranges stay, because the server looks for them too.
                places.dedup_by(|a, b| a == b && a.0 < a.1);
                ranges = places.len().max(1);
                places.into_iter().flat_map(|(from, to)| between(from, to)).collect()
            }
            Test::NotEqual(value) => {
                // The entries before the value and those after it.
                ranges = 2;
                let wanted = Entry::of(value);
                filtered(&|own| *own != wanted)
            }
            Test::Range { low, high } => {
                let (from, to) = bounds(entries, low.as_ref(), high.as_ref())?;
                between(from, to).collect()
            }
            Test::Prefix(prefix) => {
                filtered(&|own| matches!(own, Entry::Text(text) if text.starts_with(&**prefix)))
            }
            Test::StringScan => filtered(&|own| matches!(own, Entry::Text(_))),
            Test::Type(test) => {
                let ranks = match test {
                    TypeTest::Defined => 0..=5,
                    TypeTest::Null => 0..=0,
                    TypeTest::Bool => 1..=1,
                    TypeTest::Number => 2..=2,
                    TypeTest::String => 3..=3,
                    TypeTest::Array => 4..=4,
                    TypeTest::Object => 5..=5,
                    TypeTest::Primitive => 0..=3,
                    // What an item lacks has no entry.
                    TypeTest::NotDefined => return None,
                };
                filtered(&|own| ranks.contains(&own.rank()))
            }
        };
        Some(Selected { items, ranges })
    }
}

/// The entries between two bounds, which are of the same type.
fn bounds(entries: &[(Entry, u32)], low: Option<&Bound>, high: Option<&Bound>) -> Option<(usize, usize)> {
    let rank = Entry::of(&low.or(high)?.value).rank();
    let is_before = |own: &Entry, bound: &Bound| match own.compare(&Entry::of(&bound.value)) {
        Ordering::Less => true,
        Ordering::Equal => !bound.inclusive,
        Ordering::Greater => false,
    };
    let is_within = |own: &Entry, bound: &Bound| match own.compare(&Entry::of(&bound.value)) {
        Ordering::Less => true,
        Ordering::Equal => bound.inclusive,
        Ordering::Greater => false,
    };
    // Entries are sorted by type first, so values of other types stay outside.
    let from = entries
        .partition_point(|(own, _)| own.rank() < rank || low.is_some_and(|bound| is_before(own, bound)));
    let to = entries.partition_point(|(own, _)| match high {
        Some(bound) => own.rank() < rank || own.rank() == rank && is_within(own, bound),
        // Up to the end of the type.
        None => own.rank() <= rank,
    });
    Some((from, to))
}

/// The values at a path; array elements count individually.
fn collect<'v>(value: &'v Value, steps: &[IndexStep], found: &mut impl FnMut(&'v Value)) {
    match (steps.split_first(), value) {
        (None, value) => found(value),
        (Some((IndexStep::Property(name), rest)), Value::Object(object)) => {
            if let Some(member) = object.get(name) {
                collect(member, rest, found);
            }
        }
        (Some((IndexStep::Element, rest)), Value::Array(elements)) => {
            for element in elements {
                collect(element, rest, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_model::value;

    fn terms(path: &[IndexStep], documents: &[&str]) -> (IndexPath, Terms) {
        let path = IndexPath(path.to_vec());
        let items: Vec<Sampled> = documents
            .iter()
            .map(|text| Sampled {
                document: Some(std::sync::Arc::new(value::parse(text.as_bytes()).unwrap())),
                ..Sampled::default()
            })
            .collect();
        let terms = Terms::new(&items, &BTreeSet::from([path.clone()]));
        (path, terms)
    }

    #[test]
    fn tests_select_what_an_index_would() {
        let documents = [
            r#"{"a":3}"#,
            r#"{"a":"x"}"#,
            r"{}",
            r#"{"a":null}"#,
            r#"{"a":7}"#,
            r#"{"a":"xy"}"#,
            r#"{"a":3}"#,
        ];
        let (path, terms) = terms(&[IndexStep::Property("a".into())], &documents);
        let select = |test: Test| terms.select(&path, &test).map(|selected| selected.items);
        let bound = |number: i64, inclusive| Some(Bound { value: Value::from(number), inclusive });
        assert_eq!(select(Test::Equal(Value::from(3))), Some(vec![0, 6]));
        assert_eq!(select(Test::In(vec![Value::from(7), Value::Null])), Some(vec![3, 4]));
        assert_eq!(select(Test::Range { low: bound(3, false), high: None }), Some(vec![4]));
        assert_eq!(select(Test::Range { low: bound(3, true), high: bound(7, false) }), Some(vec![0, 6]));
        assert_eq!(select(Test::Range { low: None, high: bound(3, true) }), Some(vec![0, 6]));
        assert_eq!(select(Test::Prefix("x".into())), Some(vec![1, 5]));
        assert_eq!(select(Test::NotEqual(Value::from(3))), Some(vec![3, 4, 1, 5]));
        assert_eq!(select(Test::Type(TypeTest::Defined)).map(|items| items.len()), Some(6));
        assert_eq!(select(Test::Type(TypeTest::NotDefined)), None);
    }

    #[test]
    fn elements_stand_for_themselves() {
        let path = [IndexStep::Property("t".into()), IndexStep::Element];
        let (path, terms) = terms(&path, &[r#"{"t":["a","b","a"]}"#, r#"{"t":["b"]}"#, r#"{"t":"a"}"#]);
        let select = |text: &str| terms.select(&path, &Test::Equal(Value::from(text))).unwrap().items;
        assert_eq!((select("a"), select("b")), (vec![0], vec![0, 1]));
    }
}
