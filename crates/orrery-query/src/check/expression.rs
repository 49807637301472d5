//! Binds expressions: names, calls, subqueries, and what is allowed where.

use std::borrow::Cow;
use std::collections::HashSet;

use super::{Binder, Clause, Place, aggregate_of, unresolved};
use crate::ast::{Call, Expr, ExprKind, Literal, Name, Query, SelectItem, Span, SubqueryKind, inferred_name};
use crate::functions;
use crate::printer;
use orrery_model::{Number, Value};

impl<'q> Binder<'q> {
    pub(super) fn expr(&mut self, expr: &'q Expr) {
        match &expr.kind {
            ExprKind::Identifier(name) => {
                if !self.knows(name) {
                    self.report(2001, expr.span, unresolved(name));
                }
            }
            ExprKind::Index { base, index } => {
                if !self.is_index(index) {
                    // Errors inside the index come first, then this one, then those of the base.
                    self.expr(index);
                    let message =
                        "The specified query includes 'member indexer' which is currently not supported.";
                    self.report(2990, expr.span, message);
                }
                self.expr(base);
            }
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::Subquery { kind, query } => self.subquery(expr, *kind, query),
            ExprKind::Let { name, value, body } => self.binding(expr, name, value, body),
            ExprKind::Object(members) => {
                let mut known = HashSet::with_capacity(members.len());
                for (name, value) in members {
                    // The value before its name, the order of the service.
                    self.expr(value);
                    self.unique(&mut known, Cow::Borrowed(&name.text), name.span);
                }
            }
            ExprKind::Like { operands, escape, .. } => {
                for operand in &**operands {
                    self.expr(operand);
                }
                if let Some(escape) = escape
                    && escape.text.chars().count() != 1
                {
                    let message = format!(
                        "The invalid escape character '{}' was specified in a LIKE predicate.",
                        escape.text
                    );
                    self.report(2207, escape.span, message);
                }
            }
            _ => {
                for child in expr.children() {
                    self.expr(child);
                }
            }
        }
    }

    /// Whether this is allowed in brackets: a number, or a parameter that is a number or a string.
    fn is_index(&self, index: &Expr) -> bool {
        match (&index.kind, self.parameters) {
            // A parameter that is not known may have the right type.
            (ExprKind::Literal(Literal::Number(_)), _) | (ExprKind::Parameter(_), None) => true,
            (ExprKind::Parameter(name), Some(parameters)) => {
                let found = parameters.iter().find(|(known, _)| known.as_str() == &**name);
                matches!(found, Some((_, Value::Number(_) | Value::String(_))))
            }
            _ => false,
        }
    }

    fn binding(&mut self, expr: &'q Expr, name: &'q Name, value: &'q Expr, body: &'q Expr) {
        // In these clauses LET is one error; nothing inside it is bound.
        match self.level().clause {
            Clause::GroupBy => {
                self.report(2090, expr.span, "LET expressions are not allowed in the GROUP BY clause.");
                return;
            }
            Clause::OrderBy | Clause::Rank => {
                self.report(2091, expr.span, "LET expressions are not allowed in the ORDER BY clause.");
                return;
            }
            _ => {}
        }
        // Before its name is in scope, so it cannot refer to itself.
        self.expr(value);
        if self.knows(&name.text) {
            let message = format!("The variable name '{}' in the LET expression must be unique.", name.text);
            self.report(2023, name.span, message);
        }
        self.names.push(&name.text);
        self.expr(body);
        self.names.pop();
    }

    fn subquery(&mut self, expr: &'q Expr, kind: SubqueryKind, query: &'q Query) {
        if self.level().clause == Clause::GroupBy {
            let message = "Cannot use an aggregate or a subquery in an expression used for the group by list of a GROUP BY clause.";
            self.report(2111, expr.span, message);
            return;
        }
        let rows = self.query(query, Place::Nested);
        let level = self.level();
        let iterated_before = level.iterated_within > 0;
        level.iterated_within += rows.iterated;
        if kind != SubqueryKind::Scalar || !rows.many {
            return;
        }
        // The one row of a subquery may be multiplied, if nothing else iterates.
        if std::mem::replace(&mut level.many, true) || iterated_before || level.place != Place::Nested {
            let message = "The cardinality of a scalar subquery result set cannot be greater than one.";
            self.report(2201, expr.span, message);
        }
    }

    fn call(&mut self, expr: &'q Expr, call: &'q Call) {
        if aggregate_of(call).is_some() {
            self.aggregate(expr, call);
            return;
        }
        // Arguments before the function itself, the order of the service.
        for argument in &call.arguments {
            self.expr(argument);
        }
        if call.udf {
            self.udf_calls += 1;
        } else {
            self.built_in(expr, call);
        }
    }

