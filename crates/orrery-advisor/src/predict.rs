//! Predicts a replay under a candidate: where each request goes, what it costs by the server's own table, and which
//! requests the partitions' budgets would throttle.
//!
//! Queries are charged as the server executes them: the equality with the fewest index entries is followed, within the
//! keys that the filter allows. Counts come from the sample, which is everything for small data. For larger data a value
//! that `c` of `s` sampled items have is assumed to occur in `1 + (c - 1) (N - 1) / (s - 1)` items, which is unbiased for
//! values taken from items.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use orrery_metering::{Budget, Priority, cost};
use orrery_model::{Charge, KeyPart};

use crate::analysis::{Analysis, Sampled, item_random};
use crate::candidate::{Candidate, Kind, Placed, Scratch, Visit};
use crate::fields::{Part, Values};
use crate::layout::{Layout, Limits};
use crate::replay::{Moved, Replay, Request};
use crate::workload::{Operation, OperationKind, Output, QueryInstance};

/// Bytes of system properties that the server adds to each returned item.
const SYSTEM_BYTES: f64 = 190.0;
/// Up to this many keys, the index is read key by key.
const POINTS_MAX: usize = 64;
/// Entries that the server counts to estimate a condition.
const PROBE: f64 = 128.0;
/// Rows of a page.
const PAGE_ROWS: f64 = 1000.0;
/// Bytes that the name and quotes of a synthetic key add to an item, and its total size where the value is unknown.
const MADE_NAME_BYTES: usize = 17;
const MADE_BYTES: usize = 32;
/// Assumed average number of index terms that an update changes.
const TERMS_CHANGED: usize = 4;
/// Size of the cache of distinct reads.
const VISITS_MAX: usize = 50_000;
/// Time slices of the reported load.
pub const TIMELINE: usize = 60;

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
    /// Demanded request units per partition and time slice.
    pub timeline: Vec<Vec<f64>>,
    pub reads: Reads,
    pub batches_kept: u64,
    pub batches_lost: u64,
    /// The busiest key's share of the request units.
    pub hottest_key_share: f64,
    pub operations: Vec<OperationPrediction>,
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
    pub partitions: u64,
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

    /// Load of the busiest partition as a multiple of an even share.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn hot_factor(&self) -> f64 {
        let most = self.partitions.iter().copied().fold(0.0, f64::max);
        if self.offered > 0.0 { most / self.offered * self.partitions.len() as f64 } else { 1.0 }
    }

    /// Request units per second to provision so that the busiest partition does not throttle: its demand, times the number
    /// of partitions.
    pub fn needed_throughput(&self) -> f64 {
        self.offered / self.seconds.max(1e-9) * self.hot_factor()
    }
}

/// The routing of a read.
struct Seen {
    /// The single key, if the read determines it.
    key: Option<Placed>,
    partitions: Vec<usize>,
}

/// The cost of a query under a candidate.
#[derive(Clone, Debug)]
struct QueryCost {
    /// Visited partitions with their share of the work.
    partitions: Vec<(usize, f64)>,
    charge: Charge,
}

/// Finds sampled items by a property's value.
pub struct SampleIndex {
    by_slot: HashMap<usize, HashMap<u64, Vec<u32>>>,
    uniform: usize,
    /// Items that each sampled one represents.
    scale: f64,
}

impl SampleIndex {
    /// Indexes the sample by the properties that the replay filters by.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn new(analysis: &Analysis, replay: &Replay, items_total: f64) -> Self {
        let id = analysis.paths.find("/id").into_iter();
        let slots = replay.instances.iter().flat_map(|instance| &instance.conditions);
        let slots: HashSet<usize> = slots.map(|condition| condition.slot).chain(id).collect();
        let mut by_slot = HashMap::new();
        for slot in slots {
            let mut places: HashMap<u64, Vec<u32>> = HashMap::new();
            for (at, item) in analysis.sample.iter().enumerate() {
                let part = &item.values[slot];
                if *part != KeyPart::Undefined {
                    places.entry(hash_of(part)).or_default().push(u32::try_from(at).unwrap_or(u32::MAX));
                }
            }
            by_slot.insert(slot, places);
        }
        let uniform = analysis.sample.len();
        let scale = if uniform > 1 { ((items_total - 1.0) / (uniform as f64 - 1.0)).max(1.0) } else { 1.0 };
        Self { by_slot, uniform, scale }
    }

    fn matching(&self, slot: usize, values: &[KeyPart]) -> Vec<u32> {
        let Some(places) = self.by_slot.get(&slot) else { return Vec::new() };
        let found = values.iter().filter_map(|value| places.get(&hash_of(value)));
        found.flatten().copied().collect()
    }

    /// Extrapolates from sampled items to all items.
    fn estimate(&self, sampled: usize) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let sampled = sampled as f64;
        if sampled == 0.0 { 0.0 } else { 1.0 + (sampled - 1.0) * self.scale }
    }
}

