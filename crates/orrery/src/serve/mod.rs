//! The server process: starts its parts in order, announces that it is ready, and stops them in reverse.
//!
//! What lives here: options and their meaning, keys and certificates, seed data, start-up and shutdown. What does not:
//! anything that answers a request, which is the gateway's.

mod assembly;
mod banner;
mod keys;
mod options;
mod seed;
mod settings;
mod signals;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_env::{Env, MovableClock, SystemEnv};
use orrery_gateway::auth::AuthOptions;
use orrery_gateway::memory::MemoryBudget;
use orrery_gateway::metrics::Metrics;
use orrery_gateway::transport::{Server, TransportOptions, bind};
use orrery_gateway::{Gateway, GatewayOptions, HostPolicy};
use tracing_subscriber::EnvFilter;

use assembly::{open_certificate, open_database, open_store};
use banner::{Banner, CertificateOrigin};
pub(crate) use options::{OptionSources, ServeOptions};
use settings::{Settings, TlsSettings};

use crate::failure::Failure;
use crate::io::Output;

/// The log filter unless `ORRERY_LOG` sets another.
const DEFAULT_LOG: &str = "warn,orrery=info,orrery_gateway=info,orrery_db=info,orrery_storage=info";

/// How long to wait for threads that still work for requests which were cut off.
const ABANDONED_THREADS_TIME_MAX: Duration = Duration::from_millis(500);

/// Serves until a signal stops it.
pub(crate) fn run(settings: Settings, output: Output) -> Result<(), Failure> {
    let started = Instant::now();
    start_log()?;
    use_small_pages();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("orrery-worker")
        // Blocking threads come and go with the load; an idle one would keep its memory.
        .thread_keep_alive(Duration::from_secs(1))
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("the async runtime cannot start: {error}")))?;
    let result = runtime.block_on(serve(settings, output, started));
    runtime.shutdown_timeout(ABANDONED_THREADS_TIME_MAX);
    result
}

/// Disables transparent huge pages for this process. The allocator returns memory in smaller pieces, and with huge pages
/// every piece that is reused brings back two megabytes: resident memory was up to four times the memory in use
/// (docs/performance.md). Must run before most memory is allocated.
fn use_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "transparent huge pages stay enabled");
    }
}

fn start_log() -> Result<(), Failure> {
    let filter = match std::env::var("ORRERY_LOG") {
        Ok(text) => EnvFilter::try_new(&text).map_err(|error| {
            Failure::usage(format!("ORRERY_LOG is not a valid log filter: `{text}`: {error}"))
        })?,
        Err(_) => EnvFilter::new(DEFAULT_LOG),
    };
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    Ok(())
}

async fn serve(settings: Settings, output: Output, started: Instant) -> Result<(), Failure> {
    let clock = settings.test_controls.then(|| Arc::new(MovableClock::default()));
    let env: Arc<dyn Env> = match &clock {
        Some(clock) => Arc::clone(clock) as Arc<dyn Env>,
        None => Arc::new(SystemEnv),
    };
    let start_ms = env.now_ms();
    keys::check(&settings.keys, settings.listen.ip())?;
    keys::check_shared(&settings.keys, settings.listen.ip(), &settings.storage)?;
    // Bind first: early clients wait until the rest is ready, and a port in use fails before anything is opened.
    let listener = bind(settings.listen).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Failure::refused(format!("the address {} is in use by another process", settings.listen))
        }
        _ => Failure::refused(format!("cannot listen on {}: {error}", settings.listen)),
    })?;
    let address = listener.local_addr().map_err(Failure::internal)?;
    let hosts = HostPolicy::new(address.ip(), &settings.allowed_hosts, &settings.allowed_origins)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let store = open_store(&settings.storage).await?;
    let directory = settings.storage.directory();
    let chosen = keys::choose(settings.keys, address.ip(), directory, &*env)?;
    let certificate = open_certificate(&settings.tls, address, directory, env.now_seconds())?;
    let database = open_database(store, Arc::clone(&env), settings.limits).await?;
    seed::create_listed(&database, &settings.containers).await?;
    if let Some(seed) = &settings.seed {
        seed::load(&database, seed, directory).await?;
    }

    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION"), start_ms));
    let certificate_origin = certificate.as_ref().map(|certificate| match settings.tls {
        TlsSettings::Files { .. } => CertificateOrigin::Given,
        _ if certificate.is_new => CertificateOrigin::Generated,
        _ => CertificateOrigin::Stored,
    });
    let key = chosen.keys.primary.clone();
    let gateway = Gateway::new(
        Arc::clone(&database),
        GatewayOptions {
            keys: chosen.keys,
            auth: AuthOptions { check_clock: settings.check_clock, ..AuthOptions::default() },
            metrics: Arc::clone(&metrics),
            certificate_pem: certificate.as_ref().map(|certificate| certificate.trust_pem.clone()),
            consistency: settings.consistency,
            advertised: settings.advertised,
            clock,
            cross_partition_queries: settings.cross_partition_queries,
            memory: MemoryBudget::new(settings.memory_bytes),
            hosts,
        },
    );
    let server = Server {
        handler: Arc::new(gateway),
        tls: certificate.map(|certificate| certificate.tls),
        options: TransportOptions {
            connections_max: settings.connections_max,
            drain_timeout: settings.drain,
            ..TransportOptions::default()
        },
        connections_open: metrics.connections_open.clone(),
    };
    let stop = signals::listen(settings.drain)?;
    let banner = Banner {
        address,
        key: &key,
        key_origin: &chosen.origin,
        storage: &settings.storage,
        profile: settings.profile.as_deref(),
        certificate: certificate_origin,
        ready_after: started.elapsed(),
    };
    announce(&match output {
        Output::Text => banner.text(),
        Output::Json => banner.json(),
    });

    let drained = server.run(listener, async { stop.await.unwrap_or(()) }).await;
    if drained.cut > 0 {
        tracing::warn!(connections = drained.cut, "closed connections whose requests did not finish in time");
    }
    database
        .close()
        .await
        .map_err(|error| Failure::internal(format!("the store cannot be closed cleanly: {error}")))?;
    tracing::info!("stopped");
    Ok(())
}

/// Announces that the server is ready. Serves on if standard output is closed.
fn announce(text: &str) {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).ok();
}
