//! The advisor: items and a workload in, a ranked report out.

use orrery_model::KeyPart;
use synthetic_key::Definition;

use crate::analysis::{Analysis, Analyzer, HeavyKey, Sampled, id_hash};
use crate::candidate::{Candidate, Kind};
use crate::discover::{Choice, Discovered, Discovery, time_path};
use crate::fields::Paths;
use crate::growth::stage;
use crate::layout::Limits;
use crate::matching::Matching;
use crate::measured::{Measured, Scope, Verdict};
use crate::moment::Pace;
use crate::planner::{Plan, PlanInput, plan};
use crate::predict::{Prediction, judge_over_time, predict};
use crate::prices::{Bill, Load, Prices};
use crate::rank;
use crate::replay::{REQUESTS_MAX, Replay};
use crate::workload::{OperationKind, Rates, Workload, WorkloadError};

/// How many items, and bytes of them, are buffered before candidates are chosen.
const HEAD_ITEMS: usize = 10_000;
const HEAD_BYTES: usize = 64 << 20;
/// Horizons of the growth forecast, in days.
const STAGES: [f64; 5] = [0.0, 30.0, 90.0, 180.0, 365.0];
/// With fewer items than this, nothing is recommended.
const ITEMS_MIN: u64 = 1000;
/// Share of the throughput that an assumed write-only workload uses.
const ASSUMED_USE: f64 = 0.7;

/// Why no advice can be given.
#[derive(Debug, thiserror::Error)]
pub enum AdviceError {
    #[error("cannot parse item {number}: {reason}")]
    Item { number: u64, reason: String },
    #[error("the input contains no items")]
    NoItems,
    #[error("the candidate {text} cannot be used: {reason}")]
    Candidate { text: String, reason: String },
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

/// Settings of the advisor.
#[derive(Clone, Debug)]
pub struct Config {
    pub limits: Limits,
    /// Whether the throughput was set explicitly; otherwise the workload may set it.
    pub throughput_is_given: bool,
    /// The container's current key.
    pub current: Vec<String>,
    /// Candidates by name: a path, several separated by commas for levels, or a definition in JSON.
    pub candidates: Vec<String>,
    /// Measure only those.
    pub only_given: bool,
    pub candidates_max: usize,
    /// The property that holds the time of an item.
    pub time_path: Option<String>,
    /// Total number of items, if the data is a sample.
    pub items_total: Option<f64>,
    /// Size of the sample from which queries are estimated.
    pub sample_items: Option<usize>,
    /// Most requests generated from a workload with rates.
    pub requests_max: usize,
    /// A variation of the workload.
    pub rates: Rates,
    pub prices: Prices,
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            throughput_is_given: false,
            current: Vec::new(),
            candidates: Vec::new(),
            only_given: false,
            candidates_max: 20,
            time_path: None,
            items_total: None,
            sample_items: None,
            requests_max: REQUESTS_MAX,
            rates: Rates::default(),
            prices: Prices::default(),
            seed: 1,
        }
    }
}

/// Consumes items, then produces the report.
pub struct Advisor {
    config: Config,
    workload: Workload,
    has_workload: bool,
    paths: Paths,
    head: Vec<Vec<u8>>,
    head_bytes: usize,
    analyzer: Option<Analyzer>,
    properties: Vec<Discovered>,
    number: u64,
}

/// The suffix planner's result for one base.
#[derive(Clone, Debug)]
pub struct SuffixPlan {
    pub base: String,
    pub by: Option<String>,
    pub input: PlanInput,
    pub plan: Plan,
}

