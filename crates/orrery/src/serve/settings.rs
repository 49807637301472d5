//! The server's settings: the options, validated and with defaults filled in. Plain data; only key files are opened
//! here.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use orrery_gateway::CrossPartitionQueries;
use orrery_gateway::auth::MasterKey;
use orrery_gateway::memory::default_budget_bytes;
use orrery_gateway::transport::certificate::TlsPolicy;
use orrery_gateway::{AccountConsistency, ConsistencyLevel};
use orrery_storage::{Durability, PostgresOptions};

use super::log_file::RotationPolicy;
use super::options::{CrossPartition, LogFormat, OptionSources, Profile};
use crate::failure::Failure;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
const DEFAULT_CACHE_MB: u64 = 64;
const DEFAULT_DISK_RESERVE_MB: u64 = 64;
const DEFAULT_CONNECTIONS_MAX: usize = 10_000;
const DEFAULT_DRAIN_SECONDS: u32 = 10;
const DEFAULT_LOG_FILE_MB: u64 = 100;
const DEFAULT_LOG_FILES: u32 = 5;

/// Everything that `serve` needs to know to start.
pub(crate) struct Settings {
    /// At least one. The first one is announced, and direct mode is served there.
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) storage: StorageSettings,
    /// The directory of seed data to load on start.
    pub(crate) seed: Option<PathBuf>,
    /// Containers to create on start.
    pub(crate) containers: Vec<ListedContainer>,
    /// The profile and what it set, for the start-up message.
    pub(crate) profile: Option<String>,
    pub(crate) keys: KeySettings,
    pub(crate) tls: TlsSettings,
    pub(crate) tls_policy: TlsPolicy,
    pub(crate) log: LogSettings,
    /// Requests that take at least this long are logged.
    pub(crate) slow_request: Option<Duration>,
    /// None if direct mode is not served.
    pub(crate) direct: Option<PortSettings>,
    /// None if Gateway 2.0 is not served.
    pub(crate) gateway_v2: Option<PortSettings>,
    pub(crate) connections_max: usize,
    /// Host names to accept besides those of loopback.
    pub(crate) allowed_hosts: Vec<String>,
    /// Origins of web pages that may send requests besides the server's own.
    pub(crate) allowed_origins: Vec<String>,
    /// How long requests in flight may take to finish when the server stops.
    pub(crate) drain: Duration,
    /// The memory budget of all requests together.
    pub(crate) memory_bytes: u64,
    pub(crate) check_clock: bool,
    pub(crate) cross_partition_queries: CrossPartitionQueries,
    /// The address in the account document, with a trailing slash; by default the one that the client used.
    pub(crate) advertised: Option<String>,
    pub(crate) limits: PartitionLimits,
    pub(crate) consistency: AccountConsistency,
    /// Whether tests may move the clock and inject faults.
    pub(crate) test_controls: bool,
}

/// The form and the place of the log.
pub(crate) struct LogSettings {
    pub(crate) format: LogFormat,
    /// Standard error without one.
    pub(crate) file: Option<(PathBuf, RotationPolicy)>,
}

/// A port besides the gateway's own: that of direct mode, or of Gateway 2.0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortSettings {
    /// The configured port; chosen automatically if there is none.
    pub(crate) port: Option<u16>,
    /// The host that clients get instead of the one that they used.
    pub(crate) advertised: Option<String>,
}

/// How large and how busy partitions may become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionLimits {
    pub(crate) throttle: bool,
    /// Factor for the service's limits; 1 keeps them.
    pub(crate) scale: f64,
    /// Factor for the service's limits on changes of the account's resources; `None` = no such limits.
    pub(crate) account_scale: Option<f64>,
    pub(crate) partition_bytes_max: Option<u64>,
    pub(crate) logical_partition_bytes_max: Option<u64>,
    pub(crate) partition_throughput_max: Option<u32>,
    pub(crate) partitions_at_creation: Option<u32>,
    pub(crate) change_feed_retention_minutes: Option<u32>,
    /// Whether unknown properties of containers and offers are kept, without effect.
    pub(crate) lenient: bool,
}

/// Where data is stored.
pub(crate) enum StorageSettings {
    Memory,
    Directory {
        path: PathBuf,
        durability: Durability,
        cache_bytes: u64,
        disk_reserve_bytes: u64,
        keep_log: Duration,
    },
    Postgres(Box<PostgresOptions>),
}

