//! GROUP BY and aggregates: what may be selected from a group.
//!
//! Checked after a query is bound without errors: first its ORDER BY, then its SELECT list. A property reference to a
//! name in scope must be a grouping expression, be below one, or be inside an aggregate of the query itself.
//! Subqueries are checked too.

use super::{Binder, Clause, aggregate_of, is_grouped, order};
use crate::ast::{Collection, Expr, ExprKind, Literal, Query, Selection, Source, Span, Step};

impl<'q> Binder<'q> {
    pub(super) fn group_by(&mut self, query: &'q Query) {
        self.level().clause = Clause::GroupBy;
        if self.level().is_ranked && !query.group_by.is_empty() {
            let message = "The GROUP BY clause is not allowed with the ORDER BY RANK clause.";
            self.report(2227, query.group_by_span, message);
        }
        for key in &query.group_by {
            self.expr(key);
            if !self.has_reference(key) {
                let message = "Each GROUP BY expression must contain at least one property reference.";
                self.report(2110, key.span, message);
            }
        }
    }

    /// Whether the expression names an input, outside subqueries.
    fn has_reference(&self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Identifier(name) => self.knows(name),
            ExprKind::Let { .. } => false,
            _ => expr.children().into_iter().any(|child| self.has_reference(child)),
        }
    }

    /// Checks a query that was bound without errors.
    pub(super) fn grouped(&mut self, query: &'q Query) {
        // One row is a group of its own.
        if !is_grouped(query) || self.level().is_ranked || !self.level().many {
            return;
        }
        let names = self.names.clone();
        let mut check = Ungrouped { keys: &query.group_by, names, in_subquery: false, found: Vec::new() };
        if !self.level().sorts_input {
            for item in query.order_by.iter().flat_map(|order_by| &order_by.items) {
                // A property that no row has is the same in every group.
                if !order::is_missing(query, &item.expr) {
                    check.sorted(&item.expr);
                }
            }
        }
        match &query.select.selection {
            Selection::Star(_) => {}
            Selection::Value(expr) => check.expr(expr, 2102),
            Selection::List(items) => {
                // The first column of the rewritten form is the `_rid` of a document; the compiler takes the
                // smallest of the group.
                let rid = usize::from(super::is_ordered_group(query));
                items.iter().skip(rid).for_each(|item| check.expr(&item.expr, 2102));
            }
        }
        for (code, span) in check.found {
            let clause = if code == 2103 { "ORDER BY clause" } else { "select list" };
            let message = format!(
                "Property reference '{}' is invalid in the {clause} because it is not contained in either an aggregate function or the GROUP BY clause.",
                span.of(self.text)
            );
            self.report(code, span, message);
        }
    }
}

/// Finds property references without a single value per group.
struct Ungrouped<'q> {
    keys: &'q [Expr],
    /// The names in scope, those of enclosing queries included.
    names: Vec<&'q str>,
    /// Aggregates inside a subquery are not the query's own.
    in_subquery: bool,
    found: Vec<(u16, Span)>,
}

impl Ungrouped<'_> {
    /// What is sorted by is grouped by only if it is a property; its parts may be anything that is grouped by.
    fn sorted(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Identifier(_) | ExprKind::Member { .. } => self.expr(expr, 2103),
            _ => self.parts(expr, 2103),
        }
    }

    fn expr(&mut self, expr: &Expr, code: u16) {
        if !self.keys.iter().any(|key| same(key, expr)) {
            self.parts(expr, code);
        }
    }

    fn parts(&mut self, expr: &Expr, code: u16) {
        match &expr.kind {
            ExprKind::Identifier(name) => {
                if self.names.contains(&&**name) {
                    self.found.push((code, expr.span));
                }
            }
            // A property is one reference, whatever its base.
            ExprKind::Member { base, .. } => {
                let before = self.found.len();
                self.expr(base, code);
                if self.found.len() > before {
                    self.found.truncate(before);
                    self.found.push((code, expr.span));
                }
            }
            ExprKind::Index { base, .. } => self.expr(base, code),
            // An aggregate of the query itself may be over anything.
            ExprKind::Call(call) if aggregate_of(call).is_some() && !self.in_subquery => {}
            ExprKind::Subquery { query, .. } => {
                let outer = std::mem::replace(&mut self.in_subquery, true);
                self.query(query);
                self.in_subquery = outer;
            }
            _ => expr.children().into_iter().for_each(|child| self.expr(child, code)),
        }
    }

    fn query(&mut self, query: &Query) {
        for source in query.from.iter().flat_map(|from| &from.sources) {
            self.source(source);
        }
        query.filter.iter().chain(&query.group_by).for_each(|expr| self.expr(expr, 2102));
        match &query.select.selection {
            Selection::Star(_) => {}
            Selection::Value(expr) => self.expr(expr, 2102),
            Selection::List(items) => items.iter().for_each(|item| self.expr(&item.expr, 2102)),
        }
    }

    fn source(&mut self, source: &Source) {
        match &source.collection {
            Collection::Subquery(query) => self.query(query),
            Collection::Path { root, steps } if self.names.contains(&&*root.text) => {
                let mut path = Expr::new(ExprKind::Identifier(root.text.clone()), root.span);
                // The input itself does not count here, even if it is grouped by.
                let mut covered = false;
                for step in steps {
                    path = stepped(path, step);
                    covered |= self.keys.iter().any(|key| same(key, &path));
                }
                if !covered {
                    self.found.push((2102, source.path_span));
                }
            }
            Collection::Path { .. } => {}
        }
    }
}

