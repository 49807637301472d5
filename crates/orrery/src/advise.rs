//! `orrery advise`: measures partition keys on data and a workload, and ranks them.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use flate2::bufread::MultiGzDecoder;
use orrery_advisor::datasets::DataSet;
use orrery_advisor::planner::{PlanInput, plan};
use orrery_advisor::{AdviceError, Advisor, Config, Limits, report};
use orrery_db::{SystemEnv, cost};
use orrery_model::Value;

use crate::client::block_on;
use crate::client::feed::{Lane, PageOutcome, Place};
use crate::failure::Failure;
use crate::transfer::arguments::EndpointArguments;

/// The longest line that is read: more than an item may have.
const LINE_BYTES_MAX: u64 = 8 << 20;
/// The longest workload file.
const WORKLOAD_BYTES_MAX: u64 = 256 << 20;
/// Items asked for in a page.
const PAGE_ITEMS: u32 = 1000;
/// Items of an example.
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
    /// Find how many suffixes a key should have, for a write rate and a read pattern.
    Suffix(SuffixArguments),
}

#[derive(Args)]
pub(crate) struct AdviseRunArguments {
    /// Items as JSON lines, plain or gzip; - is standard input. Without a file the items of --container are read.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// The database of the container to read.
    #[arg(long, short, value_name = "ID", env = "ORRERY_DATABASE", requires = "container")]
    database: Option<String>,

    /// The container to read, on any Cosmos DB endpoint.
    #[arg(long, short, value_name = "ID", env = "ORRERY_CONTAINER", requires = "database")]
    container: Option<String>,

    /// Made-up data with its own workload: telemetry, tenants, orders or vehicles.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "workload"])]
    example: Option<String>,

    /// What is asked of the container: a file of operations with rates, or a recording of `orrery record`.
    #[arg(long, short, value_name = "FILE")]
    workload: Option<PathBuf>,

    /// Provisioned request units per second. [default: the workload's, or 10000]
    #[arg(long, value_name = "NUMBER")]
    throughput: Option<u32>,

    /// Physical partitions. [default: as many as the throughput gives]
    #[arg(long, value_name = "NUMBER")]
    partitions: Option<u32>,

    /// The key that the container has now, its levels separated by commas. Told by --container.
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    current_key: Vec<String>,

    /// Measure this candidate too: a path, two or three separated by commas for a hierarchy, or a definition in
    /// JSON. May be given several times.
    #[arg(long, value_name = "KEY")]
    candidate: Vec<String>,

    /// Measure the given candidates alone.
    #[arg(long, requires = "candidate")]
    only: bool,

    /// Most candidates to measure.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    candidates_max: usize,

    /// The property that tells when an item was written. [default: the one that looks most like it]
    #[arg(long, value_name = "PATH")]
    time_path: Option<String>,

    /// How many items there are, if the data is a sample of them.
    #[arg(long, value_name = "NUMBER")]
    items_total: Option<f64>,

    /// Read no more items than this.
    #[arg(long, value_name = "NUMBER")]
    items_max: Option<u64>,

    /// Repeats a run: what is drawn at random follows from it.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// How the report is written.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = ReportOutput::Text)]
    output: ReportOutput,

    #[command(flatten)]
    server: EndpointArguments,
}

#[derive(Args)]
pub(crate) struct SuffixArguments {
    /// Items written in a second.
    #[arg(long, value_name = "RATE")]
    writes: f64,

    /// Reads in a second that know the property the suffix is made of, and so the suffix.
    #[arg(long, value_name = "RATE", default_value_t = 0.0)]
    known_reads: f64,

    /// Reads in a second that must visit all suffixes.
    #[arg(long, value_name = "RATE", default_value_t = 0.0)]
    reads: f64,

    /// Reads ask for what is written now, not for anything that was ever written.
    #[arg(long)]
    reads_recent: bool,

    /// Rows of a read of all suffixes.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    rows: u64,

    /// Bytes of an item.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    item_bytes: usize,

    /// Index terms of an item: its scalars, if everything is indexed.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    index_terms: usize,

    /// Provisioned request units per second, which give the partitions.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    throughput: u32,

    /// Physical partitions. [default: as many as the throughput gives]
    #[arg(long, value_name = "NUMBER")]
    partitions: Option<u32>,

