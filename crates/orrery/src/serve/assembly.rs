//! Opens the parts of a server from its settings: store, database, certificate.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use orrery_db::{Database, Options};
use orrery_env::Env;
use orrery_gateway::durable_file;
use orrery_gateway::transport::certificate::{self, LOCAL_NAMES, ServerCertificate, TlsPolicy};
use orrery_model::offer::{DEFAULT_THROUGHPUT, PARTITION_THROUGHPUT_MAX};
use orrery_storage::{Embedded, EmbeddedOptions, Memory, PartitionStore, Postgres, PostgresOptions};

use super::settings::{PartitionLimits, StorageSettings, TlsSettings};
use crate::failure::Failure;

/// Opens the store. The data directory is then locked by this process, so other files can be written to it.
pub(super) async fn open_store(storage: &StorageSettings) -> Result<Arc<dyn PartitionStore>, Failure> {
    match storage {
        StorageSettings::Memory => Ok(Arc::new(Memory::new())),
        StorageSettings::Directory { path, durability, cache_bytes, disk_reserve_bytes, keep_log } => {
            make_directory(path)?;
            let options = EmbeddedOptions {
                durability: *durability,
                cache_bytes: *cache_bytes,
                disk_reserve_bytes: *disk_reserve_bytes,
                keep_log: *keep_log,
                ..EmbeddedOptions::default()
            };
            // The engine has its own directory; keys and certificates are stored beside it.
            let store = Embedded::open(path.join("store"), options).map_err(Failure::refused)?;
            Ok(Arc::new(store))
        }
        StorageSettings::Postgres(options) => {
            let store = Postgres::open(PostgresOptions::clone(options)).await.map_err(Failure::refused)?;
            Ok(Arc::new(store))
        }
    }
}

/// Creates a directory only its owner can read. An existing directory keeps its permissions.
fn make_directory(path: &Path) -> Result<(), Failure> {
    durable_file::create_directory(path).map_err(|error| {
        Failure::refused(format!("the data directory {} cannot be created: {error}", path.display()))
    })
}

/// Opens the database with the partition limits scaled.
pub(super) async fn open_database(
    store: Arc<dyn PartitionStore>,
    env: Arc<dyn Env>,
    limits: PartitionLimits,
) -> Result<Arc<Database>, Failure> {
    let defaults = Options::default();
    // At any scale, a partition must be able to carry the minimum throughput.
    let throughput = scaled(PARTITION_THROUGHPUT_MAX.into(), limits.scale).max(DEFAULT_THROUGHPUT.into());
    let options = Options {
        throttle: limits.throttle,
        burst_throughput_max: scaled(defaults.burst_throughput_max, limits.scale),
        account_limits_scale: limits.account_scale,
        logical_partition_bytes_max: limits
            .logical_partition_bytes_max
            .unwrap_or_else(|| scaled(defaults.logical_partition_bytes_max, limits.scale)),
        partition_bytes_max: limits
            .partition_bytes_max
            .unwrap_or_else(|| scaled(defaults.partition_bytes_max, limits.scale)),
        partition_throughput_max: limits.partition_throughput_max.or_else(|| u32::try_from(throughput).ok()),
        partitions_at_creation: limits.partitions_at_creation,
        change_feed_retention_minutes: limits.change_feed_retention_minutes,
        lenient: limits.lenient,
        ..defaults
    };
    Database::open(store, env, options)
        .await
        .map_err(|error| Failure::refused(format!("the database cannot be opened: {error}")))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a limit need not be exact, and the cast saturates"
)]
fn scaled(limit: u64, scale: f64) -> u64 {
    // A limit of 0 would refuse everything.
    ((limit as f64 * scale) as u64).max(1)
}

/// The user's certificate, the stored one, or a new one; none without TLS.
pub(super) fn open_certificate(
    tls: &TlsSettings,
    policy: &TlsPolicy,
    listen: SocketAddr,
    directory: Option<&Path>,
    now_seconds: i64,
) -> Result<Option<ServerCertificate>, Failure> {
    let certificate = match tls {
        TlsSettings::Off => return Ok(None),
        TlsSettings::Files { certificate, key } => certificate::load(certificate, key, policy),
        TlsSettings::Generated { names } => {
            // The names by which clients on this machine and elsewhere may connect.
            let mut all: Vec<String> = LOCAL_NAMES.iter().map(|name| (*name).to_owned()).collect();
            // A wildcard address is not one that clients connect to.
            if !listen.ip().is_unspecified() {
                all.push(listen.ip().to_string());
            }
            all.extend(host_name());
            all.extend_from_slice(names);
            let mut seen = std::collections::HashSet::new();
            all.retain(|name| seen.insert(name.clone()));
            match directory {
                Some(directory) => certificate::load_or_create(directory, &all, now_seconds, policy),
                None => certificate::create(&all, now_seconds, policy),
            }
        }
    };
    certificate.map(Some).map_err(Failure::refused)
}

/// The host name of this machine, if a certificate can carry it.
pub(super) fn host_name() -> Option<String> {
    // Linux first; other systems may tell by the environment.
    let name = fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .or_else(|| std::env::var("COMPUTERNAME").ok())?;
    let name = name.trim().to_ascii_lowercase();
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (!name.is_empty() && name.len() < 254 && name.chars().all(legal) && !name.starts_with(['-', '.']))
        .then_some(name)
}