fn hash_of(part: &KeyPart) -> u64 {
    let mut hasher = DefaultHasher::new();
    part.hash(&mut hasher);
    hasher.finish()
}

/// Runs a replay under one candidate.
pub fn predict(
    analysis: &Analysis,
    candidate: &Candidate,
    replay: &Replay,
    index: &SampleIndex,
    limits: &Limits,
) -> Prediction {
    Run::new(analysis, candidate, replay, index, limits).run()
}

struct Run<'a> {
    analysis: &'a Analysis,
    candidate: &'a Candidate,
    replay: &'a Replay,
    index: &'a SampleIndex,
    layout: &'a Layout,
    budgets: Vec<Budget>,
    /// The positions of the sampled items.
    placed: Vec<Placed>,
    queries: HashMap<usize, Rc<QueryCost>>,
    keys: HashMap<u64, f64>,
    /// The routing of reads, by what they know.
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
        index: &'a SampleIndex,
        limits: &Limits,
    ) -> Self {
        let layout = &analysis.layout;
        let budgets = (0..layout.count()).map(|_| {
            let budget = Budget::default();
            budget.set_rate(limits.share().into());
            budget
        });
        let mut scratch = Scratch::default();
        let place = |item: &Sampled| {
            candidate.place(&analysis.paths, &item.values[..], &mut item_random(item.ordinal), &mut scratch)
        };
        let placed = replay.items.iter().map(place).collect();
        let operations = replay.operations.iter();
        let operations = operations
            .map(|operation| OperationPrediction { name: operation.name.clone(), ..Default::default() });
        let result = Prediction {
            seconds: replay.seconds,
            partitions: vec![0.0; layout.count()],
            timeline: vec![vec![0.0; layout.count()]; TIMELINE],
            operations: operations.collect(),
            ..Prediction::default()
        };
        Self {
            analysis,
            candidate,
            replay,
            index,
            layout,
            budgets: budgets.collect(),
            placed,
            queries: HashMap::new(),
            keys: HashMap::new(),
            visits: HashMap::new(),
            scratch,
            result,
            id_slot: analysis.paths.find("/id"),
        }
    }

    fn run(mut self) -> Prediction {
        let replay = self.replay;
        for (number, request) in replay.requests.iter().enumerate() {
            let operation = &replay.operations[request.operation];
            let values = replay.values(request);
            let item = &replay.items[request.item];
            match operation.kind {
                OperationKind::Create => {
                    let placed = self.place_new(&values, number);
                    self.one(request, create_charge(item, &placed), &placed);
                }
                OperationKind::Batch => self.batch(request, operation, item, &values, number),
                OperationKind::Query => {
                    let cost = self.query_cost(request.instance);
                    self.read(request, &cost, false);
                }
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
                        .then(|| self.placed[request.item]);
                    match own.map_or_else(|| self.find(operation, request, item), Ok) {
                        Ok(placed) => self.one(request, charge, &placed),
                        Err(cost) => {
                            self.read(request, &cost, true);
                            self.one(request, charge, &self.placed[request.item].clone());
                        }
                    }
                }
            }
        }
        let hottest = self.keys.values().copied().fold(0.0, f64::max);
        self.result.hottest_key_share = hottest / self.result.offered.max(1e-9);
        self.result
    }

    fn place_new(&mut self, values: &Moved<'_>, number: usize) -> Placed {
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
            let seen = Rc::new(Seen { key, partitions: self.partitions_of(&visit) });
            if self.visits.len() < VISITS_MAX {
                self.visits.insert(hash, Rc::clone(&seen));
            }
            seen
        };
        if let Some(key) = seen.key {
            return Ok(Placed { added_bytes: self.placed[request.item].added_bytes, ..key });
        }
        let work = cost::QueryWork {
            partitions: seen.partitions.len() as u64,
            index_entries: 1,
            items: 1,
            item_bytes: item.bytes.into(),
            output_bytes: u64::from(item.bytes) + 190,
        };
        let own = self.layout.partition_of(self.placed[request.item].place);
        let weight = |partition: &usize| if *partition == own { 192.0 + f64::from(item.bytes) } else { 64.0 };
        let partitions = seen.partitions.iter().map(|partition| (*partition, weight(partition))).collect();
        Err(QueryCost { partitions, charge: cost::query(&work) })
    }

    fn partitions_of(&self, visit: &Visit) -> Vec<usize> {
        let mut partitions: Vec<usize> = match visit {
            Visit::Keys(keys) => keys.iter().map(|key| self.layout.partition_of(key.place)).collect(),
            Visit::Prefixes(places) => places.iter().map(|place| self.layout.partition_of(*place)).collect(),
            Visit::Everywhere => return (0..self.layout.count()).collect(),
        };
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    }

    /// The cost of a query with its parameters.
    fn query_cost(&mut self, number: usize) -> Rc<QueryCost> {
        if let Some(cost) = self.queries.get(&number) {
            return Rc::clone(cost);
        }
        let cost = Rc::new(self.cost_of(&self.replay.instances[number]));
        self.queries.insert(number, Rc::clone(&cost));
        cost
    }

    /// Models the server: the condition with the fewest entries in the first partition is followed, the visited partitions
    /// are read in turn, and a query with a row limit ends when it is reached.
    #[expect(clippy::cast_precision_loss, reason = "estimates")]
    fn cost_of(&self, instance: &QueryInstance) -> QueryCost {
        let visit = self.visit_of(instance);
        let mut partitions = self.partitions_of(&visit);
        if instance.is_empty {
            partitions.truncate(1);
        }
        let windows = Window::of(&visit);
        let partition_of = |at: u32| self.layout.partition_of(self.placed[at as usize].place);
        let is_in = |at: u32| windows.contains(&self.placed[at as usize]);
        let ways = self.ways(instance, &visit, &partitions, &windows);
        let (best, probes) = choose(&ways);
        let mut work = Work::default();
        let mut weights: Vec<f64> = vec![1.0; partitions.len()];
        for way in &probes {
            work.entries += way.probed;
            if let Some(first) = weights.first_mut() {
                *first += 64.0 * way.ranges + way.probed * way.entry_bytes;
            }
        }
        let followed: Vec<u32> = match best {
            Some(way) => way.found.clone(),
            None => {
                (0..u32::try_from(self.index.uniform).unwrap_or(u32::MAX)).filter(|at| is_in(*at)).collect()
            }
        };
        let counts_by_index =
            instance.output == Output::Count && instance.is_exact && ways.len() == 1 && ways[0].is_narrow;
        if counts_by_index {
            work.entries = 0.0;
        }
        // The matches in each partition. A sampled item represents several.
        let each = if followed.is_empty() {
            0.0
        } else {
            self.index.estimate(followed.len()) / followed.len() as f64
        };
        let mut found: Vec<Work> = vec![Work::default(); partitions.len()];
        for at in followed {
            let Ok(place) = partitions.binary_search(&partition_of(at)) else { continue };
            let own = &mut found[place];
            own.entries += if best.is_some() { each } else { 0.0 };
            if best.is_some() && !is_in(at) || counts_by_index {
                continue;
            }
            let item = &self.replay.items[at as usize];
            own.items += each;
            own.bytes += each * f64::from(item.bytes);
            let matches = |condition: &crate::workload::Condition| {
                condition.values.contains(&item.values[condition.slot])
            };
            own.rows += if instance.conditions.iter().all(matches) { each } else { 0.0 };
        }
        let rows: f64 = found.iter().map(|own| own.rows).sum();
        let row_scale = instance.rows.filter(|_| rows > 0.0).map_or(1.0, |told| told / rows);
        let mut left = instance.rows_max.map_or(f64::INFINITY, |rows| rows as f64);
        let mut visited = 0;
        let entry_bytes = best.map_or(0.0, |way| way.entry_bytes);
        let ranges = best.map_or(1.0, |way| way.ranges);
        for (own, weight) in found.iter().zip(&mut weights) {
            if left <= 0.0 {
                break;
            }
            visited += 1;
            let rows = own.rows * row_scale;
            let part = if rows > left { left / rows } else { 1.0 };
            left -= rows;
            work.entries += own.entries * part;
            work.items += own.items * part;
            work.bytes += own.bytes * part;
            work.rows += rows * part;
            let loads = if own.items > 0.0 { 64.0 } else { 0.0 };
            *weight +=
                64.0 * ranges + loads + (own.entries * entry_bytes + own.bytes + own.items * 48.0) * part;
        }
        partitions.truncate(visited.max(1));
        let mean_bytes = if work.items > 0.0 { work.bytes / work.items } else { 0.0 };
        let row_bytes = match instance.output {
            Output::Count => 0.0,
            Output::Items => mean_bytes + SYSTEM_BYTES,
            Output::Parts => mean_bytes * 0.3,
        };
        let charge = work.charge(partitions.len(), row_bytes);
        QueryCost { partitions: partitions.into_iter().zip(weights).collect(), charge }
    }

    /// The conditions as access paths.
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    fn ways(
        &self,
        instance: &QueryInstance,
        visit: &Visit,
        partitions: &[usize],
        windows: &Window,
    ) -> Vec<Way> {
        let (is_points, keys) = match visit {
            Visit::Keys(keys) => (true, keys.len()),
            _ => (false, 0),
        };
        let partition_of = |at: u32| self.layout.partition_of(self.placed[at as usize].place);
        let first = partitions.first().copied().unwrap_or(0);
        let ways = instance.conditions.iter().map(|condition| {
            let mut found = self.index.matching(condition.slot, &condition.values);
            let is_narrowed = is_points && keys * condition.values.len() <= POINTS_MAX;
            if is_narrowed {
                found.retain(|at| windows.contains(&self.placed[*at as usize]));
            } else {
                found.retain(|at| partitions.binary_search(&partition_of(*at)).is_ok());
            }
            let in_first = found.iter().filter(|at| partition_of(**at) == first).count();
            let value_bytes = match condition.values.first() {
                Some(KeyPart::String(text)) => text.len(),
                _ => 8,
            };
            Way {
                probed: self.index.estimate(in_first).min(PROBE),
                found,
                is_narrow: is_narrowed || !is_points,
                ranges: (condition.values.len() * if is_narrowed { keys } else { 1 }) as f64,
                entry_bytes: f64::from(u32::try_from(value_bytes).unwrap_or(64)) + 42.0,
            }
        });
        let mut ways: Vec<Way> = ways.collect();
        ways.sort_by_key(|way| !way.is_narrow);
        ways
    }

    /// The keys that a query must visit, given everything that its filter fixes.
    fn visit_of(&self, instance: &QueryInstance) -> Visit {
        let slots = self.analysis.paths.len();
        let mut alternatives: Vec<Vec<KeyPart>> = vec![vec![KeyPart::Undefined; slots]];
        for condition in &instance.conditions {
            if alternatives.len() * condition.values.len() > POINTS_MAX {
                continue;
            }
            alternatives = alternatives
                .iter()
                .flat_map(|known| {
                    condition.values.iter().map(move |value| {
                        let mut known = known.clone();
                        known[condition.slot] = value.clone();
                        known
                    })
                })
                .collect();
        }
        let mut all: Option<Visit> = None;
        for known in &alternatives {
            let visit = self.candidate.visit(&self.analysis.paths, &known[..]);
            all = Some(match (all, visit) {
                (None, visit) => visit,
                (Some(Visit::Keys(mut keys)), Visit::Keys(more)) => {
                    keys.extend(more);
                    Visit::Keys(keys)
                }
                (Some(Visit::Prefixes(mut places)), Visit::Prefixes(more)) => {
                    places.extend(more);
                    Visit::Prefixes(places)
                }
                _ => Visit::Everywhere,
            });
        }
        all.unwrap_or(Visit::Everywhere)
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
        let slot = ((request.at_ms - start_ms) as f64 / span_ms * TIMELINE as f64) as usize;
        let slot = slot.min(TIMELINE - 1);
        for (partition, weight) in partitions {
            let share = units * weight / total.max(1e-9);
            self.result.partitions[*partition] += share;
            self.result.timeline[slot][*partition] += share;
        }
        let operation = &mut self.result.operations[request.operation];
        operation.charge += units;
        self.result.offered += units;
        if is_request {
            self.result.requests += 1;
            operation.requests += 1;
            operation.partitions += partitions.len() as u64;
        }
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
        for (partition, weight) in partitions {
            let share = (charge.hundredths() as f64 * weight / total.max(1e-9)).round() as u64;
            self.budgets[*partition].settle(request.at_ms, Charge::from_hundredths(share), Priority::High);
        }
    }
}

