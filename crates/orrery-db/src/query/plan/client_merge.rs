//! Cross-partition queries that the client has to merge.
//!
//! The service does not merge: it rejects such queries, whereupon its clients fetch a plan, query range by range and
//! merge the rows. Here the server merges, because clients differ in what they can merge. A client that is known to
//! merge like with the service does so where its result is certain to be the same: rows sorted by one property whose
//! filter fixes a single primitive type.

use std::mem::{Discriminant, discriminant};

use orrery_model::{Result, Value};
use orrery_query::ast::{Query, Selection};
use orrery_query::check::indexes::order_paths;
use orrery_query::filter::{IndexCondition, Test, TypeTest};
use orrery_query::plan::{Plan, PlanInfo};

use crate::query::options::{ClientMerge, QueryOptions};

/// Whether the client has to merge this query.
pub(crate) fn is_asked(
    options: &QueryOptions,
    query: &Query,
    plan: impl FnOnce() -> Result<Plan>,
    condition: impl FnOnce() -> IndexCondition,
) -> Result<bool> {
    let scope = &options.scope;
    let is_scoped = scope.partition_key.is_some() || scope.range_id.is_some() || scope.window.is_some();
    if is_scoped || options.page.continuation.is_some() {
        return Ok(false);
    }
    Ok(match options.client_merge {
        ClientMerge::Never => false,
        ClientMerge::Always => !matches!(plan()?.info, PlanInfo::Query(info) if info.is_plain()),
        // A client that sets the page size may want to resume later, which merging clients cannot.
        ClientMerge::WhereSure => {
            options.page.items_max.is_none() && is_plain(query) && {
                let paths = order_paths(query).unwrap_or_default();
                matches!(paths.as_slice(), [(path, _)] if fixed_type(&condition(), path).is_some())
            }
        }
    })
}

/// Whether the query only sorts whole items or objects of one source.
fn is_plain(query: &Query) -> bool {
    query.order_by.is_some()
        && query.offset_limit.is_none()
        && query.select.top.is_none()
        && !query.select.distinct
        && query.group_by.is_empty()
        && !matches!(query.select.selection, Selection::Value(_))
        && query.from.as_ref().is_some_and(|from| from.sources.len() == 1)
}

/// The primitive type that a condition guarantees at a path.
fn fixed_type(condition: &IndexCondition, wanted: &str) -> Option<Discriminant<Value>> {
    let number = || Value::from(0);
    let text = || Value::from("");
    match condition {
        IndexCondition::All | IndexCondition::None => None,
        IndexCondition::And(parts) => parts.iter().find_map(|part| fixed_type(part, wanted)),
        IndexCondition::Or(parts) => {
            let mut types = parts.iter().map(|part| fixed_type(part, wanted));
            let first = types.next()??;
            types.all(|other| other == Some(first)).then_some(first)
        }
        // A condition on some array element does not constrain the one that is sorted by.
        IndexCondition::Term { path, .. } if path.to_string() != wanted || wanted.contains("[]") => None,
        IndexCondition::Term { test, .. } => match test {
            Test::Equal(value) => primitive(value),
            Test::In(values) => {
                let first = primitive(values.first()?)?;
                values.iter().all(|value| primitive(value) == Some(first)).then_some(first)
            }
            Test::Range { low, high } => primitive(&low.as_ref().or(high.as_ref())?.value),
            Test::Prefix(_) | Test::StringScan | Test::Type(TypeTest::String) => Some(discriminant(&text())),
            Test::Type(TypeTest::Number) => Some(discriminant(&number())),
            Test::Type(TypeTest::Bool) => Some(discriminant(&Value::from(true))),
            Test::NotEqual(_) | Test::Type(_) => None,
        },
    }
}

fn primitive(value: &Value) -> Option<Discriminant<Value>> {
    match value {
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(discriminant(value)),
        _ => None,
    }
}
