//! Conditions that a range index can answer.

use std::cmp::Ordering;

use orrery_model::Value;
use orrery_model::container::{IndexPath, IndexStep};

use super::Slots;
use crate::ast::{BinaryOperator, LogicalOperator, SubqueryKind, UnaryOperator};
use crate::context::Context;
use crate::eval::{self, Env};
use crate::operand;
use crate::order;
use crate::program::{Block, FunctionCall, Members, Node, Program, SourceRows};

/// A condition that every matching document satisfies.
///
/// It is necessary; [`IndexCondition::is_exact`] says whether it is also sufficient. A term over array elements holds
/// if it holds for some element.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexCondition {
    /// Nothing is known.
    All,
    /// Nothing matches.
    None,
    And(Vec<IndexCondition>),
    Or(Vec<IndexCondition>),
    Term {
        path: IndexPath,
        test: Test,
        exact: bool,
    },
}

/// A test on the values at a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    Equal(Value),
    In(Vec<Value>),
    /// Defined and different.
    NotEqual(Value),
    /// Values of the bounds' type between them; a missing bound is the end of the type.
    Range {
        low: Option<Bound>,
        high: Option<Bound>,
    },
    /// Strings with this prefix.
    Prefix(Box<str>),
    /// Strings; each distinct one has to be checked.
    StringScan,
    Type(TypeTest),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    pub value: Value,
    pub inclusive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeTest {
    Defined,
    NotDefined,
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
    Primitive,
}

/// The condition that an index can answer for a program's filter. The context supplies functions that are constant for
/// one run, such as `GETCURRENTTIMESTAMPSTATIC()`.
pub fn index_condition(program: &Program, context: &Context<'_>) -> IndexCondition {
    let slots = Slots::of(&program.block);
    Analysis { context }.block(&program.block, slots, true)
}

impl IndexCondition {
    /// Whether documents that satisfy the condition need not be checked again.
    pub fn is_exact(&self) -> bool {
        match self {
            Self::All => false,
            Self::None => true,
            Self::And(parts) | Self::Or(parts) => parts.iter().all(Self::is_exact),
            Self::Term { exact, .. } => *exact,
        }
    }

    /// Whether the condition can only hold for documents that have the path.
    pub fn implies_defined(&self, path: &IndexPath) -> bool {
        match self {
            Self::Term { path: own, test, .. } => own == path && *test != Test::Type(TypeTest::NotDefined),
            Self::And(parts) => parts.iter().any(|part| part.implies_defined(path)),
            Self::Or(parts) => parts.iter().all(|part| part.implies_defined(path)),
            Self::All | Self::None => false,
        }
    }

    /// The distinct paths of the terms, in order of appearance.
    pub fn paths(&self) -> Vec<&IndexPath> {
        let mut paths = Vec::new();
        self.collect_paths(&mut paths);
        paths
    }

