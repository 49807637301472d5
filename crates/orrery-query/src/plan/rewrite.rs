//! The text that is sent to each range, and what is left to do with its rows.

use super::{DistinctType, QueryInfo};
use crate::aggregate::Aggregate;
use crate::ast::{
    self, Call, Collection, Count, CountValue, Direction, Expr, ExprKind, Literal, LogicalOperator, Name,
    OffsetLimit, Query, SelectItem, Selection, Span,
};
use crate::check::order::{self, OrderKind};
use crate::check::{aggregate_of, has_aggregate, is_call_to, is_grouped, selects_aggregate};
use crate::compile::{Parameters, resolve_count};
use crate::error::QueryError;
use crate::limits;
use crate::printer;
use crate::program::Program;

/// Replaced by clients with `true`, or with the condition from which a range continues.
const FILTER_PLACEHOLDER: &str = "({documentdb-formattableorderbyquery-filter})";

const COMPOSITION: &str = "Compositions of aggregates and other expressions are not allowed.";

/// What a query is rewritten for.
pub(super) struct Target<'t> {
    pub(super) program: &'t Program,
    /// One logical partition answers it all.
    pub(super) single_key: bool,
    /// No document can match.
    pub(super) never: bool,
    pub(super) parameters: &'t Parameters,
}

/// Plans a query that is not ranked.
pub(super) fn info(query: &Query, target: &Target<'_>) -> Result<QueryInfo, Vec<QueryError>> {
    let &Target { single_key, parameters, .. } = target;
    let has_select_value = matches!(query.select.selection, Selection::Value(_));
    let requires_extended_plan = requires_extended_plan(query);
    let mut info = QueryInfo { has_select_value, requires_extended_plan, ..QueryInfo::default() };
    if query.from.is_none() {
        // Evaluated completely by the partition that is queried.
        return Ok(info);
    }
    let order_kind = order::kind(query, Some(parameters));
    // No index sorts by these, so a range cannot return its rows in order as a stream.
    info.has_non_streaming_order_by =
        matches!(order_kind, OrderKind::OneRow | OrderKind::Vector | OrderKind::Distance);
    if query.select.distinct {
        info.distinct_type = DistinctType::Unordered;
    }
    let sorts_one_row = order_kind == OrderKind::OneRow;
    // Nothing can match: the plan is empty, but the service keeps DISTINCT and the order of a single row.
    if target.never && !sorts_one_row && !query.select.distinct {
        info.has_non_streaming_order_by = false;
        return Ok(info);
    }
    // Ranges return their distinct rows, and the client counts those that are left after the merge.
    if let Some(inner) = distinct_count(query) {
        info.distinct_type = DistinctType::Unordered;
        info.dcount_alias = Some(match &query.select.selection {
            Selection::List(items) => ast::column_names(items).swap_remove(0),
            _ => String::new(),
        });
        info.rewritten_query = printer::planned(inner);
        return Ok(info);
    }
    info.top = query.select.top.as_ref().and_then(|top| resolve_count(top, parameters));
    let aggregated = selects_aggregate(query);
    // Counted after the merge only.
    let merges_rows = query.select.distinct || !query.group_by.is_empty() || (aggregated && has_select_value);
    let mut rewritten = query.clone();
    // A single logical partition skips and limits by itself.
    if let Some(clause) = &query.offset_limit
        && (merges_rows || !single_key)
    {
        info.offset = resolve_count(&clause.offset, parameters);
        info.limit = resolve_count(&clause.limit, parameters);
    }
    if merges_rows {
        rewritten.select.top = None;
        rewritten.offset_limit = None;
    } else if let (Some(offset), Some(limit)) = (info.offset, info.limit) {
        // One range may hold all wanted rows, including those to be skipped. The sum overflows as in the
        // service's planner.
        rewritten.offset_limit = Some(first_rows(offset.wrapping_add(limit) & limits::COUNT_MAX));
    }
    if aggregated {
        aggregates(query, &mut info, &mut rewritten).map_err(|error| vec![error])?;
    } else if query.order_by.is_some() {
        order(query, target, &mut info, &mut rewritten);
    } else if !query.group_by.is_empty() {
        aggregates(query, &mut info, &mut rewritten).map_err(|error| vec![error])?;
    }
    if rewritten != *query {
        info.rewritten_query = printer::planned(&rewritten);
    }
    Ok(info)
}

