//! A running system: started, loaded, and restarted when it no longer has the stated items.
//!
//! Every measurement must start with the stated number of items, at most a tenth more. A system that has more, because the
//! previous measurement created some, is stopped at once and restarted on an empty disk before its next one. So is a
//! system that has failed: its unfinished work must not disturb the others.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::load::Figures;
use crate::own::{fill, say};
use crate::process::{self, Memory};
use crate::systems::{Kind, Programs, Running};
use crate::workload::Workload;

/// What a system's first start and its filling have shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct First {
    pub start_up_ms: f64,
    pub idle_memory_mb: f64,
    /// Items a second.
    pub import_rate: f64,
    pub bytes_per_item: f64,
}

/// How systems are started and filled.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub items: u64,
    pub cache_mb: u64,
    pub load_time_max: Duration,
}

pub struct Service<'a> {
    pub kind: Kind,
    programs: &'a Programs,
    terms: Terms,
    data: PathBuf,
    running: Option<Running>,
    growth: Growth,
    /// When it was last measured, and the most it ever was.
    memory: Memory,
}

impl<'a> Service<'a> {
    pub fn begin(
        programs: &'a Programs,
        kind: Kind,
        terms: Terms,
        data: PathBuf,
    ) -> Result<(Self, First), String> {
        let growth = Growth::new(terms.items);
        let memory = Memory::default();
        let mut service = Self { kind, programs, terms, data, running: None, growth, memory };
        let first = service.start()?;
        Ok((service, first))
    }

    fn start(&mut self) -> Result<First, String> {
        fs::remove_dir_all(&self.data).ok();
        let system = self.programs.start(self.kind, &self.data, self.terms.cache_mb)?;
        // A moment, so that what is idle is so.
        std::thread::sleep(Duration::from_millis(200));
        let idle_memory_mb = process::memory(system.process()).now_mb;
        let items = self.terms.items;
        let seconds = fill(self.kind.title(), &system.address, items, self.terms.load_time_max)?;
        let bytes = if self.kind.is_durable() { process::disk_bytes(&self.data) } else { 0 };
        let first = First {
            start_up_ms: system.start_up.as_secs_f64() * 1000.0,
            idle_memory_mb,
            import_rate: items as f64 / seconds,
            bytes_per_item: bytes as f64 / items as f64,
        };
        system.settle();
        self.running = Some(system);
        self.growth = Growth::new(items);
        Ok(first)
    }

    /// The system with the stated items, begun anew if it must be.
    pub fn ready(&mut self) -> Result<&Running, String> {
        if self.running.is_none() {
            self.start().map_err(|failure| format!("it could not be begun anew: {failure}"))?;
        }
        self.running.as_ref().ok_or_else(|| "it does not run".to_owned())
    }

    /// Takes note of what a measurement has done to it.
    pub fn measured(&mut self, workload: Workload, figures: &Figures) {
        let Some(system) = &self.running else { return };
        let now = process::memory(system.process());
        self.memory = Memory { now_mb: now.now_mb, peak_mb: self.memory.peak_mb.max(now.peak_mb) };
        self.growth.add(workload, figures);
        if self.growth.is_too_much()
            && let Some(system) = self.running.take()
        {
            system.end_at_once();
        }
    }

    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// Ends it as an operator would, and tells how long a start on its data takes, if they are on disk.
    pub fn stop_and_start_again(mut self) -> Option<f64> {
        if let Some(system) = self.running.take() {
            system.stop();
        }
        let again = self
            .kind
            .is_durable()
            .then(|| self.programs.start(self.kind, &self.data, self.terms.cache_mb))
            .and_then(|again| again.map_err(|failure| say(&failure)).ok())
            .map(|system| system.start_up.as_secs_f64() * 1000.0);
        fs::remove_dir_all(&self.data).ok();
        again
    }
}

/// How many items somebody holds beyond those they were filled with.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    items: u64,
    created: f64,
    failed: bool,
}

impl Growth {
    pub fn new(items: u64) -> Self {
        Self { items, created: 0.0, failed: false }
    }

    pub fn add(&mut self, workload: Workload, figures: &Figures) {
        self.created += workload.items_created() * figures.all_operations as f64;
        // Nobody knows what it has created, and what it still does.
        self.failed |= figures.failure.is_some();
    }

    /// Whether the next measurement would not find the stated number of items.
    pub fn is_too_much(&self) -> bool {
        self.failed || self.created > self.items as f64 / 10.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_more_than_a_tenth_more_is_begun_anew() {
        let done = |all_operations| Figures { all_operations, ..Figures::default() };
        let mut growth = Growth::new(10_000);
        for workload in Workload::ALL.into_iter().filter(|workload| workload.items_created() == 0.0) {
            growth.add(workload, &done(1_000_000));
        }
        assert!(!growth.is_too_much());
        growth.add(Workload::Batch50, &done(10));
        growth.add(Workload::YcsbD, &done(1000));
        assert!(!growth.is_too_much());
        growth.add(Workload::Create, &done(500));
        assert!(growth.is_too_much());
    }

    #[test]
    fn who_has_failed_is_begun_anew() {
        let mut growth = Growth::new(10_000);
        growth.add(
            Workload::PointRead,
            &Figures { failure: Some("status 500".to_owned()), ..Figures::default() },
        );
        assert!(growth.is_too_much());
    }
}