    fn collect_paths<'c>(&'c self, paths: &mut Vec<&'c IndexPath>) {
        match self {
            Self::All | Self::None => {}
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(|part| part.collect_paths(paths)),
            Self::Term { path, .. } => {
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
    }

    fn and(parts: Vec<Self>) -> Self {
        if parts.contains(&Self::None) {
            return Self::None;
        }
        let mut known = Vec::new();
        let mut exact = true;
        for part in parts {
            match part {
                // An unknown part makes the rest necessary but not sufficient.
                Self::All => exact = false,
                Self::And(inner) => known.extend(inner),
                other => known.push(other),
            }
        }
        let Some(mut known) = join_ranges(known) else {
            return Self::None;
        };
        if !exact {
            known = known.into_iter().map(Self::inexact).collect();
        }
        match known.len() {
            0 => Self::All,
            1 => known.swap_remove(0),
            _ => Self::And(known),
        }
    }

    fn or(parts: Vec<Self>) -> Self {
        // One branch that any document may satisfy leaves nothing to seek.
        if parts.contains(&Self::All) {
            return Self::All;
        }
        let mut known: Vec<Self> = Vec::new();
        for part in parts {
            match part {
                Self::None => {}
                Self::Or(inner) => known.extend(inner),
                other => known.push(other),
            }
        }
        match known.len() {
            0 => Self::None,
            1 => known.swap_remove(0),
            _ => Self::Or(known),
        }
    }

    fn inexact(self) -> Self {
        match self {
            Self::And(parts) => Self::And(parts.into_iter().map(Self::inexact).collect()),
            Self::Or(parts) => Self::Or(parts.into_iter().map(Self::inexact).collect()),
            Self::Term { path, test, .. } => Self::Term { path, test, exact: false },
            other => other,
        }
    }
}

/// Intersects all ranges over the same property. `None`: the intersection is empty.
fn join_ranges(parts: Vec<IndexCondition>) -> Option<Vec<IndexCondition>> {
    let mut joined: Vec<IndexCondition> = Vec::with_capacity(parts.len());
    for part in parts {
        let IndexCondition::Term { path, test: Test::Range { low, high }, exact } = &part else {
            joined.push(part);
            continue;
        };
        // Different array elements may satisfy different ranges.
        let same = joined.iter_mut().find_map(|known| match known {
            IndexCondition::Term { path: own, test: Test::Range { low, high }, exact }
                if own == path && !path.0.contains(&IndexStep::Element) =>
            {
                Some((low, high, exact))
            }
            _ => None,
        });
        let Some((own_low, own_high, own_exact)) = same else {
            joined.push(part);
            continue;
        };
        // The bounds of one range have the same type, so either of them tells it.
        let of_type = |bound: &Option<Bound>| bound.as_ref().map(|bound| bound.value.clone());
        if let (Some(own), Some(other)) =
            (of_type(own_low).or(of_type(own_high)), of_type(low).or(of_type(high)))
            && !same_type(&own, &other)
        {
            return None;
        }
        *own_exact &= *exact;
        tighten(own_low, low.as_ref(), Ordering::Greater);
        tighten(own_high, high.as_ref(), Ordering::Less);
        if let (Some(low), Some(high)) = (&own_low, &own_high) {
            let possible = match order::compare(Some(&low.value), Some(&high.value)) {
                Ordering::Less => same_type(&low.value, &high.value),
                Ordering::Equal => low.inclusive && high.inclusive,
                Ordering::Greater => false,
            };
            if !possible {
                return None;
            }
        }
    }
    Some(joined)
}

/// Uses the tighter bound: the greater lower one, the lesser upper one.
fn tighten(bound: &mut Option<Bound>, other: Option<&Bound>, tighter: Ordering) {
    let Some(other) = other else { return };
    let replaces =
        bound.as_ref().is_none_or(|own| match order::compare(Some(&other.value), Some(&own.value)) {
            Ordering::Equal => own.inclusive && !other.inclusive,
            ordering => ordering == tighter,
        });
    if replaces {
        *bound = Some(other.clone());
    }
}

fn same_type(a: &Value, b: &Value) -> bool {
    order::type_rank(Some(a)) == order::type_rank(Some(b))
        || matches!((a, b), (Value::Bool(_), Value::Bool(_)))
}

struct Analysis<'c> {
    context: &'c Context<'c>,
}

