//! Predicts a replay under a candidate: where each request goes, what it costs by the server's own table, and which
//! requests the partitions' budgets would throttle.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use orrery_metering::{Budget, Priority, cost};
use orrery_model::{Charge, KeyPart};

use crate::analysis::{Analysis, Sampled, item_random};
use crate::candidate::{Candidate, Kind, Placed, Scratch, Visit};
use crate::fields::{Part, Values};
use crate::layout::{Layout, Limits};
use crate::matching::Matching;
use crate::query_cost::{Placement, QueryCost};
use crate::replay::{Moved, Replay, Request};
use crate::workload::{Operation, OperationKind};

/// Bytes that the name and quotes of a synthetic key add to an item, and its total size where the value is unknown.
const MADE_NAME_BYTES: usize = 17;
const MADE_BYTES: usize = 32;
/// Assumed average number of index terms that an update changes.
const TERMS_CHANGED: usize = 4;
/// Size of the cache of distinct reads.
const VISITS_MAX: usize = 50_000;
/// Time slices of the reported load.
pub const TIMELINE: usize = 64;

/// The result of a replay under one candidate.
#[derive(Clone, Debug, Default)]
pub struct Prediction {
    pub requests: u64,
    /// Throttled requests.
    pub throttled: u64,
    /// Request units of all requests, without throttling.
    pub offered: f64,
    /// Request units of admitted requests.
    pub delivered: f64,
    pub seconds: f64,
    /// Demanded request units per partition.
    pub partitions: Vec<f64>,
    /// Request units of admitted requests per partition.
    pub delivered_by_partition: Vec<f64>,
    /// Partitions that each query visits, by its instance.
    pub visited: HashMap<usize, usize>,
    /// Demanded request units per partition and time slice.
    pub timeline: Vec<Vec<f64>>,
    pub reads: Reads,
    pub batches_kept: u64,
    pub batches_lost: u64,
    /// The busiest key's share of the request units.
    pub hottest_key_share: f64,
    pub operations: Vec<OperationPrediction>,
    hot_factor: f64,
}

/// How reads are routed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reads {
    pub point: u64,
    /// Queries and reads that visit one partition.
    pub single: u64,
    pub fan_out: u64,
    /// Total number of partitions that those visit.
    pub fan_out_partitions: u64,
}

/// The prediction for one operation of the workload.
#[derive(Clone, Debug, Default)]
pub struct OperationPrediction {
    pub name: String,
    pub requests: u64,
    pub throttled: u64,
    pub charge: f64,
    /// Request units of admitted requests.
    pub delivered: f64,
    pub partitions: u64,
    /// The most expensive request, and the most partitions that one visits.
    pub charge_max: f64,
    pub partitions_max: usize,
    /// Some of its requests read all items of the partitions.
    pub scans: bool,
    /// Whether its requests could be estimated; otherwise they are excluded from all totals.
    pub is_estimated: bool,
}

impl Prediction {
    /// Request units per hour.
    pub fn per_hour(&self) -> f64 {
        self.offered / self.seconds.max(1e-9) * 3600.0
    }

