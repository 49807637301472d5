//! `orrery faults`: fault injection rules of a running server, for testing applications.

use std::io::Write;

use clap::{Args, Subcommand};
use orrery_env::SystemEnv;
use orrery_model::{Object, Value};

use crate::client::{Client, Remote, Request, accepted_json, block_on, path};
use crate::failure::Failure;
use crate::io::{count, plain, print};

#[derive(Subcommand)]
pub(crate) enum FaultsCommand {
    /// List the rules and how often each has matched.
    List {
        #[command(flatten)]
        remote: Remote,
    },
    /// Add a rule.
    Add {
        #[command(flatten)]
        rule: Box<FaultArguments>,

        #[command(flatten)]
        remote: Remote,
    },
    /// Remove one rule or all.
    Remove {
        /// The rule's id.
        #[arg(required_unless_present = "all")]
        id: Option<String>,

        /// Remove all rules.
        #[arg(long, conflicts_with = "id")]
        all: bool,

        #[command(flatten)]
        remote: Remote,
    },
}

/// Which requests a rule matches, and what it does to them.
#[derive(Args)]
pub(crate) struct FaultArguments {
    /// Respond with this status: 408, 410, 429, 449, 500 or 503.
    #[arg(long, value_name = "STATUS", conflicts_with = "drop", required_unless_present_any = ["latency_ms", "drop"])]
    status: Option<u16>,

    /// The sub-status of the response, such as 1007 with 410. [default: the usual one for the status]
    #[arg(long, value_name = "NUMBER", requires = "status")]
    substatus: Option<u16>,

    /// Retry-after delay to return. [default: 100 with 429]
    #[arg(long, value_name = "MS", requires = "status")]
    retry_after_ms: Option<u32>,

    /// Delay the response by this long.
    #[arg(long, value_name = "MS")]
    latency_ms: Option<u64>,

    /// Close the connection instead of responding.
    #[arg(long)]
    drop: bool,

    /// Execute the request before failing it, so that the client cannot tell whether it happened.
    #[arg(long)]
    after_work: bool,

    /// Only these operations: create, upsert, read, list, replace, patch, delete, query, plan_query, batch, execute.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    operation: Vec<String>,

    /// Only this kind of resource, or any. [default: item]
    #[arg(long, value_name = "KIND")]
    resource: Option<String>,

    /// Only in this database.
    #[arg(long, short, value_name = "ID")]
    database: Option<String>,

    /// Only in this container.
    #[arg(long, short, value_name = "ID")]
    container: Option<String>,

    /// Only requests to this physical partition.
    #[arg(long, value_name = "NUMBER")]
    partition: Option<u32>,

    /// Match this percentage of requests.
    #[arg(long, value_name = "NUMBER")]
    percentage: Option<f64>,

    /// Stop after this many matches.
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,

    /// Stop after this long.
    #[arg(long, value_name = "MS")]
    duration_ms: Option<u64>,

    /// Seed of the percentage: the same seed matches the same requests in every run.
    #[arg(long, value_name = "NUMBER", requires = "percentage")]
    seed: Option<u64>,

    /// The rule's id. [default: generated]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

const PATH: &str = "/_orrery/faults";

pub(super) fn run(command: &FaultsCommand, output: &mut impl Write) -> Result<(), Failure> {
    let text = match command {
        FaultsCommand::List { remote: Remote { server, rows } } => {
            let answer = send(&server.connect()?, &Request::get(PATH))?;
            let rules = || answer.get("rules").and_then(Value::as_array).unwrap_or(&[]).to_vec();
            rows.render_rows(&answer, rules, || {
                let rules = answer.get("rules").and_then(Value::as_array).unwrap_or(&[]);
                match rules {
                    [] => "No rules.\n".to_owned(),
                    rules => rules.iter().map(|rule| describe(rule) + "\n").collect(),
                }
            })
        }
        FaultsCommand::Add { rule, remote: Remote { server, rows } } => {
            let answer = send(&server.connect_to_change()?, &Request::post(PATH, body(rule).to_json()))?;
            rows.render(&answer, || describe(&answer) + "\n")
        }
        FaultsCommand::Remove { id, all: _, remote: Remote { server, rows } } => {
            let target = match id {
                // `path` also escapes the underscore of `_orrery`, which the server expects as it is.
                Some(id) => path(&["_orrery", "faults", id]).replace("%5F", "_"),
                None => PATH.to_owned(),
            };
            let answer = send(&server.connect_to_change()?, &Request::delete(target))?;
            rows.render(&answer, || {
                let removed = answer.get("removed").and_then(Value::as_i64).unwrap_or(0);
                format!("Removed {}.\n", count(u64::try_from(removed).unwrap_or(0), "rule"))
            })
        }
    };
    print(output, &text)
}

fn send(client: &Client, request: &Request) -> Result<Value, Failure> {
    accepted_json(block_on(client.send(&SystemEnv, request))?)
}

fn body(rule: &FaultArguments) -> Value {
    let mut body = Object::new();
    let texts = [
        ("id", &rule.id),
        ("resource", &rule.resource),
        ("database", &rule.database),
        ("container", &rule.container),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            body.set(name, Value::from(text.as_str()));
        }
    }
    let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
    let numbers = [
        ("status", rule.status.map(u64::from)),
        ("substatus", rule.substatus.map(u64::from)),
        ("retryAfterMs", rule.retry_after_ms.map(u64::from)),
        ("latencyMs", rule.latency_ms),
        ("count", rule.count),
        ("durationMs", rule.duration_ms),
        ("seed", rule.seed),
    ];
    for (name, figure) in numbers {
        if let Some(figure) = figure {
            body.set(name, number(figure));
        }
    }
    if let Some(percentage) = rule.percentage {
        body.set("percentage", Value::from(percentage));
    }
    if let Some(partition) = rule.partition {
        body.set("partition", Value::from(partition.to_string()));
    }
    if !rule.operation.is_empty() {
        let operations = rule.operation.iter().map(|name| Value::from(name.as_str()));
        body.set("operations", operations.collect::<Vec<_>>().into());
    }
    for (name, flag) in [("dropConnection", rule.drop), ("afterWork", rule.after_work)] {
        if flag {
            body.set(name, Value::from(true));
        }
    }
    body.into()
}

/// A rule on one line.
fn describe(rule: &Value) -> String {
    let id = rule.get("id").map(plain).unwrap_or_default();
    let hits =
        rule.get("hits").and_then(Value::as_i64).and_then(|hits| u64::try_from(hits).ok()).unwrap_or(0);
    let state = match rule.get("active").and_then(Value::as_bool) {
        Some(false) => "expired",
        _ => "active",
    };
    let members = rule.as_object().into_iter().flat_map(Object::iter);
    // These three come first, in words.
    let rest = members.filter(|(name, _)| !["id", "hits", "active"].contains(name));
    let rest: Vec<String> = rest.map(|(name, value)| format!("{name}={}", plain(value))).collect();
    format!("{id}  {state}, {}  {}", count(hits, "hit"), rest.join(" "))
}