/// The advisor's findings, best candidate first.
#[derive(Clone, Debug)]
pub struct Report {
    pub items: u64,
    pub items_total: f64,
    pub bytes: f64,
    pub item_bytes_max: u64,
    pub time: Option<(i64, i64)>,
    pub time_path: Option<String>,
    pub window_ms: i64,
    pub limits: Limits,
    pub prices: Prices,
    pub growth_per_day: f64,
    pub has_workload: bool,
    pub workload: Workload,
    pub replay_requests: usize,
    pub replay_seconds: f64,
    pub sample_items: usize,
    pub measured: Vec<Measured>,
    /// What is missing for a recommendation, and how to get it; empty if nothing is.
    pub missing: Vec<String>,
    pub plans: Vec<SuffixPlan>,
    /// What the service's own logs say of the key in use.
    pub service: Vec<String>,
    pub notes: Vec<String>,
}

impl Advisor {
    /// `workload` is the text of a workload file or a recording.
    pub fn new(mut config: Config, workload: Option<&str>) -> Result<Self, AdviceError> {
        let mut paths = Paths::new();
        let has_workload = workload.is_some();
        let mut workload =
            workload.map(|text| Workload::parse(text, &mut paths)).transpose()?.unwrap_or_default();
        // What-if questions change the rates before anything is derived from them.
        workload.scale(config.rates, config.seed);
        if let Some(throughput) = workload.throughput.filter(|_| !config.throughput_is_given) {
            config.limits.throughput = throughput.clamp(100, 100_000_000);
        }
        if config.current.is_empty() {
            config.current.clone_from(&workload.key_paths);
        }
        Ok(Self {
            config,
            workload,
            has_workload,
            paths,
            head: Vec::new(),
            head_bytes: 0,
            analyzer: None,
            properties: Vec::new(),
            number: 0,
        })
    }

    /// Adds an item, given as JSON text.
    pub fn add(&mut self, json: &[u8]) -> Result<(), AdviceError> {
        self.number += 1;
        if let Some(analyzer) = &mut self.analyzer {
            let number = self.number;
            return analyzer
                .add(json)
                .map_err(|error| AdviceError::Item { number, reason: error.to_string() });
        }
        // The first items are held back until candidates have been chosen from them.
        self.head_bytes += json.len();
        self.head.push(json.to_vec());
        if self.head.len() >= HEAD_ITEMS || self.head_bytes >= HEAD_BYTES {
            self.begin()?;
        }
        Ok(())
    }

    /// The throughput in request units per second, of the workload unless it was set.
    pub fn throughput(&self) -> u32 {
        self.config.limits.throughput
    }

    /// Assumes this many times the data that was read, or that it is a sample of.
    #[expect(clippy::cast_precision_loss, reason = "a number of items, for an estimate")]
    pub fn grow(&mut self, factor: f64) {
        let items = self.config.items_total.unwrap_or(0.0).max(self.number as f64);
        self.config.items_total = Some(items * factor);
    }

    /// The candidates, once enough items have been seen to choose them.
    pub fn candidates(&self) -> &[Candidate] {
        self.analyzer.as_ref().map_or(&[], |analyzer| &analyzer.candidates)
    }

    /// Chooses candidates from the items seen so far.
    fn begin(&mut self) -> Result<(), AdviceError> {
        let mut discovery = Discovery::new();
        // A part of them is enough to discover the properties.
        let step = (self.head.len() / 2000).max(1);
        self.head.iter().step_by(step).for_each(|item| discovery.add(item));
        let (properties, rows) = discovery.finish();
        self.properties = properties;
        let given = self.config.candidates.iter().map(|text| parse_candidate(text, &mut self.paths));
        let given = given.collect::<Result<Vec<_>, _>>()?;
        let partitions = self.config.limits.partition_count();
        let candidates = if self.config.only_given && !given.is_empty() {
            given
        } else {
            let choice = Choice {
                properties: &self.properties,
                rows: &rows,
                workload: &self.workload,
                current: &self.config.current,
                partitions,
                candidates_max: self.config.candidates_max.max(1),
            };
            choice.candidates(given, &mut self.paths)
        };
        let time = self.config.time_path.clone().or_else(|| time_path(&self.properties).map(str::to_owned));
        self.config.time_path.clone_from(&time);
        let mut paths = std::mem::take(&mut self.paths);
        for path in &self.config.current {
            paths.slot(path);
        }
        let mut analyzer = Analyzer::new(paths, candidates, partitions, time.as_deref(), self.config.seed);
        // A recording names items by id; those are kept whether or not the sample has them.
        let ids = self.workload.recorded.iter().filter_map(|request| request.id.as_deref());
        analyzer.keep_ids(ids.map(id_hash));
        if let Some(items) = self.config.sample_items {
            analyzer.set_sample_max(items);
        }
        analyzer.keep_documents(self.workload.documents(&analyzer.paths));
        for (number, item) in (1..).zip(std::mem::take(&mut self.head)) {
            let failed = |error: serde_json::Error| AdviceError::Item { number, reason: error.to_string() };
            analyzer.add(&item).map_err(failed)?;
        }
        self.analyzer = Some(analyzer);
        Ok(())
    }

