//! The server process: starts its parts in order, announces that it is ready, and stops them in reverse.
//!
//! Contains options and their meaning, keys and certificates, seed data, start-up and shutdown. Handling requests is
//! the gateway's job.

mod assembly;
mod banner;
mod keys;
mod log_file;
mod notify;
mod options;
mod reload;
mod seed;
mod settings;
mod signals;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use orrery_env::{Env, MovableClock, SystemEnv, monotonic};
use orrery_gateway::auth::AuthOptions;
use orrery_gateway::direct::{DirectServer, GatewayV2};
use orrery_gateway::memory::MemoryBudget;
use orrery_gateway::metrics::Metrics;
use orrery_gateway::transport::{Server, TransportOptions, bind};
use orrery_gateway::{Gateway, GatewayOptions, HostPolicy, ObservationOptions, PortEndpoint};
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

use assembly::{open_certificate, open_database, open_store};
use banner::{Banner, CertificateOrigin};
use log_file::LogFile;
use notify::Notifier;
use options::LogFormat;
pub(crate) use options::{OptionSources, ServeOptions};
use settings::{LogSettings, PortSettings, Settings, TlsSettings};

use crate::failure::Failure;
use crate::io::Output;

/// From the gateway's port to that of direct mode. For 8081 it is 10250, which commands for the vendor's emulator in
/// containers publish too.
const DIRECT_PORT_DISTANCE: u16 = 2169;

/// From the gateway's port to that of Gateway 2.0: the next one.
const GATEWAY_V2_PORT_DISTANCE: u16 = 2170;

/// The log filter unless `ORRERY_LOG` sets another.
const DEFAULT_LOG: &str =
    "warn,orrery=info,orrery_gateway=info,orrery_db=info,orrery_storage=info,audit=info,slow_request=info";

/// How long to wait for threads that still work on cancelled requests.
const ABANDONED_THREADS_TIME_MAX: Duration = Duration::from_millis(500);

