//! `orrery query explain`: how a running server runs a query.

use std::io::Write;

use orrery_db::SystemEnv;
use orrery_model::{Object, Value, value};

use crate::cli::{ExplainArguments, Output};
use crate::client::Client;
use crate::failure::Failure;

pub(crate) fn run(arguments: &ExplainArguments, output: &mut impl Write) -> Result<(), Failure> {
    let client = Client::new(&arguments.endpoint, arguments.key.as_deref())?;
    let body = request(arguments)?;
    let (status, answer) = client.post(&SystemEnv, "/_orrery/explain", &body.to_json())?;
    let answer = value::parse(answer.as_bytes()).unwrap_or_else(|_| Value::from(answer.as_str()));
    if status != 200 {
        let message = answer.get("message").and_then(Value::as_str).unwrap_or("no reason was given");
        return Err(Failure::refused(format!(
            "the server refused ({status}): {}",
            message.replace(['\r', '\n'], " ")
        )));
    }
    let text = match arguments.output {
        Output::Json => answer.to_json() + "\n",
        Output::Text => describe(&answer),
    };
    match output.write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::refused(format!("the output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

fn request(arguments: &ExplainArguments) -> Result<Value, Failure> {
    let json = |name: &str, text: &str| {
        value::parse(text.as_bytes()).map_err(|error| Failure::usage(format!("{name} is not JSON: {error}")))
    };
    let mut parameters = Vec::new();
    for pair in &arguments.parameter {
        let (name, text) = pair
            .split_once('=')
            .filter(|(name, _)| name.starts_with('@'))
            .ok_or_else(|| Failure::usage(format!("a parameter is @NAME=JSON, not {pair}")))?;
        let mut parameter = Object::new();
        parameter.set("name", name.into());
        parameter.set("value", json(name, text)?);
        parameters.push(Value::from(parameter));
    }
    let mut body = Object::new();
    body.set("database", arguments.database.as_str().into());
    body.set("container", arguments.container.as_str().into());
    body.set("query", arguments.query.as_str().into());
    body.set("parameters", parameters.into());
    if let Some(key) = &arguments.partition_key {
        body.set("partitionKey", json("the partition key", key)?);
    }
    Ok(body.into())
}

/// The explanation in lines for people.
fn describe(answer: &Value) -> String {
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "unknown".to_owned(),
        Some(Value::String(text)) => text.to_string(),
        Some(value) => value.to_json(),
    };
    let rows = |name: &str| text(answer.get("rows").and_then(|rows| rows.get(name)));
    let visited = answer.get("partitionsVisited").and_then(Value::as_array).unwrap_or(&[]);
    let by = match answer.get("routedBy").and_then(Value::as_str) {
        Some("syntheticKey") => ", found by the container's synthetic key",
        _ => "",
    };
    let keys = match answer.get("logicalPartitions") {
        None | Some(Value::Null) => String::new(),
        count => format!(", in {} logical partitions{by}", text(count)),
    };
    let mut lines = vec![
        format!("Access      {}", text(answer.get("access"))),
        format!("Partitions  {} of {}{keys}", visited.len(), text(answer.get("partitions"))),
        format!("Rows        {} returned, {} estimated", rows("returned"), rows("estimated")),
        format!(
            "Read        {} items ({} bytes), {} index entries",
            rows("itemsRead"),
            rows("itemBytesRead"),
            rows("indexEntriesRead")
        ),
        format!("Charge      {} RU", text(answer.get("charge"))),
    ];
    for considered in answer.get("considered").and_then(Value::as_array).unwrap_or(&[]) {
        let chosen = considered.get("chosen").and_then(Value::as_bool) == Some(true);
        let more = considered.get("isLowerBound").and_then(Value::as_bool) == Some(true);
        let estimate = match considered.get("estimatedRows") {
            None => "not counted".to_owned(),
            Some(rows) => format!("{}{} rows", if more { "at least " } else { "about " }, rows.to_json()),
        };
        let mark = if chosen { "*" } else { " " };
        lines.push(format!("  {mark} {}: {estimate}", text(considered.get("access"))));
    }
    if answer.get("isComplete").and_then(Value::as_bool) == Some(false) {
        lines.push("This is the first page; the query goes on.".to_owned());
    }
    lines.join("\n") + "\n"
}
