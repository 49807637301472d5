//! What a well-formed query must also satisfy: names in scope, known functions, where aggregates,
//! subqueries and ranking may stand.
//!
//! All faults are collected, in the order of the text they are about, because the service lists
//! them all. Rules that need a container (index policies) are in [`indexes`].

pub mod indexes;
mod rank;

pub(crate) use rank::split_weights;

use std::collections::HashSet;

use crate::aggregate::Aggregate;
use crate::ast::{
    Call, Collection, Count, CountValue, Expr, ExprKind, Literal, OrderBy, Query, Selection, Source, Span,
    Step,
};
use crate::error::{Code, QueryError};
use crate::functions;
use crate::{limits, parser, printer};

/// Parses and checks a query text.
pub fn parse(text: &str) -> Result<Query, Vec<QueryError>> {
    let query = parser::parse(text).map_err(|error| vec![error])?;
    check(text, &query)?;
    Ok(query)
}

/// Checks a parsed query. `text` is what it was parsed from.
pub fn check(text: &str, query: &Query) -> Result<(), Vec<QueryError>> {
    let mut checker = Checker { text, errors: Vec::new(), scopes: Vec::new(), udf_calls: 0 };
    checker.query(query, Place::Top);
    checker.limits(query.span);
    checker.errors.sort_by_key(|error| error.location.map_or(u32::MAX, |location| location.start));
    if checker.errors.is_empty() { Ok(()) } else { Err(checker.errors) }
}

/// Where a query stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Top,
    /// In a FROM clause: it may be the one that names the container.
    Source,
    /// In an expression.
    Scalar,
}

/// The names one query binds.
#[derive(Default)]
struct Scope {
    aliases: Vec<String>,
    /// Whether this query reads the container itself.
    has_root: bool,
}

/// Where an expression stands, which decides what it may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clause {
    Select,
    Where,
    GroupBy,
    OrderBy,
    From,
    /// The argument of an aggregate.
    Aggregate,
}

struct Checker<'t> {
    text: &'t str,
    errors: Vec<QueryError>,
    scopes: Vec<Scope>,
    udf_calls: usize,
}

