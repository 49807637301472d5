//! Options that several transfer commands share. Each command flattens them into its own arguments.

use std::path::PathBuf;

use clap::Args;

use crate::io::Output;

/// Speed, resumption and reporting of a transfer.
#[derive(Args)]
pub(crate) struct PaceOptions {
    /// Requests in flight at the same time.
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=512), help_heading = "Pace")]
    pub(crate) concurrency: u16,

    /// Limit to this many request units per second, on average.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Pace")]
    pub(crate) request_units: Option<u32>,

    /// A file that stores the position. If it exists the transfer resumes from there; it is removed on completion.
    #[arg(long, value_name = "FILE", help_heading = "Pace")]
    pub(crate) checkpoint: Option<PathBuf>,

    /// Do not show progress.
    #[arg(long, short, help_heading = "Pace")]
    pub(crate) quiet: bool,

    /// Format of the summary.
    #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// How items are written.
#[derive(Args)]
pub(crate) struct WriteOptions {
    /// Items per request; 1 sends each item separately.
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=100), help_heading = "Pace")]
    pub(crate) batch: u16,

    /// Append items that could not be written to this file: one JSON object per line, with the reason and the item.
    #[arg(long, value_name = "FILE", help_heading = "Pace")]
    pub(crate) failures: Option<PathBuf>,
}
