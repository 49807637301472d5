//! `orrery partitions`: inspects, splits and merges the physical partitions of a running server.

use std::fmt::Write as _;
use std::io::Write;

use clap::Subcommand;
use orrery_env::SystemEnv;
use orrery_gateway::auth::print_date;
use orrery_model::{Object, Value};

use crate::client::{
    ContainerArguments, ContainerOnServer, Remote, Request, ServerArguments, accepted_json, container_query,
};
use crate::failure::Failure;
use crate::io::rows::{RowsArguments, RowsFormat, csv, json_lines, table as rows_table, terminal_width};
use crate::io::{plain, print};

#[derive(Subcommand)]
pub(crate) enum PartitionsCommand {
    /// List the partitions of all containers, or of one: ranges, sizes, throughput and load.
    List {
        /// The database.
        #[arg(long, short, value_name = "ID", env = "ORRERY_DATABASE", requires = "container")]
        database: Option<String>,

        /// The container.
        #[arg(long, short, value_name = "ID", env = "ORRERY_CONTAINER", requires = "database")]
        container: Option<String>,

        #[command(flatten)]
        remote: Remote,
    },
    /// Show a container's partitions with their hottest and largest keys, and its last throttled requests.
    Show(ContainerOnServer),
    /// List every logical partition with its exact size, and its request units and throttled requests of the last
    /// minutes.
    ///
    /// A table shows the 100 busiest and largest; CSV and JSON lines list all of them in the order of the hashes.
    Keys {
        #[command(flatten)]
        container: ContainerArguments,

        /// How many minutes of usage to add up, at most 5.
        #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=5))]
        minutes: u8,

        #[command(flatten)]
        remote: Remote,
    },
    /// Split a partition in the middle of its range of hashes, or of its data, online.
    Split {
        /// The partition's number.
        partition: u32,

        #[command(flatten)]
        container: ContainerArguments,

        #[command(flatten)]
        remote: Remote,
    },
    /// Merge two adjacent partitions, online.
    Merge {
        /// The partitions' numbers.
        #[arg(num_args = 2, value_names = ["FIRST", "SECOND"])]
        partitions: Vec<u32>,

        #[command(flatten)]
        container: ContainerArguments,

        #[command(flatten)]
        remote: Remote,
    },
}

pub(super) fn run(command: &PartitionsCommand, output: &mut impl Write) -> Result<(), Failure> {
    let text = match command {
        PartitionsCommand::List { database, container, remote: Remote { server, rows } } => {
            let query = database.as_deref().zip(container.as_deref());
            let query = query.map(|(database, container)| container_query(database, container));
            let views = server.get("/_orrery/partitions", query.as_deref())?;
            rows.render_rows(
                &views,
                || partition_rows(&views),
                || match views.as_array().unwrap_or(&[]) {
                    [] => "There are no containers.\n".to_owned(),
                    views => views.iter().map(table).collect(),
                },
            )
        }
        PartitionsCommand::Show(ContainerOnServer { container, remote: Remote { server, rows } }) => {
            show(container, server, *rows)?
        }
        PartitionsCommand::Keys { container, minutes, remote: Remote { server, rows } } => {
            return list_keys(container, *minutes, server, *rows, output);
        }
        PartitionsCommand::Split { partition, container, remote: Remote { server, rows } } => {
            let mut body = container.body();
            body.set("partition", Value::from(partition.to_string()));
            let answer = server.change("/_orrery/partitions/split", body)?;
            rows.render(&answer, || {
                let children = answer.get("children").and_then(Value::as_array).unwrap_or(&[]);
                let children: Vec<String> = children.iter().map(plain).collect();
                format!("Split partition {partition} into {}.\n", children.join(" and "))
            })
        }
        PartitionsCommand::Merge { partitions, container, remote: Remote { server, rows } } => {
            let mut body = container.body();
            let ids = partitions.iter().map(|partition| Value::from(partition.to_string()));
            body.set("partitions", ids.collect::<Vec<_>>().into());
            let answer = server.change("/_orrery/partitions/merge", body)?;
            rows.render(&answer, || {
                let ids: Vec<String> = partitions.iter().map(u32::to_string).collect();
                let child = answer.get("child").map(plain).unwrap_or_default();
                format!("Merged partitions {} into {child}.\n", ids.join(" and "))
            })
        }
    };
    print(output, &text)
}

