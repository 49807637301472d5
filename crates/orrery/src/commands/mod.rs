//! The commands: one file per verb, with its arguments beside its code.
//!
//! Contains argument parsing, the steps of each command, and its output. The server (`serve`), the protocol (`client`)
//! and moving items (`transfer`) are shared by several commands and live elsewhere.

mod advise;
mod archive;
mod backup;
mod check;
mod config;
mod containers;
mod copy;
mod databases;
mod export;
mod faults;
mod health;
mod import;
mod items;
mod key;
mod keys;
mod partitions;
mod query;
mod record;
mod reference;
mod restore;
mod serve;
mod shell;
mod simulate;
mod store;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::client::ServerArguments;
use crate::failure::Failure;

/// A partitioned JSON document database that speaks the wire protocol of Azure Cosmos DB for NoSQL.
#[derive(Parser)]
#[command(
    name = "orrery",
    version,
    about,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    /// On errors, also print the full server response.
    #[arg(long, global = true)]
    verbose: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a database until interrupted.
    ///
    /// HTTP, HTTPS and HTTP/2 share one port. On a loopback address the emulator's well-known key is accepted, so
    /// that SDKs connect without any setup. On any other address a key is generated on first start and stored with
    /// the data.
    ///
    /// Every option can be set on the command line, in its environment variable, or in the configuration file (under
    /// the same name, without the leading dashes), in this order of precedence.
    #[command(
        after_help = "The variable ORRERY_LOG sets what is logged to standard error, for example debug or \
                      warn,orrery_gateway=debug. SIGTERM and Ctrl-C let requests finish; a second signal stops at once."
    )]
    Serve(Box<serve::ServeArguments>),
    /// Import items from a file or standard input into a container.
    ///
    /// Reads JSON lines, a JSON array or CSV, plain or gzip, as a stream, and upserts every item. Items that cannot
    /// be written are counted by reason and appended to the --failures file; the exit code is then 1.
    Import(Box<import::ImportArguments>),
    /// Export all items of a container as JSON lines.
    Export(Box<export::ExportArguments>),
    /// Copy containers and their items between two accounts: the service, an emulator, or Orrery.
    ///
    /// Missing containers are created with the definition and throughput of the originals. Items are upserted. Writes
    /// to the source during the copy may be missed.
    Copy(Box<copy::CopyArguments>),
    /// Back up a running server with an embedded store into a directory.
    ///
    /// The backup is consistent and is taken while the server is running. A directory holds any number of backups; each
    /// one adds only new files. A backup contains the data, but not the server's keys and certificates.
    Backup(Box<backup::BackupArguments>),
    /// Restore a backup into a new data directory, optionally as of a point in time.
    Restore(restore::RestoreArguments),
    /// Check a configuration file, or print the reference of all options.
    #[command(arg_required_else_help = true)]
    Config {
        #[command(subcommand)]
        command: config::ConfigCommand,
    },
    /// Measure candidate partition keys on data and a workload, and rank them with reasons.
    ///
    /// Candidates (properties, concatenations, suffixes, hierarchies) are measured by placing items and requests, with
    /// the real hash, on the partitions that the throughput implies. Memory is bounded for any input.
    Advise(Box<advise::AdviseArguments>),
    /// Check a workload against rules: partitions, scans, charges, hot and large keys, large items.
    ///
    /// The workload is checked as it was recorded, as a running server executes it (--database and --container), or as
    /// forecast for a key on data (--data and --partition-key). Exits with 1 if a rule is broken. A rule that nothing shows to be
    /// kept is reported as skipped.
    Check(Box<check::CheckArguments>),
    /// Record the requests to a container of a running server, as a workload for `orrery advise`.
    #[command(arg_required_else_help = true)]
    Record {
        #[command(subcommand)]
        command: record::RecordCommand,
    },
    /// Simulate a container over a year from a scenario: partitions, splits, throttling and cost.
    ///
    /// Nothing is stored. Uses the advisor's model at any scale; the same seed gives the same result.
    Simulate(simulate::SimulateArguments),
    /// Work with partition keys.
    #[command(arg_required_else_help = true)]
    Key {
        #[command(subcommand)]
        command: key::KeyCommand,
    },
    /// List and replace the account's keys.
    #[command(arg_required_else_help = true)]
    Keys {
        #[command(subcommand)]
        command: keys::KeysCommand,
    },
    /// List, show, create and delete databases.
    #[command(visible_alias = "db", arg_required_else_help = true)]
    Databases {
        #[command(subcommand)]
        command: databases::DatabasesCommand,
    },
    /// List, show, create, delete and repartition containers; manage synthetic keys.
    #[command(arg_required_else_help = true)]
    Containers {
        #[command(subcommand)]
        command: containers::ContainersCommand,
    },
    /// List, show, write and delete items.
    #[command(arg_required_else_help = true)]
    Items {
        #[command(subcommand)]
        command: items::ItemsCommand,
    },
    /// Inspect, split and merge the physical partitions of a running server.
    #[command(arg_required_else_help = true)]
    Partitions {
        #[command(subcommand)]
        command: partitions::PartitionsCommand,
    },
    /// Manage a store on PostgreSQL, and move data between stores.
    #[command(arg_required_else_help = true)]
    Store {
        #[command(subcommand)]
        command: store::StoreCommand,
    },
    /// Inject faults into a running server, to test how an application handles them.
    ///
    /// Needs a server started with --test-controls. GET, POST and DELETE of /_orrery/faults do the same. Responses
    /// affected by a rule carry its id in the header x-orrery-fault.
    #[command(arg_required_else_help = true)]
    Faults {
        #[command(subcommand)]
        command: faults::FaultsCommand,
    },
    /// Open a prompt on any endpoint: queries with history and completion, items, import and export.
    ///
    /// On a terminal, queries run when they are complete; Tab completes keywords, functions, containers and properties;
    /// Ctrl-C cancels a query. In pipes and scripts, statements end with a semicolon, and the first error ends the
    /// shell with exit code 1. `help` lists the commands.
    Shell(Box<shell::ShellArguments>),
    /// Run queries; inspect their plans and execution.
    #[command(arg_required_else_help = true)]
    Query {
        #[command(subcommand)]
        command: query::QueryCommand,
    },
    /// Check that a server is ready; for health checks of containers and services.
    ///
    /// Exits with 0 if it is ready, otherwise prints the reason and exits with 1.
    Health {
        #[command(flatten)]
        server: ServerArguments,
    },
    /// Print a completion script for a shell.
    #[command(after_help = "bash:        orrery completions bash > /etc/bash_completion.d/orrery\n\
                            zsh:         orrery completions zsh > \"${fpath[1]}/_orrery\"\n\
                            fish:        orrery completions fish > ~/.config/fish/completions/orrery.fish\n\
                            PowerShell:  orrery completions powershell >> $PROFILE")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the man pages of all commands into a directory.
    Man {
        /// The directory, such as /usr/local/share/man/man1.
        directory: std::path::PathBuf,
    },
}