/// The subquery whose distinct rows are all that the query counts: `SELECT COUNT(1) FROM (SELECT DISTINCT …)`.
fn distinct_count(query: &Query) -> Option<&Query> {
    let [source] = &query.from.as_ref()?.sources[..] else {
        return None;
    };
    let Collection::Subquery(inner) = &source.collection else {
        return None;
    };
    let plain_outer = query.filter.is_none()
        && query.group_by.is_empty()
        && query.order_by.is_none()
        && query.offset_limit.is_none()
        && query.select.top.is_none()
        && !query.select.distinct
        && !source.iterate;
    let is_count = |expr: &Expr| match &expr.kind {
        ExprKind::Call(call) => {
            // Any literal counts all rows, except undefined.
            aggregate_of(call) == Some(Aggregate::Count)
                && matches!(call.arguments.first().map(|argument| &argument.kind), Some(ExprKind::Literal(literal)) if *literal != Literal::Undefined)
        }
        _ => false,
    };
    let counts = match &query.select.selection {
        Selection::Value(expr) => is_count(expr),
        Selection::List(items) => items.len() == 1 && is_count(&items[0].expr),
        Selection::Star(_) => false,
    };
    (plain_outer && counts && inner.select.distinct && !is_grouped(inner)).then_some(inner)
}

/// Whether rows of a FROM subquery depend on documents of all ranges together, which no client can merge.
fn requires_extended_plan(query: &Query) -> bool {
    distinct_count(query).is_none()
        && query.from.iter().flat_map(|from| &from.sources).any(|source| match &source.collection {
            Collection::Subquery(inner) => {
                inner.from.is_some() && (inner.select.distinct || is_grouped(inner))
                    || requires_extended_plan(inner)
            }
            Collection::Path { .. } => false,
        })
}

pub(super) fn count(value: u64) -> Count {
    Count { value: CountValue::Literal(value), span: Span::default() }
}

pub(super) fn first_rows(rows: u64) -> OffsetLimit {
    OffsetLimit { offset: count(0), limit: count(rows), span: Span::default() }
}

fn order(query: &Query, target: &Target<'_>, info: &mut QueryInfo, rewritten: &mut Query) {
    let Some(order_by) = &query.order_by else {
        return;
    };
    let compiled = &target.program.block.order;
    let sorts_one_row = order::kind(query, Some(target.parameters)) == OrderKind::OneRow;
    info.order_by = (order_by.items.iter().enumerate())
        .map(|(index, item)| match compiled.get(index) {
            // Distances have a direction of their own only where an index gives them.
            _ if sorts_one_row => item.direction.unwrap_or_default(),
            Some(key) => key.direction,
            // The program of a grouped query has no order of rows, only one of groups.
            None if is_call_to(&item.expr, "VECTORDISTANCE") => Direction::Descending,
            None => item.direction.unwrap_or_default(),
        })
        .collect();
    info.order_by_expressions = order_by.items.iter().map(|item| printer::expression(&item.expr)).collect();
    if query.select.distinct && projects_order_keys(query) {
        info.distinct_type = DistinctType::Ordered;
    }
    let root = root_alias(query);
    let keys: Vec<Expr> = order_by.items.iter().map(|item| item.expr.clone()).collect();
    // A payload is one expression, so `SELECT *` has to name the row.
    let mut content = payload(&query.select.selection, &root);
    let mut conditions = Vec::new();
    conditions.extend(query.filter.clone());
    conditions.push(expr(ExprKind::Placeholder(FILTER_PLACEHOLDER.into())));
    if !query.group_by.is_empty() {
        grouped_columns(query, info);
        // Clients group the rows again, so each carries its keys.
        content = expr(ExprKind::Object(vec![
            ("groupByItems".into(), items(&query.group_by)),
            ("payload".into(), content),
        ]));
    } else if let Selection::Value(value) = &query.select.selection {
        // A row whose VALUE is undefined does not exist; in the rewritten form it would, without a payload.
        conditions.push(call("IS_DEFINED", vec![value.clone()]));
    }
    // The client deduplicates after the merge: a range knows its own rows only, and here they differ by
    // `_rid`.
    rewritten.select.distinct = false;
    rewritten.select.selection = ordered_selection(&root, &keys, content);
    rewritten.filter = Some(conjunction(conditions));
}

