//! `orrery advise`: measures candidate partition keys on data and a workload, and ranks them.
//!
//! This file finds the data (a file, a container, an example) and the workload, and streams the items into the
//! advisor. The measurements and the reports are in `orrery-advisor`.

use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use orrery_advisor::datasets::DataSet;
use orrery_advisor::planner::{PlanInput, plan};
use orrery_advisor::service_logs::ServiceLogs;
use orrery_advisor::what_if::WhatIf;
use orrery_advisor::{AdviceError, Advisor, Config, Limits, Prices, report};
use orrery_db::cost;
use orrery_env::SystemEnv;
use orrery_model::Value;

use crate::client::{ContainerPath, Lane, PageOutcome, ServerArguments, block_on};
use crate::failure::Failure;
use crate::io::{Output, ReportOutput, decompress, open_input, print, read_text, unreadable};

/// Longer than any item may be.
const LINE_BYTES_MAX: u64 = 8 << 20;
/// A workload file may be this long.
const WORKLOAD_BYTES_MAX: u64 = 256 << 20;
/// An export of logs may be this long.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// A price table may be this long.
const PRICES_BYTES_MAX: u64 = 1 << 20;
/// Items requested per page.
const PAGE_ITEMS: u32 = 1000;
/// Items generated for an example.
const EXAMPLE_ITEMS: u64 = 50_000;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AdviseArguments {
    #[command(subcommand)]
    pub(crate) command: Option<AdviseCommand>,

    #[command(flatten)]
    pub(crate) run: AdviseRunArguments,
}

#[derive(Subcommand)]
pub(crate) enum AdviseCommand {
    /// Find the best number of suffixes for given write and read rates.
    Suffix(SuffixArguments),
}

#[derive(Args)]
pub(crate) struct AdviseRunArguments {
    /// Items as JSON lines, plain or gzip; - is standard input. Without a file, --container is read.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// The database of the container to read.
    #[arg(long, short, value_name = "ID", env = "ORRERY_DATABASE", requires = "container")]
    database: Option<String>,

    /// The container to read, on any Cosmos DB endpoint.
    #[arg(long, short, value_name = "ID", env = "ORRERY_CONTAINER", requires = "database")]
    container: Option<String>,

    /// Sample data with its own workload: telemetry, tenants, orders or vehicles.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "workload"])]
    example: Option<String>,

    /// The workload: a file of operations with rates, or a recording by `orrery record`.
    #[arg(long, short, value_name = "FILE")]
    workload: Option<PathBuf>,

    /// Diagnostic logs of the service, exported as CSV or JSON: DataPlaneRequests, QueryRuntimeStatistics,
    /// PartitionKeyRUConsumption, PartitionKeyStatistics. Requests in them are the workload unless there is another.
    /// Can be repeated; works without items too.
    #[arg(long, value_name = "FILE")]
    service_logs: Vec<PathBuf>,

    /// Provisioned request units per second. [default: the workload's, or 10000]
    #[arg(long, value_name = "NUMBER")]
    throughput: Option<u32>,

    /// Physical partitions. [default: as the throughput requires]
    #[arg(long, value_name = "NUMBER")]
    partitions: Option<u32>,

    /// The container's current key, its levels separated by commas. Known with --container.
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    current_key: Vec<String>,

    /// Also measure this candidate: a path, two or three separated by commas for a hierarchy, or a synthetic key
    /// definition in JSON. Can be repeated.
    #[arg(long, value_name = "KEY")]
    candidate: Vec<String>,

    /// Measure only the given candidates.
    #[arg(long, requires = "candidate")]
    only: bool,

    /// Maximum number of candidates to measure.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    candidates_max: usize,

    /// The property that holds an item's write time. [default: the most likely one]
    #[arg(long, value_name = "PATH")]
    time_path: Option<String>,

    /// The total number of items, if the data is a sample.
    #[arg(long, value_name = "NUMBER")]
    items_total: Option<f64>,

    /// Also answer what would be if something were different, for the same data read once:
    /// throughput=RU/S, partitions=NUMBER, growth=FACTOR, reads=FACTOR, writes=FACTOR, separated by commas.
    /// Can be repeated.
    #[arg(long, value_name = "CHANGES")]
    what_if: Vec<String>,

