//! `orrery faults`: rules that make requests of a running server fail, for the tests of applications.

use std::io::Write;

use http::Method;
use orrery_db::SystemEnv;
use orrery_model::{Object, Value};

use crate::cli::{FaultArguments, FaultsCommand, Output, ServerArguments};
use crate::client::{Client, Request, block_on, path};
use crate::failure::Failure;

const PATH: &str = "/_orrery/faults";

pub(crate) fn run(command: &FaultsCommand, output: &mut impl Write) -> Result<(), Failure> {
    let text = match command {
        FaultsCommand::List { server } => {
            let answer = ask(server, &Request::get(PATH))?;
            written(server, &answer, || {
                let rules = answer.get("rules").and_then(Value::as_array).unwrap_or(&[]);
                match rules {
                    [] => "There are no rules.\n".to_owned(),
                    rules => rules.iter().map(|rule| describe(rule) + "\n").collect(),
                }
            })
        }
        FaultsCommand::Add { rule, server } => {
            let answer = ask(server, &Request::post(PATH, body(rule).to_json()))?;
            written(server, &answer, || describe(&answer) + "\n")
        }
        FaultsCommand::Remove { id, all: _, server } => {
            let target = match id {
                Some(id) => path(&["_orrery", "faults", id]).replace("%5F", "_"),
                None => PATH.to_owned(),
            };
            let answer = ask(server, &Request::new(Method::DELETE, target, ""))?;
            let count = answer.get("removed").map(Value::to_json).unwrap_or_default();
            written(server, &answer, || format!("Rules removed: {count}.\n"))
        }
    };
    match output.write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::refused(format!("the output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

fn ask(server: &ServerArguments, request: &Request) -> Result<Value, Failure> {
    let client = Client::new(&server.endpoint, server.key.as_deref())?;
    let answer = block_on(client.ask(&SystemEnv, request))?.accepted()?;
    answer.json().ok_or_else(|| Failure::refused("the server's answer is no JSON"))
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

/// A rule in one line.
fn describe(rule: &Value) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_json(), str::to_owned);
    let id = rule.get("id").map(plain).unwrap_or_default();
    let hits = rule.get("hits").map(plain).unwrap_or_default();
    let state = match rule.get("active").and_then(Value::as_bool) {
        Some(false) => "over",
        _ => "active",
    };
    let members = rule.as_object().into_iter().flat_map(Object::iter);
    let rest = members.filter(|(name, _)| !["id", "hits", "active"].contains(name));
    let rest: Vec<String> = rest.map(|(name, value)| format!("{name}={}", plain(value))).collect();
    format!("{id}  {state}, {hits} hits  {}", rest.join(" "))
}

fn written(server: &ServerArguments, answer: &Value, text: impl FnOnce() -> String) -> String {
    match server.output {
        Output::Json => answer.to_json() + "\n",
        Output::Text => text(),
    }
}
