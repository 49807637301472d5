//! Turns a workload into requests: which item each refers to, and when it is sent.
//!
//! A recording is replayed as it was. Operations with rates are spread evenly over some seconds, each with an item of the
//! sample. New items get the time of the replay, as real writes do, so that keys built from dates see a realistic load.

use std::collections::HashMap;

use orrery_model::{KeyPart, Value};

use crate::analysis::{Analysis, Sampled, id_hash};
use crate::fields::{Part, Values};
use crate::moment;
use crate::random::Random;
use crate::workload::{
    Operation, OperationKind, Parameter, QueryInstance, RecordedRequest, Workload, parameter_value,
};

/// Default number of requests generated from rates.
pub const REQUESTS_MAX: usize = 60_000;
/// Duration of a replay of rates, in seconds.
const SECONDS: f64 = 60.0;
/// Parameter sets per query.
const INSTANCES_MAX: usize = 256;
/// Distinct queries with parameters of a recording that are tracked separately.
const RECORDED_INSTANCES_MAX: usize = 4096;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub at_ms: i64,
    /// Index of its operation in the workload.
    pub operation: usize,
    /// The item it refers to, as an index into [`Replay::items`].
    pub item: usize,
    /// The item whose times it uses.
    pub moment: usize,
    /// The query with its parameters, as an index into [`Replay::instances`].
    pub instance: usize,
}

/// A workload as individual requests.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    pub operations: Vec<Operation>,
    pub requests: Vec<Request>,
    pub items: Vec<Sampled>,
    pub instances: Vec<QueryInstance>,
    /// The parameters of each instance, for running it elsewhere.
    pub parameters: Vec<Vec<(String, Value)>>,
    /// Which properties are times, by slot.
    pub is_time: Vec<bool>,
    pub seconds: f64,
    /// Recorded requests whose item is not in the data.
    pub unmatched: u64,
    /// Queries that could not be compiled with their parameters.
    pub failed: Vec<String>,
}

impl Replay {
    /// Generates the requests of a workload from the items of an analysis.
    pub fn new(analysis: &Analysis, workload: &Workload, requests_max: usize, seed: u64) -> Self {
        let is_time = time_slots(analysis);
        let mut replay = Self {
            operations: workload.operations.clone(),
            items: analysis.sample.clone(),
            is_time,
            ..Self::default()
        };
        if replay.items.is_empty() {
            return replay;
        }
        if workload.recorded.is_empty() {
            replay.make(analysis, requests_max, &mut Random::new(seed));
        } else {
            replay.follow(analysis, &workload.recorded, &mut Random::new(seed));
        }
        replay
    }

