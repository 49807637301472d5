//! `orrery partitions`: the physical partitions of a running server.

use std::fmt::Write as _;
use std::io::Write;

use orrery_db::SystemEnv;
use orrery_gateway::auth::print_date;
use orrery_model::{Object, Value};

use crate::cli::{Output, PartitionsCommand, PlaceArguments, ServerArguments};
use crate::client::{Answer, Client};
use crate::failure::Failure;

pub(crate) fn run(command: &PartitionsCommand, output: &mut impl Write) -> Result<(), Failure> {
    let text = match command {
        PartitionsCommand::List { database, container, server } => {
            let query = database.as_deref().zip(container.as_deref());
            let query = query.map(|(database, container)| place_query(database, container));
            let views = get(server, "/_orrery/partitions", query.as_deref())?;
            written(server, &views, || match views.as_array().unwrap_or(&[]) {
                [] => "There are no containers.\n".to_owned(),
                views => views.iter().map(table).collect(),
            })
        }
        PartitionsCommand::Show { place, server } => show(place, server)?,
        PartitionsCommand::Split { partition, place, server } => {
            let mut body = place_body(place);
            body.set("partition", Value::from(partition.to_string()));
            let answer = post(server, "/_orrery/partitions/split", body)?;
            written(server, &answer, || {
                let children = answer.get("children").and_then(Value::as_array).unwrap_or(&[]);
                let children: Vec<String> = children.iter().map(plain).collect();
                format!("Partition {partition} was split into {}.\n", children.join(" and "))
            })
        }
        PartitionsCommand::Merge { partitions, place, server } => {
            let mut body = place_body(place);
            let ids = partitions.iter().map(|partition| Value::from(partition.to_string()));
            body.set("partitions", ids.collect::<Vec<_>>().into());
            let answer = post(server, "/_orrery/partitions/merge", body)?;
            written(server, &answer, || {
                let ids: Vec<String> = partitions.iter().map(u32::to_string).collect();
                let child = answer.get("child").map(plain).unwrap_or_default();
                format!("Partitions {} were merged into {child}.\n", ids.join(" and "))
            })
        }
    };
    match output.write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::refused(format!("the output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

fn show(place: &PlaceArguments, server: &ServerArguments) -> Result<String, Failure> {
    let query = place_query(&place.database, &place.container);
    let views = get(server, "/_orrery/partitions", Some(&query))?;
    let throttles = get(server, "/_orrery/throttles", None)?;
    let view = views.as_array().and_then(|views| views.first()).cloned().unwrap_or(Value::Null);
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
    Ok(written(server, &whole, || {
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
            line(&mut text, format_args!("The last requests that had to wait:"));
        }
        for event in throttles.iter().take(10) {
            let member = |name: &str| event.get(name).map(plain).unwrap_or_default();
            line(
                &mut text,
                format_args!(
                    "  {}: partition {}, key {} with {} % of its load, {}; {} RU/s are provisioned, it could pass after {} ms",
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

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a String accepts every write");
    text.push('\n');
}

/// The partitions of one container in columns.
fn table(view: &Value) -> String {
    const COLUMNS: [(&str, &str); 8] = [
        ("PARTITION", "id"),
        ("FROM", "min"),
        ("TO", "max"),
        ("ITEMS", "items"),
        ("BYTES", "bytes"),
        ("RU/S", "requestUnitsPerSecond"),
        ("USED", "usedPerSecondLastMinute"),
        ("WAITED", "throttled"),
    ];
    let partitions = view.get("partitions").and_then(Value::as_array).unwrap_or(&[]);
    let mut rows: Vec<Vec<String>> = vec![COLUMNS.iter().map(|(title, _)| (*title).to_owned()).collect()];
    for partition in partitions {
        let cell = |name: &str| match partition.get(name) {
            Some(value @ Value::Number(_)) if name == "usedPerSecondLastMinute" => {
                format!("{:.1}", value.to_json().parse::<f64>().unwrap_or(0.0))
            }
            // Bounds of hierarchical keys are long; their beginnings tell them apart.
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
        Some(true) => ", partitions are changing",
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
            let numeric = column >= 3;
            let padding = " ".repeat(width - cell.chars().count());
            if numeric { format!("{padding}{cell}") } else { format!("{cell}{padding}") }
        });
        let row = cells.collect::<Vec<_>>().join("  ");
        line(&mut text, format_args!("  {}", row.trim_end()));
    }
    text
}

/// A value without quotes.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_json(), str::to_owned)
}

pub(crate) fn written(server: &ServerArguments, answer: &Value, text: impl FnOnce() -> String) -> String {
    match server.output {
        Output::Json => answer.to_json() + "\n",
        Output::Text => text(),
    }
}

pub(crate) fn place_body(place: &PlaceArguments) -> Object {
    let mut body = Object::new();
    body.set("database", Value::from(place.database.as_str()));
    body.set("container", Value::from(place.container.as_str()));
    body
}

pub(crate) fn place_query(database: &str, container: &str) -> String {
    format!("database={}&container={}", escaped(database), escaped(container))
}

/// All but plain letters and digits as `%XX`.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a String accepts every write");
        }
    }
    out
}

pub(crate) fn get(server: &ServerArguments, path: &str, query: Option<&str>) -> Result<Value, Failure> {
    let client = Client::new(&server.endpoint, server.key.as_deref())?;
    answer(client.get(&SystemEnv, path, query)?)
}

pub(crate) fn post(server: &ServerArguments, path: &str, body: Object) -> Result<Value, Failure> {
    let client = Client::new(&server.endpoint, server.key.as_deref())?;
    answer(client.post(&SystemEnv, path, &Value::from(body).to_json())?)
}

fn answer((status, body): (u16, String)) -> Result<Value, Failure> {
    let answer = Answer { status, headers: http::HeaderMap::new(), body: body.into() }.accepted()?;
    answer.json().ok_or_else(|| Failure::refused("the server's answer is not JSON"))
}
