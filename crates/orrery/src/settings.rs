//! What `serve` was told, from the command line, the environment and the configuration file, checked and with
//! defaults filled in. Plain data: nothing is opened here.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;
use orrery_gateway::CrossPartitionQueries;
use orrery_gateway::auth::MasterKey;
use orrery_gateway::{AccountConsistency, ConsistencyLevel};
use orrery_storage::{Durability, PostgresOptions};
use serde::Deserialize;

use crate::cli::{CrossPartition, Output, ServeArguments};
use crate::failure::Failure;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
const DEFAULT_CACHE_MB: u64 = 64;
const CONNECTIONS_MAX: usize = 10_000;

pub(crate) struct Settings {
    pub(crate) listen: SocketAddr,
    pub(crate) storage: Storage,
    /// What is loaded at start.
    pub(crate) seed: Option<PathBuf>,
    pub(crate) keys: KeySettings,
    pub(crate) tls: Tls,
    pub(crate) connections_max: usize,
    pub(crate) check_clock: bool,
    pub(crate) cross_partition_queries: CrossPartitionQueries,
    pub(crate) limits: Limits,
    pub(crate) consistency: AccountConsistency,
    /// Whether tests may move the clock.
    pub(crate) test_controls: bool,
    pub(crate) output: Output,
}

/// What partitions may hold and do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) throttle: bool,
    /// 1 = as the service has them.
    pub(crate) scale: f64,
    pub(crate) partition_bytes_max: Option<u64>,
    pub(crate) logical_partition_bytes_max: Option<u64>,
    pub(crate) partition_throughput_max: Option<u32>,
    pub(crate) partitions_at_creation: Option<u32>,
    pub(crate) change_feed_retention_minutes: Option<u32>,
}

pub(crate) enum Storage {
    Memory,
    Directory { path: PathBuf, durability: Durability, cache_bytes: u64 },
    Postgres(Box<PostgresOptions>),
}

impl Storage {
    pub(crate) fn directory(&self) -> Option<&Path> {
        match self {
            Self::Memory | Self::Postgres(_) => None,
            Self::Directory { path, .. } => Some(path),
        }
    }
}

pub(crate) struct KeySettings {
    pub(crate) primary: Option<MasterKey>,
    pub(crate) secondary: Option<MasterKey>,
    pub(crate) read_only: Vec<MasterKey>,
    pub(crate) allow_well_known: bool,
}

pub(crate) enum Tls {
    None,
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
    /// A certificate of our own, with these names besides the usual ones.
    Made {
        names: Vec<String>,
    },
}

