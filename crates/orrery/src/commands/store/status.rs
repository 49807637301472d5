//! `orrery store init` and `orrery store status`: the tables of a store on PostgreSQL, and the health of its nodes.

use std::io::Write;

use orrery_model::{Object, Value};
use orrery_storage::{Postgres, PostgresOptions, StandbyStatus, StoreStatus};

use super::StoreArguments;
use crate::client::block_on;
use crate::failure::Failure;
use crate::io::{Output, count, print};

/// How many partitions of a node are listed by number.
const PARTITIONS_LISTED_MAX: usize = 12;

pub(super) fn initialise(arguments: &StoreArguments, output: &mut dyn Write) -> Result<(), Failure> {
    let options = parse(&arguments.store)?;
    let (before, after) = run(Postgres::initialise(&options))?;
    let text = match arguments.output {
        Output::Json => {
            let mut object = Object::new();
            object.set("store", Value::from(options.place()));
            object.set("schemaVersionBefore", Value::from(i64::from(before)));
            object.set("schemaVersion", Value::from(i64::from(after)));
            format!("{}\n", Value::Object(object).to_json())
        }
        Output::Text if before == after => {
            format!("{}: the tables are up to date, version {after}\n", options.place())
        }
        // Version 0 means that there were no tables.
        Output::Text if before == 0 => format!("{}: created the tables, version {after}\n", options.place()),
        Output::Text => {
            format!("{}: upgraded the tables from version {before} to {after}\n", options.place())
        }
    };
    print(output, &text)
}

pub(super) fn show(arguments: &StoreArguments, output: &mut dyn Write) -> Result<(), Failure> {
    let options = parse(&arguments.store)?;
    let status = run(Postgres::status(&options))?;
    let text = match arguments.output {
        Output::Json => format!("{}\n", as_json(&status).to_json()),
        Output::Text => as_text(&status),
    };
    print(output, &text)
}

fn parse(url: &str) -> Result<PostgresOptions, Failure> {
    PostgresOptions::parse(url).map_err(Failure::usage)
}

fn run<T, E: std::fmt::Display>(work: impl Future<Output = Result<T, E>>) -> Result<T, Failure> {
    block_on(async { work.await.map_err(Failure::refused) })
}

fn as_json(status: &StoreStatus) -> Value {
    let mut object = Object::new();
    object.set("store", Value::from(status.place.as_str()));
    object.set("serverVersion", Value::from(status.server_version.as_str()));
    object.set("citusVersion", status.citus_version.as_deref().map(Value::from).unwrap_or_default());
    object.set("schemaVersion", Value::from(i64::from(status.schema_version)));
    object.set("gateways", Value::from(status.gateways));
    object.set("nodes", orrery_db::store_nodes_value(&status.nodes));
    Value::Object(object)
}

fn as_text(status: &StoreStatus) -> String {
    use std::fmt::Write;
    let mut text = format!("{}\n  PostgreSQL {}", status.place, status.server_version);
    let mut add = |line: String| text.push_str(&line);
    if let Some(version) = &status.citus_version {
        add(format!(", Citus {version}"));
    }
    let gateways = u64::try_from(status.gateways).unwrap_or(0);
    match status.schema_version {
        0 => add("\n  no tables yet: create them with \"orrery store init\"\n".to_owned()),
        version => add(format!(", tables of version {version}, {} active\n", count(gateways, "gateway"))),
    }
    for node in &status.nodes {
        let numbers: Vec<String> =
            node.partitions.iter().take(PARTITIONS_LISTED_MAX).map(|id| id.0.to_string()).collect();
        let more = if node.partitions.len() > PARTITIONS_LISTED_MAX { ", …" } else { "" };
        let shards = match status.citus_version {
            Some(_) => format!(" in {}", count(node.shards as u64, "shard")),
            None => String::new(),
        };
        writeln!(
            text,
            "  {}: {}{shards} ({}{more}), {} MB of tables, {} MB of indexes",
            node.name,
            count(node.partitions.len() as u64, "partition"),
            numbers.join(", "),
            node.table_bytes >> 20,
            node.index_bytes >> 20
        )
        .expect("a String accepts every write");
        if let Some(failure) = &node.failure {
            writeln!(text, "    unreachable: {failure}").expect("a String accepts every write");
        }
        for standby in &node.standbys {
            writeln!(text, "    {}", standby_as_text(standby)).expect("a String accepts every write");
        }
    }
    text
}

fn standby_as_text(standby: &StandbyStatus) -> String {
    let Some(state) = &standby.state else {
        return "standby: no permission to read its state (grant pg_read_all_stats)".to_owned();
    };
    let mut parts = vec![format!("standby {}: {state}", standby.name)];
    parts.extend(standby.behind_bytes.map(|bytes| format!("{bytes} bytes behind")));
    parts.extend(standby.behind_ms.map(|ms| format!("{ms} ms")));
    parts.join(", ")
}
