//! The merge that clients do with the rows of a plan's ranges.

use std::cmp::Ordering;

use orrery_model::{Number, Object, Value};
use orrery_query::aggregate::Aggregate;
use orrery_query::ast::Direction;
use orrery_query::order;
use orrery_query::plan::{DistinctType, QueryInfo};

/// What a client makes of the rows of all ranges.
pub fn merge(info: &QueryInfo, ranges: Vec<Vec<Value>>) -> Vec<Value> {
    if info.limit.or(info.top) == Some(0) {
        return Vec::new();
    }
    let grouped = !info.group_by_expressions.is_empty();
    let mut rows: Vec<Value> = if grouped {
        let mut rows: Vec<Value> = ranges.into_iter().flatten().collect();
        if !info.order_by.is_empty() {
            rows.sort_by(|a, b| compare_items(a, b, info));
            rows = rows.into_iter().filter_map(|row| row.get("payload").cloned()).collect();
        }
        regroup(info, rows.into_iter())
    } else if !info.aggregates.is_empty() {
        assert!(ranges.iter().all(|rows| rows.len() == 1), "one row per range");
        let parts: Vec<Value> =
            ranges.into_iter().flatten().map(|row| row.as_array().unwrap()[0].clone()).collect();
        combine(info.aggregates[0], &parts).into_iter().collect()
    } else if !info.group_by_aliases.is_empty() {
        assert!(ranges.iter().all(|rows| rows.len() == 1), "one row per range");
        let payloads: Vec<Value> =
            ranges.into_iter().flatten().map(|row| row.get("payload").unwrap().clone()).collect();
        vec![combine_columns(info, &payloads)]
    } else if !info.order_by.is_empty() {
        let mut rows: Vec<Value> = ranges.into_iter().flatten().collect();
        rows.sort_by(|a, b| compare_items(a, b, info));
        rows.into_iter()
            .map(|row| row.get("payload").cloned().unwrap_or_else(|| Object::new().into()))
            .collect()
    } else {
        ranges.into_iter().flatten().collect()
    };
    match info.distinct_type {
        DistinctType::None => {}
        DistinctType::Ordered => rows.dedup(),
        DistinctType::Unordered => {
            let mut seen: Vec<Value> = Vec::new();
            rows.retain(|row| {
                let new = !seen.contains(row);
                if new {
                    seen.push(row.clone());
                }
                new
            });
        }
    }
    if let Some(alias) = &info.dcount_alias {
        let count = Value::from(i64::try_from(rows.len()).unwrap());
        rows = vec![if alias.is_empty() {
            count
        } else {
            let mut row = Object::new();
            row.set(alias.as_str(), count);
            row.into()
        }];
    }
    let skip = usize::try_from(info.offset.unwrap_or(0)).unwrap();
    let take = usize::try_from(info.limit.or(info.top).unwrap_or(u64::MAX)).unwrap();
    rows.into_iter().skip(skip).take(take).collect()
}

fn compare_items(a: &Value, b: &Value, info: &QueryInfo) -> Ordering {
    let items = |row: &Value| row.get("orderByItems").unwrap().as_array().unwrap().to_vec();
    let (left, right) = (items(a), items(b));
    for (index, direction) in info.order_by.iter().enumerate() {
        let (left, right) = (left[index].get("item"), right[index].get("item"));
        if info.has_non_streaming_order_by && left.is_some() != right.is_some() {
            return left.is_none().cmp(&right.is_none());
        }
        let ordering = order::compare(left, right);
        let ordering = if *direction == Direction::Descending { ordering.reverse() } else { ordering };
        if ordering.is_ne() {
            return ordering;
        }
    }
    // Rows of one document keep their order: the sort is stable.
    order::compare(a.get("_rid"), b.get("_rid"))
}

fn regroup(info: &QueryInfo, rows: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for row in rows {
        let key = row.get("groupByItems").unwrap().clone();
        // A payload that is undefined is absent.
        let payload = row.get("payload").cloned();
        let group = match groups.iter().position(|(known, _)| *known == key) {
            Some(place) => place,
            None => {
                groups.push((key, Vec::new()));
                groups.len() - 1
            }
        };
        groups[group].1.extend(payload);
    }
    groups
        .into_iter()
        .filter_map(|(_, payloads)| {
            if let Some(aggregate) = info.aggregates.first() {
                let parts: Vec<Value> =
                    payloads.iter().map(|row| row.as_array().unwrap()[0].clone()).collect();
                combine(*aggregate, &parts)
            } else if info.has_select_value {
                payloads.into_iter().next()
            } else {
                Some(combine_columns(info, &payloads))
            }
        })
        .collect()
}

fn combine_columns(info: &QueryInfo, payloads: &[Value]) -> Value {
    let mut row = Object::new();
    for (alias, aggregate) in &info.group_by_alias_to_aggregate {
        let parts: Vec<Value> = payloads.iter().filter_map(|payload| payload.get(alias).cloned()).collect();
        let value = match aggregate {
            Some(aggregate) => combine(*aggregate, &parts),
            None => parts.first().cloned(),
        };
        if let Some(value) = value {
            row.set(alias.as_str(), value);
        }
    }
    row.into()
}

pub fn number(value: Option<&Value>) -> Option<f64> {
    value.and_then(Value::as_number).map(Number::as_f64)
}

/// Merges the parts of one aggregate; `None` is undefined.
fn combine(aggregate: Aggregate, parts: &[Value]) -> Option<Value> {
    let items = || parts.iter().map(|part| part.get("item"));
    match aggregate {
        Aggregate::Count | Aggregate::CountIf | Aggregate::Sum => {
            items().map(number).sum::<Option<f64>>().map(Value::from)
        }
        Aggregate::Average => {
            let sum: Option<f64> = items().map(|item| number(item.and_then(|item| item.get("sum")))).sum();
            let count: Option<f64> =
                items().map(|item| number(item.and_then(|item| item.get("count")))).sum();
            count.filter(|count| *count > 0.0).and_then(|count| sum.map(|sum| (sum / count).into()))
        }
        Aggregate::Min | Aggregate::Max => {
            let name = if aggregate == Aggregate::Min { "min" } else { "max" };
            let mut best: Option<Value> = None;
            for part in parts {
                let detail = part.get("item2").unwrap();
                if number(detail.get("count")) == Some(0.0) {
                    assert!(part.get("item").is_none());
                    continue;
                }
                let value = detail.get(name)?;
                assert_eq!(part.get("item"), Some(value));
                let ordering = order::compare(Some(value), best.as_ref());
                let better = if aggregate == Aggregate::Min { ordering.is_lt() } else { ordering.is_gt() };
                if best.is_none() || better {
                    best = Some(value.clone());
                }
            }
            best
        }
        Aggregate::MakeList | Aggregate::MakeSet => {
            let mut values: Vec<Value> = Vec::new();
            for value in items().flatten().flat_map(|item| item.as_array().unwrap().to_vec()) {
                if aggregate == Aggregate::MakeList || !values.contains(&value) {
                    values.push(value);
                }
            }
            Some(values.into())
        }
    }
}
