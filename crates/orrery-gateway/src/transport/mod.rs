//! Turns bytes on a port into requests: HTTP/1.1, HTTP/2 and TLS share one port and are distinguished by the first
//! bytes.
//!
//! Clients may be slow, broken or hostile, and must not harm each other. So the number of connections is limited;
//! handshakes, request heads, idle connections and stuck responses have timeouts; heads have a size limit; handlers
//! read bodies through [`read_body`], which limits size and time; and a panic in the handler fails one request with
//! status 500. Requests are interpreted by the [`Handler`].

mod body;
pub mod certificate;
mod connection;
mod detect;
mod server;
mod watch;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;

pub use body::{BodyError, discard_body, read_body};
pub(crate) use connection::{Phase, log_panic};
pub(crate) use server::accept_connections;
pub use server::{Drained, Server, bind};

/// Handles requests. If a client disconnects, its requests are dropped at their next await point.
pub trait Handler: Send + Sync + 'static {
    fn handle(
        &self,
        request: Request<Incoming>,
        connection: ConnectionInfo,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;

    /// The response to a request whose handler panicked.
    fn after_panic(&self) -> Response<Full<Bytes>> {
        const BODY: &str =
            r#"{"code":"InternalServerError","message":"The request failed through a fault of the server."}"#;
        let mut response = Response::new(Full::new(Bytes::from_static(BODY.as_bytes())));
        *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        headers.insert("x-ms-request-charge", http::HeaderValue::from_static("0"));
        response
    }
}

/// A response extension: close the connection (or reset the HTTP/2 stream) instead of sending the response.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the connection is closed without an answer")]
pub struct HangUp;

/// A response extension: a value to hold until the client has read the response.
#[derive(Clone)]
pub struct HeldUntilSent(pub std::sync::Arc<dyn std::any::Any + Send + Sync>);

/// Where a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    pub peer: SocketAddr,
    pub tls: bool,
}

/// Limits for one client, or for all of them.
#[derive(Clone, Copy, Debug)]
pub struct TransportOptions {
    /// Open connections. Further ones wait in the queue of the operating system.
    pub connections_max: usize,
    /// From the connection to the first bytes of HTTP, including TLS.
    pub handshake_timeout: Duration,
    /// From the first to the last byte of a request's head (HTTP/1).
    pub head_timeout: Duration,
    /// How long a connection without a request stays open. SDKs keep theirs for minutes.
    pub idle_timeout: Duration,
    /// How long a client may stop reading a response.
    pub write_timeout: Duration,
    /// The request line and all headers. Tokens take up to 16 KB, so 64 KB is the least that works.
    pub head_bytes_max: u32,
    /// Requests at the same time on one HTTP/2 connection.
    pub streams_max: u32,
    /// How long requests may take to finish after a stop signal.
    pub drain_timeout: Duration,
    /// Refuse plain HTTP, as with client certificates, which it would circumvent.
    pub requires_tls: bool,
}

impl Default for TransportOptions {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_mins(10),
            write_timeout: Duration::from_mins(1),
            head_bytes_max: 128 << 10,
            streams_max: 256,
            drain_timeout: Duration::from_secs(10),
            requires_tls: false,
        }
    }
}

#[cfg(test)]
mod tests;
