//! The options of `orrery serve`, listed once.
//!
//! [`ServeOptions`] is parsed from the command line and the environment by clap and from the configuration file by
//! serde. The three sources are combined in [`OptionSources`], where a flag overrides a variable and a variable
//! overrides the file. Nothing here has a default: defaults and checks are in `settings`, because a default given to
//! clap would override the file.

use std::any::TypeId;
use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::BoolishValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, FromArgMatches, ValueEnum};
use serde::{Deserialize, Deserializer};

use crate::failure::Failure;

/// Every option of `orrery serve`. Each field defines a flag (`--cache-mb`), an environment variable
/// (`ORRERY_CACHE_MB`) and a key in the configuration file (`cache-mb`), all of them optional.
#[derive(Args, Clone, Default, Deserialize)]
#[command(mut_args = complete)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ServeOptions {
    /// Preset for several options, each of which can still be overridden. `emulator`, for tests: no throttling, the
    /// well-known key on any address, signatures of any date, writes synced within 100 ms. `faithful`: throttling, and
    /// cross-partition queries left to clients exactly as in the service. `production`: throttling, every write synced,
    /// no well-known key even on loopback.
    #[arg(long, value_enum, value_name = "PROFILE")]
    pub(crate) profile: Option<Profile>,

    /// An address to listen on: address and port, or a port on 127.0.0.1. Port 0 picks a free one. Can be repeated, or a
    /// comma-separated list; direct mode is served on the first address. [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) listen: Option<Vec<String>>,

    /// The data directory; created if it does not exist. [default: orrery in the user's data directory, such as
    /// ~/.local/share/orrery]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) data: Option<PathBuf>,

    /// Keep everything in memory; discarded on exit.
    #[arg(long)]
    pub(crate) in_memory: Option<bool>,

    /// Store the data in PostgreSQL, which several servers can share:
    /// postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full. In addition to libpq's parameters it accepts
    /// schema (default orrery) and pool_max (connections, default 16).
    #[arg(long, value_name = "URL", hide_env_values = true)]
    pub(crate) store: Option<String>,

    /// Seed data to load on start: DIRECTORY/<database>/<container>.jsonl (or .jsonl.gz, .ndjson, .csv), with the
    /// container's definition beside it in <container>.json (without one it is partitioned by /id). A file is reloaded
    /// on a later start only if it has changed.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) seed: Option<PathBuf>,

    /// Containers to create on start unless they exist, as DATABASE/CONTAINER:/PARTITION/KEY, such as
    /// shop/orders:/customer. Several paths, each after a colon, make a hierarchical key; the default is /id. Can be
    /// repeated, or a comma-separated list.
    #[arg(long, value_name = "CONTAINERS", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) containers: Option<Vec<String>>,

    /// When a write is synced to disk: `always` before it is acknowledged, `relaxed:MS` at most MS milliseconds later.
    /// [default: always]
    #[arg(long, value_name = "WHEN")]
    pub(crate) durability: Option<String>,

    /// Size of the block cache for data read from disk. [default: 64]
    #[arg(long, value_name = "MB")]
    pub(crate) cache_mb: Option<u64>,

    /// Space to keep free on the disk of the data directory, at most an eighth of it. With less free space only deletes
    /// are accepted; writes resume automatically once there is space again. [default: 64]
    #[arg(long, value_name = "MB")]
    pub(crate) disk_reserve_mb: Option<u64>,

    /// How long to keep the journal after its writes are in tables, such as 24h or 7d: backups can then be restored to any
    /// second of that time. [default: not at all]
    #[arg(long, value_name = "DURATION")]
    pub(crate) keep_log: Option<String>,

    /// The account key: base64 of 64 bytes. Prefer the variable or a file: other users of this machine can see
    /// command lines.
    #[arg(long, value_name = "BASE64", hide_env_values = true, help_heading = "Keys")]
    pub(crate) key: Option<String>,

    /// A file that holds the account key.
    #[arg(long, value_name = "FILE", help_heading = "Keys")]
    pub(crate) key_file: Option<PathBuf>,

    /// A second key with the same rights, for rotating keys without downtime.
    #[arg(long, value_name = "BASE64", hide_env_values = true, help_heading = "Keys")]
    pub(crate) secondary_key: Option<String>,

    /// A read-only key. Can be repeated, or a comma-separated list.
    #[arg(long, value_name = "BASE64", hide_env_values = true, value_delimiter = ',', help_heading = "Keys")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) read_only_key: Option<Vec<String>>,

    /// Accept the emulator's well-known key on any address. Anyone who can reach the port then has full access.
    #[arg(long, help_heading = "Keys")]
    pub(crate) allow_well_known_key: Option<bool>,

    /// Accept signatures of any date, for clients whose clocks drift.
    #[arg(long, help_heading = "Keys")]
    pub(crate) no_clock_check: Option<bool>,

    /// The TLS certificate in PEM form, with its chain. It is read again when it changes, and on SIGHUP. [default: generated and stored with the data]
    #[arg(long, value_name = "FILE", help_heading = "Network")]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of the certificate.
    #[arg(long, value_name = "FILE", help_heading = "Network")]
    pub(crate) cert_key: Option<PathBuf>,

    /// The oldest version of TLS to accept: 1.2 or 1.3. [default: 1.2]
    #[arg(long, value_name = "VERSION", help_heading = "Network")]
    pub(crate) tls_min: Option<String>,

    /// A PEM file with the authorities whose certificates clients must present (mutual TLS). Plain HTTP is then refused.
    /// Requests are signed with a key as before.
    #[arg(long, value_name = "FILE", help_heading = "Network")]
    pub(crate) client_ca: Option<PathBuf>,

    /// An additional name or address for the generated certificate. Can be repeated, or a comma-separated list.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Network")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) cert_name: Option<Vec<String>>,

    /// Serve plain HTTP only.
    #[arg(long, help_heading = "Network")]
    pub(crate) no_tls: Option<bool>,

    /// The port of direct mode, which .NET and Java clients use by default. Requires TLS. [default: the port of
    /// `listen` + 2169, such as 10250 for 8081; another free port if that is in use]
    #[arg(long, value_name = "PORT", help_heading = "Network")]
    pub(crate) direct_port: Option<u16>,

    /// Do not serve direct mode. .NET and Java clients must then be configured for gateway mode.
    #[arg(long, help_heading = "Network")]
    pub(crate) no_direct: Option<bool>,

    /// The host, and optionally the port, at which clients reach direct mode if a port mapping or load balancer is in
    /// between. By default the host that they use for the gateway and the port that the server listens on.
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "Network")]
    pub(crate) direct_advertise: Option<String>,

    /// Serve Gateway 2.0, the frames of direct mode in HTTP/2 requests, and name it in the account document: Rust, Java and
    /// .NET clients that support it then use it for items and queries. On a port of its own.
    #[arg(long, help_heading = "Network")]
    pub(crate) gateway_v2: Option<bool>,

    /// The port of Gateway 2.0. [default: the port of `listen` + 2170, such as 10251 for 8081; another free port if that is
    /// in use]
    #[arg(long, value_name = "PORT", help_heading = "Network")]
    pub(crate) gateway_v2_port: Option<u16>,

    /// The host, and optionally the port, at which clients reach Gateway 2.0 if a port mapping or load balancer is in
    /// between. By default the host that they use for the gateway and the port that the server listens on.
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "Network")]
    pub(crate) gateway_v2_advertise: Option<String>,

    /// A host name to accept in addition to localhost, *.localhost and loopback addresses, with an optional port or a
    /// leading *. (*.example.com); * accepts any. Can be repeated, or a comma-separated list. On addresses other than
    /// loopback every name is accepted unless this option is given. Other names get 403, which protects local servers
    /// against DNS rebinding by web pages.
    #[arg(long, value_name = "HOST", value_delimiter = ',', help_heading = "Network")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) allowed_hosts: Option<Vec<String>>,

    /// An origin whose web pages may send requests, such as https://app.example.com:3000, in addition to the server's
    /// own. Can be repeated, or a comma-separated list.
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',', help_heading = "Network")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) allowed_origins: Option<Vec<String>>,

    /// On a stop signal, wait this long for requests in flight, then close their connections. A second signal stops at
    /// once. [default: 10]
    #[arg(long, value_name = "SECONDS", help_heading = "Network")]
    pub(crate) drain_seconds: Option<u32>,

    /// Memory budget of all requests together, for bodies, items being written and pages being built. Requests beyond
    /// it wait and are then throttled. Does not include the block cache. [default: a quarter of the memory]
    #[arg(long, value_name = "MB", help_heading = "Network")]
    pub(crate) memory_mb: Option<u64>,

    /// Maximum number of open connections. Direct mode has half as many in addition. [default: half of the process's
    /// limit of open files, at most 10000]
    #[arg(long, value_name = "NUMBER", help_heading = "Network")]
    pub(crate) connections_max: Option<usize>,

    /// The account's default consistency level: strong, bounded-staleness, session, consistent-prefix or eventual.
    /// Requests may relax it but not strengthen it. Reads are always current; those at the two strongest levels cost
    /// twice as much. [default: session]
    #[arg(long, value_name = "LEVEL", help_heading = "Account")]
    pub(crate) default_consistency: Option<String>,

    /// How many versions reads may lag behind under bounded staleness, at least 10, as reported in the account document.
    /// [default: 100]
    #[arg(long, value_name = "NUMBER", help_heading = "Account")]
    pub(crate) max_staleness_prefix: Option<u32>,

    /// How many seconds reads may lag behind under bounded staleness, 5 to 86400, as reported in the account document.
    /// [default: 5]
    #[arg(long, value_name = "SECONDS", help_heading = "Account")]
    pub(crate) max_staleness_seconds: Option<u32>,

    /// How long to retain every version and delete for the all-versions-and-deletes change feed, in containers without
    /// a change feed policy. [default: not retained]
    #[arg(long, value_name = "MINUTES", help_heading = "Account")]
    pub(crate) change_feed_retention: Option<u32>,

    /// Do not throttle requests beyond the provisioned throughput (429). Charges are reported either way.
    #[arg(long, help_heading = "Limits")]
    pub(crate) no_throttle: Option<bool>,

    /// Scale the partition limits (50 GB, 10000 request units per second and bursts up to 3000 for a physical partition,
    /// 20 GB for a logical one), so that tests can reach them: 0.001 makes them 50 MB, 400 RU/s (the minimum) without
    /// bursts, and 20 MB.
    /// [default: 1]
    #[arg(long, value_name = "FACTOR", help_heading = "Limits")]
    pub(crate) limits_scale: Option<f64>,

    /// Size at which a physical partition splits, regardless of the scale.
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    pub(crate) partition_bytes_max: Option<u64>,

    /// Maximum size of a logical partition, regardless of the scale.
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    pub(crate) logical_partition_bytes_max: Option<u64>,

    /// Request units per second above which a physical partition splits, regardless of the scale.
    #[arg(long, value_name = "NUMBER", help_heading = "Limits")]
    pub(crate) partition_throughput_max: Option<u32>,

    /// Factor for the service's limits on creating databases and containers (100 of each a minute) and on changing
    /// throughput (25 times in five minutes), beyond which requests are throttled; 0 switches them off, because test
    /// suites exceed them. [default: 0]
    #[arg(long, value_name = "FACTOR", help_heading = "Limits")]
    pub(crate) account_limits: Option<f64>,

    /// Number of physical partitions of every new container, regardless of its throughput.
    #[arg(long, value_name = "NUMBER", help_heading = "Limits")]
    pub(crate) partitions_at_creation: Option<u32>,

    /// Who merges cross-partition queries that sort, group, aggregate or limit their rows: `merge` the server; `plan`
    /// the client, as with the service (400 with sub-status 1004, then a plan); `auto` each client that can merge the
    /// query, the server for all others. [default: auto]
    #[arg(long, value_enum, value_name = "WHO")]
    pub(crate) cross_partition_queries: Option<CrossPartition>,

    /// Keep unknown properties of containers and offers, without effect, instead of rejecting them with 400. For clients
    /// that send more than the service documents.
    #[arg(long, help_heading = "Limits")]
    pub(crate) lenient: Option<bool>,

    /// The address in the account document, which clients use after their first request, such as
    /// https://localhost:9000/ for a mapped port. [default: the address that each client used]
    #[arg(long, value_name = "URL", help_heading = "Network")]
    pub(crate) advertise: Option<String>,

    /// The form of the log: `text`, or `json` with one object per line. [default: text]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Log")]
    pub(crate) log_format: Option<LogFormat>,

    /// Write the log to this file instead of standard error. A full file gets the ending .1, the one before .2 and so on.
    #[arg(long, value_name = "FILE", help_heading = "Log")]
    pub(crate) log_file: Option<PathBuf>,

    /// Size at which a log file is full. [default: 100]
    #[arg(long, value_name = "MB", help_heading = "Log")]
    pub(crate) log_file_mb: Option<u64>,

    /// How many full log files to keep, 0 to 100. [default: 5]
    #[arg(long, value_name = "NUMBER", help_heading = "Log")]
    pub(crate) log_files: Option<u32>,

    /// Log requests that take at least this many milliseconds, with their charge; queries also with their text and how
    /// they were executed. At most 10 per second are logged. [default: not logged]
    #[arg(long, value_name = "MILLISECONDS", help_heading = "Log")]
    pub(crate) slow_request_ms: Option<u64>,

    /// Allow tests to move the server's clock (/_orrery/clock) and to inject faults (/_orrery/faults). Not for
    /// production.
    #[arg(long, help_heading = "Limits")]
    pub(crate) test_controls: Option<bool>,
}

