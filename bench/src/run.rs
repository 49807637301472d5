//! One run: starts everything, measures in interleaved rounds, collects the results.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::cosmos;
use crate::limit_rounds::LimitRounds;
use crate::load::{Figures, Plan};
use crate::own::{block_on, load, say};
use crate::process;
use crate::report;
use crate::results::{Limits, Machine, Measured, Results, Scale, SystemFigures};
use crate::service::{First, Service, Terms};
use crate::systems::{Kind, Programs, Running};
use crate::workload::Workload;

#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The server's executable.
    #[arg(long, value_name = "FILE")]
    orrery: PathBuf,

    /// Output directory of results, report and plots.
    #[arg(long, value_name = "DIRECTORY", default_value = "bench")]
    output: PathBuf,

    /// Directory for installing peers. [default: a temporary one]
    #[arg(long, value_name = "DIRECTORY")]
    peers: Option<PathBuf>,

    /// Numbers of items. [default: 10000, 100000 and 1000000; with --quick 10000]
    #[arg(long, value_delimiter = ',')]
    items: Vec<u64>,

    /// Numbers of connections for all workloads. [default: 16, and 1, 64 and 256 for point reads, creates and YCSB A
    /// over the fewest items; with --quick 16 and 64; with --full 1, 16, 64 and 256]
    #[arg(long, value_delimiter = ',')]
    connections: Vec<u64>,

    /// Only these workloads.
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<String>,

    /// Only these systems: orrery, orrery_memory, postgres, cosmium, vercel.
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,

    /// Number of rounds; the median is reported. [default: 3; with --quick 1; with --full 5]
    #[arg(long)]
    rounds: Option<u64>,

    /// Duration of each measurement in seconds. [default: 1; with --full 3]
    #[arg(long)]
    seconds: Option<f64>,

    /// Cache size in MB, for systems with such a setting.
    #[arg(long, default_value_t = 256)]
    cache_mb: u64,

    /// Time limit for loading, in seconds.
    #[arg(long, default_value_t = 900)]
    load_seconds_max: u64,

    /// All workloads and connections with all numbers of items; takes hours.
    #[arg(long)]
    full: bool,

    /// Only the workloads with targets, once: for use during development.
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// With --full: ten million items as well.
    #[arg(long, requires = "full")]
    huge: bool,
}

impl Options {
    fn scales(&self) -> Vec<u64> {
        match (self.items.is_empty(), self.quick, self.huge) {
            (false, ..) => self.items.clone(),
            (_, true, _) => vec![10_000],
            (_, _, false) => vec![10_000, 100_000, 1_000_000],
            (_, _, true) => vec![10_000, 100_000, 1_000_000, 10_000_000],
        }
    }

    /// What is measured with this many items: workloads and numbers of connections.
    fn cells(&self, items: u64) -> Vec<(Workload, u64)> {
        use Workload::{
            Batch50, ChangeFeed, CountIndexed, Create, GroupBy, OrderByTop10, Page100, PointRead,
            QueryIndexed, YcsbA,
        };
        let is_large = items > 10_000 && !self.full;
        let wanted = |workload: &Workload| {
            if !self.workloads.is_empty() {
                return self.workloads.contains(&workload.name());
            }
            // Full scans take seconds then, and the rest adds no information.
            let tells_much = matches!(
                workload,
                PointRead
                    | Create
                    | Batch50
                    | QueryIndexed
                    | OrderByTop10
                    | Page100
                    | CountIndexed
                    | ChangeFeed
                    | YcsbA
            );
            match (self.quick, is_large) {
                (true, _) => tells_much || *workload == GroupBy,
                (_, true) => tells_much,
                _ => true,
            }
        };
        let mut cells = Vec::new();
        for workload in Workload::ALL.into_iter().filter(wanted) {
            let more = matches!(workload, PointRead | Create | YcsbA);
            let connections = match self.connections.as_slice() {
                [] if self.full || more && !is_large && !self.quick => &[1, 16, 64, 256][..],
                [] if more && self.quick => &[16, 64],
                // Needed for the comparison with fewer items.
                [] if workload == PointRead && is_large => &[1, 16],
                [] => &[16],
                given => given,
            };
            cells.extend(connections.iter().map(|connections| (workload, *connections)));
        }
        cells.sort_by_key(|(workload, _)| workload.turn());
        cells
    }