impl StorageSettings {
    /// The data directory, which also holds keys and certificates; none if the data is elsewhere.
    pub(crate) fn directory(&self) -> Option<&Path> {
        match self {
            Self::Memory | Self::Postgres(_) => None,
            Self::Directory { path, .. } => Some(path),
        }
    }
}

/// The keys given by the user.
pub(crate) struct KeySettings {
    pub(crate) primary: Option<MasterKey>,
    pub(crate) secondary: Option<MasterKey>,
    pub(crate) read_only: Vec<MasterKey>,
    pub(crate) well_known: WellKnownKey,
}

/// On which addresses the emulator's well-known key is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WellKnownKey {
    Everywhere,
    OnLoopback,
    Nowhere,
}

/// A container to create on start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ListedContainer {
    pub(crate) database: String,
    pub(crate) id: String,
    /// The paths of its partition key.
    pub(crate) paths: Vec<String>,
}

impl ListedContainer {
    /// Parses `DATABASE/CONTAINER:/PATH`, with any number of paths.
    fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = || {
            Failure::usage(format!(
                "containers must be DATABASE/CONTAINER:/PARTITION/KEY, such as shop/orders:/customer, but got `{text}`"
            ))
        };
        let mut parts = text.trim().split(':');
        let (database, id) = parts.next().and_then(|place| place.split_once('/')).ok_or_else(wrong)?;
        let mut paths: Vec<String> = parts.map(str::to_owned).collect();
        if database.is_empty()
            || id.is_empty()
            || id.contains('/')
            || paths.iter().any(|path| !path.starts_with('/'))
        {
            return Err(wrong());
        }
        // Every item has an id, so this key fits any data.
        if paths.is_empty() {
            paths.push("/id".to_owned());
        }
        Ok(Self { database: database.to_owned(), id: id.to_owned(), paths })
    }
}

/// Whether and with which certificate TLS is served.
pub(crate) enum TlsSettings {
    Off,
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
    /// A certificate of our own, with these names besides the usual ones.
    Generated {
        names: Vec<String>,
    },
}

impl OptionSources {
    /// Checks the options and fills in the defaults.
    pub(crate) fn resolve(self) -> Result<Settings, Failure> {
        let storage = self.storage()?;
        let primary = self.primary_key()?;
        let options = self.combined;
        let limits = PartitionLimits {
            throttle: !options.no_throttle.unwrap_or(false),
            partition_bytes_max: at_least_one("partition-bytes-max", options.partition_bytes_max)?,
            logical_partition_bytes_max: at_least_one(
                "logical-partition-bytes-max",
                options.logical_partition_bytes_max,
            )?,
            partition_throughput_max: at_least_one(
                "partition-throughput-max",
                options.partition_throughput_max,
            )?,
            scale: check_scale(options.limits_scale.unwrap_or(1.0))?,
            account_scale: check_account_scale(options.account_limits.unwrap_or(0.0))?,
            partitions_at_creation: check_partitions(options.partitions_at_creation)?,
            change_feed_retention_minutes: at_least_one(
                "change-feed-retention",
                options.change_feed_retention,
            )?,
            lenient: options.lenient.unwrap_or(false),
        };
        let tls = resolve_tls(
            options.no_tls.unwrap_or(false),
            options.cert,
            options.cert_key,
            options.cert_name.unwrap_or_default(),
        )?;
        Ok(Settings {
            direct: resolve_direct(
                options.no_direct.unwrap_or(false),
                options.direct_port,
                options.direct_advertise,
                &tls,
            )?,
            gateway_v2: resolve_gateway_v2(
                options.gateway_v2,
                options.gateway_v2_port,
                options.gateway_v2_advertise,
            )?,
            listen: resolve_listen(&options.listen.unwrap_or_default())?,
            storage,
            seed: options.seed,
            containers: options
                .containers
                .unwrap_or_default()
                .iter()
                .map(|text| ListedContainer::parse(text))
                .collect::<Result<_, _>>()?,
            profile: self.profile_note,
            keys: KeySettings {
                primary,
                secondary: options.secondary_key.map(|text| parse_key("secondary-key", &text)).transpose()?,
                read_only: options
                    .read_only_key
                    .unwrap_or_default()
                    .iter()
                    .map(|text| parse_key("read-only-key", text))
                    .collect::<Result<_, _>>()?,
                well_known: match options.profile {
                    // The option itself overrides the profile.
                    _ if options.allow_well_known_key == Some(true) => WellKnownKey::Everywhere,
                    Some(Profile::Production) => WellKnownKey::Nowhere,
                    _ => WellKnownKey::OnLoopback,
                },
            },
            tls_policy: resolve_tls_policy(options.tls_min.as_deref(), options.client_ca, &tls)?,
            log: resolve_log(options.log_format, options.log_file, options.log_file_mb, options.log_files)?,
            slow_request: options.slow_request_ms.map(Duration::from_millis),
            tls,
            connections_max: match options.connections_max {
                Some(0) => return Err(Failure::usage("connections-max must be at least 1")),
                Some(number) => number.min(1 << 20),
                None => default_connections_max(),
            },
            allowed_hosts: options.allowed_hosts.unwrap_or_default(),
            allowed_origins: options.allowed_origins.unwrap_or_default(),
            drain: parse_drain(options.drain_seconds)?,
            memory_bytes: options
                .memory_mb
                .map_or_else(default_budget_bytes, |megabytes| megabytes.saturating_mul(1 << 20)),
            limits,
            consistency: resolve_consistency(
                options.default_consistency.as_deref(),
                options.max_staleness_prefix,
                options.max_staleness_seconds,
            )?,
            test_controls: options.test_controls.unwrap_or(false),
            advertised: options.advertise.as_deref().map(parse_advertised).transpose()?,
            check_clock: !options.no_clock_check.unwrap_or(false),
            cross_partition_queries: match options.cross_partition_queries {
                Some(CrossPartition::Merge) => CrossPartitionQueries::Merge,
                None | Some(CrossPartition::Auto) => CrossPartitionQueries::Auto,
                Some(CrossPartition::Plan) => CrossPartitionQueries::Plan,
            },
        })
    }

