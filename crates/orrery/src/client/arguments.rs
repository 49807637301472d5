//! Arguments that name a server or a container, shared by the commands that talk to one.

use std::path::PathBuf;

use clap::Args;
use orrery_env::SystemEnv;
use orrery_model::{Object, Value};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Account, Client, ContainerPath, Request, Response};
use crate::failure::Failure;
use crate::io::Output;

/// The container a command works on.
#[derive(Args)]
pub(crate) struct ContainerArguments {
    /// The database.
    #[arg(long, short, value_name = "ID", env = "ORRERY_DATABASE")]
    pub(crate) database: String,

    /// The container.
    #[arg(long, short, value_name = "ID", env = "ORRERY_CONTAINER")]
    pub(crate) container: String,
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

/// A running Orrery, and the format of its answer. For administrative requests, which only Orrery understands.
#[derive(Args)]
pub(crate) struct ServerArguments {
    /// The server.
    #[arg(long, value_name = "URL", env = "ORRERY_ENDPOINT", default_value = "http://127.0.0.1:8081")]
    pub(crate) endpoint: String,

    /// An account key of the server. Defaults to the emulator's well-known key.
    #[arg(long, value_name = "BASE64", env = "ORRERY_KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
    pub(crate) output: Output,
}

impl ServerArguments {
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        Client::new(Account::new(&self.endpoint, self.key.as_deref())?)
    }

    /// Reads JSON. The query string is already escaped.
    pub(crate) fn get(&self, path: &str, query: Option<&str>) -> Result<Value, Failure> {
        let request = Request::get(path);
        accepted_json(self.connect()?.send_blocking(
            &SystemEnv,
            &match query {
                Some(query) => request.with_query(query),
                None => request,
            },
        )?)
    }

    /// Posts JSON and returns the answer. Sent once only: a split that is repeated would split again.
    pub(crate) fn post(&self, path: &str, body: impl Into<Value>) -> Result<Value, Failure> {
        let request = Request::post(path, body.into().to_json());
        accepted_json(self.connect()?.send_blocking(&SystemEnv, &request)?)
    }
}

pub(crate) fn accepted_json(response: Response) -> Result<Value, Failure> {
    let response = response.accepted()?;
    response.json().ok_or_else(|| Failure::refused("the server's answer is not valid JSON"))
}

/// Any endpoint that speaks the protocol, given as a connection string or as URL and key.
#[derive(Args)]
pub(crate) struct EndpointArguments {
    /// The account as AccountEndpoint=URL;AccountKey=KEY; instead of --endpoint and --key.
    #[arg(
        long,
        value_name = "CONNECTION",
        env = "ORRERY_CONNECTION",
        hide_env_values = true,
        help_heading = "Server"
    )]
    pub(crate) connection: Option<String>,

    /// The server.
    #[arg(
        long,
        value_name = "URL",
        env = "ORRERY_ENDPOINT",
        default_value = "http://127.0.0.1:8081",
        help_heading = "Server"
    )]
    pub(crate) endpoint: String,

    /// An account key of the server. Defaults to the emulator's well-known key.
    #[arg(long, value_name = "BASE64", env = "ORRERY_KEY", hide_env_values = true, help_heading = "Server")]
    pub(crate) key: Option<String>,

    #[command(flatten)]
    pub(crate) trust: TrustArguments,
}

impl EndpointArguments {
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        let account = match &self.connection {
            Some(text) => Account::parse(text)?,
            None => Account::new(&self.endpoint, self.key.as_deref())?,
        };
        self.trust.connect(account)
    }
}

/// Which TLS certificates to accept.
#[derive(Args)]
pub(crate) struct TrustArguments {
    /// Trust this certificate (PEM) too, for example the one Orrery serves at /_explorer/emulator.pem.
    #[arg(long, value_name = "FILE", env = "ORRERY_CERTIFICATE", help_heading = "Server")]
    pub(crate) certificate: Option<PathBuf>,

    /// Accept any certificate. Anyone intercepting the connection can read and modify the traffic.
    #[arg(long, help_heading = "Server")]
    pub(crate) insecure: bool,
}

impl TrustArguments {
    pub(crate) fn connect(&self, account: Account) -> Result<Client, Failure> {
        Client::new(account.trusting(self.certificate.clone(), self.insecure))
    }
}
