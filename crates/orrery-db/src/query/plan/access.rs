//! How a query finds its items: by a full scan, or by the index.
//!
//! The filter implies a condition that every match satisfies; each part of it that the index can answer is a candidate.
//! The most selective one, estimated from the first entries of each, drives the page; the whole filter is evaluated on
//! every item it leads to.

use orrery_model::Value;
use orrery_model::container::{CompositePath, ContainerDefinition, IndexPath, IndexStep, PolicyPath};
use orrery_model::partition_key::{EffectiveKey, EpkRange};
use orrery_model::path::KeyPath;
use orrery_query::ast::{Collection, Direction as Order, Query};
use orrery_query::check::indexes;
use orrery_query::filter::{Bound, IndexCondition, Test, TypeTest};
use orrery_query::pipeline::{ResumePoint, ResumeValue};
use orrery_query::shortcut;
use orrery_storage::{Direction, Key, KeyRange};

use super::cover::Cover;
use super::indexed::{is_everywhere, is_indexed, knows_missing, merge_overlapping};
use super::points::Points;
use crate::catalog::{Generation, Partition};
use crate::layout::index_entry;
use crate::layout::stored::SYSTEM_PROPERTIES;

/// With more keys than this, narrowing the index to each of them costs more than it saves.
const POINTS_MAX: usize = 64;
/// Values of an IN that a description lists.
const LISTED_VALUES_MAX: usize = 10;

/// A part of the filter that the index can answer.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own")]
pub(crate) struct Candidate {
    /// Disjoint, in order.
    pub ranges: Vec<KeyRange>,
    /// The key of each range, if each has exactly one; empty otherwise.
    pub keys: Vec<EffectiveKey>,
    /// An item may have several entries in the ranges.
    pub repeats: bool,
    /// Every entry is a match: the filter need not be evaluated.
    pub is_exact: bool,
    /// Worth following even if it leads to many items.
    pub is_selective: bool,
    /// It asks for single values, not for a range of them.
    pub is_point: bool,
    /// The ranges contain only entries of the requested keys.
    pub is_narrow: bool,
    /// Redundant with the windows: the key that all items in them have.
    pub names_key: bool,
    /// For entries of a composite index: which of its values are inverted.
    pub composite: Option<Vec<bool>>,
    /// For the explanation: `/path = …`.
    pub label: String,
}

impl Candidate {
    /// A candidate with these entries only.
    pub(crate) fn of_ranges(ranges: Vec<KeyRange>) -> Self {
        Self { ranges, is_selective: true, is_narrow: true, ..Self::default() }
    }

    /// The ranges that may have entries in a partition.
    pub(crate) fn ranges_in(&self, partition: &Partition) -> impl Iterator<Item = &KeyRange> {
        // A single key lies in one partition; the others need not be asked for it.
        let is_there = |at: usize| self.keys.get(at).is_none_or(|key| partition.range.contains(key));
        self.ranges.iter().enumerate().filter(move |(at, _)| is_there(*at)).map(|(_, range)| range)
    }

    /// The item key of an entry of this candidate.
    pub(crate) fn item_of(&self, entry: &[u8]) -> Option<Key> {
        match &self.composite {
            None => index_entry::parse_entry(entry).map(|(_, item)| item),
            Some(descending) => index_entry::parse_composite_entry(entry, descending).map(|(_, item)| item),
        }
    }