    /// Memory, a directory or PostgreSQL: the most specific source that mentions any of them decides.
    fn storage(&self) -> Result<StorageSettings, Failure> {
        // Clap has merged flags and variables; here they are told apart again.
        let arguments = |flags: bool| StorageChoice {
            in_memory: self.arguments.in_memory.filter(|_| flags == self.is_flag("in_memory")),
            data: self.arguments.data.as_ref().filter(|_| flags == self.is_flag("data")),
            store: self.arguments.store.as_ref().filter(|_| flags == self.is_flag("store")),
        };
        let file = StorageChoice {
            in_memory: self.file.in_memory,
            data: self.file.data.as_ref(),
            store: self.file.store.as_ref(),
        };
        let mut path = None;
        let mut memory_is_off = false;
        // Flags, then variables, then the file.
        for StorageChoice { in_memory, data, store } in [arguments(true), arguments(false), file] {
            // `--in-memory=false` overrides what a variable or the file says.
            memory_is_off |= in_memory == Some(false);
            let in_memory = in_memory.filter(|_| !memory_is_off);
            match (in_memory, data, store) {
                (Some(true), Some(_), _) => {
                    return Err(Failure::usage("data and in-memory are mutually exclusive: remove one"));
                }
                (Some(true), _, Some(_)) | (_, Some(_), Some(_)) => {
                    return Err(Failure::usage(
                        "store cannot be combined with data or in-memory: remove one",
                    ));
                }
                (Some(true), None, None) => return Ok(StorageSettings::Memory),
                (_, None, Some(url)) => {
                    let options = PostgresOptions::parse(url).map_err(Failure::usage)?;
                    return Ok(StorageSettings::Postgres(Box::new(options)));
                }
                (_, Some(data), None) => {
                    path = Some(data.clone());
                    break;
                }
                _ => {}
            }
        }
        let path = match path {
            Some(path) if path.as_os_str().is_empty() => {
                return Err(Failure::usage("data is empty: expected the name of a directory"));
            }
            Some(path) => path,
            None => default_directory()?,
        };
        let options = &self.combined;
        Ok(StorageSettings::Directory {
            path,
            durability: options.durability.as_deref().map_or(Ok(Durability::Always), parse_durability)?,
            cache_bytes: options.cache_mb.unwrap_or(DEFAULT_CACHE_MB).saturating_mul(1 << 20),
            disk_reserve_bytes: options
                .disk_reserve_mb
                .unwrap_or(DEFAULT_DISK_RESERVE_MB)
                .saturating_mul(1 << 20),
            keep_log: options.keep_log.as_deref().map_or(Ok(Duration::ZERO), parse_keep_log)?,
        })
    }

