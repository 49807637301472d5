//! Options of the commands that move data.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::{Output, PlaceArguments};
use crate::client::{Account, Client};
use crate::failure::Failure;

/// One endpoint, given as a connection string or as URL and key.
#[derive(Args)]
pub(crate) struct EndpointArguments {
    /// The account as AccountEndpoint=URL;AccountKey=KEY; in place of --endpoint and --key.
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

    /// An account key of the server. Without one the well-known key of emulators is used.
    #[arg(long, value_name = "BASE64", env = "ORRERY_KEY", hide_env_values = true, help_heading = "Server")]
    pub(crate) key: Option<String>,

    #[command(flatten)]
    pub(crate) trust: TrustArguments,
}

#[derive(Args)]
pub(crate) struct TrustArguments {
    /// Trust this certificate (PEM) too, for example the one at /_explorer/emulator.pem of an Orrery.
    #[arg(long, value_name = "FILE", env = "ORRERY_CERTIFICATE", help_heading = "Server")]
    pub(crate) certificate: Option<PathBuf>,

    /// Accept every certificate. Whoever is in between can then read and change everything.
    #[arg(long, help_heading = "Server")]
    pub(crate) insecure: bool,
}

impl TrustArguments {
    pub(crate) fn connect(&self, account: Account) -> Result<Client, Failure> {
        Client::to(account.trusting(self.certificate.clone(), self.insecure))
    }
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

/// How fast, how careful, and what is written down.
#[derive(Args)]
pub(crate) struct PaceArguments {
    /// Requests under way at the same time.
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=512), help_heading = "Pace")]
    pub(crate) concurrency: u16,

    /// Use at most so many request units a second, on average.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Pace")]
    pub(crate) request_units: Option<u32>,

    /// A file that keeps the position. If it exists, the work goes on from there; it is removed at the end.
    #[arg(long, value_name = "FILE", help_heading = "Pace")]
    pub(crate) checkpoint: Option<PathBuf>,

    /// Do not show progress.
    #[arg(long, short, help_heading = "Pace")]
    pub(crate) quiet: bool,

    /// How the summary is written.
    #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// How items are written.
#[derive(Args)]
pub(crate) struct WriteArguments {
    /// Items in one request; 1 sends each for itself.
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=100), help_heading = "Pace")]
    pub(crate) batch: u16,

    /// Append what could not be written to this file: one JSON object a line with the reason and the item.
    #[arg(long, value_name = "FILE", help_heading = "Pace")]
    pub(crate) failures: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// By the name of the file, else by its first character.
    Auto,
    /// One JSON object a line.
    Jsonl,
    /// A JSON array of objects, or objects one after the other.
    Json,
    /// Comma-separated values.
    Csv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CsvTypes {
    /// Numbers and true/false are recognised; 007 and 1234567890123456789 stay text.
    Infer,
    /// Everything is text.
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CsvEmpty {
    /// The property is left out.
    Omit,
    Null,
    /// An empty text.
    Text,
}

#[derive(Args)]
pub(crate) struct CsvArguments {
    /// What separates values: one character, or tab.
    #[arg(long, value_name = "CHARACTER", default_value = ",", help_heading = "CSV")]
    pub(crate) delimiter: String,

    /// The names of the columns, if the first line does not hold them. Dots make nested objects.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "CSV")]
    pub(crate) columns: Option<Vec<String>>,

    /// What the values of columns are.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = CsvTypes::Infer, help_heading = "CSV")]
    pub(crate) types: CsvTypes,

    /// The type of one column: text, number, boolean or json. May be given several times. The column id is text.
    #[arg(long = "type", value_name = "COLUMN=TYPE", help_heading = "CSV")]
    pub(crate) column_types: Vec<String>,

    /// What becomes of empty values.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = CsvEmpty::Omit, help_heading = "CSV")]
    pub(crate) empty: CsvEmpty,
}

#[derive(Args)]
pub(crate) struct CreateArguments {
    /// Create the database and the container if they do not exist.
    #[arg(long, help_heading = "Container")]
    pub(crate) create: bool,

    /// The partition key of a created container, like /customer. Up to three make a hierarchical key.
    #[arg(long, value_name = "PATH", value_delimiter = ',', requires = "create", help_heading = "Container")]
    pub(crate) partition_key: Vec<String>,

    /// The throughput of a created container, in request units a second.
    #[arg(long, value_name = "NUMBER", help_heading = "Container")]
    pub(crate) throughput: Option<u32>,
}

#[derive(Args)]
pub(crate) struct ImportArguments {
    /// The file to read, plain or gzip; - is standard input.
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    /// What the input is.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Auto)]
    pub(crate) format: Format,

    /// Take the id from this property: its text, or its number as text.
    #[arg(long, value_name = "PROPERTY", conflicts_with = "generate_ids")]
    pub(crate) id_from: Option<String>,

    /// Give items without an id one that is made from their position and content, the same in every run.
    #[arg(long)]
    pub(crate) generate_ids: bool,

    #[command(flatten)]
    pub(crate) csv: CsvArguments,

    #[command(flatten)]
    pub(crate) create: CreateArguments,

    #[command(flatten)]
    pub(crate) write: WriteArguments,

    #[command(flatten)]
    pub(crate) pace: PaceArguments,

    #[command(flatten)]
    pub(crate) server: EndpointArguments,
}

#[derive(Args)]
pub(crate) struct ExportArguments {
    /// The file to write, compressed if its name ends with .gz; - is standard output.
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    /// Keep _rid, _self, _etag, _attachments and _ts.
    #[arg(long)]
    pub(crate) system_properties: bool,

    /// Replace the file if it exists.
    #[arg(long)]
    pub(crate) overwrite: bool,

    #[command(flatten)]
    pub(crate) pace: PaceArguments,

    #[command(flatten)]
    pub(crate) server: EndpointArguments,
}

#[derive(Args)]
pub(crate) struct CopyArguments {
    /// The account to read from, as AccountEndpoint=URL;AccountKey=KEY; or as a URL of an emulator.
    #[arg(long, value_name = "CONNECTION", env = "ORRERY_FROM", hide_env_values = true)]
    pub(crate) from: String,

    /// The account to write to.
    #[arg(long, value_name = "CONNECTION", env = "ORRERY_TO", hide_env_values = true)]
    pub(crate) to: String,

    /// The database.
    #[arg(long, short, value_name = "ID", env = "ORRERY_DATABASE")]
    pub(crate) database: String,

    /// The container; without it all containers of the database are copied.
    #[arg(long, short, value_name = "ID", env = "ORRERY_CONTAINER")]
    pub(crate) container: Option<String>,

    /// The database to write to, if it has another name.
    #[arg(long, value_name = "ID")]
    pub(crate) to_database: Option<String>,

    /// The container to write to, if it has another name.
    #[arg(long, value_name = "ID", requires = "container")]
    pub(crate) to_container: Option<String>,

    /// The throughput of created containers, in request units a second; without it that of the originals.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) throughput: Option<u32>,

    #[command(flatten)]
    pub(crate) write: WriteArguments,

    #[command(flatten)]
    pub(crate) pace: PaceArguments,

    #[command(flatten)]
    pub(crate) trust: TrustArguments,
}