/// A preset of options for one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Profile {
    Emulator,
    Faithful,
    Production,
}

impl Profile {
    /// The options that the profile sets unless another source does. The production profile also rejects the well-known
    /// key, which is not an option.
    fn options(self) -> ServeOptions {
        let none = ServeOptions::default();
        match self {
            Self::Emulator => ServeOptions {
                no_throttle: Some(true),
                allow_well_known_key: Some(true),
                no_clock_check: Some(true),
                durability: Some("relaxed:100".to_owned()),
                ..none
            },
            Self::Faithful => ServeOptions {
                no_throttle: Some(false),
                cross_partition_queries: Some(CrossPartition::Plan),
                account_limits: Some(1.0),
                ..none
            },
            Self::Production => ServeOptions {
                no_throttle: Some(false),
                allow_well_known_key: Some(false),
                no_clock_check: Some(false),
                test_controls: Some(false),
                durability: Some("always".to_owned()),
                ..none
            },
        }
    }

    /// Sets the options that no other source has set; returns those, for the start-up message.
    fn complete(self, options: &mut ServeOptions) -> String {
        let own = self.options();
        let mut set: Vec<String> = Vec::new();
        let switches: [(&str, &mut Option<bool>, Option<bool>); 4] = [
            ("no-throttle", &mut options.no_throttle, own.no_throttle),
            ("allow-well-known-key", &mut options.allow_well_known_key, own.allow_well_known_key),
            ("no-clock-check", &mut options.no_clock_check, own.no_clock_check),
            ("test-controls", &mut options.test_controls, own.test_controls),
        ];
        for (name, option, value) in switches {
            if let (None, Some(value)) = (&option, value) {
                set.push(format!("{name}={value}"));
                *option = Some(value);
            }
        }
        if let (None, Some(durability)) = (&options.durability, own.durability) {
            set.push(format!("durability={durability}"));
            options.durability = Some(durability);
        }
        if let (None, Some(who)) = (options.cross_partition_queries, own.cross_partition_queries) {
            set.push("cross-partition-queries=plan".to_owned());
            options.cross_partition_queries = Some(who);
        }
        if let (None, Some(factor)) = (options.account_limits, own.account_limits) {
            set.push(format!("account-limits={factor}"));
            options.account_limits = Some(factor);
        }
        let name = match self {
            Self::Emulator => "emulator",
            Self::Faithful => "faithful",
            Self::Production => "production",
        };
        format!("{name}: {}", set.join(", "))
    }
}

