//! Compares the advisor's prediction of a replay with what the server measures: the same requests, at the same times of a
//! clock that the test moves, on containers partitioned by the candidate, with throttling enabled.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, reason = "tests")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use bytes::Bytes;
use orrery_advisor::analysis::item_random;
use orrery_advisor::candidate::{Candidate, Visit};
use orrery_advisor::datasets::DataSet;
use orrery_advisor::fields::{Part, Values};
use orrery_advisor::predict::{Prediction, SampleIndex, predict};
use orrery_advisor::replay::{Replay, Request};
use orrery_advisor::workload::OperationKind;
use orrery_advisor::{Advisor, Config, Limits};
use orrery_db::{
    BatchKind, BatchOperation, BatchOutcome, BatchResult, Database, FeedScope, ItemOptions, Options,
    PageRequest, QueryOptions, QueryRequest, Receipt,
};
use orrery_env::Env;
use orrery_model::offer::Throughput;
use orrery_model::partition_key::PartitionKey;
use orrery_model::{ErrorKind, Value};
use orrery_storage::Memory;

/// A clock that only moves when told to.
struct Clock {
    now_ms: AtomicI64,
    random: AtomicU64,
}

impl Env for Clock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let state = self.random.fetch_add(1, Ordering::SeqCst);
            let drawn = orrery_advisor::random::mix(state).to_le_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
    }
}

/// The server's measurements.
#[derive(Debug, Default)]
struct Measured {
    requests: u64,
    throttled: u64,
    delivered: f64,
    items: Vec<u64>,
}

const PLACE: (&str, &str) = ("db", "items");

struct Server {
    clock: Arc<Clock>,
    database: Arc<Database>,
}

