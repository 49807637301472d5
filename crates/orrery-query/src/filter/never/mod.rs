//! Queries that no document can satisfy.
//!
//! The service's planner asks no range for them. It finds out from types (`c.a + 1` is never true) and from
//! contradictions between conditions (`c.a = 1 AND c.a > 5`, `c.a = 1 AND IS_STRING(c.a)`). A filter is taken apart
//! into alternatives; each gives every term it mentions, a path or an expression of paths, a set of values. An
//! alternative in which some set is empty is impossible. What is not understood restricts nothing, so a query may
//! be answered "possible" that is not, never the other way round.

mod cases;
mod predicates;
mod terms;
mod within;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use orrery_model::partition_key::KeyPart;

use self::cases::{Case, anything, both, either, is_consistent, nothing};
use self::predicates::Wanted;
use self::terms::path_term;
use self::within::is_opaque;
use super::types::{self, ARRAY, Scope, UNDEFINED};
use super::values::Values;
use crate::aggregate::Aggregate;
use crate::ast::{BinaryOperator, SubqueryKind};
use crate::program::{Block, DOCUMENT, Node, Program, Projection, Source, SourceRows, Step};

/// The maximum number of expressions analysed before a filter counts as possible.
const STEPS_MAX: usize = 4_000;
/// Keys beyond which a query is not restricted to them.
const KEYS_MAX: usize = 1_000;
/// The maximum number of names resolved in a row.
const RESOLVED_MAX: usize = 16;
/// The maximum depth of expressions analysed.
const DEPTH_MAX: usize = 24;

/// Which documents a query can return rows for, according to its text.
pub(crate) enum Verdict {
    /// None.
    Never,
    /// Those under these keys. A key with fewer parts than the container has paths is a prefix.
    Keys(Vec<Vec<KeyPart>>),
    Unknown,
}

/// Looks for contradictions, and for the partition keys that remain possible.
pub(crate) fn verdict(program: &Program, paths: &[Vec<Box<str>>]) -> Verdict {
    let solver = Solver {
        scope: Scope::default(),
        meanings: RefCell::default(),
        steps: Cell::new(0),
        depth: Cell::new(0),
    };
    let mut cases = solver.block(&program.block, true);
    cases.retain(is_consistent);
    // The analysis was cut short: what it did not see cannot be excluded.
    if solver.steps.get() >= STEPS_MAX {
        return Verdict::Unknown;
    }
    if cases.is_empty() {
        return Verdict::Never;
    }
    // What is possible is now known; the keys of those cases follow.
    let terms: Vec<String> = paths
        .iter()
        .map(|path| path_term(DOCUMENT, &path.iter().cloned().map(Step::Name).collect::<Vec<_>>()))
        .collect();
    let mut keys: Vec<Vec<KeyPart>> = Vec::new();
    for case in &cases {
        // Keys are hierarchical: the first path without single values ends the prefix.
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
        // One alternative without any key means all partitions, whatever the others say.
        if prefixes.iter().any(Vec::is_empty) {
            return Verdict::Unknown;
        }
        keys.extend(prefixes);
    }
    if keys.is_empty() || keys.len() > KEYS_MAX { Verdict::Unknown } else { Verdict::Keys(keys) }
}