impl Checker<'_> {
    fn report(&mut self, code: u16, span: Span, message: impl Into<String>) {
        if self.errors.len() >= limits::ERRORS_MAX {
            return;
        }
        let location = Some(parser::location(self.text, span));
        self.errors.push(QueryError::new(Code::Sc(code), location, message));
    }

    fn report_text(&mut self, message: impl Into<String>) {
        if self.errors.len() >= limits::ERRORS_MAX {
            return;
        }
        self.errors.push(QueryError::text(message));
    }

    fn limits(&mut self, whole: Span) {
        if self.udf_calls > limits::UDF_CALLS_MAX {
            let message = format!(
                "The SQL query exceeded the maximum number of user-defined function calls. The allowed limit is {}.",
                limits::UDF_CALLS_MAX
            );
            self.report(3005, whole, message);
        }
    }

    fn query(&mut self, query: &Query, place: Place) {
        self.scopes.push(Scope::default());
        if let Some(from) = &query.from {
            for (index, source) in from.sources.iter().enumerate() {
                self.source(source, index == 0 && place != Place::Scalar);
            }
        }
        self.selection(query);
        if let Some(filter) = &query.filter {
            self.expr(filter, Clause::Where);
        }
        for key in &query.group_by {
            self.expr(key, Clause::GroupBy);
        }
        if place != Place::Top {
            self.subquery_clauses(query);
        }
        if let Some(order_by) = &query.order_by {
            self.order_by(order_by, query, place);
        }
        self.counts(query);
        self.scopes.pop();
    }

    fn subquery_clauses(&mut self, query: &Query) {
        if let Some(top) = &query.select.top {
            self.report(2203, top.span, "'TOP' is not supported in subqueries.");
        }
        if let Some(order_by) = &query.order_by
            && !order_by.rank
        {
            let span = order_by.items.first().map_or(query.span, |item| item.expr.span);
            self.report(2202, span, "'ORDER BY' is not supported in subqueries.");
        }
        if let Some(offset_limit) = &query.offset_limit {
            let span = offset_limit.offset.span.to(offset_limit.limit.span);
            self.report(2204, span, "'OFFSET LIMIT' clause is not supported in subqueries.");
        }
    }

    fn counts(&mut self, query: &Query) {
        if let Some(top) = &query.select.top {
            self.count(top, 2060, "The count value provided for a TOP clause must be an integer.");
        }
        if let Some(offset_limit) = &query.offset_limit {
            if query.select.top.is_some() {
                self.report_text("'TOP' cannot be combined with the 'OFFSET LIMIT' clause.");
            }
            self.count(
                &offset_limit.offset,
                2062,
                "The OFFSET count value exceeds the maximum allowed value.",
            );
            self.count(&offset_limit.limit, 2061, "The LIMIT count value exceeds the maximum allowed value.");
        }
    }

    fn count(&mut self, count: &Count, code: u16, message: &str) {
        let invalid = match count.value {
            CountValue::Literal(value) => value > limits::COUNT_MAX,
            CountValue::NotInteger(_) => true,
            CountValue::Parameter(_) => false,
        };
        if invalid {
            self.report(code, count.span, message);
        }
    }

    fn source(&mut self, source: &Source, may_be_root: bool) {
        match &source.collection {
            Collection::Path { root, .. } => {
                if !self.in_scope(&root.text) {
                    if may_be_root && !self.scopes.iter().any(|scope| scope.has_root) {
                        self.current().has_root = true;
                    } else {
                        self.report(2001, root.span, unresolved(&root.text));
                    }
                }
            }
            Collection::Subquery(query) => {
                let place = if may_be_root { Place::Source } else { Place::Scalar };
                self.query(query, place);
                if may_be_root && reads_container(query) {
                    self.current().has_root = true;
                }
            }
            Collection::Call(call) => self.expr(call, Clause::From),
        }
        if let Some(alias) = source_alias(source) {
            if self.current().aliases.iter().any(|known| known == alias) {
                let message =
                    format!("The input alias '{alias}' is specified more than once in the FROM clause.");
                self.report_text(message);
            }
            let alias = alias.to_owned();
            self.current().aliases.push(alias);
        }
    }

    fn current(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("a query pushes its scope before anything else")
    }

    fn in_scope(&self, name: &str) -> bool {
        self.scopes.iter().any(|scope| scope.aliases.iter().any(|alias| alias == name))
    }

    fn selection(&mut self, query: &Query) {
        // The texts of the grouping expressions, once for all columns.
        let keys: Option<HashSet<String>> =
            is_grouped(query).then(|| query.group_by.iter().map(printer::expression).collect());
        match &query.select.selection {
            Selection::Star(span) => {
                if !query.group_by.is_empty() {
                    self.report(2041, *span, "'SELECT *' is not allowed with GROUP BY.");
                }
                match query.from.as_ref().map(|from| from.sources.len()) {
                    None => self.report_text("'SELECT *' is not valid if FROM clause is omitted."),
                    Some(1) => {}
                    Some(_) => self.report_text("'SELECT *' is only valid with a single input set."),
                }
            }
            Selection::Value(expr) => self.selected(expr, keys.as_ref()),
            Selection::List(items) => {
                for item in items {
                    self.selected(&item.expr, keys.as_ref());
                }
            }
        }
    }

    fn selected(&mut self, expr: &Expr, keys: Option<&HashSet<String>>) {
        self.expr(expr, Clause::Select);
        if let Some(keys) = keys {
            self.grouped(expr, keys);
        }
    }

    /// Every property outside an aggregate must belong to a grouping expression.
    fn grouped(&mut self, expr: &Expr, keys: &HashSet<String>) {
        if !keys.is_empty() && keys.contains(&printer::expression(expr)) {
            return;
        }
        if let ExprKind::Call(call) = &expr.kind
            && aggregate_of(call).is_some()
        {
            return;
        }
        if let Some(root) = path_root(expr) {
            let own = self.scopes.last().is_some_and(|scope| scope.aliases.iter().any(|alias| alias == root));
            // A path below a grouping expression is built from it alone.
            let below_key = path_prefixes(expr).any(|prefix| keys.contains(&printer::expression(prefix)));
            if own && !below_key {
                let message = format!(
                    "Property reference '{}' is invalid in the select list because it is not contained in either an aggregate function or the GROUP BY clause.",
                    printer::expression(expr)
                );
                self.report(2102, expr.span, message);
            }
            return;
        }
        for child in expr.children() {
            self.grouped(child, keys);
        }
    }

    fn order_by(&mut self, order_by: &OrderBy, query: &Query, place: Place) {
        for item in &order_by.items {
            self.order_item(&item.expr, order_by.rank);
        }
        if order_by.rank {
            self.rank(order_by, query, place == Place::Top);
            return;
        }
        if !query.group_by.is_empty() {
            self.report_text("'ORDER BY' is not supported together with 'GROUP BY'.");
        }
        for item in &order_by.items {
            if is_call_to(&item.expr, "VECTORDISTANCE") {
                if item.direction.is_some() {
                    self.report_text(
                        "Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported.",
                    );
                }
                if order_by.items.len() > 1 {
                    self.report_text(
                        "The VectorDistance function must be the only item of the ORDER BY clause.",
                    );
                }
            } else if path_root(&item.expr).is_none() && !is_call_to(&item.expr, "_FULLTEXTSCORE") {
                self.errors.push(QueryError::new(
                    Code::Number(2206),
                    None,
                    "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path.",
                ));
            }
        }
    }

    fn order_item(&mut self, expr: &Expr, rank: bool) {
        if rank {
            self.rank_expr(expr);
        } else {
            self.expr(expr, Clause::OrderBy);
        }
    }

    fn expr(&mut self, expr: &Expr, clause: Clause) {
        match &expr.kind {
            ExprKind::Identifier(name) => {
                if !self.in_scope(name) {
                    self.report(2001, expr.span, unresolved(name));
                }
            }
            ExprKind::Index { base, index } => {
                if !matches!(index.kind, ExprKind::Literal(_) | ExprKind::Parameter(_)) {
                    let message =
                        "The specified query includes 'member indexer' which is currently not supported.";
                    self.report(2990, expr.span, message);
                }
                self.expr(base, clause);
            }
            ExprKind::Call(call) => self.call(expr, call, clause),
            ExprKind::Subquery { query, .. } => {
                if clause == Clause::GroupBy {
                    self.report_text("Subqueries are not allowed in the GROUP BY clause.");
                }
                if let Some(order_by) = &query.order_by
                    && order_by.rank
                {
                    let span = order_by.items.first().map_or(query.span, |item| item.expr.span);
                    let message = "The ORDER BY RANK clause is not supported in subqueries.";
                    self.report(2228, span, message);
                }
                self.query(query, Place::Scalar);
            }
            _ => {
                for child in expr.children() {
                    self.expr(child, clause);
                }
            }
        }
    }

    fn call(&mut self, expr: &Expr, call: &Call, clause: Clause) {
        if call.udf {
            self.udf_calls += 1;
        } else if let Some(aggregate) = aggregate_of(call) {
            self.aggregate(expr, call, aggregate, clause);
            return;
        } else if call.name.text.eq_ignore_ascii_case("FULLTEXTSCORE") {
            let message = "The FullTextScore function is only allowed in the ORDER BY RANK clause.";
            self.report(2240, expr.span, message);
        } else {
            self.built_in(expr, call);
        }
        for argument in &call.arguments {
            self.expr(argument, clause);
        }
    }

    fn built_in(&mut self, expr: &Expr, call: &Call) {
        let found = functions::lookup(&call.name.text).filter(|function| function.name != "RRF");
        let Some(function) = found else {
            let message = format!("'{}' is not a recognized built-in function name.", call.name.text);
            self.report(2005, call.name.span, message);
            return;
        };
        if !function.arity.contains(&call.arguments.len()) {
            let (low, high) = (*function.arity.start(), *function.arity.end());
            let message = arity_message(function.name, low, high);
            self.report(2050, expr.span, message);
        }
        if function.name == "VECTORDISTANCE" {
            self.vector_options(call);
        }
    }

    fn vector_options(&mut self, call: &Call) {
        let Some(ExprKind::Object(members)) = call.arguments.get(3).map(|argument| &argument.kind) else {
            return;
        };
        for (name, value) in members {
            if &**name != "searchListSizeMultiplier" {
                continue;
            }
            let ExprKind::Literal(Literal::Number(number)) = &value.kind else {
                continue;
            };
            if !(1.0..=100.0).contains(&number.as_f64()) {
                let message = format!(
                    "The 'searchListSizeMultiplier' value {} specified in the VectorDistance function is outside the supported range. The value must be between 1 and 100.",
                    printer::expression(value)
                );
                self.report(2213, value.span, message);
            }
        }
    }

    fn aggregate(&mut self, expr: &Expr, call: &Call, aggregate: Aggregate, clause: Clause) {
        if call.arguments.len() != 1 {
            self.report(2050, expr.span, arity_message(aggregate.name(), 1, 1));
        }
        match clause {
            Clause::Select => {}
            // The outer aggregate has reported it.
            Clause::Aggregate => return,
            Clause::Where | Clause::GroupBy | Clause::OrderBy | Clause::From => {
                let message = format!(
                    "The aggregate function '{}' is only allowed in the SELECT clause.",
                    aggregate.name()
                );
                self.report_text(message);
            }
        }
        if call.arguments.iter().any(has_aggregate_or_subquery) {
            let message = "Cannot perform an aggregate function on an expression containing an aggregate or a subquery.";
            self.report(2101, expr.span, message);
        }
        for argument in &call.arguments {
            self.expr(argument, Clause::Aggregate);
        }
    }
}

