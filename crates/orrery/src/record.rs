//! `orrery record`: has a running server record the requests to a container, for `orrery advise --workload`.

use std::io::Write;

use clap::Subcommand;
use orrery_db::SystemEnv;
use orrery_model::value::{self, Value};
use orrery_model::{Object, env::Env};

use crate::advise::write_out;
use crate::cli::PlaceArguments;
use crate::client::{Client, Request, block_on};
use crate::failure::Failure;
use crate::transfer::arguments::EndpointArguments;

#[derive(Subcommand)]
pub(crate) enum RecordCommand {
    /// Begin to record. The server keeps at most 200,000 requests: kinds, keys, ids and query parameters, no items.
    Start {
        #[command(flatten)]
        place: PlaceArguments,

        /// Record no more requests than this.
        #[arg(long, value_name = "NUMBER")]
        requests_max: Option<u32>,

        #[command(flatten)]
        server: EndpointArguments,
    },
    /// End a recording; it can still be downloaded.
    Stop {
        #[command(flatten)]
        place: PlaceArguments,

        #[command(flatten)]
        server: EndpointArguments,
    },
    /// Write a recording as JSON lines.
    Download {
        #[command(flatten)]
        place: PlaceArguments,

        #[command(flatten)]
        server: EndpointArguments,
    },
    /// Record for some seconds, then write the recording.
    For {
        /// How long.
        seconds: u64,

        #[command(flatten)]
        place: PlaceArguments,

        #[command(flatten)]
        server: EndpointArguments,
    },
    /// List the recordings of a server.
    List {
        #[command(flatten)]
        server: EndpointArguments,
    },
    /// Forget a recording.
    Discard {
        #[command(flatten)]
        place: PlaceArguments,

        #[command(flatten)]
        server: EndpointArguments,
    },
}

const PATH: &str = "/_orrery/recordings";

pub(crate) fn run(command: &RecordCommand, output: &mut impl Write) -> Result<(), Failure> {
    let env = SystemEnv;
    let text = block_on(async {
        match command {
            RecordCommand::Start { place, requests_max, server } => {
                let mut body = named(place);
                if let Some(requests_max) = requests_max {
                    body.set("requestsMax", Value::from(i64::from(*requests_max)));
                }
                post(&server.connect()?, &env, "", body).await
            }
            RecordCommand::Stop { place, server } => {
                post(&server.connect()?, &env, "/stop", named(place)).await
            }
            RecordCommand::Discard { place, server } => {
                post(&server.connect()?, &env, "/discard", named(place)).await
            }
            RecordCommand::Download { place, server } => download(&server.connect()?, &env, place).await,
            RecordCommand::List { server } => {
                let answer = server.connect()?.ask(&env, &Request::get(PATH)).await?.accepted()?;
                let list = answer.json().unwrap_or_default();
                Ok(list.as_array().unwrap_or(&[]).iter().map(|one| one.to_json() + "\n").collect())
            }
            RecordCommand::For { seconds, place, server } => {
                let client = server.connect()?;
                post(&client, &env, "", named(place)).await?;
                tokio::select! {
                    () = tokio::time::sleep(std::time::Duration::from_secs(*seconds)) => {}
                    // Whoever interrupts wants what there is.
                    _ = tokio::signal::ctrl_c() => {}
                }
                post(&client, &env, "/stop", named(place)).await?;
                let text = download(&client, &env, place).await?;
                post(&client, &env, "/discard", named(place)).await?;
                Ok(text)
            }
        }
    })?;
    write_out(output, &text)
}

fn named(place: &PlaceArguments) -> Object {
    let mut body = Object::new();
    body.set("database", Value::from(place.database.as_str()));
    body.set("container", Value::from(place.container.as_str()));
    body
}

async fn post(client: &Client, env: &dyn Env, rest: &str, body: Object) -> Result<String, Failure> {
    let request = Request::post(format!("{PATH}{rest}"), Value::from(body).to_json());
    let answer = client.ask(env, &request).await?.accepted()?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    // One line, whatever the server sent.
    Ok(value::parse(text.as_bytes()).map_or(text, |answer| answer.to_json()) + "\n")
}

async fn download(client: &Client, env: &dyn Env, place: &PlaceArguments) -> Result<String, Failure> {
    let escape = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let query = format!("database={}&container={}", escape(&place.database), escape(&place.container));
    let request = Request::get(format!("{PATH}/download")).with_query(&query);
    let answer = client.ask(env, &request).await?.accepted()?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}