/// What a client needs to know to group rows again.
fn grouped_columns(query: &Query, info: &mut QueryInfo) {
    info.group_by_expressions = query.group_by.iter().map(printer::expression).collect();
    if let Selection::List(columns) = &query.select.selection {
        info.group_by_aliases = ast::column_names(columns);
        info.group_by_alias_to_aggregate =
            info.group_by_aliases.iter().map(|name| (name.clone(), None)).collect();
    }
}

/// Whether equal rows are neighbours in the order: the row is exactly the one sort key.
fn projects_order_keys(query: &Query) -> bool {
    let keys = query.order_by.as_ref().map_or(&[][..], |order_by| &order_by.items);
    match (&query.select.selection, keys) {
        (Selection::Value(value), [key]) => printer::expression(value) == printer::expression(&key.expr),
        _ => false,
    }
}

/// The name of the document whose `_rid` orders ties: the first source's alias, or what an iteration begins at.
pub(super) fn root_alias(query: &Query) -> String {
    fn of(query: &Query) -> Option<&str> {
        let source = query.from.as_ref()?.sources.first()?;
        if !source.iterate
            && let Some(alias) = &source.alias
        {
            return Some(&alias.text);
        }
        match &source.collection {
            Collection::Path { root, .. } => Some(&root.text),
            Collection::Subquery(inner) => of(inner),
        }
    }
    of(query).unwrap_or("root").to_owned()
}

/// `c._rid, [{"item": key}, …] AS orderByItems, payload AS payload`.
pub(super) fn ordered_selection(root: &str, keys: &[Expr], payload: Expr) -> Selection {
    let rid = ExprKind::Member {
        base: Box::new(expr(ExprKind::Identifier(root.into()))),
        name: "_rid".into(),
        quoted: false,
    };
    Selection::List(vec![
        SelectItem { expr: expr(rid), alias: None, quoted: false },
        aliased(items(keys), "orderByItems"),
        aliased(payload, "payload"),
    ])
}

/// The projection as one expression.
pub(super) fn payload(selection: &Selection, root: &str) -> Expr {
    match selection {
        Selection::Star(_) => expr(ExprKind::Identifier(root.into())),
        Selection::Value(value) => value.clone(),
        Selection::List(columns) => {
            let names = ast::column_names(columns);
            let members =
                names.into_iter().zip(columns).map(|(name, item)| (name.as_str().into(), item.expr.clone()));
            expr(ExprKind::Object(members.collect()))
        }
    }
}

