//! `orrery query explain`: how a running server executes a query.

use std::io::Write;

use clap::Args;
use orrery_model::{Value, value};

use crate::client::{ContainerArguments, ServerArguments};
use crate::failure::Failure;
use crate::io::print;

#[derive(Args)]
pub(crate) struct ExplainArguments {
    /// The query.
    query: String,

    #[command(flatten)]
    container: ContainerArguments,

    /// A parameter of the query, as @NAME=JSON. Can be repeated.
    #[arg(long, short, value_name = "@NAME=JSON")]
    parameter: Vec<String>,

    /// Restrict the query to this partition key, a JSON array.
    #[arg(long, value_name = "JSON")]
    partition_key: Option<String>,

    #[command(flatten)]
    server: ServerArguments,
}

pub(super) fn run(arguments: &ExplainArguments, output: &mut impl Write) -> Result<(), Failure> {
    let answer = arguments.server.post("/_orrery/explain", request(arguments)?)?;
    print(output, &arguments.server.output.render(&answer, || describe(&answer)))
}

fn request(arguments: &ExplainArguments) -> Result<Value, Failure> {
    let json = |name: &str, text: &str| {
        value::parse(text.as_bytes())
            .map_err(|error| Failure::usage(format!("{name} is not valid JSON: {error}")))
    };
    let mut parameters = Vec::new();
    for pair in &arguments.parameter {
        let (name, text) = pair
            .split_once('=')
            .filter(|(name, _)| name.starts_with('@'))
            .ok_or_else(|| Failure::usage(format!("a parameter must be @NAME=JSON, but got `{pair}`")))?;
        let mut parameter = orrery_model::Object::new();
        parameter.set("name", name.into());
        parameter.set("value", json(name, text)?);
        parameters.push(Value::from(parameter));
    }
    let mut body = arguments.container.body();
    body.set("query", arguments.query.as_str().into());
    body.set("parameters", parameters.into());
    if let Some(key) = &arguments.partition_key {
        body.set("partitionKey", json("the partition key", key)?);
    }
    Ok(body.into())
}

/// The explanation as text.
fn describe(answer: &Value) -> String {
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "unknown".to_owned(),
        Some(Value::String(text)) => text.to_string(),
        Some(value) => value.to_json(),
    };
    let rows = |name: &str| text(answer.get("rows").and_then(|rows| rows.get(name)));
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
        lines.push("More pages follow; these figures are for the first.".to_owned());
    }
    lines.join("\n") + "\n"
}
