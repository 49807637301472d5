//! Queries that no document can satisfy.
//!
//! The service's planner asks no range for them. It finds out from types (`c.a + 1` is never true) and from
//! contradictions between conditions (`c.a = 1 AND c.a > 5`, `c.a = 1 AND IS_STRING(c.a)`). A filter is taken apart
//! into alternatives; each gives every term it mentions, a path or an expression of paths, a set of values. An
//! alternative in which some set is empty is impossible. What is not understood restricts nothing, so a query may
//! be answered "possible" that is not, never the other way round.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use orrery_model::partition_key::KeyPart;
use orrery_model::{Object, Value};

use super::index::negated;
use super::types::{self, ARRAY, DEFINED, FALSE, NUMBER, OBJECT, STRING, Scope, TRUE, UNDEFINED};
use super::values::Values;
use crate::aggregate::Aggregate;
use crate::ast::{BinaryOperator, LogicalOperator, SubqueryKind, UnaryOperator};
use crate::program::{
    Block, DOCUMENT, FunctionCall, Members, Node, Program, Projection, Source, SourceRows, Step,
};

/// The maximum number of alternatives; beyond that a filter counts as possible.
const ALTERNATIVES_MAX: usize = 128;
/// The maximum number of expressions analysed before a filter counts as possible.
const STEPS_MAX: usize = 4_000;
/// The longest text that stands for a term.
const TERM_BYTES_MAX: usize = 1_000;
/// Keys beyond which a query is not restricted to them.
const KEYS_MAX: usize = 1_000;
/// Names that are followed to what they stand for.
const RESOLVED_MAX: usize = 16;
/// Levels of expressions that are looked into.
const DEPTH_MAX: usize = 24;

/// What one alternative says of each term.
type Case = BTreeMap<String, Values>;

/// Which documents a query can give rows for, as far as its text tells.
pub(crate) enum Verdict {
    /// None.
    Never,
    /// Those under these keys, fewer parts than paths standing for all keys that begin so.
    Keys(Vec<Vec<KeyPart>>),
    Unknown,
}

/// Looks for contradictions, and for the keys that are left.
pub(crate) fn verdict(program: &Program, paths: &[Vec<Box<str>>]) -> Verdict {
    let solver = Solver {
        scope: Scope::default(),
        meanings: RefCell::default(),
        steps: Cell::new(0),
        depth: Cell::new(0),
    };
    let mut cases = solver.block(&program.block, true);
    cases.retain(is_consistent);
    if solver.steps.get() >= STEPS_MAX {
        return Verdict::Unknown;
    }
    if cases.is_empty() {
        return Verdict::Never;
    }
    let terms: Vec<String> = paths
        .iter()
        .map(|path| path_term(DOCUMENT, &path.iter().cloned().map(Step::Name).collect::<Vec<_>>()))
        .collect();
    let mut keys: Vec<Vec<KeyPart>> = Vec::new();
    for case in &cases {
        let mut prefixes = vec![Vec::new()];
        for term in &terms {
            let Some(points) = case.get(term).and_then(Values::points) else {
                break;
            };
            prefixes = prefixes
                .iter()
                .flat_map(|prefix| {
                    points.iter().map(move |point| prefix.iter().chain([point]).cloned().collect::<Vec<_>>())
                })
                .collect();
            if prefixes.len() > KEYS_MAX {
                return Verdict::Unknown;
            }
        }
        if prefixes.iter().any(Vec::is_empty) {
            return Verdict::Unknown;
        }
        keys.extend(prefixes);
    }
    if keys.is_empty() || keys.len() > KEYS_MAX { Verdict::Unknown } else { Verdict::Keys(keys) }
}

struct Solver<'p> {
    scope: Scope,
    /// What slots stand for, where that is an expression.
    meanings: RefCell<HashMap<usize, Meaning<'p>>>,
    steps: Cell<usize>,
    depth: Cell<usize>,
}

/// What a condition is asked to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    True,
    False,
    /// False, undefined or no boolean at all.
    NotTrue,
}

fn anything() -> Vec<Case> {
    vec![Case::new()]
}

fn nothing() -> Vec<Case> {
    Vec::new()
}

/// Both at once.
fn both(left: Vec<Case>, right: &[Case]) -> Vec<Case> {
    if right.len() == 1 && right[0].is_empty() {
        return left;
    }
    let mut combined = Vec::new();
    for a in &left {
        'next: for b in right {
            let mut case = a.clone();
            for (term, values) in b {
                let met = case.get(term).map_or_else(|| values.clone(), |known| known.meet(values));
                if met.is_empty() {
                    continue 'next;
                }
                case.insert(term.clone(), met);
            }
            combined.push(case);
            if combined.len() > ALTERNATIVES_MAX {
                // Either side alone is still true.
                return left;
            }
        }
    }
    combined
}