    /// Share of requests that are throttled.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn throttled_share(&self) -> f64 {
        self.throttled as f64 / (self.requests as f64).max(1.0)
    }

    /// Load of the busiest partition as a multiple of an even share; for time-based keys, at any given time.
    pub fn hot_factor(&self) -> f64 {
        self.hot_factor
    }

    /// Load of the partition that is busiest over the whole replay, as a multiple of an even share.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    fn overall_hot_factor(&self) -> f64 {
        let most = self.partitions.iter().copied().fold(0.0, f64::max);
        if self.offered > 0.0 { most / self.offered * self.partitions.len() as f64 } else { 1.0 }
    }

    /// Request units of each partition at each of this many points in time.
    pub fn moments(&self, moments: usize) -> Vec<Vec<f64>> {
        let mut loads = vec![vec![0.0; self.partitions.len()]; moments];
        for (slot, partitions) in self.timeline.iter().enumerate() {
            let load = &mut loads[slot * moments / TIMELINE];
            load.iter_mut().zip(partitions).for_each(|(sum, units)| *sum += units);
        }
        loads
    }

    /// The same at each replayed point in time, on average.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    fn moments_hot_factor(&self, moments: usize) -> f64 {
        let most = |load: &Vec<f64>| load.iter().copied().fold(0.0, f64::max);
        let sum: f64 = self.moments(moments).iter().map(most).sum();
        if self.offered > 0.0 { sum / self.offered * self.partitions.len() as f64 } else { 1.0 }
    }

    /// Request units of operations that write, as a share of all.
    fn write_share(&self, replay: &Replay) -> f64 {
        let operations = replay.operations.iter().zip(&self.operations);
        let writes = operations.filter(|(operation, _)| operation.kind.writes());
        writes.map(|(_, own)| own.charge).sum::<f64>() / self.offered.max(1e-9)
    }

    /// Request units per second to provision so that the busiest partition does not throttle: its demand, times the number
    /// of partitions.
    pub fn needed_throughput(&self) -> f64 {
        self.offered / self.seconds.max(1e-9) * self.hot_factor()
    }
}

/// The skew of writes over the whole time range of the data, for time-based keys: a short replay covers few periods,
/// and suffixes may happen to spread well in some of them.
pub fn judge_over_time(prediction: &mut Prediction, replay: &Replay, unevenness: f64, is_suffixed: bool) {
    const MOMENTS_MIN: usize = 4;
    if replay.is_recorded || replay.segments() >= MOMENTS_MIN {
        return;
    }
    let writes = prediction.write_share(replay);
    let over_time = writes * unevenness + (1.0 - writes);
    prediction.hot_factor = if is_suffixed { over_time } else { prediction.hot_factor.max(over_time) };
}

/// The routing of a read.
struct Seen {
    /// The single key, if the read determines it.
    key: Option<Placed>,
    partitions: Vec<usize>,
}

/// Runs a replay under one candidate.
pub fn predict(
    analysis: &Analysis,
    candidate: &Candidate,
    replay: &Replay,
    matching: &Matching,
    limits: &Limits,
) -> Prediction {
    Run::new(analysis, candidate, replay, matching, limits).run()
}

struct Run<'a> {
    analysis: &'a Analysis,
    candidate: &'a Candidate,
    replay: &'a Replay,
    matching: &'a Matching,
    layout: &'a Layout,
    budgets: Vec<Budget>,
    placement: Placement<'a>,
    queries: HashMap<usize, Rc<QueryCost>>,
    /// Request units of each key that was visited individually.
    keys: HashMap<u64, f64>,
    /// The routing of reads, by the properties they specify.
    visits: HashMap<u64, Rc<Seen>>,
    scratch: Scratch,
    result: Prediction,
    id_slot: Option<usize>,
}

impl<'a> Run<'a> {
    fn new(
        analysis: &'a Analysis,
        candidate: &'a Candidate,
        replay: &'a Replay,
        matching: &'a Matching,
        limits: &Limits,
    ) -> Self {
        let layout = &analysis.layout;
        let budgets = (0..layout.count()).map(|_| {
            let budget = Budget::default();
            // Each partition has its share of the throughput.
            budget.set_rate(limits.share().into());
            budget
        });
        let own = analysis.candidates.iter().position(|other| other.name == candidate.name);
        let spread = own.map(|at| &analysis.spreads[at]);
        let placement = Placement::new(candidate, &analysis.paths, layout, matching, &replay.items, spread);
        let operations = replay.operations.iter();
        let operations = operations.map(|operation| OperationPrediction {
            name: operation.name.clone(),
            is_estimated: true,
            ..Default::default()
        });
        let result = Prediction {
            seconds: replay.seconds,
            partitions: vec![0.0; layout.count()],
            delivered_by_partition: vec![0.0; layout.count()],
            timeline: vec![vec![0.0; layout.count()]; TIMELINE],
            operations: operations.collect(),
            ..Prediction::default()
        };
        Self {
            analysis,
            candidate,
            replay,
            matching,
            layout,
            budgets: budgets.collect(),
            placement,
            queries: HashMap::new(),
            keys: HashMap::new(),
            visits: HashMap::new(),
            scratch: Scratch::default(),
            result,
            id_slot: analysis.paths.find("/id"),
        }
    }

