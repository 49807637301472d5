//! The partition key values and single items that a filter names.

use std::cell::Cell;
use std::marker::PhantomData;

use orrery_model::container::IndexStep;
use orrery_model::partition_key::{KeyPart, PartitionKey, PartitionKeyDefinition};
use orrery_model::{Object, Value};

use super::interval::{Constraint, End, Interval};
use super::{Slots, index};
use crate::ast::{BinaryOperator, LogicalOperator, SubqueryKind, UnaryOperator};
use crate::limits;
use crate::program::{Block, FunctionCall, Members, Node, Program, Source, SourceRows};

/// The maximum number of alternatives; beyond that the filter counts as unrestricted.
const ALTERNATIVES_MAX: usize = 2_000;
/// The same for items: the maximum length of an IN list.
const ITEMS_MAX: usize = limits::IN_MEMBERS_MAX;
/// Up to here integers are exact as doubles.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// The keys that matching documents can have.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyRestriction {
    /// Anywhere.
    All,
    /// Nowhere: the filter contradicts itself, or nothing is read.
    None,
    /// Only these keys, sorted; fewer parts than paths are a prefix.
    Keys(Vec<PartitionKey>),
}

/// The partition keys that matching documents can have.
pub fn key_restriction(program: &Program, definition: &PartitionKeyDefinition) -> KeyRestriction {
    if !program.reads_documents {
        return KeyRestriction::None;
    }
    let paths = definition.paths().iter().map(|path| path.segments().to_vec()).collect();
    let keys = Keys::<KeyPart>::new(paths, ALTERNATIVES_MAX);
    let mut slots = Slots::of(&program.block);
    restriction(keys.block(&program.block, &mut slots, true))
}

/// An interval of keys, for keys that are ordered instead of hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedKeys {
    pub min: Vec<End>,
    pub max: Vec<End>,
    pub min_inclusive: bool,
    pub max_inclusive: bool,
}

/// The keys that matching documents can have, in a container whose keys are not hashed. None = all.
pub fn ordered_keys(program: &Program, paths: Vec<Vec<Box<str>>>) -> Option<Vec<OrderedKeys>> {
    if !program.reads_documents {
        return Some(Vec::new());
    }
    let keys = Keys::<Interval>::new(paths, ALTERNATIVES_MAX);
    let mut slots = Slots::of(&program.block);
    let alternatives = keys.block(&program.block, &mut slots, true);
    let range = |alternative: Vec<Option<Interval>>| {
        // Keys are ordered by their first path, so the first one without an interval ends what is known.
        let known: Vec<Interval> = alternative.into_iter().map_while(|interval| interval).collect();
        let range = OrderedKeys {
            min_inclusive: known.iter().all(|interval| interval.min_inclusive),
            max_inclusive: known.iter().all(|interval| interval.max_inclusive),
            min: known.iter().map(|interval| interval.min.clone()).collect(),
            max: known.into_iter().map(|interval| interval.max).collect(),
        };
        // One alternative without an interval means all keys.
        (!range.min.is_empty()).then_some(range)
    };
    let mut ranges = alternatives.into_iter().map(range).collect::<Option<Vec<_>>>()?;
    ranges.sort_by(|a, b| a.min.cmp(&b.min).then_with(|| a.max.cmp(&b.max)));
    ranges.dedup();
    Some(ranges)
}

/// The values of some properties that matching documents can have: alternatives, each of which fixes some of them. None
/// if the query reads no documents or does not restrict them.
pub fn fixed_values(program: &Program, paths: Vec<Vec<Box<str>>>) -> Option<Vec<Vec<Option<KeyPart>>>> {
    if !program.reads_documents {
        return None;
    }
    let keys = Keys::<KeyPart>::new(paths, ALTERNATIVES_MAX);
    let mut slots = Slots::of(&program.block);
    let alternatives = keys.block(&program.block, &mut slots, true);
    let fixes_nothing = |alternative: &Vec<Option<KeyPart>>| alternative.iter().all(Option::is_none);
    (!alternatives.iter().any(fixes_nothing)).then_some(alternatives)
}

