//! `orrery completions` and `orrery man`: shell completions and man pages, generated from the command definitions.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;

use super::Cli;
use crate::failure::Failure;
use crate::io::print;

pub(super) fn completions(shell: clap_complete::Shell, output: &mut impl Write) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "orrery", &mut script);
    print(output, &String::from_utf8_lossy(&script))
}

/// One page for each command: `orrery.1`, `orrery-serve.1`, `orrery-query-run.1`, …
pub(super) fn man(directory: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::refused(format!("the man pages cannot be written to {}: {error}", directory.display()))
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), directory).map_err(failed)
}
