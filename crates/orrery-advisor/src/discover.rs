//! Discovers the properties of items and the candidates worth measuring: properties that the workload filters by,
//! properties that identify items, and the usual remedies for a key that is too coarse or too hot.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use orrery_model::value::{self, Value};

use crate::candidate::{Candidate, Kind};
use crate::fields::Paths;
use crate::moment;
use crate::planner::{PlanInput, plan};
use crate::workload::{OperationKind, Workload};

/// Bounds on the number of tracked properties and their depth.
const PROPERTIES_MAX: usize = 200;
const DEPTH_MAX: usize = 3;
/// Values that are counted exactly.
const VALUES_MAX: usize = 20_000;

/// A property as observed in the first items.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each flag is independent")]
pub struct Discovered {
    pub path: String,
    pub defined: u64,
    pub distinct: usize,
    pub is_time: bool,
    /// Has different times within one day: truncating it to days makes a coarser key.
    pub has_time_of_day: bool,
    pub is_epoch: bool,
    /// Share of the most frequent value.
    pub largest_share: f64,
    usable: bool,
}

#[derive(Default)]
struct Seen {
    defined: u64,
    times: u64,
    epochs: u64,
    with_hours: u64,
    unusable: u64,
    text_bytes: u64,
    values: BTreeMap<u64, u32>,
}

/// The values of items by property, hashed.
pub type Rows = Vec<BTreeMap<String, u64>>;

/// Collects the scalar properties of items.
pub struct Discovery {
    seen: BTreeMap<String, Seen>,
    rows: Rows,
    items: u64,
}

impl Discovery {
    /// Without any observations.
    pub fn new() -> Self {
        Self { seen: BTreeMap::new(), rows: Vec::new(), items: 0 }
    }

    /// Observes one item, given as JSON text; malformed items are skipped.
    pub fn add(&mut self, json: &[u8]) {
        let Ok(item) = value::parse(json) else { return };
        self.items += 1;
        self.rows.push(BTreeMap::new());
        self.walk(&item, &mut String::new(), 0);
    }

    fn walk(&mut self, value: &Value, path: &mut String, depth: usize) {
        if let Value::Object(object) = value {
            if depth >= DEPTH_MAX {
                return;
            }
            for (name, member) in object.iter() {
                // Skip names that a plain path cannot express, and the properties that the server adds.
                let is_plain =
                    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
                if !is_plain || depth == 0 && name.starts_with('_') && name != "_ts" {
                    continue;
                }
                let length = path.len();
                path.push('/');
                path.push_str(name);
                self.walk(member, path, depth + 1);
                path.truncate(length);
            }
            return;
        }
        if matches!(value, Value::Array(_)) || path.is_empty() {
            return;
        }
        // New properties beyond the bound are ignored; known ones are still counted.
        if !self.seen.contains_key(path.as_str()) && self.seen.len() >= PROPERTIES_MAX {
            return;
        }
        let seen = self.seen.entry(path.clone()).or_default();
        seen.defined += 1;
        match value {
            Value::String(text) => {
                seen.text_bytes += text.len() as u64;
                if let Some(ms) = moment::parse_text(text) {
                    seen.times += 1;
                    // More than a date, even if the time is midnight.
                    seen.with_hours += u64::from(ms.rem_euclid(86_400_000) != 0 || text.len() > 10);
                }
            }
            Value::Number(number) => {
                if moment::parse_number(number.as_f64()).is_some() {
                    seen.times += 1;
                    seen.epochs += 1;
                    seen.with_hours += 1;
                } else if number.as_i64().is_none() {
                    seen.unusable += 1;
                }
            }
            Value::Null | Value::Bool(_) => seen.unusable += 1,
            Value::Array(_) | Value::Object(_) => {}
        }
        let mut hasher = DefaultHasher::new();
        value.to_json().hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(row) = self.rows.last_mut() {
            row.insert(path.clone(), hash);
        }
        // Beyond the bound, only values that are known already are counted.
        if seen.values.len() < VALUES_MAX || seen.values.contains_key(&hash) {
            *seen.values.entry(hash).or_default() += 1;
        }
    }

