//! The text that is sent to each range, and what is left to do with its rows.

use std::collections::HashSet;

use super::{DistinctType, QueryInfo};
use crate::aggregate::Aggregate;
use crate::ast::{
    self, Call, Collection, Count, CountValue, Expr, ExprKind, Literal, LogicalOperator, Name, OffsetLimit,
    Query, SelectItem, Selection, Span,
};
use crate::check::{aggregate_of, has_aggregate, is_grouped, source_alias};
use crate::compile::{Parameters, resolve_count};
use crate::error::QueryError;
use crate::limits;
use crate::printer;
use crate::program::Program;

/// Replaced by clients with `true`, or with the condition under which a range goes on.
const FILTER_PLACEHOLDER: &str = "({documentdb-formattableorderbyquery-filter})";

const COMPOSITION: &str = "Compositions of aggregates and other expressions are not allowed.";

/// Plans a query that is not ranked. `single_key`: one logical partition answers it all.
pub(super) fn info(
    query: &Query,
    program: &Program,
    single_key: bool,
    parameters: &Parameters,
) -> Result<QueryInfo, Vec<QueryError>> {
    let has_select_value = matches!(query.select.selection, Selection::Value(_));
    let mut info = QueryInfo { has_select_value, ..QueryInfo::default() };
    if !program.reads_documents {
        // Evaluated by whoever is asked, completely.
        return Ok(info);
    }
    if program.block.collects_first {
        return collected(query, info, single_key);
    }
    info.top = query.select.top.as_ref().and_then(|top| resolve_count(top, parameters));
    let grouped = is_grouped(query);
    let merges_rows = grouped || query.select.distinct;
    if let Some(clause) = &query.offset_limit
        && (merges_rows || !single_key)
    {
        info.offset = resolve_count(&clause.offset, parameters);
        info.limit = resolve_count(&clause.limit, parameters);
    }
    let mut rewritten = query.clone();
    if merges_rows {
        // Counted after the merge only.
        rewritten.select.top = None;
        rewritten.offset_limit = None;
    } else if let (Some(offset), Some(limit)) = (info.offset, info.limit) {
        rewritten.offset_limit = Some(first_rows(offset.saturating_add(limit).min(limits::COUNT_MAX)));
    }
    if grouped {
        match aggregates(query, &mut info, &mut rewritten) {
            Ok(()) => {}
            // One logical partition can evaluate any composition, and its text needs no rewriting.
            Err(_) if single_key => return Ok(QueryInfo { has_select_value, ..QueryInfo::default() }),
            Err(error) => return Err(vec![error]),
        }
        let count =
            info.group_by_alias_to_aggregate.iter().filter(|(_, aggregate)| aggregate.is_some()).count();
        if count > limits::MERGED_AGGREGATES_MAX && !single_key {
            return Err(vec![QueryError::text(format!(
                "The query has more aggregates than a cross-partition query may have. The allowed limit is {}.",
                limits::MERGED_AGGREGATES_MAX
            ))]);
        }
    } else {
        if query.select.distinct {
            info.distinct_type = DistinctType::Unordered;
        }
        order(query, program, &mut info, &mut rewritten);
    }
    if rewritten != *query {
        if let Some(top) = info.top.filter(|_| rewritten.select.top.is_some()) {
            rewritten.select.top = Some(count(top));
        }
        info.rewritten_query = printer::query(&rewritten);
    }
    Ok(info)
}

/// A query over rows that a FROM subquery collects from all documents. Only the count of distinct
/// rows can be merged by clients.
fn collected(query: &Query, mut info: QueryInfo, single_key: bool) -> Result<QueryInfo, Vec<QueryError>> {
    if single_key {
        return Ok(info);
    }
    let refused = || vec![QueryError::text(COMPOSITION)];
    let sources = query.from.as_ref().map_or(&[][..], |from| &from.sources);
    let [source] = sources else {
        return Err(refused());
    };
    let Collection::Subquery(inner) = &source.collection else {
        return Err(refused());
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
            aggregate_of(call) == Some(Aggregate::Count)
                && matches!(call.arguments.first().map(|argument| &argument.kind), Some(ExprKind::Literal(literal)) if *literal != Literal::Undefined)
        }
        _ => false,
    };
    let alias = match &query.select.selection {
        Selection::Value(expr) if is_count(expr) => String::new(),
        Selection::List(items) if items.len() == 1 && is_count(&items[0].expr) => {
            ast::column_names(items).swap_remove(0)
        }
        _ => return Err(refused()),
    };
    if !plain_outer || !inner.select.distinct || is_grouped(inner) {
        return Err(refused());
    }
    info.distinct_type = DistinctType::Unordered;
    info.dcount_alias = Some(alias);
    info.rewritten_query = printer::query(inner);
    Ok(info)
}

