//! The scenario file, in TOML or JSON. Every field has a default.

use serde::Deserialize;

use crate::prices::Prices;

/// Most distinct keys.
const KEYS_MAX: u64 = 1_000_000_000_000;

/// Why a scenario cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("cannot parse the scenario: {0}")]
    Syntax(String),
    #[error("the scenario's {name} must be {rule}")]
    Value { name: &'static str, rule: &'static str },
}

/// A container and its load over some time.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Scenario {
    pub name: String,
    pub seed: u64,
    pub days: u32,
    pub step_minutes: u32,
    pub throughput: ThroughputPart,
    pub items: ItemsPart,
    pub keys: KeysPart,
    pub reads: ReadsPart,
    pub load: LoadPart,
    pub limits: LimitsPart,
    pub prices: Prices,
}

/// Request units per second.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ThroughputPart {
    pub provisioned: u32,
    /// Autoscale between a tenth of it and all of it.
    pub autoscale: bool,
    /// Raise it as partitions split, so that the share of each partition stays the same.
    pub keep_share: bool,
}

/// The items that are written.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ItemsPart {
    pub initial: f64,
    pub per_day: f64,
    /// Monthly growth of the write rate.
    pub growth_percent_per_month: f64,
    pub bytes: u32,
    pub index_terms: u32,
    /// Retention in days; 0 = forever.
    pub retention_days: f64,
}

/// How writes are distributed over keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyKind {
    /// All keys have the same weight.
    Uniform,
    /// The key of rank r has a weight of r to the power of minus the exponent.
    Zipf,
    /// All writes of a period have the same key.
    Time,
}

/// How items are keyed.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeysPart {
    pub kind: KeyKind,
    pub count: u64,
    pub exponent: f64,
    /// Hours during which one time key is written.
    pub period_hours: f64,
    /// Suffix count per key value.
    pub suffixes: u32,
    /// Keys have a further level, so that partitions can split within a key.
    pub hierarchical: bool,
}

/// Which keys a query visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visits {
    /// One key.
    Key,
    /// Every suffix of a key.
    Suffixes,
    /// Every partition.
    All,
}

/// The reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadsPart {
    pub points_per_second: f64,
    pub queries_per_second: f64,
    pub query_rows: f64,
    pub query_visits: Visits,
    /// Share of reads for data that is being written; the rest follows the data.
    pub recent_percent: f64,
}

/// How the load varies.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "units come last")]
pub struct LoadPart {
    /// Daily peak above the mean.
    pub daily_swing_percent: f64,
    /// Reduction at weekends.
    pub weekend_drop_percent: f64,
    /// Random variation from step to step.
    pub noise_percent: f64,
}

/// The service's limits, which a scenario may change.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsPart {
    pub partition_gb: f64,
    pub key_gb: f64,
    pub partition_throughput: u32,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: String::new(),
            seed: 1,
            days: 365,
            step_minutes: 60,
            throughput: ThroughputPart::default(),
            items: ItemsPart::default(),
            keys: KeysPart::default(),
            reads: ReadsPart::default(),
            load: LoadPart::default(),
            limits: LimitsPart::default(),
            prices: Prices::default(),
        }
    }
}

impl Default for ThroughputPart {
    fn default() -> Self {
        Self { provisioned: 10_000, autoscale: false, keep_share: false }
    }
}

impl Default for ItemsPart {
    fn default() -> Self {
        Self {
            initial: 0.0,
            per_day: 1_000_000.0,
            growth_percent_per_month: 0.0,
            bytes: 1024,
            index_terms: 10,
            retention_days: 0.0,
        }
    }
}

impl Default for KeysPart {
    fn default() -> Self {
        Self {
            kind: KeyKind::Uniform,
            count: 1_000_000,
            exponent: 1.0,
            period_hours: 24.0,
            suffixes: 1,
            hierarchical: false,
        }
    }
}

