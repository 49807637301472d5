//! Expressions: in which cases the value of one is among given values.
//!
//! A function, an operator and a path have a value only if what they take has the right type, so a condition on their
//! value is also one on their operands.

use super::super::types::{self, ARRAY, DEFINED, FALSE, NUMBER, OBJECT, STRING, TRUE, UNDEFINED};
use super::super::values::Values;
use super::cases::{Case, anything, both, either, nothing, path_cases};
use super::predicates::Wanted;
use super::terms::term;
use super::{Solver, is_scalar};
use crate::ast::{BinaryOperator, UnaryOperator};
use crate::program::{FunctionCall, Node, Step};

impl<'p> Solver<'p> {
    /// The cases in which the value of an expression is one of these.
    pub(super) fn within(&self, node: &'p Node, values: &Values) -> Vec<Case> {
        self.deeper(|| self.within_of(node, values))
    }

    fn within_of(&self, node: &'p Node, values: &Values) -> Vec<Case> {
        let (wanted, any_value) = (values, values.is_anything_defined());
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
        // The steps lead into an expression of which nothing is known.
        if !steps.is_empty() {
            return anything();
        }
        let mut cases = match term(node) {
            Some(term) => vec![Case::from([(term, values.clone())])],
            None => anything(),
        };
        match node {
            Node::Conditional(parts) => {
                return both(cases, &self.conditional(&parts[..], |part| self.within(part, wanted)));
            }
            Node::Call(call) if call.function.name == "IIF" && call.arguments.len() == 3 => {
                return both(cases, &self.conditional(&call.arguments, |part| self.within(part, wanted)));
            }
            // The service draws no conclusion from the elements of an array that stands in for another.
            Node::Binary { operator: BinaryOperator::Coalesce, .. } if values.is_of(ARRAY | OBJECT) => {
                return cases;
            }
            Node::Binary { operator: BinaryOperator::Coalesce, left, right } => {
                let given = self.within(left, &values.meet(&Values::defined()));
                let missing =
                    both(self.within(left, &Values::of_types(UNDEFINED)), &self.within(right, &values));
                return both(cases, &either(given, missing));
            }
            _ if !defined => return cases,
            Node::Logical { .. } => {
                // If it has a value, that is true or false.
                let truth = self.predicate(node, Wanted::True);
                return either(truth, self.predicate(node, Wanted::False));
            }
            Node::Call(call) if any_value && call.function.name == "VECTORDISTANCE" => {}
            Node::Call(call) if any_value && is_opaque(call.function.name) => {
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
            Node::In { operand, .. } => cases = both(cases, &self.within(operand, &Values::defined())),
            Node::Between { operands, .. } => {
                let [value, low, high] = &**operands;
                let comparable = |bound: &Node| match bound {
                    Node::Constant(bound) => types::comparable_to(types::of_value(bound.as_ref())),
                    _ => 0,
                };
                // The bounds tell the type only if both are constants of the same type.
                let types = comparable(low);
                let types = if types == 0 || comparable(high) != types { DEFINED } else { types };
                if !matches!(value, Node::Constant(_)) {
                    cases = both(cases, &self.within(value, &Values::of_types(types)));
                }
            }
            Node::Like { operands, .. } => {
                for (side, other) in [(0, 1), (1, 0)] {
                    if matches!(operands[other], Node::Constant(_)) {
                        cases = both(cases, &self.within(&operands[side], &Values::of_types(STRING)));
                    }
                }
            }
            // A call has a value only if its arguments have the types it takes.
            Node::Call(call) => {
                let wanted = types_taken(call, &values);
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
            Node::Subquery { kind, block } if is_scalar(*kind, block) => {
                cases = both(cases, &self.rows(block, &values));
            }
            _ => {}
        }
        cases
    }
}

impl<'p> Solver<'p> {
    /// The cases in which a term can be compared with another. For a path that counts less than a statement that it is not
    /// defined.
    pub(super) fn compares(&self, node: &'p Node) -> Vec<Case> {
        let (found, steps) = self.resolve(node);
        let (slot, own) = match found {
            Node::Slot(slot) => (*slot, &[][..]),
            Node::Path { slot, steps } => (*slot, &steps[..]),
            _ => return self.within(node, &Values::defined()),
        };
        let steps: Vec<Step> = own.iter().cloned().chain(steps).collect();
        let mut values = Values::defined().meet(&Values::of_types(self.scope.types(node)));
        values.weaken();
        if values.is_empty() { nothing() } else { path_cases(slot, &steps, values, true) }
    }
}

/// The types that a function takes if it has one of these values.
fn types_taken(call: &FunctionCall, values: &Values) -> &'static [types::Types] {
    match call.function.name {
        "VECTORDISTANCE" => &[ARRAY, ARRAY, types::ANY],
        "ARRAY_CONTAINS_ALL" if values.is_of(TRUE) => &[ARRAY, DEFINED],
        "ARRAY_CONTAINS_ANY" if values.is_of(TRUE) && call.arguments.len() == 2 => &[ARRAY, DEFINED],
        name => types::signature(name).0,
    }
}

pub(super) fn is_choice(node: &Node) -> bool {
    matches!(node, Node::Call(call) if call.function.name == "CHOOSE" && call.arguments.len() > 1)
}

/// Whether the service draws no conclusion about a function's arguments from its having some value, only from which.
pub(super) fn is_opaque(name: &str) -> bool {
    name.starts_with("STRINGTO")
        || matches!(
            name,
            "DEGREES"
                | "FULLTEXTCONTAINSALL"
                | "FULLTEXTCONTAINSANY"
                | "LENGTH"
                | "OBJECTTOARRAY"
                | "REPLICATE"
                | "TRUNC"
                | "VECTORDISTANCE"
        )
}