/// A condition that the index can answer.
struct Way {
    /// Sampled items that match it.
    found: Vec<u32>,
    /// Only entries of the wanted keys are read.
    is_narrow: bool,
    /// Entries counted in the first partition to estimate it.
    probed: f64,
    entry_bytes: f64,
    /// Index ranges, each of which is a separate read.
    ranges: f64,
}

fn create_charge(item: &Sampled, placed: &Placed) -> Charge {
    let added = placed.added_bytes as usize;
    cost::create(item.bytes as usize + added, item.terms as usize + made_terms(added))
}

/// Index terms of a synthetic key of this size.
fn made_terms(added_bytes: usize) -> usize {
    added_bytes.checked_sub(MADE_NAME_BYTES).map_or(0, cost::string_terms)
}

/// The access path that the server would choose, and those it would probe.
fn choose(ways: &[Way]) -> (Option<&Way>, Vec<&Way>) {
    let mut best: Option<&Way> = None;
    let mut probes = Vec::new();
    for way in ways {
        if best.is_some_and(|best| best.is_narrow && !way.is_narrow) {
            continue;
        }
        let needs_probe = ways.len() > 1 || !way.is_narrow;
        if needs_probe {
            probes.push(way);
        }
        if needs_probe && way.probed >= PROBE && !way.is_narrow {
            continue;
        }
        if best.is_none_or(|best| way.probed < best.probed) {
            best = Some(way);
        }
    }
    (best, probes)
}