    pub(super) fn built_in(&mut self, expr: &Expr, call: &Call) {
        let Some(function) = functions::lookup(&call.name.text).filter(|function| self.is_callable(function))
        else {
            self.unknown_function(call);
            return;
        };
        if !function.arity.contains(&call.arguments.len()) {
            let (low, high) = (*function.arity.start(), *function.arity.end());
            self.report(2050, expr.span, arity_message(&call.name.text, low, high));
            return;
        }
        match function.name {
            "FULLTEXTSCORE" => self.full_text_score(expr, call),
            "_FULLTEXTSCORE" => self.rewritten_score(expr, call),
            "VECTORDISTANCE" => self.vector_arguments(call),
            "HASH" => {
                let integer = |argument: &Expr| match &argument.kind {
                    ExprKind::Literal(Literal::Number(Number::Int(value))) => Some(*value),
                    _ => None,
                };
                if let Some(modulo) = call.arguments.get(1)
                    && integer(modulo).is_none_or(|modulo| modulo == 0)
                {
                    let message =
                        "The modulo value for the 'Hash' function must be a non-zero integer literal.";
                    self.report(2051, modulo.span, message);
                }
                if let Some(seed) = call.arguments.get(2).filter(|seed| integer(seed).is_none()) {
                    let message = "The seed value for the 'Hash' function must be an integer literal.";
                    self.report(2052, seed.span, message);
                }
            }
            "_REGEX_MATCH" => self.regex_arguments(expr, call),
            // The forms that take a time span instead of a part and a count.
            "DATETIMEADD" if call.arguments.len() == 2 => self.time_span(expr, call),
            "AGO" | "NOW" if call.arguments.len() == 1 => self.time_span(expr, call),
            _ => {}
        }
    }

    fn regex_arguments(&mut self, expr: &Expr, call: &Call) {
        let is_text = |argument: &Expr| match (&argument.kind, self.parameters) {
            (ExprKind::Literal(literal), _) => matches!(literal, Literal::String(_)),
            (ExprKind::Parameter(name), Some(parameters)) => {
                let found = parameters.iter().find(|(known, _)| known.as_str() == &**name);
                matches!(found, Some((_, Value::String(_))))
            }
            // Other expressions are evaluated for each row, so nothing can be said here.
            _ => true,
        };
        if !call.arguments.iter().skip(1).all(is_text) {
            self.report(2080, expr.span, "Invalid regex pattern or matching options.");
        }
    }

    pub(super) fn unknown_function(&mut self, call: &Call) {
        let message = format!("'{}' is not a recognized built-in function name.", call.name.text);
        self.report(2005, call.name.span, message);
    }

    fn time_span(&mut self, expr: &Expr, call: &Call) {
        let valid = match call.arguments.first().map(|argument| &argument.kind) {
            Some(ExprKind::Literal(Literal::String(text))) => is_time_span(text),
            _ => false,
        };
        if !valid {
            let message = "The timespan argument provided to the DateTime function is invalid.";
            self.report(2053, expr.span, message);
        }
    }

    fn vector_arguments(&mut self, call: &Call) {
        if let Some(exact) = call.arguments.get(2)
            && !matches!(exact.kind, ExprKind::Literal(Literal::Bool(_)))
        {
            let message = "The third argument provided in the VectorDistance function is invalid. This value must be a boolean value set to either \"true\" to execute an exact search or \"false\" to execute an efficient search leveraging the index.";
            self.report(2212, exact.span, message);
            return;
        }
        let Some(options) = call.arguments.get(3) else {
            return;
        };
        let ExprKind::Object(members) = &options.kind else {
            let message = "Options argument of VectorDistance function must be an object literal expression.";
            self.report(2210, options.span, message);
            return;
        };
        for (name, value) in members {
            if let Some((code, message)) = vector_option(&name.text, value) {
                self.report(code, options.span, message);
                return;
            }
        }
    }

    fn aggregate(&mut self, expr: &'q Expr, call: &'q Call) {
        for argument in &call.arguments {
            self.expr(argument);
        }
        // Over one row an aggregate is a function like others: it may stand anywhere, also inside another
        // one.
        let many = self.level().many;
        match self.level().clause {
            Clause::Where | Clause::From if many => {
                self.report(2104, expr.span, "Aggregates are not allowed in the WHERE clause.");
                return;
            }
            Clause::GroupBy if many => {
                let message = "Cannot use an aggregate or a subquery in an expression used for the group by list of a GROUP BY clause.";
                self.report(2111, expr.span, message);
                return;
            }
            _ => {}
        }
        if self.level().is_ranked {
            let message = "Aggregate functions are not allowed with the ORDER BY RANK clause.";
            self.report(2226, expr.span, message);
        }
        if call.arguments.len() != 1 {
            self.report(2050, expr.span, arity_message(&call.name.text, 1, 1));
        } else if many && call.arguments.iter().any(super::has_aggregate) {
            let message = "Cannot perform an aggregate function on an expression containing an aggregate or a subquery.";
            self.report(2101, expr.span, message);
        }
    }

