//! Conditions: in which cases one is true, false, or not true.
//!
//! Comparisons with a constant restrict a term to values; logical operators join and intersect what their operands say.
//! NOT is pushed down to the comparisons, whose negations are comparisons too.

use orrery_model::{Number, Object, Value};

use super::super::index::{mirrored, negated};
use super::super::types::{self, ARRAY, FALSE, OBJECT, STRING, TRUE, UNDEFINED};
use super::super::values::Values;
use super::Solver;
use super::cases::{Case, anything, both, either, nothing};
use super::terms::{path_term, term};
use super::within::{is_choice, is_opaque};
use crate::ast::{BinaryOperator, LogicalOperator, SubqueryKind, UnaryOperator};
use crate::program::{FunctionCall, Members, Node, Step};

/// What a condition is asked to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    True,
    False,
    /// False, undefined or no boolean at all.
    NotTrue,
}

impl<'p> Solver<'p> {
    /// The cases in which a condition is as wanted.
    pub(super) fn predicate(&self, node: &'p Node, wanted: Wanted) -> Vec<Case> {
        self.deeper(|| self.predicate_of(node, wanted))
    }

    fn predicate_of(&self, node: &'p Node, wanted: Wanted) -> Vec<Case> {
        // A path that leads into something not understood is analysed as it stands.
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
                // Undefined would do as well, and there are many ways to it.
                Wanted::NotTrue => anything(),
            },
            Node::Logical { operator, operands } => self.logical(*operator, operands, wanted),
            Node::Conditional(parts) => self.conditional(&parts[..], |part| self.predicate(part, wanted)),
            Node::Call(call) if call.function.name == "IIF" && call.arguments.len() == 3 => {
                self.conditional(&call.arguments, |part| self.predicate(part, wanted))
            }
            Node::Binary { operator, left, right } if operator.is_comparison() => match wanted {
                Wanted::True => self.comparison(*operator, left, right),
                Wanted::False if term(left).is_some() && term(left) == term(right) => self.compares(left),
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
                self.exists(block)
            }
            // That a subquery has no rows says nothing about single terms.
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
        // De Morgan: NOT (a AND b) is an alternative, NOT (a OR b) a conjunction.
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

