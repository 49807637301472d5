//! A database on a clock that the test moves, with throttling, and the requests of a replay on it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use bytes::Bytes;
use orrery_advisor::Limits;
use orrery_advisor::analysis::{Analysis, item_random};
use orrery_advisor::candidate::{Candidate, Visit};
use orrery_advisor::fields::{Part, Values};
use orrery_advisor::replay::{Replay, Request};
use orrery_advisor::workload::OperationKind;
use orrery_db::{
    BatchKind, BatchOperation, BatchOutcome, BatchResult, Database, FeedScope, ItemOptions, Options,
    PageRequest, QueryOptions, QueryRequest, Receipt,
};
use orrery_env::Env;
use orrery_model::offer::Throughput;
use orrery_model::partition_key::PartitionKey;
use orrery_model::{ErrorKind, KeyPart, Value};
use orrery_storage::Memory;
use serde_json::Value as Json;

const PLACE: (&str, &str) = ("db", "items");

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

/// What the server measures.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub requests: u64,
    pub throttled: u64,
    pub delivered: f64,
    /// Items of each partition before the replay.
    pub items: Vec<u64>,
    /// Request units that each partition delivered.
    pub partitions: Vec<f64>,
    /// The same, second by second.
    #[allow(dead_code, reason = "only the example held_out reads it")]
    pub seconds: Vec<Vec<f64>>,
    /// Partitions that each query visited, by its instance.
    pub visited: BTreeMap<usize, usize>,
    /// Request units by operation, of requests that were not throttled, and their number.
    pub operations: Vec<(f64, u64)>,
}

/// A container with the items of a data set under a candidate's key.
pub(crate) struct Server {
    clock: Arc<Clock>,
    database: Arc<Database>,
    keys: HashMap<u64, PartitionKey>,
    items: Vec<u64>,
}