impl Default for ReadsPart {
    fn default() -> Self {
        Self {
            points_per_second: 0.0,
            queries_per_second: 0.0,
            query_rows: 10.0,
            query_visits: Visits::Key,
            recent_percent: 0.0,
        }
    }
}

impl Default for LoadPart {
    fn default() -> Self {
        Self { daily_swing_percent: 30.0, weekend_drop_percent: 0.0, noise_percent: 5.0 }
    }
}

impl Default for LimitsPart {
    fn default() -> Self {
        Self { partition_gb: 50.0, key_gb: 20.0, partition_throughput: 10_000 }
    }
}

impl Scenario {
    /// Parses TOML, or JSON if the text starts with a brace.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| ScenarioError::Syntax(error.to_string()))?
        } else {
            toml::from_str(text).map_err(|error| ScenarioError::Syntax(error.to_string()))?
        };
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), ScenarioError> {
        self.prices.check().map_err(|rule| ScenarioError::Syntax(rule.to_owned()))?;
        let rule =
            |good: bool, name, rule| if good { Ok(()) } else { Err(ScenarioError::Value { name, rule }) };
        let within = |value: f64, max: f64| value.is_finite() && (0.0..=max).contains(&value);
        rule((1..=3660).contains(&self.days), "days", "from 1 to 3660")?;
        rule((1..=1440).contains(&self.step_minutes), "step_minutes", "from 1 to 1440")?;
        let steps = u64::from(self.days) * 1440 / u64::from(self.step_minutes);
        rule(steps <= 600_000, "step_minutes", "large enough for at most 600,000 steps")?;
        rule(
            (1..=100_000_000).contains(&self.throughput.provisioned),
            "throughput.provisioned",
            "from 1 to 100 million",
        )?;
        rule(within(self.items.initial, 1e13), "items.initial", "from 0 to 10^13")?;
        rule(within(self.items.per_day, 1e12), "items.per_day", "from 0 to 10^12")?;
        let growth = self.items.growth_percent_per_month;
        rule(
            growth.is_finite() && (-90.0..=1000.0).contains(&growth),
            "items.growth_percent_per_month",
            "from -90 to 1000",
        )?;
        rule((1..=2_097_152).contains(&self.items.bytes), "items.bytes", "from 1 to 2 MB")?;
        rule(self.items.index_terms <= 10_000, "items.index_terms", "at most 10,000")?;
        rule(within(self.items.retention_days, 36_500.0), "items.retention_days", "from 0 to 36,500")?;
        rule((1..=KEYS_MAX).contains(&self.keys.count), "keys.count", "from 1 to 10^12")?;
        rule(within(self.keys.exponent, 5.0), "keys.exponent", "from 0 to 5")?;
        rule((0.1..=8784.0).contains(&self.keys.period_hours), "keys.period_hours", "from 0.1 to 8784")?;
        rule((1..=100_000).contains(&self.keys.suffixes), "keys.suffixes", "from 1 to 100,000")?;
        for (value, name) in [
            (self.reads.points_per_second, "reads.points_per_second"),
            (self.reads.queries_per_second, "reads.queries_per_second"),
            (self.reads.query_rows, "reads.query_rows"),
        ] {
            rule(within(value, 1e8), name, "from 0 to 10^8")?;
        }
        for (value, name) in [
            (self.reads.recent_percent, "reads.recent_percent"),
            (self.load.daily_swing_percent, "load.daily_swing_percent"),
            (self.load.weekend_drop_percent, "load.weekend_drop_percent"),
            (self.load.noise_percent, "load.noise_percent"),
        ] {
            rule(within(value, 100.0), name, "from 0 to 100")?;
        }
        rule(
            self.limits.partition_gb > 0.0 && self.limits.partition_gb <= 1e6,
            "limits.partition_gb",
            "more than 0",
        )?;
        rule(self.limits.key_gb > 0.0 && self.limits.key_gb <= 1e6, "limits.key_gb", "more than 0")?;
        rule(self.limits.partition_throughput > 0, "limits.partition_throughput", "more than 0")
    }
}
