//! A client in small: asks for a plan, runs its text on every partition, merges the rows.

use orrery_model::Value;
use orrery_model::partition_key::{KeyPart, PartitionKeyDefinition};
use orrery_query::ast::Direction;
use orrery_query::filter::KeyRestriction;
use orrery_query::order;
use orrery_query::plan::{Features, HybridSearchInfo, PlanInfo, PlanRequest, plan};

use super::merging::{merge, number};
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
