//! One connection, from its first byte to its end.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use orrery_env::{monotonic, task};

use super::detect::{Protocol, TLS_HANDSHAKE, detect};
use super::watch::{Activity, InFlight, Verdict, Watched, WatchedBody};
use super::{ConnectionInfo, Handler, HangUp, HeldUntilSent, TransportOptions};

/// The stages of shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// Finish requests in flight, accept no new ones.
    Draining,
    /// The drain timeout has passed.
    Closed,
}

/// Why the server closed a connection. Only for the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error("the handshake did not finish in time")]
    HandshakeTimeout,
    #[error("TLS is asked for but not served here")]
    NoTls,
    #[error("plain HTTP is asked for where clients need a certificate")]
    NotEncrypted,
    #[error("the handshake failed: {0}")]
    Handshake(#[from] std::io::Error),
    #[error("the protocol was broken: {0}")]
    Protocol(#[from] hyper::Error),
    #[error("{0}")]
    Stuck(&'static str),
}

pub(super) struct Connection<H> {
    pub(super) handler: Arc<H>,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) options: TransportOptions,
    pub(super) info: ConnectionInfo,
    pub(super) phase: watch::Receiver<Phase>,
}

/// Bytes in both directions, plain or encrypted.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<Io: AsyncRead + AsyncWrite + Send + Unpin> Stream for Io {}

impl<H: Handler> Connection<H> {
    pub(super) async fn run(mut self, stream: TcpStream) -> Result<(), ConnectionError> {
        // Responses are written in one piece, so Nagle's algorithm would only delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "the connection keeps its delay");
        }
        let mut phase = self.phase.clone();
        let opening = timeout(self.options.handshake_timeout, self.open(stream));
        let opened = tokio::select! {
            opened = opening => opened.map_err(|_| ConnectionError::HandshakeTimeout)??,
            // A connection without a request can be closed at once.
            _ = phase.wait_for(|phase| *phase != Phase::Running) => return Ok(()),
        };
        let Some((protocol, first_bytes, stream)) = opened else { return Ok(()) };
        let activity = Activity::new(protocol == Protocol::Http1);
        let io = TokioIo::new(Watched::new(stream, first_bytes, Arc::clone(&activity)));
        match protocol {
            Protocol::Http1 => self.serve_http1(io, activity).await,
            Protocol::Http2 => self.serve_http2(io, activity).await,
        }
    }

    /// Detects the protocol and performs the TLS handshake.
    async fn open(
        &mut self,
        mut stream: TcpStream,
    ) -> Result<Option<(Protocol, Bytes, Box<dyn Stream>)>, ConnectionError> {
        // Peeked, not read: TLS needs the byte again.
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Ok(None);
        }
        // With client certificates, plain HTTP would bypass the check.
        if first[0] != TLS_HANDSHAKE && self.options.requires_tls {
            return Err(ConnectionError::NotEncrypted);
        }
        if first[0] != TLS_HANDSHAKE {
            let detected = detect(&mut stream).await?;
            return Ok(
                detected.map(|(protocol, bytes)| (protocol, bytes, Box::new(stream) as Box<dyn Stream>))
            );
        }
        let acceptor = self.tls.as_ref().ok_or(ConnectionError::NoTls)?;
        let mut stream = acceptor.accept(stream).await?;
        self.info.tls = true;
        // Without ALPN the bytes decide, as on a plain connection: some clients speak HTTP/2 with prior knowledge.
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            return Ok(Some((Protocol::Http2, Bytes::new(), Box::new(stream))));
        }
        let detected = detect(&mut stream).await?;
        Ok(detected.map(|(protocol, bytes)| (protocol, bytes, Box::new(stream) as Box<dyn Stream>)))
    }

    async fn serve_http1(
        &self,
        io: TokioIo<Watched<Box<dyn Stream>>>,
        activity: Arc<Activity>,
    ) -> Result<(), ConnectionError> {
        let service = service_fn(|request| self.answer(request, &activity));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // The watch distinguishes idle from slow connections, which this timeout cannot.
            .header_read_timeout(None)
            .max_header_size(self.options.head_bytes_max as usize)
            .serve_connection(io, service);
        self.drive(connection, &activity).await
    }

    async fn serve_http2(
        &self,
        io: TokioIo<Watched<Box<dyn Stream>>>,
        activity: Arc<Activity>,
    ) -> Result<(), ConnectionError> {
        // Streams run as separate tasks, so they must not borrow from the connection.
        let (handler, info) = (Arc::clone(&self.handler), self.info);
        let shared = Arc::clone(&activity);
        let service = service_fn(move |request| {
            let (handler, activity) = (Arc::clone(&handler), Arc::clone(&shared));
            async move { answer(handler.as_ref(), info, request, &activity).await }
        });
        let tasks = OwnedTasks::default();
        let connection = http2::Builder::new(tasks.clone())
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.options.streams_max)
            .max_header_list_size(self.options.head_bytes_max)
            // An item fits into the window of its stream, so that an upload does not wait for round trips.
            .initial_stream_window_size(2 << 20)
            .initial_connection_window_size(8 << 20)
            // Detects a peer that vanished.
            .keep_alive_interval(Some(self.options.write_timeout))
            .keep_alive_timeout(self.options.write_timeout)
            .serve_connection(io, service);
        let result = self.drive(connection, &activity).await;
        tasks.0.lock().abort_all();
        result
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        activity: &Arc<Activity>,
    ) -> Result<Response<WatchedBody>, HangUp> {
        answer(self.handler.as_ref(), self.info, request, activity).await
    }

    /// Runs the connection until it closes, the client is stuck or idle, or the server stops.
    async fn drive(&self, connection: impl Graceful, activity: &Activity) -> Result<(), ConnectionError> {
        let mut connection = pin!(connection);
        let mut phase = self.phase.clone();
        let mut known_phase = Phase::Running;
        let mut asked_to_leave = false;
        let mut look_again = match activity.verdict(&self.options) {
            Verdict::Fine(at) => at,
            _ => monotonic::timer_now(),
        };
        loop {
            tokio::select! {
                result = connection.as_mut() => return result.map_err(ConnectionError::from),
                // A closed channel counts as the last phase: the server that owned it is gone.
                changed = phase.wait_for(|phase| *phase != known_phase), if known_phase != Phase::Closed => {
                    known_phase = changed.map_or(Phase::Closed, |phase| *phase);
                    if known_phase == Phase::Closed {
                        return Ok(());
                    }
                    connection.as_mut().leave();
                    asked_to_leave = true;
                }
                () = sleep_until(look_again) => match activity.verdict(&self.options) {
                    Verdict::Fine(at) => look_again = at,
                    Verdict::Stuck(why) => return Err(ConnectionError::Stuck(why)),
                    // It had its time to disconnect.
                    Verdict::Idle if asked_to_leave => return Ok(()),
                    Verdict::Idle => {
                        connection.as_mut().leave();
                        asked_to_leave = true;
                        // An HTTP/2 client gets GOAWAY and may take a moment to disconnect.
                        look_again += self.options.handshake_timeout;
                    }
                },
            }
        }
    }
}