fn stepped(base: Expr, step: &Step) -> Expr {
    let (span, base) = (base.span, Box::new(base));
    let kind = match step {
        Step::Name(name) => ExprKind::Member { base, name: name.clone(), quoted: false },
        Step::Quoted(name) => ExprKind::Member { base, name: name.clone(), quoted: true },
        Step::Index(number) => {
            let index = Box::new(Expr::new(ExprKind::Literal(Literal::Number(*number)), span));
            ExprKind::Index { base, index }
        }
    };
    Expr::new(kind, span)
}

/// Whether two expressions are the same, however property access and function names are spelled.
#[expect(clippy::many_single_char_names, reason = "pairs of the same part of two expressions")]
fn same(left: &Expr, right: &Expr) -> bool {
    let all = |a: &[Expr], b: &[Expr]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b));
    match (&left.kind, &right.kind) {
        (ExprKind::Literal(a), ExprKind::Literal(b)) => a == b,
        (ExprKind::Identifier(a), ExprKind::Identifier(b))
        | (ExprKind::Parameter(a), ExprKind::Parameter(b)) => a == b,
        (ExprKind::Member { base: a, name: x, .. }, ExprKind::Member { base: b, name: y, .. }) => {
            x.text == y.text && same(a, b)
        }
        (ExprKind::Index { base: a, index: x }, ExprKind::Index { base: b, index: y }) => {
            same(a, b) && same(x, y)
        }
        (ExprKind::Array(a), ExprKind::Array(b)) => all(a, b),
        (ExprKind::Object(a), ExprKind::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((x, a), (y, b))| x.text == y.text && same(a, b))
        }
        (ExprKind::Unary { operator: x, operand: a }, ExprKind::Unary { operator: y, operand: b }) => {
            x == y && same(a, b)
        }
        (
            ExprKind::Binary { operator: x, left: a, right: c },
            ExprKind::Binary { operator: y, left: b, right: d },
        ) => x == y && same(a, b) && same(c, d),
        (ExprKind::Logical { operator: x, operands: a }, ExprKind::Logical { operator: y, operands: b }) => {
            x == y && all(a, b)
        }
        (ExprKind::Conditional(a), ExprKind::Conditional(b)) => all(&a[..], &b[..]),
        (ExprKind::Between { not: x, operands: a }, ExprKind::Between { not: y, operands: b }) => {
            x == y && all(&a[..], &b[..])
        }
        (
            ExprKind::In { not: x, operand: a, members: c },
            ExprKind::In { not: y, operand: b, members: d },
        ) => x == y && same(a, b) && all(c, d),
        (
            ExprKind::Like { not: x, operands: a, escape: e },
            ExprKind::Like { not: y, operands: b, escape: f },
        ) => x == y && all(&a[..], &b[..]) && e.as_ref().map(|e| &e.text) == f.as_ref().map(|f| &f.text),
        (ExprKind::Call(a), ExprKind::Call(b)) => {
            // Only names of user-defined functions are case-sensitive.
            let named = if a.udf {
                a.name.text == b.name.text
            } else {
                a.name.text.eq_ignore_ascii_case(&b.name.text)
            };
            a.udf == b.udf && named && all(&a.arguments, &b.arguments)
        }
        _ => false,
    }
}
