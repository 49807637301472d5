//! Runs a scenario step by step.

use orrery_metering::cost;
use orrery_model::offer::Throughput;

use super::keys::Weights;
use super::scenario::{KeyKind, Scenario, Visits};
use crate::layout::GIB;
use crate::prices::{Bill, Load};
use crate::random::Random;

/// Most partitions that are modelled.
const PARTITIONS_MAX: usize = 20_000;

/// One day of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Day {
    pub day: u32,
    pub items: f64,
    pub bytes: f64,
    pub partitions: usize,
    /// Splits since the start.
    pub splits: usize,
    /// Provisioned request units per second, on average.
    pub provisioned: f64,
    /// Demanded request units per second, on average and in the busiest step.
    pub used: f64,
    pub peak: f64,
    /// Share of throttled request units.
    pub throttled: f64,
    /// Peak load of the busiest partition as a multiple of an even share.
    pub hot_factor: f64,
    /// Accumulated cost.
    pub cost: f64,
}

/// The result of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub days: Vec<Day>,
    pub items: f64,
    pub bytes: f64,
    pub partitions: usize,
    pub splits: usize,
    /// Partitions that are too large but contain a single key.
    pub stuck: usize,
    /// Share of throttled request units over the whole time.
    pub throttled: f64,
    pub cost: f64,
    pub cost_of_storage: f64,
    /// The same load in each way to pay.
    pub bill: Bill,
    /// The day on which the largest key reaches its limit.
    pub key_full_on_day: Option<f64>,
    pub largest_key_bytes: f64,
    pub distinct_keys: f64,
    /// Bytes of every partition at the end.
    pub partition_bytes: Vec<f64>,
    /// The load of every partition at the end, in request units per second.
    pub partition_load: Vec<f64>,
    pub steps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Partition {
    from: f64,
    to: f64,
    bytes: f64,
    /// Its share of writes.
    weight: f64,
    /// Its share of reads.
    read_weight: f64,
    stuck: bool,
}

/// Runs a scenario.
pub fn simulate(scenario: &Scenario) -> Outcome {
    Simulation::new(scenario).run()
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    random: Random,
    steady: Weights,
    writing: Weights,
    period: u64,
    partitions: Vec<Partition>,
    throughput: f64,
    share_at_start: f64,
    items: f64,
    outcome: Outcome,
    largest_key_bytes: f64,
    period_bytes: f64,
    hour: Hour,
}

/// What partitions used in the current hour, by which autoscale is billed.
#[derive(Default)]
struct Hour {
    peaks: Vec<f64>,
    /// Request units per second, times hours.
    used: Vec<f64>,
    hours: f64,
}

impl<'a> Simulation<'a> {
    #[expect(clippy::cast_precision_loss, reason = "figures of a simulation")]
    fn new(scenario: &'a Scenario) -> Self {
        let is_time = scenario.keys.kind == KeyKind::Time;
        // The data of past periods is spread evenly; only the current period has keys of its own.
        let steady = if is_time { Weights::even() } else { Weights::steady(&scenario.keys) };
        let writing = if is_time { Weights::of_period(&scenario.keys, 0) } else { steady.clone() };
        let throughput = f64::from(scenario.throughput.provisioned);
        let count = Throughput::Manual(scenario.throughput.provisioned).partition_count() as usize;
        let by_limit = (throughput / f64::from(scenario.limits.partition_throughput)).ceil();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
        let count = count.max(by_limit as usize).clamp(1, PARTITIONS_MAX);
        let initial = scenario.items.initial * f64::from(scenario.items.bytes);
        let partitions = (0..count).map(|index| {
            let (from, to) = (index as f64 / count as f64, (index + 1) as f64 / count as f64);
            let bytes = initial * steady.within(from, to);
            Partition { from, to, bytes, weight: 0.0, read_weight: 0.0, stuck: false }
        });
        let mut simulation = Self {
            random: Random::new(scenario.seed),
            partitions: partitions.collect(),
            throughput,
            share_at_start: throughput / count as f64,
            items: scenario.items.initial,
            outcome: Outcome { distinct_keys: steady.distinct, ..Outcome::default() },
            largest_key_bytes: initial * steady.heaviest,
            period_bytes: 0.0,
            hour: Hour::default(),
            period: 0,
            scenario,
            steady,
            writing,
        };
        simulation.weigh();
        simulation
    }