    /// The sample and the requests that would be replayed, for replaying them elsewhere.
    pub fn replay(mut self) -> Result<(Analysis, Replay, Config), AdviceError> {
        if self.analyzer.is_none() {
            self.begin()?;
        }
        let analysis = self.analyzer.take().ok_or(AdviceError::NoItems)?.finish();
        if analysis.items == 0 {
            return Err(AdviceError::NoItems);
        }
        // Without a workload, writes at a share of the throughput at least show how a key spreads them.
        if !self.has_workload {
            self.workload = assumed(&analysis, &self.config.limits);
        }
        // A key on the command line that no item has is most likely a mistake.
        for text in &self.config.candidates {
            let mut paths = analysis.paths.clone();
            let candidate = parse_candidate(text, &mut paths)?;
            let is_absent = |slot: &&usize| {
                analysis
                    .sample
                    .iter()
                    .all(|item| item.values.get(**slot).is_none_or(|part| *part == KeyPart::Undefined))
            };
            if let Some(slot) = candidate.slots().iter().find(is_absent) {
                let reason = format!("no item has a value at {}", paths.name(*slot));
                return Err(AdviceError::Candidate { text: text.clone(), reason });
            }
        }
        let replay = Replay::new(&analysis, &self.workload, self.config.requests_max, self.config.seed);
        Ok((analysis, replay, self.config))
    }

