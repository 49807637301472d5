//! The command line. Every option of `serve` can also be set by an environment variable and in the
//! configuration file, where it has the same name.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::advise::AdviseArguments;
use crate::record::RecordCommand;
use crate::simulate::SimulateArguments;
use crate::transfer::arguments::{CopyArguments, ExportArguments, ImportArguments};

/// A partitioned JSON document database that speaks the wire protocol of Azure Cosmos DB for NoSQL.
#[derive(Parser)]
#[command(
    name = "orrery",
    version,
    about,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve a database until interrupted.
    ///
    /// HTTP, HTTPS and HTTP/2 share one port. On a loopback address the well-known key of emulators is
    /// accepted, so that SDKs connect without any set-up; on other addresses a key is made on first start and
    /// kept with the data.
    ///
    /// An option is looked for on the command line, then in its environment variable, then in the
    /// configuration file (under the same name, without dashes in front).
    #[command(
        after_help = "The variable ORRERY_LOG chooses what is logged to standard error, for example debug or \
                      warn,orrery_gateway=debug. SIGTERM and Ctrl-C let requests finish; a second one does not."
    )]
    Serve(Box<ServeArguments>),
    /// Write items from a file or standard input into a container.
    ///
    /// Reads JSON lines, a JSON array or CSV, plain or gzip, without holding it in memory, and upserts every item.
    /// What cannot be written is counted by reason and listed in the --failures file; the exit code is then 1.
    Import(Box<ImportArguments>),
    /// Write all items of a container as JSON lines.
    Export(Box<ExportArguments>),
    /// Copy containers with their items between two accounts: the service, an emulator, or Orrery.
    ///
    /// Containers that do not exist are made with the definition and the throughput of the originals. Items are
    /// upserted; what is written to the source meanwhile may be missed.
    Copy(Box<CopyArguments>),
    /// Measure partition keys on data and a workload, and rank them with reasons.
    ///
    /// Candidates (properties, concatenations, suffixes, hierarchies) are tried by putting the items and the requests
    /// through the true hash onto the partitions that the throughput gives. Memory stays bounded whatever is read.
    Advise(Box<AdviseArguments>),
    /// Record the requests to a container of a running server, as a workload for advise.
    #[command(arg_required_else_help = true)]
    Record {
        #[command(subcommand)]
        command: RecordCommand,
    },
    /// Play a container over a year from a scenario: partitions, splits, throttling and cost.
    ///
    /// Nothing is stored: the same model as the advisor's at any size, deterministic by seed.
    Simulate(SimulateArguments),
    /// Work with partition keys.
    #[command(arg_required_else_help = true)]
    Key {
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// Containers of a running server: how they make partition keys, and other keys for them.
    #[command(arg_required_else_help = true)]
    Containers {
        #[command(subcommand)]
        command: ContainersCommand,
    },
    /// Look at the physical partitions of a running server, split and merge them.
    #[command(arg_required_else_help = true)]
    Partitions {
        #[command(subcommand)]
        command: PartitionsCommand,
    },
    /// Work with a store on PostgreSQL, and move data between stores.
    #[command(arg_required_else_help = true)]
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// Make requests of a running server fail on purpose, to test how an application copes.
    ///
    /// Needs a server with --test-controls. The same is done by GET, POST and DELETE of /_orrery/faults. Answers that
    /// a rule has hit carry its id in the header x-orrery-fault.
    #[command(arg_required_else_help = true)]
    Faults {
        #[command(subcommand)]
        command: FaultsCommand,
    },
    /// Look at queries without changing anything.
    #[command(arg_required_else_help = true)]
    Query {
        #[command(subcommand)]
        command: QueryCommand,
    },
}