    /// The account key, or the file that holds it. Arguments that give either override both of the file.
    fn primary_key(&self) -> Result<Option<MasterKey>, Failure> {
        let source = match (&self.arguments.key, &self.arguments.key_file) {
            (None, None) => &self.file,
            _ => &self.arguments,
        };
        match (&source.key, &source.key_file) {
            (Some(_), Some(_)) => Err(Failure::usage("key and key-file are mutually exclusive: remove one")),
            (Some(text), None) => parse_key("key", text).map(Some),
            (None, Some(path)) => read_key_file(path).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// What one source says about where data is stored.
struct StorageChoice<'a> {
    in_memory: Option<bool>,
    data: Option<&'a PathBuf>,
    store: Option<&'a String>,
}

/// A duration such as 90m, 24h or 7d.
fn parse_keep_log(text: &str) -> Result<Duration, Failure> {
    let unit = text.chars().last().and_then(|unit| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3600),
        'd' => Some(86_400),
        _ => None,
    });
    // The unit is one ASCII character.
    let number = unit.and_then(|_| text[..text.len() - 1].parse::<u64>().ok());
    match (number, unit) {
        (Some(number), Some(unit)) => Ok(Duration::from_secs(number.saturating_mul(unit))),
        _ => Err(Failure::usage(format!(
            "keep-log is {text}: expected a number and a unit, such as 90m, 24h or 7d"
        ))),
    }
}

fn resolve_tls(
    no_tls: bool,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    names: Vec<String>,
) -> Result<TlsSettings, Failure> {
    match (certificate, key) {
        (None, None) if no_tls => Ok(TlsSettings::Off),
        _ if no_tls => Err(Failure::usage("cert and cert-key cannot be combined with no-tls: remove one")),
        (Some(certificate), Some(key)) => Ok(TlsSettings::Files { certificate, key }),
        (None, None) => Ok(TlsSettings::Generated { names }),
        _ => Err(Failure::usage("cert and cert-key belong together: one of them is missing")),
    }
}

fn resolve_tls_policy(
    least: Option<&str>,
    client_authorities: Option<PathBuf>,
    tls: &TlsSettings,
) -> Result<TlsPolicy, Failure> {
    if matches!(tls, TlsSettings::Off) && (least.is_some() || client_authorities.is_some()) {
        return Err(Failure::usage("tls-min and client-ca cannot be combined with no-tls: remove one"));
    }
    let only_tls13 = match least {
        None | Some("1.2") => false,
        Some("1.3") => true,
        Some(other) => {
            return Err(Failure::usage(format!("tls-min must be 1.2 or 1.3, but got `{other}`")));
        }
    };
    Ok(TlsPolicy { only_tls13, client_authorities })
}

fn resolve_direct(
    no_direct: bool,
    port: Option<u16>,
    advertised: Option<String>,
    tls: &TlsSettings,
) -> Result<Option<PortSettings>, Failure> {
    let is_asked_for = port.is_some() || advertised.is_some();
    if no_direct && is_asked_for {
        return Err(Failure::usage(
            "direct-port and direct-advertise cannot be combined with no-direct: remove one",
        ));
    }
    if matches!(tls, TlsSettings::Off) {
        if is_asked_for {
            return Err(Failure::usage(
                "direct mode requires TLS: remove no-tls, or direct-port and direct-advertise",
            ));
        }
        // Without TLS direct mode is off, which is an error only if it was asked for.
        return Ok(None);
    }
    check_advertised("direct-advertise", advertised.as_deref())?;
    Ok((!no_direct).then_some(PortSettings { port, advertised }))
}

fn resolve_gateway_v2(
    is_on: Option<bool>,
    port: Option<u16>,
    advertised: Option<String>,
) -> Result<Option<PortSettings>, Failure> {
    let is_asked_for = port.is_some() || advertised.is_some();
    if is_on != Some(true) {
        return if is_asked_for {
            Err(Failure::usage("gateway-v2-port and gateway-v2-advertise require gateway-v2"))
        } else {
            Ok(None)
        };
    }
    check_advertised("gateway-v2-advertise", advertised.as_deref())?;
    Ok(Some(PortSettings { port, advertised }))
}