    /// The properties found, in order of their paths, and the values of each item.
    #[expect(clippy::cast_precision_loss, reason = "shares")]
    pub fn finish(self) -> (Vec<Discovered>, Rows) {
        let items = self.items.max(1);
        let properties = self.seen.into_iter().map(|(path, seen)| {
            let most = seen.values.values().copied().max().unwrap_or(0);
            let is_time = seen.times * 10 >= seen.defined * 9;
            Discovered {
                is_time,
                has_time_of_day: is_time && seen.with_hours > 0,
                is_epoch: seen.epochs > 0,
                defined: seen.defined,
                distinct: seen.values.len(),
                largest_share: f64::from(most) / seen.defined.max(1) as f64,
                // A key must exist in at least half of the items, mostly as a scalar, and be short.
                usable: seen.unusable * 2 < seen.defined
                    && seen.defined * 2 >= items
                    && seen.text_bytes / seen.defined.max(1) <= 100
                    && path != "/_ts",
                path,
            }
        });
        (properties.collect(), self.rows)
    }
}

impl Default for Discovery {
    fn default() -> Self {
        Self::new()
    }
}

/// Guesses the property with the time of an item: the one with the most distinct times.
pub fn time_path(properties: &[Discovered]) -> Option<&str> {
    let times = properties.iter().filter(|property| property.is_time && property.path != "/_ts");
    let finest = times.max_by_key(|property| (property.has_time_of_day, property.distinct));
    let stamp = properties.iter().find(|property| property.path == "/_ts");
    finest.or(stamp).map(|property| property.path.as_str())
}

/// The inputs of the choice of candidates.
pub struct Choice<'a> {
    pub properties: &'a [Discovered],
    pub rows: &'a Rows,
    pub workload: &'a Workload,
    /// The container's current key.
    pub current: &'a [String],
    pub partitions: u32,
    pub candidates_max: usize,
}

/// Properties that requests specify together, with their frequency.
struct Group {
    paths: Vec<String>,
    per_second: f64,
    kind: OperationKind,
}