    fn kinds(&self) -> Vec<Kind> {
        let name =
            |kind: Kind| serde_json::to_value(kind).ok().and_then(|name| Some(name.as_str()?.to_owned()));
        let wanted = |kind: &Kind| {
            self.systems.is_empty() || name(*kind).is_some_and(|name| self.systems.contains(&name))
        };
        Kind::ALL.into_iter().filter(wanted).collect()
    }

    fn rounds(&self) -> u64 {
        self.rounds.unwrap_or(match (self.full, self.quick) {
            (true, _) => 5,
            (_, true) => 1,
            _ => 3,
        })
    }

    /// How long a measurement of the workload lasts.
    fn measure_ms(&self, workload: Workload) -> u64 {
        let times = if workload.looks_at_everything() { 3.0 } else { 1.0 };
        (times * self.seconds.unwrap_or(if self.full { 3.0 } else { 1.0 }) * 1000.0) as u64
    }
}

pub fn run(options: &Options) -> Result<(), String> {
    let temporary = tempfile::tempdir().map_err(|error| error.to_string())?;
    // PostgreSQL runs as another user and needs access.
    run_quietly(Command::new("chmod").arg("755").arg(temporary.path()));
    let folder = options.peers.clone().unwrap_or_else(|| temporary.path().join("peers"));
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let folder = fs::canonicalize(folder).map_err(|error| error.to_string())?;
    let orrery = fs::canonicalize(&options.orrery)
        .map_err(|error| format!("{} cannot be found: {error}", options.orrery.display()))?;
    let programs = Programs { orrery, folder };
    let mut results = Results { machine: machine(), command: command_line(), ..Results::default() };
    let mut ready: Vec<(Kind, Option<String>)> = Vec::new();
    for kind in options.kinds() {
        say(&format!("preparing {}", kind.title()));
        let failure = programs.install(kind).err();
        results.versions.insert(kind.title().to_owned(), programs.version(kind));
        ready.push((kind, failure));
    }
    for (at, items) in options.scales().into_iter().enumerate() {
        let directory = temporary.path().join(items.to_string());
        let (scale, limits) = measure_scale(options, &programs, &ready, items, &directory, at == 0)?;
        results.scales.push(scale);
        if let Some(limits) = limits {
            results.limits = limits;
        }
        results.machine.load_after = load_average();
        save(options, &results)?;
        fs::remove_dir_all(&directory).ok();
    }
    Ok(())
}

pub fn report_again(directory: &Path) -> Result<(), String> {
    let text = fs::read(directory.join("results.json")).map_err(|error| error.to_string())?;
    let results: Results = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    report::write(&results, directory).map_err(|error| error.to_string())
}

fn save(options: &Options, results: &Results) -> Result<(), String> {
    fs::create_dir_all(&options.output).map_err(|error| error.to_string())?;
    let text = serde_json::to_string_pretty(results).map_err(|error| error.to_string())?;
    fs::write(options.output.join("results.json"), text).map_err(|error| error.to_string())?;
    report::write(results, &options.output).map_err(|error| error.to_string())
}

/// Number of items beyond which a system is skipped. In-memory systems need gigabytes for a million items, and restarting an
/// emulator after each workload that it fails takes most of a minute with 100,000.
fn items_max(kind: Kind, full: bool) -> u64 {
    match kind {
        Kind::Orrery | Kind::Postgres => u64::MAX,
        Kind::Cosmium | Kind::Vercel if !full => 10_000,
        Kind::OrreryMemory | Kind::Cosmium | Kind::Vercel => 100_000,
    }
}

/// Number of items beyond which the split time is measured only in full runs.
const SPLIT_ITEMS_MAX: u64 = 100_000;

