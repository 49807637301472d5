//! Parses the connection URL: libpq's syntax plus parameters of our own.
//!
//! `postgres://user:password@host:5432/database?sslmode=verify-full&application_name=orrery-1`. Orrery itself handles
//! `schema`, `pool_max`, `shards`, `grouping`, `sslrootcert` and the two verifying modes of `sslmode`; the client
//! library handles the rest. No message repeats the URL, because it may contain a password.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orrery_env::{Env, SystemEnv};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::contract::Limits;

/// Connection settings and timeouts of a PostgreSQL store.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Where the store's name among the writers comes from.
    pub env: Arc<dyn Env>,
    pub limits: Limits,
    /// The schema that holds the tables.
    pub schema: String,
    /// Maximum connections per cluster node for reads and writes; up to as many again are used for snapshots.
    pub connections_max: usize,
    /// Shard count of new tables on Citus; ignored elsewhere.
    pub shards: u32,
    /// Most operations of one partition per transaction. 1 = no grouping, which exists only for benchmarks.
    pub group_operations_max: usize,
    /// How long a commit is retried before it fails.
    pub commit_timeout: Duration,
    /// How long to try to resolve a commit in doubt. Longer than a failover takes.
    pub resolve_timeout: Duration,
    /// How long to wait for one reply. Longer than the server's own timeouts, so that it only catches a server that has
    /// gone silent.
    pub reply_timeout: Duration,
    /// How often a waiting reader polls for LSNs that other processes have assigned.
    pub poll_interval: Duration,
    pub(super) config: Config,
    pub(super) tls: TlsChoice,
}

impl fmt::Debug for PostgresOptions {
    /// What tells stores apart, without the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hosts, schema) = (self.config.get_hosts(), &self.schema);
        formatter
            .debug_struct("PostgresOptions")
            .field("hosts", &hosts)
            .field("schema", schema)
            .finish_non_exhaustive()
    }
}

/// How strictly the server's certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsChoice {
    pub mode: Verify,
    pub root_certificates: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verify {
    /// No encryption.
    Disabled,
    /// Encryption without verification: protects against eavesdropping only.
    Nothing,
    /// Signed by a trusted authority, for any host name.
    Authority,
    Full,
}

/// The connection URL is malformed or has an invalid parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store URL is not valid: {0}")]
pub struct InvalidStoreUrl(String);

/// The server ends the transaction of a client that has gone silent, which releases its locks.
const IDLE_IN_TRANSACTION_MS: u32 = 5_000;
const LOCK_TIMEOUT_MS: u32 = 3_000;
const STATEMENT_TIMEOUT_MS: u32 = 10_000;

