//! `orrery containers repartition`: changes a container's partition key online.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use orrery_model::{Object, Value};

use super::json_argument;
use crate::client::{ContainerArguments, Remote};
use crate::failure::Failure;
use crate::io::plain;
use crate::io::rows::{RowsArguments, RowsFormat};

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
    remote: Remote,
}

/// How often the progress of a repartitioning is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(super) fn run(arguments: &RepartitionArguments) -> Result<String, Failure> {
    let (container, server, rows) = (&arguments.container, &arguments.remote.server, arguments.remote.rows);
    if arguments.abort {
        let answer = server.change("/_orrery/repartition/abort", container.body())?;
        return Ok(
            rows.render(&answer, || format!("Aborted; `{}` keeps its partition key.\n", container.container))
        );
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
        server.change("/_orrery/repartition", body)?
    };
    // The server continues without this command, which only watches.
    let wait = !arguments.status && !arguments.no_wait;
    while wait && !is_over(&progress) {
        show_progress(rows, &progress);
        orrery_env::task::sleep_thread(POLL_INTERVAL);
        progress = status()?;
    }
    clear_progress(rows, wait);
    if progress.get("phase").and_then(Value::as_str) == Some("failed") {
        let message = progress.get("message").map(plain).unwrap_or_default();
        return Err(Failure::refused(format!(
            "repartitioning failed: {message} The container still serves with its old key; run the command again to resume, or with --abort to cancel"
        )));
    }
    Ok(rows.render(&progress, || describe(&progress)))
}

fn is_over(status: &Value) -> bool {
    matches!(status.get("phase").and_then(Value::as_str), Some("done" | "failed"))
}

/// Rewrites one line of the terminal; silent in scripts.
fn show_progress(rows: RowsArguments, status: &Value) {
    let mut stderr = std::io::stderr();
    if rows.output == RowsFormat::Table && stderr.is_terminal() {
        let line = describe(status);
        // Progress is optional: ignore a closed standard error.
        write!(stderr, "\r\x1b[K{}", line.trim_end()).ok();
    }
}

/// Ends the progress line.
fn clear_progress(rows: RowsArguments, was_shown: bool) {
    let mut stderr = std::io::stderr();
    if was_shown && rows.output == RowsFormat::Table && stderr.is_terminal() {
        write!(stderr, "\r\x1b[K").ok();
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