fn measure_scale(
    options: &Options,
    programs: &Programs,
    ready: &[(Kind, Option<String>)],
    items: u64,
    directory: &Path,
    with_limits: bool,
) -> Result<(Scale, Option<Limits>), String> {
    fs::create_dir_all(directory).map_err(|error| error.to_string())?;
    let mut scale = Scale { items, ..Scale::default() };
    let mut services: Vec<Service<'_>> = Vec::new();
    let load_time_max = Duration::from_secs(options.load_seconds_max);
    let terms = Terms { items, cache_mb: options.cache_mb, load_time_max };
    for (kind, failure) in ready {
        let mut failure = failure.clone();
        let items_max = items_max(*kind, options.full);
        if failure.is_none() && items > items_max {
            failure = Some(format!("skipped with more than {items_max} items"));
        }
        let mut first = First::default();
        if failure.is_none() {
            say(&format!("starting {} and loading {items} items", kind.title()));
            let data = directory.join(kind.title().to_lowercase().replace(' ', "-"));
            match Service::begin(programs, *kind, terms, data) {
                Ok((service, found)) => {
                    first = found;
                    services.push(service);
                }
                Err(reason) => failure = Some(reason),
            }
        }
        if let Some(failure) = &failure {
            say(&format!("  {} is left out: {failure}", kind.title()));
        }
        scale.systems.push(SystemFigures {
            kind: *kind,
            failure,
            start_up_ms: first.start_up_ms,
            idle_memory_mb: first.idle_memory_mb,
            import_rate: first.import_rate,
            bytes_per_item: first.bytes_per_item,
            memory: process::Memory::default(),
            restart_ms: None,
            split_seconds: None,
        });
    }
    let cells = options.cells(items);
    let mut limits = match services.iter_mut().find(|service| service.kind == Kind::Orrery) {
        Some(orrery) if with_limits => {
            let workloads = cells.iter().map(|(workload, _)| *workload).collect();
            Some(LimitRounds::new(&orrery.ready()?.address, directory, &workloads)?)
        }
        _ => None,
    };
    let mut rounds = Rounds { options, items, run: 0, measured: BTreeMap::new(), given_up: BTreeSet::new() };
    for round in 0..options.rounds() {
        for (workload, connections) in &cells {
            rounds.measure(&mut services, limits.as_mut(), *workload, *connections, round)?;
        }
        if let Some(limits) = &mut limits {
            limits.measure_disk()?;
        }
    }
    rounds.measure_open_loop(&mut services);
    let limits = limits.map(LimitRounds::into_limits);
    scale.measured = rounds.measured.into_values().collect();
    for mut service in services {
        let kind = service.kind;
        let Some(figures) = scale.systems.iter_mut().find(|figures| figures.kind == kind) else { continue };
        figures.memory = service.memory();
        if !kind.is_durable() {
            continue;
        }
        say(&format!("starting {} again on its data", kind.title()));
        let address = service.ready().map(|system| system.address.clone());
        // Splitting a million items takes minutes, with the same time per item.
        if kind == Kind::Orrery && (items <= SPLIT_ITEMS_MAX || options.full) {
            let time = address.and_then(|address| split(&address));
            figures.split_seconds = time.map_err(|failure| say(&failure)).ok();
        }
        figures.restart_ms = service.stop_and_start_again();
    }
    Ok((scale, limits))
}

type Cell = (Workload, u64, Kind, bool);

/// The state of all rounds with one number of items.
struct Rounds<'a> {
    options: &'a Options,
    items: u64,
    /// Numbers the runs, so that new items do not collide.
    run: u64,
    measured: BTreeMap<Cell, Measured>,
    given_up: BTreeSet<Cell>,
}