fn unresolved(name: &str) -> String {
    format!("Identifier '{name}' could not be resolved.")
}

fn arity_message(name: &str, low: usize, high: usize) -> String {
    if high == functions::UNBOUNDED {
        format!("The {name} function requires at least {low} argument(s).")
    } else if low == high {
        format!("The {name} function requires {low} argument(s).")
    } else {
        format!("The {name} function requires {low} to {high} argument(s).")
    }
}

/// The aggregate a call names, if it is one.
pub(crate) fn aggregate_of(call: &Call) -> Option<Aggregate> {
    if call.udf { None } else { Aggregate::find(&call.name.text) }
}

/// Whether the expression is a call of the built-in `name`, given in capitals.
pub(crate) fn is_call_to(expr: &Expr, name: &str) -> bool {
    matches!(&expr.kind, ExprKind::Call(call) if !call.udf && call.name.text.eq_ignore_ascii_case(name))
}

/// Whether an aggregate stands in this expression, outside subqueries.
pub(crate) fn has_aggregate(expr: &Expr) -> bool {
    let own = matches!(&expr.kind, ExprKind::Call(call) if aggregate_of(call).is_some());
    own || expr.children().into_iter().any(has_aggregate)
}

fn has_aggregate_or_subquery(expr: &Expr) -> bool {
    let own = match &expr.kind {
        ExprKind::Call(call) => aggregate_of(call).is_some(),
        ExprKind::Subquery { .. } => true,
        _ => false,
    };
    own || expr.children().into_iter().any(has_aggregate_or_subquery)
}

