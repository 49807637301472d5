//! `orrery simulate`: a container over a year, from a scenario. The model is the advisor's; see `orrery_advisor::simulate`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use orrery_advisor::report;
use orrery_advisor::simulate::{Scenario, simulate};

use crate::failure::Failure;
use crate::io::{ReportOutput, print, read_text};

/// A scenario file may be this long.
const SCENARIO_BYTES_MAX: u64 = 1 << 20;

#[derive(Args)]
pub(crate) struct SimulateArguments {
    /// The scenario, in TOML or JSON; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Override the scenario's seed.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = ReportOutput::Text)]
    output: ReportOutput,
}

pub(super) fn run(arguments: &SimulateArguments, output: &mut impl Write) -> Result<(), Failure> {
    let text = read_text(&arguments.file, SCENARIO_BYTES_MAX)?;
    let mut scenario = Scenario::parse(&text).map_err(Failure::usage)?;
    if let Some(seed) = arguments.seed {
        scenario.seed = seed;
    }
    let outcome = simulate(&scenario);
    let text = match arguments.output {
        ReportOutput::Text => report::simulation_text(&scenario, &outcome),
        ReportOutput::Json => report::simulation_json(&scenario, &outcome).to_string() + "\n",
        ReportOutput::Html => report::simulation_html(&scenario, &outcome),
    };
    print(output, &text)
}