fn either(mut left: Vec<Case>, right: Vec<Case>) -> Vec<Case> {
    left.extend(right);
    if left.len() > ALTERNATIVES_MAX || left.iter().any(BTreeMap::is_empty) { anything() } else { left }
}

/// What a slot stands for.
#[derive(Clone, Copy)]
enum Meaning<'p> {
    Expression(&'p Node),
    /// The rows of a subquery.
    Rows(&'p Block),
}

static ROOT: Node = Node::Slot(DOCUMENT);

impl<'p> Meaning<'p> {
    fn of(rows: &'p SourceRows) -> Self {
        match rows {
            SourceRows::Value(node) => Self::Expression(node),
            // `SELECT *` stands for what its input stands for.
            SourceRows::Subquery(inner) => match &inner.projection {
                Projection::Row(DOCUMENT) => Self::Expression(&ROOT),
                Projection::Row(slot) => {
                    let input = inner.sources.iter().find(|source| source.slot == *slot && !source.iterate);
                    input.map_or(Self::Rows(inner), |input| Self::of(&input.rows))
                }
                _ => Self::Rows(inner),
            },
        }
    }
}

impl<'p> Solver<'p> {
    fn block(&self, block: &'p Block, outermost: bool) -> Vec<Case> {
        self.learn(block);
        let mut cases = anything();
        // Without GROUP BY an aggregate gives a row even if no document matches.
        let single_group = block.grouping.as_ref().filter(|grouping| grouping.keys.is_empty());
        if single_group.is_some() && !outermost {
            return cases;
        }
        for source in &block.sources {
            match &source.rows {
                SourceRows::Subquery(inner) => {
                    let inner_cases = self.block(inner, false);
                    cases = both(cases, &inner_cases);
                }
                SourceRows::Value(node) if source.iterate => {
                    cases = both(cases, &self.within(node, &Values::of_types(ARRAY)));
                }
                SourceRows::Value(node) => cases = both(cases, &self.within(node, &Values::defined())),
            }
        }
        if let Some(filter) = &block.filter {
            cases = both(cases, &self.predicate(filter, Wanted::True));
        }
        match (&block.projection, &block.grouping) {
            (Projection::Value(node), Some(grouping))
                if grouping.keys.is_empty() && needs_value(node) && self.scope.types(node) == UNDEFINED =>
            {
                nothing()
            }
            (_, Some(grouping)) if grouping.keys.is_empty() => {
                self.counted(block, &grouping.aggregates, cases)
            }
            (Projection::Value(node), _) => both(cases, &self.within(node, &Values::defined())),
            _ => cases,
        }
    }

    fn learn(&self, block: &'p Block) {
        self.scope.enter(block);
        let mut meanings = self.meanings.borrow_mut();
        for source in block.sources.iter().filter(|source| !source.iterate) {
            meanings.insert(source.slot, Meaning::of(&source.rows));
        }
        if let Some(grouping) = &block.grouping {
            let keys = grouping.keys.iter().map(Meaning::Expression);
            meanings.extend(grouping.slots.iter().copied().zip(keys));
        }
    }

    /// The expression that a node stands for, and the steps that are taken from it.
    fn resolve(&self, node: &'p Node) -> (&'p Node, Vec<Step>) {
        let (mut node, mut steps) = (node, Vec::new());
        for _ in 0..RESOLVED_MAX {
            let next = match node {
                Node::Slot(slot) => self.meaning(*slot, &mut steps),
                Node::Path { slot, steps: own } if self.meanings.borrow().contains_key(slot) => {
                    steps.splice(0..0, own.iter().cloned());
                    self.meaning(*slot, &mut steps)
                }
                Node::Member { base, name } => {
                    steps.insert(0, Step::Name(name.clone()));
                    Some(&**base)
                }
                Node::Element { base, index } => {
                    steps.insert(0, Step::Index(*index));
                    Some(&**base)
                }
                Node::Object(members) => match steps.first() {
                    Some(Step::Name(wanted)) => {
                        let found = members.iter().find(|(name, _)| name == wanted).map(|(_, node)| node);
                        if found.is_some() {
                            steps.remove(0);
                        }
                        found
                    }
                    _ => None,
                },
                Node::Array(items) => match (steps.first(), &items[..]) {
                    (Some(Step::Index(0)), [only]) => {
                        steps.remove(0);
                        Some(only)
                    }
                    _ => None,
                },
                Node::Let { slot, value, body } => {
                    self.meanings.borrow_mut().insert(*slot, Meaning::Expression(value));
                    Some(&**body)
                }
                Node::Subquery { kind: SubqueryKind::Scalar, block }
                    if block.sources.is_empty() && block.filter.is_none() && block.grouping.is_none() =>
                {
                    projected(block, &mut steps)
                }
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        (node, steps)
    }

    fn meaning(&self, slot: usize, steps: &mut Vec<Step>) -> Option<&'p Node> {
        let meaning = self.meanings.borrow().get(&slot).copied();
        match meaning? {
            Meaning::Expression(node) => Some(node),
            Meaning::Rows(block) => projected(block, steps),
        }
    }

    /// The cases that are left if a document must change one of the aggregates: what counts nothing gives what no
    /// documents give.
    fn counted(&self, block: &'p Block, aggregates: &'p [(Aggregate, Node)], cases: Vec<Case>) -> Vec<Case> {
        let one_row = |source: &Source| match &source.rows {
            SourceRows::Subquery(inner) => {
                inner.grouping.as_ref().is_some_and(|grouping| grouping.keys.is_empty())
            }
            SourceRows::Value(_) => false,
        };
        if aggregates.is_empty() {
            return cases;
        }
        let is_value = matches!(&block.projection, Projection::Value(node) if needs_value(node));
        let over_one_row = block.sources.iter().any(one_row);
        let mut left = nothing();
        for (aggregate, argument) in aggregates {
            let changing = match aggregate {
                Aggregate::CountIf => {
                    let holds = both(cases.clone(), &self.predicate(argument, Wanted::True));
                    if holds.is_empty() { holds } else { cases.clone() }
                }
                Aggregate::Min | Aggregate::Max if !is_value => return cases,
                Aggregate::Count | Aggregate::Min | Aggregate::Max => {
                    both(cases.clone(), &self.within(argument, &Values::defined()))
                }
                _ => return cases,
            };
            left = either(left, changing);
        }
        let extremes = is_value
            && aggregates.iter().all(|(aggregate, _)| matches!(aggregate, Aggregate::Min | Aggregate::Max));
        // One row gives a count in any case, the least and the greatest of nothing are undefined.
        if left.is_empty() && over_one_row && !extremes { cases } else { left }
    }

    /// The cases in which a condition is as wanted.
    fn predicate(&self, node: &'p Node, wanted: Wanted) -> Vec<Case> {
        self.deeper(|| self.predicate_of(node, wanted))
    }

    /// Goes one level down, but not too far, nor on for too long.
    fn deeper(&self, look: impl FnOnce() -> Vec<Case>) -> Vec<Case> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() >= STEPS_MAX || self.depth.get() >= DEPTH_MAX {
            return anything();
        }
        self.depth.set(self.depth.get() + 1);
        let cases = look();
        self.depth.set(self.depth.get() - 1);
        cases
    }

    fn predicate_of(&self, node: &'p Node, wanted: Wanted) -> Vec<Case> {
        let (node, steps) = match self.resolve(node) {
            (found, steps) if steps.is_empty() => (found, steps),
            _ => (node, Vec::new()),
        };
        debug_assert!(steps.is_empty());
        let types = self.scope.types(node);
        let possible = match wanted {
            Wanted::True => types & TRUE != 0,
            Wanted::False => types & FALSE != 0,
            Wanted::NotTrue => types & !TRUE != 0,
        };
        if !possible {
            return nothing();
        }
        match node {
            Node::Unary { operator: UnaryOperator::Not, operand } => match wanted {
                Wanted::True => self.predicate(operand, Wanted::False),
                Wanted::False => self.predicate(operand, Wanted::True),
                Wanted::NotTrue => anything(),
            },
            Node::Logical { operator, operands } => self.logical(*operator, operands, wanted),
            Node::Conditional(parts) => self.conditional(&parts[..], |part| self.predicate(part, wanted)),
            Node::Call(call) if call.function.name == "IIF" && call.arguments.len() == 3 => {
                self.conditional(&call.arguments, |part| self.predicate(part, wanted))
            }
            Node::Binary { operator, left, right } if operator.is_comparison() => match wanted {
                Wanted::True => self.comparison(*operator, left, right),
                Wanted::False => self.comparison(negated(*operator), left, right),
                Wanted::NotTrue => anything(),
            },
            Node::Binary { operator: BinaryOperator::Coalesce, left, right } => {
                let given = both(self.within(left, &Values::defined()), &self.predicate(left, wanted));
                let missing =
                    both(self.within(left, &Values::of_types(UNDEFINED)), &self.predicate(right, wanted));
                either(given, missing)
            }
            Node::Between { not, operands } if wanted != Wanted::NotTrue => {
                let inside = *not != (wanted == Wanted::True);
                let [value, low, high] = &**operands;
                if inside {
                    let from = self.comparison(BinaryOperator::GreaterOrEqual, value, low);
                    both(from, &self.comparison(BinaryOperator::LessOrEqual, value, high))
                } else {
                    let below = self.comparison(BinaryOperator::Less, value, low);
                    either(below, self.comparison(BinaryOperator::Greater, value, high))
                }
            }
            Node::In { not, operand, members } if wanted != Wanted::NotTrue => {
                self.membership(operand, members, *not != (wanted == Wanted::True))
            }
            Node::Like { not, operands, pattern, .. } if wanted != Wanted::NotTrue => {
                let strings = Values::of_types(STRING);
                let defined = both(self.within(&operands[0], &strings), &self.within(&operands[1], &strings));
                match pattern.as_ref().map(crate::like::Pattern::prefix) {
                    Some((prefix, _)) if *not != (wanted == Wanted::True) => {
                        let literal = pattern.as_ref().is_some_and(crate::like::Pattern::is_literal);
                        let values = if literal {
                            Values::one_of(std::iter::once(&Value::from(prefix.as_str())))
                        } else {
                            Values::with_prefix(&prefix)
                        };
                        both(defined, &self.within(&operands[0], &values))
                    }
                    _ => defined,
                }
            }
            Node::Call(call) if wanted != Wanted::NotTrue => self.call(node, call, wanted == Wanted::True),
            Node::Subquery { kind: SubqueryKind::Exists, block } if wanted == Wanted::True => {
                self.block(block, false)
            }
            Node::Subquery { kind: SubqueryKind::Exists, .. } => anything(),
            _ => {
                let values = match wanted {
                    Wanted::True => Values::of_types(TRUE),
                    Wanted::False => Values::of_types(FALSE),
                    Wanted::NotTrue => Values::of_types(!TRUE),
                };
                self.within(node, &values)
            }
        }
    }

    fn logical(&self, operator: LogicalOperator, operands: &'p [Node], wanted: Wanted) -> Vec<Case> {
        if wanted == Wanted::NotTrue {
            return anything();
        }
        let all = (operator == LogicalOperator::And) == (wanted == Wanted::True);
        if all {
            let mut cases = anything();
            for operand in operands {
                cases = both(cases, &self.predicate(operand, wanted));
                if cases.is_empty() {
                    return cases;
                }
            }
            return cases;
        }
        let mut cases = nothing();
        for operand in operands {
            cases = either(cases, self.predicate(operand, wanted));
        }
        cases
    }

    fn conditional(&self, parts: &'p [Node], then: impl Fn(&'p Node) -> Vec<Case>) -> Vec<Case> {
        let chosen = both(self.predicate(&parts[0], Wanted::True), &then(&parts[1]));
        either(chosen, both(self.predicate(&parts[0], Wanted::NotTrue), &then(&parts[2])))
    }

    fn comparison(&self, operator: BinaryOperator, left: &'p Node, right: &'p Node) -> Vec<Case> {
        match (left, right) {
            (Node::Constant(None), _) | (_, Node::Constant(None)) => nothing(),
            (Node::Constant(Some(a)), Node::Constant(Some(b))) => {
                match crate::operator::binary(operator, a, b) {
                    Some(Value::Bool(true)) => anything(),
                    _ => nothing(),
                }
            }
            (term, Node::Constant(Some(value))) => self.compared(term, operator, value),
            (Node::Constant(Some(value)), term) => {
                self.compared(term, super::index::mirrored(operator), value)
            }
            _ => {
                // What can only be one value is that value.
                for (term, other, operator) in
                    [(left, right, operator), (right, left, super::index::mirrored(operator))]
                {
                    let only = match self.scope.types(other) {
                        types::NULL => Value::Null,
                        FALSE => Value::Bool(false),
                        TRUE => Value::Bool(true),
                        _ => continue,
                    };
                    return self.compared_any(term, operator, &only);
                }
                self.related(operator, left, right)
            }
        }
    }

    fn compared_any(&self, node: &'p Node, operator: BinaryOperator, value: &Value) -> Vec<Case> {
        match node {
            Node::Constant(None) => nothing(),
            Node::Constant(Some(constant)) => match crate::operator::binary(operator, constant, value) {
                Some(Value::Bool(true)) => anything(),
                _ => nothing(),
            },
            _ => self.compared(node, operator, value),
        }
    }

    /// Where a term stands so to a value.
    fn compared(&self, term: &'p Node, operator: BinaryOperator, value: &Value) -> Vec<Case> {
        if let Node::Binary { operator: BinaryOperator::Coalesce, left, right } = term {
            let given = self.compared(left, operator, value);
            let missing = both(
                self.within(left, &Values::of_types(UNDEFINED)),
                &self.compared_any(right, operator, value),
            );
            return either(given, missing);
        }
        if let Node::Conditional(parts) = term {
            return self.conditional(&parts[..], |part| self.compared_any(part, operator, value));
        }
        if let (Value::Bool(flag), BinaryOperator::Equal | BinaryOperator::NotEqual) = (value, operator)
            && self.scope.types(term) & !(TRUE | FALSE | UNDEFINED) == 0
        {
            let wanted = *flag == (operator == BinaryOperator::Equal);
            return self.predicate(term, if wanted { Wanted::True } else { Wanted::False });
        }
        if operator == BinaryOperator::Equal {
            if outside_image(term, value) {
                return nothing();
            }
            if let (Node::Unary { operator: UnaryOperator::Minus, operand }, Value::Number(number)) =
                (term, value)
            {
                return self.compared_any(operand, operator, &Value::from(-number.as_f64()));
            }
        }
        let cases = self.within(term, &Values::compared(operator, value));
        match value {
            Value::Object(object) if operator == BinaryOperator::Equal => {
                both(cases, &self.members_are(term, object))
            }
            _ => cases,
        }
    }

    /// The cases in which a path has these members, of which the service derives those without parts.
    fn members_are(&self, term: &'p Node, object: &Object) -> Vec<Case> {
        let (node, steps) = self.resolve(term);
        let (slot, own) = match node {
            Node::Slot(slot) => (*slot, &[][..]),
            Node::Path { slot, steps } => (*slot, &steps[..]),
            _ => return anything(),
        };
        let base: Vec<Step> = own.iter().cloned().chain(steps).collect();
        let plain = object.iter().filter(|(_, value)| !matches!(value, Value::Array(_) | Value::Object(_)));
        plain.fold(anything(), |cases, (name, value)| {
            let path: Vec<Step> = base.iter().cloned().chain([Step::Name(name.into())]).collect();
            let values = Values::one_of(std::iter::once(value));
            both(cases, &[Case::from([(path_term(slot, &path), values)])])
        })
    }

    /// Two terms that stand so to each other.
    fn related(&self, operator: BinaryOperator, left: &'p Node, right: &'p Node) -> Vec<Case> {
        use BinaryOperator as B;
        let (a, b) = (self.scope.types(left), self.scope.types(right));
        let ordered = !matches!(operator, B::Equal | B::NotEqual);
        if matches!(left, Node::Udf { .. }) || matches!(right, Node::Udf { .. }) {
            return anything();
        }
        if ordered && !types::comparable(a, b) && !is_choice(left) && !is_choice(right) {
            return nothing();
        }
        if matches!(operator, B::NotEqual | B::Less | B::Greater)
            && let (Some(a), Some(b)) = (self.term(left), self.term(right))
            && a == b
        {
            return nothing();
        }
        let defined = Values::defined();
        let mut cases = anything();
        for side in [left, right] {
            // The service does not look at the path in a function of numbers here.
            let numeric = matches!(side, Node::Call(call) if types::signature(call.function.name).0 == [NUMBER]
                && matches!(call.arguments[..], [Node::Path { .. } | Node::Slot(_)])
                && call.function.name != "ABS");
            if !numeric {
                cases = both(cases, &self.within(side, &defined));
            }
        }
        if operator == B::Equal {
            for side in [left, right] {
                let parts: Vec<&'p Node> = match side {
                    Node::Array(items) => items.iter().collect(),
                    Node::Object(members) => members.iter().map(|(_, node)| node).collect(),
                    _ => continue,
                };
                for part in parts {
                    cases = both(cases, &self.within(part, &defined));
                }
            }
        }
        cases
    }

    fn membership(&self, operand: &'p Node, members: &'p Members, inside: bool) -> Vec<Case> {
        match members {
            Members::Constant { values, .. } => {
                let listed = Values::one_of(values.iter().filter(|value| !outside_image(operand, value)));
                let values = if inside { listed } else { listed.complement().meet(&Values::defined()) };
                self.within(operand, &values)
            }
            Members::Computed(nodes) if inside => {
                let found = nodes.iter().map(|node| self.comparison(BinaryOperator::Equal, operand, node));
                found.fold(nothing(), either)
            }
            Members::Computed(_) => self.within(operand, &Values::defined()),
        }
    }

    fn call(&self, node: &'p Node, call: &'p FunctionCall, holds: bool) -> Vec<Case> {
        let name = call.function.name;
        if let (Some(checked), [value]) = (types::checked_types(name), &call.arguments[..]) {
            let exact = !matches!(name, "IS_INTEGER" | "IS_FINITE_NUMBER" | "IS_DATETIME");
            return match (holds, exact) {
                (true, _) => self.within(value, &Values::of_types(checked)),
                (false, true) => self.within(value, &Values::of_types(!checked)),
                (false, false) => anything(),
            };
        }
        let own = self.within(node, &Values::of_types(if holds { TRUE } else { FALSE }));
        let constant = |place: usize| match call.arguments.get(place) {
            Some(Node::Constant(Some(value))) => Some(value),
            _ => None,
        };
        let exact = matches!(call.arguments.get(2), None | Some(Node::Constant(Some(Value::Bool(false)))));
        if let ("CONTAINS" | "ENDSWITH" | "STARTSWITH" | "STRINGEQUALS", true, Some(value)) =
            (name, holds && exact, constant(1))
            && outside_image(&call.arguments[0], value)
        {
            return nothing();
        }
        let further = match (name, call.arguments.len()) {
            ("STARTSWITH", 2) if holds => constant(1).and_then(Value::as_str).map(Values::with_prefix),
            ("STRINGEQUALS", 2) => constant(1).map(|value| {
                let equal = Values::one_of(std::iter::once(value));
                if holds { equal } else { equal.complement().meet(&Values::of_types(STRING)) }
            }),
            ("ARRAY_CONTAINS", 2 | 3) => {
                // Only objects can be contained in part.
                let in_part = call.arguments.len() > 2;
                let is_plain = |value: &Value| !matches!(value, Value::Array(_) | Value::Object(_));
                if let Some(Value::Array(listed)) = constant(0)
                    && (!in_part || (holds && listed.iter().all(is_plain)))
                {
                    let wanted = &call.arguments[1];
                    let listed = Values::one_of(listed.iter().filter(|value| !outside_image(wanted, value)));
                    let values = if holds { listed } else { listed.complement() };
                    return both(own, &self.within(wanted, &values));
                }
                None
            }
            _ => None,
        };
        match further {
            Some(values) => both(own, &self.within(&call.arguments[0], &values)),
            None => own,
        }
    }

    /// The cases in which the value of an expression is one of these.
    fn within(&self, node: &'p Node, values: &Values) -> Vec<Case> {
        self.deeper(|| self.within_of(node, values))
    }

    fn within_of(&self, node: &'p Node, values: &Values) -> Vec<Case> {
        let values = values.meet(&Values::of_types(self.scope.types(node)));
        if values.is_empty() {
            return nothing();
        }
        let defined = !values.has_undefined();
        let (node, steps) = self.resolve(node);
        if let Node::Slot(slot) | Node::Path { slot, .. } = node {
            let own = if let Node::Path { steps, .. } = node { &steps[..] } else { &[] };
            let steps: Vec<Step> = own.iter().cloned().chain(steps).collect();
            return path_cases(*slot, &steps, values, defined);
        }
        if !steps.is_empty() {
            return anything();
        }
        let mut cases = match self.term(node) {
            Some(term) => vec![Case::from([(term, values.clone())])],
            None => anything(),
        };
        match node {
            Node::Conditional(parts) => {
                return both(cases, &self.conditional(&parts[..], |part| self.within(part, &values)));
            }
            Node::Binary { operator: BinaryOperator::Coalesce, left, right } => {
                let given = self.within(left, &values.meet(&Values::defined()));
                let missing =
                    both(self.within(left, &Values::of_types(UNDEFINED)), &self.within(right, &values));
                return both(cases, &either(given, missing));
            }
            _ if !defined => return cases,
            Node::Logical { .. } => {
                let truth = self.predicate(node, Wanted::True);
                return either(truth, self.predicate(node, Wanted::False));
            }
            Node::Call(call) if is_opaque(call.function.name) => {
                for argument in call.arguments.iter().filter(|node| !matches!(node, Node::Constant(_))) {
                    cases = both(cases, &self.within(argument, &Values::defined()));
                }
            }
            Node::Call(call) if is_choice(node) => {
                let (number, choices) = call.arguments.split_first().expect("CHOOSE takes two arguments");
                let chosen = choices.iter().map(|choice| self.within(choice, &values));
                cases = both(cases, &self.within(number, &Values::of_types(NUMBER)));
                cases = both(cases, &chosen.fold(nothing(), either));
            }
            // A call has a value only if its arguments have the types it takes.
            Node::Call(call) => {
                let (wanted, _) = types::signature(call.function.name);
                for (place, argument) in call.arguments.iter().enumerate() {
                    let wanted = wanted.get(place).or(wanted.last()).copied().unwrap_or(types::ANY);
                    if wanted != types::ANY && !matches!(argument, Node::Constant(_)) {
                        cases = both(cases, &self.within(argument, &Values::of_types(wanted)));
                    }
                }
            }
            Node::Unary { operator, operand } if *operator != UnaryOperator::Not => {
                cases = both(cases, &self.within(operand, &Values::of_types(NUMBER)));
            }
            Node::Unary { operand, .. } => {
                cases = both(cases, &self.within(operand, &Values::of_types(TRUE | FALSE)));
            }
            Node::Binary { operator, left, right } if operator.is_comparison() => {
                let ordered = !matches!(operator, BinaryOperator::Equal | BinaryOperator::NotEqual);
                for (side, other) in [(left, right), (right, left)] {
                    let types = match &**other {
                        Node::Constant(value) if ordered => {
                            types::comparable_to(types::of_value(value.as_ref()))
                        }
                        _ => DEFINED,
                    };
                    if !matches!(**side, Node::Constant(_)) {
                        cases = both(cases, &self.within(side, &Values::of_types(types)));
                    }
                }
            }
            Node::Binary { operator, left, right } => {
                let kind = if *operator == BinaryOperator::Concat { STRING } else { NUMBER };
                for side in [left, right] {
                    if !matches!(**side, Node::Constant(_)) {
                        cases = both(cases, &self.within(side, &Values::of_types(kind)));
                    }
                }
            }
            Node::Subquery { kind: SubqueryKind::Scalar, block } => {
                cases = both(cases, &self.rows(block));
            }
            _ => {}
        }
        cases
    }

    /// The cases in which a scalar subquery has a value.
    fn rows(&self, block: &'p Block) -> Vec<Case> {
        let Some(grouping) = block.grouping.as_ref().filter(|grouping| grouping.keys.is_empty()) else {
            return self.block(block, false);
        };
        // The least and the greatest of nothing are undefined.
        let extremes =
            |(aggregate, _): &(Aggregate, Node)| matches!(aggregate, Aggregate::Min | Aggregate::Max);
        if !matches!(&block.projection, Projection::Value(Node::Slot(_)))
            || !grouping.aggregates.iter().all(extremes)
        {
            return anything();
        }
        self.learn(block);
        let mut cases = anything();
        for source in &block.sources {
            if let (SourceRows::Value(node), true) = (&source.rows, source.iterate) {
                cases = both(cases, &self.within(node, &Values::of_types(ARRAY)));
            }
        }
        match &block.filter {
            Some(filter) => both(cases, &self.predicate(filter, Wanted::True)),
            None => cases,
        }
    }

    /// A name for an expression that has one value per row.
    #[expect(clippy::unused_self, reason = "reads beside the others")]
    fn term(&self, node: &Node) -> Option<String> {
        match node {
            Node::Slot(slot) => Some(path_term(*slot, &[])),
            Node::Path { slot, steps } => Some(path_term(*slot, steps)),
            Node::Udf { .. } | Node::Subquery { .. } | Node::Let { .. } => None,
            _ => {
                let mut text = String::new();
                write_term(node, &mut text).then_some(text)
            }
        }
    }
}