    pub(super) fn conditional(&self, parts: &'p [Node], then: impl Fn(&'p Node) -> Vec<Case>) -> Vec<Case> {
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
            (Node::Constant(Some(value)), term) => self.compared(term, mirrored(operator), value),
            _ => {
                // A type with a single value is as good as a constant.
                for (term, other, operator) in [(left, right, operator), (right, left, mirrored(operator))] {
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

    /// The cases in which a term compares to a value in this way.
    fn compared(&self, term: &'p Node, operator: BinaryOperator, value: &Value) -> Vec<Case> {
        if let Node::Binary { operator: BinaryOperator::Coalesce, left, right } = term {
            // `a ?? b` is a where that is defined, and b elsewhere.
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
        // `(c.a > 1) = false` is `NOT (c.a > 1)`.
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
            // `-a = v` is `a = -v`.
            if let (Node::Unary { operator: UnaryOperator::Minus, operand }, Value::Number(number)) =
                (term, value)
            {
                return self.compared_any(operand, operator, &Value::from(-number.as_f64()));
            }
        }
        let mut values = Values::compared(operator, value);
        if let Some(image) = image(term) {
            values = values.meet(&image);
        }
        let cases = self.within(term, &values);
        match value {
            Value::Object(object) if operator == BinaryOperator::Equal => {
                both(cases, &self.members_are(term, object))
            }
            _ => cases,
        }
    }

    /// The cases in which a path has these members. The service derives scalar ones only.
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

    /// The cases in which two terms compare to each other in this way.
    fn related(&self, operator: BinaryOperator, left: &'p Node, right: &'p Node) -> Vec<Case> {
        use BinaryOperator as B;
        let (a, b) = (self.scope.types(left), self.scope.types(right));
        let ordered = !matches!(operator, B::Equal | B::NotEqual);
        // A user-defined function may return anything, so only the other side is restricted.
        for (udf, other) in [(left, right), (right, left)] {
            if matches!(udf, Node::Udf { .. }) {
                let unknown = matches!(other, Node::Udf { .. }) || self.scope.types(other) == UNDEFINED;
                return if unknown { anything() } else { self.compares(other) };
            }
        }
        let vague = |node| is_choice(node) || types::is_vague(node);
        if ordered && !types::comparable(a, b) && !vague(left) && !vague(right) {
            return nothing();
        }
        // A term is neither different from itself nor less or greater.
        if matches!(operator, B::NotEqual | B::Less | B::Greater)
            && let (Some(a), Some(b)) = (term(left), term(right))
            && a == b
        {
            return nothing();
        }
        let defined = Values::defined();
        let mut cases = both(self.compares(left), &self.compares(right));
        // What equals a constructed array or object has its type, and the parts of the constructed one are
        // defined.
        if operator == B::Equal {
            for (side, other) in [(left, right), (right, left)] {
                let (kind, parts): (_, Vec<&'p Node>) = match side {
                    Node::Array(items) => (ARRAY, items.iter().collect()),
                    Node::Object(members) => (OBJECT, members.iter().map(|(_, node)| node).collect()),
                    _ => continue,
                };
                let is_path = |node: &Node| matches!(node, Node::Path { .. } | Node::Slot(_));
                if is_path(other) && !parts.iter().all(|part| is_path(part)) {
                    cases = both(cases, &self.within(other, &Values::of_types(kind)));
                }
                for part in parts.into_iter().filter(|part| self.scope.types(part) != UNDEFINED) {
                    cases = both(cases, &self.within(part, &defined));
                }
            }
        }
        cases
    }

    fn membership(&self, operand: &'p Node, members: &'p Members, inside: bool) -> Vec<Case> {
        match members {
            Members::Constant { .. } if !inside && is_opaque_call(operand) => anything(),
            Members::Constant { values, .. } => {
                let listed = Values::one_of(values.iter().filter(|value| !outside_image(operand, value)));
                let values = if inside { listed } else { listed.complement().meet(&Values::defined()) };
                self.within(operand, &values)
            }
            Members::Computed(nodes) if inside => {
                let found = nodes.iter().map(|node| self.comparison(BinaryOperator::Equal, operand, node));
                both(self.within(operand, &Values::defined()), &found.fold(nothing(), either))
            }
            Members::Computed(_) => self.within(operand, &Values::defined()),
        }
    }

    fn call(&self, node: &'p Node, call: &'p FunctionCall, holds: bool) -> Vec<Case> {
        let name = call.function.name;
        if let (Some(checked), [value]) = (types::checked_types(name), &call.arguments[..]) {
            // A number need not be an integer nor a string a date, so failing these tests excludes no type.
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
        // Only a comparison that does not ignore case can exclude values by their case.
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
}

/// The numbers that a function can return, if the service knows them.
fn image(term: &Node) -> Option<Values> {
    let Node::Call(call) = term else {
        return None;
    };
    let from = |low: i64| Values::compared(BinaryOperator::GreaterOrEqual, &Value::from(low));
    match call.function.name {
        "ABS" | "ARRAY_LENGTH" | "DATETIMEPART" | "DAY" | "LENGTH" | "MONTH" | "YEAR" => Some(from(0)),
        "SIGN" => Some(from(-1).meet(&Values::compared(BinaryOperator::LessOrEqual, &Value::from(1)))),
        _ => None,
    }
}

fn is_fraction(number: Number) -> bool {
    number.as_f64().fract().abs() > 0.0
}

fn is_opaque_call(node: &Node) -> bool {
    matches!(node, Node::Call(call) if is_opaque(call.function.name))
}

/// Whether a function never returns this value: ABS returns nothing negative, UPPER nothing in lower case.
fn outside_image(term: &Node, value: &Value) -> bool {
    let Node::Call(call) = term else {
        return false;
    };
    match (call.function.name, value) {
        ("ABS" | "ARRAY_LENGTH" | "LENGTH", Value::Number(number)) => number.as_f64() < 0.0,
        ("DATETIMEPART" | "DAY" | "MONTH" | "YEAR", Value::Number(number)) => {
            number.as_f64() < 0.0 || is_fraction(*number)
        }
        ("CEILING" | "FLOOR" | "NUMBERBIN" | "ROUND" | "SIGN" | "TRUNC", Value::Number(number))
            if call.arguments.len() == 1 =>
        {
            is_fraction(*number)
        }
        // Letters without a one-letter counterpart (`ß`) are left as they are.
        ("UPPER", Value::String(text)) => {
            text.chars().any(|c| c.is_lowercase() && c.to_uppercase().len() == 1)
        }
        ("LOWER", Value::String(text)) => {
            text.chars().any(|c| c.is_uppercase() && c.to_lowercase().len() == 1)
        }
        _ => false,
    }
}
