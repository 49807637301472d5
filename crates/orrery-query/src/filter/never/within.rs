//! Expressions: in which cases the value of one is among given values.
//!
//! A function, an operator and a path have a value only if what they take has the right type, so a condition on their
//! value is also one on their operands.

use super::super::types::{self, DEFINED, FALSE, NUMBER, STRING, TRUE, UNDEFINED};
use super::super::values::Values;
use super::Solver;
use super::cases::{Case, anything, both, either, nothing, path_cases};
use super::predicates::Wanted;
use super::terms::term;
use crate::ast::{BinaryOperator, SubqueryKind, UnaryOperator};
use crate::program::{Node, Step};

impl<'p> Solver<'p> {
    /// The cases in which the value of an expression is one of these.
    pub(super) fn within(&self, node: &'p Node, values: &Values) -> Vec<Case> {
        self.deeper(|| self.within_of(node, values))
    }

    fn within_of(&self, node: &'p Node, values: &Values) -> Vec<Case> {
        let values = values.meet(&Values::of_types(self.scope.types(node)));
        if values.is_empty() {
            return nothing();
        }
        // An expression that must have a value needs defined operands; one that may be undefined restricts nothing
        // below.
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
        let mut cases = match term(node) {
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
                // Values of different types have no order, so the constant's type is also the other side's.
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
}

pub(super) fn is_choice(node: &Node) -> bool {
    matches!(node, Node::Call(call) if call.function.name == "CHOOSE" && call.arguments.len() > 1)
}

/// Whether the service draws no conclusion from a function's value to its arguments' types.
pub(super) fn is_opaque(name: &str) -> bool {
    name.starts_with("STRINGTO") || name == "OBJECTTOARRAY"
}