/// The cases in which the value at a path is one of these. What a property is taken from is an object, and an
/// element's is an array.
fn path_cases(slot: usize, steps: &[Step], values: Values, defined: bool) -> Vec<Case> {
    let mut cases = vec![Case::from([(path_term(slot, steps), values)])];
    if defined {
        for (count, step) in steps.iter().enumerate() {
            let kind = if matches!(step, Step::Name(_)) { OBJECT } else { ARRAY };
            let base = Case::from([(path_term(slot, &steps[..count]), Values::of_types(kind))]);
            cases = both(cases, &[base]);
        }
    }
    cases
}

/// Whether the value of an aggregate decides that an expression has one.
fn needs_value(node: &Node) -> bool {
    match node {
        Node::Slot(_) => true,
        Node::Unary { operand, .. } => needs_value(operand),
        Node::Binary { operator, left, right } => {
            *operator != BinaryOperator::Coalesce && (needs_value(left) || needs_value(right))
        }
        Node::Call(call) if !is_opaque(call.function.name) => {
            let (wanted, _) = types::signature(call.function.name);
            wanted.iter().all(|types| types & UNDEFINED == 0) && call.arguments.iter().any(needs_value)
        }
        _ => false,
    }
}

fn is_choice(node: &Node) -> bool {
    matches!(node, Node::Call(call) if call.function.name == "CHOOSE" && call.arguments.len() > 1)
}

