//! `orrery containers synthetic`: keys that the server builds from other properties.

use clap::Subcommand;
use orrery_model::Value;

use super::json_argument;
use crate::client::{ContainerArguments, ContainerOnServer, Remote};
use crate::failure::Failure;

#[derive(Subcommand)]
pub(crate) enum SyntheticCommand {
    /// Set the definition. Existing items must already match it.
    Set {
        /// The definition: JSON, or a file name.
        definition: String,

        #[command(flatten)]
        container: ContainerArguments,

        #[command(flatten)]
        remote: Remote,
    },
    /// Show the definition, and whether queries are routed by it.
    Show(ContainerOnServer),
    /// Remove the definition. Items keep their keys.
    Remove(ContainerOnServer),
}

pub(super) fn run(command: &SyntheticCommand) -> Result<String, Failure> {
    Ok(match command {
        SyntheticCommand::Set { definition, container, remote: Remote { server, rows } } => {
            let mut body = container.body();
            body.set("definition", json_argument(definition)?);
            let answer = server.change("/_orrery/synthetic", body)?;
            rows.render(&answer, || format!("Set the synthetic key of `{}`.\n", container.container))
        }
        SyntheticCommand::Show(ContainerOnServer { container, remote: Remote { server, rows } }) => {
            let answer = server.get("/_orrery/synthetic", Some(&container.query()))?;
            rows.render(&answer, || {
                let definition = answer.get("definition").map(Value::to_json).unwrap_or_default();
                let routes = match answer.get("routesQueries").and_then(Value::as_bool) {
                    Some(true) => "Queries are routed by it.",
                    _ => "Queries are not routed by it: some items may not match. Set it again to have them checked.",
                };
                format!("{definition}\n{routes}\n")
            })
        }
        SyntheticCommand::Remove(ContainerOnServer { container, remote: Remote { server, rows } }) => {
            let mut body = container.body();
            body.set("definition", Value::Null);
            let answer = server.change("/_orrery/synthetic", body)?;
            rows.render(&answer, || format!("Removed the synthetic key from `{}`.\n", container.container))
        }
    })
}
