//! `orrery databases`: the databases of an account.

use std::io::Write;

use clap::{Args, Subcommand};
use orrery_env::SystemEnv;
use orrery_model::{Object, Value};

use crate::client::{Client, Remote, Request, accepted_json, block_on, path};
use crate::failure::Failure;
use crate::io::print;
use crate::io::rows::{properties, table, terminal_width};
use crate::transfer::ProvisionedThroughput;

#[derive(Subcommand)]
pub(crate) enum DatabasesCommand {
    /// List the databases.
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        remote: Remote,
    },
    /// Show a database.
    Show {
        /// The database.
        id: String,

        #[command(flatten)]
        remote: Remote,
    },
    /// Create a database.
    Create {
        /// The database.
        id: String,

        #[command(flatten)]
        throughput: ThroughputArguments,

        #[command(flatten)]
        remote: Remote,
    },
    /// Delete a database with all its containers and items.
    #[command(visible_alias = "rm")]
    Delete {
        /// The database.
        id: String,

        #[command(flatten)]
        remote: Remote,
    },
}

/// The throughput of a new database or container.
#[derive(Args)]
pub(crate) struct ThroughputArguments {
    /// Provision this many request units per second.
    #[arg(long, value_name = "NUMBER", conflicts_with = "max_throughput")]
    throughput: Option<u32>,

    /// Provision autoscale throughput up to this many request units per second.
    #[arg(long, value_name = "NUMBER")]
    max_throughput: Option<u32>,
}

impl ThroughputArguments {
    pub(super) fn add_to(&self, request: Request) -> Request {
        let manual = self.throughput.map(|units| ProvisionedThroughput::Manual(units.into()));
        let autoscale = self.max_throughput.map(|units| ProvisionedThroughput::Autoscale(units.into()));
        match manual.or(autoscale) {
            Some(throughput) => throughput.add_to(request),
            None => request,
        }
    }
}

pub(super) fn run(command: &DatabasesCommand, output: &mut impl Write) -> Result<(), Failure> {
    let text = block_on(async {
        Ok(match command {
            DatabasesCommand::List { remote: Remote { server, rows } } => {
                let client = server.connect()?;
                let mut list = Vec::new();
                for database in client.list_databases().await? {
                    let id = crate::client::id_of(&database);
                    let mut row = Object::new();
                    row.set("id", Value::from(id.as_str()));
                    let containers = client.list_containers(&id).await?.len();
                    row.set("containers", Value::from(i64::try_from(containers).unwrap_or(i64::MAX)));
                    list.push(Value::from(row));
                }
                let answer = Value::from(list.clone());
                rows.render(&answer, || match list.as_slice() {
                    [] => "There are no databases.\n".to_owned(),
                    list => table(list, terminal_width()),
                })
            }
            DatabasesCommand::Show { id, remote: Remote { server, rows } } => {
                let request = Request::get(path(&["dbs", id]));
                let response = server.connect()?.send(&SystemEnv, &request).await?;
                if response.status == 404 {
                    return Err(Failure::refused(format!("there is no database `{id}`")));
                }
                let database = accepted_json(response)?;
                rows.render(&database, || properties(&database, terminal_width()))
            }
            DatabasesCommand::Create { id, throughput, remote: Remote { server, rows } } => {
                let created = create(&server.connect_to_change()?, id, throughput).await?;
                rows.render(&created, || format!("Created the database {id}.\n"))
            }
            DatabasesCommand::Delete { id, remote: Remote { server, rows } } => {
                let request = Request::delete(path(&["dbs", id]));
                let response = server.connect_to_change()?.send(&SystemEnv, &request).await?;
                if response.status == 404 {
                    return Err(Failure::refused(format!("there is no database `{id}`")));
                }
                response.accepted()?;
                rows.render(&deleted(id), || format!("Deleted the database {id}.\n"))
            }
        })
    })?;
    print(output, &text)
}

async fn create(client: &Client, id: &str, throughput: &ThroughputArguments) -> Result<Value, Failure> {
    let mut body = Object::new();
    body.set("id", Value::from(id));
    let request = throughput.add_to(Request::post("/dbs", Value::from(body).to_json()));
    let response = client.send(&SystemEnv, &request).await?;
    if response.status == 409 {
        return Err(Failure::refused(format!("the database `{id}` already exists")));
    }
    accepted_json(response)
}

/// The output of a deletion for programs; the service returns no body.
pub(super) fn deleted(id: &str) -> Value {
    let mut object = Object::new();
    object.set("deleted", Value::from(id));
    object.into()
}