pub(super) fn count(value: u64) -> Count {
    Count { value: CountValue::Literal(value), span: Span::default() }
}

pub(super) fn first_rows(rows: u64) -> OffsetLimit {
    OffsetLimit { offset: count(0), limit: count(rows) }
}

fn order(query: &Query, program: &Program, info: &mut QueryInfo, rewritten: &mut Query) {
    let Some(order_by) = &query.order_by else {
        return;
    };
    info.order_by = program.block.order.iter().map(|key| key.direction).collect();
    info.order_by_expressions = order_by.items.iter().map(|item| printer::expression(&item.expr)).collect();
    info.has_non_streaming_order_by = program.block.order.iter().any(|key| key.undefined_last);
    if query.select.distinct && projects_order_keys(query) {
        info.distinct_type = DistinctType::Ordered;
    }
    let root = root_alias(query);
    let keys: Vec<Expr> = order_by.items.iter().map(|item| item.expr.clone()).collect();
    rewritten.select.distinct = false;
    rewritten.select.selection = ordered_selection(&root, &keys, payload(&query.select.selection, &root));
    let mut conditions = Vec::new();
    conditions.extend(query.filter.clone());
    conditions.push(expr(ExprKind::Placeholder(FILTER_PLACEHOLDER.into())));
    if let Selection::Value(value) = &query.select.selection {
        conditions.push(call("IS_DEFINED", vec![value.clone()]));
    }
    rewritten.filter = Some(conjunction(conditions));
}

/// Whether equal rows are neighbours in the order: the projection is exactly the sort keys.
fn projects_order_keys(query: &Query) -> bool {
    let keys = query.order_by.as_ref().map_or(&[][..], |order_by| &order_by.items);
    let projected: Vec<&Expr> = match &query.select.selection {
        Selection::Star(_) => return false,
        Selection::Value(value) => vec![value],
        Selection::List(items) => items.iter().map(|item| &item.expr).collect(),
    };
    let keys: HashSet<String> = keys.iter().map(|key| printer::expression(&key.expr)).collect();
    let projected: HashSet<String> = projected.into_iter().map(printer::expression).collect();
    keys == projected
}

/// The name of the document whose `_rid` orders ties.
pub(super) fn root_alias(query: &Query) -> String {
    let first = query.from.as_ref().and_then(|from| from.sources.first());
    first.and_then(source_alias).unwrap_or("root").to_owned()
}

/// `c._rid, [{"item": key}, …] AS orderByItems, payload AS payload`.
pub(super) fn ordered_selection(root: &str, keys: &[Expr], payload: Expr) -> Selection {
    let rid = ExprKind::Member {
        base: Box::new(expr(ExprKind::Identifier(root.into()))),
        name: "_rid".into(),
        quoted: false,
    };
    Selection::List(vec![
        SelectItem { expr: expr(rid), alias: None },
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
            let members = names.into_iter().zip(columns).map(|(name, item)| (name.into(), item.expr.clone()));
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
                let value =
                    partial.map_or_else(|| item.expr.clone(), |(_, members)| expr(ExprKind::Object(members)));
                members.push((name.into(), value));
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
    if query.select.distinct {
        // Repetitions among merged groups are dropped by the client.
        info.distinct_type = DistinctType::Unordered;
        rewritten.select.distinct = false;
    }
    Ok(())
}

type Members = Vec<(Box<str>, Expr)>;

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
        Aggregate::Average => {
            let parts = vec![("sum".into(), of("SUM")), ("count".into(), of("COUNT"))];
            vec![("item".into(), expr(ExprKind::Object(parts)))]
        }
        Aggregate::Min | Aggregate::Max => {
            let name = if aggregate == Aggregate::Min { "min" } else { "max" };
            let parts = vec![(name.into(), value.clone()), ("count".into(), of("COUNT"))];
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
    SelectItem { expr: value, alias: Some(Name { text: alias.into(), span: Span::default() }) }
}