fn check_advertised(option: &str, host: Option<&str>) -> Result<(), Failure> {
    let Some(host) = host else { return Ok(()) };
    // The same characters as in the authority of a URL.
    let is_host = !host.is_empty() && host.parse::<http::uri::Authority>().is_ok() && !host.contains('@');
    if is_host {
        return Ok(());
    }
    Err(Failure::usage(format!("{option} must be a host, with or without a port, but got `{host}`")))
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
                "default-consistency must be strong, bounded-staleness, session, consistent-prefix or eventual, but got `{text}`"
            ))
        })?,
    };
    // Without that level they would be ignored, which is most likely a mistake.
    if level != ConsistencyLevel::BoundedStaleness && (prefix.is_some() || seconds.is_some()) {
        return Err(Failure::usage(
            "max-staleness-prefix and max-staleness-seconds need the default consistency bounded-staleness",
        ));
    }
    let max_staleness_prefix = prefix.unwrap_or(default.max_staleness_prefix);
    let max_staleness_seconds = seconds.unwrap_or(default.max_staleness_seconds);
    // The bounds that the service has for one region.
    if max_staleness_prefix < 10 || max_staleness_prefix > i32::MAX.unsigned_abs() {
        return Err(Failure::usage("max-staleness-prefix must be between 10 and 2147483647"));
    }
    if !(5..=86_400).contains(&max_staleness_seconds) {
        return Err(Failure::usage("max-staleness-seconds must be between 5 and 86400"));
    }
    Ok(AccountConsistency { level, max_staleness_prefix, max_staleness_seconds })
}

fn at_least_one<N: PartialEq + From<u8>>(name: &str, number: Option<N>) -> Result<Option<N>, Failure> {
    if number == Some(N::from(0)) {
        return Err(Failure::usage(format!("{name} must be at least 1")));
    }
    Ok(number)
}

fn resolve_listen(texts: &[String]) -> Result<Vec<SocketAddr>, Failure> {
    let mut all = texts.iter().map(|text| parse_listen(text)).collect::<Result<Vec<_>, _>>()?;
    if all.is_empty() {
        all.push(DEFAULT_LISTEN);
    }
    Ok(all)
}

fn resolve_log(
    format: Option<LogFormat>,
    file: Option<PathBuf>,
    megabytes: Option<u64>,
    files: Option<u32>,
) -> Result<LogSettings, Failure> {
    // Likewise, without a file these would have no effect.
    if file.is_none() && (megabytes.is_some() || files.is_some()) {
        return Err(Failure::usage("log-file-mb and log-files need log-file"));
    }
    let megabytes = at_least_one("log-file-mb", megabytes)?.unwrap_or(DEFAULT_LOG_FILE_MB);
    let files = files.unwrap_or(DEFAULT_LOG_FILES);
    if files > 100 {
        return Err(Failure::usage(format!("log-files must be between 0 and 100, but got {files}")));
    }
    Ok(LogSettings {
        format: format.unwrap_or(LogFormat::Text),
        file: file.map(|path| (path, RotationPolicy { bytes_max: megabytes.saturating_mul(1 << 20), files })),
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
            "listen must be an address with a port, such as 127.0.0.1:8081, or a port, but got `{text}`"
        ))
    })?;
    // A port alone means loopback, so that nothing is exposed by accident.
    Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))
}

fn parse_drain(seconds: Option<u32>) -> Result<Duration, Failure> {
    match seconds.unwrap_or(DEFAULT_DRAIN_SECONDS) {
        seconds @ 0..=3600 => Ok(Duration::from_secs(seconds.into())),
        _ => Err(Failure::usage("drain-seconds must be between 0 and 3600")),
    }
}

fn parse_durability(text: &str) -> Result<Durability, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "durability must be always or relaxed:MS, such as relaxed:100, but got `{text}`"
        ))
    };
    match text.split_once(':') {
        None if text == "always" => Ok(Durability::Always),
        Some(("relaxed", milliseconds)) => match milliseconds.parse() {
            Ok(interval_ms @ 1..=60_000) => Ok(Durability::Relaxed { interval_ms }),
            Ok(_) => {
                Err(Failure::usage("durability: the milliseconds of relaxed must be between 1 and 60000"))
            }
            Err(_) => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

/// The message names the option and never quotes the key.
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

/// The directory for a user's data by the conventions of this system.
fn default_directory() -> Result<PathBuf, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        variable("HOME").map(|home| home.join("Library/Application Support"))
    } else {
        // The XDG specification says to ignore relative paths.
        let xdg = variable("XDG_DATA_HOME").filter(|path| path.is_absolute());
        xdg.or_else(|| variable("HOME").map(|home| home.join(".local/share")))
    };
    let base = base.ok_or_else(|| {
        Failure::usage("there is no home directory to store data in: pass --data DIRECTORY or --in-memory")
    })?;
    Ok(base.join("orrery"))
}