    /// Identifies a candidate of a query, independently of the index generation.
    pub(crate) fn number(&self) -> u32 {
        let bytes = self.label.bytes();
        // FNV-1a of the label. It has to be the same in every process and after a restart, since tokens contain it.
        bytes.fold(0x811C_9DC5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}

/// An index in the sort order of the query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sequence {
    generation: u32,
    /// The property, or the number of the composite index.
    pub by: SequenceBy,
    pub range: KeyRange,
    pub direction: Direction,
    /// Whether items without the property are missing from the index and must be added at the corresponding end.
    pub lacks_undefined: bool,
    pub label: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SequenceBy {
    Path(IndexPath),
    Composite {
        number: u32,
        /// Which of its values are inverted.
        descending: Vec<bool>,
        /// Values fixed by the filter, preceding the sort values.
        fixed: Vec<Value>,
    },
}

impl Sequence {
    /// The prefix of all entries with the sort values of this position, if their encoding is known.
    pub(crate) fn encode(&self, point: &ResumePoint) -> Option<Key> {
        let scalars = point.values.iter().map(|value| match value {
            ResumeValue::Undefined => Some(None),
            ResumeValue::Scalar(value) => Some(Some(value)),
            // A long value that the token has only as a hash: its place in the index is unknown.
            ResumeValue::Hash { .. } => None,
        });
        let scalars = scalars.collect::<Option<Vec<Option<&Value>>>>()?;
        match &self.by {
            SequenceBy::Path(path) => {
                let path = index_entry::PathHash::of(path);
                Some(match scalars.first()? {
                    Some(value) => index_entry::term(self.generation, path, value),
                    None => index_entry::undefined_term(self.generation, path),
                })
            }
            SequenceBy::Composite { number, descending, fixed } => {
                let values = fixed.iter().map(Some).chain(scalars);
                let values: Vec<_> = values.zip(descending.iter().copied()).collect();
                Some(index_entry::composite_run(self.generation, *number, &values))
            }
        }
    }

    /// Which values of a composite entry are inverted.
    pub(crate) fn composite(&self) -> Option<&[bool]> {
        match &self.by {
            SequenceBy::Path(_) => None,
            SequenceBy::Composite { descending, .. } => Some(descending),
        }
    }
}

/// The values of a property that satisfy a filter.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    pub scalars: Vec<KeyRange>,
    /// Arrays and objects.
    pub others: Vec<KeyRange>,
}

/// How to find the items of a page.
pub(crate) enum AccessPath {
    /// All items, in key order.
    Items,
    /// Items by index entries, in the order of the entries.
    Entries(Candidate),
    /// Items by a set of index entries with possible duplicates; in key order.
    Set(Candidate),
    /// Items named by the filter; in key order.
    Points(Points),
    /// Items in sort order.
    Sequence(Sequence),
}

impl AccessPath {
    pub(crate) fn number(&self) -> Option<u32> {
        match self {
            Self::Entries(candidate) | Self::Set(candidate) => Some(candidate.number()),
            Self::Items | Self::Points(_) | Self::Sequence(_) => None,
        }
    }

    /// Whether every item on this path matches, so that the filter need not be evaluated.
    pub(crate) fn filter_holds(&self) -> bool {
        matches!(self, Self::Points(points) if points.is_exact)
    }

    /// All items of the windows in key order, or only those named by the filter.
    pub(crate) fn in_key_order(points: Option<Points>) -> Self {
        points.map_or(Self::Items, Self::Points)
    }

    /// By the entries of a candidate.
    pub(crate) fn of(candidate: Candidate) -> Self {
        if candidate.repeats { Self::Set(candidate) } else { Self::Entries(candidate) }
    }

    pub(crate) fn label(&self) -> String {
        match self {
            Self::Items => "all items".to_owned(),
            Self::Entries(candidate) | Self::Set(candidate) => candidate.label.clone(),
            Self::Points(points) => points.label(),
            Self::Sequence(sequence) => sequence.label.clone(),
        }
    }
}

/// The ways in which the index can answer a query.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessPaths {
    pub candidates: Vec<Candidate>,
    pub sequence: Option<Sequence>,
    /// The entries with the minimum and maximum of a property, if the query asks for one.
    pub values_of_extreme: Option<Values>,
    /// The only possible matches, if the filter names them.
    pub points: Option<Points>,
    /// The entries that answer the query without its items.
    pub cover: Option<Cover>,
    /// The filter contradicts itself.
    pub is_empty: bool,
}