    /// A SELECT list, whose names form an object.
    pub(super) fn columns(&mut self, items: &'q [SelectItem]) {
        let mut unnamed = 0;
        let mut known = HashSet::with_capacity(items.len());
        for item in items {
            self.expr(&item.expr);
            let (name, span) = match (&item.alias, inferred_name(&item.expr)) {
                (Some(alias), _) => ((&*alias.text).into(), alias.span),
                (None, Some(name)) => (name.into(), name_span(&item.expr)),
                // Results name such columns in the same way.
                (None, None) => {
                    unnamed += 1;
                    (format!("${unnamed}").into(), item.expr.span)
                }
            };
            self.unique(&mut known, name, span);
        }
    }

    /// Rejects a duplicate property name.
    fn unique(&mut self, known: &mut HashSet<Cow<'q, str>>, name: Cow<'q, str>, span: Span) {
        if known.contains(&name) {
            let message = format!("Object creation error, property name '{name}' specified more than once.");
            self.report(2022, span, message);
        } else {
            known.insert(name);
        }
    }
}

/// Whether this is a time span: a count with its unit, such as `1d`, or `[d.]hh:mm:ss`.
fn is_time_span(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (count, unit) = text.split_at(digits);
    if count.parse::<f64>().is_err() {
        return false;
    }
    match unit.strip_prefix(':') {
        Some(rest) => rest.split(':').all(|part| !part.is_empty() && part.parse::<f64>().is_ok()),
        None => matches!(unit, "d" | "h" | "m" | "s" | "ms" | "microsecond" | "tick"),
    }
}

/// The error in an option of VectorDistance, if any.
fn vector_option(name: &str, value: &Expr) -> Option<(u16, String)> {
    let text = match &value.kind {
        ExprKind::Literal(Literal::String(text)) => Some(&**text),
        _ => None,
    };
    let number = match &value.kind {
        ExprKind::Literal(Literal::Number(number)) => Some(number.as_f64()),
        _ => None,
    };
    let must_be = |kind: &str| {
        let message = format!(
            "VectorDistance function options argument property value of option '{name}' must be a {kind} literal."
        );
        Some((2210, message))
    };
    let one_of = |known: &[&str]| match text {
        None => must_be("string"),
        Some(text) if known.iter().any(|known| known.eq_ignore_ascii_case(text)) => None,
        Some(text) => Some((
            2210,
            format!(
                "VectorDistance function options argument property value '{text}' is not a valid value for option '{name}'."
            ),
        )),
    };
    let within = |code: u16, high: f64| match number {
        None => must_be("number"),
        Some(number) if number.fract() != 0.0 => Some((
            code,
            format!(
                "The '{name}' value specified in the VectorDistance function must be an integer between 1 and {high}."
            ),
        )),
        Some(number) if !(1.0..=high).contains(&number) => Some((
            code,
            format!(
                "The '{name}' value {} specified in the VectorDistance function is outside the supported range. The value must be between 1 and {high}.",
                printer::expression(value)
            ),
        )),
        Some(_) => None,
    };
    match name {
        "distanceFunction" => one_of(&["Cosine", "DotProduct", "Euclidean"]),
        "dataType" => one_of(&["Float32", "Float16", "Int8", "Uint8"]),
        "searchListSizeMultiplier" => within(2213, 100.0),
        "quantizedVectorListMultiplier" => within(2214, 50.0),
        "filterPriority" => match number {
            None => must_be("number"),
            // NaN is accepted, as by the service.
            Some(number) if !number.is_nan() && !(0.0..=1.0).contains(&number) => Some((
                2215,
                format!(
                    "The '{name}' value specified in the VectorDistance function must be a value between 0 and 1."
                ),
            )),
            Some(_) => None,
        },
        _ => Some((
            2210,
            format!("'{name}' is not a valid option name for VectorDistance function options argument."),
        )),
    }
}

/// The span of a column's implied name.
fn name_span(expr: &Expr) -> Span {
    match &expr.kind {
        ExprKind::Member { name, .. } => name.span,
        _ => expr.span,
    }
}

pub(super) fn arity_message(name: &str, low: usize, high: usize) -> String {
    if high == functions::UNBOUNDED {
        format!("The {name} function requires at least {low} argument(s).")
    } else if low == high {
        format!("The {name} function requires {low} argument(s).")
    } else {
        format!("The {name} function requires {low} to {high} argument(s).")
    }
}