/// Serves until a signal stops it.
pub(crate) fn run(settings: Settings, output: Output) -> Result<(), Failure> {
    let started = monotonic::now();
    start_log(&settings.log)?;
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

fn start_log(settings: &LogSettings) -> Result<(), Failure> {
    let filter = match std::env::var("ORRERY_LOG") {
        Ok(text) => EnvFilter::try_new(&text).map_err(|error| {
            Failure::usage(format!("ORRERY_LOG is not a valid log filter: `{text}`: {error}"))
        })?,
        Err(_) => EnvFilter::new(DEFAULT_LOG),
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter);
    match (&settings.file, settings.format) {
        (None, LogFormat::Text) => {
            // By its convention NO_COLOR counts only if it is not empty.
            let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                && std::io::IsTerminal::is_terminal(&std::io::stderr());
            log.with_writer(std::io::stderr).with_ansi(colours).init();
        }
        (None, LogFormat::Json) => log.with_writer(std::io::stderr).json().flatten_event(true).init(),
        (Some((path, policy)), format) => {
            let file = LogFile::open(path, *policy).map_err(|error| {
                Failure::refused(format!("the log file {} cannot be opened: {error}", path.display()))
            })?;
            let log = log.with_writer(Mutex::new(file)).with_ansi(false);
            match format {
                LogFormat::Text => log.init(),
                LogFormat::Json => log.json().flatten_event(true).init(),
            }
        }
    }
    Ok(())
}

async fn serve(mut settings: Settings, output: Output, started: Instant) -> Result<(), Failure> {
    // Tests may move this clock.
    let clock = settings.test_controls.then(|| Arc::new(MovableClock::default()));
    let env: Arc<dyn Env> = match &clock {
        Some(clock) => Arc::clone(clock) as Arc<dyn Env>,
        None => Arc::new(SystemEnv),
    };
    let start_ms = env.now_ms();
    let exposed = most_exposed(&settings.listen);
    keys::check(&settings.keys, exposed)?;
    keys::check_shared(&settings.keys, exposed, &settings.storage)?;
    // Bind first: early clients wait until the rest is ready, and a port in use fails before anything is opened.
    let listeners =
        settings.listen.iter().map(|address| bind_http(*address)).collect::<Result<Vec<_>, _>>()?;
    let addresses = listeners
        .iter()
        .map(TcpListener::local_addr)
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::internal)?;
    let address = addresses[0];
    let ports = FurtherPorts { gateway: address, is_any: settings.listen[0].port() == 0 };
    let direct = ports.bind("direct mode", settings.direct.as_ref(), DIRECT_PORT_DISTANCE)?;
    let gateway_v2 = ports.bind("Gateway 2.0", settings.gateway_v2.as_ref(), GATEWAY_V2_PORT_DISTANCE)?;
    let hosts = HostPolicy::new(exposed, &settings.allowed_hosts, &settings.allowed_origins)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let store = open_store(&settings.storage).await?;
    let directory = settings.storage.directory();
    // The open store has locked the data directory, so keys and certificates can be written to it.
    let chosen = keys::choose(settings.keys, exposed, keys::home(&settings.storage), &*env)?;
    if let TlsSettings::Generated { names } = &mut settings.tls {
        let further = addresses[1..].iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified());
        names.extend(further.map(|ip| ip.to_string()));
    }
    let certificate =
        open_certificate(&settings.tls, &settings.tls_policy, address, directory, env.now_seconds())?;
    let database = open_database(store, Arc::clone(&env), settings.limits).await?;
    // Early clients wait until the server accepts connections, so the first request finds all of this.
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
    let key = chosen.keys.current().primary.clone();
    let gateway = Gateway::new(
        Arc::clone(&database),
        GatewayOptions {
            keys: chosen.keys,
            auth: AuthOptions { check_clock: settings.check_clock, ..AuthOptions::default() },
            metrics: Arc::clone(&metrics),
            certificate: certificate.as_ref().map(|certificate| Arc::clone(&certificate.current)),
            consistency: settings.consistency,
            advertised: settings.advertised,
            clock,
            cross_partition_queries: settings.cross_partition_queries,
            memory: MemoryBudget::new(settings.memory_bytes),
            hosts,
            direct: direct.as_ref().map(|(_, endpoint)| endpoint.clone()),
            gateway_v2: gateway_v2.as_ref().map(|(_, endpoint)| endpoint.clone()),
            observation: ObservationOptions {
                slow_request: settings.slow_request,
                data_directory: directory.map(std::path::Path::to_owned),
            },
        },
    );
    let gateway = Arc::new(gateway);
    let options = TransportOptions {
        // Each listener counts its own connections.
        connections_max: settings.connections_max.div_ceil(listeners.len()),
        drain_timeout: settings.drain,
        requires_tls: settings.tls_policy.client_authorities.is_some(),
        ..TransportOptions::default()
    };
    if let (Some(certificate), TlsSettings::Files { certificate: file, key }) = (&certificate, &settings.tls)
    {
        reload::follow(Arc::clone(&certificate.current), file.clone(), key.clone())?;
    }
    let tls = certificate.map(|certificate| certificate.tls);
    let direct_port = direct.as_ref().map(|(_, endpoint)| endpoint.port);
    // Without TLS there is no direct mode; `settings` has checked it.
    let direct_server = direct.zip(tls.clone()).map(|((listener, _), tls)| {
        let server = DirectServer {
            gateway: Arc::clone(&gateway),
            tls,
            options: TransportOptions { connections_max: settings.connections_max.div_ceil(2), ..options },
            connections_open: metrics.connections_open.clone(),
        };
        (listener, server)
    });
    let gateway_v2_port = gateway_v2.as_ref().map(|(_, endpoint)| endpoint.port);
    let gateway_v2_server = gateway_v2.map(|(listener, _)| {
        let server = Server {
            handler: Arc::new(GatewayV2 { gateway: Arc::clone(&gateway) }),
            tls: tls.clone(),
            options: TransportOptions { connections_max: settings.connections_max.div_ceil(2), ..options },
            connections_open: metrics.connections_open.clone(),
        };
        (listener, server)
    });
    let servers: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            let connections_open = metrics.connections_open.clone();
            let handler = Arc::clone(&gateway);
            (listener, Server { handler, tls: tls.clone(), options, connections_open })
        })
        .collect();
    // From here on a signal stops the server gracefully; until now it ended the process.
    let stop = signals::listen(settings.drain)?;
    let banner = Banner {
        address,
        others: &addresses[1..],
        key: &key,
        key_origin: &chosen.origin,
        storage: &settings.storage,
        profile: settings.profile.as_deref(),
        certificate: certificate_origin,
        direct_port,
        gateway_v2_port,
        ready_after: monotonic::elapsed(started),
    };
    // The ports are open, so clients may connect from now on.
    announce(&match output {
        Output::Text => banner.text(),
        Output::Json => banner.json(),
    });

    let notifier = Notifier::from_environment();
    notifier.ready();
    let stopping = notifier.clone();
    let stop = stop.map(move |_| stopping.stopping()).shared();
    let serving_direct = async {
        match direct_server {
            Some((listener, server)) => server.run(listener, stop.clone()).await.cut,
            None => 0,
        }
    };
    let serving_gateway_v2 = async {
        match gateway_v2_server {
            Some((listener, server)) => server.run(listener, stop.clone()).await.cut,
            None => 0,
        }
    };
    let serving_http = servers.into_iter().map(|(listener, server)| server.run(listener, stop.clone()));
    let serving = async { tokio::join!(join_all(serving_http), serving_direct, serving_gateway_v2) };
    let (drained, cut_direct, cut_gateway_v2) = tokio::select! {
        served = serving => served,
        () = notifier.keep_alive() => unreachable!("it reports for as long as the server runs"),
    };
    let cut = drained.iter().map(|drained| drained.cut).sum::<usize>() + cut_direct + cut_gateway_v2;
    if cut > 0 {
        tracing::warn!(connections = cut, "closed connections whose requests did not finish in time");
    }
    // Only after the last request has ended.
    database
        .close()
        .await
        .map_err(|error| Failure::internal(format!("the store cannot be closed cleanly: {error}")))?;
    tracing::info!("stopped");
    Ok(())
}