/// Finds the ways in which the index can answer a query.
pub(crate) fn access_paths(
    generation: &Generation,
    definition: &ContainerDefinition,
    query: &Query,
    condition: &IndexCondition,
    windows: &[EpkRange],
    points: bool,
) -> AccessPaths {
    if !generation.tree.is_enabled() {
        return AccessPaths::default();
    }
    let finder = Finder { generation, definition, windows, points };
    let candidates = match condition {
        IndexCondition::All | IndexCondition::None => Vec::new(),
        IndexCondition::And(parts) => {
            // Each condition that the index can answer is a way of its own; a page takes the best.
            let single = parts.iter().filter_map(|part| finder.candidate(part, false));
            finder.composite_candidates(condition).into_iter().chain(single).collect()
        }
        // The only condition: if its entries are exact, they answer the whole filter.
        part => finder.candidate(part, true).into_iter().collect(),
    };
    AccessPaths {
        candidates,
        sequence: finder.sequence(query, condition),
        values_of_extreme: finder.values_of_extreme(query, condition),
        points: None,
        cover: None,
        is_empty: *condition == IndexCondition::None,
    }
}

struct Finder<'a> {
    generation: &'a Generation,
    definition: &'a ContainerDefinition,
    windows: &'a [EpkRange],
    /// The windows are single keys.
    points: bool,
}

