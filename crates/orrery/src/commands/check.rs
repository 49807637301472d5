//! `orrery check`: guardrails for continuous integration. The rules and reports are in `orrery_advisor::guard`; this file
//! finds the evidence: a recording, a running server, or data with a key.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use orrery_advisor::guard::{Facts, Rules};
use orrery_advisor::{Advisor, Config, Limits, guard, guard_facts};
use orrery_env::SystemEnv;
use orrery_model::value::{self, Value};
use orrery_model::{Number, Object};

use super::advise::{read_lines, refused};
use crate::client::{Request, ServerArguments, container_query};
use crate::failure::Failure;
use crate::io::{print, read_text};

/// Limits of the files.
const RULES_BYTES_MAX: u64 = 1 << 20;
const WORKLOAD_BYTES_MAX: u64 = 256 << 20;
/// Keys of a page of the ledger.
const PAGE_KEYS: usize = 5000;
/// The largest keys of a server that are looked at.
const KEYS_LISTED: usize = 20;
/// Queries that are explained.
const QUERIES_MAX: usize = 200;

/// The format of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckOutput {
    /// For people.
    #[value(alias = "table")]
    Text,
    /// One JSON object.
    Json,
    /// JUnit XML, which most continuous integration shows.
    Junit,
}

#[derive(Args)]
pub(crate) struct CheckArguments {
    /// The rules, in TOML.
    #[arg(long, short, value_name = "FILE")]
    rules: PathBuf,

    /// A recording by `orrery record`, or with --data also a file of operations with rates. With --container, the
    /// server's own recording is the default.
    #[arg(long, short, value_name = "FILE")]
    workload: Option<PathBuf>,

    /// Forecast the workload on these items: JSON lines, plain or gzip.
    #[arg(long, value_name = "FILE", requires_all = ["partition_key", "workload"], conflicts_with_all = ["database", "container"])]
    data: Option<PathBuf>,

    /// The key to forecast for: a path, two or three separated by commas, or a synthetic key definition in JSON.
    #[arg(long, value_name = "KEY", requires = "data")]
    partition_key: Option<String>,

    /// Provisioned request units per second of the forecast. [default: the workload's, or 10000]
    #[arg(long, value_name = "NUMBER", requires = "data")]
    throughput: Option<u32>,

    /// The total number of items, if --data is a sample.
    #[arg(long, value_name = "NUMBER", requires = "data")]
    items_total: Option<f64>,

    /// The database of a container on a running server.
    #[arg(long, short, value_name = "ID", env = "ORRERY_DATABASE", requires = "container")]
    database: Option<String>,

    /// The container, whose queries are explained and whose keys are measured.
    #[arg(long, short, value_name = "ID", env = "ORRERY_CONTAINER", requires = "database")]
    container: Option<String>,

    /// Output format.
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t = CheckOutput::Text)]
    output: CheckOutput,

    #[command(flatten)]
    server: ServerArguments,
}

pub(super) fn run(arguments: &CheckArguments, output: &mut impl Write) -> Result<(), Failure> {
    let rules = read_text(&arguments.rules, RULES_BYTES_MAX)?;
    let name = arguments.rules.display();
    let rules =
        Rules::parse(&rules).map_err(|reason| Failure::usage(format!("the rules in {name}: {reason}")))?;
    let workload = arguments.workload.as_deref();
    let facts = match (&arguments.data, &arguments.database, &arguments.container) {
        (Some(data), ..) => forecast(arguments, data)?,
        (None, Some(database), Some(container)) => of_server(arguments, database, container)?,
        _ => match workload {
            Some(workload) => recorded(&read_text(workload, WORKLOAD_BYTES_MAX)?)?,
            None => {
                return Err(Failure::usage(
                    "nothing to check: pass --workload, or --database and --container",
                ));
            }
        },
    };
    let cases = guard::check(&rules, &facts);
    let text = match arguments.output {
        CheckOutput::Text => guard::text(&facts, &cases),
        CheckOutput::Json => guard::json(&facts, &cases).to_string() + "\n",
        CheckOutput::Junit => guard::junit(&cases),
    };
    print(output, &text)?;
    // The cases have just been printed.
    if guard::failures(&cases) > 0 { Err(Failure::already_reported()) } else { Ok(()) }
}

fn recorded(text: &str) -> Result<Facts, Failure> {
    guard_facts::of_recording(text).map_err(Failure::usage)
}

