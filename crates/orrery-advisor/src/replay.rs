//! Turns a workload into requests: which item each refers to, and when it is sent.
//!
//! A recording is replayed as it was. Operations with rates are spread evenly over some seconds, each with an item of
//! the sample. New items get the time of the replay, as real writes do, so that keys built from dates see a realistic
//! load. The seconds are distributed over the whole time range of the data, so that one unusual day does not decide.

use std::collections::{BTreeMap, HashMap};

use orrery_model::{KeyPart, Value};

use crate::analysis::{Analysis, Sampled, id_hash};
use crate::clock;
use crate::fields::{Part, Values, segments};
use crate::moment::Pace;
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
/// Points in time of the data that are replayed, for several seconds each: budgets are per second.
const SEGMENTS_MAX: usize = 8;
const SEGMENT_SECONDS: f64 = 4.0;
/// Attempts to find an item with all properties of a query's parameters.
const DRAWS_MAX: usize = 64;
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
    /// The point in time of the data at which it is sent, and an item of that time.
    pub data_ms: i64,
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
    /// Which properties follow the clock, by slot.
    pub paces: Vec<Pace>,
    /// The requests are those of a recording.
    pub is_recorded: bool,
    /// Operations that cannot be estimated, and why.
    pub not_estimated: BTreeMap<usize, String>,
    pub seconds: f64,
    /// Recorded requests whose item is not in the data.
    pub unmatched: u64,
}

impl Replay {
    /// Generates the requests of a workload from the items of an analysis.
    pub fn new(analysis: &Analysis, workload: &Workload, requests_max: usize, seed: u64) -> Self {
        let paces = clock::paces(analysis);
        let mut replay = Self {
            operations: workload.operations.clone(),
            items: analysis.sample.clone(),
            paces,
            ..Self::default()
        };
        if replay.items.is_empty() {
            return replay;
        }
        if workload.recorded.is_empty() {
            replay.make(analysis, requests_max, &mut Random::new(seed));
        } else {
            replay.is_recorded = true;
            replay.follow(analysis, &workload.recorded, &mut Random::new(seed));
        }
        replay
    }

