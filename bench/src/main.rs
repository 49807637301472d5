//! Compares Orrery with its peers and its limits, in one run on one machine.
//!
//! `orrery-bench run` installs and starts everything, measures in interleaved rounds, and writes `results.json`,
//! `report.md` and plots. The load generator (`orrery-bench load`) and the limit servers (`orrery-bench limit`) run as
//! separate processes.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people"
)]

mod cosmos;
mod documents;
mod generator;
mod light;
mod limit_rounds;
mod limits;
mod load;
mod own;
mod plot;
mod postgres;
mod process;
mod report;
mod results;
mod run;
mod service;
mod stores;
mod systems;
mod wire;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Compare Orrery with its peers and its limits.
#[derive(Parser)]
#[command(name = "orrery-bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything and write the report.
    Run(Box<run::Options>),
    /// Measure Orrery on its embedded store and on PostgreSQL.
    Stores(Box<stores::Options>),
    /// Compare the load generator with wrk and pgbench; fails if it is more than a tenth slower.
    Generator,
    /// Execute one plan (JSON) and print its figures.
    Load { plan: String },
    /// Load items into a server and print the duration in seconds.
    Fill { kind: String, address: String, items: u64 },
    /// Serve the response in a file for every request.
    Limit {
        sample: PathBuf,
        #[arg(long)]
        signature: bool,
    },
    /// Durable writes per second of the storage engine alone: create, upsert or batch50.
    Engine { directory: PathBuf, shape: String, writers: u64, milliseconds: u64 },
    /// Write the report of an earlier run.
    Report { directory: PathBuf },
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a command")]
fn main() -> ExitCode {
    let threads = |count| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(count).enable_all().build().map_err(|error| error.to_string())
    };
    let single = || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
    };
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let outcome = match Cli::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Generator => generator::check(),
        Command::Stores(options) => stores::run(&options),
        Command::Load { plan } => serde_json::from_str(&plan)
            .map_err(|error| error.to_string())
            .and_then(|plan| Ok(single()?.block_on(load::run(&plan))))
            .and_then(|figures| serde_json::to_string(&figures).map_err(|error| error.to_string()))
            .map(|text| println!("{text}")),
        Command::Fill { kind, address, items } => {
            let kind = systems::Kind::ALL.into_iter().find(|known| known.title() == kind);
            let kind = kind.unwrap_or(systems::Kind::Orrery);
            single()
                .and_then(|runtime| {
                    runtime.block_on(load::fill(kind.protocol(), &address, items, kind.has_bulk()))
                })
                .map(|time| println!("{}", time.as_secs_f64()))
        }
        Command::Limit { sample, signature } => std::fs::read(&sample)
            .map_err(|error| error.to_string())
            .and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()))
            .and_then(|sample| {
                threads(processors)?
                    .block_on(limits::serve(sample, signature))
                    .map_err(|error| error.to_string())
            }),
        Command::Engine { directory, shape, writers, milliseconds } => threads(processors)
            .and_then(|runtime| {
                let time = std::time::Duration::from_millis(milliseconds);
                runtime.block_on(limits::engine_writes(&directory, &shape, writers, time))
            })
            .map(|rate| println!("{rate}")),
        Command::Report { directory } => run::report_again(&directory),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("orrery-bench: {message}");
            ExitCode::FAILURE
        }
    }
}
