//! `orrery query`: runs queries, and shows how they are planned and executed. Nothing here changes data.

mod explain;
mod plan;
mod run;

use std::io::Write;

use clap::{Args, Subcommand};

use crate::client::{ContainerArguments, QueryText, parse_partition_key};
use crate::failure::Failure;
pub(super) use explain::{describe as describe_explanation, explain_request};

#[derive(Subcommand)]
pub(crate) enum QueryCommand {
    /// Run a query and print its rows.
    ///
    /// Works with any endpoint that speaks the protocol. If the server leaves merging partitions to the client, as the
    /// service does, this command merges them.
    Run(Box<run::RunArguments>),
    /// Print query plans as SDKs receive them.
    ///
    /// Reads one JSON object per line from standard input:
    /// {"query":"SELECT …","parameters":[{"name":"@p","value":1}],"pk":[…],"pkKind":"Hash"}. All but the query are
    /// optional. pk lists the partition key paths, pkKind is Hash, MultiHash or Range, and features may list what the
    /// client supports, as in the request header. Writes one line for each: the plan, or
    /// {"errors":[{"code":"SC1001","start":0,"end":1,"message":"…"}]}; the exit code is then 1.
    Plan,
    /// Show how a running server executes a query: the index it uses, the alternatives, estimated and actual numbers.
    ///
    /// Executes one page of the query. POST /_orrery/explain does the same.
    Explain(Box<explain::ExplainArguments>),
}

/// What a query runs over, and its parameters.
#[derive(Args)]
struct QueryScope {
    #[command(flatten)]
    container: ContainerArguments,

    /// A parameter of the query, as @NAME=JSON. Can be repeated.
    #[arg(long, short, value_name = "@NAME=JSON")]
    parameter: Vec<String>,

    /// Restrict the query to this partition key: text, a JSON value, or a JSON array.
    #[arg(long, value_name = "KEY")]
    partition_key: Option<String>,
}

impl QueryScope {
    fn query(&self, text: &str) -> Result<QueryText, Failure> {
        QueryText::new(text, &self.parameter)
    }

    fn key(&self) -> Option<String> {
        self.partition_key.as_deref().map(parse_partition_key)
    }
}

pub(super) fn run(command: &QueryCommand, output: &mut impl Write) -> Result<(), Failure> {
    match command {
        QueryCommand::Run(arguments) => run::run(arguments, output),
        QueryCommand::Plan => plan::run(&mut std::io::stdin().lock(), output),
        QueryCommand::Explain(arguments) => explain::run(arguments, output),
    }
}