impl Server {
    /// Creates the container and its items. Times before `start_ms` are free.
    pub(crate) async fn start(
        candidate: &Candidate,
        limits: &Limits,
        bodies: &[String],
        start_ms: i64,
        throttle: bool,
    ) -> Result<Self, orrery_model::Error> {
        let now_ms = AtomicI64::new(start_ms - 100_000_000);
        let clock = Arc::new(Clock { now_ms, random: AtomicU64::new(7) });
        let options = Options { throttle, sweep_interval_ms: 24 * 3_600_000, ..Options::default() };
        let database = Database::open(Arc::new(Memory::new()), clock.clone(), options).await.unwrap();
        let mut receipt = Receipt::default();
        database.create_database(&mut receipt, br#"{"id":"db"}"#, None).await.unwrap();
        let mut body = serde_json::json!({ "id": "items", "partitionKey": candidate.partition_key() });
        if let Some(definition) = &candidate.definition {
            body["orrerySyntheticKey"] = definition.to_json().clone();
        }
        let throughput = Some(Throughput::Manual(limits.throughput));
        database.create_container(&mut receipt, "db", body.to_string().as_bytes(), throughput).await.unwrap();
        let mut keys = HashMap::new();
        for (ordinal, body) in (0u64..).zip(bodies) {
            let (body, key) = keyed(candidate, body, ordinal);
            let mut receipt = Receipt::default();
            let options = ItemOptions { partition_key: Some(key.clone()), ..ItemOptions::default() };
            database.create_item(&mut receipt, PLACE, &options, &Bytes::from(body)).await?;
            keys.insert(ordinal, key);
        }
        let view = database.container_view("db", "items").await.unwrap();
        let items = view.partitions.iter().map(|partition| partition.items).collect();
        Ok(Self { clock, database, keys, items })
    }

    /// Runs a replay, `later_ms` after its own times, so that budgets have nothing left of what came before.
    pub(crate) async fn run(
        &self,
        candidate: &Candidate,
        bodies: &[String],
        (analysis, replay): (&Analysis, &Replay),
        later_ms: i64,
    ) -> Measured {
        let operations = vec![(0.0, 0); replay.operations.len()];
        let mut measured = Measured { items: self.items.clone(), operations, ..Measured::default() };
        for (number, request) in replay.requests.iter().enumerate() {
            self.clock.now_ms.store(request.at_ms + later_ms, Ordering::SeqCst);
            let one = One { server: self, candidate, bodies, analysis, replay, request, number };
            one.send(&mut measured).await;
        }
        // The second that runs is not counted yet.
        let end_ms = self.clock.now_ms() + 2000;
        self.clock.now_ms.store(end_ms, Ordering::SeqCst);
        let view = self.database.container_view("db", "items").await.unwrap();
        let used = view.partitions.iter().map(|partition| partition.heat.per_second_last_minute * 60.0);
        measured.partitions = used.collect();
        let heat = self.database.container_heat("db", "items", 62, 0).unwrap();
        let seconds = |live: &orrery_db::LivePartition| {
            live.seconds.iter().map(|second| second.used.as_f64()).collect::<Vec<_>>()
        };
        measured.seconds = heat.partitions.iter().map(seconds).collect();
        measured
    }

    pub(crate) async fn close(self) {
        self.database.close().await.unwrap();
    }

    /// Counts a finished request.
    fn settle(
        &self,
        receipt: &Receipt,
        result: Result<(), orrery_model::Error>,
        operation: usize,
        measured: &mut Measured,
    ) {
        self.database.settle(receipt);
        measured.requests += 1;
        match result {
            Ok(()) => {
                measured.delivered += receipt.charge.as_f64();
                let (charge, requests) = &mut measured.operations[operation];
                (*charge, *requests) = (*charge + receipt.charge.as_f64(), *requests + 1);
            }
            Err(error) if matches!(error.kind, ErrorKind::TooManyRequests { .. }) => measured.throttled += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

/// One request of a replay.
struct One<'a> {
    server: &'a Server,
    candidate: &'a Candidate,
    bodies: &'a [String],
    analysis: &'a Analysis,
    replay: &'a Replay,
    request: &'a Request,
    number: usize,
}

impl One<'_> {
    async fn send(&self, measured: &mut Measured) {
        let operation = &self.replay.operations[self.request.operation];
        let database = &self.server.database;
        let item = &self.replay.items[self.request.item];
        let body = &self.bodies[usize::try_from(item.ordinal).unwrap()];
        let at = self.request.operation;
        let mut receipt = Receipt::default();
        match operation.kind {
            OperationKind::Create => {
                let mut new = self.of_now(body);
                new["id"] = Json::from(format!("new-{}", self.number));
                let (new, key) = keyed(self.candidate, &new.to_string(), self.number as u64 ^ 0xA11CE);
                let options = ItemOptions { partition_key: Some(key), ..ItemOptions::default() };
                let result = database.create_item(&mut receipt, PLACE, &options, &Bytes::from(new)).await;
                self.server.settle(&receipt, result.map(drop), at, measured);
            }
            OperationKind::Read => {
                // The client reads the item by its key if it can determine the key; otherwise it searches by id.
                let id: Json = serde_json::from_str(body).unwrap();
                let id = id["id"].as_str().unwrap();
                if self.knows_key(operation.knows.iter().copied().chain(self.analysis.paths.find("/id"))) {
                    let key = Some(self.server.keys[&item.ordinal].clone());
                    let options = ItemOptions { partition_key: key, ..ItemOptions::default() };
                    let result = database.read_item(&mut receipt, (PLACE.0, PLACE.1, id), &options).await;
                    self.server.settle(&receipt, result.map(drop), at, measured);
                } else {
                    let (text, parameters) = self.search(id, &operation.knows);
                    let request = QueryRequest { text, parameters, resume_filter: None };
                    self.query(self.known_levels(&operation.knows), &request, measured).await;
                }
            }
            OperationKind::Query => {
                let text = operation.query.as_ref().unwrap().text.clone();
                let parameters = self.replay.parameters[self.request.instance].clone();
                let request = QueryRequest { text, parameters, resume_filter: None };
                if let Some(visited) = self.query(FeedScope::default(), &request, measured).await {
                    let known = measured.visited.insert(self.request.instance, visited);
                    assert!(known.is_none_or(|known| known == visited));
                }
            }
            OperationKind::Batch => self.batch(body, measured).await,
            _ => panic!("the data sets of this test have no {:?}", operation.kind),
        }
    }

    /// A search for an item. With a synthetic key, the server finds its keys by the properties that the client knows.
    fn search(&self, id: &str, knows: &[usize]) -> (String, Vec<(String, Value)>) {
        let mut text = "SELECT * FROM c WHERE c.id = @id".to_owned();
        let mut parameters = vec![("@id".to_owned(), Value::from(id))];
        // More conditions are of no use if the search has to visit every partition anyway.
        let Visit::Keys(keys) = self.visit(knows.iter().copied()) else { return (text, parameters) };
        let layout = &self.analysis.layout;
        let visited: BTreeSet<usize> = keys.iter().map(|key| layout.partition_of(key.place)).collect();
        if self.candidate.definition.is_none() || visited.len() == layout.count() {
            return (text, parameters);
        }
        let item = &self.replay.items[self.request.item];
        for slot in self.candidate.slots().iter().filter(|slot| knows.contains(slot)) {
            let Some(value) = orrery_advisor::workload::parameter_value(&item.values[*slot]) else {
                continue;
            };
            let names = self.analysis.paths.name(*slot).split('/').skip(1);
            let names: Vec<&str> = names.collect();
            text = format!("{text} AND c[\"{}\"] = @p{slot}", names.join("\"][\""));
            parameters.push((format!("@p{slot}"), value));
        }
        (text, parameters)
    }

    /// Whether these properties of the item determine its key.
    fn knows_key(&self, slots: impl Iterator<Item = usize>) -> bool {
        matches!(self.visit(slots), Visit::Keys(keys) if keys.len() == 1)
    }

    /// The keys that a client visits who knows these properties of the item.
    fn visit(&self, slots: impl Iterator<Item = usize>) -> Visit {
        let item = &self.replay.items[self.request.item];
        let mut known = vec![KeyPart::Undefined; self.analysis.paths.len()];
        for slot in slots {
            known[slot] = item.values[slot].clone();
        }
        self.candidate.visit(&self.analysis.paths, &known[..])
    }

    /// The first levels of the item's key, as far as a client that knows these properties can tell.
    fn known_levels(&self, knows: &[usize]) -> FeedScope {
        let item = &self.replay.items[self.request.item];
        let slots = self.candidate.key_paths.iter().map(|path| self.analysis.paths.find(path));
        let known = slots.map_while(|slot| slot.filter(|slot| knows.contains(slot)));
        let known: Vec<KeyPart> = known.map(|slot| item.values[slot].clone()).collect();
        let partition_key = (!known.is_empty()).then(|| PartitionKey::new(known));
        FeedScope { partition_key, ..FeedScope::default() }
    }

    /// All pages of a query; the number of partitions that served it, unless it was throttled.
    async fn query(
        &self,
        scope: FeedScope,
        request: &QueryRequest,
        measured: &mut Measured,
    ) -> Option<usize> {
        let mut continuation = None;
        let mut sum = Receipt::default();
        let mut visited: BTreeSet<u32> = BTreeSet::new();
        loop {
            let page = PageRequest { items_max: Some(-1), continuation };
            let scope = scope.clone();
            let options = QueryOptions { page, scope, cross_partition: true, ..QueryOptions::default() };
            let mut receipt = Receipt::default();
            let database = &self.server.database;
            let result = database.query_items(&mut receipt, PLACE, &options, request).await;
            visited.extend(receipt.served.iter().map(|served| served.range_id));
            match result {
                Ok(page) if page.continuation.is_some() => {
                    database.settle(&receipt);
                    sum.add(receipt.charge);
                    continuation = page.continuation;
                }
                result => {
                    let is_served = result.is_ok();
                    database.settle(&receipt);
                    sum.add(receipt.charge);
                    // What was settled page by page is not settled again: the sum has been admitted nowhere.
                    self.server.settle(&sum, result.map(drop), self.request.operation, measured);
                    return is_served.then_some(visited.len());
                }
            }
        }
    }

    async fn batch(&self, body: &str, measured: &mut Measured) {
        let operation = &self.replay.operations[self.request.operation];
        let database = &self.server.database;
        let is_kept = self.knows_key(operation.together.iter().copied());
        let shared = self.of_now(body);
        let mut batch = Vec::new();
        for sibling in 0..operation.items as usize {
            // The items of a transaction are alike; if the transaction is lost, they share only the `together` properties.
            let mut new = shared.clone();
            if !is_kept {
                let count = self.replay.items.len();
                let other = &self.replay.items[(self.request.item + sibling * 7919) % count];
                new = serde_json::from_str(&self.bodies[usize::try_from(other.ordinal).unwrap()]).unwrap();
                for name in operation.together.iter().map(|slot| self.analysis.paths.name(*slot)) {
                    *new.pointer_mut(name).unwrap() = shared.pointer(name).unwrap().clone();
                }
            }
            new["id"] = Json::from(format!("new-{}-{sibling}", self.number));
            batch.push(keyed(self.candidate, &new.to_string(), (self.number * 131 + sibling) as u64));
        }
        if is_kept {
            let mut receipt = Receipt::default();
            let options = ItemOptions { partition_key: Some(batch[0].1.clone()), ..ItemOptions::default() };
            let operations: Vec<_> = batch.into_iter().map(|(body, _)| creation(body)).collect();
            let result = database.execute_batch(&mut receipt, PLACE, &options, &operations).await;
            let done = |result: &BatchResult| matches!(result.outcome, BatchOutcome::Done(_));
            assert!(result.as_ref().map_or(true, |results| results.iter().all(done)));
            self.server.settle(&receipt, result.map(drop), self.request.operation, measured);
            return;
        }
        for (body, key) in batch {
            let mut receipt = Receipt::default();
            let options = ItemOptions { partition_key: Some(key), ..ItemOptions::default() };
            let result = database.create_item(&mut receipt, PLACE, &options, &Bytes::from(body)).await;
            self.server.settle(&receipt, result.map(drop), self.request.operation, measured);
        }
    }

    /// An item with the values of the time at which the request is sent.
    fn of_now(&self, body: &str) -> Json {
        let values = self.replay.values(self.request);
        let mut new: Json = serde_json::from_str(body).unwrap();
        for (slot, _) in self.replay.paces.iter().enumerate().filter(|(_, pace)| pace.follows()) {
            let Some(place) = new.pointer_mut(self.analysis.paths.name(slot)) else { continue };
            match values.part(slot) {
                Part::Text(text) => *place = Json::from(text),
                #[expect(clippy::cast_possible_truncation, reason = "whole numbers of the data")]
                Part::Number(number) => *place = Json::from(number as i64),
                _ => {}
            }
        }
        new
    }
}

/// The item with the candidate's key inserted, and that key.
fn keyed(candidate: &Candidate, item: &str, draw: u64) -> (String, PartitionKey) {
    let mut item: Json = serde_json::from_str(item).unwrap();
    if let Some(definition) = &candidate.definition {
        let mut random = item_random(draw);
        let mut draw = |bound: u32| u32::try_from(random.below(bound.into())).unwrap();
        definition.insert_into(&mut item, &mut draw).unwrap();
    }
    // An absent property is `{}`.
    let absent = || serde_json::json!({});
    let parts = candidate.key_paths.iter().map(|path| item.pointer(path).cloned().unwrap_or_else(absent));
    let header = Json::from(parts.collect::<Vec<_>>()).to_string();
    (item.to_string(), PartitionKey::parse_json(header.as_bytes()).unwrap())
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