    /// The values of a request's item at its time.
    pub fn values(&self, request: &Request) -> Moved<'_> {
        let (item, moment) = (&self.items[request.item].values, &self.items[request.moment].values);
        // The item was written at that time, so its own values hold.
        if request.item == request.moment {
            return Moved { item, moment, paces: &self.paces, times: Vec::new() };
        }
        let times = self.paces.iter().enumerate().filter_map(|(slot, pace)| match pace {
            Pace::Time { step_ms } => {
                // In the steps of the property, such as whole days.
                let ms = request.data_ms.div_euclid(*step_ms) * step_ms;
                Some((slot, clock::in_form_of(&item[slot], ms)))
            }
            Pace::Free | Pace::Period => None,
        });
        Moved { item, moment, paces: &self.paces, times: times.collect() }
    }

    /// The number of points in time that a replay of rates covers.
    pub fn segments(&self) -> usize {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
        let count = (self.seconds / SEGMENT_SECONDS) as usize;
        count.clamp(1, SEGMENTS_MAX)
    }

    /// When the last request is sent.
    pub fn end_ms(&self) -> i64 {
        self.requests.last().map_or(0, |request| request.at_ms)
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
        let end_ms = analysis.time.map_or(0, |(_, last)| last);
        let start_ms = end_ms - (self.seconds * 1000.0) as i64;
        // The point in time of each part of the replay.
        let count = self.items.len();
        let parts = if analysis.time.is_some() { self.segments() } else { 1 };
        // The middle of each part, by the number of items.
        let places: Vec<usize> = (0..parts).map(|part| (2 * part + 1) * count / (2 * parts)).collect();
        let recent = |part: usize| {
            let end = if parts == 1 { count } else { (places[part] + 1).min(count) };
            end.saturating_sub((count / 20).max(1))..end
        };
        for at in 0..self.operations.len() {
            let operation = self.operations[at].clone();
            let mut instances = Vec::new();
            if operation.query.is_some() {
                let range = |part| if operation.recent { recent(part) } else { 0..count };
                let ranges: Vec<_> = (0..if operation.recent { parts } else { 1 }).map(range).collect();
                instances = ranges
                    .iter()
                    .map(|range| {
                        let wanted = INSTANCES_MAX / ranges.len();
                        self.instances_of(at, &operation, range.clone(), wanted, analysis, random)
                    })
                    .collect();
                // The reason is in `not_estimated`.
                if instances.iter().any(Vec::is_empty) {
                    continue;
                }
            }
            let requests = (operation.per_second * self.seconds).round() as usize;
            for number in 0..requests {
                // Evenly, with a little jitter.
                let offset = (number as f64 + random.unit()) / operation.per_second;
                let at_ms = start_ms + (offset * 1000.0) as i64;
                let part = ((offset / self.seconds * parts as f64) as usize).min(parts - 1);
                let item = if operation.recent {
                    let range = recent(part);
                    range.start + random.index(range.len())
                } else {
                    random.index(count)
                };
                // A new item gets the current replay time; an existing one keeps its own.
                let is_new = matches!(operation.kind, OperationKind::Create | OperationKind::Batch);
                let part_ms = (self.seconds * 1000.0 * part as f64 / parts as f64) as i64;
                let data_ms = self.items[places[part]].at_ms + at_ms - start_ms - part_ms;
                let moment = if is_new {
                    self.items.partition_point(|item| item.at_ms < data_ms).min(count - 1)
                } else {
                    item
                };
                let instance = match instances.len() {
                    0 => 0,
                    parts => {
                        let known = &instances[part.min(parts - 1)];
                        known[random.index(known.len())]
                    }
                };
                self.requests.push(Request { at_ms, operation: at, item, data_ms, moment, instance });
            }
        }
        self.requests.sort_by_key(|request| request.at_ms);
    }

    /// Queries with the parameters of some items.
    fn instances_of(
        &mut self,
        at: usize,
        operation: &Operation,
        range: std::ops::Range<usize>,
        wanted: usize,
        analysis: &Analysis,
        random: &mut Random,
    ) -> Vec<usize> {
        let Some(shape) = &operation.query else { return Vec::new() };
        let is_fixed = shape.parameters.iter().all(|(_, source)| matches!(source, Parameter::Value(_)));
        // Without values of items, all instances would be the same.
        let wanted = if is_fixed { 1 } else { wanted.min(range.len()) };
        let mut found = Vec::with_capacity(wanted);
        for _ in 0..wanted {
            // Parameters are never missing values: items without the property are found by other values or not at all.
            let drawn: Vec<usize> = (0..DRAWS_MAX).map(|_| range.start + random.index(range.len())).collect();
            let mut places = drawn.into_iter().chain(range.clone());
            let found_parameters = places
                .find_map(|place| Some((place, self.parameters_of(&shape.parameters, place, analysis)?)));
            let Some((place, parameters)) = found_parameters else {
                let reason = "no item has all the properties that its parameters are taken from".to_owned();
                self.not_estimated.insert(at, reason);
                return Vec::new();
            };
            match shape.instance(&parameters, &analysis.paths) {
                Ok(mut instance) => {
                    instance.source = (!is_fixed).then(|| u32::try_from(place).unwrap_or(u32::MAX));
                    found.push(self.instances.len());
                    self.instances.push(instance);
                    self.parameters.push(parameters);
                }
                Err(reason) => {
                    self.not_estimated.insert(at, reason);
                    return Vec::new();
                }
            }
        }
        found
    }

    /// The parameters of a query with the values of an item, if it has all of them.
    fn parameters_of(
        &self,
        parameters: &[(String, Parameter)],
        place: usize,
        analysis: &Analysis,
    ) -> Option<Vec<(String, Value)>> {
        let item = &self.items[place];
        let value_of = |source: &Parameter| match source {
            Parameter::Path(slot) => {
                let names: Vec<&str> = segments(analysis.paths.name(*slot)).collect();
                // From the document, because a part of a key cannot be an array or object.
                let whole = item.document.as_ref().and_then(|document| document.at_path(&names)).cloned();
                whole.or_else(|| parameter_value(&item.values[*slot]))
            }
            Parameter::Value(value) => Some(value.clone()),
        };
        parameters.iter().map(|(name, source)| Some((name.clone(), value_of(source)?))).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    fn follow(&mut self, analysis: &Analysis, recorded: &[RecordedRequest], random: &mut Random) {
        let mut places: HashMap<u64, usize> = HashMap::new();
        for (id, item) in &analysis.pinned {
            // Behind the uniform sample, from which substitutes are drawn.
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
                                self.not_estimated.insert(request.operation, reason);
                                continue;
                            }
                        }
                        known.insert(text, self.instances.len() - 1);
                        self.instances.len() - 1
                    }
                    // Too many different queries: one of the known ones stands in.
                    None => random.index(self.instances.len()),
                };
            }
            let place = request.id.as_deref().and_then(|id| places.get(&id_hash(id)).copied());
            if place.is_none() && operation.kind != OperationKind::Query {
                self.unmatched += 1;
            }
            let item = place.unwrap_or_else(|| random.index(uniform));
            let (at_ms, operation) = (request.at_ms, request.operation);
            self.requests.push(Request { at_ms, operation, item, data_ms: at_ms, moment: item, instance });
        }
        if let (Some(first), Some(last)) = (self.requests.first(), self.requests.last()) {
            self.seconds = ((last.at_ms - first.at_ms) as f64 / 1000.0).max(1.0);
        }
    }
}

/// An item with its time-based values replaced by those of another time.
#[derive(Clone, Debug)]
pub struct Moved<'a> {
    item: &'a [KeyPart],
    moment: &'a [KeyPart],
    paces: &'a [Pace],
    /// Formats the times of that point.
    times: Vec<(usize, KeyPart)>,
}

impl Values for Moved<'_> {
    fn part(&self, slot: usize) -> Part<'_> {
        match self.paces.get(slot).copied().unwrap_or_default() {
            Pace::Free => self.item.part(slot),
            Pace::Time { .. } => {
                let time = self.times.iter().find(|(own, _)| *own == slot);
                time.map_or_else(|| self.item.part(slot), |(_, time)| Part::of(time))
            }
            Pace::Period => self.moment.part(slot),
        }
    }
}
