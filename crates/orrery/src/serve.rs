//! `orrery serve`: starts the parts in order, tells when it is ready, and stops them in reverse.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_db::{MovableClock, SystemEnv};
use orrery_gateway::auth::AuthOptions;
use orrery_gateway::metrics::Metrics;
use orrery_gateway::transport::{Server, TransportOptions, bind};
use orrery_gateway::{Gateway, GatewayOptions};
use orrery_model::env::Env;
use tracing_subscriber::EnvFilter;

use crate::assembly::{open_certificate, open_database, open_store};
use crate::banner::{Banner, TlsNote};
use crate::cli::Output;
use crate::failure::Failure;
use crate::keys;
use crate::seed;
use crate::settings::{Settings, Tls};

/// What is logged unless `ORRERY_LOG` says otherwise.
const DEFAULT_LOG: &str = "warn,orrery=info,orrery_gateway=info,orrery_db=info,orrery_storage=info";

pub(crate) fn run(settings: Settings) -> Result<(), Failure> {
    let started = Instant::now();
    start_log()?;
    use_small_pages();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("orrery-worker")
        // Threads for what takes long come and go; each one that waits for more keeps memory of its own.
        .thread_keep_alive(Duration::from_secs(1))
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("the threads cannot be started: {error}")))?;
    runtime.block_on(serve(settings, started))
}

/// Tells the system to give this process no huge pages. The allocator gives memory back in pieces that are smaller, and
/// with huge pages each piece that is used again brings two megabytes: resident memory was up to four times what is
/// used (docs/performance.md). Has to come before most memory is used.
fn use_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages stay in use");
    }
}

fn start_log() -> Result<(), Failure> {
    let filter = match std::env::var("ORRERY_LOG") {
        Ok(text) => EnvFilter::try_new(&text)
            .map_err(|error| Failure::usage(format!("ORRERY_LOG \"{text}\" is not a filter: {error}")))?,
        Err(_) => EnvFilter::new(DEFAULT_LOG),
    };
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    Ok(())
}

async fn serve(settings: Settings, started: Instant) -> Result<(), Failure> {
    let clock = settings.test_controls.then(|| Arc::new(MovableClock::default()));
    let env: Arc<dyn Env> = match &clock {
        Some(clock) => Arc::clone(clock) as Arc<dyn Env>,
        None => Arc::new(SystemEnv),
    };
    let start_ms = env.now_ms();
    keys::check(&settings.keys, settings.listen.ip())?;
    keys::check_shared(&settings.keys, settings.listen.ip(), &settings.storage)?;
    // The port first: whoever connects early waits until the rest is ready, and a port in use costs nothing.
    let listener = bind(settings.listen).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Failure::refused(format!("the address {} is in use by another process", settings.listen))
        }
        _ => Failure::refused(format!("the address {} cannot be listened on: {error}", settings.listen)),
    })?;
    let address = listener.local_addr().map_err(Failure::internal)?;
    let store = open_store(&settings.storage).await?;
    let directory = settings.storage.directory();
    let chosen = keys::choose(settings.keys, address.ip(), directory, &*env)?;
    let certificate = open_certificate(&settings.tls, address, directory, env.now_seconds())?;
    let database = open_database(store, Arc::clone(&env), settings.limits).await?;
    if let Some(seed) = &settings.seed {
        seed::load(&database, seed, directory).await?;
    }

    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION"), start_ms));
    let tls_note = certificate.as_ref().map(|certificate| match settings.tls {
        Tls::Files { .. } => TlsNote::Users,
        _ if certificate.is_new => TlsNote::Made,
        _ => TlsNote::Kept,
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
            clock,
            cross_partition_queries: settings.cross_partition_queries,
        },
    );
    let server = Server {
        handler: Arc::new(gateway),
        tls: certificate.map(|certificate| certificate.tls),
        options: TransportOptions {
            connections_max: settings.connections_max,
            ..TransportOptions::default()
        },
        connections_open: metrics.connections_open.clone(),
    };
    let stop = StopSignals::listen()?;
    let banner = Banner {
        address,
        key: &key,
        key_origin: &chosen.origin,
        storage: &settings.storage,
        tls: tls_note,
        ready_after: started.elapsed(),
    };
    announce(&match settings.output {
        Output::Text => banner.text(),
        Output::Json => banner.json(),
    });

    let drained = server.run(listener, stop.first()).await;
    if drained.cut > 0 {
        tracing::warn!(connections = drained.cut, "requests that did not finish in time were cut off");
    }
    database
        .close()
        .await
        .map_err(|error| Failure::internal(format!("the data could not be closed: {error}")))?;
    tracing::info!("stopped");
    Ok(())
}

/// Tells that the server is ready. Nobody may be listening, which is no reason to stop.
fn announce(text: &str) {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).ok();
}

/// The signals that end the server: the first one politely, a second one at once.
struct StopSignals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl StopSignals {
    #[cfg(unix)]
    fn listen() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::internal(format!("signals cannot be handled: {error}")))
        };
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "listening can fail on other systems")]
    fn listen() -> Result<Self, Failure> {
        Ok(Self {})
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        #[cfg(not(unix))]
        tokio::signal::ctrl_c().await.ok();
    }

    async fn first(mut self) {
        self.next().await;
        tracing::info!("stopping: requests under way may finish");
        tokio::spawn(async move {
            self.next().await;
            tracing::warn!("stopped at once by a second signal");
            std::process::exit(1);
        });
    }
}