    /// The values of a request's item at its time.
    pub fn values(&self, request: &Request) -> Moved<'_> {
        Moved {
            item: &self.items[request.item].values,
            moment: &self.items[request.moment].values,
            is_time: &self.is_time,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "counts and times of a replay"
    )]
    fn make(&mut self, analysis: &Analysis, requests_max: usize, random: &mut Random) {
        let total: f64 = self.operations.iter().map(|operation| operation.per_second).sum();
        if total <= 0.0 {
            return;
        }
        self.seconds = (requests_max as f64 / total).clamp(2.0, SECONDS);
        // New writes continue at the end of the data.
        let end_ms = analysis.time.map_or(0, |(_, last)| last);
        let start_ms = end_ms - (self.seconds * 1000.0) as i64;
        let recent_from = self.items.len() - (self.items.len() / 20).max(1);
        for at in 0..self.operations.len() {
            let operation = self.operations[at].clone();
            let instances = self.instances_of(&operation, recent_from, analysis, random);
            let count = (operation.per_second * self.seconds).round() as usize;
            for number in 0..count {
                // Evenly, with a little jitter.
                let offset = (number as f64 + random.unit()) / operation.per_second;
                let at_ms = start_ms + (offset * 1000.0) as i64;
                let item = if operation.recent {
                    recent_from + random.index(self.items.len() - recent_from)
                } else {
                    random.index(self.items.len())
                };
                // A new item gets the times of a sampled item from that moment; an existing one keeps its own.
                let moment = if operation.kind.writes()
                    && matches!(operation.kind, OperationKind::Create | OperationKind::Batch)
                {
                    self.items.partition_point(|item| item.at_ms < at_ms).min(self.items.len() - 1)
                } else {
                    item
                };
                let instance =
                    if instances.is_empty() { 0 } else { instances[random.index(instances.len())] };
                self.requests.push(Request { at_ms, operation: at, item, moment, instance });
            }
        }
        self.requests.sort_by_key(|request| request.at_ms);
    }

    /// Queries with the parameters of some items.
    fn instances_of(
        &mut self,
        operation: &Operation,
        recent_from: usize,
        analysis: &Analysis,
        random: &mut Random,
    ) -> Vec<usize> {
        let Some(shape) = &operation.query else { return Vec::new() };
        let is_fixed = shape.parameters.iter().all(|(_, source)| matches!(source, Parameter::Value(_)));
        let wanted = if is_fixed { 1 } else { INSTANCES_MAX.min(self.items.len()) };
        let mut found = Vec::with_capacity(wanted);
        for _ in 0..wanted {
            let from = if operation.recent { recent_from } else { 0 };
            let item = &self.items[from + random.index(self.items.len() - from)];
            let parameters = shape.parameters.iter().filter_map(|(name, source)| {
                let value = match source {
                    Parameter::Path(slot) => parameter_value(&item.values[*slot])?,
                    Parameter::Value(value) => value.clone(),
                };
                Some((name.clone(), value))
            });
            let parameters: Vec<_> = parameters.collect();
            match shape.instance(&parameters, &analysis.paths) {
                Ok(instance) => {
                    found.push(self.instances.len());
                    self.instances.push(instance);
                    self.parameters.push(parameters);
                }
                Err(reason) => {
                    self.failed.push(format!("{}: {reason}", shape.text));
                    break;
                }
            }
        }
        found
    }

    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    fn follow(&mut self, analysis: &Analysis, recorded: &[RecordedRequest], random: &mut Random) {
        let mut places: HashMap<u64, usize> = HashMap::new();
        for (id, item) in &analysis.pinned {
            places.insert(*id, self.items.len());
            self.items.push(item.clone());
        }
        let uniform = analysis.sample.len();
        let mut known: HashMap<String, usize> = HashMap::new();
        for request in recorded {
            let operation = &self.operations[request.operation];
            let mut instance = 0;
            if let Some(shape) = &operation.query {
                let mut text: String = shape.text.clone();
                for (name, value) in &request.parameters {
                    text.push_str(name);
                    value.write_json(&mut text);
                }
                instance = match known.get(&text) {
                    Some(known) => *known,
                    None if known.len() < RECORDED_INSTANCES_MAX => {
                        match shape.instance(&request.parameters, &analysis.paths) {
                            Ok(made) => {
                                self.instances.push(made);
                                self.parameters.push(request.parameters.clone());
                            }
                            Err(reason) => {
                                if self.failed.len() < 10 {
                                    self.failed.push(format!("{}: {reason}", shape.text));
                                }
                                continue;
                            }
                        }
                        known.insert(text, self.instances.len() - 1);
                        self.instances.len() - 1
                    }
                    None => random.index(self.instances.len()),
                };
            }
            let place = request.id.as_deref().and_then(|id| places.get(&id_hash(id)).copied());
            if place.is_none() && operation.kind != OperationKind::Query {
                self.unmatched += 1;
            }
            let item = place.unwrap_or_else(|| random.index(uniform));
            let (at_ms, operation) = (request.at_ms, request.operation);
            self.requests.push(Request { at_ms, operation, item, moment: item, instance });
        }
        if let (Some(first), Some(last)) = (self.requests.first(), self.requests.last()) {
            self.seconds = ((last.at_ms - first.at_ms) as f64 / 1000.0).max(1.0);
        }
    }
}

/// An item with the times of another.
#[derive(Clone, Copy, Debug)]
pub struct Moved<'a> {
    item: &'a [KeyPart],
    moment: &'a [KeyPart],
    is_time: &'a [bool],
}

impl Values for Moved<'_> {
    fn part(&self, slot: usize) -> Part<'_> {
        let from = if self.is_time.get(slot).copied().unwrap_or(false) { self.moment } else { self.item };
        from.part(slot)
    }
}

/// The properties that are times: almost all of their values parse as one.
pub fn time_slots(analysis: &Analysis) -> Vec<bool> {
    let step = (analysis.sample.len() / 2000).max(1);
    let slots = 0..analysis.paths.len();
    slots
        .map(|slot| {
            let (mut defined, mut times) = (0u32, 0u32);
            for item in analysis.sample.iter().step_by(step) {
                let is_time = match item.values.part(slot) {
                    Part::Undefined | Part::Null => continue,
                    Part::Text(text) => moment::parse_text(text).is_some(),
                    Part::Number(number) => moment::parse_number(number).is_some(),
                    Part::Bool(_) => false,
                };
                defined += 1;
                times += u32::from(is_time);
            }
            defined > 0 && times * 10 >= defined * 9
        })
        .collect()
}
