//! `orrery serve`: resolves the server's settings, then runs it.
//!
//! The options themselves are in `serve::options`, because the configuration file has them too.

use std::path::PathBuf;

use clap::{ArgMatches, Args};

use crate::failure::Failure;
use crate::io::Output;
use crate::serve;

/// The options of the server, and two that a configuration file cannot have.
#[derive(Args)]
pub(crate) struct ServeArguments {
    /// A configuration file in TOML.
    #[arg(long, value_name = "FILE", env = "ORRERY_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    options: serve::ServeOptions,

    /// Format of the start-up message.
    #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
    output: Output,
}

pub(super) fn run(arguments: &ServeArguments, matches: &ArgMatches) -> Result<(), Failure> {
    let sources = serve::OptionSources::gather(&arguments.options, matches, arguments.config.as_deref())?;
    serve::run(sources.resolve()?, arguments.output)
}