/// The configuration file. Its names are those of the options.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Configuration {
    listen: Option<String>,
    data: Option<PathBuf>,
    in_memory: Option<bool>,
    seed: Option<PathBuf>,
    store: Option<String>,
    durability: Option<String>,
    cache_mb: Option<u64>,
    key: Option<String>,
    key_file: Option<PathBuf>,
    secondary_key: Option<String>,
    read_only_key: Option<OneOrMany>,
    allow_well_known_key: Option<bool>,
    no_clock_check: Option<bool>,
    cert: Option<PathBuf>,
    cert_key: Option<PathBuf>,
    cert_name: Option<OneOrMany>,
    no_tls: Option<bool>,
    connections_max: Option<usize>,
    default_consistency: Option<String>,
    max_staleness_prefix: Option<u32>,
    max_staleness_seconds: Option<u32>,
    change_feed_retention: Option<u32>,
    no_throttle: Option<bool>,
    cross_partition_queries: Option<CrossPartition>,
    test_controls: Option<bool>,
    limits_scale: Option<f64>,
    partition_bytes_max: Option<u64>,
    logical_partition_bytes_max: Option<u64>,
    partition_throughput_max: Option<u32>,
    partitions_at_creation: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn into_list(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

/// Puts the sources together. `sources` tells which options were on the command line.
pub(crate) fn resolve(arguments: ServeArguments, sources: Option<&ArgMatches>) -> Result<Settings, Failure> {
    let file = match &arguments.config {
        Some(path) => read_file(path)?,
        None => Configuration::default(),
    };
    let storage = resolve_storage(&arguments, &file, sources)?;
    let listen = match arguments.listen.or(file.listen) {
        Some(text) => parse_listen(&text)?,
        None => DEFAULT_LISTEN,
    };
    let no_tls = arguments.no_tls.or(file.no_tls).unwrap_or(false);
    let names = arguments.cert_name.or(file.cert_name.map(OneOrMany::into_list)).unwrap_or_default();
    let tls = match (arguments.cert.or(file.cert), arguments.cert_key.or(file.cert_key)) {
        (None, None) if no_tls => Tls::None,
        _ if no_tls => return Err(Failure::usage("a certificate makes no sense with no-tls: leave one out")),
        (Some(certificate), Some(key)) => Tls::Files { certificate, key },
        (None, None) => Tls::Made { names },
        _ => return Err(Failure::usage("cert and cert-key belong together: one of them is missing")),
    };
    // A key and a file with it may come from different sources; the more specific source wins as a pair.
    let (key, key_file) = match (arguments.key, arguments.key_file) {
        (None, None) => (file.key, file.key_file),
        given => given,
    };
    let primary = match (key, key_file) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage("key and key-file exclude each other: leave one out"));
        }
        (Some(text), None) => Some(parse_key("key", &text)?),
        (None, Some(path)) => Some(read_key_file(&path)?),
        (None, None) => None,
    };
    let secondary = arguments.secondary_key.or(file.secondary_key);
    let read_only = arguments.read_only_key.or(file.read_only_key.map(OneOrMany::into_list));
    let limits = Limits {
        throttle: !arguments.no_throttle.or(file.no_throttle).unwrap_or(false),
        partition_bytes_max: at_least_one(
            "partition-bytes-max",
            arguments.partition_bytes_max.or(file.partition_bytes_max),
        )?,
        logical_partition_bytes_max: at_least_one(
            "logical-partition-bytes-max",
            arguments.logical_partition_bytes_max.or(file.logical_partition_bytes_max),
        )?,
        partition_throughput_max: at_least_one(
            "partition-throughput-max",
            arguments.partition_throughput_max.or(file.partition_throughput_max),
        )?,
        scale: check_scale(arguments.limits_scale.or(file.limits_scale).unwrap_or(1.0))?,
        partitions_at_creation: check_partitions(
            arguments.partitions_at_creation.or(file.partitions_at_creation),
        )?,
        change_feed_retention_minutes: at_least_one(
            "change-feed-retention",
            arguments.change_feed_retention.or(file.change_feed_retention),
        )?,
    };
    let consistency = resolve_consistency(
        arguments.default_consistency.or(file.default_consistency).as_deref(),
        arguments.max_staleness_prefix.or(file.max_staleness_prefix),
        arguments.max_staleness_seconds.or(file.max_staleness_seconds),
    )?;
    let connections_max = match arguments.connections_max.or(file.connections_max) {
        Some(0) => return Err(Failure::usage("connections-max must be at least 1")),
        Some(number) => number.min(1 << 20),
        None => default_connections_max(),
    };
    Ok(Settings {
        listen,
        storage,
        seed: arguments.seed.or(file.seed),
        keys: KeySettings {
            primary,
            secondary: secondary.map(|text| parse_key("secondary-key", &text)).transpose()?,
            read_only: read_only
                .unwrap_or_default()
                .iter()
                .map(|text| parse_key("read-only-key", text))
                .collect::<Result<_, _>>()?,
            allow_well_known: arguments.allow_well_known_key.or(file.allow_well_known_key).unwrap_or(false),
        },
        tls,
        connections_max,
        limits,
        consistency,
        test_controls: arguments.test_controls.or(file.test_controls).unwrap_or(false),
        check_clock: !arguments.no_clock_check.or(file.no_clock_check).unwrap_or(false),
        cross_partition_queries: match arguments.cross_partition_queries.or(file.cross_partition_queries) {
            Some(CrossPartition::Merge) => CrossPartitionQueries::Merge,
            None | Some(CrossPartition::Auto) => CrossPartitionQueries::Auto,
            Some(CrossPartition::Plan) => CrossPartitionQueries::Plan,
        },
        output: arguments.output,
    })
}

