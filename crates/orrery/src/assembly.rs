//! Puts the parts together: store, database, gateway.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use orrery_db::{Database, Options};
use orrery_gateway::transport::certificate::{self, LOCAL_NAMES, ServerCertificate};
use orrery_model::env::Env;
use orrery_model::offer::{DEFAULT_THROUGHPUT, PARTITION_THROUGHPUT_MAX};
use orrery_storage::{Embedded, EmbeddedOptions, Memory, PartitionStore, Postgres, PostgresOptions};

use crate::failure::Failure;
use crate::settings::{Limits, Storage, Tls};

/// Opens the store. Afterwards the data directory is ours alone, so that other files may be written to it.
pub(crate) async fn open_store(storage: &Storage) -> Result<Arc<dyn PartitionStore>, Failure> {
    match storage {
        Storage::Memory => Ok(Arc::new(Memory::new())),
        Storage::Directory { path, durability, cache_bytes } => {
            make_directory(path)?;
            let options = EmbeddedOptions {
                durability: *durability,
                cache_bytes: *cache_bytes,
                ..EmbeddedOptions::default()
            };
            // The engine has a directory of its own; keys and certificates lie beside it.
            let store = Embedded::open(path.join("store"), options).map_err(Failure::refused)?;
            Ok(Arc::new(store))
        }
        Storage::Postgres(options) => {
            let store = Postgres::open(PostgresOptions::clone(options)).await.map_err(Failure::refused)?;
            Ok(Arc::new(store))
        }
    }
}

/// Data is for its owner only. A directory that exists keeps its rights.
fn make_directory(path: &Path) -> Result<(), Failure> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path).map_err(|error| {
        Failure::refused(format!("the data directory {} cannot be made: {error}", path.display()))
    })
}

pub(crate) async fn open_database(
    store: Arc<dyn PartitionStore>,
    env: Arc<dyn Env>,
    limits: Limits,
) -> Result<Arc<Database>, Failure> {
    let defaults = Options::default();
    // A partition must be able to hold the smallest throughput there is, however small the scale.
    let throughput = scaled(PARTITION_THROUGHPUT_MAX.into(), limits.scale).max(DEFAULT_THROUGHPUT.into());
    let options = Options {
        throttle: limits.throttle,
        logical_partition_bytes_max: limits
            .logical_partition_bytes_max
            .unwrap_or_else(|| scaled(defaults.logical_partition_bytes_max, limits.scale)),
        partition_bytes_max: limits
            .partition_bytes_max
            .unwrap_or_else(|| scaled(defaults.partition_bytes_max, limits.scale)),
        partition_throughput_max: limits.partition_throughput_max.or_else(|| u32::try_from(throughput).ok()),
        partitions_at_creation: limits.partitions_at_creation,
        change_feed_retention_minutes: limits.change_feed_retention_minutes,
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
    reason = "a limit need not be exact, and saturates"
)]
fn scaled(limit: u64, scale: f64) -> u64 {
    ((limit as f64 * scale) as u64).max(1)
}

/// The user's certificate, the kept one, or a new one.
pub(crate) fn open_certificate(
    tls: &Tls,
    listen: SocketAddr,
    directory: Option<&Path>,
    now_seconds: i64,
) -> Result<Option<ServerCertificate>, Failure> {
    let certificate = match tls {
        Tls::None => return Ok(None),
        Tls::Files { certificate, key } => certificate::load(certificate, key),
        Tls::Made { names } => {
            let mut all: Vec<String> = LOCAL_NAMES.iter().map(|name| (*name).to_owned()).collect();
            if !listen.ip().is_unspecified() {
                all.push(listen.ip().to_string());
            }
            all.extend(host_name());
            all.extend_from_slice(names);
            let mut seen = std::collections::HashSet::new();
            all.retain(|name| seen.insert(name.clone()));
            match directory {
                Some(directory) => certificate::load_or_create(directory, &all, now_seconds),
                None => certificate::create(&all, now_seconds),
            }
        }
    };
    certificate.map(Some).map_err(Failure::refused)
}

/// The name of this machine, if it is one that a certificate can hold.
pub(crate) fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .or_else(|| std::env::var("COMPUTERNAME").ok())?;
    let name = name.trim().to_ascii_lowercase();
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (!name.is_empty() && name.len() < 254 && name.chars().all(legal) && !name.starts_with(['-', '.']))
        .then_some(name)
}