impl Analysis<'_> {
    fn block(&self, block: &Block, mut slots: Slots, outermost: bool) -> IndexCondition {
        let gives_rows_anyway = block.grouping.as_ref().is_some_and(|grouping| grouping.keys.is_empty());
        // An aggregate without GROUP BY yields a row even if nothing matches, so its filter says nothing about
        // documents.
        if gives_rows_anyway && !outermost {
            return IndexCondition::All;
        }
        slots.extend(block);
        let mut parts = Vec::new();
        for source in &block.sources {
            match &source.rows {
                SourceRows::Subquery(inner) => {
                    let collected = outermost && block.collects_first;
                    let inner_slots = Slots { known: slots.known.clone() };
                    // A document without a row here has none at all; for the others nothing is decided yet.
                    parts.push(self.block(inner, inner_slots, collected).inexact());
                }
                // A source yields rows only where its path is defined, and elements only for arrays.
                SourceRows::Value(node) => {
                    if let Some(path) = slots.path(node) {
                        let test =
                            Test::Type(if source.iterate { TypeTest::Array } else { TypeTest::Defined });
                        parts.push(IndexCondition::Term { path, test, exact: false });
                    }
                }
            }
        }
        let joined = !block.sources.is_empty();
        if let Some(filter) = &block.filter {
            let condition = self.predicate(filter, true, &slots);
            // A document may yield several rows, of which the filter keeps some.
            parts.push(if joined { condition.inexact() } else { condition });
        }
        IndexCondition::and(parts)
    }

    /// A condition on documents for which the expression is exactly `wanted`.
    fn predicate(&self, node: &Node, wanted: bool, slots: &Slots) -> IndexCondition {
        match node {
            Node::Constant(Some(Value::Bool(flag))) if *flag == wanted => IndexCondition::All,
            // Any other constant is never exactly the wanted boolean.
            Node::Constant(_) => IndexCondition::None,
            Node::Path { .. } | Node::Slot(_) => term(node, Test::Equal(wanted.into()), slots),
            Node::Unary { operator: UnaryOperator::Not, operand } => self.predicate(operand, !wanted, slots),
            Node::Logical { operator, operands } => {
                let parts = operands.iter().map(|operand| self.predicate(operand, wanted, slots)).collect();
                if (*operator == LogicalOperator::And) == wanted {
                    IndexCondition::and(parts)
                } else {
                    IndexCondition::or(parts)
                }
            }
            Node::Binary { operator, left, right } if operator.is_comparison() => {
                self.comparison(*operator, left, right, wanted, slots)
            }
            // The complement of a range, list or pattern is not sought, so only the positive sense counts
            // here and below.
            Node::Between { not, operands } if *not != wanted => self.between(operands, slots),
            Node::In { not, operand, members: Members::Constant { values, .. } } if *not != wanted => {
                let condition = term(operand, Test::In(values.clone()), slots);
                // Arrays and objects are hashed in the index: equal entries need not be equal values.
                let complex = values.iter().any(|value| matches!(value, Value::Array(_) | Value::Object(_)));
                if complex { condition.inexact() } else { condition }
            }
            Node::Like { not, operands, pattern: Some(pattern), .. } if *not != wanted => {
                let (prefix, whole) = pattern.prefix();
                if pattern.is_literal() {
                    return term(&operands[0], Test::Equal(prefix.into()), slots);
                }
                // Nothing to seek: every string at the path is a candidate.
                if prefix.is_empty() {
                    return term(&operands[0], Test::StringScan, slots).inexact();
                }
                let condition = term(&operands[0], Test::Prefix(prefix.into()), slots);
                if whole { condition } else { condition.inexact() }
            }
            Node::Call(call) => self.call(call, wanted, slots),
            Node::Subquery { kind: SubqueryKind::Exists, block } if wanted => {
                self.block(block, Slots { known: slots.known.clone() }, false).inexact()
            }
            _ => IndexCondition::All,
        }
    }

    /// The value of an expression that is constant for this run.
    #[expect(clippy::option_option, reason = "not constant, constantly undefined, or a value")]
    fn constant(&self, node: &Node) -> Option<Option<Value>> {
        match node {
            Node::Constant(value) => Some(value.clone()),
            // Their value is the same for the whole query, which distinguishes them from
            // `GETCURRENTTIMESTAMP()` and the like.
            Node::Call(call) if call.function.name.ends_with("STATIC") && call.arguments.is_empty() => {
                eval::evaluate(node, Env::default(), self.context).ok().map(operand::into_value)
            }
            Node::Binary { left, right, .. } => {
                self.constant(left)?;
                self.constant(right)?;
                eval::evaluate(node, Env::default(), self.context).ok().map(operand::into_value)
            }
            _ => None,
        }
    }

    fn comparison(
        &self,
        operator: BinaryOperator,
        left: &Node,
        right: &Node,
        wanted: bool,
        slots: &Slots,
    ) -> IndexCondition {
        use BinaryOperator as B;
        let (path, value, operator) = match (self.constant(left), self.constant(right)) {
            (_, Some(value)) => (left, value, operator),
            (Some(value), None) => (right, value, mirrored(operator)),
            (None, None) => return IndexCondition::All,
        };
        let Some(value) = value else {
            // A comparison with undefined is never true nor false.
            return IndexCondition::None;
        };
        let operator = if wanted { operator } else { negated(operator) };
        let test = match operator {
            B::Equal => Test::Equal(value),
            // Arrays and objects are equal or not, but not ordered.
            B::NotEqual => Test::NotEqual(value),
            _ if matches!(value, Value::Array(_) | Value::Object(_)) => return IndexCondition::None,
            B::Less => Test::Range { low: None, high: Some(Bound { value, inclusive: false }) },
            B::LessOrEqual => Test::Range { low: None, high: Some(Bound { value, inclusive: true }) },
            B::Greater => Test::Range { low: Some(Bound { value, inclusive: false }), high: None },
            _ => Test::Range { low: Some(Bound { value, inclusive: true }), high: None },
        };
        // Their index entries are hashes, so equal entries need not be equal values.
        let complex = matches!(&test, Test::Equal(Value::Array(_) | Value::Object(_)));
        let condition = term(path, test, slots);
        if complex { condition.inexact() } else { condition }
    }

    fn between(&self, operands: &[Node; 3], slots: &Slots) -> IndexCondition {
        let (Some(low), Some(high)) = (self.constant(&operands[1]), self.constant(&operands[2])) else {
            return IndexCondition::All;
        };
        let (Some(low), Some(high)) = (low, high) else {
            return IndexCondition::None;
        };
        if !same_type(&low, &high) {
            return IndexCondition::None;
        }
        // Arrays and objects are not ordered.
        if matches!(low, Value::Array(_) | Value::Object(_)) {
            return IndexCondition::None;
        }
        let bound = |value| Some(Bound { value, inclusive: true });
        term(&operands[0], Test::Range { low: bound(low), high: bound(high) }, slots)
    }

    fn call(&self, call: &FunctionCall, wanted: bool, slots: &Slots) -> IndexCondition {
        let name = call.function.name;
        let arguments = &call.arguments[..];
        if let Some(test) = type_test(name) {
            let [path] = arguments else {
                return IndexCondition::All;
            };
            return match (wanted, test) {
                (true, test) => term(path, Test::Type(test), slots),
                (false, TypeTest::Defined) => term(path, Test::Type(TypeTest::NotDefined), slots),
                (false, _) => IndexCondition::All,
            };
        }
        if !wanted {
            return IndexCondition::All;
        }
        // A third argument that is not known to be false may ask to ignore case, which no prefix finds.
        let flag = arguments.get(2).map(|flag| self.constant(flag));
        let plain = matches!(flag, None | Some(Some(Some(Value::Bool(false)))));
        match (name, arguments) {
            ("STARTSWITH", [path, prefix, ..]) => match self.constant(prefix) {
                Some(Some(Value::String(prefix))) if plain => term(path, Test::Prefix(prefix), slots),
                Some(Some(Value::String(_))) => term(path, Test::StringScan, slots).inexact(),
                // The function is undefined for other types.
                Some(_) => IndexCondition::None,
                None => IndexCondition::All,
            },
            ("STRINGEQUALS", [path, text, ..]) => match self.constant(text) {
                Some(Some(Value::String(text))) if plain => {
                    term(path, Test::Equal(Value::String(text)), slots)
                }
                Some(Some(Value::String(_))) => term(path, Test::StringScan, slots).inexact(),
                Some(_) => IndexCondition::None,
                None => IndexCondition::All,
            },
            ("CONTAINS" | "ENDSWITH" | "REGEXMATCH", [path, ..]) => {
                term(path, Test::StringScan, slots).inexact()
            }
            // With the list first this is the same as IN.
            ("ARRAY_CONTAINS", [Node::Constant(Some(Value::Array(values))), path]) => {
                term(path, Test::In(values.clone()), slots)
            }
            ("ARRAY_CONTAINS", [path, value, ..]) if plain => self.array_contains(path, value, slots),
            _ => IndexCondition::All,
        }
    }

    fn array_contains(&self, path: &Node, value: &Node, slots: &Slots) -> IndexCondition {
        match (self.constant(value), slots.path(path)) {
            (Some(None), _) => IndexCondition::None,
            (Some(Some(value)), Some(mut path)) if !matches!(value, Value::Array(_) | Value::Object(_)) => {
                path.0.push(IndexStep::Element);
                IndexCondition::Term { path, test: Test::Equal(value), exact: false }
            }
            _ => IndexCondition::All,
        }
    }
}

