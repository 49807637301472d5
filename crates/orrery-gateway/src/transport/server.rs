//! The listening socket: accepts connections up to the limit, and drains them on shutdown.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::connection::{Connection, Phase};
use super::{ConnectionInfo, Handler, TransportOptions};

/// The listen backlog.
const BACKLOG: u32 = 1024;

/// Binds the port. The address can be reused right after another server has released it.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // On Windows this option would let two servers share the port.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Everything that serving HTTP on a port needs.
pub struct Server<H> {
    pub handler: Arc<H>,
    /// Without it only plain HTTP is served.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    pub options: TransportOptions,
    /// Tracks the number of open connections.
    pub connections_open: Gauge,
}

/// The result of serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were closed because they did not finish in time.
    pub cut: usize,
}

impl<H: Handler> Server<H> {
    /// Serves the port until `stop` resolves, then lets requests in flight finish, up to the drain timeout.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) -> Drained {
        let acceptor = self.tls.clone().map(TlsAcceptor::from);
        let serve = |stream, peer, phase| {
            let connection = Connection {
                handler: Arc::clone(&self.handler),
                tls: acceptor.clone(),
                options: self.options,
                info: ConnectionInfo { peer, tls: false },
                phase,
            };
            async move {
                if let Err(error) = connection.run(stream).await {
                    tracing::debug!(%peer, %error, "closed a connection");
                }
            }
        };
        accept_connections(listener, stop, self.options, &self.connections_open, serve).await
    }
}

/// Accepts connections and runs `serve` for each in a separate task until `stop` resolves; then drains them, and closes
/// them at the drain timeout.
pub(crate) async fn accept_connections<F>(
    listener: TcpListener,
    stop: impl Future<Output = ()>,
    options: TransportOptions,
    connections_open: &Gauge,
    serve: impl Fn(TcpStream, SocketAddr, watch::Receiver<Phase>) -> F,
) -> Drained
where
    F: Future<Output = ()> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(options.connections_max));
    let (phase_sender, phase) = watch::channel(Phase::Running);
    let mut stop = pin!(stop);
    loop {
        let accepted = async {
            // Acquire a permit first: connections beyond the limit wait in the listen queue, where they cost nothing.
            let place = Arc::clone(&room).acquire_owned().await;
            (place.expect("the semaphore is never closed"), listener.accept().await)
        };
        let (place, (stream, peer)) = tokio::select! {
            (place, accepted) = accepted => match accepted {
                Ok(accepted) => (place, accepted),
                Err(error) => {
                    accept_failed(&error).await;
                    continue;
                }
            },
            () = &mut stop => break,
        };
        let serving = serve(stream, peer, phase.clone());
        let open = OpenConnection::count(connections_open);
        orrery_env::task::spawn("connection", async move {
            serving.await;
            // Only after the connection has ended, however it did: the gauge counts down, and the place is free.
            drop((open, place));
        });
    }
    // New connections are refused from here on, so that a balancer sends them elsewhere.
    drop(listener);

    phase_sender.send_replace(Phase::Draining);
    // Each connection holds one permit: having all of them means that none is left.
    let all_gone = || room.acquire_many(u32::try_from(options.connections_max).unwrap_or(u32::MAX));
    if timeout(options.drain_timeout, all_gone()).await.is_ok() {
        return Drained { cut: 0 };
    }
    let cut = options.connections_max - room.available_permits();
    phase_sender.send_replace(Phase::Closed);
    // They only need to notice; one whose handler blocks its thread is abandoned.
    if timeout(Duration::from_secs(1), all_gone()).await.is_err() {
        tracing::warn!("some connections do not react to being closed");
    }
    Drained { cut }
}

async fn accept_failed(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted) {
        return;
    }
    // Out of file descriptors or memory: retrying at once would only spin.
    tracing::warn!(%error, "a connection could not be accepted");
    orrery_env::task::sleep(Duration::from_millis(100)).await;
}

/// Counts a connection while it exists, however its task ends.
struct OpenConnection(Gauge);

impl OpenConnection {
    fn count(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}