/// Whether what is said of an array or object agrees with what is said of its own elements and members.
fn is_consistent(case: &Case) -> bool {
    case.iter().all(|(term, values)| {
        let Some(listed) = values.only_containers() else {
            return true;
        };
        let parts: Vec<(&str, &Values)> = case
            .iter()
            .filter_map(|(other, values)| Some((other.strip_prefix(term.as_str())?, values)))
            .filter(|(step, _)| !step.is_empty())
            .collect();
        parts.is_empty()
            || listed.iter().any(|value| parts.iter().all(|(step, wanted)| fits(value, step, wanted)))
    })
}

/// Whether the part of a value under one step may be among these. Longer ways are not followed.
fn fits(value: &Value, step: &str, wanted: &Values) -> bool {
    let part = match value {
        Value::Object(object) if step.starts_with('.') => {
            object.iter().find_map(|(name, value)| (path_step(name) == step).then_some(value))
        }
        Value::Array(items) if step.starts_with('[') => {
            let index = step[1..].strip_suffix(']').and_then(|index| index.parse::<usize>().ok());
            match index {
                Some(index) => items.get(index),
                None => return true,
            }
        }
        _ => None,
    };
    match part {
        Some(part) => !wanted.meet(&Values::one_of(std::iter::once(part))).is_empty(),
        None => wanted.has_undefined() || is_long(step),
    }
}