impl Server {
    async fn start(candidate: &Candidate, limits: &Limits, start_ms: i64) -> Self {
        let clock = Arc::new(Clock { now_ms: AtomicI64::new(start_ms), random: AtomicU64::new(7) });
        let options = Options { throttle: true, sweep_interval_ms: 24 * 3_600_000, ..Options::default() };
        let database = Database::open(Arc::new(Memory::new()), clock.clone(), options).await.unwrap();
        let mut receipt = Receipt::default();
        database.create_database(&mut receipt, br#"{"id":"db"}"#, None).await.unwrap();
        let body = format!(r#"{{"id":"items","partitionKey":{}}}"#, candidate.partition_key());
        let throughput = Some(Throughput::Manual(limits.throughput));
        database.create_container(&mut receipt, "db", body.as_bytes(), throughput).await.unwrap();
        Self { clock, database }
    }

    /// Counts a finished request.
    fn settle(&self, receipt: &Receipt, result: Result<(), orrery_model::Error>, measured: &mut Measured) {
        self.database.settle(receipt);
        measured.requests += 1;
        match result {
            Ok(()) => measured.delivered += receipt.charge.as_f64(),
            Err(error) if matches!(error.kind, ErrorKind::TooManyRequests { .. }) => measured.throttled += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The item with the candidate's key inserted, and that key.
fn keyed(candidate: &Candidate, item: &str, draw: u64) -> (String, PartitionKey) {
    let mut item: serde_json::Value = serde_json::from_str(item).unwrap();
    if let Some(definition) = &candidate.definition {
        let mut random = item_random(draw);
        let mut draw = |bound: u32| u32::try_from(random.below(bound.into())).unwrap();
        definition.insert_into(&mut item, &mut draw).unwrap();
    }
    let parts = candidate.key_paths.iter().map(|path| item.pointer(path).unwrap().clone());
    let header = serde_json::Value::from(parts.collect::<Vec<_>>()).to_string();
    (item.to_string(), PartitionKey::parse_json(header.as_bytes()).unwrap())
}

/// Loads the data and runs the replay.
async fn measure(
    candidate: &Candidate,
    bodies: &[String],
    analysis: &orrery_advisor::analysis::Analysis,
    replay: &Replay,
    limits: &Limits,
) -> Measured {
    let start_ms = replay.requests[0].at_ms;
    // Loading must leave neither debt nor credit in the budgets, so a separate server instance does it, on the same clock.
    let server = Server::start(candidate, limits, start_ms - 10_000_000).await;
    let mut keys: HashMap<u64, PartitionKey> = HashMap::new();
    for (ordinal, body) in (0u64..).zip(bodies) {
        let (body, key) = keyed(candidate, body, ordinal);
        let mut receipt = Receipt::default();
        let options = ItemOptions { partition_key: Some(key.clone()), ..ItemOptions::default() };
        server.database.create_item(&mut receipt, PLACE, &options, &Bytes::from(body)).await.unwrap();
        keys.insert(ordinal, key);
    }
    let mut measured = Measured::default();
    let view = server.database.container_view("db", "items").await.unwrap();
    measured.items = view.partitions.iter().map(|partition| partition.items).collect();
    for (number, request) in replay.requests.iter().enumerate() {
        server.clock.now_ms.store(request.at_ms, Ordering::SeqCst);
        run(&server, candidate, bodies, analysis, replay, request, number, &keys, &mut measured).await;
    }
    server.database.close().await.unwrap();
    measured
}

#[expect(clippy::too_many_arguments, reason = "one step of a test")]
async fn run(
    server: &Server,
    candidate: &Candidate,
    bodies: &[String],
    analysis: &orrery_advisor::analysis::Analysis,
    replay: &Replay,
    request: &Request,
    number: usize,
    keys: &HashMap<u64, PartitionKey>,
    measured: &mut Measured,
) {
    let operation = &replay.operations[request.operation];
    let item = &replay.items[request.item];
    let body = &bodies[usize::try_from(item.ordinal).unwrap()];
    let mut receipt = Receipt::default();
    match operation.kind {
        OperationKind::Create => {
            let mut new = of_now(body, analysis, replay, request);
            new["id"] = serde_json::Value::from(format!("new-{number}"));
            let (new, key) = keyed(candidate, &new.to_string(), number as u64 ^ 0xA11CE);
            let options = ItemOptions { partition_key: Some(key), ..ItemOptions::default() };
            let result = server.database.create_item(&mut receipt, PLACE, &options, &Bytes::from(new)).await;
            server.settle(&receipt, result.map(drop), measured);
        }
        OperationKind::Read => {
            // The client reads the item by its key if it can determine the key; otherwise it searches by id.
            let mut known = vec![orrery_model::KeyPart::Undefined; analysis.paths.len()];
            for slot in operation.knows.iter().copied().chain(analysis.paths.find("/id")) {
                known[slot] = item.values[slot].clone();
            }
            let id: serde_json::Value = serde_json::from_str(body).unwrap();
            let id = id["id"].as_str().unwrap();
            if matches!(candidate.visit(&analysis.paths, &known[..]), Visit::Keys(keys) if keys.len() == 1) {
                let key = Some(keys[&item.ordinal].clone());
                let options = ItemOptions { partition_key: key, ..ItemOptions::default() };
                let result = server.database.read_item(&mut receipt, (PLACE.0, PLACE.1, id), &options).await;
                server.settle(&receipt, result.map(drop), measured);
            } else {
                let text = "SELECT * FROM c WHERE c.id = @id".to_owned();
                let request = QueryRequest {
                    text,
                    parameters: vec![("@id".to_owned(), Value::from(id))],
                    resume_filter: None,
                };
                query(server, FeedScope::default(), &request, measured).await;
            }
        }
        OperationKind::Query => {
            let shape = operation.query.as_ref().unwrap();
            let mut text = shape.text.clone();
            let mut scope = FeedScope::default();
            // The client, or the container's definition, restricts the query to the keys that can be determined.
            let mut known = serde_json::Map::new();
            for condition in &replay.instances[request.instance].conditions {
                let name = analysis.paths.name(condition.slot).trim_start_matches('/').to_owned();
                let value = orrery_advisor::workload::parameter_value(&condition.values[0]).unwrap();
                known.insert(name, serde_json::from_str(&value.to_json()).unwrap());
            }
            if let Some(definition) = &candidate.definition
                && let Ok(keys) = definition.keys_for(&serde_json::Value::Object(known))
            {
                let keys: Vec<String> =
                    keys.iter().map(|key| key.components[0].to_json().to_string()).collect();
                if let [key] = keys.as_slice() {
                    scope.partition_key =
                        Some(PartitionKey::parse_json(format!("[{key}]").as_bytes()).unwrap());
                } else {
                    text = format!("{text} AND c.partitionKey IN ({})", keys.join(","));
                }
            }
            let parameters = replay.parameters[request.instance].clone();
            query(server, scope, &QueryRequest { text, parameters, resume_filter: None }, measured).await;
        }
        OperationKind::Batch => {
            let mut known = vec![orrery_model::KeyPart::Undefined; analysis.paths.len()];
            for slot in operation.together.iter().copied() {
                known[slot] = item.values[slot].clone();
            }
            let is_kept =
                matches!(candidate.visit(&analysis.paths, &known[..]), Visit::Keys(keys) if keys.len() == 1);
            let shared = of_now(body, analysis, replay, request);
            let mut batch = Vec::new();
            for sibling in 0..operation.items as usize {
                // The items of a transaction are alike; if the transaction is lost, they share only the `together` properties.
                let mut new = shared.clone();
                if !is_kept {
                    let other = &replay.items[(request.item + sibling * 7919) % replay.items.len()];
                    new = serde_json::from_str(&bodies[usize::try_from(other.ordinal).unwrap()]).unwrap();
                    for name in operation.together.iter().map(|slot| analysis.paths.name(*slot)) {
                        *new.pointer_mut(name).unwrap() = shared.pointer(name).unwrap().clone();
                    }
                }
                new["id"] = serde_json::Value::from(format!("new-{number}-{sibling}"));
                batch.push(keyed(candidate, &new.to_string(), (number * 131 + sibling) as u64));
            }
            if is_kept {
                let options =
                    ItemOptions { partition_key: Some(batch[0].1.clone()), ..ItemOptions::default() };
                let operations: Vec<_> = batch.into_iter().map(|(body, _)| creation(body)).collect();
                let result = server.database.execute_batch(&mut receipt, PLACE, &options, &operations).await;
                let done = |result: &BatchResult| matches!(result.outcome, BatchOutcome::Done(_));
                assert!(result.as_ref().map_or(true, |results| results.iter().all(done)));
                server.settle(&receipt, result.map(drop), measured);
                return;
            }
            for (body, key) in batch {
                let mut receipt = Receipt::default();
                let options = ItemOptions { partition_key: Some(key), ..ItemOptions::default() };
                let result =
                    server.database.create_item(&mut receipt, PLACE, &options, &Bytes::from(body)).await;
                server.settle(&receipt, result.map(drop), measured);
            }
        }
        _ => panic!("the data sets of this test have no {:?}", operation.kind),
    }
}

fn creation(body: String) -> BatchOperation {
    BatchOperation {
        kind: BatchKind::Create,
        id: None,
        body: Some(Bytes::from(body)),
        if_match: None,
        if_none_match: None,
        partition_key: None,
    }
}

/// An item with the times at which the request is sent.
fn of_now(
    body: &str,
    analysis: &orrery_advisor::analysis::Analysis,
    replay: &Replay,
    request: &Request,
) -> serde_json::Value {
    let values = replay.values(request);
    let mut new: serde_json::Value = serde_json::from_str(body).unwrap();
    for (slot, _) in replay.is_time.iter().enumerate().filter(|(_, is_time)| **is_time) {
        if let (Part::Text(text), Some(place)) =
            (values.part(slot), new.pointer_mut(analysis.paths.name(slot)))
        {
            *place = serde_json::Value::from(text);
        }
    }
    new
}

async fn query(server: &Server, scope: FeedScope, request: &QueryRequest, measured: &mut Measured) {
    let page = PageRequest { items_max: Some(-1), continuation: None };
    let options = QueryOptions { scope, page, cross_partition: true, ..QueryOptions::default() };
    let mut receipt = Receipt::default();
    let result = server.database.query_items(&mut receipt, PLACE, &options, request).await;
    server.settle(&receipt, result.map(drop), measured);
}

/// Predicts and measures the named candidates of a data set, at a throughput that throttles bad ones.
async fn compare(
    set: DataSet,
    items: u64,
    throughput: u32,
    partitions_expected: usize,
    candidates: &[&str],
) -> Vec<(Prediction, Measured)> {
    let limits = Limits { throughput, ..Limits::default() };
    let config = Config {
        limits,
        throughput_is_given: true,
        candidates: candidates.iter().map(|text| (*text).to_owned()).collect(),
        only_given: true,
        requests_max: 5_000,
        ..Config::default()
    };
    let mut advisor = Advisor::new(config, Some(&set.workload())).unwrap();
    let bodies: Vec<String> = set.items(items, 11).collect();
    for body in &bodies {
        advisor.add(body.as_bytes()).unwrap();
    }
    let (analysis, replay, config) = advisor.replay().unwrap();
    assert_eq!(analysis.layout.count(), partitions_expected);
    let index = SampleIndex::new(&analysis, &replay, items as f64);
    let mut results = Vec::new();
    for (candidate, spread) in analysis.candidates.iter().zip(&analysis.spreads) {
        let predicted = predict(&analysis, candidate, &replay, &index, &config.limits);
        let measured = measure(candidate, &bodies, &analysis, &replay, &config.limits).await;
        println!(
            "{} {}: {} requests; 429: {} predicted, {} measured; RU: {:.0} predicted, {:.0} measured",
            set.name(),
            candidate.name,
            predicted.requests,
            predicted.throttled,
            measured.throttled,
            predicted.delivered,
            measured.delivered
        );
        // Every item is in the predicted partition.
        let said: Vec<u64> = spread.partitions.iter().map(|(items, _)| *items).collect();
        assert_eq!(said, measured.items, "{}", candidate.name);
        assert_eq!(predicted.requests, measured.requests, "{}", candidate.name);
        let close = |said: f64, found: f64| (said - found).abs() <= found.abs() * 0.1;
        assert!(close(predicted.delivered, measured.delivered), "{}", candidate.name);
        // A tenth of the measured rate; for rates below a percent, a thousandth of the requests.
        let (said, found) = (predicted.throttled as f64, measured.throttled as f64);
        assert!(
            close(said, found) || (said - found).abs() <= measured.requests as f64 * 0.001,
            "{}",
            candidate.name
        );
        results.push((predicted, measured));
    }
    results
}

const DATE_BY_VIN: &str =
    r#"{"format":1,"kind":"precalculatedSuffix","parts":["/date"],"suffix":{"of":["/VIN"],"count":16}}"#;
const DATE_AT_RANDOM: &str = r#"{"format":1,"kind":"randomSuffix","parts":["/date"],"suffix":{"count":16}}"#;

#[tokio::test]
async fn vehicles_are_throttled_as_predicted() {
    let results =
        compare(DataSet::Vehicles, 3000, 24_000, 4, &["/date", "/VIN", DATE_BY_VIN, DATE_AT_RANDOM]).await;
    // The comparison would mean little without throttling.
    assert!(results.iter().filter(|(_, measured)| measured.throttled * 20 > measured.requests).count() >= 2);
}

#[tokio::test]
async fn telemetry_is_throttled_as_predicted() {
    let results = compare(DataSet::Telemetry, 3000, 12_000, 2, &["/day", "/deviceId", "/site"]).await;
    assert!(results[0].1.throttled * 20 > results[0].1.requests);
}

#[tokio::test]
async fn tenants_are_throttled_as_predicted() {
    compare(DataSet::Tenants, 2000, 12_000, 2, &["/tenantId", "/tenantId,/userId", "/userId"]).await;
}

#[tokio::test]
async fn orders_are_throttled_as_predicted() {
    let results =
        compare(DataSet::Orders, 2000, 12_000, 2, &["/customerId", "/orderId", "/date", "/region"]).await;
    // Measured with a key that keeps transactions and with one that loses them.
    let (kept, lost) = (results[0].0.batches_kept, results[2].0.batches_lost);
    assert!(kept > 0 && lost > 0, "{kept} kept, {lost} lost");
}
