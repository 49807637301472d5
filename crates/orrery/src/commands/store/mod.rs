//! `orrery store`: manages a store on PostgreSQL, checks a data directory, and moves data between stores, while no
//! server uses them.

mod check;
mod relocate;
mod status;

use std::io::Write;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::io::Output;

#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Create the tables, or upgrade older ones. On Citus they are distributed over the nodes.
    ///
    /// `orrery serve` does the same on start; use this to do it in advance, with another user's privileges.
    Init {
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Show the server, its nodes, the partitions on each, sizes, standbys and their replication lag.
    Status {
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Verify a data directory that no server uses.
    ///
    /// Checks every table and journal against its checksums, and that index entries, RIDs and counters agree with the
    /// items. It reads all data. Exits with 1 if anything is wrong.
    Check {
        #[command(flatten)]
        arguments: check::CheckArguments,
    },
    /// Copy all data from one store to another, empty one, and verify it. No server may be using either.
    Move {
        /// A data directory, or the URL of a store on PostgreSQL.
        #[arg(long, value_name = "STORE")]
        from: String,

        /// A data directory, or the URL of a store on PostgreSQL.
        #[arg(long, value_name = "STORE")]
        to: String,

        /// Output format.
        #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
        output: Output,
    },
}

/// A store on PostgreSQL.
#[derive(Args)]
pub(crate) struct StoreArguments {
    /// The store: postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full
    #[arg(long, value_name = "URL", env = "ORRERY_STORE", hide_env_values = true)]
    store: String,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
    output: Output,
}

pub(super) fn run(command: &StoreCommand, output: &mut impl Write) -> Result<(), Failure> {
    match command {
        StoreCommand::Init { store } => status::initialise(store, output),
        StoreCommand::Status { store } => status::show(store, output),
        StoreCommand::Check { arguments } => check::run(arguments, output),
        StoreCommand::Move { from, to, output: format } => relocate::run(from, to, *format, output),
    }
}
