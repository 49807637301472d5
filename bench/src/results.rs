//! The results of a run, as stored and reported.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::load::Figures;
use crate::process::Memory;
use crate::systems::Kind;
use crate::workload::Workload;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    pub machine: Machine,
    pub command: String,
    pub versions: BTreeMap<String, String>,
    pub scales: Vec<Scale>,
    pub limits: Limits,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub processors: usize,
    pub memory_gb: f64,
    pub system: String,
    /// Others that use the machine make every figure worse.
    pub load_before: f64,
    pub load_after: f64,
}

/// One number of items.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Scale {
    pub items: u64,
    pub systems: Vec<SystemFigures>,
    pub measured: Vec<Measured>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SystemFigures {
    pub kind: Kind,
    pub failure: Option<String>,
    pub start_up_ms: f64,
    /// Before anything was asked.
    pub idle_memory_mb: f64,
    /// Items a second of the bulk import.
    pub import_rate: f64,
    pub bytes_per_item: f64,
    /// At the end.
    pub memory: Memory,
    /// Started again on all items.
    pub restart_ms: Option<f64>,
    pub split_seconds: Option<f64>,
}

/// The rounds of one workload on one system.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub kind: Kind,
    pub workload: Workload,
    pub connections: u64,
    /// Operations a second that were planned; none in a closed loop.
    pub rate: Option<f64>,
    pub rounds: Vec<Figures>,
    pub cpu_seconds_per_operation: Vec<f64>,
}

impl Measured {
    pub fn failure(&self) -> Option<&str> {
        self.rounds.iter().find_map(|figures| figures.failure.as_deref())
    }

    /// Of all rounds, unless one has failed.
    pub fn rates(&self) -> Option<Rates> {
        self.failure().is_none().then(|| Rates(self.rounds.iter().map(Figures::rate).collect()))
    }

    /// The median round, in operations a second.
    pub fn throughput(&self) -> Option<f64> {
        self.rates()?.median()
    }

    pub fn median_of(&self, figure: impl Fn(&Figures) -> u64) -> Option<f64> {
        median(self.rounds.iter().filter(|round| round.failure.is_none()).map(|round| figure(round) as f64))
    }

    pub fn cpu(&self) -> Option<f64> {
        median(self.cpu_seconds_per_operation.iter().copied())
    }
}

pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => None,
        count if count % 2 == 1 => values.get(count / 2).copied(),
        count => Some((values[count / 2 - 1] + values[count / 2]) / 2.0),
    }
}

/// Operations a second, round by round; 0 = that round has failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rates(pub Vec<f64>);

impl Rates {
    pub fn median(&self) -> Option<f64> {
        median(self.0.iter().copied().filter(|rate| *rate > 0.0))
    }

    /// How many times as fast as the other: each round is compared with the same round of the other, which was a moment
    /// before or after, and the median counts. What slows the machine down for a while slows down both.
    pub fn over(&self, other: &Self) -> Option<f64> {
        let pairs = self.0.iter().zip(&other.0).filter(|(own, other)| **own > 0.0 && **other > 0.0);
        median(pairs.map(|(own, other)| own / other))
    }
}

pub type ByConnections = BTreeMap<u64, Rates>;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Point reads of the same bytes by a bare server.
    pub bare: ByConnections,
    /// Its CPU time per operation, in seconds.
    #[serde(default)]
    pub bare_cpu: ByConnections,
    /// The same answers by a server that checks signatures.
    pub signed: BTreeMap<Workload, ByConnections>,
    /// The writes of the storage engine alone, by writers.
    pub engine: BTreeMap<Workload, ByConnections>,
    pub disk_flushes: f64,
}

impl Limits {
    /// What a workload could reach at most: its reads at the speed of a server that does nothing else than check
    /// signatures and repeat answers, its writes at that of the storage engine alone.
    pub fn of(&self, workload: Workload, connections: u64) -> Option<Rates> {
        let mut parts = Vec::new();
        for (part, share) in workload.parts() {
            let known = self.signed.get(part).or_else(|| self.engine.get(part))?.get(&connections)?;
            parts.push((known.0.iter().copied(), share));
        }
        let mut rates = Vec::new();
        loop {
            // Seconds of one operation in this round.
            let mut seconds = 0.0;
            for (rounds, share) in &mut parts {
                let Some(rate) = rounds.next() else {
                    let rates = Rates(rates);
                    return rates.median().is_some().then_some(rates);
                };
                seconds += *share / rate;
            }
            rates.push(1.0 / seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_outliers() {
        assert_eq!(median([5.0, 1.0, 900.0].into_iter()), Some(5.0));
        assert_eq!(median([1.0, 3.0].into_iter()), Some(2.0));
        assert_eq!(median(std::iter::empty()), None);
    }

    /// A machine that is slow for a while does not make anybody better or worse.
    #[test]
    fn rounds_are_compared_with_the_same_round() {
        let (own, other) = (Rates(vec![100.0, 50.0, 210.0]), Rates(vec![200.0, 100.0, 400.0]));
        assert_eq!(own.over(&other), Some(0.5));
        assert_eq!(own.over(&Rates(vec![0.0])), None);
        // A round that has failed does not move the others.
        let failed_once = Rates(vec![100.0, 0.0, 420.0]);
        assert_eq!(own.over(&failed_once), Some(0.75));
        assert_eq!(failed_once.median(), Some(260.0));
        let signed = BTreeMap::from([(Workload::PointRead, ByConnections::from([(16, Rates(vec![0.0]))]))]);
        assert_eq!(Limits { signed, ..Limits::default() }.of(Workload::PointRead, 16), None);
    }

    #[test]
    fn the_limit_of_a_mix_is_made_of_its_parts() {
        let at = |rate: f64| ByConnections::from([(16, Rates(vec![rate]))]);
        let limits = Limits {
            signed: BTreeMap::from([(Workload::PointRead, at(1000.0))]),
            engine: BTreeMap::from([(Workload::Upsert, at(500.0))]),
            ..Limits::default()
        };
        assert_eq!(limits.of(Workload::PointRead, 16), Some(Rates(vec![1000.0])));
        // Half a read takes half a millisecond, half a write a whole one.
        let mix = limits.of(Workload::YcsbA, 16).unwrap().median().unwrap();
        assert!((mix - 1.0 / 0.0015).abs() < 1e-6, "{mix}");
        assert_eq!(limits.of(Workload::YcsbA, 64), None);
        assert_eq!(limits.of(Workload::Create, 16), None);
    }
}
