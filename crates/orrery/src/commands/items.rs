//! `orrery items`: single items of a container, on any endpoint.

use std::io::{Read, Write};

use clap::{Args, Subcommand};
use orrery_model::{Value, value};

use crate::client::{
    Client, ContainerArguments, QueryPages, QueryText, Remote, block_on, parse_partition_key,
};
use crate::commands::databases::deleted;
use crate::failure::Failure;
use crate::io::print;
use crate::io::rows::{RowsFormat, table, terminal_width};
use crate::transfer::RemoteContainer;

/// An item may be 2 MB; with white space it may be longer.
const ITEM_BYTES_MAX: u64 = 16 << 20;

#[derive(Subcommand)]
pub(crate) enum ItemsCommand {
    /// List items, in the server's order.
    #[command(visible_alias = "ls")]
    List {
        /// List at most this many.
        #[arg(long, short, value_name = "NUMBER", default_value_t = 100)]
        limit: usize,

        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Show an item.
    #[command(visible_alias = "cat")]
    Show {
        /// The item's id.
        id: String,

        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Create an item; it must not exist.
    Create {
        /// The item as JSON; - reads standard input.
        #[arg(default_value = "-")]
        item: String,

        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Write an item, whether it exists or not.
    Put {
        /// The item as JSON; - reads standard input.
        #[arg(default_value = "-")]
        item: String,

        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Delete an item.
    #[command(visible_alias = "rm")]
    Delete {
        /// The item's id.
        id: String,

        #[command(flatten)]
        place: PlaceArguments,
    },
}

/// Arguments shared by the items commands.
#[derive(Args)]
pub(crate) struct PlaceArguments {
    #[command(flatten)]
    container: ContainerArguments,

    /// The partition key: text, a JSON value, or a JSON array. Without it all partitions are searched for the id.
    #[arg(long, value_name = "KEY")]
    partition_key: Option<String>,

    #[command(flatten)]
    remote: Remote,
}

impl PlaceArguments {
    fn key(&self) -> Option<String> {
        self.partition_key.as_deref().map(parse_partition_key)
    }
}

pub(super) fn run(command: &ItemsCommand, output: &mut impl Write) -> Result<(), Failure> {
    let text = match command {
        ItemsCommand::List { limit, place } => list(*limit, place)?,
        ItemsCommand::Show { id, place } => {
            let client = place.remote.server.connect()?;
            let path = place.container.path();
            let found = block_on(async {
                let container = RemoteContainer::require(&client, &path).await?;
                client.find_item(&path, &container.key, id, place.key().as_deref()).await
            })?;
            place.remote.rows.render(&found.item, || pretty(&found.item))
        }
        ItemsCommand::Create { item, place } => write(item, place, false)?,
        ItemsCommand::Put { item, place } => write(item, place, true)?,
        ItemsCommand::Delete { id, place } => {
            let client = place.remote.server.connect_to_change()?;
            let path = place.container.path();
            block_on(async {
                let container = RemoteContainer::require(&client, &path).await?;
                client.delete_item(&path, &container.key, id, place.key().as_deref()).await
            })?;
            place.remote.rows.render(&deleted(id), || format!("Deleted the item {id}.\n"))
        }
    };
    print(output, &text)
}

fn list(limit: usize, place: &PlaceArguments) -> Result<String, Failure> {
    let client = place.remote.server.connect()?;
    let path = place.container.path();
    let query = QueryText { text: "SELECT * FROM c".to_owned(), parameters: Vec::new() };
    let items = block_on(QueryPages::new(&client, &path, query, place.key()).collect(limit))?;
    let answer = Value::from(items.clone());
    Ok(place.remote.rows.render(&answer, || match items.as_slice() {
        [] => format!("There are no items in {path}.\n"),
        items => table(items, terminal_width()),
    }))
}

fn write(item: &str, place: &PlaceArguments, replaces: bool) -> Result<String, Failure> {
    let mut text = item.to_owned();
    if item == "-" {
        text.clear();
        // A longer input is cut, which leaves no valid JSON.
        let read = std::io::stdin().take(ITEM_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| Failure::refused(format!("standard input cannot be read: {error}")))?;
    }
    let item = value::parse(text.as_bytes())
        .map_err(|error| Failure::usage(format!("the item is not valid JSON: {error}")))?;
    let client = place.remote.server.connect_to_change()?;
    let path = place.container.path();
    let written = block_on(async {
        let container = RemoteContainer::require(&client, &path).await?;
        write_item(&client, &container, &item, replaces).await
    })?;
    let id = item.get("id").and_then(Value::as_str).unwrap_or_default();
    // Only tables use the description.
    if place.remote.rows.output != RowsFormat::Table {
        return Ok(place.remote.rows.render(&written, String::new));
    }
    Ok(format!("Wrote the item {id}.\n"))
}

pub(super) async fn write_item(
    client: &Client,
    container: &RemoteContainer,
    item: &Value,
    replaces: bool,
) -> Result<Value, Failure> {
    let response = client.write_item(&container.path, &container.key, item, replaces).await?;
    Ok(response.json().unwrap_or_default())
}

/// An item on several lines.
pub(super) fn pretty(item: &Value) -> String {
    // The model prints JSON in one line only.
    let parsed: Option<serde_json::Value> = serde_json::from_str(&item.to_json()).ok();
    let text = parsed.and_then(|parsed| serde_json::to_string_pretty(&parsed).ok());
    text.unwrap_or_else(|| item.to_json()) + "\n"
}