/// The workload as forecast for one key.
fn forecast(arguments: &CheckArguments, data: &Path) -> Result<Facts, Failure> {
    let workload =
        arguments.workload.as_deref().map(|path| read_text(path, WORKLOAD_BYTES_MAX)).transpose()?;
    let config = Config {
        limits: Limits { throughput: arguments.throughput.unwrap_or(10_000).max(1), ..Limits::default() },
        throughput_is_given: arguments.throughput.is_some(),
        candidates: arguments.partition_key.iter().cloned().collect(),
        only_given: true,
        items_total: arguments.items_total,
        ..Config::default()
    };
    let mut advisor = Advisor::new(config, workload.as_deref()).map_err(refused)?;
    read_lines(data, None, &mut [&mut advisor])?;
    Ok(guard_facts::of_report(&advisor.finish().map_err(refused)?))
}

/// The workload as a running server executes it: its recording, explanations of its queries, and the sizes of keys.
#[expect(clippy::cast_precision_loss, reason = "a count of partitions")]
fn of_server(arguments: &CheckArguments, database: &str, container: &str) -> Result<Facts, Failure> {
    let client = arguments.server.connect()?;
    let place = container_query(database, container);
    let text = if let Some(path) = &arguments.workload {
        read_text(path, WORKLOAD_BYTES_MAX)?
    } else {
        let request = Request::get("/_orrery/recordings/download").with_query(&place);
        let answer = client.send_blocking(&SystemEnv, &request)?.accepted()?;
        String::from_utf8_lossy(&answer.body).into_owned()
    };
    let mut facts = recorded(&text)?;
    facts.source = format!("{}, explained on {database}/{container}", facts.source);
    // Facts name an operation by its query; the recording has its parameters and key.
    let mut queries: HashMap<String, Value> = HashMap::new();
    for line in text.lines().filter_map(|line| value::parse(line.as_bytes()).ok()) {
        if let Some(query) = line.get("query").and_then(Value::as_str) {
            queries.entry(query.to_owned()).or_insert_with(|| line.clone());
        }
    }
    // A query that several requests share is explained once, with the parameters of the first.
    let explained = facts.operations.iter_mut().filter(|own| queries.contains_key(&own.name));
    for own in explained.take(QUERIES_MAX) {
        let line = &queries[&own.name];
        let mut body = Object::new();
        body.set("database", Value::from(database));
        body.set("container", Value::from(container));
        body.set("query", Value::from(own.name.as_str()));
        body.set("parameters", line.get("parameters").cloned().unwrap_or_else(|| Vec::new().into()));
        if let Some(key) = line.get("key") {
            body.set("partitionKey", key.clone());
        }
        let said = arguments.server.ask("/_orrery/explain", body)?;
        let access = said.get("access").and_then(Value::as_str).unwrap_or_default();
        // All items of one key are not a scan.
        let is_everywhere = said.get("routedBy").and_then(Value::as_str) == Some("everywhere");
        let is_scan = access == "all items" && is_everywhere && line.get("key").is_none();
        own.scan = Some(is_scan.then(|| "no condition uses the index".to_owned()));
        let number = |name: &str| said.get(name).and_then(Value::as_number).map(Number::as_f64);
        // The charge of a whole query, where the recording has only a part of it.
        let is_complete = said.get("isComplete").and_then(Value::as_bool) == Some(true);
        if own.charge.is_none() && is_complete {
            own.charge = number("charge");
        }
        if own.partitions.is_none() {
            own.partitions = if is_everywhere && line.get("key").is_none() {
                number("partitions")
            } else {
                said.get("partitionsVisited").and_then(Value::as_array).map(|list| list.len() as f64)
            };
        }
    }
    // As they are now: a recording does not have them.
    facts.keys = Some(largest_keys(&arguments.server, &place)?);
    Ok(facts)
}

/// The largest logical partitions of a container, by the server's own counters.
fn largest_keys(server: &ServerArguments, place: &str) -> Result<Vec<(String, f64)>, Failure> {
    let mut largest: Vec<(String, f64)> = Vec::new();
    let mut continuation = String::new();
    loop {
        let query = format!("{place}&pageSize={PAGE_KEYS}&continuation={continuation}");
        let page = server.get("/_orrery/partitions/keys", Some(&query))?;
        for key in page.get("keys").and_then(Value::as_array).unwrap_or(&[]) {
            let name = key.get("partitionKey").and_then(Value::as_str).unwrap_or_default();
            let bytes = key.get("bytes").and_then(Value::as_number).map_or(0.0, Number::as_f64);
            largest.push((name.to_owned(), bytes));
        }
        // Only the largest stay, so that memory does not grow with the container.
        largest.sort_by(|a, b| b.1.total_cmp(&a.1));
        largest.truncate(KEYS_LISTED);
        match page.get("continuation").and_then(Value::as_str) {
            Some(next) => next.clone_into(&mut continuation),
            None => return Ok(largest),
        }
    }
}
