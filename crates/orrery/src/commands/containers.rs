//! `orrery containers`: synthetic keys and repartitioning of containers on a running server.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::{Args, Subcommand};
use orrery_model::{Object, Value, value};

use crate::client::{ContainerArguments, ServerArguments};
use crate::failure::Failure;
use crate::io::{Output, plain, print};

#[derive(Subcommand)]
pub(crate) enum ContainersCommand {
    /// Have the server build a container's partition keys from other properties.
    #[command(arg_required_else_help = true)]
    Synthetic {
        #[command(subcommand)]
        command: SyntheticCommand,
    },
    /// Change the partition key of a container, online.
    ///
    /// A second container is filled from the change feed, verified item by item, and then takes the first one's name
    /// in one step; writes are frozen for a moment during the cut-over. The original is kept under another name or
    /// dropped. The server resumes by itself after a restart. After a failure, run the same command again to resume,
    /// or use --abort.
    #[command(arg_required_else_help = true)]
    Repartition(Box<RepartitionArguments>),
}

#[derive(Subcommand)]
pub(crate) enum SyntheticCommand {
    /// Set the definition. Existing items must already match it.
    Set {
        /// The definition: JSON, or a file name.
        definition: String,

        #[command(flatten)]
        container: ContainerArguments,

        #[command(flatten)]
        server: ServerArguments,
    },
    /// Show the definition, and whether queries are routed by it.
    Show {
        #[command(flatten)]
        container: ContainerArguments,

        #[command(flatten)]
        server: ServerArguments,
    },
    /// Remove the definition. Items keep their keys.
    Remove {
        #[command(flatten)]
        container: ContainerArguments,

        #[command(flatten)]
        server: ServerArguments,
    },
}

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent flag")]
pub(crate) struct RepartitionArguments {
    /// A path of the new partition key. Repeat it for a hierarchical key of up to three.
    #[arg(long, value_name = "PATH", required_unless_present_any = ["status", "abort"])]
    partition_key: Vec<String>,

    /// A synthetic key definition that builds the new key: JSON, or a file name.
    #[arg(long, value_name = "DEFINITION")]
    synthetic: Option<String>,

    /// Keep the original container under this name.
    #[arg(long, value_name = "ID", required_unless_present_any = ["drop", "status", "abort"])]
    keep_as: Option<String>,

    /// Drop the original container.
    #[arg(long, conflicts_with = "keep_as")]
    drop: bool,

    /// Only show progress.
    #[arg(long, conflicts_with_all = ["abort", "partition_key", "synthetic", "keep_as", "drop", "no_wait"])]
    status: bool,

    /// Abort: the container keeps its current key.
    #[arg(long, conflicts_with_all = ["partition_key", "synthetic", "keep_as", "drop", "no_wait"])]
    abort: bool,

    /// Return at once instead of waiting for completion.
    #[arg(long)]
    no_wait: bool,

    #[command(flatten)]
    container: ContainerArguments,

    #[command(flatten)]
    server: ServerArguments,
}

/// How often the progress of a repartitioning is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(super) fn run(command: &ContainersCommand, output: &mut impl Write) -> Result<(), Failure> {
    let text = match command {
        ContainersCommand::Synthetic { command } => synthetic(command)?,
        ContainersCommand::Repartition(arguments) => repartition(arguments)?,
    };
    print(output, &text)
}

fn synthetic(command: &SyntheticCommand) -> Result<String, Failure> {
    Ok(match command {
        SyntheticCommand::Set { definition, container, server } => {
            let mut body = container.body();
            body.set("definition", json_argument(definition)?);
            let answer = server.post("/_orrery/synthetic", body)?;
            server.output.render(&answer, || format!("Set the synthetic key of `{}`.\n", container.container))
        }
        SyntheticCommand::Show { container, server } => {
            let answer = server.get("/_orrery/synthetic", Some(&container.query()))?;
            server.output.render(&answer, || {
                let definition = answer.get("definition").map(Value::to_json).unwrap_or_default();
                let routes = match answer.get("routesQueries").and_then(Value::as_bool) {
                    Some(true) => "Queries are routed by it.",
                    _ => "Queries are not routed by it: some items may not match. Set it again to have them checked.",
                };
                format!("{definition}\n{routes}\n")
            })
        }
        SyntheticCommand::Remove { container, server } => {
            let mut body = container.body();
            body.set("definition", Value::Null);
            let answer = server.post("/_orrery/synthetic", body)?;
            server
                .output
                .render(&answer, || format!("Removed the synthetic key from `{}`.\n", container.container))
        }
    })
}

fn repartition(arguments: &RepartitionArguments) -> Result<String, Failure> {
    let (container, server) = (&arguments.container, &arguments.server);
    if arguments.abort {
        let answer = server.post("/_orrery/repartition/abort", container.body())?;
        return Ok(server
            .output
            .render(&answer, || format!("Aborted; `{}` keeps its partition key.\n", container.container)));
    }
    let query = container.query();
    let status = || server.get("/_orrery/repartition", Some(&query));
    let mut progress = if arguments.status {
        status()?
    } else {
        let mut body = container.body();
        let paths: Vec<Value> = arguments.partition_key.iter().map(|path| path.as_str().into()).collect();
        if !paths.is_empty() {
            let mut key = Object::new();
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
        server.post("/_orrery/repartition", body)?
    };
    let wait = !arguments.status && !arguments.no_wait;
    while wait && !is_over(&progress) {
        show_progress(server, &progress);
        std::thread::sleep(POLL_INTERVAL);
        progress = status()?;
    }
    if progress.get("phase").and_then(Value::as_str) == Some("failed") {
        let message = progress.get("message").map(plain).unwrap_or_default();
        return Err(Failure::refused(format!(
            "repartitioning failed: {message} The container still serves with its old key; run the command again to resume, or with --abort to cancel"
        )));
    }
    Ok(server.output.render(&progress, || describe(&progress)))
}

fn is_over(status: &Value) -> bool {
    matches!(status.get("phase").and_then(Value::as_str), Some("done" | "failed"))
}

/// Rewrites one line of the terminal; silent in scripts.
fn show_progress(server: &ServerArguments, status: &Value) {
    let mut stderr = std::io::stderr();
    if server.output == Output::Text && stderr.is_terminal() {
        let line = describe(status);
        // Progress is optional: ignore a closed standard error.
        write!(stderr, "\r\x1b[K{}", line.trim_end()).ok();
    }
}

fn describe(status: &Value) -> String {
    let member = |name: &str| status.get(name).map(plain).unwrap_or_default();
    if let Some(message) = status.get("message") {
        return format!("{}: {}\n", member("phase"), plain(message));
    }
    // Concurrent changes are copied too, so `copied` may exceed `items`.
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
        text = format!("{text}; the original is kept as {}", plain(name));
    }
    text.push('\n');
    text
}

/// Parses JSON, given directly or in a file.
fn json_argument(text: &str) -> Result<Value, Failure> {
    let content = if text.trim_start().starts_with('{') {
        text.to_owned()
    } else {
        std::fs::read_to_string(text)
            .map_err(|error| Failure::usage(format!("the definition {text} cannot be read: {error}")))?
    };
    value::parse(content.as_bytes())
        .map_err(|error| Failure::usage(format!("the definition is not valid JSON: {error}")))
}