    fn run(mut self) -> Prediction {
        let replay = self.replay;
        for (number, request) in replay.requests.iter().enumerate() {
            let operation = &replay.operations[request.operation];
            if self.matching.failures.contains_key(&request.operation) {
                self.result.operations[request.operation].is_estimated = false;
                continue;
            }
            let values = replay.values(request);
            let item = &replay.items[request.item];
            match operation.kind {
                OperationKind::Create => {
                    let placed = self.place_new(&values, number);
                    self.one(request, create_charge(item, &placed), &placed);
                }
                OperationKind::Batch => self.batch(request, operation, item, &values, number),
                OperationKind::Query => {
                    if let Some(cost) = self.query_cost(request.instance) {
                        self.result.visited.insert(request.instance, cost.partitions.len());
                        self.read(request, &cost, false);
                    }
                }
                // A point read if the client knows the key, otherwise a search.
                OperationKind::Read => match self.find(operation, request, item) {
                    Ok(placed) => {
                        self.result.reads.point += 1;
                        let bytes = item.bytes as usize + placed.added_bytes as usize;
                        self.one(request, cost::point_read(bytes), &placed);
                    }
                    Err(cost) => self.read(request, &cost, false),
                },
                OperationKind::Upsert
                | OperationKind::Replace
                | OperationKind::Patch
                | OperationKind::Delete => {
                    let charge = self.change_charge(operation.kind, item);
                    // A client that sends the whole item knows its key, unless the key has a random suffix.
                    let has_item = matches!(operation.kind, OperationKind::Upsert | OperationKind::Replace);
                    let own = (has_item && self.candidate.kind != Kind::RandomSuffix)
                        .then(|| self.placement.placed[request.item]);
                    match own.map_or_else(|| self.find(operation, request, item), Ok) {
                        Ok(placed) => self.one(request, charge, &placed),
                        // The search first, then the change.
                        Err(cost) => {
                            self.read(request, &cost, true);
                            self.one(request, charge, &self.placement.placed[request.item].clone());
                        }
                    }
                }
            }
        }
        let hottest = self.keys.values().copied().fold(0.0, f64::max);
        self.result.hottest_key_share = hottest / self.result.offered.max(1e-9);
        let follows = |slot: &usize| replay.paces.get(*slot).is_some_and(|pace| pace.follows());
        self.result.hot_factor = self.result.overall_hot_factor();
        // At any time such a key is busy in few places, although over the whole replay it looks even.
        if !replay.is_recorded && self.candidate.slots().iter().any(follows) {
            let moments = self.result.moments_hot_factor(replay.segments());
            self.result.hot_factor = self.result.hot_factor.max(moments);
        }
        self.result
    }

    fn place_new(&mut self, values: &Moved<'_>, number: usize) -> Placed {
        // Each created item draws a suffix of its own.
        let mut random = item_random(number as u64 ^ 0xA11CE);
        self.candidate.place(&self.analysis.paths, values, &mut random, &mut self.scratch)
    }

    fn change_charge(&self, kind: OperationKind, item: &Sampled) -> Charge {
        let added = if self.candidate.definition.is_some() { MADE_BYTES } else { 0 };
        let bytes = item.bytes as usize + added;
        match kind {
            OperationKind::Delete => cost::delete(item.terms as usize + made_terms(added)),
            OperationKind::Patch => cost::replace(bytes, TERMS_CHANGED) + cost::patch_operations(1),
            _ => cost::replace(bytes, TERMS_CHANGED),
        }
    }