fn resolve_consistency(
    level: Option<&str>,
    prefix: Option<u32>,
    seconds: Option<u32>,
) -> Result<AccountConsistency, Failure> {
    let default = AccountConsistency::default();
    let level = match level {
        None => default.level,
        Some(text) => ConsistencyLevel::parse(text).ok_or_else(|| {
            Failure::usage(format!(
                "default-consistency \"{text}\" is none of strong, bounded-staleness, session, consistent-prefix and eventual"
            ))
        })?,
    };
    if level != ConsistencyLevel::BoundedStaleness && (prefix.is_some() || seconds.is_some()) {
        return Err(Failure::usage(
            "max-staleness-prefix and max-staleness-seconds belong to the default consistency bounded-staleness",
        ));
    }
    let max_staleness_prefix = prefix.unwrap_or(default.max_staleness_prefix);
    let max_staleness_seconds = seconds.unwrap_or(default.max_staleness_seconds);
    if max_staleness_prefix < 10 || max_staleness_prefix > i32::MAX.unsigned_abs() {
        return Err(Failure::usage("max-staleness-prefix must be 10 to 2147483647"));
    }
    if !(5..=86_400).contains(&max_staleness_seconds) {
        return Err(Failure::usage("max-staleness-seconds must be 5 to 86400"));
    }
    Ok(AccountConsistency { level, max_staleness_prefix, max_staleness_seconds })
}

/// What one source says of where data is kept.
struct Layer<'a> {
    in_memory: Option<bool>,
    data: Option<&'a PathBuf>,
    store: Option<&'a String>,
}

/// Memory, a directory or PostgreSQL: the source that is more specific and speaks of either decides. So a container image
/// can name a directory in its environment, and its user can still ask for `--in-memory`.
fn resolve_storage(
    arguments: &ServeArguments,
    file: &Configuration,
    sources: Option<&ArgMatches>,
) -> Result<Storage, Failure> {
    let is_flag =
        |name: &str| sources.and_then(|matches| matches.value_source(name)) == Some(ValueSource::CommandLine);
    let in_argument = |wanted: bool, name: &str| wanted == is_flag(name);
    let layer = |flag: bool| Layer {
        in_memory: arguments.in_memory.filter(|_| in_argument(flag, "in_memory")),
        data: arguments.data.as_ref().filter(|_| in_argument(flag, "data")),
        store: arguments.store.as_ref().filter(|_| in_argument(flag, "store")),
    };
    let in_file = Layer { in_memory: file.in_memory, data: file.data.as_ref(), store: file.store.as_ref() };
    let mut path = None;
    for Layer { in_memory, data, store } in [layer(true), layer(false), in_file] {
        match (in_memory, data, store) {
            (Some(true), Some(_), _) => {
                return Err(Failure::usage("data and in-memory exclude each other: leave one out"));
            }
            (Some(true), _, Some(_)) | (_, Some(_), Some(_)) => {
                return Err(Failure::usage("store excludes data and in-memory: leave one out"));
            }
            (Some(true), None, None) => return Ok(Storage::Memory),
            (_, None, Some(url)) => {
                let options = PostgresOptions::parse(url).map_err(Failure::usage)?;
                return Ok(Storage::Postgres(Box::new(options)));
            }
            (_, Some(data), None) => {
                path = Some(data.clone());
                break;
            }
            _ => {}
        }
    }
    let path = match path {
        Some(path) if path.as_os_str().is_empty() => return Err(Failure::usage("data names no directory")),
        Some(path) => path,
        None => default_directory()?,
    };
    let durability = match arguments.durability.as_ref().or(file.durability.as_ref()) {
        Some(text) => parse_durability(text)?,
        None => Durability::Always,
    };
    let cache_mb = arguments.cache_mb.or(file.cache_mb).unwrap_or(DEFAULT_CACHE_MB);
    Ok(Storage::Directory { path, durability, cache_bytes: cache_mb.saturating_mul(1 << 20) })
}

fn at_least_one<N: PartialEq + From<u8>>(name: &str, number: Option<N>) -> Result<Option<N>, Failure> {
    if number == Some(N::from(0)) {
        return Err(Failure::usage(format!("{name} must be at least 1")));
    }
    Ok(number)
}

fn read_file(path: &Path) -> Result<Configuration, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("the configuration file {} cannot be read: {error}", path.display()))
    })?;
    toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        // Some messages span lines; what follows the first only quotes the file.
        let message = error.message().lines().next().unwrap_or("it is not valid TOML");
        Failure::usage(format!("the configuration file {}, line {line}: {message}", path.display()))
    })
}

fn parse_listen(text: &str) -> Result<SocketAddr, Failure> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    let port = port.parse().map_err(|_| {
        Failure::usage(format!(
            "listen \"{text}\" is neither an address with a port, like 127.0.0.1:8081, nor a port"
        ))
    })?;
    Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))
}

