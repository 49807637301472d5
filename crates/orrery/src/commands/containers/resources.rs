//! `orrery containers list|show|create|delete`, on any endpoint.

use clap::Args;
use orrery_env::SystemEnv;
use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::{Object, Value};

use super::json_argument;
use crate::client::{
    Client, ContainerArguments, ContainerPath, Remote, Request, accepted_json, block_on, id_of, path,
};
use crate::commands::databases::{ThroughputArguments, deleted};
use crate::failure::Failure;
use crate::io::rows::{properties, table, terminal_width};
use crate::transfer::{ProvisionedThroughput, RemoteContainer};

#[derive(Args)]
pub(crate) struct ListArguments {
    /// The database. [default: all]
    #[arg(long, short, value_name = "ID", env = "ORRERY_DATABASE")]
    database: Option<String>,

    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    container: ContainerArguments,

    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct CreateArguments {
    #[command(flatten)]
    container: ContainerArguments,

    /// A path of the partition key, such as /customer. Repeat it, or separate paths with commas, for a hierarchical key
    /// of up to three levels. [default: /id, or as in the definition]
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    partition_key: Vec<String>,

    /// All other settings, as the body of a create request (indexingPolicy, defaultTtl, uniqueKeyPolicy, …): JSON, or a
    /// file name.
    #[arg(long, value_name = "DEFINITION")]
    definition: Option<String>,

    #[command(flatten)]
    throughput: ThroughputArguments,

    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
pub(crate) struct DeleteArguments {
    #[command(flatten)]
    container: ContainerArguments,

    #[command(flatten)]
    remote: Remote,
}

pub(super) fn list(arguments: &ListArguments) -> Result<String, Failure> {
    let rows = block_on(container_rows(&arguments.remote.server.connect()?, arguments.database.as_deref()))?;
    let answer = Value::from(rows.clone());
    Ok(arguments.remote.rows.render(&answer, || match rows.as_slice() {
        [] => "There are no containers.\n".to_owned(),
        rows => table(rows, terminal_width()),
    }))
}

/// A row for each container: where it is, its partition key and its throughput.
pub(in crate::commands) async fn container_rows(
    client: &Client,
    database: Option<&str>,
) -> Result<Vec<Value>, Failure> {
    let databases = match database {
        Some(database) => vec![database.to_owned()],
        None => client.list_databases().await?.iter().map(id_of).collect(),
    };
    // Without the right to read offers, throughputs are unknown.
    let offers = client.list("/offers", "Offers").await.unwrap_or_default();
    let mut rows = Vec::new();
    for database in &databases {
        for container in client.list_containers(database).await? {
            let mut row = Object::new();
            row.set("database", Value::from(database.as_str()));
            row.set("id", Value::from(id_of(&container)));
            row.set("partitionKey", Value::from(key_paths(&container)));
            let rid = container.get("_rid").and_then(Value::as_str).unwrap_or_default();
            let throughput = ProvisionedThroughput::find(&offers, rid);
            row.set(
                "throughput",
                throughput.map_or_else(|| "shared or none".to_owned(), |found| found.to_string()).into(),
            );
            rows.push(row.into());
        }
    }
    Ok(rows)
}

fn key_paths(container: &Value) -> String {
    let paths = container.get("partitionKey").and_then(|key| key.get("paths")).and_then(Value::as_array);
    let paths: Vec<&str> = paths.unwrap_or(&[]).iter().filter_map(Value::as_str).collect();
    paths.join(", ")
}

pub(super) fn show(arguments: &ShowArguments) -> Result<String, Failure> {
    let client = arguments.remote.server.connect()?;
    let path = arguments.container.path();
    let (container, throughput) = block_on(async {
        let container = RemoteContainer::require(&client, &path).await?;
        let throughput = container.throughput(&client).await?;
        Ok((container, throughput))
    })?;
    let mut shown = container.definition.as_object().cloned().unwrap_or_default();
    if let Some(items) = container.items {
        shown.set("items", Value::from(i64::try_from(items).unwrap_or(i64::MAX)));
    }
    if let Some(throughput) = throughput {
        shown.set("throughput", Value::from(throughput.to_string()));
    }
    let shown = Value::from(shown);
    Ok(arguments.remote.rows.render(&shown, || properties(&shown, terminal_width())))
}

pub(super) fn create(arguments: &CreateArguments) -> Result<String, Failure> {
    let path = arguments.container.path();
    let mut definition = match &arguments.definition {
        None => Object::new(),
        Some(text) => match json_argument(text)? {
            Value::Object(object) => object,
            _ => return Err(Failure::usage("the definition is not a JSON object")),
        },
    };
    // The id of the command line replaces that of the definition.
    definition.set("id", Value::from(path.container.as_str()));
    // The option overrides the definition; without either the container is partitioned by id.
    if !arguments.partition_key.is_empty() || definition.get("partitionKey").is_none() {
        let paths: Vec<&str> = arguments.partition_key.iter().map(String::as_str).collect();
        let paths = if paths.is_empty() { &["/id"] } else { paths.as_slice() };
        if let Some(path) = paths.iter().find(|path| !path.starts_with('/')) {
            return Err(Failure::usage(format!(
                "a path of a partition key begins with a slash: --partition-key /{path}"
            )));
        }
        let key = PartitionKeyDefinition::with_paths(paths).map_err(|error| Failure::usage(error.message))?;
        definition.set("partitionKey", key.to_value());
    }
    let client = arguments.remote.server.connect_to_change()?;
    let request = Request::post(url(&path), Value::from(definition).to_exact_json());
    let request = arguments.throughput.add_to(request);
    let created = block_on(async {
        // Nothing happens if it exists.
        RemoteContainer::create_database(&client, &path.database).await?;
        let response = client.send(&SystemEnv, &request).await?;
        if response.status == 409 {
            return Err(Failure::refused(format!("the container {path} already exists")));
        }
        accepted_json(response)
    })?;
    Ok(arguments.remote.rows.render(&created, || {
        format!("Created the container {path}, partitioned by {}.\n", key_paths(&created))
    }))
}

fn url(container: &ContainerPath) -> String {
    path(&["dbs", &container.database, "colls"])
}

pub(super) fn delete(arguments: &DeleteArguments) -> Result<String, Failure> {
    let path = arguments.container.path();
    let client = arguments.remote.server.connect_to_change()?;
    let response = block_on(client.send(&SystemEnv, &Request::delete(path.path())))?;
    if response.status == 404 {
        return Err(Failure::refused(format!("there is no container {path}")));
    }
    response.accepted()?;
    Ok(arguments
        .remote
        .rows
        .render(&deleted(&path.to_string()), || format!("Deleted the container {path}.\n")))
}