    /// A batch: one transaction if the candidate keeps its items under one key.
    fn batch(
        &mut self,
        request: &Request,
        operation: &Operation,
        item: &Sampled,
        values: &Moved<'_>,
        number: usize,
    ) {
        // A batch is a transaction if the properties that its items share determine the key.
        let known = Known { values, slots: &operation.together, id: None };
        let kept = matches!(self.candidate.visit(&self.analysis.paths, &known), Visit::Keys(keys) if keys.len() == 1);
        let placed = self.place_new(values, number);
        let charge = create_charge(item, &placed);
        if kept {
            self.result.batches_kept += 1;
            let all = Charge::from_hundredths(charge.hundredths() * u64::from(operation.items));
            self.one(request, all, &placed);
            return;
        }
        self.result.batches_lost += 1;
        for sibling in 0..operation.items as usize {
            // The other items differ in every property that they do not share.
            // Any other items will do; the prime spreads them over the sample.
            let other = (request.item + sibling * 7919) % self.replay.items.len();
            let other =
                Sibling { shared: values, own: &self.replay.items[other].values, slots: &operation.together };
            let mut random = item_random((number * 131 + sibling) as u64);
            let placed = self.candidate.place(&self.analysis.paths, &other, &mut random, &mut self.scratch);
            self.one(request, charge, &placed);
        }
    }

    /// The key of the item that a request refers to, or the cost of finding it.
    fn find(
        &mut self,
        operation: &Operation,
        request: &Request,
        item: &Sampled,
    ) -> Result<Placed, QueryCost> {
        let known = Known { values: &item.values[..], slots: &operation.knows, id: self.id_slot };
        let mut hasher = DefaultHasher::new();
        // Reads that specify the same values visit the same partitions.
        for slot in self.candidate.slots() {
            known.part(*slot).to_key_part().hash(&mut hasher);
        }
        let hash = hasher.finish();
        let seen = if let Some(seen) = self.visits.get(&hash) {
            Rc::clone(seen)
        } else {
            let visit = self.candidate.visit(&self.analysis.paths, &known);
            let key = match &visit {
                Visit::Keys(keys) if keys.len() == 1 => keys.first().copied(),
                _ => None,
            };
            let seen = Rc::new(Seen { key, partitions: self.placement.partitions_of(&visit) });
            if self.visits.len() < VISITS_MAX {
                self.visits.insert(hash, Rc::clone(&seen));
            }
            seen
        };
        if let Some(key) = seen.key {
            return Ok(Placed { added_bytes: self.placement.placed[request.item].added_bytes, ..key });
        }
        let item_bytes = u64::from(item.bytes) + u64::from(self.placement.placed[request.item].added_bytes);
        let work = cost::QueryWork {
            partitions: seen.partitions.len() as u64,
            index_entries: 1,
            items: 1,
            item_bytes,
            // About what the system properties add to the row.
            output_bytes: item_bytes + 190,
        };
        let own = self.layout.partition_of(self.placement.placed[request.item].place);
        // The partition that has the item reads it; the others only look into their index.
        let weight = |partition: &usize| if *partition == own { 192.0 + f64::from(item.bytes) } else { 64.0 };
        let partitions = seen.partitions.iter().map(|partition| (*partition, weight(partition))).collect();
        Err(QueryCost { partitions, charge: cost::query(&work), key: None, scans: false })
    }

    /// The cost of a query with its parameters; none if it could not be evaluated.
    fn query_cost(&mut self, number: usize) -> Option<Rc<QueryCost>> {
        if let Some(cost) = self.queries.get(&number) {
            return Some(Rc::clone(cost));
        }
        let found = self.matching.of(number)?;
        let cost = Rc::new(self.placement.cost(&self.replay.instances[number], found));
        self.queries.insert(number, Rc::clone(&cost));
        Some(cost)
    }

    /// A request to one partition.
    fn one(&mut self, request: &Request, charge: Charge, placed: &Placed) {
        let partition = self.layout.partition_of(placed.place);
        *self.keys.entry(placed.hash).or_default() += charge.as_f64();
        self.settle(request, &[(partition, 1.0)], charge, true);
    }

