//! `orrery query explain`: how a running server executes a query.

use std::io::Write;

use clap::Args;
use orrery_model::{Object, Value, value};

use super::QueryScope;
use crate::client::{QueryText, Remote};
use crate::failure::Failure;
use crate::io::{count, print};

#[derive(Args)]
pub(crate) struct ExplainArguments {
    /// The query.
    query: String,

    #[command(flatten)]
    over: QueryScope,

    #[command(flatten)]
    remote: Remote,
}

pub(super) fn run(arguments: &ExplainArguments, output: &mut impl Write) -> Result<(), Failure> {
    let (over, query) = (&arguments.over, arguments.over.query(&arguments.query)?);
    let body = explain_request(over.container.body(), &query, over.key().as_deref())?;
    let answer = arguments.remote.server.ask("/_orrery/explain", body)?;
    print(output, &arguments.remote.rows.render(&answer, || describe(&answer)))
}

/// The body of a request to explain a query; `body` already names the container.
pub(in crate::commands) fn explain_request(
    mut body: Object,
    query: &QueryText,
    partition_key: Option<&str>,
) -> Result<Value, Failure> {
    body.set("query", query.text.as_str().into());
    body.set("parameters", query.parameters_value());
    if let Some(key) = partition_key {
        let key = value::parse(key.as_bytes())
            .map_err(|error| Failure::usage(format!("the partition key is not valid JSON: {error}")))?;
        body.set("partitionKey", key);
    }
    Ok(body.into())
}

/// The explanation as text.
pub(in crate::commands) fn describe(answer: &Value) -> String {
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "unknown".to_owned(),
        Some(Value::String(text)) => text.to_string(),
        Some(value) => value.to_json(),
    };
    let rows = |name: &str| answer.get("rows").and_then(|rows| rows.get(name));
    let whole = |value: &Value| value.as_i64().and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    let figure = |name: &str| rows(name).map_or(0, whole);
    let estimate = match rows("estimated") {
        None | Some(Value::Null) => String::new(),
        estimated => format!(", {} estimated", text(estimated)),
    };
    let visited = answer.get("partitionsVisited").and_then(Value::as_array).unwrap_or(&[]);
    let by = match answer.get("routedBy").and_then(Value::as_str) {
        Some("syntheticKey") => ", routed by the synthetic key",
        _ => "",
    };
    let keys = match answer.get("logicalPartitions") {
        None | Some(Value::Null) => String::new(),
        Some(number) if number.as_i64() == Some(1) => format!(", in 1 logical partition{by}"),
        number => format!(", in {} logical partitions{by}", text(number)),
    };
    let mut lines = vec![
        format!("Access      {}", text(answer.get("access"))),
        format!("Partitions  {} of {}{keys}", visited.len(), text(answer.get("partitions"))),
        format!("Rows        {} returned{}", figure("returned"), estimate),
        format!(
            "Read        {} ({}), {}",
            count(figure("itemsRead"), "item"),
            count(figure("itemBytesRead"), "byte"),
            match figure("indexEntriesRead") {
                1 => "1 index entry".to_owned(),
                entries => format!("{entries} index entries"),
            }
        ),
        format!("Charge      {} RU", text(answer.get("charge"))),
    ];
    let considered = answer.get("considered").and_then(Value::as_array).unwrap_or(&[]);
    // The only way, not even counted, stands above already.
    let is_choice = |considered: &[Value]| match considered {
        [only] => only.get("estimatedRows").is_some(),
        _ => true,
    };
    for considered in considered.iter().filter(|_| is_choice(considered)) {
        let chosen = considered.get("chosen").and_then(Value::as_bool) == Some(true);
        let more = considered.get("isLowerBound").and_then(Value::as_bool) == Some(true);
        let estimate = match considered.get("estimatedRows") {
            None => "not counted".to_owned(),
            Some(rows) => {
                format!("{} {}", if more { "at least" } else { "about" }, count(whole(rows), "row"))
            }
        };
        let mark = if chosen { "*" } else { " " };
        lines.push(format!("  {mark} {}: {estimate}", text(considered.get("access"))));
    }
    if answer.get("isComplete").and_then(Value::as_bool) == Some(false) {
        lines.push("More pages follow; these figures are for the first.".to_owned());
    }
    lines.join("\n") + "\n"
}