struct Solver<'p> {
    scope: Scope,
    /// The expressions that slots stand for.
    meanings: RefCell<HashMap<usize, Meaning<'p>>>,
    steps: Cell<usize>,
    depth: Cell<usize>,
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
    pub(super) fn block(&self, block: &'p Block, outermost: bool) -> Vec<Case> {
        self.block_where(block, block.filter.as_ref(), outermost)
    }

    fn block_where(&self, block: &'p Block, filter: Option<&'p Node>, outermost: bool) -> Vec<Case> {
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
                    if outermost && inner.is_single_group() && self.block(inner, true).is_empty() {
                        // The service asks no range for what aggregates nothing.
                        return nothing();
                    }
                }
                SourceRows::Value(node) if source.iterate => {
                    cases = both(cases, &self.within(node, &Values::of_types(ARRAY)));
                }
                SourceRows::Value(node) => cases = both(cases, &self.within(node, &Values::defined())),
            }
        }
        if let Some(filter) = filter {
            cases = both(cases, &self.predicate(filter, Wanted::True));
        }
        // A row whose value is undefined is left out of the result, so SELECT VALUE restricts like a filter.
        match (&block.projection, &block.grouping) {
            (Projection::Value(node), Some(grouping))
                if grouping.keys.is_empty()
                    && needs_value(node)
                    && !grouping.aggregates.iter().any(|(aggregate, _)| is_extreme(*aggregate))
                    && self.scope.types(node) == UNDEFINED =>
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

    /// Follows names, members of literals and trivial subqueries to the expression that a node stands for; also returns
    /// the steps that remain to be taken from it.
    pub(super) fn resolve(&self, node: &'p Node) -> (&'p Node, Vec<Step>) {
        let (mut node, mut steps) = (node, Vec::new());
        for _ in 0..RESOLVED_MAX {
            let next = match node {
                Node::Slot(slot) => self.meaning(*slot, &mut steps),
                Node::Path { slot, steps: own } if self.meanings.borrow().contains_key(slot) => {
                    // The steps of the outer name come before those found further in.
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
                    // Undefined items are left out, so only with a single one is it certain which item this
                    // is.
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
                Node::Subquery { kind, block }
                    if is_scalar(*kind, block)
                        && block.sources.is_empty()
                        && block.filter.is_none()
                        && block.grouping.is_none() =>
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

    /// The cases in which a document changes one of the aggregates. If none can, the query returns what it would return
    /// without documents, so none need be visited.
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
                    // A condition that never holds is never counted.
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
        let extremes = is_value && aggregates.iter().all(|(aggregate, _)| is_extreme(*aggregate));
        // A subquery that always has one row is counted in any case; MIN and MAX of nothing are undefined.
        if left.is_empty() && over_one_row && !extremes { cases } else { left }
    }

    /// The cases in which a scalar subquery has one of these values.
    pub(super) fn rows(&self, block: &'p Block, values: &Values) -> Vec<Case> {
        let Some(grouping) = block.grouping.as_ref().filter(|grouping| grouping.keys.is_empty()) else {
            return self.block(block, false);
        };
        // MIN and MAX of nothing are undefined, so they have a value only if a row matches; COUNT always has one.
        if !matches!(&block.projection, Projection::Value(Node::Slot(_)))
            || !grouping.aggregates.iter().all(|(aggregate, _)| is_extreme(*aggregate))
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
        if let Some(filter) = &block.filter {
            cases = both(cases, &self.predicate(filter, Wanted::True));
        }
        match &grouping.aggregates[..] {
            // The least of them is one of them.
            [(_, argument)] => both(cases, &self.within(argument, values)),
            _ => cases,
        }
    }

    /// The cases in which a subquery has rows. To the service what its filter compares may still be undefined.
    pub(super) fn exists(&self, block: &'p Block) -> Vec<Case> {
        let (Some(filter), None) = (&block.filter, &block.grouping) else {
            return self.block(block, false);
        };
        self.learn(block);
        let mut filtered = self.predicate(filter, Wanted::True);
        for case in &mut filtered {
            case.values_mut().for_each(Values::add_undefined);
        }
        both(self.block_where(block, None, false), &filtered)
    }

    /// Analyses one level deeper, within the limits on depth and total work; beyond them nothing is restricted.
    pub(super) fn deeper(&self, look: impl FnOnce() -> Vec<Case>) -> Vec<Case> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() >= STEPS_MAX || self.depth.get() >= DEPTH_MAX {
            return anything();
        }
        self.depth.set(self.depth.get() + 1);
        let cases = look();
        self.depth.set(self.depth.get() - 1);
        cases
    }
}

fn is_extreme(aggregate: Aggregate) -> bool {
    matches!(aggregate, Aggregate::Min | Aggregate::Max)
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

/// Whether a subquery stands for one value. The service does not look into FIRST and LAST of several rows.
fn is_scalar(kind: SubqueryKind, block: &Block) -> bool {
    match kind {
        SubqueryKind::Scalar => true,
        SubqueryKind::First | SubqueryKind::Last => !block.many,
        _ => false,
    }
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