/// Whether rows are grouped: by GROUP BY, or all together by an aggregate.
pub(crate) fn is_grouped(query: &Query) -> bool {
    !query.group_by.is_empty()
        || match &query.select.selection {
            Selection::Star(_) => false,
            Selection::Value(expr) => has_aggregate(expr),
            Selection::List(items) => items.iter().any(|item| has_aggregate(&item.expr)),
        }
}

/// The name at the root of a property path such as `c.a["b"][0]`.
pub(crate) fn path_root(expr: &Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Identifier(name) => Some(name),
        ExprKind::Member { base, .. } | ExprKind::Index { base, .. } => path_root(base),
        _ => None,
    }
}

/// The path itself and every shorter path it goes through.
fn path_prefixes(expr: &Expr) -> impl Iterator<Item = &Expr> {
    std::iter::successors(Some(expr), |expr| match &expr.kind {
        ExprKind::Member { base, .. } | ExprKind::Index { base, .. } => Some(&**base),
        _ => None,
    })
}

/// The name a source binds: written, or the last name of its path.
pub(crate) fn source_alias(source: &Source) -> Option<&str> {
    if let Some(alias) = &source.alias {
        return Some(&alias.text);
    }
    match &source.collection {
        Collection::Path { root, steps } => match steps.last() {
            None => Some(&root.text),
            Some(Step::Name(name) | Step::Quoted(name)) => Some(&name.text),
            Some(Step::Index(_)) => None,
        },
        Collection::Subquery(_) | Collection::Call(_) => None,
    }
}

/// Whether the first source of a query, followed through subqueries, is a path: the container.
fn reads_container(query: &Query) -> bool {
    match query.from.as_ref().and_then(|from| from.sources.first()).map(|source| &source.collection) {
        Some(Collection::Path { .. }) => true,
        Some(Collection::Subquery(inner)) => reads_container(inner),
        _ => false,
    }
}