    /// Measures every candidate and ranks them.
    #[expect(clippy::cast_precision_loss, reason = "approximate figures")]
    pub fn finish(self) -> Result<Report, AdviceError> {
        let has_workload = self.has_workload;
        let mut workload = self.workload.clone();
        let (analysis, replay, config) = self.replay()?;
        if !has_workload {
            workload = assumed(&analysis, &config.limits);
        }
        // A sample is not of less data than was read.
        let items_total = config.items_total.unwrap_or(0.0).max(analysis.items as f64);
        let scale = items_total / analysis.items as f64;
        // All figures are scaled from what was read to all data.
        let bytes = analysis.bytes as f64 * scale;
        let mean_bytes = analysis.bytes as f64 / analysis.items as f64;
        let span_days = analysis.time.map_or(0.0, |(first, last)| (last - first) as f64 / 86_400_000.0);
        let created = if has_workload { workload.creates_per_second() } else { 0.0 };
        let growth_per_day = if created > 0.0 {
            created * mean_bytes * 86_400.0
        } else if span_days > 0.01 {
            bytes / span_days
        } else {
            0.0
        };
        let matching = Matching::new(&replay, analysis.sample.len(), items_total);
        let mut measured = Vec::with_capacity(analysis.candidates.len());
        for (at, candidate) in analysis.candidates.iter().enumerate() {
            let prediction = predict(&analysis, candidate, &replay, &matching, &config.limits);
            let context = Context {
                analysis: &analysis,
                config: &config,
                scale,
                bytes,
                span_days,
                growth_per_day,
                retention_days: workload.retention_days,
                paces: &replay.paces,
            };
            measured.push(context.measure(at, prediction, &replay));
        }
        rank::rank(
            &mut measured,
            &rank::Facts {
                has_workload,
                is_recorded: replay.is_recorded,
                items: analysis.items as f64,
                is_whole: matching.is_whole(),
                limits: &config.limits,
                span_days,
            },
        );
        // Reasons not to recommend, even though everything was measured.
        let missing = missing(&analysis, &workload, has_workload, &config, &matching, &measured);
        let plans = suffix_plans(&measured, &replay, &analysis, &config);
        let mut notes = Vec::new();
        if !has_workload {
            notes.push("Assumed workload: writes only, at 70 % of the throughput.".to_owned());
        }
        if replay.unmatched > 0 {
            notes.push(format!(
                "{} recorded requests refer to items that are not in the data; other items were substituted.",
                replay.unmatched
            ));
        }
        if workload.dropped > 0 {
            notes.push(format!("The recording was full: {} requests are missing from it.", workload.dropped));
        }
        for (at, reason) in &matching.failures {
            notes.push(format!(
                "{} cannot be estimated and is excluded: {reason}.",
                replay.operations[*at].name
            ));
        }
        if analysis.time.is_none() {
            notes.push(
                "No property contains the time of an item, so nothing is known about the spread over time."
                    .to_owned(),
            );
        }
        Ok(Report {
            items: analysis.items,
            items_total,
            bytes,
            item_bytes_max: analysis.item_bytes_max,
            time: analysis.time,
            time_path: config.time_path.clone(),
            window_ms: analysis.windows.width_ms,
            limits: config.limits,
            prices: config.prices,
            growth_per_day,
            has_workload,
            workload,
            replay_requests: replay.requests.len(),
            replay_seconds: replay.seconds,
            sample_items: analysis.sample.len(),
            measured,
            missing,
            plans,
            service: Vec::new(),
            notes,
        })
    }
}

struct Context<'a> {
    analysis: &'a Analysis,
    config: &'a Config,
    scale: f64,
    bytes: f64,
    span_days: f64,
    growth_per_day: f64,
    retention_days: Option<f64>,
    paces: &'a [Pace],
}

