//! What rules are checked against: a recording, or a forecast of a workload under a key.

use std::collections::BTreeMap;

use orrery_model::value::{self, Value};

use crate::advise::Report;
use crate::fields::Paths;
use crate::guard::{Facts, OperationFacts};
use crate::workload::{QueryShape, Workload, WorkloadError};

/// The keys and items that are listed, the largest of all.
const LISTED: usize = 20;

/// The facts that a recording holds.
pub fn of_recording(text: &str) -> Result<Facts, WorkloadError> {
    let mut paths = Paths::new();
    let workload = Workload::parse(text, &mut paths)?;
    if workload.recorded.is_empty() {
        return Err(WorkloadError::Invalid(
            "there are no recorded requests; a workload with rates needs --data".to_owned(),
        ));
    }
    let mut found: BTreeMap<(String, String), OperationFacts> = BTreeMap::new();
    let mut keys: BTreeMap<String, f64> = BTreeMap::new();
    let mut items: Vec<(String, f64)> = Vec::new();
    let (mut requests, mut throttled, mut units) = (0u64, 0u64, 0.0);
    for line in text.lines().filter_map(|line| value::parse(line.as_bytes()).ok()) {
        let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |name: &str| line.get(name).and_then(Value::as_number).map(orrery_model::Number::as_f64);
        let operation = text("operation");
        if operation.is_empty() {
            continue;
        }
        requests += 1;
        let status = number("status").unwrap_or(0.0);
        if (status - 429.0).abs() < 0.5 {
            // It did nothing, and the client repeats it.
            throttled += 1;
            continue;
        }
        let charge = number("charge").unwrap_or(0.0);
        units += charge;
        if let Some(key) = line.get("key") {
            *keys.entry(key.to_json()).or_default() += charge;
        }
        if let Some(bytes) = number("bytes") {
            items.push((text("id"), bytes));
        }
        let query = text("query");
        let name = if query.is_empty() { operation.clone() } else { query.clone() };
        let own = found.entry((operation.clone(), query)).or_insert_with(|| OperationFacts {
            name,
            partitions: Some(0.0),
            charge: Some(0.0),
            ..OperationFacts::default()
        });
        own.requests += 1;
        // Everything but a query has one key.
        let visited = if operation == "query" { number("partitions") } else { Some(1.0) };
        own.partitions = own.partitions.zip(visited).map(|(most, visited)| most.max(visited));
        if own.partitions.is_none() {
            "the recording does not say which partitions were visited".clone_into(&mut own.unknown);
        }
        if line.get("isPart").is_some() {
            own.charge = None;
            "only the first partition's part of its charge is recorded".clone_into(&mut own.unknown);
        }
        own.charge = own.charge.map(|most| most.max(charge));
    }
    for operation in &workload.operations {
        for own in found.values_mut().filter(|own| own.name == operation.name) {
            own.scan = Some(operation.query.as_ref().and_then(QueryShape::scan));
        }
    }
    let mut traffic: Vec<(String, f64)> =
        keys.into_iter().map(|(key, charge)| (key, charge / units.max(1e-9))).collect();
    largest(&mut traffic);
    largest(&mut items);
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let throttled = Some(throttled as f64 / requests.max(1) as f64);
    Ok(Facts {
        source: format!("{requests} recorded requests"),
        operations: found.into_values().collect(),
        traffic: Some(traffic),
        throttled,
        keys: None,
        items: (!items.is_empty()).then_some(items),
    })
}

