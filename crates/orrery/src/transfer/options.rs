//! Options that several transfer commands share. Each command flattens them into its own arguments.

use std::path::PathBuf;

use clap::Args;
use orrery_model::{Object, Value};

use super::checkpoint::Checkpoint;
use crate::failure::Failure;
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

impl PaceOptions {
    /// Opens the checkpoint of a transfer with this identity, and returns the state saved in it; neither without
    /// `--checkpoint`.
    pub(crate) fn open_checkpoint(
        &self,
        identity: Object,
    ) -> Result<(Option<Checkpoint>, Option<Value>), Failure> {
        let Some(path) = &self.checkpoint else { return Ok((None, None)) };
        let (checkpoint, state) = Checkpoint::open(path, identity.into())?;
        Ok((Some(checkpoint), state))
    }
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