/// Rewrites an aggregate or GROUP BY query.
fn aggregates(query: &Query, info: &mut QueryInfo, rewritten: &mut Query) -> Result<(), QueryError> {
    let grouped = !query.group_by.is_empty();
    info.group_by_expressions = query.group_by.iter().map(printer::expression).collect();
    let payload = match &query.select.selection {
        Selection::Star(_) => return Err(QueryError::text(COMPOSITION)),
        Selection::Value(value) => match partial(value)? {
            Some((aggregate, members)) => {
                info.aggregates.push(aggregate);
                // Clients expect the part of a VALUE aggregate as the only item of an array.
                expr(ExprKind::Array(vec![expr(ExprKind::Object(members))]))
            }
            None => value.clone(),
        },
        Selection::List(columns) => {
            let mut members = Vec::with_capacity(columns.len());
            for (name, item) in ast::column_names(columns).into_iter().zip(columns) {
                let partial = partial(&item.expr)?;
                info.group_by_aliases.push(name.clone());
                let aggregate = partial.as_ref().map(|(aggregate, _)| *aggregate);
                info.group_by_alias_to_aggregate.push((name.clone(), aggregate));
                // A column without an aggregate is the same in all rows of a group, so it is sent as it is.
                let value =
                    partial.map_or_else(|| item.expr.clone(), |(_, members)| expr(ExprKind::Object(members)));
                members.push((name.as_str().into(), value));
            }
            expr(ExprKind::Object(members))
        }
    };
    rewritten.select.selection = if grouped {
        Selection::List(vec![aliased(items(&query.group_by), "groupByItems"), aliased(payload, "payload")])
    } else if info.has_select_value {
        Selection::Value(payload)
    } else {
        Selection::List(vec![aliased(payload, "payload")])
    };
    Ok(())
}

type Members = Vec<(Name, Expr)>;

/// What a range computes of an aggregate so that the parts can be merged.
fn partial(value: &Expr) -> Result<Option<(Aggregate, Members)>, QueryError> {
    let aggregate = match &value.kind {
        ExprKind::Call(call) => aggregate_of(call).map(|aggregate| (aggregate, call)),
        _ => None,
    };
    let Some((aggregate, source)) = aggregate else {
        return if has_aggregate(value) { Err(QueryError::text(COMPOSITION)) } else { Ok(None) };
    };
    let of = |name: &str| call(name, source.arguments.clone());
    let members = match aggregate {
        // Averages cannot be merged, sums and counts can.
        Aggregate::Average => {
            let parts = vec![("sum".into(), of("SUM")), ("count".into(), of("COUNT"))];
            vec![("item".into(), expr(ExprKind::Object(parts)))]
        }
        // The count tells clients that a range had no values, so that its undefined extreme is ignored.
        Aggregate::Min | Aggregate::Max => {
            let name = if aggregate == Aggregate::Min { "min" } else { "max" };
            let parts = vec![(name.into(), of(aggregate.name())), ("count".into(), of("COUNT"))];
            vec![("item".into(), value.clone()), ("item2".into(), expr(ExprKind::Object(parts)))]
        }
        _ => vec![("item".into(), value.clone())],
    };
    Ok(Some((aggregate, members)))
}

/// `[{"item": e1}, {"item": e2}]`
fn items(exprs: &[Expr]) -> Expr {
    let item = |value: &Expr| expr(ExprKind::Object(vec![("item".into(), value.clone())]));
    expr(ExprKind::Array(exprs.iter().map(item).collect()))
}

pub(super) fn conjunction(mut conditions: Vec<Expr>) -> Expr {
    if conditions.len() == 1 {
        return conditions.swap_remove(0);
    }
    expr(ExprKind::Logical { operator: LogicalOperator::And, operands: conditions })
}

pub(super) fn filter_placeholder() -> Expr {
    expr(ExprKind::Placeholder(FILTER_PLACEHOLDER.into()))
}

pub(super) fn expr(kind: ExprKind) -> Expr {
    Expr::new(kind, Span::default())
}

pub(super) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let name = Name { text: name.into(), span: Span::default() };
    expr(ExprKind::Call(Box::new(Call { name, udf: false, arguments })))
}

pub(super) fn aliased(value: Expr, alias: &str) -> SelectItem {
    SelectItem { expr: value, alias: Some(alias.into()), quoted: false }
}