#[derive(Subcommand)]
pub(crate) enum ContainersCommand {
    /// Let a container make its partition keys from other properties of its items.
    #[command(arg_required_else_help = true)]
    Synthetic {
        #[command(subcommand)]
        command: SyntheticCommand,
    },
    /// Give a container another partition key, while it serves.
    ///
    /// A second container is filled from the change feed, compared with the first item by item, and takes its name in
    /// one step; writes wait for a moment then. The first one is kept under another name or dropped. A restart of the
    /// server goes on by itself; after a failure the same command does, and --abort gives it up.
    #[command(arg_required_else_help = true)]
    Repartition(Box<RepartitionArguments>),
}

#[derive(Subcommand)]
pub(crate) enum SyntheticCommand {
    /// Set the definition. Items that the container holds must follow it.
    Set {
        /// The definition: JSON, or the name of a file.
        definition: String,

        #[command(flatten)]
        place: PlaceArguments,

        #[command(flatten)]
        server: ServerArguments,
    },
    /// Show the definition, and whether queries are sent by it.
    Show {
        #[command(flatten)]
        place: PlaceArguments,

        #[command(flatten)]
        server: ServerArguments,
    },
    /// Take the definition away. Items keep the keys they have.
    Remove {
        #[command(flatten)]
        place: PlaceArguments,

        #[command(flatten)]
        server: ServerArguments,
    },
}

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct RepartitionArguments {
    /// The path of the new partition key. Up to three make a hierarchical one.
    #[arg(long, value_name = "PATH", required_unless_present_any = ["status", "abort"])]
    pub(crate) partition_key: Vec<String>,

    /// A definition by which the new key is made: JSON, or the name of a file.
    #[arg(long, value_name = "DEFINITION")]
    pub(crate) synthetic: Option<String>,

    /// Keep the container as it was under this name.
    #[arg(long, value_name = "ID", required_unless_present_any = ["drop", "status", "abort"])]
    pub(crate) keep_as: Option<String>,

    /// Drop the container as it was.
    #[arg(long, conflicts_with = "keep_as")]
    pub(crate) drop: bool,

    /// Only show how far it is.
    #[arg(long, conflicts_with_all = ["abort", "partition_key", "synthetic", "keep_as", "drop", "no_wait"])]
    pub(crate) status: bool,

    /// Give it up: the container stays as it is.
    #[arg(long, conflicts_with_all = ["partition_key", "synthetic", "keep_as", "drop", "no_wait"])]
    pub(crate) abort: bool,

    /// Do not wait until it is done.
    #[arg(long)]
    pub(crate) no_wait: bool,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

#[derive(Subcommand)]
pub(crate) enum PartitionsCommand {
    /// List the partitions of all containers, or of one: their ranges, sizes, shares and use.
    List {
        /// The database.
        #[arg(long, short, value_name = "ID", env = "ORRERY_DATABASE", requires = "container")]
        database: Option<String>,

        /// The container.
        #[arg(long, short, value_name = "ID", env = "ORRERY_CONTAINER", requires = "database")]
        container: Option<String>,

        #[command(flatten)]
        server: ServerArguments,
    },
    /// Show a container's partitions with their hottest and largest keys, and why its last requests had to wait.
    Show {
        #[command(flatten)]
        place: PlaceArguments,

        #[command(flatten)]
        server: ServerArguments,
    },
    /// Split a partition where its data is halved, while it serves.
    Split {
        /// The partition, by its number.
        partition: u32,

        #[command(flatten)]
        place: PlaceArguments,

        #[command(flatten)]
        server: ServerArguments,
    },
    /// Merge two neighbouring partitions, while they serve.
    Merge {
        /// The partitions, by their numbers.
        #[arg(num_args = 2, value_names = ["FIRST", "SECOND"])]
        partitions: Vec<u32>,

        #[command(flatten)]
        place: PlaceArguments,

        #[command(flatten)]
        server: ServerArguments,
    },
}

#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Make the tables, or bring older ones up to date. On Citus they are spread over the nodes.
    ///
    /// `orrery serve` does the same when it starts; this is for doing it beforehand, with another user's rights.
    Init {
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Show the server, its nodes, the partitions on each, sizes, standbys and how far they are behind.
    Status {
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Copy all data from one store to another, empty one, and compare both. No server may be using either.
    Move {
        /// A data directory, or the URL of a store on PostgreSQL.
        #[arg(long, value_name = "STORE")]
        from: String,

        /// A data directory, or the URL of a store on PostgreSQL.
        #[arg(long, value_name = "STORE")]
        to: String,

        /// How the result is written.
        #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
        output: Output,
    },
}

#[derive(Args)]
pub(crate) struct StoreArguments {
    /// The store: postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full
    #[arg(long, value_name = "URL", env = "ORRERY_STORE", hide_env_values = true)]
    pub(crate) store: String,

    /// How the answer is written.
    #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
    pub(crate) output: Output,
}

#[derive(Subcommand)]
pub(crate) enum FaultsCommand {
    /// List the rules, with how often they have hit.
    List {
        #[command(flatten)]
        server: ServerArguments,
    },
    /// Add a rule.
    Add {
        #[command(flatten)]
        rule: Box<FaultArguments>,

        #[command(flatten)]
        server: ServerArguments,
    },
    /// Remove a rule, or all.
    Remove {
        /// The rule.
        #[arg(required_unless_present = "all")]
        id: Option<String>,

        /// Remove all rules.
        #[arg(long, conflicts_with = "id")]
        all: bool,

        #[command(flatten)]
        server: ServerArguments,
    },
}

/// What fails, and how.
#[derive(Args)]
pub(crate) struct FaultArguments {
    /// Answer with this status: 408, 410, 429, 449, 500 or 503.
    #[arg(long, value_name = "STATUS", conflicts_with = "drop", required_unless_present_any = ["latency_ms", "drop"])]
    pub(crate) status: Option<u16>,

    /// The substatus of the answer, such as 1007 with 410. [default: the usual one of the status]
    #[arg(long, value_name = "NUMBER", requires = "status")]
    pub(crate) substatus: Option<u16>,

    /// Tell to try again after so long. [default: 100 with 429]
    #[arg(long, value_name = "MS", requires = "status")]
    pub(crate) retry_after_ms: Option<u32>,

    /// Wait so long first.
    #[arg(long, value_name = "MS")]
    pub(crate) latency_ms: Option<u64>,

    /// Close the connection instead of answering.
    #[arg(long)]
    pub(crate) drop: bool,

    /// Do what was asked before failing, so that the client cannot know.
    #[arg(long)]
    pub(crate) after_work: bool,

    /// Only these operations: create, upsert, read, list, replace, patch, delete, query, plan_query, batch, execute.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) operation: Vec<String>,

    /// Only this kind of resource, or any. [default: item]
    #[arg(long, value_name = "KIND")]
    pub(crate) resource: Option<String>,

    /// Only in this database.
    #[arg(long, short, value_name = "ID")]
    pub(crate) database: Option<String>,

    /// Only in this container.
    #[arg(long, short, value_name = "ID")]
    pub(crate) container: Option<String>,

    /// Only requests that go to this physical partition.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) partition: Option<u32>,

    /// Only so many of a hundred requests.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) percentage: Option<f64>,

    /// Only so many requests.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) count: Option<u64>,

    /// Only for so long.
    #[arg(long, value_name = "MS")]
    pub(crate) duration_ms: Option<u64>,

    /// Let the percentage hit the same requests in every run.
    #[arg(long, value_name = "NUMBER", requires = "percentage")]
    pub(crate) seed: Option<u64>,

    /// What the rule is called.
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Args)]
pub(crate) struct PlaceArguments {
    /// The database.
    #[arg(long, short, value_name = "ID", env = "ORRERY_DATABASE")]
    pub(crate) database: String,

    /// The container.
    #[arg(long, short, value_name = "ID", env = "ORRERY_CONTAINER")]
    pub(crate) container: String,
}

/// A running server, and how its answer is written.
#[derive(Args)]
pub(crate) struct ServerArguments {
    /// The server.
    #[arg(long, value_name = "URL", env = "ORRERY_ENDPOINT", default_value = "http://127.0.0.1:8081")]
    pub(crate) endpoint: String,

    /// An account key of the server. Without one the well-known key of emulators is used.
    #[arg(long, value_name = "BASE64", env = "ORRERY_KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,

    /// How the answer is written.
    #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
    pub(crate) output: Output,
}

#[derive(Subcommand)]
pub(crate) enum QueryCommand {
    /// Print query plans as clients get them.
    ///
    /// Reads one JSON object a line from standard input:
    /// {"query":"SELECT …","parameters":[{"name":"@p","value":1}],"pk":[…],"pkKind":"Hash"}. All but the query may
    /// be left out. pk lists the paths of the partition key, pkKind is Hash, MultiHash or Range, and features may list
    /// what the client supports, as in the request header. Writes one line for each: the plan, or
    /// {"errors":[{"code":"SC1001","start":0,"end":1,"message":"…"}]}; the exit code is then 1.
    Plan,
    /// Show how a running server runs a query: the index it uses, the alternatives, expected and real numbers.
    ///
    /// One page of the query is run. The same is answered by POST /_orrery/explain.
    Explain(Box<ExplainArguments>),
}

#[derive(Args)]
pub(crate) struct ExplainArguments {
    /// The query.
    pub(crate) query: String,

    /// The database.
    #[arg(long, short, value_name = "ID", env = "ORRERY_DATABASE")]
    pub(crate) database: String,

    /// The container.
    #[arg(long, short, value_name = "ID", env = "ORRERY_CONTAINER")]
    pub(crate) container: String,

    /// A parameter of the query, as @NAME=JSON. May be given several times.
    #[arg(long, short, value_name = "@NAME=JSON")]
    pub(crate) parameter: Vec<String>,

    /// Only this partition key, as a JSON array.
    #[arg(long, value_name = "JSON")]
    pub(crate) partition_key: Option<String>,

    /// The server.
    #[arg(long, value_name = "URL", env = "ORRERY_ENDPOINT", default_value = "http://127.0.0.1:8081")]
    pub(crate) endpoint: String,

    /// An account key of the server. Without one the well-known key of emulators is used.
    #[arg(long, value_name = "BASE64", env = "ORRERY_KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,

    /// How the explanation is written.
    #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
    pub(crate) output: Output,
}

#[derive(Subcommand)]
pub(crate) enum KeyCommand {
    /// Compute where partition key values land.
    ///
    /// Reads one JSON object a line from standard input: {"kind":"Hash","version":2,"pk":[42]}. The kind is Hash
    /// or MultiHash, the version 1 or 2, and {} in pk stands for a missing property. Writes one line for each:
    /// {"epk":"…"} with the effective partition key, or {"error":"…"}; the exit code is then 1.
    Hash,
}

#[derive(Args)]
pub(crate) struct ServeArguments {
    /// The address to listen on: address and port, or a port of 127.0.0.1. Port 0 takes a free one.
    /// [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS", env = "ORRERY_LISTEN")]
    pub(crate) listen: Option<String>,

    /// The directory that holds the data; made if it does not exist. [default: orrery in the user's data
    /// directory, such as ~/.local/share/orrery]
    #[arg(long, value_name = "DIRECTORY", env = "ORRERY_DATA")]
    pub(crate) data: Option<PathBuf>,

    /// Keep everything in memory and forget it at the end.
    #[arg(long, env = "ORRERY_IN_MEMORY", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = BoolishValueParser::new())]
    pub(crate) in_memory: Option<bool>,

    /// Keep the data in PostgreSQL instead, which several servers may share:
    /// postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full. Known besides what libpq knows are schema
    /// (default orrery) and pool_max (connections, default 16).
    #[arg(long, value_name = "URL", env = "ORRERY_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,

    /// A configuration file in TOML.
    #[arg(long, value_name = "FILE", env = "ORRERY_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Load data at start: DIRECTORY/<database>/<container>.jsonl (or .jsonl.gz, .csv), with the definition of the
    /// container beside it in <container>.json, if it is not to be partitioned by /id. What was loaded is not
    /// loaded again at the next start, unless the file has changed.
    #[arg(long, value_name = "DIRECTORY", env = "ORRERY_SEED")]
    pub(crate) seed: Option<PathBuf>,

    /// When a write is on disk: `always` before it is acknowledged, `relaxed:MS` at most so many milliseconds
    /// later. [default: always]
    #[arg(long, value_name = "WHEN", env = "ORRERY_DURABILITY")]
    pub(crate) durability: Option<String>,

    /// Memory for caching what is read from disk, in MB. [default: 64]
    #[arg(long, value_name = "MB", env = "ORRERY_CACHE_MB")]
    pub(crate) cache_mb: Option<u64>,

    /// The account key: base64 of 64 bytes. Better given in the variable or in a file, because others on this
    /// machine can see command lines.
    #[arg(long, value_name = "BASE64", env = "ORRERY_KEY", hide_env_values = true, help_heading = "Keys")]
    pub(crate) key: Option<String>,

    /// A file with the account key.
    #[arg(long, value_name = "FILE", env = "ORRERY_KEY_FILE", help_heading = "Keys")]
    pub(crate) key_file: Option<PathBuf>,

    /// A second key with the same rights, for changing keys without a pause.
    #[arg(
        long,
        value_name = "BASE64",
        env = "ORRERY_SECONDARY_KEY",
        hide_env_values = true,
        help_heading = "Keys"
    )]
    pub(crate) secondary_key: Option<String>,

    /// A key that allows reading only. May be given several times, or several separated by commas.
    #[arg(
        long,
        value_name = "BASE64",
        env = "ORRERY_READ_ONLY_KEY",
        hide_env_values = true,
        value_delimiter = ',',
        help_heading = "Keys"
    )]
    pub(crate) read_only_key: Option<Vec<String>>,

    /// Accept the well-known key of emulators on any address. Everyone who can reach the port can then do
    /// everything.
    #[arg(long, env = "ORRERY_ALLOW_WELL_KNOWN_KEY", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = BoolishValueParser::new(), help_heading = "Keys")]
    pub(crate) allow_well_known_key: Option<bool>,

    /// Accept signatures of any date. For machines whose clocks drift.
    #[arg(long, env = "ORRERY_NO_CLOCK_CHECK", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = BoolishValueParser::new(), help_heading = "Keys")]
    pub(crate) no_clock_check: Option<bool>,

    /// The TLS certificate in PEM form, with its chain. Without it one is made and kept with the data.
    #[arg(long, value_name = "FILE", env = "ORRERY_CERT", help_heading = "Network")]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of the certificate.
    #[arg(long, value_name = "FILE", env = "ORRERY_CERT_KEY", help_heading = "Network")]
    pub(crate) cert_key: Option<PathBuf>,

    /// A further name or address for the certificate that is made. May be given several times, or several
    /// separated by commas.
    #[arg(
        long,
        value_name = "NAME",
        env = "ORRERY_CERT_NAME",
        value_delimiter = ',',
        help_heading = "Network"
    )]
    pub(crate) cert_name: Option<Vec<String>>,

    /// Serve plain HTTP only.
    #[arg(long, env = "ORRERY_NO_TLS", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = BoolishValueParser::new(), help_heading = "Network")]
    pub(crate) no_tls: Option<bool>,

    /// Connections that may be open at once. [default: half of the files that the process may open, at most
    /// 10000]
    #[arg(long, value_name = "NUMBER", env = "ORRERY_CONNECTIONS_MAX", help_heading = "Network")]
    pub(crate) connections_max: Option<usize>,

    /// The consistency level of the account: strong, bounded-staleness, session, consistent-prefix or eventual.
    /// Requests may relax it but not strengthen it. Reads are always current; those at the two strongest levels
    /// cost twice as much. [default: session]
    #[arg(long, value_name = "LEVEL", env = "ORRERY_DEFAULT_CONSISTENCY", help_heading = "Account")]
    pub(crate) default_consistency: Option<String>,

    /// Versions that reads may lag behind under bounded staleness, at least 10: what the account document says.
    /// [default: 100]
    #[arg(long, value_name = "NUMBER", env = "ORRERY_MAX_STALENESS_PREFIX", help_heading = "Account")]
    pub(crate) max_staleness_prefix: Option<u32>,

    /// Seconds that reads may lag behind under bounded staleness, 5 to 86400: what the account document says.
    /// [default: 5]
    #[arg(long, value_name = "SECONDS", env = "ORRERY_MAX_STALENESS_SECONDS", help_heading = "Account")]
    pub(crate) max_staleness_seconds: Option<u32>,

    /// Keep every version and every delete so many minutes, for the change feed of all versions and deletes, in
    /// containers whose change feed policy says nothing. [default: only where the policy says so]
    #[arg(long, value_name = "MINUTES", env = "ORRERY_CHANGE_FEED_RETENTION", help_heading = "Account")]
    pub(crate) change_feed_retention: Option<u32>,

    /// Let requests beyond the provisioned throughput pass instead of telling them to wait (429). Charges are
    /// reported either way.
    #[arg(long, env = "ORRERY_NO_THROTTLE", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = BoolishValueParser::new(), help_heading = "Limits")]
    pub(crate) no_throttle: Option<bool>,

    /// Scale the limits of partitions (50 GB and 10000 request units per second for a physical one, 20 GB for a
    /// key), so that they can be reached: 0.001 makes them 50 MB, 400 units (the least there is) and 20 MB.
    /// [default: 1]
    #[arg(long, value_name = "FACTOR", env = "ORRERY_LIMITS_SCALE", help_heading = "Limits")]
    pub(crate) limits_scale: Option<f64>,

    /// Bytes that a physical partition may hold before it splits, whatever the scale.
    #[arg(long, value_name = "BYTES", env = "ORRERY_PARTITION_BYTES_MAX", help_heading = "Limits")]
    pub(crate) partition_bytes_max: Option<u64>,

    /// Bytes of items that one partition key value may have, whatever the scale.
    #[arg(long, value_name = "BYTES", env = "ORRERY_LOGICAL_PARTITION_BYTES_MAX", help_heading = "Limits")]
    pub(crate) logical_partition_bytes_max: Option<u64>,

    /// Request units per second that a physical partition may have before it splits, whatever the scale.
    #[arg(long, value_name = "NUMBER", env = "ORRERY_PARTITION_THROUGHPUT_MAX", help_heading = "Limits")]
    pub(crate) partition_throughput_max: Option<u32>,

    /// Give every new container this many physical partitions, whatever its throughput.
    #[arg(long, value_name = "NUMBER", env = "ORRERY_PARTITIONS_AT_CREATION", help_heading = "Limits")]
    pub(crate) partitions_at_creation: Option<u32>,

    /// Who merges the rows of queries over several partition keys that are sorted, grouped, counted or cut: `merge`
    /// the server; `plan` the client, as with the service (400 with sub-status 1004, then a plan); `auto` the
    /// server, but the Python client is told to plan sorted queries whose filter fixes the type of the sorted
    /// property. [default: auto]
    #[arg(long, value_enum, value_name = "WHO", env = "ORRERY_CROSS_PARTITION_QUERIES")]
    pub(crate) cross_partition_queries: Option<CrossPartition>,

    /// Allow tests to move the server's clock (/_orrery/clock) and to make requests fail (/_orrery/faults). Not for
    /// servers that others use.
    #[arg(long, env = "ORRERY_TEST_CONTROLS", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = BoolishValueParser::new(), help_heading = "Limits")]
    pub(crate) test_controls: Option<bool>,

    /// How the lines at start-up are written.
    #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CrossPartition {
    Merge,
    Auto,
    Plan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}