impl Context<'_> {
    #[expect(clippy::cast_precision_loss, reason = "approximate figures")]
    fn measure(&self, at: usize, mut prediction: Prediction, replay: &Replay) -> Measured {
        let (candidate, spread) = (&self.analysis.candidates[at], &self.analysis.spreads[at]);
        let total = (spread.bytes as f64).max(1.0);
        let heaviest = spread.heaviest(10);
        let largest = heaviest.first().map_or(0.0, |key| key.entry.bytes as f64);
        let most = spread.partitions.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let count = self.analysis.windows.count();
        let cells = self.analysis.cells;
        let heat: Vec<Vec<u32>> = (0..count).map(|window| spread.heat_of(window, cells).to_vec()).collect();
        // Keys that follow the clock look even over the whole data, and are busy in one place at any time.
        let follows = candidate.slots().iter().any(|slot| self.paces[*slot].follows());
        let window_unevenness = window_unevenness(&heat);
        if let Some(unevenness) = window_unevenness.filter(|_| follows) {
            // A suffix that follows the clock as well spreads nothing.
            let is_suffixed = candidate.suffixes.is_some()
                && !candidate.suffix_sources().iter().any(|slot| self.paces[*slot].follows());
            judge_over_time(&mut prediction, replay, unevenness, is_suffixed);
        }
        let growth = STAGES.iter().map(|days| {
            let grown = self.bytes + self.growth_per_day * days;
            // Retention bounds the data, but not below what is there already.
            let kept = self.retention_days.map_or(f64::INFINITY, |retention| self.growth_per_day * retention);
            let bytes = grown.min(kept.max(self.bytes));
            stage(spread, candidate.is_hierarchical(), &self.config.limits, *days, bytes)
        });
        Measured {
            distinct: spread.distinct.estimate().min(self.analysis.items as f64),
            largest_share: largest / total,
            largest_share_error: spread.frequent.error_bytes() as f64 / total,
            largest_bytes: largest * self.scale,
            days_until_full: self.days_until_full(heaviest.first(), total),
            without_key: self.without_key(candidate),
            repeated: self.analysis.repeats.share(at),
            partitions_empty: spread.partitions.iter().filter(|(items, _)| *items == 0).count(),
            partitions: spread.partitions.clone(),
            unevenness: most as f64 / total * spread.partitions.len() as f64,
            window_unevenness,
            heat,
            growth: growth.collect(),
            begins_with_time: candidate.begins_with(self.paces),
            scope: Self::scope(&prediction),
            bill: self.bill(&prediction, replay, follows),
            candidate: candidate.clone(),
            heaviest,
            prediction,
            verdict: Verdict::default(),
        }
    }

    /// What a month costs: of each replayed point in time an equal part, as the load moves between partitions.
    #[expect(clippy::cast_precision_loss, reason = "prices")]
    fn bill(&self, prediction: &Prediction, replay: &Replay, follows: bool) -> Bill {
        // The load of a key that follows the clock moves, so each replayed point in time is priced by itself.
        let moments = if follows && !replay.is_recorded { replay.segments() } else { 1 };
        let seconds = prediction.seconds.max(1e-9) / moments as f64;
        let mut loads = prediction.moments(moments);
        loads.iter_mut().flatten().for_each(|units| *units /= seconds);
        let bytes = self.bytes;
        let loads: Vec<Load<'_>> =
            loads.iter().map(|units| Load { peaks: units, means: units, bytes }).collect();
        self.config.prices.month(&loads, prediction.needed_throughput())
    }

    /// When the heaviest key reaches the size limit of a key.
    #[expect(clippy::cast_precision_loss, reason = "days for people")]
    fn days_until_full(&self, heaviest: Option<&HeavyKey>, total: f64) -> Option<f64> {
        let entry = heaviest?.entry;
        let limit = self.config.limits.logical_bytes;
        let share = entry.bytes as f64 / total;
        let size = entry.bytes as f64 * self.scale;
        if size >= limit {
            return Some(0.0);
        }
        let key_days = (entry.last_ms - entry.first_ms) as f64 / 86_400_000.0;
        if self.span_days > 0.01 && key_days < self.span_days * 0.5 {
            // A time key grows only during its period; at the workload's rate it may still fill up within it.
            let period = key_days.max(1.0 / 24.0);
            let in_period = (share * self.span_days / period).min(1.0);
            let per_day = self.growth_per_day * in_period;
            return (per_day * period > limit).then(|| limit / per_day);
        }
        let per_day = self.growth_per_day * share;
        if self.retention_days.is_some_and(|retention| per_day * retention < limit) {
            return None;
        }
        let days = if per_day > 0.0 { (limit - size) / per_day } else { f64::INFINITY };
        // More than a century counts as never.
        (days < 36_500.0).then_some(days)
    }

    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn scope(prediction: &Prediction) -> Scope {
        let batches = prediction.batches_kept + prediction.batches_lost;
        if batches > 0 {
            let lost = prediction.batches_lost as f64 / batches as f64;
            return if lost > 0.0 { Scope::Lost(lost) } else { Scope::Kept };
        }
        // The current key does not show which items an application changes together.
        Scope::Unknown
    }

    /// The share of sampled items without any of the properties that the key is made of.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn without_key(&self, candidate: &Candidate) -> f64 {
        let is_absent = |part: &KeyPart| matches!(part, KeyPart::Undefined | KeyPart::Null);
        let first = candidate.first_level();
        let lacks = |item: &&Sampled| first.iter().all(|slot| is_absent(&item.values[*slot]));
        let without = self.analysis.sample.iter().filter(lacks).count();
        without as f64 / (self.analysis.sample.len() as f64).max(1.0)
    }
}

