//! The limits, measured in the same rounds as the systems.
//!
//! For reads, a server that checks signatures and repeats one of Orrery's responses; for point reads also without the
//! check. For writes, the storage engine alone with the same batches. The servers run only during their measurement, so
//! that they do not disturb others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::cosmos;
use crate::limits::{self, Sample};
use crate::load::{Plan, Protocol};
use crate::own::{block_on, load, own_output, say};
use crate::process;
use crate::results::{ByConnections, Limits, median};
use crate::wire::Answer;
use crate::workload::Workload;

/// What the rounds so far have measured.
pub struct LimitRounds {
    directory: PathBuf,
    /// Orrery's answers over the stated items.
    samples: BTreeMap<Workload, Sample>,
    bare: ByConnections,
    bare_cpu: ByConnections,
    signed: BTreeMap<Workload, ByConnections>,
    engine: BTreeMap<Workload, ByConnections>,
    flushes: Vec<f64>,
}

impl LimitRounds {
    /// `orrery` is the server whose answers to these workloads are repeated.
    pub fn new(orrery: &str, directory: &Path, workloads: &BTreeSet<Workload>) -> Result<Self, String> {
        let mut samples = BTreeMap::new();
        for workload in workloads.iter().filter(|workload| workload.has_one_answer()) {
            let answer = block_on(async { cosmos::Session::open(orrery).await?.sample(*workload).await })?;
            samples.insert(*workload, sample_of(&answer));
        }
        Ok(Self {
            directory: directory.to_owned(),
            samples,
            bare: BTreeMap::new(),
            bare_cpu: BTreeMap::new(),
            signed: BTreeMap::new(),
            engine: BTreeMap::new(),
            flushes: Vec::new(),
        })
    }

    /// The limits that belong to a workload.
    pub fn measure(
        &mut self,
        workload: Workload,
        connections: u64,
        round: u64,
        items: u64,
        measure_ms: u64,
    ) -> Result<(), String> {
        let plan = |address: String| Plan {
            protocol: Protocol::Cosmos,
            address,
            workload,
            items,
            connections,
            warm_up_ms: measure_ms / 3,
            measure_ms,
            seed: round,
            run: 0,
            rate: None,
        };
        if workload.has_one_answer() {
            if workload == Workload::PointRead {
                let server = self.serve(workload, false)?;
                let figures = load(&plan(server.address.clone()));
                let cpu = process::cpu_seconds(server.child.id()) / figures.all_operations.max(1) as f64;
                self.bare.entry(connections).or_default().0.push(figures.rate());
                self.bare_cpu.entry(connections).or_default().0.push(cpu);
            }
            let server = self.serve(workload, true)?;
            let figures = load(&plan(server.address.clone()));
            if let Some(failure) = &figures.failure {
                say(&format!("  the limit failed: {failure}"));
            }
            let rate = if figures.failure.is_none() { figures.rate() } else { 0.0 };
            self.signed.entry(workload).or_default().entry(connections).or_default().0.push(rate);
        }
        if let Some(shape) = workload.writes_like() {
            let rates = self.engine.entry(shape).or_default().entry(connections).or_default();
            // Several workloads write alike.
            if rates.0.len() as u64 <= round {
                let folder = self.directory.join(format!("engine-{round}-{connections}"));
                let (shown, writers, time) =
                    (folder.display().to_string(), connections.to_string(), measure_ms.to_string());
                let arguments = ["engine", &shown, &shape.name(), &writers, &time];
                let rate = own_output(&arguments, Duration::from_mins(5))?;
                rates.0.push(rate.trim().parse().unwrap_or(0.0));
                fs::remove_dir_all(&folder).ok();
            }
        }
        Ok(())
    }

    pub fn measure_disk(&mut self) -> Result<(), String> {
        let flushes = limits::disk_flushes(&self.directory, Duration::from_secs(1));
        self.flushes.push(flushes.map_err(|error| error.to_string())?);
        Ok(())
    }

    pub fn into_limits(self) -> Limits {
        let disk_flushes = median(self.flushes.iter().copied()).unwrap_or(0.0);
        Limits {
            bare: self.bare,
            bare_cpu: self.bare_cpu,
            signed: self.signed,
            engine: self.engine,
            disk_flushes,
        }
    }

    /// Starts a server that repeats Orrery's answer to an operation of the workload.
    fn serve(&self, workload: Workload, checks_signature: bool) -> Result<LimitServer, String> {
        let sample = self.samples.get(&workload).ok_or("there is no answer to repeat")?;
        let path = self.directory.join("sample.json");
        let text = serde_json::to_string(sample).map_err(|error| error.to_string())?;
        fs::write(&path, text).map_err(|error| error.to_string())?;
        LimitServer::start(&path, checks_signature)
    }
}

fn sample_of(answer: &Answer) -> Sample {
    let headers = answer.head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    let headers = headers
        .filter(|(name, _)| !["content-length", "date", "connection"].contains(&name.to_lowercase().as_str()))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    Sample { headers: headers.collect(), body: String::from_utf8_lossy(&answer.body).into_owned() }
}

/// A server that only repeats an answer, ended when it is dropped.
pub struct LimitServer {
    child: Child,
    pub address: String,
}

impl LimitServer {
    pub fn start(sample: &Path, checks_signature: bool) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.arg("limit").arg(sample);
        if checks_signature {
            command.arg("--signature");
        }
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let mut address = String::new();
        if let Some(output) = child.stdout.as_mut() {
            BufReader::new(output).read_line(&mut address).map_err(|error| error.to_string())?;
        }
        Ok(Self { child, address: address.trim().to_owned() })
    }
}

impl Drop for LimitServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
