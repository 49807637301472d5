//! Everything that a run has measured, as it is kept and reported.

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

    /// The median round, in operations a second.
    pub fn throughput(&self) -> Option<f64> {
        self.failure().is_none().then(|| median(self.rounds.iter().map(Figures::rate)))?
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

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Point reads of the same bytes by a bare server, by connections; medians of the rounds.
    pub bare: BTreeMap<u64, f64>,
    pub signed: BTreeMap<u64, f64>,
    /// Creates of the storage engine alone, by writers.
    pub engine: BTreeMap<u64, f64>,
    pub disk_flushes: f64,
}
