//! The partition key values a filter names.

use orrery_model::Value;
use orrery_model::partition_key::{KeyPart, PartitionKey, PartitionKeyDefinition};

use super::{PathStep, Slots};
use crate::ast::{BinaryOperator, LogicalOperator, SubqueryKind, UnaryOperator};
use crate::program::{Block, FunctionCall, Members, Node, Program, Source, SourceRows};

/// Alternatives that are followed one by one; beyond, the filter counts as naming no key.
const ALTERNATIVES_MAX: usize = 2_000;

/// Where matching documents can be.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyRestriction {
    /// Anywhere.
    All,
    /// Nowhere: the filter contradicts itself, or nothing is read.
    None,
    /// Under these keys only, sorted; fewer parts than paths name all keys that begin so.
    Keys(Vec<PartitionKey>),
}

/// Which partition keys the documents that a query wants can have.
pub fn key_restriction(program: &Program, definition: &PartitionKeyDefinition) -> KeyRestriction {
    if !program.reads_documents {
        return KeyRestriction::None;
    }
    let paths = definition.paths().iter().map(|path| path.segments().to_vec()).collect();
    let keys = Keys { paths };
    let mut slots = Slots::of(&program.block);
    restriction(keys.block(&program.block, &mut slots, true))
}

/// For some properties, the values that documents which a query wants can have: alternatives, each of which
/// fixes some of them. Nothing if the query reads no documents or does not restrict them.
pub fn fixed_values(program: &Program, paths: Vec<Vec<Box<str>>>) -> Option<Vec<Vec<Option<KeyPart>>>> {
    if !program.reads_documents {
        return None;
    }
    let keys = Keys { paths };
    let mut slots = Slots::of(&program.block);
    let alternatives = keys.block(&program.block, &mut slots, true);
    let fixes_nothing = |alternative: &Vec<Option<KeyPart>>| alternative.iter().all(Option::is_none);
    (!alternatives.iter().any(fixes_nothing)).then_some(alternatives)
}

struct Keys {
    paths: Vec<Vec<Box<str>>>,
}

/// Alternatives; each fixes some of the paths. One that fixes none means everything.
type Alternatives = Vec<Vec<Option<KeyPart>>>;

impl Keys {
    fn everything(&self) -> Alternatives {
        vec![vec![None; self.paths.len()]]
    }

    fn either(&self, mut left: Alternatives, right: Alternatives) -> Alternatives {
        left.extend(right);
        left.sort_unstable();
        left.dedup();
        if left.len() > ALTERNATIVES_MAX { self.everything() } else { left }
    }

    /// Where documents can be for which the block gives rows.
    fn block(&self, block: &Block, slots: &mut Slots, outermost: bool) -> Alternatives {
        let mut found = self.everything();
        // Without GROUP BY an aggregate gives a row even if no document matches.
        let gives_rows_anyway = block.grouping.as_ref().is_some_and(|grouping| grouping.keys.is_empty());
        if gives_rows_anyway && !outermost {
            return found;
        }
        for (index, Source { rows, .. }) in block.sources.iter().enumerate() {
            if let SourceRows::Subquery(inner) = rows {
                slots.extend(inner);
                let collected = outermost && index == 0 && block.collects_first;
                let inner = self.block(inner, slots, collected);
                found = both(&found, &inner);
            }
        }
        if let Some(filter) = &block.filter {
            found = both(&found, &self.predicate(filter, true, slots));
        }
        found
    }

    /// Where documents can be for which the expression is exactly `wanted`.
    fn predicate(&self, node: &Node, wanted: bool, slots: &mut Slots) -> Alternatives {
        match node {
            Node::Constant(Some(Value::Bool(flag))) if *flag == wanted => self.everything(),
            Node::Constant(_) => Alternatives::new(),
            Node::Path { .. } | Node::Slot(_) => self.points(node, [&Value::Bool(wanted)].into_iter(), slots),
            Node::Unary { operator: UnaryOperator::Not, operand } => self.predicate(operand, !wanted, slots),
            Node::Logical { operator, operands } => {
                let all = (*operator == LogicalOperator::And) == wanted;
                let mut operands = operands.iter();
                let first = operands
                    .next()
                    .map_or_else(|| self.everything(), |node| self.predicate(node, wanted, slots));
                operands.fold(first, |found, node| {
                    let next = self.predicate(node, wanted, slots);
                    if all { both(&found, &next) } else { self.either(found, next) }
                })
            }
            Node::Binary { operator, left, right } if operator.is_comparison() => {
                self.comparison(*operator, left, right, wanted, slots)
            }
            Node::In { not, operand, members: Members::Constant { values, .. } } if *not != wanted => {
                self.points(operand, values.iter(), slots)
            }
            Node::Call(call) if wanted => self.call(call, slots),
            Node::Subquery { kind: SubqueryKind::Exists, block } if wanted => {
                slots.extend(block);
                self.block(block, slots, false)
            }
            _ => self.everything(),
        }
    }