/// The only items that a filter can match, by key and id.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedItems {
    /// Sorted, each once.
    pub items: Vec<(PartitionKey, Box<str>)>,
    /// Whether the filter has no other conditions, so that each existing one matches.
    pub is_exact: bool,
}

/// The items that a filter names individually: `c.id = 'x' AND c.pk = 'y'`, alternatives of such, or ids alone where
/// the key is known from elsewhere (`within`).
pub fn named_items(
    program: &Program,
    definition: &PartitionKeyDefinition,
    within: Option<&PartitionKey>,
) -> Option<NamedItems> {
    if !program.reads_documents {
        return None;
    }
    let paths = definition.paths().iter().map(|path| path.segments().to_vec());
    // The id counts as one more path behind those of the key.
    let paths: Vec<_> = paths.chain([vec!["id".into()]]).collect();
    let keys = Keys::<KeyPart>::new(paths, ITEMS_MAX);
    let mut slots = Slots::of(&program.block);
    let found = keys.block(&program.block, &mut slots, true);
    // A key that is known from elsewhere is a condition like those of the filter.
    let known = within.map_or(&[][..], PartitionKey::parts).iter().cloned().map(Some);
    let mut known: Vec<_> = known.collect();
    known.resize(keys.paths.len(), None);
    let found = keys.both(&vec![known], &found);
    let item = |alternative: Vec<Option<KeyPart>>| {
        let mut parts = alternative.into_iter().collect::<Option<Vec<KeyPart>>>()?;
        let plain = parts.iter().all(|part| match part {
            KeyPart::Undefined => false,
            // Larger integers share their doubles with others, so such a key names more than one value.
            KeyPart::Number(number) => number.abs() < EXACT_INTEGER_MAX,
            _ => true,
        });
        match parts.pop() {
            // Ids are strings; a filter that compares the id with anything else names no item.
            Some(KeyPart::String(id)) if plain => Some((PartitionKey::new(parts), id)),
            _ => None,
        }
    };
    let items = found.into_iter().map(item).collect::<Option<Vec<_>>>()?;
    Some(NamedItems { items, is_exact: keys.is_exact.get() })
}

struct Keys<C> {
    paths: Vec<Vec<Box<str>>>,
    alternatives_max: usize,
    /// Whether the alternatives are equivalent to the filter so far.
    is_exact: Cell<bool>,
    constraint: PhantomData<C>,
}

/// Alternatives; each fixes some of the paths. One that fixes none means everything.
type Alternatives<C> = Vec<Vec<Option<C>>>;

impl<C: Constraint> Keys<C> {
    fn new(paths: Vec<Vec<Box<str>>>, alternatives_max: usize) -> Self {
        Self { paths, alternatives_max, is_exact: Cell::new(true), constraint: PhantomData }
    }

    fn everything(&self) -> Alternatives<C> {
        vec![vec![None; self.paths.len()]]
    }

    /// Unrestricted because unknown: the filter is stricter than the alternatives.
    fn unknown(&self) -> Alternatives<C> {
        self.is_exact.set(false);
        self.everything()
    }

