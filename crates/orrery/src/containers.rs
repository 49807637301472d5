//! `orrery containers`: synthetic keys of containers on a running server, and other keys for them.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use orrery_model::{Value, value};

use crate::cli::{ContainersCommand, Output, RepartitionArguments, ServerArguments, SyntheticCommand};
use crate::failure::Failure;
use crate::partitions::{get, place_body, place_query, plain, post, written};

/// How often a repartitioning is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(crate) fn run(command: &ContainersCommand, output: &mut impl Write) -> Result<(), Failure> {
    let text = match command {
        ContainersCommand::Synthetic { command } => synthetic(command)?,
        ContainersCommand::Repartition(arguments) => repartition(arguments)?,
    };
    match output.write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::refused(format!("the output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

fn synthetic(command: &SyntheticCommand) -> Result<String, Failure> {
    Ok(match command {
        SyntheticCommand::Set { definition, place, server } => {
            let mut body = place_body(place);
            body.set("definition", json_argument(definition)?);
            let answer = post(server, "/_orrery/synthetic", body)?;
            written(server, &answer, || {
                format!("{} makes its partition keys from now on.\n", place.container)
            })
        }
        SyntheticCommand::Show { place, server } => {
            let query = place_query(&place.database, &place.container);
            let answer = get(server, "/_orrery/synthetic", Some(&query))?;
            written(server, &answer, || {
                let definition = answer.get("definition").map(Value::to_json).unwrap_or_default();
                let routes = match answer.get("routesQueries").and_then(Value::as_bool) {
                    Some(true) => "Queries are sent by it.",
                    _ => "Queries are not sent by it: not every item is known to follow it. Set it again.",
                };
                format!("{definition}\n{routes}\n")
            })
        }
        SyntheticCommand::Remove { place, server } => {
            let mut body = place_body(place);
            body.set("definition", Value::Null);
            let answer = post(server, "/_orrery/synthetic", body)?;
            written(server, &answer, || format!("{} makes no partition keys any more.\n", place.container))
        }
    })
}

fn repartition(arguments: &RepartitionArguments) -> Result<String, Failure> {
    let (place, server) = (&arguments.place, &arguments.server);
    if arguments.abort {
        let answer = post(server, "/_orrery/repartition/abort", place_body(place))?;
        return Ok(written(server, &answer, || format!("{} stays as it is.\n", place.container)));
    }
    let query = place_query(&place.database, &place.container);
    let status = || get(server, "/_orrery/repartition", Some(&query));
    let begun = if arguments.status {
        status()?
    } else {
        let mut body = place_body(place);
        let paths: Vec<Value> = arguments.partition_key.iter().map(|path| path.as_str().into()).collect();
        if !paths.is_empty() {
            let mut key = orrery_model::Object::new();
            key.set("kind", if paths.len() > 1 { "MultiHash" } else { "Hash" }.into());
            key.set("paths", paths.into());
            key.set("version", 2.into());
            body.set("partitionKey", key.into());
        }
        if let Some(definition) = &arguments.synthetic {
            body.set("syntheticKey", json_argument(definition)?);
        }
        if let Some(name) = &arguments.keep_as {
            body.set("keepAs", name.as_str().into());
        }
        post(server, "/_orrery/repartition", body)?
    };
    let wait = !arguments.status && !arguments.no_wait;
    let mut now = begun;
    while wait && !is_over(&now) {
        show_progress(server, &now);
        std::thread::sleep(LOOK_EVERY);
        now = status()?;
    }
    if now.get("phase").and_then(Value::as_str) == Some("failed") {
        let message = now.get("message").map(plain).unwrap_or_default();
        return Err(Failure::refused(format!(
            "repartitioning stopped: {message} The container serves as before; run the command again to go on, or with --abort to give it up"
        )));
    }
    Ok(written(server, &now, || describe(&now)))
}

fn is_over(status: &Value) -> bool {
    matches!(status.get("phase").and_then(Value::as_str), Some("done" | "failed"))
}

/// One line that is written over, and only for people.
fn show_progress(server: &ServerArguments, status: &Value) {
    let mut stderr = std::io::stderr();
    if server.output == Output::Text && stderr.is_terminal() {
        let line = describe(status);
        // If standard error is gone there is nobody to tell.
        write!(stderr, "\r\x1b[K{}", line.trim_end()).ok();
    }
}

fn describe(status: &Value) -> String {
    let member = |name: &str| status.get(name).map(plain).unwrap_or_default();
    if let Some(message) = status.get("message") {
        return format!("{}: {}\n", member("phase"), plain(message));
    }
    // Changes are copied too, so more may have been copied than there are items.
    let mut text = format!(
        "{}: {} items, {} copied, {} copies removed, {} compared",
        member("phase"),
        member("items"),
        member("copied"),
        member("removed"),
        member("compared")
    );
    if let Some(checksum) = status.get("checksum") {
        text = format!("{text}; checksum {}", plain(checksum));
    }
    if let Some(name) = status.get("keptAs") {
        text = format!("{text}; the container before it is kept as {}", plain(name));
    }
    text.push('\n');
    text
}

/// JSON, or the name of a file that holds it.
fn json_argument(text: &str) -> Result<Value, Failure> {
    let content = if text.trim_start().starts_with('{') {
        text.to_owned()
    } else {
        std::fs::read_to_string(text)
            .map_err(|error| Failure::usage(format!("the definition {text} cannot be read: {error}")))?
    };
    value::parse(content.as_bytes())
        .map_err(|error| Failure::usage(format!("the definition is not JSON: {error}")))
}
