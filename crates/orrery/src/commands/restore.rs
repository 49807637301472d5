//! `orrery restore`: builds a data directory from a backup, optionally as of a point in time.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use orrery_advisor::moment;
use orrery_gateway::durable_file;
use orrery_model::{Object, Value};
use orrery_storage::EmbeddedOptions;

use super::archive;
use crate::failure::Failure;
use crate::io::{Output, byte_size, print};

#[derive(Args)]
pub(crate) struct RestoreArguments {
    /// The backup directory, or a file made by `orrery backup FILE.tar`.
    #[arg(value_name = "DIRECTORY|FILE.tar")]
    directory: PathBuf,

    /// The data directory to create, for `orrery serve --data`. It must be new or empty.
    #[arg(long, value_name = "DIRECTORY")]
    data: PathBuf,

    /// Restore this backup instead of the newest. `orrery backup --list` shows the names.
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,

    /// Restore the state at this time, such as 2026-11-18T13:45:00Z, to the second. Requires one backup taken before
    /// that time and one after it, and a server that kept its journal in between (`orrery serve --keep-log`).
    #[arg(long, value_name = "TIME")]
    until: Option<String>,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
    output: Output,
}

pub(super) fn run(arguments: &RestoreArguments, output: &mut dyn Write) -> Result<(), Failure> {
    let until_ms = match &arguments.until {
        Some(text) => Some(moment::parse_text(text).ok_or_else(|| {
            Failure::usage(format!("--until is {text}: expected a time such as 2026-11-18T13:45:00Z"))
        })?),
        None => None,
    };
    let (repository, _scratch) = archive::open(&arguments.directory)?;
    durable_file::create_directory(&arguments.data).map_err(|error| {
        Failure::refused(format!("{} cannot be created: {error}", arguments.data.display()))
    })?;
    // Keys and certificates are stored beside the engine's directory.
    let target = arguments.data.join("store");
    let name = arguments.backup.as_deref();
    let restored = repository.restore(&target, name, until_ms, &EmbeddedOptions::default());
    let restored = restored.map_err(Failure::refused)?;
    let reached = restored.reached_ms.map(moment::print);
    let mut answer = Object::new();
    answer.set("backup", Value::from(restored.backup.as_str()));
    answer.set("lastWrite", reached.as_deref().map(Value::from).unwrap_or_default());
    answer.set("records", Value::from(restored.records.cast_signed()));
    answer.set("bytes", Value::from(restored.bytes.cast_signed()));
    let text = arguments.output.render(&answer.into(), || {
        #[expect(clippy::cast_precision_loss, reason = "rounded for display")]
        let size = byte_size(restored.bytes as f64);
        format!(
            "restored {size} from backup {} into {}; the last write is from {}\n",
            restored.backup,
            arguments.data.display(),
            reached.as_deref().unwrap_or("before the first timestamp in the journal")
        )
    });
    print(output, &text)
}