/// Who merges cross-partition queries; see [`ServeOptions::cross_partition_queries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CrossPartition {
    Merge,
    Auto,
    Plan,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Derives the rest from an option's name and type: its environment variable, and that a boolean is a switch that can
/// be turned off (`--no-tls=false`), because the variable or the file may have turned it on.
fn complete(argument: Arg) -> Arg {
    let is_switch = argument.get_value_parser().type_id() == TypeId::of::<bool>();
    let variable = format!("ORRERY_{}", argument.get_id().as_str().to_uppercase());
    // Clap needs `'static` names. Leaking them is fine: there are a few dozen, created once.
    let argument = argument.env(&*variable.leak());
    if is_switch {
        argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("BOOL")
            .value_parser(BoolishValueParser::new())
    } else {
        argument
    }
}

/// Accepts a single string in the file as a list of one.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(Some(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    }))
}

/// The options from the command line, the environment and the configuration file.
///
/// Most options only need `combined`. A few exclude each other (`--data` and `--in-memory`, `--key` and `--key-file`), and
/// then the more specific source decides between them: an image can set a directory in its environment, and its user can
/// still ask for `--in-memory`.
pub(crate) struct OptionSources {
    /// Flags, and environment variables where there is no flag.
    pub(super) arguments: ServeOptions,
    /// The configuration file.
    pub(super) file: ServeOptions,
    /// The arguments, with the file as fallback.
    pub(super) combined: ServeOptions,
    /// The profile and what it set, for the start-up message.
    pub(super) profile_note: Option<String>,
    /// The options that were given as flags, by field name.
    flags: Vec<String>,
}

