//! Visits every expression of a query, including its subqueries.

use orrery_query::ast::{Collection, Expr, ExprKind, Query, Selection};

/// Calls `visit` for every query, the outer one first, and for each of its expressions.
pub(super) fn walk<'q>(query: &'q Query, visit: &mut dyn FnMut(Visited<'q>)) {
    visit(Visited::Query(query));
    let selected: Vec<&Expr> = match &query.select.selection {
        Selection::Star(_) => Vec::new(),
        Selection::Value(expr) => vec![expr],
        Selection::List(items) => items.iter().map(|item| &item.expr).collect(),
    };
    let sorted = query.order_by.iter().flat_map(|order_by| &order_by.items).map(|item| &item.expr);
    for expr in selected.into_iter().chain(&query.filter).chain(&query.group_by).chain(sorted) {
        walk_expression(expr, visit);
    }
    // Subqueries in FROM are not expressions, so they are visited here.
    for source in query.from.iter().flat_map(|from| &from.sources) {
        if let Collection::Subquery(query) = &source.collection {
            walk(query, visit);
        }
    }
}

fn walk_expression<'q>(expr: &'q Expr, visit: &mut dyn FnMut(Visited<'q>)) {
    visit(Visited::Expression(expr));
    // `children` does not descend into subqueries.
    if let ExprKind::Subquery { query, .. } = &expr.kind {
        walk(query, visit);
    }
    for child in expr.children() {
        walk_expression(child, visit);
    }
}

/// A node of the syntax tree.
pub(super) enum Visited<'q> {
    Query(&'q Query),
    Expression(&'q Expr),
}