impl PostgresOptions {
    /// Parses a URL that starts with `postgres://` or `postgresql://`.
    pub fn parse(url: &str) -> Result<Self, InvalidStoreUrl> {
        let invalid = |text: String| InvalidStoreUrl(text);
        if !is_store_url(url) {
            return Err(invalid("it does not start with postgres:// or postgresql://".to_owned()));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        // Parameters that are ours are taken out; the client library would reject them.
        let mut theirs = Vec::new();
        let (mut mode, mut root_certificates) = (None, None);
        let (mut schema, mut connections_max) = ("orrery".to_owned(), 16);
        let (mut shards, mut grouped) = (64, true);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = percent_decoded(value).ok_or_else(|| invalid(format!("{name} is not text")))?;
            match name {
                "sslmode" => mode = Some(text),
                "sslrootcert" => root_certificates = Some(PathBuf::from(text)),
                "schema" => schema = text,
                "pool_max" => {
                    let number = text.parse().ok().filter(|number| (2..=10_000).contains(number));
                    connections_max =
                        number.ok_or_else(|| invalid("pool_max must be 2 to 10000".to_owned()))?;
                }
                "shards" => {
                    let number = text.parse().ok().filter(|number| (1..=32_000).contains(number));
                    shards = number.ok_or_else(|| invalid("shards must be 1 to 32000".to_owned()))?;
                }
                // For benchmarks only.
                "grouping" => match text.as_str() {
                    "on" => grouped = true,
                    "off" => grouped = false,
                    _ => return Err(invalid("grouping must be on or off".to_owned())),
                },
                _ => theirs.push(pair),
            }
        }
        // The schema becomes part of statements without quoting, so nothing that needs quoting is accepted.
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if schema.is_empty() || schema.len() > 63 || !schema.chars().all(legal) {
            let text = "schema takes 1 to 63 lower-case letters, digits and underscores";
            return Err(invalid(text.to_owned()));
        }
        // As in libpq, naming a root certificate turns verification on.
        let (ssl, verify) = match (mode.as_deref().unwrap_or("prefer"), root_certificates.is_some()) {
            ("disable", _) => (SslMode::Disable, Verify::Disabled),
            ("prefer", false) => (SslMode::Prefer, Verify::Nothing),
            ("prefer", true) => (SslMode::Prefer, Verify::Authority),
            ("require", false) => (SslMode::Require, Verify::Nothing),
            ("require", true) | ("verify-ca", _) => (SslMode::Require, Verify::Authority),
            ("verify-full", _) => (SslMode::Require, Verify::Full),
            _ => {
                let text = "sslmode must be disable, prefer, require, verify-ca or verify-full";
                return Err(invalid(text.to_owned()));
            }
        };
        // The library parses the rest, so its syntax for hosts, ports and timeouts applies unchanged.
        let rest = if theirs.is_empty() { base.to_owned() } else { format!("{base}?{}", theirs.join("&")) };
        let mut config: Config = rest.parse().map_err(|error| invalid(explain(&error)))?;
        if config.get_hosts().is_empty() {
            return Err(invalid("it has no host".to_owned()));
        }
        config.ssl_mode(ssl);
        prepare(&mut config, &schema);
        Ok(Self {
            limits: Limits::COMMON,
            schema,
            connections_max,
            shards,
            group_operations_max: if grouped { 64 } else { 1 },
            commit_timeout: Duration::from_secs(15),
            resolve_timeout: Duration::from_mins(1),
            reply_timeout: Duration::from_secs(30),
            poll_interval: Duration::from_millis(200),
            env: Arc::new(SystemEnv),
            config,
            tls: TlsChoice { mode: verify, root_certificates },
        })
    }

    /// How many connections to a node may write at once: the others stay free for reads while commits are slow.
    pub(super) fn writing_max(&self) -> usize {
        // Without grouping, a benchmark measures the transactions and nothing else.
        if self.group_operations_max == 1 {
            return self.connections_max;
        }
        // A quarter for reads, at least one; a pool of one connection shares it.
        (self.connections_max - (self.connections_max / 4).max(1)).max(1)
    }

    /// Where the data is, without the password, for messages.
    pub fn place(&self) -> String {
        let hosts: Vec<String> = self
            .config
            .get_hosts()
            .iter()
            .enumerate()
            .map(|(at, host)| {
                // One port for all hosts, or one each, as in libpq.
                let port = self.config.get_ports().get(at).or(self.config.get_ports().first());
                match host {
                    Host::Tcp(name) => format!("{name}:{}", port.unwrap_or(&5432)),
                    #[cfg(unix)]
                    Host::Unix(path) => path.display().to_string(),
                }
            })
            .collect();
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or("postgres");
        format!("postgres at {} in {database}.{}", hosts.join(","), self.schema)
    }

    /// Adapts the settings to Citus, which plans every join anew and needs the planner features for it.
    pub(super) fn on_citus(&mut self) {
        let options = self.config.get_options().unwrap_or_default();
        let options = format!("{options} -c plan_cache_mode=auto");
        self.config.options(&options);
    }

    /// The same options for another cluster node.
    pub(super) fn at_node(&self, host: &str, port: u16) -> Config {
        let mut config = without_host(&self.config);
        config.host(host).port(port);
        config
    }
}

/// One configuration per host, otherwise equal.
pub(super) fn each_host(config: &Config) -> Vec<Config> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let one = |at: usize| {
        let mut one = without_host(config);
        // Host and address lists may have different lengths: an address without a name is allowed.
        match hosts.get(at) {
            Some(Host::Tcp(name)) => _ = one.host(name),
            #[cfg(unix)]
            Some(Host::Unix(path)) => _ = one.host_path(path),
            None => {}
        }
        if let Some(address) = addresses.get(at) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(at).or(ports.first()) {
            one.port(*port);
        }
        one
    };
    (0..hosts.len().max(addresses.len())).map(one).collect()
}

