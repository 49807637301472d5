//! `orrery record`: has a running server record the requests to a container, for `orrery advise --workload`.
//!
//! The server records and limits the recording; this command only starts, stops and downloads it.

use std::io::Write;

use clap::Subcommand;
use orrery_env::{Env, SystemEnv};
use orrery_model::Object;
use orrery_model::value::{self, Value};

use crate::client::{Client, ContainerArguments, Request, ServerArguments, block_on};
use crate::failure::Failure;
use crate::io::print;

#[derive(Subcommand)]
pub(crate) enum RecordCommand {
    /// Start recording. The server keeps at most 200,000 requests: operations, keys, ids and query parameters, no items.
    Start {
        #[command(flatten)]
        container: ContainerArguments,

        /// Record at most this many requests.
        #[arg(long, value_name = "NUMBER")]
        requests_max: Option<u32>,

        #[command(flatten)]
        server: ServerArguments,
    },
    /// Stop recording. The recording can still be downloaded.
    Stop {
        #[command(flatten)]
        container: ContainerArguments,

        #[command(flatten)]
        server: ServerArguments,
    },
    /// Print a recording as JSON lines.
    Download {
        #[command(flatten)]
        container: ContainerArguments,

        #[command(flatten)]
        server: ServerArguments,
    },
    /// Record for a number of seconds, then print the recording.
    For {
        /// How long to record.
        seconds: u64,

        #[command(flatten)]
        container: ContainerArguments,

        #[command(flatten)]
        server: ServerArguments,
    },
    /// List the recordings of a server.
    List {
        #[command(flatten)]
        server: ServerArguments,
    },
    /// Discard a recording.
    Discard {
        #[command(flatten)]
        container: ContainerArguments,

        #[command(flatten)]
        server: ServerArguments,
    },
}

const PATH: &str = "/_orrery/recordings";

pub(super) fn run(command: &RecordCommand, output: &mut impl Write) -> Result<(), Failure> {
    let env = SystemEnv;
    let text = block_on(async {
        match command {
            RecordCommand::Start { container, requests_max, server } => {
                let mut body = container.body();
                if let Some(requests_max) = requests_max {
                    body.set("requestsMax", Value::from(i64::from(*requests_max)));
                }
                post(&server.connect_to_change()?, &env, "", body).await
            }
            RecordCommand::Stop { container, server } => {
                post(&server.connect_to_change()?, &env, "/stop", container.body()).await
            }
            RecordCommand::Discard { container, server } => {
                post(&server.connect_to_change()?, &env, "/discard", container.body()).await
            }
            RecordCommand::Download { container, server } => {
                download(&server.connect()?, &env, container).await
            }
            RecordCommand::List { server } => {
                let answer = server.connect()?.send(&env, &Request::get(PATH)).await?.accepted()?;
                let list = answer.json().unwrap_or_default();
                Ok(list.as_array().unwrap_or(&[]).iter().map(|one| one.to_json() + "\n").collect())
            }
            RecordCommand::For { seconds, container, server } => {
                let client = server.connect_to_change()?;
                post(&client, &env, "", container.body()).await?;
                tokio::select! {
                    () = orrery_env::task::sleep(std::time::Duration::from_secs(*seconds)) => {}
                    // Interrupted early: still print what was recorded.
                    _ = tokio::signal::ctrl_c() => {}
                }
                post(&client, &env, "/stop", container.body()).await?;
                let text = download(&client, &env, container).await?;
                // Last, so that the recording still exists if the download fails.
                post(&client, &env, "/discard", container.body()).await?;
                Ok(text)
            }
        }
    })?;
    print(output, &text)
}

async fn post(client: &Client, env: &dyn Env, rest: &str, body: Object) -> Result<String, Failure> {
    let request = Request::post(format!("{PATH}{rest}"), Value::from(body).to_json());
    let answer = client.send(env, &request).await?.accepted()?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    // Always one line, regardless of the server's formatting.
    Ok(value::parse(text.as_bytes()).map_or(text, |answer| answer.to_json()) + "\n")
}

async fn download(client: &Client, env: &dyn Env, container: &ContainerArguments) -> Result<String, Failure> {
    let request = Request::get(format!("{PATH}/download")).with_query(&container.query());
    let answer = client.send(env, &request).await?.accepted()?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}
