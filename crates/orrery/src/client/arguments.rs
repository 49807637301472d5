//! Arguments that name a server or a container, shared by the commands that talk to one.

use clap::Args;
use orrery_env::SystemEnv;
use orrery_model::{Object, Value};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Client, ContainerPath, Request, Response, ServerArguments};
use crate::failure::Failure;
use crate::io::rows::RowsArguments;

/// The server a command asks, and how it prints the answer.
#[derive(Args, Clone)]
pub(crate) struct Remote {
    #[command(flatten)]
    pub(crate) server: ServerArguments,

    #[command(flatten)]
    pub(crate) rows: RowsArguments,
}

/// The container a command works on.
#[derive(Args, Clone)]
pub(crate) struct ContainerArguments {
    /// The database.
    #[arg(long, short, value_name = "ID", env = "ORRERY_DATABASE")]
    pub(crate) database: String,

    /// The container.
    #[arg(long, short, value_name = "ID", env = "ORRERY_CONTAINER")]
    pub(crate) container: String,
}

/// A container, and the server that has it.
#[derive(Args, Clone)]
pub(crate) struct ContainerOnServer {
    #[command(flatten)]
    pub(crate) container: ContainerArguments,

    #[command(flatten)]
    pub(crate) remote: Remote,
}

impl ContainerArguments {
    pub(crate) fn path(&self) -> ContainerPath {
        ContainerPath::new(&self.database, &self.container)
    }

    /// The body of an administrative request about this container; the caller adds the rest.
    pub(crate) fn body(&self) -> Object {
        let mut body = Object::new();
        body.set("database", Value::from(self.database.as_str()));
        body.set("container", Value::from(self.container.as_str()));
        body
    }

    /// The query string of an administrative request about this container.
    pub(crate) fn query(&self) -> String {
        container_query(&self.database, &self.container)
    }
}

/// `database=…&container=…`, escaped.
pub(crate) fn container_query(database: &str, container: &str) -> String {
    let escape = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    format!("database={}&container={}", escape(database), escape(container))
}

/// Administrative requests, which only Orrery understands.
impl ServerArguments {
    /// Reads JSON. The query string is already escaped.
    pub(crate) fn get(&self, path: &str, query: Option<&str>) -> Result<Value, Failure> {
        let request = Request::get(path);
        let request = match query {
            Some(query) => request.with_query(query),
            None => request,
        };
        accepted_json(self.connect()?.send_blocking(&SystemEnv, &request)?)
    }

    /// Posts JSON that changes nothing, and returns the response.
    pub(crate) fn ask(&self, path: &str, body: impl Into<Value>) -> Result<Value, Failure> {
        post(&self.connect()?, path, &body.into())
    }

    /// Posts JSON that changes something, and returns the response. Never retried: a repeated split would split again.
    pub(crate) fn change(&self, path: &str, body: impl Into<Value>) -> Result<Value, Failure> {
        post(&self.connect_to_change()?, path, &body.into())
    }
}

fn post(client: &Client, path: &str, body: &Value) -> Result<Value, Failure> {
    accepted_json(client.send_blocking(&SystemEnv, &Request::post(path, body.to_json()))?)
}

pub(crate) fn accepted_json(response: Response) -> Result<Value, Failure> {
    let response = response.accepted()?;
    response.json().ok_or_else(|| Failure::refused("the server's response is not valid JSON"))
}