impl Choice<'_> {
    /// Proposes candidates, the most promising kinds first.
    pub fn candidates(&self, given: Vec<Candidate>, paths: &mut Paths) -> Vec<Candidate> {
        // What requests specify decides which keys are worth measuring.
        let groups = self.groups(paths);
        let mut chosen: Vec<Candidate> = Vec::new();
        let mut names: HashSet<String> = HashSet::new();
        let mut take = |candidate: Candidate, chosen: &mut Vec<Candidate>| {
            if chosen.len() < self.candidates_max && names.insert(candidate.name.clone()) {
                chosen.push(candidate);
            }
        };
        for candidate in given {
            take(candidate, &mut chosen);
        }
        let current: Vec<&str> = self.current.iter().map(String::as_str).collect();
        match current.as_slice() {
            [] => {}
            [path] => take(Candidate::property(path, paths), &mut chosen),
            levels => take(Candidate::hierarchical(levels, paths), &mut chosen),
        }
        // Properties that requests specify come first: only they allow reads without fan-out.
        let asked = Self::asked(&groups);
        for path in asked.iter().take(6) {
            take(Candidate::property(path, paths), &mut chosen);
        }
        let mut others: Vec<&Discovered> =
            self.properties.iter().filter(|property| property.usable).collect();
        others.sort_by_key(|property| (property.is_time, std::cmp::Reverse(property.distinct)));
        // A few more with many values, which spread writes well even if no request specifies them. Times come last.
        let properties_max = chosen.len() + 3;
        for property in others.iter().filter(|property| property.distinct > 1) {
            if chosen.len() < properties_max {
                take(Candidate::property(&property.path, paths), &mut chosen);
            }
        }
        let pairs = self.pairs(&groups, &asked);
        for (coarse, fine) in pairs.iter().take(3) {
            take(Candidate::hierarchical(&[coarse, fine], paths), &mut chosen);
        }
        for (coarse, fine) in pairs.iter().filter(|(coarse, fine)| !self.determines(fine, coarse)).take(3) {
            let part = |path: &String| (path.clone(), self.unit(path));
            let parts = [part(coarse), part(fine)];
            let parts: Vec<(&str, Option<&str>)> =
                parts.iter().map(|(path, unit)| (path.as_str(), *unit)).collect();
            // Truncating a numeric time needs its epoch unit, which `Candidate::concatenated` does not take.
            if parts.iter().all(|(path, unit)| unit.is_none() || !self.is_epoch(path)) {
                take(Candidate::concatenated(&parts, paths), &mut chosen);
            }
        }
        for (base, by) in self.suffixed(&groups, &asked).iter().take(2) {
            let unit = self.unit(base).filter(|_| !self.is_epoch(base));
            let base = [(base.as_str(), unit)];
            for count in self.counts(&groups, base[0].0, by) {
                take(Candidate::precalculated_suffix(&base, by, count, paths), &mut chosen);
            }
            let many = self.counts(&groups, base[0].0, by).into_iter().max().unwrap_or(100);
            take(Candidate::random_suffix(&base, many, paths), &mut chosen);
        }
        chosen.sort_by_key(|candidate| candidate.kind > Kind::RandomSuffix);
        chosen
    }

    fn find(&self, path: &str) -> Option<&Discovered> {
        self.properties.iter().find(|property| property.path == path)
    }

    /// Whether a property's value determines another's, so that joining the two adds no keys. The joined key is known
    /// only to readers who know both.
    fn determines(&self, fine: &str, coarse: &str) -> bool {
        // An id determines everything else of its item.
        if fine == "/id" {
            return true;
        }
        let mut known: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut pairs, mut repeats) = (0, 0);
        for row in self.rows {
            let (Some(fine), Some(coarse)) = (row.get(fine), row.get(coarse)) else { continue };
            pairs += 1;
            match known.get(fine) {
                Some(other) if other != coarse => return false,
                Some(_) => repeats += 1,
                None => {
                    known.insert(*fine, *coarse);
                }
            }
        }
        // Values that hardly repeat show nothing.
        pairs > 0 && repeats * 10 >= pairs
    }

    /// Whether both are times, of which the finer one makes the other redundant.
    fn are_times(&self, a: &str, b: &str) -> bool {
        let is_time = |path: &str| self.find(path).is_some_and(|property| property.is_time);
        is_time(a) && is_time(b)
    }

    fn is_epoch(&self, path: &str) -> bool {
        self.find(path).is_some_and(|property| property.is_epoch)
    }

    /// The unit to which a time is truncated in a key.
    fn unit(&self, path: &str) -> Option<&'static str> {
        self.find(path).filter(|property| property.has_time_of_day).map(|_| "day")
    }

    fn groups(&self, paths: &Paths) -> Vec<Group> {
        let names =
            |slots: &[usize]| slots.iter().map(|slot| paths.name(*slot).to_owned()).collect::<Vec<_>>();
        let operations = self.workload.operations.iter();
        let groups = operations.filter_map(|operation| {
            let listed = match operation.kind {
                OperationKind::Query => {
                    let shape = operation.query.as_ref()?;
                    // Only the properties that are compared matter here, not with what.
                    let instance = shape.instance(&shape.placeholders(), paths).ok()?;
                    instance
                        .conditions
                        .iter()
                        .map(|condition| paths.name(condition.slot).to_owned())
                        .collect()
                }
                OperationKind::Batch => names(&operation.together),
                OperationKind::Create => return None,
                _ => names(&operation.knows),
            };
            Some(Group { paths: listed, per_second: operation.per_second, kind: operation.kind })
        });
        groups.filter(|group| !group.paths.is_empty()).collect()
    }

    /// The properties that requests specify, most frequent first.
    fn asked(groups: &[Group]) -> Vec<String> {
        let mut rates: BTreeMap<&str, f64> = BTreeMap::new();
        for group in groups {
            for path in &group.paths {
                *rates.entry(path).or_default() += group.per_second;
            }
        }
        let mut asked: Vec<(&str, f64)> = rates.into_iter().collect();
        asked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        asked.into_iter().map(|(path, _)| path.to_owned()).collect()
    }

    /// Pairs of properties, the coarser first.
    fn pairs(&self, groups: &[Group], asked: &[String]) -> Vec<(String, String)> {
        let distinct = |path: &str| self.find(path).map_or(usize::MAX, |property| property.distinct);
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut add = |a: &str, b: &str| {
            let pair = if distinct(a) <= distinct(b) { (a, b) } else { (b, a) };
            let pair = (pair.0.to_owned(), pair.1.to_owned());
            if a != b && !self.are_times(a, b) && !pairs.contains(&pair) {
                pairs.push(pair);
            }
        };
        let mut sorted: Vec<&Group> = groups.iter().filter(|group| group.paths.len() > 1).collect();
        // The most frequent requests come first.
        sorted.sort_by(|a, b| b.per_second.total_cmp(&a.per_second));
        for group in sorted {
            for (at, a) in group.paths.iter().enumerate() {
                for b in &group.paths[at + 1..] {
                    add(a, b);
                }
            }
        }
        // Also by time, even if no request does so yet.
        let time = time_path(self.properties).filter(|path| *path != "/_ts");
        let first = asked.first().map(String::as_str).or_else(|| self.finest());
        if let (Some(first), Some(time)) = (first, time) {
            add(first, time);
        }
        if let Some(first) = asked.first() {
            add(first, "/id");
        }
        pairs
    }

    /// The property with the most distinct values, apart from the id.
    fn finest(&self) -> Option<&str> {
        let usable = self.properties.iter().filter(|property| property.usable && property.path != "/id");
        let plain = usable.filter(|property| !property.is_time);
        plain.max_by_key(|property| property.distinct).map(|property| property.path.as_str())
    }

    /// Properties that are too coarse or too hot on their own, each with the best source for its suffix.
    fn suffixed(&self, groups: &[Group], asked: &[String]) -> Vec<(String, String)> {
        let is_hot = |path: &str| {
            self.find(path).is_some_and(|property| {
                property.is_time || property.largest_share > 0.05 || property.distinct < 1000
            })
        };
        let times = self.properties.iter().filter(|property| property.is_time && property.usable);
        let times = times.filter(|property| !property.has_time_of_day).map(|property| property.path.clone());
        let mut bases: Vec<String> = asked.iter().filter(|path| is_hot(path)).cloned().chain(times).collect();
        let mut seen = HashSet::new();
        bases.retain(|base| seen.insert(base.clone()));
        let by = |base: &String| {
            // Properties that requests specify together with the base: their readers can compute the suffix.
            let beside = groups
                .iter()
                .filter(|group| group.kind != OperationKind::Batch && group.paths.contains(base));
            let beside =
                beside.flat_map(|group| group.paths.iter().map(move |path| (path, group.per_second)));
            // A time beside a time spreads nothing: items of the same hour have the same suffix.
            let finer = beside.filter(|(path, _)| {
                let is_fine = |found: &Discovered| found.distinct > 50 && !found.is_time;
                *path != base && self.find(path).is_some_and(is_fine)
            });
            let finer = finer.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(path, _)| path.clone());
            finer
                .or_else(|| self.finest().filter(|path| path != base).map(str::to_owned))
                .unwrap_or("/id".to_owned())
        };
        bases.iter().map(|base| (base.clone(), by(base))).collect()
    }

    /// Suffix counts worth trying: the planner's, one per partition, and many.
    fn counts(&self, groups: &[Group], base: &str, by: &str) -> Vec<u32> {
        let reads = |with_by: bool| {
            let groups = groups.iter().filter(|group| group.kind != OperationKind::Batch);
            let fits = groups.filter(|group| {
                group.paths.iter().any(|path| path == base)
                    && group.paths.iter().any(|path| path == by) == with_by
            });
            fits.map(|group| group.per_second).sum::<f64>()
        };
        // Rough charges: 7 RU for a create, 2.5 for a small query.
        let plan = plan(&PlanInput {
            partitions: self.partitions,
            write_units: self.workload.creates_per_second() * 7.0,
            known_units: reads(true) * 2.5,
            all_reads: reads(false),
            all_read_units: 1.0,
            reads_are_spread: true,
        });
        let mut counts = vec![plan.best, self.partitions.max(2), (self.partitions * 4).clamp(10, 1000), 400];
        counts.sort_unstable();
        counts.dedup();
        // A single suffix has no effect.
        counts.retain(|count| *count > 1);
        counts
    }
}
