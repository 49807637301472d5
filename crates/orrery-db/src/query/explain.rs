//! Explains a query: the chosen access path and the alternatives, estimated and actual numbers.

use std::time::Duration;

use orrery_model::{Object, Result, Value};
use orrery_query::QueryRequest;

use super::Queries;
use super::execute::{QueryPage, Routing};
use super::options::QueryOptions;
use super::plan::index_metrics::IndexMetrics;
use crate::partition::Receipt;

impl Queries {
    /// Executes one page of a query and describes how; the rows are omitted.
    pub async fn explain_query(
        &self,
        receipt: &mut Receipt,
        at: (&str, &str),
        options: &QueryOptions,
        request: &QueryRequest,
    ) -> Result<Value> {
        // All alternatives are counted, which a normal page avoids.
        let options = QueryOptions { index_metrics: true, advice: true, probe_all: true, ..options.clone() };
        let page = self.query_items(receipt, at, &options, request).await?;
        // A plan is for several partitions; not every query on one partition has one.
        let features = "Aggregate,Distinct,GroupBy,MultipleOrderBy,MultipleAggregates,OffsetAndLimit,OrderBy,Top,NonValueAggregate,DCount,NonStreamingOrderBy,CountIf,HybridSearch,WeightedRankFusion,ListAndSetAggregate";
        let plan = self.plan_query(&mut Receipt::default(), at, request, Some(features)).ok();
        let partitions = receipt.container.as_ref().map_or(0, |container| container.partitions.len());
        let mut object = Object::new();
        object.set("query", request.text.as_str().into());
        object.set("access", page.metrics.access.as_str().into());
        object.set("considered", considered(&page, receipt.served.len()));
        object.set("rows", rows(&page, receipt.served.len()));
        let visited = receipt.served.iter().map(|served| Value::from(served.range_id.to_string()));
        object.set("partitionsVisited", visited.collect::<Vec<_>>().into());
        object.set("partitions", count(partitions as u64));
        let by = match page.routing {
            routing if routing.by_synthetic_key => "syntheticKey",
            Routing { keys: Some(_), .. } => "partitionKey",
            Routing { keys: None, .. } => "everywhere",
        };
        object.set("routedBy", by.into());
        let keys = page.routing.keys.map_or(Value::Null, |keys| count(keys as u64));
        object.set("logicalPartitions", keys);
        object.set("charge", receipt.charge.as_f64().into());
        object.set("isComplete", page.continuation.is_none().into());
        object.set("timesMs", times(&page));
        object.set("indexes", page.index_metrics.as_ref().map(IndexMetrics::to_value).unwrap_or_default());
        let advice = page.advice.iter().map(|(id, function)| {
            let mut entry = Object::new();
            entry.set("id", (*id).into());
            entry.set("function", (*function).into());
            Value::from(entry)
        });
        object.set("advice", advice.collect::<Vec<_>>().into());
        object.set("plan", plan.unwrap_or_default());
        Ok(object.into())
    }
}

/// The candidates, with the entries counted for each in the first partition.
fn considered(page: &QueryPage, partitions: usize) -> Value {
    let entry = |considered: &super::metrics::Considered| {
        let mut object = Object::new();
        object.set("access", considered.access.as_str().into());
        object.set("chosen", (considered.access == page.metrics.access).into());
        if let Some(entries) = considered.entries {
            object.set("entriesInFirstPartition", count(entries as u64));
            object.set("estimatedRows", count(entries.saturating_mul(partitions) as u64));
            object.set("isLowerBound", considered.is_more.into());
        }
        Value::from(object)
    };
    page.metrics.considered.iter().map(entry).collect::<Vec<_>>().into()
}

fn rows(page: &QueryPage, partitions: usize) -> Value {
    let metrics = &page.metrics;
    let chosen = metrics.considered.iter().find(|considered| considered.access == metrics.access);
    let mut object = Object::new();
    if let Some(entries) = chosen.and_then(|considered| considered.entries) {
        object.set("estimated", count(entries.saturating_mul(partitions) as u64));
    }
    object.set("indexEntriesRead", count(metrics.entries_read));
    object.set("itemsRead", count(metrics.items_read));
    object.set("itemBytesRead", count(metrics.bytes_read));
    object.set("returned", count(metrics.output_items));
    object.set("bytesReturned", count(metrics.output_bytes));
    object.into()
}

fn times(page: &QueryPage) -> Value {
    let metrics = &page.metrics;
    let ms = |time: Duration| Value::from((time.as_secs_f64() * 100_000.0).round() / 100.0);
    let mut object = Object::new();
    for (name, time) in [
        ("total", metrics.total_time),
        ("parse", metrics.parse_time),
        ("compile", metrics.compile_time),
        ("plan", metrics.plan_time),
        ("index", metrics.index_time),
        ("load", metrics.load_time),
        ("evaluate", metrics.evaluation_time),
        ("output", metrics.output_time),
    ] {
        object.set(name, ms(time));
    }
    object.into()
}

fn count(count: u64) -> Value {
    Value::from(i64::try_from(count).unwrap_or(i64::MAX))
}