fn path_step(name: &str) -> String {
    format!(".{name:?}")
}

/// Whether a way has more than one step, as far as that is easily told.
fn is_long(step: &str) -> bool {
    step.contains("\".") || step.contains("\"[") || step.contains("][") || step.contains("].")
}

/// Whether the service does not reason from the value of a function back to its arguments.
fn is_opaque(name: &str) -> bool {
    name.starts_with("STRINGTO") || name == "OBJECTTOARRAY"
}

/// What a subquery selects, as far as these steps lead into it.
fn projected<'p>(block: &'p Block, steps: &mut Vec<Step>) -> Option<&'p Node> {
    match &block.projection {
        Projection::Value(node) => Some(node),
        Projection::Columns(columns) => {
            let Some(Step::Name(wanted)) = steps.first() else {
                return None;
            };
            let found = columns.iter().find(|(name, _)| name == wanted).map(|(_, node)| node)?;
            steps.remove(0);
            Some(found)
        }
        Projection::Row(_) => None,
    }
}

fn path_term(slot: usize, steps: &[Step]) -> String {
    let mut text = format!("{slot}");
    for step in steps {
        // Writing to a String cannot fail.
        let _ = match step {
            Step::Name(name) => write!(text, "{}", path_step(name)),
            Step::Index(index) => write!(text, "[{index}]"),
        };
    }
    text
}