/// The skew of partitions per time window, weighted by its items.
#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn window_unevenness(heat: &[Vec<u32>]) -> Option<f64> {
    let (mut sum, mut weight) = (0.0, 0.0);
    for row in heat {
        let items: f64 = row.iter().map(|count| f64::from(*count)).sum();
        // A few items are always skewed by chance.
        if items < 10.0 * row.len() as f64 {
            continue;
        }
        let most = row.iter().copied().max().map_or(0.0, f64::from);
        sum += most / items * row.len() as f64 * items;
        weight += items;
    }
    (weight > 0.0).then(|| sum / weight)
}

/// Why the data and the workload do not allow a recommendation.
fn missing(
    analysis: &Analysis,
    workload: &Workload,
    has_workload: bool,
    config: &Config,
    matching: &Matching,
    measured: &[Measured],
) -> Vec<String> {
    let mut missing = Vec::new();
    if config.limits.partition_count() == 1 {
        missing.push(
            "There is only one physical partition, for which all keys are equal. Specify the expected throughput or number of partitions: --throughput 48000, or --partitions 8.".to_owned(),
        );
    }
    if analysis.items < ITEMS_MIN {
        missing.push(format!(
            "{} items are too few to measure the spread of keys. Provide at least {ITEMS_MIN}.",
            analysis.items
        ));
    }
    if has_workload {
        let reads = workload.operations.iter().filter(|operation| !operation.kind.writes());
        let (has_reads, has_writes) =
            (reads.count() > 0, workload.operations.iter().any(|operation| operation.kind.writes()));
        if !has_reads {
            missing.push("The workload has no reads or queries, so any key that spreads writes would do. Record while the application reads.".to_owned());
        }
        if !has_writes {
            missing.push("The workload has no writes, so it does not show whether a key spreads them. Record while the application writes, or add a create with its rate.".to_owned());
        }
    } else {
        missing.push("With no workload, the cost of reads cannot be estimated. Record one with `orrery record for 60`, or write one: --workload workload.json.".to_owned());
    }
    let total: f64 = workload.operations.iter().map(|operation| operation.per_second).sum();
    let failed = matching.failures.keys().map(|at| workload.operations[*at].per_second).sum::<f64>();
    // A tenth of the requests may be missing from the estimate, but not more.
    if failed > total * 0.1 {
        missing.push(format!(
            "{} of the requests are not estimated; see the notes.",
            rank::percent(failed / total)
        ));
    }
    if let Some(best) = measured.first().filter(|best| best.without_key > 0.5) {
        missing.push(format!(
            "{} of the items have no value for {}. Pass a property that items have with --candidate.",
            rank::percent(best.without_key),
            best.candidate.name
        ));
    }
    missing
}

/// A write-only workload at a share of the throughput.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn assumed(analysis: &Analysis, limits: &Limits) -> Workload {
    // At least one, although an analysis without items is refused before.
    let items = analysis.sample.len().max(1) as f64;
    let mean = |sum: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean size")]
        let whole = (sum / items) as usize;
        whole
    };
    let bytes = mean(analysis.sample.iter().map(|item| f64::from(item.bytes)).sum());
    let terms = mean(analysis.sample.iter().map(|item| f64::from(item.terms)).sum());
    let charge = orrery_metering::cost::create(bytes, terms).as_f64();
    let per_second = f64::from(limits.throughput) * ASSUMED_USE / charge.max(1.0);
    let create = crate::workload::Operation {
        name: "create".to_owned(),
        kind: OperationKind::Create,
        per_second,
        knows: Vec::new(),
        query: None,
        items: 1,
        together: Vec::new(),
        recent: false,
    };
    Workload { operations: vec![create], ..Workload::default() }
}