    /// A price table in TOML, instead of the list prices.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,

    /// Read at most this many items.
    #[arg(long, value_name = "NUMBER")]
    items_max: Option<u64>,

    /// Random seed: the same seed and data give the same report.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = ReportOutput::Text)]
    output: ReportOutput,

    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Args)]
pub(crate) struct SuffixArguments {
    /// Items written per second.
    #[arg(long, value_name = "RATE")]
    writes: f64,

    /// Reads per second that specify the suffix's source property.
    #[arg(long, value_name = "RATE", default_value_t = 0.0)]
    known_reads: f64,

    /// Reads per second that must query every suffix.
    #[arg(long, value_name = "RATE", default_value_t = 0.0)]
    reads: f64,

    /// Reads target recent items instead of being spread over all of them.
    #[arg(long)]
    reads_recent: bool,

    /// Rows returned by a read of every suffix.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    rows: u64,

    /// Size of an item.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    item_bytes: usize,

    /// Index terms per item: its number of scalars if everything is indexed.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    index_terms: usize,

    /// Provisioned request units per second, which determine the number of partitions.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    throughput: u32,

    /// Physical partitions. [default: as the throughput requires]
    #[arg(long, value_name = "NUMBER")]
    partitions: Option<u32>,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Text)]
    output: Output,
}

pub(super) fn run(arguments: &AdviseArguments, output: &mut impl Write) -> Result<(), Failure> {
    let text = match &arguments.command {
        Some(AdviseCommand::Suffix(suffix)) => plan_suffixes(suffix)?,
        None => advise(&arguments.run)?,
    };
    print(output, &text)
}