fn without_host(old: &Config) -> Config {
    // The library's `Config` has no way to remove a host, so everything else is copied.
    let mut config = Config::new();
    config.ssl_mode(old.get_ssl_mode()).ssl_negotiation(old.get_ssl_negotiation());
    config.target_session_attrs(old.get_target_session_attrs());
    config.channel_binding(old.get_channel_binding());
    config.load_balance_hosts(old.get_load_balance_hosts());
    if let Some(options) = old.get_options() {
        config.options(options);
    }
    if let Some(user) = old.get_user() {
        config.user(user);
    }
    if let Some(password) = old.get_password() {
        config.password(password);
    }
    if let Some(database) = old.get_dbname() {
        config.dbname(database);
    }
    if let Some(name) = old.get_application_name() {
        config.application_name(name);
    }
    if let Some(timeout) = old.get_connect_timeout() {
        config.connect_timeout(*timeout);
    }
    if let Some(timeout) = old.get_tcp_user_timeout() {
        config.tcp_user_timeout(*timeout);
    }
    config.keepalives(old.get_keepalives()).keepalives_idle(old.get_keepalives_idle());
    if let Some(interval) = old.get_keepalives_interval() {
        config.keepalives_interval(interval);
    }
    if let Some(retries) = old.get_keepalives_retries() {
        config.keepalives_retries(retries);
    }
    config
}

