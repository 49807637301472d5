//! The port of direct mode: accepts connections and bounds them.
//!
//! A connection that has not authenticated yet waits in the `lobby`, where newcomers evict the oldest: clients that never
//! authenticate cannot lock out those that do.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::{AbortHandle, Abortable};
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::connection::DirectConnection;
use super::lobby::Lobby;
use crate::pipeline::Gateway;
use crate::transport::{ConnectionInfo, Drained, TransportOptions, accept_connections};

/// Maximum number of unauthenticated connections; further ones evict the oldest.
const LOBBY_PLACES_MAX: usize = 1024;

/// Everything that serving direct mode needs.
pub struct DirectServer {
    pub gateway: Arc<Gateway>,
    pub tls: Arc<rustls::ServerConfig>,
    pub options: TransportOptions,
    /// Tracks the number of open connections.
    pub connections_open: Gauge,
}

impl DirectServer {
    /// Serves the port until `stop` resolves, then lets requests in flight finish, up to the drain timeout.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) -> Drained {
        let acceptor = TlsAcceptor::from(self.tls);
        // At most half of all connections, so that unauthenticated clients cannot take every place of a small
        // server.
        let lobby = Lobby::new(LOBBY_PLACES_MAX.min(self.options.connections_max.div_ceil(2)));
        let (gateway, options) = (self.gateway, self.options);
        let serve = |stream, peer, phase| {
            let (handle, registration) = AbortHandle::new_pair();
            let connection = DirectConnection {
                gateway: Arc::clone(&gateway),
                options,
                info: ConnectionInfo { peer, tls: true },
                phase,
                // Every connection starts in the lobby, and leaves it with its first authorised request.
                lobby_place: Some(lobby.enter(handle)),
            };
            let acceptor = acceptor.clone();
            async move {
                match Abortable::new(connection.run(stream, acceptor), registration).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "closed a direct connection"),
                    Err(_) => {
                        tracing::debug!(%peer, "evicted an unauthenticated direct connection");
                    }
                }
            }
        };
        accept_connections(listener, stop, options, &self.connections_open, serve).await
    }
}