/// An address that clients can connect to: scheme, host and optionally a port, without a path.
fn parse_advertised(text: &str) -> Result<String, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "advertise must be an address such as https://localhost:9000/, but got {text}"
        ))
    };
    let uri: http::Uri = text.parse().map_err(|_| wrong())?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority =
        uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(wrong)?;
    // Clients append their own paths, so one that is given here would be lost.
    if !is_http || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(wrong());
    }
    Ok(format!("{}://{authority}/", uri.scheme_str().unwrap_or("https")))
}

fn check_account_scale(scale: f64) -> Result<Option<f64>, Failure> {
    if scale.is_finite() && (0.0..=1000.0).contains(&scale) {
        // 0 stands for no limits of the account.
        return Ok(Some(scale).filter(|scale| *scale > 0.0));
    }
    Err(Failure::usage(format!("account-limits must be 0 to 1000, but got {scale}")))
}

fn check_scale(scale: f64) -> Result<f64, Failure> {
    if scale.is_finite() && scale > 0.0 && scale <= 1000.0 {
        return Ok(scale);
    }
    Err(Failure::usage(format!("limits-scale must be above 0 and at most 1000, but got {scale}")))
}

fn check_partitions(count: Option<u32>) -> Result<Option<u32>, Failure> {
    match count {
        Some(count) if !(1..=1000).contains(&count) => {
            Err(Failure::usage(format!("partitions-at-creation must be between 1 and 1000, but got {count}")))
        }
        count => Ok(count),
    }
}

/// Half of this process's limit of open files, so that the store never runs out of them.
fn default_connections_max() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let open_files = limits.lines().find_map(|line| {
        let soft = line.strip_prefix("Max open files")?.split_whitespace().next()?;
        if soft == "unlimited" { Some(usize::MAX) } else { soft.parse().ok() }
    });
    // The usual limit, where the system does not tell.
    (open_files.unwrap_or(1024) / 2).clamp(16, DEFAULT_CONNECTIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T>(result: Result<T, Failure>) -> String {
        match result {
            Ok(_) => panic!("it should fail"),
            Err(failure) => {
                assert_eq!(failure.exit_code, 2);
                failure.message.unwrap()
            }
        }
    }

    #[test]
    fn advertised_addresses_have_a_scheme_and_a_host_and_nothing_behind() {
        for (text, expected) in [
            ("https://localhost:9000", "https://localhost:9000/"),
            ("http://db.example.com/", "http://db.example.com/"),
        ] {
            assert_eq!(parse_advertised(text).ok().unwrap(), expected);
        }
        for text in ["", "localhost:9000", "ftp://localhost", "https://localhost/path", "https://a@localhost"]
        {
            assert!(message(parse_advertised(text)).contains("advertise must be"), "{text}");
        }
    }

    #[test]
    fn listen_accepts_addresses_and_ports() {
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
    fn listed_containers_name_their_key() {
        let parse = |text: &str| {
            let container = ListedContainer::parse(text).ok().unwrap();
            format!("{} {} {}", container.database, container.id, container.paths.join(" "))
        };
        assert_eq!(parse("shop/orders:/customer"), "shop orders /customer");
        assert_eq!(parse(" a/b:/x/y:/z"), "a b /x/y /z");
        assert_eq!(parse("a/b"), "a b /id");
        for text in ["", "a", "a/", "/b:/c", "a/b:c", "a/b/c:/d", "a/b:"] {
            assert!(message(ListedContainer::parse(text)).contains("shop/orders:/customer"), "{text}");
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
    fn key_errors_do_not_quote_the_key() {
        let message = message(parse_key("key", "c2VjcmV0"));
        assert!(message.starts_with("key: ") && !message.contains("c2VjcmV0"), "{message}");
    }
}