impl Finder<'_> {
    fn candidate(&self, condition: &IndexCondition, is_whole: bool) -> Option<Candidate> {
        match condition {
            IndexCondition::Term { path, test, exact } => self.term(path, test, is_whole && *exact),
            IndexCondition::Or(parts) => {
                let parts: Vec<Candidate> =
                    // One alternative without an index means that all items must be looked at.
                    parts.iter().map(|part| self.candidate(part, false)).collect::<Option<_>>()?;
                let is_selective = parts.iter().all(|part| part.is_selective);
                let is_narrow = parts.iter().all(|part| part.is_narrow);
                let labels: Vec<&str> = parts.iter().map(|part| part.label.as_str()).collect();
                let label = labels.join(" or ");
                let mut ranges: Vec<KeyRange> = parts.into_iter().flat_map(|part| part.ranges).collect();
                ranges.sort_by(|a, b| a.start.cmp(&b.start));
                merge_overlapping(&mut ranges);
                // An item may satisfy several alternatives.
                let repeats = true;
                Some(Candidate { ranges, repeats, is_selective, is_narrow, label, ..Candidate::default() })
            }
            // One of several conjunctive conditions is enough to find the items.
            IndexCondition::And(parts) => {
                let parts = parts.iter().filter_map(|part| self.candidate(part, false));
                // Preferably one with entries of the requested keys only, then a selective
                // one, then one without duplicates.
                parts.min_by_key(|part| (!part.is_narrow, !part.is_selective, part.repeats))
            }
            IndexCondition::All | IndexCondition::None => None,
        }
    }

    fn term(&self, path: &IndexPath, test: &Test, is_exact: bool) -> Option<Candidate> {
        if !is_indexed(self.generation, path) {
            return None;
        }
        let ranges = match test {
            // Only paths that the policy lists explicitly have entries for items without them.
            Test::Type(TypeTest::NotDefined) if knows_missing(self.generation, path) => {
                let term =
                    index_entry::undefined_term(self.generation.number, index_entry::PathHash::of(path));
                vec![KeyRange::prefix(&term)]
            }
            test => index_entry::ranges(self.generation.number, path, test)?,
        };
        let is_point = matches!(test, Test::Equal(_) | Test::In(_));
        // A look-up for each key and value, as long as there are few.
        let is_narrowed = is_point && self.points && self.windows.len() * ranges.len() <= POINTS_MAX;
        let (ranges, keys) = if is_narrowed {
            let narrowed = ranges.iter().flat_map(|range| {
                self.windows
                    .iter()
                    .map(|window| (index_entry::within(range, &window.min), window.min.clone()))
            });
            narrowed.unzip()
        } else {
            (ranges, Vec::new())
        };
        let in_array = path.0.contains(&IndexStep::Element);
        let is_selective = !matches!(test, Test::NotEqual(_) | Test::StringScan | Test::Type(_));
        Some(Candidate {
            ranges,
            keys,
            // Several elements of an array may match; equal ones share an entry.
            repeats: in_array && !matches!(test, Test::Equal(_)),
            is_exact: is_exact && !in_array && index_entry::is_exact(test),
            is_narrow: is_narrowed || !self.points,
            names_key: self.points && matches!(test, Test::Equal(_)) && self.is_key(path),
            is_selective,
            is_point,
            composite: None,
            label: format!("{path} {}", describe(test)),
        })
    }

    /// Whether the path is one of the partition key's.
    fn is_key(&self, path: &IndexPath) -> bool {
        let is_same = |key: &KeyPath| {
            let names = key.segments().iter().map(|name| IndexStep::Property(name.clone()));
            names.eq(path.0.iter().cloned())
        };
        self.definition.partition_key.paths().iter().any(is_same)
    }

    fn sequence(&self, query: &Query, condition: &IndexCondition) -> Option<Sequence> {
        // A join or an iteration makes several rows of an item, and the index has one entry.
        let single_source = match query.from.as_ref().map(|from| from.sources.as_slice()) {
            Some([source]) => !source.iterate && matches!(source.collection, Collection::Path { .. }),
            _ => false,
        };
        let plain = single_source && !query.select.distinct && query.group_by.is_empty();
        let keys = indexes::order_paths(query).filter(|keys| plain && !keys.is_empty())?;
        if let Some(sequence) = self.composite_sequence(&keys, condition) {
            return Some(sequence);
        }
        if keys.len() > 1 {
            return None;
        }
        let (text, order) = &keys[0];
        let path = property_path(text).filter(|path| self.holds(path))?;
        if !is_indexed(self.generation, &path) {
            return None;
        }
        let is_defined = condition.implies_defined(&path);
        let direction = if *order == Order::Ascending { Direction::Forward } else { Direction::Backward };
        let is_complete = is_defined || is_everywhere(&path) || knows_missing(self.generation, &path);
        // Items without the property come first in ascending order, and may be missing from the index: they must be
        // found for the first page. If a filter leaves few items, scanning those is better.
        if direction == Direction::Forward && !is_complete && query.filter.is_some() {
            return None;
        }
        let (range, label) = match self.sequence_range(condition, &path) {
            Some((range, test)) => (range, format!("{path} {} in order", describe(test))),
            None => (index_entry::path_range(self.generation.number, &path), format!("{path} in order")),
        };
        Some(Sequence {
            range,
            direction,
            lacks_undefined: !is_complete,
            label,
            generation: self.generation.number,
            by: SequenceBy::Path(path),
        })
    }

    /// The values among which the query looks for the least or greatest, if all of them are known to match.
    fn values_of_extreme(&self, query: &Query, condition: &IndexCondition) -> Option<Values> {
        // In one logical partition the entries of others would stand in between.
        let extreme = shortcut::extreme_of(query).filter(|_| !self.points)?;
        let path = property_path(&extreme.path).filter(|path| self.holds(path))?;
        if !is_indexed(self.generation, &path) {
            return None;
        }
        let [scalars, others] = index_entry::scalars_and_others(self.generation.number, &path);
        // Every entry must be of a matching item: no filter, or one on this very property.
        match condition {
            IndexCondition::All if query.filter.is_none() => {
                Some(Values { scalars: vec![scalars], others: vec![others] })
            }
            IndexCondition::Term { path: own, test: test @ Test::Range { .. }, exact: true }
                if *own == path =>
            {
                let scalars = index_entry::ranges(self.generation.number, &path, test)?;
                index_entry::is_exact(test).then_some(Values { scalars, others: Vec::new() })
            }
            _ => None,
        }
    }

    /// The path's entries that satisfy the filter, if it is on the same path, and that filter.
    fn sequence_range<'t>(
        &self,
        condition: &'t IndexCondition,
        path: &IndexPath,
    ) -> Option<(KeyRange, &'t Test)> {
        let terms = match condition {
            IndexCondition::And(parts) => parts.as_slice(),
            part => std::slice::from_ref(part),
        };
        terms.iter().find_map(|term| match term {
            IndexCondition::Term { path: own, test, .. } if own == path => {
                let mut ranges = index_entry::ranges(self.generation.number, path, test)?;
                if ranges.len() == 1 { ranges.pop().map(|range| (range, test)) } else { None }
            }
            _ => None,
        })
    }

    /// Whether the entries at a path are of the property that queries see: those of a computed property only if it is
    /// indexed as it is defined now.
    fn holds(&self, path: &IndexPath) -> bool {
        match path.0.first() {
            Some(IndexStep::Property(name)) => {
                let computed = &self.definition.computed_properties;
                computed.iter().all(|property| property.name != *name)
                    || self.generation.computed.holds(self.definition, name)
            }
            _ => true,
        }
    }

    /// Whether a composite index holds what items have at its paths: not so for array elements and for computed
    /// properties that are not indexed, which it has as missing.
    fn holds_items(&self, paths: &[CompositePath]) -> bool {
        paths.iter().all(|path| {
            let is_held = self.holds(&IndexPath(path.steps.clone()));
            let is_system = matches!(path.steps.first(), Some(IndexStep::Property(name))
                if **name != *"_ts" && SYSTEM_PROPERTIES.contains(&&**name));
            is_held && !is_system && !path.steps.contains(&IndexStep::Element)
        })
    }

    /// A composite index in sort order. Its first values may be fixed by the filter instead.
    fn composite_sequence(&self, keys: &[(String, Order)], condition: &IndexCondition) -> Option<Sequence> {
        let terms = conjuncts(condition);
        let composites = (0u32..).zip(&self.generation.policy.composite);
        composites.into_iter().find_map(|(number, paths)| {
            let fixed_count = paths.len().checked_sub(keys.len())?;
            let sorted = &paths[fixed_count..];
            let same_paths =
                sorted.iter().zip(keys).all(|(path, (text, _))| path.as_str().trim_end_matches("/?") == text);
            if !same_paths || !self.holds_items(paths) {
                return None;
            }
            let flips = sorted.iter().zip(keys);
            let flips: Vec<bool> =
                flips.map(|(path, (_, order))| path.descending != (*order == Order::Descending)).collect();
            // An index serves its own directions and, read backwards, all of them inverted; never a mixture.
            let direction = match (flips.iter().all(|flip| !flip), flips.iter().all(|flip| *flip)) {
                (true, _) => Direction::Forward,
                (_, true) => Direction::Backward,
                _ => return None,
            };
            // The values before the sort items must be fixed, or entries of different values would mix.
            let equal: Vec<&Value> = paths.iter().map_while(|path| equal_value(terms, path)).collect();
            if equal.len() < fixed_count {
                return None;
            }
            let descending: Vec<bool> = paths.iter().map(|path| path.descending).collect();
            let values: Vec<_> =
                equal.iter().map(|value| Some(*value)).zip(descending.iter().copied()).collect();
            Some(Sequence {
                range: index_entry::composite_between(self.generation.number, number, &values, None)?,
                direction,
                generation: self.generation.number,
                by: SequenceBy::Composite {
                    number,
                    descending,
                    fixed: equal[..fixed_count].iter().map(|value| (*value).clone()).collect(),
                },
                lacks_undefined: false,
                label: format!("composite index {} in order", describe_composite(paths, &equal, None)),
            })
        })
    }

    /// Composite indexes whose first paths the filter fixes, with a range on the next one if there is one.
    fn composite_candidates(&self, condition: &IndexCondition) -> Vec<Candidate> {
        let terms = conjuncts(condition);
        let composites = (0u32..).zip(&self.generation.policy.composite);
        let candidate = |(number, paths): (u32, &Vec<CompositePath>)| {
            if !self.holds_items(paths) {
                return None;
            }
            let equal: Vec<&Value> = paths.iter().map_while(|path| equal_value(terms, path)).collect();
            let next = paths.get(equal.len());
            let range = next.and_then(|path| Some((range_test(terms, path)?, path.descending)));
            // One condition alone is served as well by the index of its path, which is smaller.
            if equal.is_empty() || equal.len() + usize::from(range.is_some()) < 2 {
                return None;
            }
            let descending: Vec<bool> = paths.iter().map(|path| path.descending).collect();
            let values: Vec<_> =
                equal.iter().map(|value| Some(*value)).zip(descending.iter().copied()).collect();
            let bounds = range.map(|(bounds, _)| bounds);
            let label = format!("composite index {number} {}", describe_composite(paths, &equal, bounds));
            let next = range.map(|((low, high), descending)| (low, high, descending));
            let range = index_entry::composite_between(self.generation.number, number, &values, next)?;
            // With specific keys, entries of other keys lie in between.
            let is_narrow = !self.points;
            let all = Candidate::of_ranges(vec![range]);
            Some(Candidate { composite: Some(descending), label, is_narrow, ..all })
        };
        composites.filter_map(candidate).collect()
    }
}