/// Writes an expression so that the same one gives the same text. False: its value may differ within a row, or it is
/// too long to be worth it.
fn write_term(node: &Node, text: &mut String) -> bool {
    if text.len() > TERM_BYTES_MAX {
        return false;
    }
    let list = |name: &str, nodes: &[&Node], text: &mut String| {
        text.push_str(name);
        text.push('(');
        let all = nodes.iter().all(|node| {
            let fine = write_term(node, text);
            text.push(',');
            fine
        });
        text.push(')');
        all
    };
    match node {
        Node::Constant(value) => {
            let _ = write!(text, "{value:?}");
            true
        }
        Node::Slot(slot) => {
            text.push_str(&path_term(*slot, &[]));
            true
        }
        Node::Path { slot, steps } => {
            text.push_str(&path_term(*slot, steps));
            true
        }
        Node::Member { base, name } => list(&format!(".{name:?}"), &[base], text),
        Node::Element { base, index } => list(&format!("[{index}]"), &[base], text),
        Node::Unary { operator, operand } => list(&format!("{operator:?}"), &[operand], text),
        Node::Binary { operator, left, right } => list(&format!("{operator:?}"), &[left, right], text),
        Node::Array(items) => list("Array", &items.iter().collect::<Vec<_>>(), text),
        Node::Call(call) => {
            let varies = crate::functions::NOT_DETERMINISTIC.contains(&call.function.name);
            !varies && list(call.function.name, &call.arguments.iter().collect::<Vec<_>>(), text)
        }
        _ => false,
    }
}

/// Whether a function never gives this value: ABS nothing negative, UPPER nothing in small letters.
fn outside_image(term: &Node, value: &Value) -> bool {
    let Node::Call(call) = term else {
        return false;
    };
    match (call.function.name, value) {
        ("ABS", Value::Number(number)) => number.as_f64() < 0.0,
        // Letters without a single counterpart stay as they are.
        ("UPPER", Value::String(text)) => {
            text.chars().any(|c| c.is_lowercase() && c.to_uppercase().len() == 1)
        }
        ("LOWER", Value::String(text)) => {
            text.chars().any(|c| c.is_uppercase() && c.to_lowercase().len() == 1)
        }
        _ => false,
    }
}