fn advise(arguments: &AdviseRunArguments) -> Result<String, Failure> {
    let example = match arguments.example.as_deref() {
        None => None,
        Some(name) => Some(DataSet::parse(name).ok_or_else(|| {
            Failure::usage(format!(
                "unknown example `{name}`: expected telemetry, tenants, orders or vehicles"
            ))
        })?),
    };
    let mut current: Vec<String> = arguments.current_key.iter().map(|path| path.trim().to_owned()).collect();
    if let (Some(database), Some(container)) = (&arguments.database, &arguments.container)
        && example.is_none()
        && arguments.file.is_none()
    {
        let container = ContainerPath::new(database, container);
        let known = block_on(current_key(arguments, &container))?;
        current = if current.is_empty() { known } else { current };
    }
    let logs = read_logs(arguments)?;
    let recording = logs.as_ref().filter(|logs| logs.has_requests());
    let mut log_notes = Vec::new();
    let workload = match (&arguments.workload, example) {
        (Some(path), _) => Some(read_text(path, WORKLOAD_BYTES_MAX)?),
        (None, Some(set)) => Some(set.workload()),
        (None, None) => recording.map(|logs| {
            let recording = logs.recording(&current);
            log_notes = recording.notes;
            recording.text
        }),
    };
    let has_data = example.is_some() || arguments.file.is_some() || arguments.container.is_some();
    if let Some(logs) = logs.as_ref().filter(|_| !has_data) {
        return Ok(without_items(logs, log_notes, arguments.output));
    }
    let mut config = Config {
        limits: Limits {
            throughput: arguments.throughput.unwrap_or(10_000).max(1),
            partitions: arguments.partitions,
            ..Limits::default()
        },
        throughput_is_given: arguments.throughput.is_some(),
        current,
        candidates: arguments.candidate.clone(),
        only_given: arguments.only,
        candidates_max: arguments.candidates_max.clamp(1, 200),
        time_path: arguments.time_path.clone(),
        items_total: arguments.items_total,
        seed: arguments.seed,
        ..Config::default()
    };
    if let Some(path) = &arguments.prices {
        let text = read_text(path, PRICES_BYTES_MAX)?;
        config.prices = Prices::parse(&text)
            .map_err(|reason| Failure::usage(format!("the prices in {}: {reason}", path.display())))?;
    }
    let changes = arguments.what_if.iter().map(|text| WhatIf::parse(text).map_err(Failure::usage));
    let changes = changes.collect::<Result<Vec<WhatIf>, Failure>>()?;
    let own = Advisor::new(config.clone(), workload.as_deref()).map_err(refused)?;
    let throughput = own.throughput();
    let others = changes.iter().map(|change| {
        let changed = change.apply(&config, throughput);
        Advisor::new(changed, workload.as_deref()).map_err(refused)
    });
    let mut advisors = others.collect::<Result<Vec<_>, Failure>>()?;
    // The first one is the report itself; the others answer the questions. All of them see the items in one
    // pass.
    advisors.insert(0, own);
    let mut all: Vec<&mut Advisor> = advisors.iter_mut().collect();
    match (example, &arguments.file, &arguments.database, &arguments.container) {
        (Some(set), ..) => {
            for item in set.items(arguments.items_max.unwrap_or(EXAMPLE_ITEMS), arguments.seed) {
                add(&mut all, item.as_bytes())?;
            }
        }
        (None, Some(file), ..) => read_lines(file, arguments.items_max, &mut all)?,
        (None, None, Some(database), Some(container)) => {
            let container = ContainerPath::new(database, container);
            block_on(read_container(arguments, &container, &mut all))?;
        }
        _ => {
            return Err(Failure::usage(
                "no data: pass a file of JSON lines, --database and --container, or --example",
            ));
        }
    }
    let mut reports = advisors.into_iter().zip(std::iter::once(None).chain(changes.iter().map(Some))).map(
        |(mut advisor, change)| {
            // Growth is relative to the items that were seen, so it comes last.
            if let Some(growth) = change.and_then(|change| change.growth) {
                advisor.grow(growth);
            }
            advisor.finish().map_err(refused)
        },
    );
    let mut report = reports.next().expect("the first one is the report itself")?;
    if let Some(logs) = &logs {
        report.service = logs.findings().sentences();
        report.notes.extend(log_notes);
    }
    let answers = arguments.what_if.iter().cloned().zip(reports).map(|(text, report)| Ok((text, report?)));
    let answers = answers.collect::<Result<Vec<_>, Failure>>()?;
    Ok(match arguments.output {
        ReportOutput::Text => report::text(&report) + &report::what_if_text(&report, &answers),
        ReportOutput::Json => {
            let mut json = report::json(&report);
            json["whatIf"] = report::what_if_json(&answers);
            json.to_string() + "\n"
        }
        ReportOutput::Html => report::html_with(&report, &answers),
    })
}

/// The service's logs, if there are any.
fn read_logs(arguments: &AdviseRunArguments) -> Result<Option<ServiceLogs>, Failure> {
    if arguments.service_logs.is_empty() {
        return Ok(None);
    }
    let place = arguments.database.as_deref().zip(arguments.container.as_deref());
    let mut logs = ServiceLogs::default();
    for path in &arguments.service_logs {
        let text = read_text(path, LOG_BYTES_MAX)?;
        logs.add(&text, place)
            .map_err(|error| Failure::usage(format!("{} cannot be used: {error}", path.display())))?;
    }
    Ok(Some(logs))
}

/// What the service's logs show by themselves.
fn without_items(logs: &ServiceLogs, notes: Vec<String>, output: ReportOutput) -> String {
    let findings = logs.findings();
    let missing = "Other keys cannot be measured without items: pass a sample of them as JSON lines, or --database and --container.";
    match output {
        ReportOutput::Json => {
            let mut json = findings.json();
            json["notes"] = notes.into();
            json["missing"] = vec![missing].into();
            json.to_string() + "\n"
        }
        ReportOutput::Text | ReportOutput::Html => {
            report::service_text(&findings.sentences(), &[notes, vec![missing.to_owned()]].concat())
        }
    }
}

/// Adds an item to every advisor.
fn add(advisors: &mut [&mut Advisor], item: &[u8]) -> Result<(), Failure> {
    advisors.iter_mut().try_for_each(|advisor| advisor.add(item)).map_err(refused)
}

