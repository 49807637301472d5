//! The listening socket: accepts connections while there is room, and winds them down at the end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::connection::{Connection, Phase};
use super::{ConnectionInfo, Handler, TransportOptions};

/// Connections that the operating system may hold before they are accepted.
const BACKLOG: u32 = 1024;

/// Opens the port. The address can be used again right after another server has left it.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // On Windows this option would let two servers share the port.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Everything that serving a port needs.
pub struct Server<H> {
    pub handler: Arc<H>,
    /// Without it only plain HTTP is served.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    pub options: TransportOptions,
    /// Follows the number of open connections.
    pub connections_open: Gauge,
}

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut because they did not finish in time.
    pub cut: usize,
}

impl<H: Handler> Server<H> {
    /// Serves the port until `stop` is done, then lets requests under way finish, up to the drain timeout.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) -> Drained {
        let acceptor = self.tls.clone().map(TlsAcceptor::from);
        let room = Arc::new(Semaphore::new(self.options.connections_max));
        let (phase_sender, phase) = watch::channel(Phase::Running);
        let mut stop = pin!(stop);
        loop {
            let accepted = async {
                // Room first: who does not fit waits in the system's queue, where it costs us nothing.
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
            let connection = Connection {
                handler: Arc::clone(&self.handler),
                tls: acceptor.clone(),
                options: self.options,
                info: ConnectionInfo { peer, tls: false },
                phase: phase.clone(),
            };
            let open = OpenConnection::count(&self.connections_open);
            tokio::spawn(async move {
                if let Err(error) = connection.run(stream).await {
                    tracing::debug!(%peer, %error, "a connection was ended");
                }
                drop((open, place));
            });
        }
        drop(listener);

        phase_sender.send_replace(Phase::Draining);
        let all_gone = || room.acquire_many(u32::try_from(self.options.connections_max).unwrap_or(u32::MAX));
        if timeout(self.options.drain_timeout, all_gone()).await.is_ok() {
            return Drained { cut: 0 };
        }
        let cut = self.options.connections_max - room.available_permits();
        phase_sender.send_replace(Phase::Closed);
        // They only have to notice; one whose handler hogs its thread is left behind.
        if timeout(Duration::from_secs(1), all_gone()).await.is_err() {
            tracing::warn!("some connections do not react to being closed");
        }
        Drained { cut }
    }
}

async fn accept_failed(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted) {
        return;
    }
    // Out of file descriptors or memory: trying at once would only spin.
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Counts itself while it lives, whichever way the connection's task ends.
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
