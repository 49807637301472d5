//! The `orrery` command: reads the command line and the configuration, starts what was asked for, and turns
//! every failure into one sentence and an exit code.
//!
//! Exit codes: 0 done, 1 not found or refused, 2 bad usage, 3 internal.

mod advise;
mod assembly;
mod banner;
mod cli;
mod client;
mod containers;
mod failure;
mod faults;
mod key_hash;
mod keys;
mod partitions;
mod query_explain;
mod query_plan;
mod record;
mod seed;
mod serve;
mod settings;
mod simulate;
mod store_move;
mod store_status;
mod transfer;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use cli::{Cli, Command, KeyCommand, QueryCommand, StoreCommand};
use failure::Failure;

/// Requests are made and dropped on different threads, which the system's allocator is slow at (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The message of a panic is printed by the hook; what is left is the exit code.
    let result = std::panic::catch_unwind(run)
        .unwrap_or_else(|_| Err(Failure::internal("orrery stopped through a fault of its own")));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = &failure.message {
                // If standard error is gone, the exit code still tells.
                writeln!(std::io::stderr(), "orrery: {message}").ok();
            }
            ExitCode::from(failure.exit_code)
        }
    }
}

fn run() -> Result<(), Failure> {
    // Clap prints help and usage errors by itself, with the exit codes 0 and 2.
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match cli.command {
        Command::Serve(arguments) => {
            let sources = matches.subcommand_matches("serve");
            serve::run(settings::resolve(*arguments, sources)?)
        }
        Command::Import(arguments) => transfer::import(&arguments, &mut std::io::stdout()),
        Command::Export(arguments) => transfer::export(&arguments, &mut std::io::stdout()),
        Command::Copy(arguments) => transfer::copy(&arguments, &mut std::io::stdout()),
        Command::Advise(arguments) => advise::run(&arguments, &mut std::io::stdout().lock()),
        Command::Record { command } => record::run(&command, &mut std::io::stdout().lock()),
        Command::Simulate(arguments) => simulate::run(&arguments, &mut std::io::stdout().lock()),
        Command::Key { command: KeyCommand::Hash } => {
            key_hash::run(&mut std::io::stdin().lock(), &mut std::io::stdout().lock())
        }
        Command::Store { command: StoreCommand::Move { from, to, output } } => {
            store_move::run(&from, &to, output, &mut std::io::stdout().lock())
        }
        Command::Store { command: StoreCommand::Init { store } } => {
            store_status::initialise(&store, &mut std::io::stdout().lock())
        }
        Command::Store { command: StoreCommand::Status { store } } => {
            store_status::show(&store, &mut std::io::stdout().lock())
        }
        Command::Faults { command } => faults::run(&command, &mut std::io::stdout().lock()),
        Command::Containers { command } => containers::run(&command, &mut std::io::stdout().lock()),
        Command::Partitions { command } => partitions::run(&command, &mut std::io::stdout().lock()),
        Command::Query { command: QueryCommand::Plan } => {
            query_plan::run(&mut std::io::stdin().lock(), &mut std::io::stdout().lock())
        }
        Command::Query { command: QueryCommand::Explain(arguments) } => {
            query_explain::run(&arguments, &mut std::io::stdout().lock())
        }
    }
}
