//! A client in small: asks for a plan, runs its text on every partition, merges the rows.

use std::cmp::Ordering;

use orrery_model::partition_key::{KeyPart, PartitionKeyDefinition};
use orrery_model::{Number, Object, Value};
use orrery_query::aggregate::Aggregate;
use orrery_query::ast::Direction;
use orrery_query::filter::KeyRestriction;
use orrery_query::order;
use orrery_query::plan::{DistinctType, Features, HybridSearchInfo, PlanInfo, PlanRequest, QueryInfo, plan};

use super::{Failure, Setup, run};

const FILTER: &str = "{documentdb-formattableorderbyquery-filter}";

/// Documents spread by a hash of the key.
pub struct Partitions {
    key: &'static str,
    parts: Vec<Vec<Value>>,
}

impl Partitions {
    pub fn new(documents: &[Value], key: &'static str, count: usize) -> Self {
        let mut parts = vec![Vec::new(); count];
        for (number, document) in documents.iter().enumerate() {
            let mut document = document.clone();
            let place = place(document.get(key), count);
            document.as_object_mut().unwrap().set("_rid", format!("rid-{number:06}").into());
            parts[place].push(document);
        }
        Self { key, parts }
    }
}

fn place(key: Option<&Value>, count: usize) -> usize {
    let hash = order::hash_operands(std::iter::once(key));
    usize::try_from(hash % count as u128).unwrap()
}

/// Runs a query as a client would.
pub fn run_planned(query: &str, partitions: &Partitions, setup: &Setup<'_>) -> Result<Vec<Value>, Failure> {
    let path = format!("/{}", partitions.key);
    let definition = PartitionKeyDefinition::with_paths(&[&path]).unwrap();
    let request = PlanRequest {
        parameters: &setup.parameters,
        definition: Some(&definition),
        policies: &setup.policies,
        computed: &setup.computed,
        features: Features::ALL,
    };
    let plan = plan(query, request).map_err(Failure::Query)?;
    let count = partitions.parts.len();
    let targets: Vec<usize> = match &plan.restriction {
        KeyRestriction::All => (0..count).collect(),
        KeyRestriction::None => vec![0],
        KeyRestriction::Keys(keys) => {
            let mut targets: Vec<usize> =
                keys.iter().map(|key| place(key_value(&key.parts()[0]).as_ref(), count)).collect();
            targets.sort_unstable();
            targets.dedup();
            targets
        }
    };
    let parts: Vec<&[Value]> = targets.into_iter().map(|target| &partitions.parts[target][..]).collect();
    match &plan.info {
        PlanInfo::Query(info) => {
            let text = if info.rewritten_query.is_empty() { query } else { &info.rewritten_query };
            let mut ranges = Vec::new();
            for part in parts {
                ranges.push(run(&text.replace(FILTER, "true"), part, setup)?);
            }
            Ok(merge(info, ranges))
        }
        PlanInfo::Hybrid(info) => hybrid(info, &parts, setup),
    }
}

fn key_value(part: &KeyPart) -> Option<Value> {
    match part {
        KeyPart::Undefined => None,
        KeyPart::Null => Some(Value::Null),
        KeyPart::Bool(flag) => Some((*flag).into()),
        KeyPart::Number(number) => Some((*number).into()),
        KeyPart::String(text) => Some(text.to_string().into()),
    }
}

fn merge(info: &QueryInfo, ranges: Vec<Vec<Value>>) -> Vec<Value> {
    let grouped = !info.group_by_expressions.is_empty();
    let mut rows: Vec<Value> = if grouped {
        regroup(info, ranges.into_iter().flatten())
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

fn number(value: Option<&Value>) -> Option<f64> {
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

/// Statistics, components, fusion.
fn hybrid(info: &HybridSearchInfo, parts: &[&[Value]], setup: &Setup<'_>) -> Result<Vec<Value>, Failure> {
    let mut documents = 0.0;
    let mut statistics: Vec<(f64, Vec<f64>)> = Vec::new();
    if info.requires_global_statistics {
        for part in parts {
            let row = run(&info.global_statistics_query, part, setup)?.remove(0);
            documents += number(row.get("documentCount")).unwrap();
            for (index, entry) in
                row.get("fullTextStatistics").unwrap().as_array().unwrap().iter().enumerate()
            {
                let hits: Vec<f64> = entry
                    .get("hitCounts")
                    .unwrap()
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|hits| number(Some(hits)).unwrap())
                    .collect();
                if statistics.len() <= index {
                    statistics.push((0.0, vec![0.0; hits.len()]));
                }
                statistics[index].0 += number(entry.get("totalWordCount")).unwrap();
                statistics[index].1.iter_mut().zip(hits).for_each(|(sum, hits)| *sum += hits);
            }
        }
    }
    let fill = |text: &str| {
        let prefix = "{documentdb-formattablehybridsearchquery-";
        let mut text = text
            .replace(FILTER, "true")
            .replace(&format!("{prefix}totaldocumentcount}}"), &documents.to_string());
        for (index, (words, hits)) in statistics.iter().enumerate() {
            text = text
                .replace(&format!("{prefix}totalwordcount-{index}}}"), &words.to_string())
                .replace(&format!("{prefix}hitcountsarray-{index}}}"), &format!("{hits:?}"));
        }
        text
    };
    let mut found: Vec<(Value, Vec<f64>, Value)> = Vec::new();
    for component in &info.component_queries {
        for part in parts {
            for row in run(&fill(&component.rewritten_query), part, setup)? {
                let rid = row.get("_rid").unwrap().clone();
                if found.iter().any(|(known, _, _)| *known == rid) {
                    continue;
                }
                let payload = row.get("payload").unwrap();
                let scores = payload.get("componentScores").unwrap().as_array().unwrap();
                let scores = scores.iter().map(|score| number(Some(score)).unwrap()).collect();
                found.push((rid, scores, payload.get("payload").unwrap().clone()));
            }
        }
    }
    let mut fused = vec![0.0; found.len()];
    for (index, component) in info.component_queries.iter().enumerate() {
        let weight = info.component_weights.get(index).copied().unwrap_or(1.0);
        let better =
            |a: f64, b: f64| if component.order_by[0] == Direction::Ascending { a < b } else { a > b };
        for (place, (_, scores, _)) in found.iter().enumerate() {
            let mut ahead: Vec<f64> = found
                .iter()
                .map(|(_, other, _)| other[index])
                .filter(|other| better(*other, scores[index]))
                .collect();
            ahead.sort_by(f64::total_cmp);
            ahead.dedup();
            fused[place] += weight / (60.0 + 1.0 + ahead.len() as f64);
        }
    }
    let mut rows: Vec<(f64, Value, Value)> =
        fused.into_iter().zip(found).map(|(score, (rid, _, payload))| (score, rid, payload)).collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(order::compare(Some(&a.1), Some(&b.1))));
    let skip = usize::try_from(info.skip.unwrap_or(0)).unwrap();
    let take = usize::try_from(info.take.unwrap_or(u64::MAX)).unwrap();
    Ok(rows.into_iter().skip(skip).take(take).map(|(_, _, payload)| payload).collect())
}