    fn comparison(
        &self,
        operator: BinaryOperator,
        left: &Node,
        right: &Node,
        wanted: bool,
        slots: &mut Slots,
    ) -> Alternatives {
        let equal = match operator {
            BinaryOperator::Equal => wanted,
            BinaryOperator::NotEqual => !wanted,
            _ => false,
        };
        let mut found = match (left, right) {
            (Node::Constant(None), _) | (_, Node::Constant(None)) => return Alternatives::new(),
            (path, Node::Constant(Some(value))) | (Node::Constant(Some(value)), path) if equal => {
                self.points(path, [value].into_iter(), slots)
            }
            _ => self.everything(),
        };
        // A comparison holds or fails only where both sides are defined, and a scalar subquery is
        // defined only where it gives a row.
        for side in [left, right] {
            if let Node::Subquery { kind: SubqueryKind::Scalar, block } = side {
                slots.extend(block);
                found = both(&found, &self.block(block, slots, false));
            }
        }
        found
    }

    fn call(&self, call: &FunctionCall, slots: &mut Slots) -> Alternatives {
        match (call.function.name, &call.arguments[..]) {
            ("IS_NULL", [path]) => self.points(path, [&Value::Null].into_iter(), slots),
            ("IS_BOOL", [path]) => {
                self.points(path, [&Value::Bool(false), &Value::Bool(true)].into_iter(), slots)
            }
            ("ARRAY_CONTAINS", [Node::Constant(Some(Value::Array(values))), path]) => {
                self.points(path, values.iter(), slots)
            }
            _ => self.everything(),
        }
    }

    /// Where the path has one of these values, if it is a path of the key.
    fn points<'v>(
        &self,
        node: &Node,
        values: impl Iterator<Item = &'v Value>,
        slots: &Slots,
    ) -> Alternatives {
        let path = slots.path(node);
        // Paths with fixed indexes are never key paths: those go through objects only.
        let indexed = matches!(node, Node::Path { steps, .. } if steps.iter().any(|step| matches!(step, crate::program::Step::Index(_))));
        let place = path.filter(|_| !indexed).and_then(|path| {
            self.paths.iter().position(|key| {
                key.len() == path.0.len()
                    && key
                        .iter()
                        .zip(&path.0)
                        .all(|(name, step)| matches!(step, PathStep::Name(step) if step == name))
            })
        });
        let Some(place) = place else {
            return self.everything();
        };
        let mut alternatives = Alternatives::new();
        for value in values {
            let mut parts = vec![None; self.paths.len()];
            parts[place] = Some(key_part(value));
            alternatives.push(parts);
            if alternatives.len() > ALTERNATIVES_MAX {
                return self.everything();
            }
        }
        alternatives.sort_unstable();
        alternatives.dedup();
        alternatives
    }
}

fn restriction(alternatives: Alternatives) -> KeyRestriction {
    if alternatives.is_empty() {
        return KeyRestriction::None;
    }
    let mut keys = Vec::with_capacity(alternatives.len());
    for alternative in alternatives {
        let prefix: Vec<KeyPart> = alternative.into_iter().map_while(|part| part).collect();
        if prefix.is_empty() {
            return KeyRestriction::All;
        }
        keys.push(PartitionKey::new(prefix));
    }
    keys.sort();
    // A key under a prefix that is listed too adds nothing.
    keys.dedup_by(|key, prefix| key.starts_with(prefix));
    KeyRestriction::Keys(keys)
}

fn both(left: &Alternatives, right: &Alternatives) -> Alternatives {
    if left.len().saturating_mul(right.len()) > ALTERNATIVES_MAX {
        // Either side alone is still a valid restriction.
        return if left.len() <= right.len() { left.clone() } else { right.clone() };
    }
    let mut combined = Alternatives::new();
    for a in left {
        for b in right {
            let parts = a.iter().zip(b).map(|(a, b)| match (a, b) {
                (Some(a), Some(b)) if a != b => Err(()),
                (Some(part), _) | (None, Some(part)) => Ok(Some(part.clone())),
                (None, None) => Ok(None),
            });
            combined.extend(parts.collect::<Result<Vec<_>, ()>>());
        }
    }
    combined.sort_unstable();
    combined.dedup();
    combined
}

fn key_part(value: &Value) -> KeyPart {
    match value {
        Value::Null => KeyPart::Null,
        Value::Bool(flag) => KeyPart::Bool(*flag),
        Value::Number(number) => KeyPart::Number(number.as_f64()),
        Value::String(text) => KeyPart::String(text.clone()),
        // No item has such a key. The service looks where the undefined ones are.
        Value::Array(_) | Value::Object(_) => KeyPart::Undefined,
    }
}
