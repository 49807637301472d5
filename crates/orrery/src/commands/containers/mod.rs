//! `orrery containers`: the containers of a database, their synthetic keys, and repartitioning.

mod repartition;
mod resources;
mod synthetic;

use std::io::Write;

use clap::Subcommand;
use orrery_model::{Value, value};

use crate::failure::Failure;
use crate::io::print;
pub(super) use resources::container_rows;

#[derive(Subcommand)]
pub(crate) enum ContainersCommand {
    /// List the containers of a database, or of all databases.
    #[command(visible_alias = "ls")]
    List(resources::ListArguments),
    /// Show a container: its definition and throughput.
    Show(resources::ShowArguments),
    /// Create a container, and its database if that does not exist.
    Create(Box<resources::CreateArguments>),
    /// Delete a container with all its items.
    #[command(visible_alias = "rm")]
    Delete(resources::DeleteArguments),
    /// Manage a container's synthetic key, which the server builds from other properties.
    #[command(arg_required_else_help = true)]
    Synthetic {
        #[command(subcommand)]
        command: synthetic::SyntheticCommand,
    },
    /// Change the partition key of a container, online.
    ///
    /// A second container is filled from the change feed, verified item by item, and then takes the first one's name in
    /// one step; writes are frozen for a moment during the cut-over. The original is kept under another name or
    /// dropped. The server resumes automatically after a restart. After a failure, run the same command again to
    /// resume, or use --abort.
    #[command(arg_required_else_help = true)]
    Repartition(Box<repartition::RepartitionArguments>),
}

pub(super) fn run(command: &ContainersCommand, output: &mut impl Write) -> Result<(), Failure> {
    let text = match command {
        ContainersCommand::List(arguments) => resources::list(arguments)?,
        ContainersCommand::Show(arguments) => resources::show(arguments)?,
        ContainersCommand::Create(arguments) => resources::create(arguments)?,
        ContainersCommand::Delete(arguments) => resources::delete(arguments)?,
        ContainersCommand::Synthetic { command } => synthetic::run(command)?,
        ContainersCommand::Repartition(arguments) => repartition::run(arguments)?,
    };
    print(output, &text)
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