impl Rounds<'_> {
    /// One round of a workload: every system in turn, and the corresponding limits.
    fn measure(
        &mut self,
        services: &mut [Service<'_>],
        limits: Option<&mut LimitRounds>,
        workload: Workload,
        connections: u64,
        round: u64,
    ) -> Result<(), String> {
        say(&format!(
            "{} items, round {} of {}: {}, {connections} connections",
            self.items,
            round + 1,
            self.options.rounds(),
            workload.title()
        ));
        for service in services {
            self.measure_system(service, workload, connections, None, round);
        }
        match limits {
            Some(limits) => {
                limits.measure(workload, connections, round, self.items, self.options.measure_ms(workload))
            }
            None => Ok(()),
        }
    }

    fn measure_system(
        &mut self,
        service: &mut Service<'_>,
        workload: Workload,
        connections: u64,
        rate: Option<f64>,
        round: u64,
    ) {
        let kind = service.kind;
        let cell = (workload, connections, kind, rate.is_some());
        if self.given_up.contains(&cell) {
            return;
        }
        self.run += 1;
        let (figures, cpu) = match service.ready() {
            Ok(system) => {
                let plan = Plan {
                    protocol: kind.protocol(),
                    address: system.address.clone(),
                    workload,
                    items: self.items,
                    connections,
                    warm_up_ms: self.options.measure_ms(workload) / 3,
                    measure_ms: self.options.measure_ms(workload),
                    // The same operations for every system.
                    seed: round,
                    run: self.run,
                    rate,
                };
                measure_once(system, &plan)
            }
            Err(failure) => (Figures { failure: Some(failure), ..Figures::default() }, 0.0),
        };
        service.measured(workload, &figures);
        let measured = self.measured.entry(cell).or_insert_with(|| Measured {
            kind,
            workload,
            connections,
            rate,
            rounds: Vec::new(),
            cpu_seconds_per_operation: Vec::new(),
        });
        match &figures.failure {
            Some(failure) => {
                say(&format!("  {}: {failure}", kind.title()));
                self.given_up.insert(cell);
            }
            None => {
                say(&format!("  {}: {:.1}/s", kind.title(), figures.rate()));
                measured.cpu_seconds_per_operation.push(cpu / figures.all_operations.max(1) as f64);
            }
        }
        measured.rounds.push(figures);
    }

    /// Open-loop point reads and creates at half of each system's capacity, for realistic latencies.
    fn measure_open_loop(&mut self, services: &mut [Service<'_>]) {
        for workload in [Workload::PointRead, Workload::Create] {
            for round in 0..self.options.rounds() {
                say(&format!("{} items, open loop: {}", self.items, workload.title()));
                for service in &mut *services {
                    let cell = (workload, 16, service.kind, false);
                    let closed = self.measured.get(&cell).and_then(Measured::throughput);
                    if let Some(closed) = closed.filter(|closed| *closed >= 2.0) {
                        self.measure_system(service, workload, 16, Some(closed / 2.0), round);
                    }
                }
            }
        }
    }
}

/// The figures of a plan, with the CPU time that the system spent on it.
fn measure_once(system: &Running, plan: &Plan) -> (Figures, f64) {
    let cpu_before = process::cpu_seconds(system.process());
    let mut figures = load(plan);
    if figures.failure.is_none() {
        system.settle();
    }
    if figures.failure.is_none() && figures.operations == 0 {
        figures.failure = Some(format!("no operation completed within {} ms", plan.measure_ms));
    }
    (figures, process::cpu_seconds(system.process()) - cpu_before)
}

/// How long a split of the whole container takes without other load.
fn split(address: &str) -> Result<f64, String> {
    let body = format!(
        "{{\"database\":\"{}\",\"container\":\"{}\",\"partition\":\"0\"}}",
        cosmos::DATABASE,
        cosmos::CONTAINER
    );
    block_on(async {
        let mut session = cosmos::Session::open(address).await?;
        let begun = Instant::now();
        let answer = session.send("POST", "/_orrery/partitions/split", &[], &body).await?;
        match answer.status {
            200 => Ok(begun.elapsed().as_secs_f64()),
            status => Err(format!("the split was refused ({status})")),
        }
    })
}

fn run_quietly(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().ok();
    std::io::stderr().flush().ok();
}

fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn machine() -> Machine {
    let field = |path: &str, name: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line.split(':').nth(1).unwrap_or_default().trim().to_owned()
    };
    let memory_kb = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0);
    Machine {
        processor: field("/proc/cpuinfo", "model name"),
        processors: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        memory_gb: memory_kb / 1024.0 / 1024.0,
        system: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        load_before: load_average(),
        load_after: 0.0,
    }
}

/// The options, without the paths of this machine.
fn command_line() -> String {
    let mut shown = vec!["make bench".to_owned()];
    let mut arguments = std::env::args().skip(2);
    let mut options = Vec::new();
    while let Some(argument) = arguments.next() {
        if ["--orrery", "--output", "--peers"].contains(&argument.as_str()) {
            arguments.next();
        } else {
            options.push(argument);
        }
    }
    if !options.is_empty() {
        shown.push(format!("BENCH=\"{}\"", options.join(" ")));
    }
    shown.join(" ")
}