fn term(node: &Node, test: Test, slots: &Slots) -> IndexCondition {
    match slots.path(node) {
        Some(path) if !path.0.is_empty() => {
            // A match in any element does not imply a match in the indexed one.
            let exact = !path.0.contains(&IndexStep::Element);
            IndexCondition::Term { path, test, exact }
        }
        _ => IndexCondition::All,
    }
}

fn type_test(function: &str) -> Option<TypeTest> {
    Some(match function {
        "IS_DEFINED" => TypeTest::Defined,
        "IS_NULL" => TypeTest::Null,
        "IS_BOOL" => TypeTest::Bool,
        "IS_NUMBER" => TypeTest::Number,
        "IS_STRING" => TypeTest::String,
        "IS_ARRAY" => TypeTest::Array,
        "IS_OBJECT" => TypeTest::Object,
        "IS_PRIMITIVE" => TypeTest::Primitive,
        _ => return None,
    })
}

/// The comparison with swapped operands.
pub(super) fn mirrored(operator: BinaryOperator) -> BinaryOperator {
    use BinaryOperator as B;
    match operator {
        B::Less => B::Greater,
        B::LessOrEqual => B::GreaterOrEqual,
        B::Greater => B::Less,
        B::GreaterOrEqual => B::LessOrEqual,
        other => other,
    }
}

/// The comparison that is true where this one is false. Both need operands of one type, so the
/// range of the negation is over the same type.
pub(super) fn negated(operator: BinaryOperator) -> BinaryOperator {
    use BinaryOperator as B;
    match operator {
        B::Equal => B::NotEqual,
        B::NotEqual => B::Equal,
        B::Less => B::GreaterOrEqual,
        B::LessOrEqual => B::Greater,
        B::Greater => B::LessOrEqual,
        _ => B::Less,
    }
}