    fn any(&self, parts: impl Iterator<Item = Alternatives<C>>) -> Alternatives<C> {
        let mut all = Alternatives::<C>::new();
        for part in parts {
            all.extend(part);
            // Repetitions do not count against the limit.
            if all.len() > self.alternatives_max {
                all.sort_unstable();
                all.dedup();
            }
            if all.len() > self.alternatives_max {
                return self.unknown();
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    fn both(&self, left: &Alternatives<C>, right: &Alternatives<C>) -> Alternatives<C> {
        if left.len().saturating_mul(right.len()) > self.alternatives_max {
            // Either side alone is still a valid restriction.
            self.is_exact.set(false);
            return if left.len() <= right.len() { left.clone() } else { right.clone() };
        }
        let mut combined = Alternatives::<C>::new();
        for a in left {
            for b in right {
                let parts = a.iter().zip(b).map(|(a, b)| match (a, b) {
                    (Some(a), Some(b)) => a.meet(b).map(Some),
                    (Some(part), None) | (None, Some(part)) => Some(Some(part.clone())),
                    (None, None) => Some(None),
                });
                // Contradictory values drop the combination.
                combined.extend(parts.collect::<Option<Vec<_>>>());
            }
        }
        combined.sort_unstable();
        combined.dedup();
        combined
    }

    /// The keys of documents for which the block yields rows.
    fn block(&self, block: &Block, slots: &mut Slots, outermost: bool) -> Alternatives<C> {
        let mut found = self.everything();
        // Without GROUP BY an aggregate yields a row even if no document matches.
        let gives_rows_anyway = block.grouping.as_ref().is_some_and(|grouping| grouping.keys.is_empty());
        if gives_rows_anyway && !outermost {
            return self.unknown();
        }
        for (index, Source { rows, .. }) in block.sources.iter().enumerate() {
            if let SourceRows::Subquery(inner) = rows {
                self.is_exact.set(false);
                slots.extend(inner);
                let collected = outermost && index == 0 && block.collects_first;
                let inner = self.block(inner, slots, collected);
                found = self.both(&found, &inner);
            }
        }
        if let Some(filter) = &block.filter {
            found = self.both(&found, &self.predicate(filter, true, slots));
        }
        found
    }

    /// The keys of documents for which the expression is exactly `wanted`.
    fn predicate(&self, node: &Node, wanted: bool, slots: &mut Slots) -> Alternatives<C> {
        match node {
            Node::Constant(Some(Value::Bool(flag))) if *flag == wanted => self.everything(),
            // Never what is wanted, so no key remains.
            Node::Constant(_) => Alternatives::new(),
            Node::Path { .. } | Node::Slot(_) => self.points(node, [&Value::Bool(wanted)].into_iter(), slots),
            Node::Unary { operator: UnaryOperator::Not, operand } => self.predicate(operand, !wanted, slots),
            Node::Logical { operator, operands } => {
                // An OR is false only if all its operands are.
                let all = (*operator == LogicalOperator::And) == wanted;
                let mut parts = operands.iter().map(|node| self.predicate(node, wanted, slots));
                if !all {
                    return self.any(parts);
                }
                let first = parts.next().unwrap_or_else(|| self.everything());
                parts.fold(first, |found, next| self.both(&found, &next))
            }
            Node::Binary { operator, left, right } if operator.is_comparison() => {
                self.comparison(*operator, (left, right), wanted, slots)
            }
            Node::Between { not, operands } if *not != wanted => match &**operands {
                [path, Node::Constant(Some(low)), Node::Constant(Some(high))] => {
                    let bounds = [(BinaryOperator::GreaterOrEqual, low), (BinaryOperator::LessOrEqual, high)];
                    let [low, high] =
                        bounds.map(|(operator, value)| self.ordered(operator, path, value, slots));
                    self.both(&low, &high)
                }
                _ => self.unknown(),
            },
            Node::In { not, operand, members: Members::Constant { values, .. } } if *not != wanted => {
                self.points(operand, values.iter(), slots)
            }
            // That a call is false, or that a subquery has no rows, restricts no key.
            Node::Call(call) if wanted => self.call(call, slots),
            Node::Subquery { kind: SubqueryKind::Exists, block } if wanted => {
                self.is_exact.set(false);
                slots.extend(block);
                self.block(block, slots, false)
            }
            _ => self.unknown(),
        }
    }

    fn comparison(
        &self,
        operator: BinaryOperator,
        (left, right): (&Node, &Node),
        wanted: bool,
        slots: &mut Slots,
    ) -> Alternatives<C> {
        let equal = match operator {
            BinaryOperator::Equal => wanted,
            BinaryOperator::NotEqual => !wanted,
            _ => false,
        };
        let mut found = match (left, right) {
            // A comparison with undefined is never true nor false.
            (Node::Constant(None), _) | (_, Node::Constant(None)) => return Alternatives::new(),
            (path, Node::Constant(Some(value))) | (Node::Constant(Some(value)), path) if equal => {
                match path {
                    Node::Call(call) if C::IS_ORDERED => self.magnitude(call, value, slots),
                    _ => self.points(path, [value].into_iter(), slots),
                }
            }
            // A value with a distance is not a scalar, and thus not a key.
            (Node::Call(call), _) if C::IS_ORDERED && call.function.name == "ST_DISTANCE" => {
                let shape = Value::from(Object::new());
                let on = |path| self.points(path, [&shape].into_iter(), slots);
                call.arguments.iter().map(on).fold(self.everything(), |all, next| self.both(&all, &next))
            }
            (path, Node::Constant(Some(value))) if wanted => self.ordered(operator, path, value, slots),
            (Node::Constant(Some(value)), path) if wanted => {
                self.ordered(index::mirrored(operator), path, value, slots)
            }
            _ => self.unknown(),
        };
        // A comparison is true or false only if both sides are defined, and a scalar subquery is defined only if it
        // yields a row.
        for side in [left, right] {
            if let Node::Subquery { kind: SubqueryKind::Scalar, block } = side {
                slots.extend(block);
                found = self.both(&found, &self.block(block, slots, false));
            }
        }
        found
    }

    /// The restriction of a path whose value compares to this one in this way.
    fn ordered(
        &self,
        operator: BinaryOperator,
        path: &Node,
        value: &Value,
        slots: &Slots,
    ) -> Alternatives<C> {
        match C::compared(operator, value) {
            Some(constraint) => self.at(path, [constraint].into_iter(), slots),
            None => self.unknown(),
        }
    }

    /// Where a function of the value at a path, which hides its sign, is this number.
    fn magnitude(&self, call: &FunctionCall, value: &Value, slots: &Slots) -> Alternatives<C> {
        match (call.function.name, &call.arguments[..], value) {
            ("ABS", [path], Value::Number(number)) if number.as_f64() >= 0.0 => {
                let both = [Value::from(-number.as_f64()), value.clone()];
                self.points(path, both.iter(), slots)
            }
            _ => self.unknown(),
        }
    }

    fn call(&self, call: &FunctionCall, slots: &mut Slots) -> Alternatives<C> {
        match (call.function.name, &call.arguments[..]) {
            ("IS_NULL", [path]) => self.points(path, [&Value::Null].into_iter(), slots),
            ("IS_BOOL", [path]) => {
                self.points(path, [&Value::Bool(false), &Value::Bool(true)].into_iter(), slots)
            }
            ("STARTSWITH", [path, Node::Constant(Some(Value::String(text)))]) => match C::prefix(text) {
                Some(prefix) => self.at(path, [prefix].into_iter(), slots),
                None => self.unknown(),
            },
            ("ARRAY_CONTAINS", [Node::Constant(Some(Value::Array(values))), path]) => {
                self.points(path, values.iter(), slots)
            }
            _ => self.unknown(),
        }
    }

    /// Where the path has one of these values, if it is a path of the key.
    fn points<'v>(
        &self,
        node: &Node,
        values: impl Iterator<Item = &'v Value>,
        slots: &Slots,
    ) -> Alternatives<C> {
        self.at(node, values.map(|value| C::point(KeyPart::of(Some(value)))), slots)
    }

    /// Where one of these is true of the path, if it is a path of the key.
    fn at(&self, node: &Node, constraints: impl Iterator<Item = C>, slots: &Slots) -> Alternatives<C> {
        let path = slots.path(node);
        // Paths with fixed indexes are never key paths: those go through objects only.
        let indexed = matches!(node, Node::Path { steps, .. } if steps.iter().any(|step| matches!(step, crate::program::Step::Index(_))));
        let Some(path) = path.filter(|_| !indexed) else {
            return self.unknown();
        };
        let is_here = |key: &Vec<Box<str>>| {
            let mut steps = key.iter().zip(&path.0);
            key.len() == path.0.len()
                && steps.all(|(name, step)| matches!(step, IndexStep::Property(step) if step == name))
        };
        // The id may be a part of the key too.
        let places: Vec<bool> = self.paths.iter().map(is_here).collect();
        if !places.contains(&true) {
            return self.unknown();
        }
        let mut alternatives = Alternatives::<C>::new();
        for constraint in constraints {
            alternatives.push(places.iter().map(|here| here.then(|| constraint.clone())).collect());
            if alternatives.len() > self.alternatives_max {
                return self.unknown();
            }
        }
        alternatives.sort_unstable();
        alternatives.dedup();
        alternatives
    }
}

fn restriction(alternatives: Alternatives<KeyPart>) -> KeyRestriction {
    if alternatives.is_empty() {
        return KeyRestriction::None;
    }
    let mut keys = Vec::with_capacity(alternatives.len());
    for alternative in alternatives {
        // Keys are hierarchical: a prefix ends at the first path that is not fixed.
        let prefix: Vec<KeyPart> = alternative.into_iter().map_while(|part| part).collect();
        // One alternative without a prefix needs all partitions.
        if prefix.is_empty() {
            return KeyRestriction::All;
        }
        keys.push(PartitionKey::new(prefix));
    }
    keys.sort();
    // Drop keys below a listed prefix.
    keys.dedup_by(|key, prefix| key.starts_with(prefix));
    KeyRestriction::Keys(keys)
}

/// The restriction to these keys or prefixes.
pub(crate) fn keys_restriction(keys: Vec<Vec<KeyPart>>) -> KeyRestriction {
    restriction(keys.into_iter().map(|key| key.into_iter().map(Some).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;
    use crate::compile::Settings;
    use crate::context::Policies;

    fn named(filter: &str, paths: &[&str]) -> Option<(Vec<String>, bool)> {
        let definition = PartitionKeyDefinition::with_paths(paths).unwrap();
        let policies = Policies::default();
        let settings = Settings { parameters: &[], computed: &[], policies: &policies };
        let query = check::parse(&format!("SELECT * FROM c WHERE {filter}")).unwrap();
        let program = Program::compile(&query, settings).unwrap();
        let named = named_items(&program, &definition, None)?;
        let items = named.items.iter().map(|(key, id)| format!("{} {id}", key.to_json()));
        Some((items.collect(), named.is_exact))
    }

    #[test]
    fn filters_name_items() {
        let exact = |filter: &str, items: &[&str]| {
            let items = items.iter().map(|item| (*item).to_owned()).collect();
            assert_eq!(named(filter, &["/pk"]), Some((items, true)), "{filter}");
        };
        exact("c.id = 'a' AND c.pk = 1", &["[1] a"]);
        exact("'a' = c.id AND c.pk IN (true, null)", &["[null] a", "[true] a"]);
        exact("(c.pk = 'x' AND c.id = 'a') OR (c.id = 'b' AND c.pk = 'y')", &["[\"x\"] a", "[\"y\"] b"]);
        exact("c.pk = 'x' AND (c.id = 'a' OR c.id = 'a' OR NOT (c.id != 'b'))", &["[\"x\"] a", "[\"x\"] b"]);
        exact("c.id = 'a' AND c.id = 'b'", &[]);
        let found = named("c.id = 'a' AND c.pk = 'x' AND c.n > 1", &["/pk"]);
        assert_eq!(found, Some((vec!["[\"x\"] a".to_owned()], false)));
        assert_eq!(named("c.id = 'a'", &["/id"]), Some((vec!["[\"a\"] a".to_owned()], true)));
    }

    #[test]
    fn other_filters_name_none() {
        for filter in [
            "c.id = 'a'",
            "c.pk = 'a'",
            "c.id > 'a' AND c.pk = 1",
            "(c.id = 'a' AND c.pk = 1) OR c.n = 1",
            "c.id = 1 AND c.pk = 1",
            "c.id = 'a' AND c.pk = 9007199254740993",
            "c.id = 'a' AND c.pk = [1]",
            "c.id[0] = 'a' AND c.pk = 1",
            "c.x.id = 'a' AND c.pk = 1",
        ] {
            assert_eq!(named(filter, &["/pk"]), None, "{filter}");
        }
        assert_eq!(named("c.id = 'a' AND c.pk = 1", &["/pk", "/b"]), None);
    }
}