/// One container in detail, joined with its throttled requests, which are a separate response.
fn show(
    container: &ContainerArguments,
    server: &ServerArguments,
    rows: RowsArguments,
) -> Result<String, Failure> {
    let views = server.get("/_orrery/partitions", Some(&container.query()))?;
    let throttles = server.get("/_orrery/throttles", None)?;
    let view = views.as_array().and_then(|views| views.first()).cloned().unwrap_or(Value::Null);
    // The throttled requests of all containers come together.
    let path = view.get("container").cloned();
    let throttles: Vec<Value> = throttles
        .as_array()
        .unwrap_or(&[])
        .iter()
        .filter(|event| event.get("container") == path.as_ref())
        .cloned()
        .collect();
    let mut whole = view.clone();
    if let Some(object) = whole.as_object_mut() {
        object.set("throttles", throttles.clone().into());
    }
    Ok(rows.render_rows(&whole, || partition_rows(&views), || {
        let mut text = table(&view);
        let partitions = view.get("partitions").and_then(Value::as_array).unwrap_or(&[]);
        for partition in partitions {
            let id = partition.get("id").map(plain).unwrap_or_default();
            for (title, name, figure, unit) in [
                ("Hottest", "hottestKeys", "requestUnits", "RU"),
                ("Largest", "largestKeys", "bytes", "bytes"),
            ] {
                let keys = partition.get(name).and_then(Value::as_array).unwrap_or(&[]);
                if keys.is_empty() {
                    continue;
                }
                line(&mut text, format_args!("{title} keys of partition {id}:"));
                for key in keys {
                    let member = |name: &str| key.get(name).map(plain).unwrap_or_default();
                    line(
                        &mut text,
                        format_args!("  {:>12} {unit}  {}", member(figure), member("partitionKey")),
                    );
                }
            }
        }
        if !throttles.is_empty() {
            line(&mut text, format_args!("Last throttled requests:"));
        }
        for event in throttles.iter().take(10) {
            let member = |name: &str| event.get(name).map(plain).unwrap_or_default();
            line(
                &mut text,
                format_args!(
                    "  {}: partition {}, key {} with {} % of its load, {}; {} RU/s provisioned, retry after {} ms",
                    print_date(event.get("atMs").and_then(Value::as_i64).unwrap_or(0).div_euclid(1000)),
                    member("partition"),
                    event.get("partitionKey").map_or_else(|| "unknown".to_owned(), plain),
                    member("keySharePercent"),
                    member("cause"),
                    member("budgetPerSecond"),
                    member("retryAfterMs"),
                ),
            );
        }
        text
    }))
}

/// Keys of a page.
const PAGE_KEYS: usize = 5000;
/// Keys of the table.
const TABLE_KEYS: usize = 100;

/// Every logical partition. Formats for programs are written page by page.
fn list_keys(
    container: &ContainerArguments,
    minutes: u8,
    server: &ServerArguments,
    rows: RowsArguments,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let client = server.connect()?;
    let mut continuation: Option<String> = None;
    let (mut all, mut others, mut count) = (Vec::new(), Value::Null, 0);
    loop {
        let mut query = format!("{}&pageSize={PAGE_KEYS}&minutes={minutes}", container.query());
        if let Some(continuation) = &continuation {
            query.push_str("&continuation=");
            query.push_str(continuation);
        }
        let request = Request::get("/_orrery/partitions/keys").with_query(&query);
        let page = accepted_json(client.send_blocking(&SystemEnv, &request)?)?;
        let keys = page.get("keys").and_then(Value::as_array).unwrap_or(&[]);
        let is_first = continuation.is_none();
        match rows.output {
            RowsFormat::Csv => {
                let text = csv(keys);
                // Each page has a header line; only the first one is printed.
                let header = text.find('\n').map_or(0, |end| end + 1);
                print(output, if is_first { &text } else { &text[header..] })?;
            }
            RowsFormat::Jsonl => print(output, &json_lines(keys))?,
            // One document, which cannot be printed before its end.
            RowsFormat::Json => all.extend_from_slice(keys),
            RowsFormat::Table => {
                all.extend_from_slice(keys);
                all.sort_by(|a, b| {
                    let figure = |key: &Value, name| {
                        key.get(name).and_then(Value::as_number).map_or(0.0, orrery_model::Number::as_f64)
                    };
                    let by = |name| figure(b, name).total_cmp(&figure(a, name));
                    by("requestUnits").then_with(|| by("bytes"))
                });
                // Only what the table shows stays in memory.
                all.truncate(TABLE_KEYS);
            }
        }
        count += keys.len();
        if is_first {
            others = page.get("others").cloned().unwrap_or_default();
        }
        continuation = page.get("continuation").and_then(Value::as_str).map(str::to_owned);
        if continuation.is_none() {
            break;
        }
    }
    let text = match rows.output {
        RowsFormat::Csv | RowsFormat::Jsonl => return Ok(()),
        RowsFormat::Json => {
            let mut whole = Object::new();
            whole.set("minutes", Value::from(i64::from(minutes)));
            whole.set("keys", all.into());
            whole.set("others", others);
            Value::from(whole).to_json() + "\n"
        }
        RowsFormat::Table => {
            let mut text = rows_table(&all, terminal_width());
            let noun = if count == 1 { "logical partition" } else { "logical partitions" };
            if count > all.len() {
                line(&mut text, format_args!("The {} busiest of {count} {noun}.", all.len()));
            } else {
                line(&mut text, format_args!("{count} {noun}."));
            }
            for other in others.as_array().unwrap_or(&[]) {
                let member = |name: &str| other.get(name).map(plain).unwrap_or_default();
                line(
                    &mut text,
                    format_args!(
                        "Partition {}: another {} RU and {} throttled requests, of queries over several keys or of keys that are not tracked.",
                        member("partition"),
                        member("requestUnits"),
                        member("throttled")
                    ),
                );
            }
            text
        }
    };
    print(output, &text)
}