/// Handles one request. A panic ends the request, not the connection or the process.
async fn answer(
    handler: &impl Handler,
    info: ConnectionInfo,
    request: Request<Incoming>,
    activity: &Arc<Activity>,
) -> Result<Response<WatchedBody>, HangUp> {
    // Counts as in flight until the response is handed over, however the handler ends.
    let in_flight = InFlight::begin(activity);
    let handling = AssertUnwindSafe(async { handler.handle(request, info).await }).catch_unwind();
    let mut response = handling.await.unwrap_or_else(|panic| {
        log_panic(panic.as_ref());
        handler.after_panic()
    });
    if response.extensions().get::<HangUp>().is_some() {
        // hyper answers an error of the service by closing the connection, or by resetting the stream.
        return Err(HangUp);
    }
    // Moves into the body, which hyper drops once it has taken all of it.
    let held = response.extensions_mut().remove::<HeldUntilSent>();
    Ok(response.map(|body| in_flight.respond(body, held)))
}

pub(crate) fn log_panic(panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    // `panic!` with arguments carries a `String`, without them a `&str`.
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("without text"), "the handling of a request panicked");
}

/// What the loop above needs of both kinds of connections.
trait Graceful: Future<Output = hyper::Result<()>> {
    fn leave(self: Pin<&mut Self>);
}

impl<S> Graceful for http1::Connection<TokioIo<Watched<Box<dyn Stream>>>, S>
where
    S: hyper::service::Service<Request<Incoming>, Response = Response<WatchedBody>, Error = HangUp>,
{
    fn leave(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<S> Graceful for http2::Connection<TokioIo<Watched<Box<dyn Stream>>>, S, OwnedTasks>
where
    S: hyper::service::Service<Request<Incoming>, Response = Response<WatchedBody>, Error = HangUp>,
    S::Future: Send + 'static,
{
    fn leave(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// The tasks of one HTTP/2 connection. They are aborted with it, so that a disconnect cancels requests, as with HTTP/1.
#[derive(Clone, Default)]
struct OwnedTasks(Arc<Mutex<JoinSet<()>>>);

impl<F> hyper::rt::Executor<F> for OwnedTasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock();
        // Finished tasks stay in the set until they are joined; without this it would grow with every request.
        while tasks.try_join_next().is_some() {}
        task::spawn_in(&mut tasks, "HTTP/2 stream", async move {
            task.await;
        });
    }
}