    /// A query, or the search for an item. A search on behalf of a write is not counted as a request.
    fn read(&mut self, request: &Request, cost: &QueryCost, is_search: bool) {
        if cost.partitions.len() > 1 {
            self.result.reads.fan_out += 1;
            self.result.reads.fan_out_partitions += cost.partitions.len() as u64;
        } else {
            self.result.reads.single += 1;
        }
        self.result.operations[request.operation].scans |= cost.scans;
        if let Some(key) = cost.key {
            *self.keys.entry(key).or_default() += cost.charge.as_f64();
        }
        self.settle(request, &cost.partitions, cost.charge, !is_search);
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "parts of a charge"
    )]
    fn settle(&mut self, request: &Request, partitions: &[(usize, f64)], charge: Charge, is_request: bool) {
        let total: f64 = partitions.iter().map(|(_, weight)| weight).sum();
        let units = charge.as_f64();
        let start_ms = self.replay.requests[0].at_ms;
        let span_ms = (self.replay.seconds * 1000.0).max(1.0);
        // The slice of the replay that the request falls into.
        let slot = ((request.at_ms - start_ms) as f64 / span_ms * TIMELINE as f64) as usize;
        let slot = slot.min(TIMELINE - 1);
        // Demand counts whether or not it is admitted.
        for (partition, weight) in partitions {
            let share = units * weight / total.max(1e-9);
            self.result.partitions[*partition] += share;
            self.result.timeline[slot][*partition] += share;
        }
        let operation = &mut self.result.operations[request.operation];
        operation.charge += units;
        operation.charge_max = operation.charge_max.max(units);
        operation.partitions_max = operation.partitions_max.max(partitions.len());
        self.result.offered += units;
        if is_request {
            self.result.requests += 1;
            operation.requests += 1;
            operation.partitions += partitions.len() as u64;
        }
        // As in the server, a request is admitted by all partitions that it visits, or not at all.
        let refused = partitions
            .iter()
            .any(|(partition, _)| self.budgets[*partition].admit(request.at_ms, Priority::High).is_err());
        if refused {
            if is_request {
                self.result.throttled += 1;
                operation.throttled += 1;
            }
            return;
        }
        self.result.delivered += units;
        operation.delivered += units;
        // Settled after the work, each partition with its share.
        for (partition, weight) in partitions {
            self.result.delivered_by_partition[*partition] += units * weight / total.max(1e-9);
            let share = (charge.hundredths() as f64 * weight / total.max(1e-9)).round() as u64;
            self.budgets[*partition].settle(request.at_ms, Charge::from_hundredths(share), Priority::High);
        }
    }
}

fn create_charge(item: &Sampled, placed: &Placed) -> Charge {
    let added = placed.added_bytes as usize;
    cost::create(item.bytes as usize + added, item.terms as usize + made_terms(added))
}

/// Index terms of a synthetic key of this size.
fn made_terms(added_bytes: usize) -> usize {
    added_bytes.checked_sub(MADE_NAME_BYTES).map_or(0, cost::string_terms)
}

/// The properties of an item that a client knows.
struct Known<'a, V: ?Sized> {
    values: &'a V,
    slots: &'a [usize],
    id: Option<usize>,
}

impl<V: Values + ?Sized> Values for Known<'_, V> {
    fn part(&self, slot: usize) -> Part<'_> {
        if self.slots.contains(&slot) || self.id == Some(slot) {
            self.values.part(slot)
        } else {
            Part::Undefined
        }
    }
}

/// Another item of a batch.
struct Sibling<'a, V: ?Sized> {
    shared: &'a V,
    own: &'a [KeyPart],
    slots: &'a [usize],
}

impl<V: Values + ?Sized> Values for Sibling<'_, V> {
    fn part(&self, slot: usize) -> Part<'_> {
        if self.slots.contains(&slot) { self.shared.part(slot) } else { self.own.part(slot) }
    }
}