fn parse_durability(text: &str) -> Result<Durability, Failure> {
    let wrong = || {
        Failure::usage(format!("durability \"{text}\" is neither always nor relaxed:MS, like relaxed:100"))
    };
    match text.split_once(':') {
        None if text == "always" => Ok(Durability::Always),
        Some(("relaxed", milliseconds)) => match milliseconds.parse() {
            Ok(interval_ms @ 1..=60_000) => Ok(Durability::Relaxed { interval_ms }),
            Ok(_) => Err(Failure::usage("durability: the milliseconds of relaxed must be 1 to 60000")),
            Err(_) => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

/// The message names the option, never what was given for it.
fn parse_key(option: &str, text: &str) -> Result<MasterKey, Failure> {
    MasterKey::parse(text).map_err(|error| Failure::usage(format!("{option}: {error}")))
}

fn read_key_file(path: &Path) -> Result<MasterKey, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("the key file {} cannot be read: {error}", path.display()))
    })?;
    MasterKey::parse(&text)
        .map_err(|error| Failure::usage(format!("the key file {}: {error}", path.display())))
}

/// Where programs of this system keep a user's data.
fn default_directory() -> Result<PathBuf, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        variable("HOME").map(|home| home.join("Library/Application Support"))
    } else {
        // The specification of XDG tells to ignore relative paths.
        let xdg = variable("XDG_DATA_HOME").filter(|path| path.is_absolute());
        xdg.or_else(|| variable("HOME").map(|home| home.join(".local/share")))
    };
    let base = base.ok_or_else(|| {
        Failure::usage("there is no home directory to keep data in: name one with --data, or use --in-memory")
    })?;
    Ok(base.join("orrery"))
}

/// Half of the files that this process may have open, so that the store never runs out of them.
fn check_scale(scale: f64) -> Result<f64, Failure> {
    if scale.is_finite() && scale > 0.0 && scale <= 1000.0 {
        return Ok(scale);
    }
    Err(Failure::usage(format!("limits-scale must be above 0 and at most 1000, not {scale}")))
}

fn check_partitions(count: Option<u32>) -> Result<Option<u32>, Failure> {
    match count {
        Some(count) if !(1..=1000).contains(&count) => {
            Err(Failure::usage(format!("partitions-at-creation must be between 1 and 1000, not {count}")))
        }
        count => Ok(count),
    }
}

fn default_connections_max() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let open_files = limits.lines().find_map(|line| {
        let soft = line.strip_prefix("Max open files")?.split_whitespace().next()?;
        if soft == "unlimited" { Some(usize::MAX) } else { soft.parse().ok() }
    });
    (open_files.unwrap_or(1024) / 2).clamp(16, CONNECTIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T>(result: Result<T, Failure>) -> String {
        match result {
            Ok(_) => panic!("it must fail"),
            Err(failure) => {
                assert_eq!(failure.exit_code, 2);
                failure.message.unwrap()
            }
        }
    }

    #[test]
    fn listen_takes_addresses_and_ports() {
        for (text, expected) in [
            ("127.0.0.1:8081", "127.0.0.1:8081"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:9000", "[::1]:9000"),
            ("8082", "127.0.0.1:8082"),
            (":8083", "127.0.0.1:8083"),
            ("localhost:0", "127.0.0.1:0"),
        ] {
            assert_eq!(parse_listen(text).ok().unwrap().to_string(), expected);
        }
        for text in ["", "somewhere", "127.0.0.1", "127.0.0.1:99999", "::1"] {
            assert!(message(parse_listen(text)).contains("listen"), "{text}");
        }
    }

    #[test]
    fn durability_has_two_forms() {
        assert_eq!(parse_durability("always").ok(), Some(Durability::Always));
        assert_eq!(parse_durability("relaxed:250").ok(), Some(Durability::Relaxed { interval_ms: 250 }));
        for text in
            ["", "never", "relaxed", "relaxed:", "relaxed:0", "relaxed:-1", "relaxed:x", "relaxed:60001"]
        {
            assert!(message(parse_durability(text)).contains("durability"), "{text}");
        }
    }

    #[test]
    fn key_errors_do_not_repeat_the_key() {
        let message = message(parse_key("key", "c2VjcmV0"));
        assert!(message.starts_with("key: ") && !message.contains("c2VjcmV0"), "{message}");
    }
}
