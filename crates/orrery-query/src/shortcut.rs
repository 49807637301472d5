//! Queries that only count items or compute a minimum or maximum.

use crate::ast::{Collection, Expr, ExprKind, Literal, Name, Query, Selection};
use crate::check::indexes;
use orrery_model::{Object, Value};

/// The requested form of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountShape {
    /// `SELECT VALUE COUNT(1)`.
    Plain,
    /// `SELECT VALUE [{"item": COUNT(1)}]`, as clients that merge partitions ask.
    Item,
}

impl CountShape {
    pub fn value(self, count: u64) -> Value {
        let count = count_value(count);
        match self {
            Self::Plain => count,
            Self::Item => {
                let mut item = Object::new();
                item.set("item", count);
                Value::from(vec![Value::from(item)])
            }
        }
    }
}

pub fn count_value(count: u64) -> Value {
    Value::from(i64::try_from(count).unwrap_or(i64::MAX))
}

/// The minimum or maximum of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extreme {
    /// The property, in the form of indexing policies.
    pub path: String,
    pub is_max: bool,
    /// Whether the count of values is wanted too, as clients that merge partitions ask.
    pub is_counted: bool,
}

/// Whether the query only counts the documents that its filter selects.
pub fn count_of_filter(query: &Query) -> Option<CountShape> {
    let expr = only_expression(query)?;
    match &expr.kind {
        ExprKind::Array(_) => is_count(
            only_member(expr)?.first().map(|(name, count)| (&*name.text == "item").then_some(count))??,
        )
        .then_some(CountShape::Item),
        _ => is_count(expr).then_some(CountShape::Plain),
    }
}

/// Whether the query only computes the minimum or maximum of one property.
pub fn extreme_of(query: &Query) -> Option<Extreme> {
    let expr = only_expression(query)?;
    let from = query.from.as_ref()?;
    let plain = |expr: &Expr| {
        let (is_max, argument) = extreme_call(expr)?;
        Some(Extreme { path: indexes::document_path(argument, from)?, is_max, is_counted: false })
    };
    if !matches!(expr.kind, ExprKind::Array(_)) {
        return plain(expr);
    }
    // `[{"item": MIN(x), "item2": {"min": MIN(x), "count": COUNT(x)}}]`
    let [(item, first), (item2, pair)] = only_member(expr)? else { return None };
    let extreme = plain(first)?;
    let ExprKind::Object(pair) = &pair.kind else { return None };
    let [(name, second), (count, counted)] = pair.as_slice() else { return None };
    let wanted = if extreme.is_max { "max" } else { "min" };
    let counts_the_same = call_of(counted, "count")
        .and_then(|argument| indexes::document_path(argument, from))
        .is_some_and(|path| path == extreme.path);
    // All parts must be about the same property: anything else is a query of its own.
    let fits = &*item.text == "item"
        && &*item2.text == "item2"
        && &*name.text == wanted
        && &*count.text == "count"
        && plain(second).as_ref() == Some(&extreme)
        && counts_the_same;
    fits.then_some(Extreme { is_counted: true, ..extreme })
}

/// What a query over whole documents selects, if it has no other clause than a filter.
fn only_expression(query: &Query) -> Option<&Expr> {
    let from = query.from.as_ref()?;
    let [source] = from.sources.as_slice() else { return None };
    let whole =
        !source.iterate && matches!(&source.collection, Collection::Path { steps, .. } if steps.is_empty());
    let plain = query.group_by.is_empty()
        && query.order_by.is_none()
        && query.offset_limit.is_none()
        && !query.select.distinct
        && query.select.top.is_none();
    match &query.select.selection {
        Selection::Value(expr) if whole && plain => Some(expr),
        _ => None,
    }
}

/// The members of the one object in an array.
fn only_member(expr: &Expr) -> Option<&[(Name, Expr)]> {
    let ExprKind::Array(items) = &expr.kind else { return None };
    match items.as_slice() {
        [Expr { kind: ExprKind::Object(members), .. }] => Some(members),
        _ => None,
    }
}

fn is_count(expr: &Expr) -> bool {
    // Any literal but undefined is counted once for each document.
    call_of(expr, "count").is_some_and(
        |argument| matches!(&argument.kind, ExprKind::Literal(literal) if *literal != Literal::Undefined),
    )
}

fn extreme_call(expr: &Expr) -> Option<(bool, &Expr)> {
    call_of(expr, "max").map(|argument| (true, argument)).or_else(|| Some((false, call_of(expr, "min")?)))
}

/// The one argument of a call to this function.
fn call_of<'e>(expr: &'e Expr, name: &str) -> Option<&'e Expr> {
    let ExprKind::Call(call) = &expr.kind else { return None };
    match call.arguments.as_slice() {
        [argument] if !call.udf && call.name.text.eq_ignore_ascii_case(name) => Some(argument),
        _ => None,
    }
}
