//! Queries that the index answers without looking at any item.

use orrery_model::{Object, Value};
use orrery_query::ast::{Expr, ExprKind, Literal, Query, Selection};

/// The form in which a count is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountShape {
    /// `SELECT VALUE COUNT(1)`.
    Plain,
    /// `SELECT VALUE [{"item": COUNT(1)}]`, as clients that merge partitions ask.
    Item,
}

impl CountShape {
    pub(crate) fn value(self, count: u64) -> Value {
        let count = Value::from(i64::try_from(count).unwrap_or(i64::MAX));
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

/// Whether the query only counts the documents that its filter selects.
pub(crate) fn count_of_filter(query: &Query) -> Option<CountShape> {
    let from = query.from.as_ref()?;
    let plain = from.sources.len() == 1
        && !from.sources[0].iterate
        && query.filter.is_some()
        && query.group_by.is_empty()
        && query.order_by.is_none()
        && query.offset_limit.is_none()
        && !query.select.distinct
        && query.select.top.is_none();
    let Selection::Value(expr) = &query.select.selection else { return None };
    let shape = match &expr.kind {
        ExprKind::Array(items) => match items.as_slice() {
            [Expr { kind: ExprKind::Object(members), .. }] => match members.as_slice() {
                [(name, count)] if **name == *"item" && is_count(count) => CountShape::Item,
                _ => return None,
            },
            _ => return None,
        },
        _ if is_count(expr) => CountShape::Plain,
        _ => return None,
    };
    plain.then_some(shape)
}

fn is_count(expr: &Expr) -> bool {
    let ExprKind::Call(call) = &expr.kind else { return false };
    let constant = matches!(
        call.arguments.as_slice(),
        [Expr { kind: ExprKind::Literal(literal), .. }] if *literal != Literal::Undefined
    );
    !call.udf && call.name.text.eq_ignore_ascii_case("count") && constant
}