/// Suffix plans for the bases of suffixed candidates, from the reads of the replay.
#[expect(clippy::cast_precision_loss, reason = "rates")]
fn suffix_plans(
    measured: &[Measured],
    replay: &Replay,
    analysis: &Analysis,
    config: &Config,
) -> Vec<SuffixPlan> {
    let mut plans: Vec<SuffixPlan> = Vec::new();
    for one in measured {
        if !matches!(one.candidate.kind, Kind::PrecalculatedSuffix | Kind::RandomSuffix) {
            continue;
        }
        // Suffixed keys are recognised by the name that `Candidate` gives them.
        let Some((base, rest)) = one.candidate.name.split_once(" + 1…") else { continue };
        let by = rest.split_once(" by ").map(|(_, by)| by.to_owned());
        if plans.iter().any(|plan| plan.base == base && plan.by == by) || plans.len() >= 4 {
            continue;
        }
        let seconds = replay.seconds.max(1e-9);
        let mut input = PlanInput {
            partitions: config.limits.partition_count(),
            write_units: 0.0,
            known_units: 0.0,
            all_reads: 0.0,
            all_read_units: 0.0,
            reads_are_spread: true,
        };
        let mut all_units = 0.0;
        for (operation, predicted) in replay.operations.iter().zip(&one.prediction.operations) {
            let mean_partitions = predicted.partitions as f64 / (predicted.requests as f64).max(1.0);
            if operation.kind.writes() {
                input.write_units += predicted.charge / seconds;
            } else if fixes(operation, base, analysis)
                && !by.as_ref().is_some_and(|by| fixes(operation, by, analysis))
            {
                let reads = predicted.requests as f64;
                // About what visiting the partitions costs, which the planner computes itself for each count.
                let visits = 2.3 + 2.5 * (mean_partitions - 1.0).max(0.0);
                input.all_reads += reads / seconds;
                input.reads_are_spread &= !operation.recent;
                all_units += (predicted.charge - reads * visits).max(0.0) / seconds;
            } else {
                input.known_units += predicted.charge / seconds;
            }
        }
        if input.all_reads > 0.0 {
            input.all_read_units = all_units / input.all_reads;
        }
        plans.push(SuffixPlan { base: base.to_owned(), by, input, plan: plan(&input) });
    }
    plans
}

/// Whether a read specifies a property.
fn fixes(operation: &crate::workload::Operation, path: &str, analysis: &Analysis) -> bool {
    // A truncated time is named like `/at by day`.
    let path = path.split(" by ").next().unwrap_or(path);
    let Some(slot) = analysis.paths.find(path) else { return false };
    let text = operation.query.as_ref().map(|query| query.text.as_str());
    operation.knows.contains(&slot)
        || text.is_some_and(|text| {
            // A word of the text suffices: the filter is not analysed here.
            let name = path.rsplit('/').next().unwrap_or(path);
            text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == name)
        })
}

/// Parses a candidate from the command line.
pub fn parse_candidate(text: &str, paths: &mut Paths) -> Result<Candidate, AdviceError> {
    let failed = |reason: String| AdviceError::Candidate { text: text.to_owned(), reason };
    let text = text.trim();
    // The definition of a synthetic key.
    if text.starts_with('{') {
        let source: serde_json::Value =
            serde_json::from_str(text).map_err(|error| failed(error.to_string()))?;
        let definition = Definition::from_json(&source).map_err(|error| failed(error.to_string()))?;
        return Ok(Candidate::defined(definition, paths));
    }
    let levels: Vec<&str> = text.split(',').map(str::trim).collect();
    for level in &levels {
        orrery_model::KeyPath::parse(level).map_err(|error| failed(error.to_string()))?;
    }
    match levels.as_slice() {
        [path] => Ok(Candidate::property(path, paths)),
        [_, _] | [_, _, _] => Ok(Candidate::hierarchical(&levels, paths)),
        _ => Err(failed("a hierarchy has two or three levels".to_owned())),
    }
}