impl OptionSources {
    /// `matches` are those of the subcommand that `arguments` were parsed from.
    pub(crate) fn gather(
        arguments: &ServeOptions,
        matches: &ArgMatches,
        config: Option<&Path>,
    ) -> Result<Self, Failure> {
        let file = config.map(read_file).transpose()?.unwrap_or_default();
        // The file first: flags and variables override it.
        let mut combined = file.clone();
        combined.update_from_arg_matches(matches).map_err(Failure::usage)?;
        // The profile last: it sets only what nothing else has set.
        let profile_note = combined.profile.map(|profile| profile.complete(&mut combined));
        let is_flag = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let flags = matches.ids().map(clap::Id::as_str).filter(|id| is_flag(id)).map(str::to_owned).collect();
        Ok(Self { arguments: arguments.clone(), file, combined, profile_note, flags })
    }

    pub(super) fn is_flag(&self, field: &str) -> bool {
        self.flags.iter().any(|flag| flag == field)
    }
}

fn read_file(path: &Path) -> Result<ServeOptions, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("the configuration file {} cannot be read: {error}", path.display()))
    })?;
    toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        // Further lines of the message only quote the file.
        let message = error.message().lines().next().unwrap_or("it is not valid TOML");
        Failure::usage(format!("the configuration file {}, line {line}: {message}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> clap::Command {
        ServeOptions::augment_args(clap::Command::new("serve"))
    }

    #[test]
    fn every_option_has_a_flag_a_variable_and_a_key_in_the_file() {
        let command = command();
        let mut count = 0;
        for argument in command.get_arguments() {
            count += 1;
            let flag = argument.get_long().expect("every option is a flag");
            let field = argument.get_id().as_str();
            assert_eq!(flag, field.replace('_', "-"));
            let variable = argument.get_env().expect("every option has a variable").to_str().unwrap();
            assert_eq!(variable, format!("ORRERY_{}", field.to_uppercase()));
            // A value of the wrong type is fine here, an unknown key is not.
            if let Err(error) = toml::from_str::<ServeOptions>(&format!("{flag} = {{}}")) {
                assert!(!error.message().contains("unknown field"), "{flag}: {error}");
            }
        }
        assert!(count > 30, "{count}");
    }

    #[test]
    fn profiles_fill_in_what_nothing_else_sets() {
        let command = command().mut_args(|argument| argument.env(None));
        let matches = command.get_matches_from(["serve", "--profile", "emulator", "--no-clock-check=false"]);
        let arguments = ServeOptions::from_arg_matches(&matches).unwrap();
        let sources = OptionSources::gather(&arguments, &matches, None).ok().unwrap();
        let options = &sources.combined;
        assert_eq!((options.no_throttle, options.no_clock_check), (Some(true), Some(false)));
        assert_eq!(
            sources.profile_note.as_deref(),
            Some("emulator: no-throttle=true, allow-well-known-key=true, durability=relaxed:100")
        );
    }

    #[test]
    fn switches_can_be_turned_off_again() {
        for (arguments, expected) in [
            (&["serve"][..], None),
            (&["serve", "--no-tls"], Some(true)),
            (&["serve", "--no-tls=false"], Some(false)),
        ] {
            let matches = command().mut_args(|argument| argument.env(None)).get_matches_from(arguments);
            assert_eq!(ServeOptions::from_arg_matches(&matches).unwrap().no_tls, expected, "{arguments:?}");
        }
    }

    #[test]
    fn memory_can_be_turned_off_by_a_more_specific_source() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("orrery.toml");
        fs::write(&file, "in-memory = true\n").unwrap();
        let command = || command().mut_args(|argument| argument.env(None));
        for (flags, is_memory) in
            [(&[][..], true), (&["--in-memory=false"][..], false), (&["--data", "/srv/orrery"][..], false)]
        {
            let matches = command().get_matches_from([&["serve"][..], flags].concat());
            let arguments = ServeOptions::from_arg_matches(&matches).unwrap();
            let sources = OptionSources::gather(&arguments, &matches, Some(&file)).ok().unwrap();
            let settings = sources.resolve().ok().unwrap();
            let found = matches!(settings.storage, crate::serve::settings::StorageSettings::Memory);
            assert_eq!(found, is_memory, "{flags:?}");
        }
    }

    #[test]
    fn arguments_win_over_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("orrery.toml");
        fs::write(&file, "cache-mb = 1\nmemory-mb = 2\ncert-name = \"a\"\nallowed-hosts = [\"b\", \"c\"]\n")
            .unwrap();
        let command = command().mut_args(|argument| argument.env(None));
        let matches = command.get_matches_from(["serve", "--cache-mb", "3", "--allowed-hosts", "d,e"]);
        let arguments = ServeOptions::from_arg_matches(&matches).unwrap();
        let sources = OptionSources::gather(&arguments, &matches, Some(&file)).ok().unwrap();
        let ServeOptions { cache_mb, memory_mb, cert_name, allowed_hosts, .. } = sources.combined.clone();
        assert_eq!((cache_mb, memory_mb), (Some(3), Some(2)));
        assert_eq!(cert_name.unwrap(), ["a"]);
        assert_eq!(allowed_hosts.unwrap(), ["d", "e"]);
        assert!(sources.is_flag("cache_mb") && !sources.is_flag("memory_mb"));
        assert_eq!(sources.file.cache_mb, Some(1));
    }
}