pub(super) fn refused(error: AdviceError) -> Failure {
    match error {
        AdviceError::Item { .. } | AdviceError::NoItems => Failure::refused(error),
        AdviceError::Candidate { .. } | AdviceError::Workload(_) => Failure::usage(error),
    }
}

/// Feeds the lines of a file to advisors.
pub(super) fn read_lines(
    path: &Path,
    items_max: Option<u64>,
    advisors: &mut [&mut Advisor],
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| unreadable(path, &error);
    let (mut reader, _) = decompress(open_input(path)?.0).map_err(failed)?;
    let mut line = Vec::new();
    let mut count = 0;
    while items_max.is_none_or(|items_max| count < items_max) {
        line.clear();
        // The rest of a longer line is read as another one; the advisor rejects both as invalid JSON.
        if (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        let item = line.trim_ascii();
        if !item.is_empty() {
            add(advisors, item)?;
            count += 1;
        }
    }
    Ok(())
}

/// The key that the container has.
async fn current_key(
    arguments: &AdviseRunArguments,
    container: &ContainerPath,
) -> Result<Vec<String>, Failure> {
    let definition = arguments.server.connect()?.read_container(&SystemEnv, container).await?;
    let definition =
        definition.ok_or_else(|| Failure::refused(format!("there is no container {container}")))?;
    let definition = definition.json().unwrap_or_default();
    let paths = definition.get("partitionKey").and_then(|key| key.get("paths")).and_then(Value::as_array);
    Ok(paths.unwrap_or(&[]).iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Reads the items of a container page by page, following splits.
async fn read_container(
    arguments: &AdviseRunArguments,
    container: &ContainerPath,
    advisors: &mut [&mut Advisor],
) -> Result<(), Failure> {
    let client = arguments.server.connect()?;
    let env = SystemEnv;
    let mut items_left = arguments.items_max.unwrap_or(u64::MAX);
    let mut ranges = client.read_ranges(&env, container).await?;
    let mut lanes = Lane::whole().cut(&ranges);
    while let Some((mut lane, range)) = lanes.pop() {
        match client.read_page(&env, container, &lane, &range, PAGE_ITEMS).await? {
            PageOutcome::RangeGone => {
                ranges = client.read_ranges(&env, container).await?;
                // What is left of the lane is cut to the ranges that replaced this one.
                lanes.extend(lane.cut(&ranges));
            }
            PageOutcome::Page(page) => {
                for item in &page.items {
                    if items_left == 0 {
                        return Ok(());
                    }
                    add(advisors, item.get().as_bytes())?;
                    items_left -= 1;
                }
                if page.continuation.is_some() {
                    lane.continuation = page.continuation;
                    lanes.push((lane, range));
                }
            }
        }
    }
    Ok(())
}

fn plan_suffixes(arguments: &SuffixArguments) -> Result<String, Failure> {
    let rates = [arguments.writes, arguments.known_reads, arguments.reads];
    if rates.iter().any(|rate| !rate.is_finite() || !(0.0..=1e8).contains(rate)) {
        return Err(Failure::usage("rates must be between 0 and 100 million per second"));
    }
    let limits = Limits {
        throughput: arguments.throughput.max(1),
        partitions: arguments.partitions,
        ..Limits::default()
    };
    let bytes = arguments.rows.saturating_mul(arguments.item_bytes as u64);
    let work = cost::QueryWork {
        partitions: 1,
        index_entries: arguments.rows,
        items: arguments.rows,
        item_bytes: bytes,
        output_bytes: bytes,
    };
    // A visit to a partition without reading anything.
    let first = cost::query(&cost::QueryWork { partitions: 1, ..Default::default() }).as_f64();
    let read = cost::query(&work).as_f64();
    let input = PlanInput {
        partitions: limits.partition_count(),
        write_units: arguments.writes * cost::create(arguments.item_bytes, arguments.index_terms).as_f64(),
        known_units: arguments.known_reads * read,
        all_reads: arguments.reads,
        all_read_units: read - first,
        reads_are_spread: !arguments.reads_recent,
    };
    let plan = plan(&input);
    Ok(match arguments.output {
        Output::Text => report::plan_text(&input, &plan),
        Output::Json => report::plan_json(&input, &plan).to_string() + "\n",
    })
}