/// The address that most clients can reach, which decides about keys and host names.
fn most_exposed(addresses: &[SocketAddr]) -> IpAddr {
    let beyond = addresses.iter().find(|address| !address.ip().is_loopback());
    beyond.unwrap_or(&addresses[0]).ip()
}

/// Opens a port for HTTP.
fn bind_http(address: SocketAddr) -> Result<TcpListener, Failure> {
    bind(address).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Failure::refused(format!("the address {address} is in use by another process"))
        }
        _ => Failure::refused(format!("cannot listen on {address}: {error}")),
    })
}

/// Opens ports next to the gateway's.
struct FurtherPorts {
    gateway: SocketAddr,
    /// Whether the gateway's port is arbitrary.
    is_any: bool,
}

impl FurtherPorts {
    /// Opens the configured port, or one at a fixed distance from the gateway's. Clients learn it from the gateway, so
    /// any free port works if that one is taken or the gateway's is arbitrary.
    fn bind(
        &self,
        purpose: &str,
        settings: Option<&PortSettings>,
        distance: u16,
    ) -> Result<Option<(TcpListener, PortEndpoint)>, Failure> {
        let Some(settings) = settings else { return Ok(None) };
        let at = |port| SocketAddr::new(self.gateway.ip(), port);
        let refuse =
            |port, error| Failure::refused(format!("cannot listen on {} for {purpose}: {error}", at(port)));
        let listener = if let Some(port) = settings.port {
            bind(at(port)).map_err(|error| refuse(port, error))?
        } else {
            let usual = if self.is_any { None } else { self.gateway.port().checked_add(distance) };
            let usual = usual.unwrap_or(0);
            bind(at(usual)).or_else(|error| {
                tracing::warn!(port = usual, %error, "the default port of {purpose} is not available; using another one");
                bind(at(0)).map_err(|error| refuse(0, error))
            })?
        };
        let port = listener.local_addr().map_err(Failure::internal)?.port();
        Ok(Some((listener, PortEndpoint { port, advertised: settings.advertised.clone() })))
    }
}

/// Announces that the server is ready. A closed standard output is not an error.
fn announce(text: &str) {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).ok();
}