/// Runs the command that the command line asks for.
pub(crate) fn run() -> Result<(), Failure> {
    // Clap prints help and usage errors itself and exits with code 0 or 2.
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let stdout = &mut std::io::stdout();
    let result = match cli.command {
        Command::Serve(arguments) => {
            // They tell flags from variables, which `arguments` cannot.
            let matches = matches.subcommand_matches("serve").expect("the command is serve");
            serve::run(&arguments, matches)
        }
        Command::Import(arguments) => import::run(&arguments, stdout),
        Command::Export(arguments) => export::run(&arguments, stdout),
        Command::Copy(arguments) => copy::run(&arguments, stdout),
        Command::Backup(arguments) => backup::run(&arguments, stdout),
        Command::Restore(arguments) => restore::run(&arguments, stdout),
        Command::Config { command } => config::run(&command, stdout),
        Command::Advise(arguments) => advise::run(&arguments, stdout),
        Command::Check(arguments) => check::run(&arguments, stdout),
        Command::Record { command } => record::run(&command, stdout),
        Command::Simulate(arguments) => simulate::run(&arguments, stdout),
        Command::Key { command } => key::run(&command, stdout),
        Command::Keys { command } => keys::run(&command, stdout),
        Command::Databases { command } => databases::run(&command, stdout),
        Command::Items { command } => items::run(&command, stdout),
        Command::Containers { command } => containers::run(&command, stdout),
        Command::Partitions { command } => partitions::run(&command, stdout),
        Command::Store { command } => store::run(&command, stdout),
        Command::Faults { command } => faults::run(&command, stdout),
        Command::Shell(arguments) => shell::run(&arguments),
        Command::Completions { shell } => reference::completions(shell, stdout),
        Command::Man { directory } => reference::man(&directory),
        Command::Health { server } => health::run(&server, stdout),
        Command::Query { command } => query::run(&command, stdout),
    };
    result.map_err(|failure| if cli.verbose { failure } else { Failure { detail: None, ..failure } })
}

/// The arguments of a command that another one runs, with their defaults.
fn parse_arguments<A: clap::Args + FromArgMatches>(arguments: &[&str]) -> Result<A, Failure> {
    let command = A::augment_args(clap::Command::new("orrery"));
    let matches = command.try_get_matches_from(arguments).map_err(Failure::usage)?;
    A::from_arg_matches(&matches).map_err(Failure::usage)
}
