//! The advisor's report as JSON, with every figure by name.

use serde_json::{Value, json};

use super::bill::bill_json;
use crate::advise::{Report, SuffixPlan};
use crate::measured::{Measured, Scope};
use crate::moment;
use crate::planner::{Plan, PlanInput};
use crate::prices::Prices;
use crate::rank::percent;
use crate::sketch::DISTINCT_ERROR;

/// Renders the advisor's report as JSON.
pub fn json(report: &Report) -> Value {
    json!({
        "data": {
            "items": report.items,
            "itemsTotal": report.items_total,
            "bytes": report.bytes,
            "bytesPerDay": report.growth_per_day,
            "timePath": report.time_path,
            "from": report.time.map(|(first, _)| moment::print(first)),
            "to": report.time.map(|(_, last)| moment::print(last)),
            "sampleItems": report.sample_items,
        },
        "throughput": report.limits.throughput,
        "partitions": report.limits.partition_count(),
        "workload": {
            "given": report.has_workload,
            "requests": report.replay_requests,
            "seconds": report.replay_seconds,
            "operations": report.workload.operations.iter().map(|operation| json!({
                "name": operation.name,
                "operation": operation.kind.name(),
                "perSecond": operation.per_second,
            })).collect::<Vec<_>>(),
        },
        "errors": {
            "distinctValues": format!("standard error {}", percent(DISTINCT_ERROR)),
            "largestKey": "at most what largestKey.shareError says, never more than a thousandth of all bytes",
            "sample": "rows of queries are estimated from a uniform sample; exact if sampleItems equals items",
        },
        "recommended": if report.missing.is_empty() {
            report.measured.first().map(|best| best.candidate.name.clone())
        } else {
            None
        },
        "missing": report.missing,
        "candidates": report.measured.iter().enumerate().map(|(at, one)| candidate(at, one, &report.prices)).collect::<Vec<_>>(),
        "suffixPlans": report.plans.iter().map(suffix_plan).collect::<Vec<_>>(),
        "service": report.service,
        "notes": report.notes,
    })
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn candidate(at: usize, one: &Measured, prices: &Prices) -> Value {
    let prediction = &one.prediction;
    let reads = prediction.reads;
    let all = (reads.point + reads.single + reads.fan_out) as f64;
    let share = |count: u64| if all > 0.0 { count as f64 / all } else { 0.0 };
    let heaviest = one
        .heaviest
        .iter()
        .map(|key| json!({ "key": key.name, "items": key.entry.items, "bytes": key.entry.bytes }));
    json!({
        "rank": at + 1,
        "name": one.candidate.name,
        "kind": one.candidate.kind.name(),
        "partitionKey": one.candidate.partition_key(),
        "definition": one.candidate.definition.as_ref().map(synthetic_key::Definition::to_json),
        "score": one.verdict.score,
        "tied": one.verdict.is_tied,
        "unfit": one.verdict.unfit,
        "evidence": one.verdict.evidence,
        "alternative": one.verdict.alternative,
        "itemsWithoutKey": one.without_key,
        "itemsThatCouldNotExist": one.repeated,
        "for": one.verdict.good,
        "against": one.verdict.bad,
        "distinctValues": one.distinct.round(),
        "largestKey": {
            "share": one.largest_share,
            "shareError": one.largest_share_error,
            "bytes": one.largest_bytes,
            "daysUntilFull": one.days_until_full,
        },
        "heaviestKeys": heaviest.collect::<Vec<_>>(),
        "spread": {
            "items": one.partitions.iter().map(|(items, _)| *items).collect::<Vec<_>>(),
            "bytes": one.partitions.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(),
            "unevenness": one.unevenness,
            "unevennessInTime": one.window_unevenness,
        },
        "growth": one.growth.iter().map(|stage| json!({
            "days": stage.days,
            "bytes": stage.bytes,
            "partitions": stage.partitions,
            "splits": stage.splits,
            "largestShare": stage.largest_share,
            "unevenness": stage.unevenness,
            "stuck": stage.stuck,
        })).collect::<Vec<_>>(),
        "reads": {
            "pointShare": share(reads.point),
            "singlePartitionShare": share(reads.single),
            "fanOutShare": share(reads.fan_out),
            "fanOutPartitions": if reads.fan_out > 0 { reads.fan_out_partitions as f64 / reads.fan_out as f64 } else { 0.0 },
        },
        "requestUnitsPerHour": prediction.per_hour(),
        "requestUnitsPerSecondByPartition": prediction.partitions.iter()
            .map(|units| units / prediction.seconds.max(1e-9)).collect::<Vec<_>>(),
        "hotFactor": prediction.hot_factor(),
        "throttled": { "requests": prediction.throttled, "share": prediction.throttled_share() },
        "neededThroughput": { "now": one.verdict.needed_now, "inAYear": one.verdict.needed_later },
        "costPerMonth": bill_json(&one.bill, prices),
        "transactions": match one.scope {
            Scope::Kept => json!("kept"),
            Scope::Lost(share) => json!({ "lost": share }),
            Scope::Unknown => json!("unknown"),
        },
        "operations": prediction.operations.iter().map(|operation| json!({
            "name": operation.name,
            "estimated": operation.is_estimated,
            "requests": operation.requests,
            "throttled": operation.throttled,
            "requestUnits": operation.charge / (operation.requests as f64).max(1.0),
            "partitions": operation.partitions as f64 / (operation.requests as f64).max(1.0),
        })).collect::<Vec<_>>(),
    })
}

fn suffix_plan(plan: &SuffixPlan) -> Value {
    let mut value = plan_json(&plan.input, &plan.plan);
    value["base"] = json!(plan.base);
    value["by"] = json!(plan.by);
    value
}

/// Renders the planner's curve as JSON.
pub fn plan_json(input: &PlanInput, plan: &Plan) -> Value {
    json!({
        "partitions": input.partitions,
        "writeUnitsPerSecond": input.write_units,
        "knownReadUnitsPerSecond": input.known_units,
        "readsOfAllSuffixesPerSecond": input.all_reads,
        "best": plan.best,
        "curve": plan.curve.iter().map(|point| json!({
            "suffixes": point.suffixes,
            "neededThroughput": point.needed,
            "usedPerSecond": point.used,
            "hotFactor": point.hot_factor,
            "partitionsVisited": point.visited,
        })).collect::<Vec<_>>(),
    })
}