    /// Recomputes each partition's share of the load after partitions or keys have changed.
    fn weigh(&mut self) {
        let recent = self.scenario.reads.recent_percent / 100.0;
        for partition in &mut self.partitions {
            partition.weight = self.writing.within(partition.from, partition.to);
            let data = self.steady.within(partition.from, partition.to);
            partition.read_weight = recent * partition.weight + (1.0 - recent) * data;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "figures of a simulation")]
    fn run(mut self) -> Outcome {
        let scenario = self.scenario;
        let step_seconds = f64::from(scenario.step_minutes) * 60.0;
        let steps_per_day = 86_400.0 / step_seconds;
        let steps = (f64::from(scenario.days) * steps_per_day).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be at most 600,000"
        )]
        let steps = steps as u64;
        // The initial data may already be too large for its partitions.
        self.split();
        let (mut offered_all, mut throttled_all) = (0.0, 0.0);
        let mut today = Day::default();
        let (mut today_offered, mut today_throttled, mut today_provisioned, mut today_steps) =
            (0.0, 0.0, 0.0, 0.0);
        for step in 0..steps {
            // The middle of the step stands for all of it.
            let days = (step as f64 + 0.5) / steps_per_day;
            self.move_period(days);
            let level = self.level(days);
            let load = self.load(level);
            let count = self.partitions.len() as f64;
            let most = load.iter().copied().fold(0.0, f64::max);
            let offered: f64 = load.iter().sum();
            let provisioned = if scenario.throughput.autoscale {
                // Autoscale follows the busiest partition, between a tenth of its maximum and all of it.
                (most * count).clamp(self.throughput / 10.0, self.throughput)
            } else {
                self.throughput
            };
            let share = provisioned / count;
            let throttled: f64 = load.iter().map(|load| (load - share).max(0.0)).sum();
            let pass = if offered > 0.0 { 1.0 - throttled / offered } else { 1.0 };
            self.write(level, share, step_seconds, &load);
            self.charge(provisioned, step_seconds);
            self.bill(&load, step_seconds);
            offered_all += offered;
            throttled_all += throttled;
            today.peak = today.peak.max(offered);
            today.hot_factor = today.hot_factor.max(if offered > 0.0 { most / offered * count } else { 1.0 });
            today_offered += offered;
            today_throttled += offered * (1.0 - pass);
            today_provisioned += provisioned;
            today_steps += 1.0;
            self.split();
            let ends_day =
                ((step + 1) as f64 / steps_per_day).floor() > (step as f64 / steps_per_day).floor();
            if ends_day || step + 1 == steps {
                today.day = u32::try_from(self.outcome.days.len()).unwrap_or(u32::MAX) + 1;
                today.items = self.items;
                today.bytes = self.bytes();
                today.partitions = self.partitions.len();
                today.splits = self.outcome.splits;
                today.provisioned = today_provisioned / today_steps;
                today.used = today_offered / today_steps;
                today.throttled = if today_offered > 0.0 { today_throttled / today_offered } else { 0.0 };
                today.cost = self.outcome.cost;
                self.outcome.days.push(today);
                today = Day::default();
                (today_offered, today_throttled, today_provisioned, today_steps) = (0.0, 0.0, 0.0, 0.0);
            }
            if self.largest_key_bytes > scenario.limits.key_gb * GIB && self.outcome.key_full_on_day.is_none()
            {
                self.outcome.key_full_on_day = Some(days);
            }
            if step + 1 == steps {
                self.outcome.partition_load = load;
            }
        }
        self.end_hour();
        let mut outcome = self.outcome;
        outcome.items = self.items;
        outcome.partition_bytes = self.partitions.iter().map(|partition| partition.bytes).collect();
        outcome.bytes = outcome.partition_bytes.iter().sum();
        outcome.partitions = self.partitions.len();
        outcome.stuck = self.partitions.iter().filter(|partition| partition.stuck).count();
        outcome.throttled = if offered_all > 0.0 { throttled_all / offered_all } else { 0.0 };
        outcome.largest_key_bytes = self.largest_key_bytes;
        outcome.steps = steps;
        outcome
    }

    fn bytes(&self) -> f64 {
        self.partitions.iter().map(|partition| partition.bytes).sum()
    }

    /// Switches to the keys of the current period.
    fn move_period(&mut self, days: f64) {
        if self.scenario.keys.kind != KeyKind::Time {
            return;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of periods")]
        let period = (days * 24.0 / self.scenario.keys.period_hours) as u64;
        if period != self.period {
            self.period = period;
            self.period_bytes = 0.0;
            self.writing = Weights::of_period(&self.scenario.keys, period);
            self.outcome.distinct_keys += self.writing.distinct;
            self.weigh();
        }
    }

    /// The load factor relative to the start.
    fn level(&mut self, days: f64) -> f64 {
        let load = &self.scenario.load;
        let growth = (1.0 + self.scenario.items.growth_percent_per_month / 100.0).powf(days / 30.0);
        // Lowest at midnight, highest at noon.
        let daily = 1.0 - load.daily_swing_percent / 100.0 * (days.fract() * std::f64::consts::TAU).cos();
        let is_weekend = days.rem_euclid(7.0) >= 5.0;
        let weekly = if is_weekend { 1.0 - load.weekend_drop_percent / 100.0 } else { 1.0 };
        let noise = 1.0 + load.noise_percent / 100.0 * self.random.normal();
        growth * daily * weekly * noise.max(0.0)
    }

    /// Request units per second of every partition.
    #[expect(clippy::cast_precision_loss, reason = "figures of a simulation")]
    fn load(&self, level: f64) -> Vec<f64> {
        let scenario = self.scenario;
        let bytes = scenario.items.bytes as usize;
        let create = cost::create(bytes, scenario.items.index_terms as usize).as_f64();
        let writes = scenario.items.per_day / 86_400.0 * level * create;
        let points = scenario.reads.points_per_second * level * cost::point_read(bytes).as_f64();
        let rows = scenario.reads.query_rows;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small counts")]
        let work = |partitions: usize| {
            let read = (rows * bytes as f64) as u64;
            cost::query(&cost::QueryWork {
                partitions: partitions as u64,
                index_entries: rows as u64,
                items: rows as u64,
                item_bytes: read,
                output_bytes: read,
            })
            .as_f64()
        };
        let count = self.partitions.len();
        let queries = scenario.reads.queries_per_second * level;
        let visited = match scenario.reads.query_visits {
            Visits::Key => 1,
            // Several suffixes may be in one partition.
            Visits::Suffixes => (scenario.keys.suffixes as usize).min(count),
            Visits::All => count,
        };
        let queried = queries * work(visited);
        let is_everywhere = scenario.reads.query_visits == Visits::All;
        self.partitions
            .iter()
            .map(|partition| {
                // A query of all partitions costs each the same; others cost the partitions where their keys
                // are.
                let by_query = if is_everywhere { 1.0 / count as f64 } else { partition.read_weight };
                writes * partition.weight + points * partition.read_weight + queried * by_query
            })
            .collect()
    }

    /// Adds the admitted writes and removes expired items.
    fn write(&mut self, level: f64, share: f64, step_seconds: f64, load: &[f64]) {
        let scenario = self.scenario;
        let items = scenario.items.per_day / 86_400.0 * level * step_seconds;
        let item_bytes = f64::from(scenario.items.bytes);
        let mut written = 0.0;
        for (partition, load) in self.partitions.iter_mut().zip(load) {
            // Only admitted writes add data.
            let pass = if *load > share { share / load } else { 1.0 };
            let items = items * partition.weight * pass;
            partition.bytes += items * item_bytes;
            written += items;
        }
        self.items += written;
        if scenario.keys.kind == KeyKind::Time {
            self.period_bytes += written * item_bytes * self.writing.heaviest;
            self.largest_key_bytes = self.largest_key_bytes.max(self.period_bytes);
        } else {
            self.largest_key_bytes += written * item_bytes * self.writing.heaviest;
        }
        if scenario.items.retention_days > 0.0 {
            // In equilibrium as much expires as was written one retention ago: the stock decays towards rate × retention.
            let target = scenario.items.per_day * level * scenario.items.retention_days;
            if self.items > target {
                let kept = 1.0 - (step_seconds / 86_400.0 / scenario.items.retention_days).min(1.0);
                let kept = kept.max(target / self.items);
                self.items *= kept;
                self.largest_key_bytes *= if scenario.keys.kind == KeyKind::Time { 1.0 } else { kept };
                self.partitions.iter_mut().for_each(|partition| partition.bytes *= kept);
            }
        }
    }

    fn charge(&mut self, provisioned: f64, step_seconds: f64) {
        let prices = &self.scenario.prices;
        let factor = if self.scenario.throughput.autoscale { prices.autoscale_factor } else { 1.0 };
        let hours = step_seconds / 3600.0;
        self.outcome.cost += provisioned / 100.0 * prices.per_100_units_hour * factor * hours;
        let storage = prices.storage(self.bytes(), hours);
        self.outcome.cost += storage;
        self.outcome.cost_of_storage += storage;
    }

    /// Collects the load for the bill, which is written by the hour.
    fn bill(&mut self, load: &[f64], step_seconds: f64) {
        if self.hour.peaks.len() != load.len() {
            // After a split the rest of the hour is billed by itself.
            self.end_hour();
            self.hour = Hour { peaks: vec![0.0; load.len()], used: vec![0.0; load.len()], hours: 0.0 };
        }
        let hours = step_seconds / 3600.0;
        for (at, load) in load.iter().enumerate() {
            self.hour.peaks[at] = self.hour.peaks[at].max(*load);
            self.hour.used[at] += load * hours;
        }
        self.hour.hours += hours;
        if self.hour.hours >= 1.0 {
            self.end_hour();
        }
    }

    fn end_hour(&mut self) {
        let Hour { peaks, used, hours } = std::mem::take(&mut self.hour);
        if hours > 0.0 {
            let means: Vec<f64> = used.iter().map(|used| used / hours).collect();
            let load = Load { peaks: &peaks, means: &means, bytes: self.bytes() };
            self.scenario.prices.add(&mut self.outcome.bill, &load, self.throughput, hours);
        }
    }

    /// Splits partitions that are too large, and all of them if the throughput per partition is too high.
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    fn split(&mut self) {
        let limit = self.scenario.limits.partition_gb * GIB;
        let mut changed = false;
        loop {
            let too_large = |partition: &Partition| partition.bytes > limit && !partition.stuck;
            let Some(at) = self.partitions.iter().position(too_large) else { break };
            if self.partitions.len() >= PARTITIONS_MAX {
                break;
            }
            let partition = self.partitions[at];
            let whole = self.steady.within(partition.from, partition.to);
            let share = |middle: f64| {
                if whole > 0.0 { self.steady.within(partition.from, middle) / whole } else { 0.5 }
            };
            let mut middle = f64::midpoint(partition.from, partition.to);
            let mut left = share(middle);
            // Data of past periods is evenly distributed; other data may need another cut.
            let is_even = self.scenario.keys.kind == KeyKind::Time;
            if !is_even && left.max(1.0 - left) * partition.bytes > limit {
                let Some(median) = self.steady.middle(partition.from, partition.to) else {
                    self.partitions[at].stuck = true;
                    continue;
                };
                (middle, left) = (median, share(median));
            }
            self.partitions[at] = Partition { to: middle, bytes: partition.bytes * left, ..partition };
            let right = Partition { from: middle, bytes: partition.bytes * (1.0 - left), ..partition };
            self.partitions.insert(at + 1, right);
            self.outcome.splits += 1;
            changed = true;
        }
        if changed {
            if self.scenario.throughput.keep_share {
                self.throughput = self.throughput.max(self.share_at_start * self.partitions.len() as f64);
            }
            self.weigh();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::place;
    use super::*;

    fn run(text: &str) -> Outcome {
        simulate(&Scenario::parse(text).unwrap())
    }

    const BILLION: &str = include_str!("../../tests/data/billion.toml");

    #[test]
    fn a_billion_items_on_thousands_of_partitions() {
        let outcome = run(BILLION);
        assert!(outcome.items > 1e9, "{}", outcome.items);
        assert!(outcome.partitions >= 2000, "{}", outcome.partitions);
        assert_eq!((outcome.days.len(), outcome.steps), (365, 8760));
        let bytes: f64 = outcome.partition_bytes.iter().sum();
        assert!((bytes / (outcome.items * 4096.0) - 1.0).abs() < 1e-6);
        assert_eq!(outcome, run(BILLION), "the same seed gives the same result");
        let other = run(&BILLION.replace("days = 365", "days = 365\nseed = 2"));
        assert_ne!(outcome.days, other.days);
    }

    #[test]
    fn a_day_key_is_throttled_and_suffixes_fix_it() {
        let scenario = |suffixes: u32| {
            format!(
                "days = 30\n[throughput]\nprovisioned = 48000\n[items]\nper_day = 300000000\nbytes = 512\n[keys]\nkind = \"time\"\nsuffixes = {suffixes}\n[load]\nnoise_percent = 0\ndaily_swing_percent = 0"
            )
        };
        let (plain, mended) = (run(&scenario(1)), run(&scenario(400)));
        // 3472 creates of 6.95 units per second are 24,132 units; one of eight partitions has 6,000.
        let expected = 1.0 - 6000.0 / (300e6 / 86_400.0 * 6.95);
        assert!((plain.days[0].throttled - expected).abs() < 0.01, "{} {expected}", plain.days[0].throttled);
        assert!(mended.days[0].throttled < 0.001, "{}", mended.days[0].throttled);
    }

    #[test]
    fn growth_splits_partitions_unless_one_key_fills_them() {
        let scenario = |hierarchical: bool| {
            format!(
                "days = 100\n[throughput]\nprovisioned = 100000\n[items]\nper_day = 100000000\nbytes = 1000\n[keys]\nkind = \"zipf\"\ncount = 1000\nexponent = 1.5\nhierarchical = {hierarchical}"
            )
        };
        let (flat, levels) = (run(&scenario(false)), run(&scenario(true)));
        assert!(flat.splits > 10 && flat.stuck > 0, "{} {}", flat.splits, flat.stuck);
        assert_eq!(levels.stuck, 0);
        assert!(flat.key_full_on_day.is_some_and(|day| day < 10.0), "{:?}", flat.key_full_on_day);
        let most = |outcome: &Outcome| outcome.partition_bytes.iter().copied().fold(0.0, f64::max);
        assert!(most(&levels) <= 50.0 * GIB && most(&flat) > 50.0 * GIB);
    }

    #[test]
    fn a_partition_splits_in_the_middle_of_its_hashes() {
        let outcome = run(
            "days = 1\n[throughput]\nprovisioned = 10000\n[items]\ninitial = 60000000\nper_day = 0\nbytes = 1000\n[keys]\ncount = 7\n",
        );
        // Seven keys of 8 GB: the halves hold what hashes there, not the same number of keys.
        let below = (0..7).filter(|rank| place(&format!("key-{rank}")) < 0.5).count();
        let shares: Vec<f64> = outcome.partition_bytes.iter().map(|bytes| bytes / outcome.bytes).collect();
        assert!((shares[0] - below as f64 / 7.0).abs() < 1e-9, "{shares:?} {below}");
        assert_eq!(outcome.splits, 1);
    }

    #[test]
    fn cost_covers_throughput_and_storage() {
        let outcome = run("days = 10\n[throughput]\nprovisioned = 1000\n[items]\nper_day = 0\n");
        // 10 × 100 units for 240 hours.
        assert!((outcome.cost - 10.0 * 240.0 * 0.008).abs() < 1e-6);
        let scaled =
            run("days = 10\n[throughput]\nprovisioned = 1000\nautoscale = true\n[items]\nper_day = 0\n");
        assert!((scaled.cost - 1.0 * 240.0 * 0.008 * 1.5).abs() < 1e-6);
    }

    #[test]
    fn the_same_load_is_priced_in_each_way() {
        let text = "days = 10\n[throughput]\nprovisioned = 1000\n[items]\nper_day = 0\ninitial = 0\n[reads]\npoints_per_second = 500\n[load]\ndaily_swing_percent = 0\nnoise_percent = 0";
        let bill = run(text).bill;
        let close = |said: f64, expected: f64| assert!((said - expected).abs() < 1e-6, "{said} {expected}");
        // 500 point reads of 1 KB are 500 request units, for 240 hours.
        close(bill.manual, 240.0 * 10.0 * 0.008);
        close(bill.autoscale, 240.0 * 5.0 * 0.008 * 1.5);
        close(bill.serverless, 500.0 * 3600.0 * 240.0 / 1e6 * 0.25);
        // In steps of ten minutes, an hour of autoscale costs what its busiest step needs.
        let finer = run(&format!("step_minutes = 10\n{text}"));
        close(finer.bill.autoscale, bill.autoscale);
        let noisy = text.replace("noise_percent = 0", "noise_percent = 30");
        let (coarse, fine) = (run(&noisy).bill, run(&format!("step_minutes = 5\n{noisy}")).bill);
        assert!(fine.autoscale > coarse.autoscale * 1.1, "{} {}", fine.autoscale, coarse.autoscale);
        assert!((fine.serverless / coarse.serverless - 1.0).abs() < 0.1);
        let manual = run("days = 10\n[items]\nper_day = 1000000\n");
        close(manual.bill.manual, manual.cost);
    }

    #[test]
    fn bad_scenarios_are_refused() {
        for text in [
            "days = 0",
            "nonsense = 1",
            "[keys]\nkind = \"other\"",
            "[items]\nbytes = 0",
            "{",
            "step_minutes = 0",
            "[prices]\nper_gb_month = -1",
        ] {
            assert!(Scenario::parse(text).is_err(), "{text}");
        }
        assert!(Scenario::parse(r#"{"days": 3}"#).is_ok());
    }
}