/// A row for each partition, with the container's path.
fn partition_rows(views: &Value) -> Vec<Value> {
    let mut rows = Vec::new();
    for view in views.as_array().unwrap_or(&[]) {
        for partition in view.get("partitions").and_then(Value::as_array).unwrap_or(&[]) {
            let mut row = Object::new();
            row.set("container", view.get("container").cloned().unwrap_or_default());
            for (name, value) in partition.as_object().into_iter().flat_map(Object::iter) {
                // The hottest and largest keys are lists, not columns.
                if !matches!(value, Value::Array(_)) {
                    row.set(name, value.clone());
                }
            }
            rows.push(row.into());
        }
    }
    rows
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a String accepts every write");
    text.push('\n');
}

/// The partitions of one container as a table.
pub(super) fn table(view: &Value) -> String {
    const COLUMNS: [(&str, &str); 8] = [
        ("PARTITION", "id"),
        ("FROM", "min"),
        ("TO", "max"),
        ("ITEMS", "items"),
        ("BYTES", "bytes"),
        ("RU/S", "requestUnitsPerSecond"),
        ("USED", "usedPerSecondLastMinute"),
        ("THROTTLED", "throttled"),
    ];
    let partitions = view.get("partitions").and_then(Value::as_array).unwrap_or(&[]);
    let mut rows: Vec<Vec<String>> = vec![COLUMNS.iter().map(|(title, _)| (*title).to_owned()).collect()];
    for partition in partitions {
        let cell = |name: &str| match partition.get(name) {
            Some(value @ Value::Number(_)) if name == "usedPerSecondLastMinute" => {
                format!("{:.1}", value.to_json().parse::<f64>().unwrap_or(0.0))
            }
            // Bounds of hierarchical keys are long; their prefixes are enough to distinguish them.
            Some(Value::String(text)) if text.len() > 34 => format!("{}…", &text[..32]),
            value => value.map(plain).unwrap_or_default(),
        };
        rows.push(COLUMNS.iter().map(|(_, name)| cell(name)).collect());
    }
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    let changing = match view.get("partitionsChanging").and_then(Value::as_bool) {
        Some(true) => ", split or merge in progress",
        _ => "",
    };
    let throughput = match view.get("throughput") {
        Some(throughput) => format!("{} RU/s", throughput.to_json()),
        None => "shared throughput".to_owned(),
    };
    let path = view.get("container").map(plain).unwrap_or_default();
    line(&mut text, format_args!("{path} ({throughput}{changing})"));
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            // The first columns are the number and the bounds, which are text.
            let numeric = column >= 3;
            let padding = " ".repeat(width - cell.chars().count());
            if numeric { format!("{padding}{cell}") } else { format!("{cell}{padding}") }
        });
        let row = cells.collect::<Vec<_>>().join("  ");
        line(&mut text, format_args!("  {}", row.trim_end()));
    }
    text
}