/// What a query reads.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    entries: f64,
    items: f64,
    bytes: f64,
    rows: f64,
}

impl Work {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "estimates of counts")]
    fn charge(&self, partitions: usize, row_bytes: f64) -> Charge {
        let whole = |number: f64| number.round().max(0.0) as u64;
        let work = cost::QueryWork {
            partitions: partitions.max(1) as u64,
            index_entries: whole(self.entries),
            items: whole(self.items),
            item_bytes: whole(self.bytes),
            output_bytes: whole(self.rows * row_bytes),
        };
        let pages = (self.rows / PAGE_ROWS).ceil().max(1.0);
        let page = cost::query(&cost::QueryWork { partitions: 1, ..Default::default() });
        cost::query(&work) + Charge::from_hundredths(page.hundredths() * whole(pages - 1.0))
    }
}

/// The keys that a read must visit.
enum Window {
    All,
    Keys(HashSet<u64>),
    Places(HashSet<u128>),
}

impl Window {
    fn of(visit: &Visit) -> Self {
        match visit {
            Visit::Everywhere => Self::All,
            Visit::Keys(keys) => Self::Keys(keys.iter().map(|key| key.hash).collect()),
            Visit::Prefixes(places) => Self::Places(places.iter().copied().collect()),
        }
    }

    fn contains(&self, placed: &Placed) -> bool {
        match self {
            Self::All => true,
            Self::Keys(keys) => keys.contains(&placed.hash),
            Self::Places(places) => places.contains(&placed.place),
        }
    }
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