/// Whether the text is the URL of a PostgreSQL store.
pub(crate) fn is_store_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// Settings of every connection. They travel with the start-up message, so they cost no round trip and apply from the
/// first statement on.
fn prepare(config: &mut Config, schema: &str) {
    let mut options: Vec<String> = Vec::new();
    let mut set = |name: &str, value: &str| options.push(format!("-c {name}={value}"));
    set("idle_in_transaction_session_timeout", &IDLE_IN_TRANSACTION_MS.to_string());
    set("lock_timeout", &LOCK_TIMEOUT_MS.to_string());
    set("statement_timeout", &STATEMENT_TIMEOUT_MS.to_string());
    // All statements use the primary key, but without statistics of a new partition the planner might choose otherwise.
    // Plans are made once.
    set("enable_seqscan", "off");
    set("enable_bitmapscan", "off");
    set("plan_cache_mode", "force_generic_plan");
    set("jit", "off");
    // The last setting wins: the URL may override timeouts, but not the tables.
    options.extend(config.get_options().map(str::to_owned));
    options.push(format!("-c search_path={schema}"));
    config.options(options.join(" "));
    if config.get_application_name().is_none() {
        config.application_name("orrery");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(Duration::from_secs(10));
    }
    // A machine that loses power says nothing. While waiting for a reply only keepalives detect it: within ten seconds,
    // like the timeout above for unacknowledged data.
    // Equal to the default means that the URL does not set it: the getter does not tell.
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(Duration::from_secs(5));
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(Duration::from_secs(5));
    }
    // Of several hosts, the one that accepts writes is the primary.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = if byte == b'%' {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
            u8::try_from(high * 16 + low).ok()?
        } else {
            byte
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

/// The error with its causes.
pub(super) fn explain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let further = error.to_string();
        // Some errors repeat their cause in their own text.
        if !text.contains(&further) {
            text = format!("{text}: {further}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let options = PostgresOptions::parse(
            "postgres://me:p%40ss@db.example:6432/data?schema=a_b&pool_max=7&sslmode=verify-full&application_name=one",
        )
        .unwrap();
        assert_eq!((options.schema.as_str(), options.connections_max), ("a_b", 7));
        assert_eq!(options.tls, TlsChoice { mode: Verify::Full, root_certificates: None });
        assert_eq!(options.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(options.config.get_password(), Some(&b"p@ss"[..]));
        assert_eq!(options.config.get_application_name(), Some("one"));
        assert_eq!(options.place(), "postgres at db.example:6432 in data.a_b");
        let plain = PostgresOptions::parse("postgresql://db.example").unwrap();
        assert_eq!(plain.tls.mode, Verify::Nothing);
        assert_eq!(plain.config.get_application_name(), Some("orrery"));
        assert_eq!(plain.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert!(plain.config.get_options().unwrap().contains("search_path=orrery"));
    }

    #[test]
    fn statements_and_locks_have_a_limit_that_the_url_may_change() {
        let options = |url: &str| {
            let parsed = PostgresOptions::parse(url).unwrap();
            parsed.config.get_options().unwrap().to_owned()
        };
        let plain = options("postgres://h/d");
        for limit in
            ["lock_timeout=3000", "statement_timeout=10000", "idle_in_transaction_session_timeout=5000"]
        {
            assert!(plain.contains(&format!("-c {limit} ")), "{plain}");
        }
        let own = options("postgres://h/d?options=-c%20lock_timeout%3D7%20-c%20search_path%3Dother");
        let at = |text: &str| own.rfind(text).unwrap();
        assert!(at("lock_timeout=7") > at("lock_timeout=3000"), "{own}");
        assert!(at("search_path=orrery") > at("search_path=other"), "{own}");
    }

    #[test]
    fn dead_connections_are_noticed_as_the_url_says() {
        let config = |url: &str| PostgresOptions::parse(url).unwrap().config;
        let plain = config("postgres://h/d");
        assert!(plain.get_keepalives());
        assert_eq!(plain.get_keepalives_idle(), Duration::from_secs(5));
        assert_eq!(plain.get_keepalives_interval(), Some(Duration::from_secs(5)));
        assert_eq!(plain.get_tcp_user_timeout(), Some(&Duration::from_secs(10)));
        let own = config("postgres://h/d?keepalives_idle=40&keepalives_interval=7&tcp_user_timeout=50");
        assert_eq!(own.get_keepalives_idle(), Duration::from_secs(40));
        assert_eq!(own.get_keepalives_interval(), Some(Duration::from_secs(7)));
        assert_eq!(own.get_tcp_user_timeout(), Some(&Duration::from_secs(50)));
    }

    #[test]
    fn every_host_has_all_options() {
        let options = PostgresOptions::parse(
            "postgres://me:word@a:1,b:2/data?sslmode=require&connect_timeout=3&keepalives_retries=4",
        )
        .unwrap();
        let hosts = each_host(&options.config);
        let places: Vec<_> = hosts.iter().map(|one| (one.get_hosts(), one.get_ports())).collect();
        let name = |name: &str| Host::Tcp(name.to_owned());
        assert_eq!(places, [(&[name("a")][..], &[1][..]), (&[name("b")], &[2])]);
        // All other settings are equal.
        for (mut one, place) in hosts.into_iter().zip([("b", 2), ("a", 1)]) {
            one.host(place.0).port(place.1);
            let text = format!("{one:?}").replace("\"b\"", "\"a\"");
            let whole = format!("{:?}", options.config).replace("\"b\"", "\"a\"");
            assert_eq!(text.replace("[2, 1]", "[1, 2]"), whole);
        }
    }

    #[test]
    fn a_named_authority_is_used() {
        for (mode, expected) in [("require", Verify::Authority), ("verify-ca", Verify::Authority)] {
            let url = format!("postgres://h/d?sslmode={mode}&sslrootcert=%2Fetc%2Fca.pem");
            let tls = PostgresOptions::parse(&url).unwrap().tls;
            let root_certificates = Some(PathBuf::from("/etc/ca.pem"));
            assert_eq!(tls, TlsChoice { mode: expected, root_certificates });
        }
    }

    #[test]
    fn faults_do_not_repeat_the_password() {
        for url in [
            "mysql://me:secret@h/d",
            "postgres://me:secret@h/d?sslmode=maybe",
            "postgres://me:secret@h/d?schema=Robert';--",
            "postgres://me:secret@h/d?pool_max=0",
            "postgres://me:secret@h/d?shards=0",
            "postgres://me:secret@h/d?grouping=maybe",
            "postgres://me:secret@h/d?unknown_option=1",
            "postgres://me:secret@h:port/d",
        ] {
            let text = PostgresOptions::parse(url).unwrap_err().to_string();
            assert!(text.starts_with("the store URL is not valid: ") && !text.contains("secret"), "{text}");
        }
    }
}