/// The conjunctive conditions.
fn conjuncts(condition: &IndexCondition) -> &[IndexCondition] {
    match condition {
        IndexCondition::And(parts) => parts,
        part => std::slice::from_ref(part),
    }
}

/// The scalar that the filter requires at a path.
fn equal_value<'t>(terms: &'t [IndexCondition], path: &CompositePath) -> Option<&'t Value> {
    terms.iter().find_map(|term| match term {
        IndexCondition::Term { path: own, test: Test::Equal(value), .. } if path.steps == own.0 => {
            Some(value)
        }
        _ => None,
    })
}

/// The bounds that the filter sets at a path.
fn range_test<'t>(
    terms: &'t [IndexCondition],
    path: &CompositePath,
) -> Option<(Option<&'t Bound>, Option<&'t Bound>)> {
    terms.iter().find_map(|term| match term {
        IndexCondition::Term { path: own, test: Test::Range { low, high }, .. } if path.steps == own.0 => {
            Some((low.as_ref(), high.as_ref()))
        }
        _ => None,
    })
}

/// The paths of a composite index, with the values that the first ones must have and the bounds of the next one.
fn describe_composite(
    paths: &[CompositePath],
    equal: &[&Value],
    range: Option<(Option<&Bound>, Option<&Bound>)>,
) -> String {
    let path = |(at, path): (usize, &CompositePath)| {
        let order = if path.descending { "DESC" } else { "ASC" };
        let name = path.as_str().trim_end_matches("/?");
        match (equal.get(at), range) {
            (Some(value), _) => format!("{name} {order} = {}", value.to_json()),
            (None, Some((low, high))) if at == equal.len() => {
                format!("{name} {order} {}", describe_range(low, high))
            }
            (None, _) => format!("{name} {order}"),
        }
    };
    format!("({})", paths.iter().enumerate().map(path).collect::<Vec<_>>().join(", "))
}