    /// How the curve is written.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = PlanOutput::Text)]
    output: PlanOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportOutput {
    /// For a terminal.
    Text,
    /// One JSON object.
    Json,
    /// One page with plots.
    Html,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanOutput {
    /// For a terminal.
    Text,
    /// One JSON object.
    Json,
}

pub(crate) fn run(arguments: &AdviseArguments, output: &mut impl Write) -> Result<(), Failure> {
    let text = match &arguments.command {
        Some(AdviseCommand::Suffix(suffix)) => plan_suffixes(suffix)?,
        None => advise(&arguments.run)?,
    };
    write_out(output, &text)
}

/// Writes a report; a reader that has gone is not a fault.
pub(crate) fn write_out(output: &mut impl Write, text: &str) -> Result<(), Failure> {
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::refused(format!("the output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

fn advise(arguments: &AdviseRunArguments) -> Result<String, Failure> {
    let example = match arguments.example.as_deref() {
        None => None,
        Some(name) => Some(DataSet::parse(name).ok_or_else(|| {
            Failure::usage(format!(
                "there is no example {name}; there are telemetry, tenants, orders and vehicles"
            ))
        })?),
    };
    let workload = match (&arguments.workload, example) {
        (Some(path), _) => Some(read_text(path, WORKLOAD_BYTES_MAX)?),
        (None, Some(set)) => Some(set.workload()),
        (None, None) => None,
    };
    let mut config = Config {
        limits: Limits {
            throughput: arguments.throughput.unwrap_or(10_000).max(1),
            partitions: arguments.partitions,
            ..Limits::default()
        },
        throughput_is_given: arguments.throughput.is_some(),
        current: arguments.current_key.iter().map(|path| path.trim().to_owned()).collect(),
        candidates: arguments.candidate.clone(),
        only_given: arguments.only,
        candidates_max: arguments.candidates_max.clamp(1, 200),
        time_path: arguments.time_path.clone(),
        items_total: arguments.items_total,
        seed: arguments.seed,
        ..Config::default()
    };
    let advisor = match (example, &arguments.file, &arguments.database, &arguments.container) {
        (Some(set), ..) => {
            let mut advisor = Advisor::new(config, workload.as_deref()).map_err(refused)?;
            let count = arguments.items_max.unwrap_or(EXAMPLE_ITEMS);
            for item in set.items(count, arguments.seed) {
                advisor.add(item.as_bytes()).map_err(refused)?;
            }
            advisor
        }
        (None, Some(file), ..) => {
            let mut advisor = Advisor::new(config, workload.as_deref()).map_err(refused)?;
            read_lines(file, arguments.items_max, &mut advisor)?;
            advisor
        }
        (None, None, Some(database), Some(container)) => {
            let place = Place::new(database, container);
            block_on(read_container(arguments, &place, &mut config, workload.as_deref()))?
        }
        _ => {
            return Err(Failure::usage(
                "name a file of JSON lines, a --database and --container, or an --example",
            ));
        }
    };
    let report = advisor.finish().map_err(refused)?;
    Ok(match arguments.output {
        ReportOutput::Text => report::text(&report),
        ReportOutput::Json => report::json(&report).to_string() + "\n",
        ReportOutput::Html => report::html(&report),
    })
}

fn refused(error: AdviceError) -> Failure {
    match error {
        AdviceError::Item { .. } | AdviceError::NoItems => Failure::refused(error),
        AdviceError::Candidate { .. } | AdviceError::Workload(_) => Failure::usage(error),
    }
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
    let failed =
        |error: std::io::Error| Failure::refused(format!("{} cannot be read: {error}", path.display()));
    let reader: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(failed)?)
    };
    let mut reader = BufReader::with_capacity(1 << 20, reader);
    let is_gzip = reader.fill_buf().map_err(failed)?.starts_with(&[0x1F, 0x8B]);
    if is_gzip {
        Ok(Box::new(BufReader::with_capacity(1 << 20, MultiGzDecoder::new(reader))))
    } else {
        Ok(Box::new(reader))
    }
}

/// A whole file, if it is not too long.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> Result<String, Failure> {
    let mut text = String::new();
    let failed = |reason: String| Failure::refused(format!("{} cannot be read: {reason}", path.display()));
    open(path)?.take(bytes_max + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > bytes_max {
        return Err(failed(format!("it is longer than {bytes_max} bytes")));
    }
    Ok(text)
}

fn read_lines(path: &Path, items_max: Option<u64>, advisor: &mut Advisor) -> Result<(), Failure> {
    let mut reader = open(path)?;
    let mut line = Vec::new();
    let mut count = 0;
    while items_max.is_none_or(|most| count < most) {
        line.clear();
        let failed =
            |error: std::io::Error| Failure::refused(format!("{} cannot be read: {error}", path.display()));
        if (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        let item = line.trim_ascii();
        if !item.is_empty() {
            advisor.add(item).map_err(refused)?;
            count += 1;
        }
    }
    Ok(())
}

/// Reads the items of a container page by page, following splits.
async fn read_container(
    arguments: &AdviseRunArguments,
    place: &Place,
    config: &mut Config,
    workload: Option<&str>,
) -> Result<Advisor, Failure> {
    let client = arguments.server.connect()?;
    let env = SystemEnv;
    let definition = client.read_container(&env, place).await?;
    let definition = definition.ok_or_else(|| Failure::refused(format!("there is no container {place}")))?;
    let definition = definition.json().unwrap_or_default();
    if config.current.is_empty() {
        let paths = definition.get("partitionKey").and_then(|key| key.get("paths")).and_then(Value::as_array);
        config.current = paths.unwrap_or(&[]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    }
    let mut advisor = Advisor::new(config.clone(), workload).map_err(refused)?;
    let mut left = arguments.items_max.unwrap_or(u64::MAX);
    let mut ranges = client.read_ranges(&env, place).await?;
    let mut lanes = Lane::whole().cut(&ranges);
    while let Some((mut lane, range)) = lanes.pop() {
        match client.read_page(&env, place, &lane, &range, PAGE_ITEMS).await? {
            PageOutcome::RangeGone => {
                ranges = client.read_ranges(&env, place).await?;
                lanes.extend(lane.cut(&ranges));
            }
            PageOutcome::Page(page) => {
                for item in &page.items {
                    if left == 0 {
                        return Ok(advisor);
                    }
                    advisor.add(item.get().as_bytes()).map_err(refused)?;
                    left -= 1;
                }
                if page.continuation.is_some() {
                    lane.continuation = page.continuation;
                    lanes.push((lane, range));
                }
            }
        }
    }
    Ok(advisor)
}

fn plan_suffixes(arguments: &SuffixArguments) -> Result<String, Failure> {
    let rates = [arguments.writes, arguments.known_reads, arguments.reads];
    if rates.iter().any(|rate| !rate.is_finite() || !(0.0..=1e8).contains(rate)) {
        return Err(Failure::usage("rates are numbers from 0 to 100 million"));
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
        PlanOutput::Text => report::plan_text(&input, &plan),
        PlanOutput::Json => report::plan_json(&input, &plan).to_string() + "\n",
    })
}