/// The facts that a forecast with a single candidate gives.
#[expect(clippy::cast_precision_loss, reason = "sizes and shares")]
pub fn of_report(report: &Report) -> Facts {
    let Some(one) = report.measured.first() else { return Facts::default() };
    let prediction = &one.prediction;
    let operations = prediction.operations.iter().map(|own| {
        let is_known = own.is_estimated && own.requests > 0;
        OperationFacts {
            name: own.name.clone(),
            requests: own.requests,
            partitions: is_known.then_some(own.partitions_max as f64),
            scan: is_known.then(|| own.scans.then(|| "no condition uses the index".to_owned())),
            charge: is_known.then_some(own.charge_max),
            unknown: "its requests cannot be estimated".to_owned(),
        }
    });
    let hottest = one.heaviest.first().and_then(|key| key.name.clone());
    let scale = report.items_total / (report.items as f64).max(1.0);
    let keys = one.heaviest.iter().map(|key| {
        let name = key.name.clone().unwrap_or_else(|| "a key".to_owned());
        (name, key.entry.bytes as f64 * scale)
    });
    // The heaviest key need not be the busiest, unless there is no other.
    let name = if hottest.is_some() && one.distinct < 1.5 { hottest } else { None };
    Facts {
        source: format!(
            "{} requests forecast for the key {} on {} items",
            prediction.requests, one.candidate.name, report.items
        ),
        operations: operations.collect(),
        traffic: Some(vec![(
            name.unwrap_or_else(|| "the busiest key".to_owned()),
            prediction.hottest_key_share,
        )]),
        throttled: Some(prediction.throttled_share()),
        keys: Some(keys.collect()),
        items: Some(vec![("the largest item".to_owned(), report.item_bytes_max as f64)]),
    }
}

/// Sorts by value, largest first, and keeps the largest.
fn largest(values: &mut Vec<(String, f64)>) {
    values.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    values.truncate(LISTED);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_shows_charges_fan_out_scans_and_hot_keys() {
        let lines = [
            r#"{"recording":1,"partitionKey":["/pk"],"throughput":4000}"#,
            r#"{"atMs":1,"operation":"read","id":"a","key":["k"],"status":200,"charge":1}"#,
            r#"{"atMs":2,"operation":"create","id":"b","key":["k"],"bytes":1000000,"status":201,"charge":100}"#,
            r#"{"atMs":3,"operation":"query","query":"SELECT * FROM c WHERE UPPER(c.x) = 'A'","partitions":4,"status":200,"charge":30}"#,
            r#"{"atMs":4,"operation":"query","query":"SELECT * FROM c WHERE c.x = 1","partitions":4,"isPart":true,"status":200,"charge":3}"#,
            r#"{"atMs":5,"operation":"query","query":"SELECT * FROM c WHERE c.y = 1","status":200,"charge":3}"#,
            r#"{"atMs":6,"operation":"read","id":"a","key":["l"],"status":429,"charge":0}"#,
        ];
        let facts = of_recording(&lines.join("\n")).unwrap();
        let find = |text: &str| facts.operations.iter().find(|own| own.name.contains(text)).unwrap();
        let upper = find("UPPER");
        assert_eq!((upper.partitions, upper.charge), (Some(4.0), Some(30.0)));
        assert!(matches!(&upper.scan, Some(Some(_))), "{upper:?}");
        assert!(matches!(find("c.x = 1").scan, Some(None)));
        assert_eq!((find("c.x = 1").partitions, find("c.x = 1").charge), (Some(4.0), None));
        assert_eq!((find("c.y = 1").partitions, find("c.y = 1").charge), (None, Some(3.0)));
        assert_eq!((find("read").partitions, find("read").scan.clone()), (Some(1.0), Some(None)));
        let (key, share) = &facts.traffic.as_ref().unwrap()[0];
        assert_eq!(key, "[\"k\"]");
        assert!((share - 101.0 / 137.0).abs() < 1e-9, "{share}");
        assert!((facts.throttled.unwrap() - 1.0 / 6.0).abs() < 1e-9);
        assert_eq!(facts.items.as_ref().unwrap()[0], ("b".to_owned(), 1e6));
        assert!(of_recording(r#"{"operations":[{"operation":"create","perSecond":1}]}"#).is_err());
    }
}