/// Parses `/a/"b c"` as property names; none for paths into arrays, which cannot be sorted by.
fn property_path(text: &str) -> Option<IndexPath> {
    let path = PolicyPath::parse(&format!("{text}/?")).ok().map(|path| IndexPath(path.steps))?;
    let is_usable = !path.0.is_empty() && !path.0.contains(&IndexStep::Element);
    is_usable.then_some(path)
}

/// `> 5 and <= 40`.
fn describe_range(low: Option<&Bound>, high: Option<&Bound>) -> String {
    let side = |bound: &Bound, sign: &str| {
        let or_equal = if bound.inclusive { "=" } else { "" };
        format!("{sign}{or_equal} {}", bound.value.to_json())
    };
    match (low, high) {
        (Some(low), Some(high)) => format!("{} and {}", side(low, ">"), side(high, "<")),
        (Some(low), None) => side(low, ">"),
        (None, Some(high)) => side(high, "<"),
        (None, None) => "has any value".to_owned(),
    }
}

fn describe(test: &Test) -> String {
    match test {
        Test::Equal(value) => format!("= {}", value.to_json()),
        Test::In(values) => match values.as_slice() {
            [first, .., last] if values.len() > LISTED_VALUES_MAX => {
                format!("in {} values: {}, …, {}", values.len(), first.to_json(), last.to_json())
            }
            values => {
                let texts: Vec<String> = values.iter().map(Value::to_json).collect();
                format!("in ({})", texts.join(", "))
            }
        },
        Test::NotEqual(value) => format!("!= {}", value.to_json()),
        Test::Range { low, high } => describe_range(low.as_ref(), high.as_ref()),
        Test::Prefix(text) => format!("begins with {text:?}"),
        Test::StringScan => "is a string".to_owned(),
        Test::Type(TypeTest::NotDefined) => "is not defined".to_owned(),
        Test::Type(test) => format!("is {test:?}").to_lowercase(),
    }
}
