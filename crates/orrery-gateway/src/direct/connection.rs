//! One connection in direct mode: the handshake, then frames in both directions until either side closes it.
//!
//! One task reads, runs the requests and writes. Most requests complete on their first poll, without further cost; the
//! others are polled together. All responses that are ready when the task writes share one write.

use std::future::Future;
use std::io::{self, Write};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use http::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use orrery_env::{monotonic, task};

use super::frame::{ActivityId, ContextRequest, MalformedFrame, RequestFrame};
use super::lobby::LobbyPlace;
use super::request::DirectRequest;
use super::response;
use crate::dispatch::BODY_BYTES_MAX;
use crate::memory::MemoryPart;
use crate::pipeline::{DirectCall, Gateway};
use crate::transport::{BodyError, ConnectionInfo, HangUp, Phase, TransportOptions};

/// Requests at the same time on one connection; further frames are left unread. Clients send 30 by default.
const IN_FLIGHT_MAX: usize = 256;

/// About how many bytes of responses to gather before writing.
const WRITE_BYTES: usize = 256 << 10;

/// A frame must arrive completely within this time.
const FRAME_TIME_MAX: Duration = Duration::from_mins(1);

/// Idle timeout of unauthenticated connections.
const UNAUTHENTICATED_IDLE_MAX: Duration = Duration::from_mins(1);

/// Payloads up to this size are read with their frame; larger ones require an authenticated client and reserved memory.
const SMALL_PAYLOAD_BYTES_MAX: usize = 32 << 10;

/// Up to this many bytes of a rejected payload are skipped; beyond that the connection is closed.
const DISCARDED_BYTES_MAX: usize = 32 << 20;

/// The initial buffer size of a connection, and the maximum that an idle one keeps.
const BUFFER_BYTES: usize = 4 << 10;

/// Why the server closed a connection. Only for the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum DirectError {
    #[error("the handshake did not finish in time")]
    HandshakeTimeout,
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("the protocol was broken: {0}")]
    Frame(#[from] MalformedFrame),
    #[error("{0}")]
    Stuck(&'static str),
    #[error("{0}")]
    HangUp(#[from] HangUp),
}

pub(super) struct DirectConnection {
    pub(super) gateway: Arc<Gateway>,
    pub(super) options: TransportOptions,
    pub(super) info: ConnectionInfo,
    pub(super) phase: watch::Receiver<Phase>,
    /// Until the client has authenticated.
    pub(super) lobby_place: Option<LobbyPlace>,
}

impl DirectConnection {
    pub(super) async fn run(mut self, stream: TcpStream, acceptor: TlsAcceptor) -> Result<(), DirectError> {
        // Responses are gathered before they are written, so Nagle's algorithm would only delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "the connection keeps its delay");
        }
        let mut phase = self.phase.clone();
        let opening = timeout(self.options.handshake_timeout, self.open(stream, acceptor));
        let opened = tokio::select! {
            opened = opening => opened.map_err(|_| DirectError::HandshakeTimeout)??,
            // A connection without a request can be closed at once.
            _ = phase.wait_for(|phase| *phase != Phase::Running) => return Ok(()),
        };
        let Some((stream, buffer)) = opened else { return Ok(()) };
        Traffic::new(self, stream, buffer).run().await
    }

    /// Performs the handshakes of TLS and of the protocol.
    async fn open(
        &mut self,
        stream: TcpStream,
        acceptor: TlsAcceptor,
    ) -> Result<Option<(TlsStream<TcpStream>, BytesMut)>, DirectError> {
        let mut stream = acceptor.accept(stream).await?;
        let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
        // Bytes that follow the context request stay in the buffer, for the first frame.
        let frame = loop {
            match RequestFrame::take(&mut buffer)? {
                Some(frame) => break frame,
                None if stream.read_buf(&mut buffer).await? == 0 => return Ok(None),
                None => {}
            }
        };
        let context = ContextRequest::parse(&frame)?;
        let agent = String::from_utf8_lossy(&context.user_agent).into_owned();
        tracing::debug!(peer = %self.info.peer, agent, "a client connected in direct mode");
        let mut out = BytesMut::new();
        // Clients send no request before they have the context response, so it is written at once.
        self.answer_context(&context, &mut out);
        stream.write_all(&out).await?;
        stream.flush().await?;
        Ok(Some((stream, buffer)))
    }

    fn answer_context(&self, context: &ContextRequest, out: &mut BytesMut) {
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        // The advertised idle timeout is shorter than ours, so that the client does not send on a closing connection.
        let idle = self.options.idle_timeout / 10 * 9;
        context.answer(seconds(idle), seconds(UNAUTHENTICATED_IDLE_MAX), out);
    }
}

/// A request and the payload received so far.
struct Arrival {
    request: DirectRequest,
    payload: Result<Bytes, BodyError>,
    held: Option<MemoryPart>,
    is_heavy: bool,
}

/// The answer to a request.
struct Answer {
    response: Response<Bytes>,
    activity_id: ActivityId,
    transport_id: Option<u32>,
}

/// The state of the reader.
enum Reading {
    /// The next frame.
    Frame,
    /// The length of the payload that follows it.
    Length { request: Box<DirectRequest>, is_heavy: bool },
    /// The payload of a request.
    Payload { request: Box<DirectRequest>, is_heavy: bool, length: usize, held: Option<MemoryPart> },
    /// The rest of a payload that is being skipped.
    Discarded { request: Box<DirectRequest>, left: usize, why: BodyError },
}

/// A connection after its handshake.
struct Traffic {
    connection: DirectConnection,
    stream: TlsStream<TcpStream>,
    buffer: BytesMut,
    reading: Reading,
    /// When the first bytes of the current frame arrived.
    frame_since: Option<Instant>,
    quiet_since: Instant,
    pending: FuturesUnordered<BoxFuture<'static, Answer>>,
    /// Responses waiting to be sent, and where each of them ends.
    out: BytesMut,
    out_ends: Vec<usize>,
}

impl Traffic {
    fn new(connection: DirectConnection, stream: TlsStream<TcpStream>, buffer: BytesMut) -> Self {
        Self {
            connection,
            stream,
            buffer,
            reading: Reading::Frame,
            frame_since: None,
            quiet_since: monotonic::timer_now(),
            pending: FuturesUnordered::new(),
            out: BytesMut::new(),
            out_ends: Vec::new(),
        }
    }

    async fn run(mut self) -> Result<(), DirectError> {
        let mut phase = self.connection.phase.clone();
        let mut draining = false;
        let mut timer = Box::pin(sleep_until(self.look_again()?));
        loop {
            // 1. Start the requests that have arrived completely. The bounds are on requests in flight and on
            // responses gathered; a client that exceeds either is left unread, and TCP slows it down.
            let mut more_to_parse = false;
            while self.pending.len() < IN_FLIGHT_MAX && !draining {
                if self.out.len() >= WRITE_BYTES {
                    more_to_parse = true;
                    break;
                }
                let Some(arrival) = self.next_arrival().await? else { break };
                self.start(arrival).await?;
            }
            // 2. Collect the responses that are ready by now, without waiting, so that they share the write.
            while self.out.len() < WRITE_BYTES
                && let Some(Some(answer)) = self.pending.next().now_or_never()
            {
                self.answer(answer).await?;
            }
            self.flush().await?;
            // Whole frames are still in the buffer: waiting for bytes could wait forever.
            if more_to_parse {
                continue;
            }
            // Every request that was started has been answered. Frames still in the buffer are not started any
            // more.
            if draining && self.pending.is_empty() {
                self.stream.shutdown().await?;
                return Ok(());
            }
            self.note_quiet();
            // 3. Wait for whatever comes first: bytes, a response, a deadline or the end of the server.
            let may_read = self.pending.len() < IN_FLIGHT_MAX && !draining;
            tokio::select! {
                count = self.stream.read_buf(&mut self.buffer), if may_read => {
                    if count? == 0 {
                        return Ok(());
                    }
                    self.frame_since.get_or_insert_with(monotonic::timer_now);
                }
                Some(answer) = self.pending.next(), if !self.pending.is_empty() => self.answer(answer).await?,
                // The timer is not reset whenever something happens, which is much more frequent than its end:
                // when it fires, the deadline is computed anew.
                () = timer.as_mut() => {
                    let at = self.look_again()?;
                    timer.as_mut().reset(at);
                }
                changed = phase.changed() => {
                    draining = true;
                    // A closed channel means that the server itself is gone.
                    if changed.is_err() || *phase.borrow_and_update() == Phase::Closed {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The next deadline to check, or why the connection must be closed.
    fn look_again(&self) -> Result<Instant, DirectError> {
        let now = monotonic::timer_now();
        // Without a frame under way the earliest possible end is that of one that would begin now.
        let frame_end = self.frame_since.map_or(now + FRAME_TIME_MAX, |since| since + FRAME_TIME_MAX);
        if now >= frame_end {
            return Err(DirectError::Stuck("a frame did not arrive in time"));
        }
        let idle_max = match self.connection.lobby_place {
            Some(_) => UNAUTHENTICATED_IDLE_MAX,
            None => self.connection.options.idle_timeout,
        };
        // A slow request does not make its connection idle, however long it takes.
        let is_idle = self.pending.is_empty() && self.frame_since.is_none();
        let idle_end = if is_idle { self.quiet_since + idle_max } else { now + idle_max };
        if now >= idle_end {
            return Err(DirectError::Stuck("the connection was idle for too long"));
        }
        Ok(frame_end.min(idle_end))
    }

    /// Frees buffers that an idle connection does not need.
    fn note_quiet(&mut self) {
        // Nothing of a next frame has arrived: the clock of the last one stops.
        if self.buffer.is_empty() && matches!(self.reading, Reading::Frame) {
            self.frame_since = None;
        }
        if self.pending.is_empty() {
            if self.buffer.is_empty() && self.buffer.capacity() > BUFFER_BYTES * 4 {
                self.buffer = BytesMut::new();
            }
            if self.out.capacity() > WRITE_BYTES {
                self.out = BytesMut::new();
            }
        }
    }

    /// The next complete request; none until more bytes arrive.
    async fn next_arrival(&mut self) -> Result<Option<Arrival>, DirectError> {
        loop {
            // Each arm puts its state back before it returns for lack of bytes.
            match std::mem::replace(&mut self.reading, Reading::Frame) {
                Reading::Frame => {
                    let Some(frame) = RequestFrame::take(&mut self.buffer)? else { return Ok(None) };
                    if frame.is_context_request() {
                        // Clients repeat the context request on connections they have not used for a while.
                        let context = ContextRequest::parse(&frame)?;
                        self.connection.answer_context(&context, &mut self.out);
                        self.out_ends.push(self.out.len());
                        continue;
                    }
                    let request = DirectRequest::parse(&frame)?;
                    let is_heavy = DirectRequest::is_heavy(&frame);
                    // The first request with valid credentials ends the connection's time in the lobby.
                    if self.connection.lobby_place.is_some()
                        && may_send(&self.connection.gateway, &request).await
                    {
                        self.connection.lobby_place = None;
                    }
                    if !request.has_payload {
                        return Ok(Some(Arrival {
                            request,
                            payload: Ok(Bytes::new()),
                            held: None,
                            is_heavy,
                        }));
                    }
                    self.reading = Reading::Length { request: Box::new(request), is_heavy };
                }
                Reading::Length { request, is_heavy } => {
                    if self.buffer.len() < 4 {
                        self.reading = Reading::Length { request, is_heavy };
                        return Ok(None);
                    }
                    let length = self.buffer.get_u32_le();
                    self.reading = self.admit_payload(request, is_heavy, length).await?;
                }
                Reading::Payload { request, is_heavy, length, held } => {
                    if self.buffer.len() < length {
                        self.reading = Reading::Payload { request, is_heavy, length, held };
                        return Ok(None);
                    }
                    let payload = Ok(self.buffer.split_to(length).freeze());
                    return Ok(Some(Arrival { request: *request, payload, held, is_heavy }));
                }
                Reading::Discarded { request, left, why } => {
                    // Skipped as it arrives, so a rejected payload never takes more than one read of memory.
                    let count = left.min(self.buffer.len());
                    self.buffer.advance(count);
                    if count < left {
                        self.reading = Reading::Discarded { request, left: left - count, why };
                        return Ok(None);
                    }
                    return Ok(Some(Arrival {
                        request: *request,
                        payload: Err(why),
                        held: None,
                        is_heavy: false,
                    }));
                }
            }
        }
    }

    /// Decides whether to keep a payload. A large one requires an authenticated client and available memory.
    async fn admit_payload(
        &mut self,
        request: Box<DirectRequest>,
        is_heavy: bool,
        announced: u32,
    ) -> Result<Reading, DirectError> {
        let length = usize::try_from(announced).unwrap_or(usize::MAX);
        // Skipping this much would cost more than a new connection.
        if length > DISCARDED_BYTES_MAX {
            return Err(MalformedFrame::Payload(announced).into());
        }
        // The client is still writing: read on, so that it can read the error.
        if length > BODY_BYTES_MAX {
            return Ok(Reading::Discarded { request, left: length, why: BodyError::TooLarge });
        }
        if length <= SMALL_PAYLOAD_BYTES_MAX {
            return Ok(Reading::Payload { request, is_heavy, length, held: None });
        }
        // The pipeline rejects unauthorised requests before it needs the payload.
        let held =
            if may_send(&self.connection.gateway, &request).await { self.hold(length).await? } else { None };
        Ok(match held {
            Some(held) => {
                // Once, at the full size: growing step by step would copy the payload several times.
                self.buffer.reserve(length.saturating_sub(self.buffer.len()));
                Reading::Payload { request, is_heavy, length, held: Some(held) }
            }
            None => Reading::Discarded { request, left: length, why: BodyError::NoMemory },
        })
    }

    /// Waits for memory while driving the requests in flight, which may free some.
    async fn hold(&mut self, bytes: usize) -> Result<Option<MemoryPart>, DirectError> {
        let gateway = Arc::clone(&self.connection.gateway);
        // Waiting alone could only time out if requests of this very connection hold the memory: they progress
        // when polled here.
        let mut holding = std::pin::pin!(gateway.hold_body(bytes as u64));
        loop {
            let answer = tokio::select! {
                held = holding.as_mut() => return Ok(held),
                Some(answer) = self.pending.next(), if !self.pending.is_empty() => answer,
            };
            self.answer(answer).await?;
            self.flush().await?;
        }
    }

    /// Starts a request. If it completes immediately, so does its response.
    async fn start(&mut self, arrival: Arrival) -> Result<(), DirectError> {
        self.frame_since = None;
        let is_heavy = arrival.is_heavy;
        let work = work(Arc::clone(&self.connection.gateway), self.connection.info, arrival);
        // A task of its own: a query that computes for a while would stop the reader and the writer of this
        // connection.
        if is_heavy {
            self.pending.push(Box::pin(OwnedTask(task::spawn("direct request", work))));
            return Ok(());
        }
        let mut work = Box::pin(work);
        // Point reads from memory complete here, without a wake-up and without a place among the pending.
        if let Some(answer) = work.as_mut().now_or_never() {
            return self.answer(answer).await;
        }
        self.pending.push(work);
        Ok(())
    }

    /// Queues a response for sending.
    async fn answer(&mut self, answer: Answer) -> Result<(), DirectError> {
        let Answer { response, activity_id, transport_id } = answer;
        // An injected fault: the client is to see a broken connection instead of a response.
        if response.extensions().get::<HangUp>().is_some() {
            return Err(HangUp.into());
        }
        let payload = response::write(response, activity_id, transport_id, &mut self.out);
        self.out_ends.push(self.out.len());
        // The head of this response must be on its way before its payload, which is not copied behind it.
        if let Some(payload) = payload {
            self.flush().await?;
            self.send(&payload.bytes, &[payload.bytes.len()]).await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), DirectError> {
        if self.out.is_empty() {
            return Ok(());
        }
        // Taken out and put back, so that `send` can borrow the stream while the buffers keep their capacity.
        let (mut out, mut ends) = (std::mem::take(&mut self.out), std::mem::take(&mut self.out_ends));
        self.send(&out, &ends).await?;
        out.clear();
        ends.clear();
        (self.out, self.out_ends) = (out, ends);
        self.quiet_since = monotonic::timer_now();
        Ok(())
    }

    /// Sends responses, each in TLS records of its own, and all of them in as few writes as possible.
    ///
    /// The Java client moves the bytes after a response before it has read the response's tokens
    /// (`RntbdResponseDecoder` discards what it has read, but tokens are read later), so it considers a record with two
    /// responses corrupt and closes the connection.
    async fn send(&mut self, bytes: &[u8], ends: &[usize]) -> Result<(), DirectError> {
        let sending = async {
            let mut start = 0;
            for end in ends {
                // The session turns each write into records of its own; bytes of two responses never share one.
                let mut rest = &bytes[start..*end];
                while !rest.is_empty() {
                    let (_, session) = self.stream.get_mut();
                    let written = session.writer().write(rest)?;
                    rest = &rest[written..];
                    // The session's buffer is full: empty it to the socket, then go on.
                    if !rest.is_empty() {
                        self.stream.flush().await?;
                    }
                }
                start = *end;
            }
            self.stream.flush().await
        };
        // A client that stops reading would otherwise hold its responses, and the memory behind them, forever.
        let sent = timeout(self.connection.options.write_timeout, sending).await;
        Ok(sent.map_err(|_| DirectError::Stuck("the client does not read its responses"))??)
    }
}

async fn may_send(gateway: &Gateway, request: &DirectRequest) -> bool {
    match &request.head {
        Ok(parts) => gateway.may_send(parts).await,
        // A frame that cannot be translated is refused anyway; it authenticates nobody.
        Err(_) => false,
    }
}

/// Runs a request through the pipeline. A panic ends the request, not the connection.
async fn work(gateway: Arc<Gateway>, info: ConnectionInfo, arrival: Arrival) -> Answer {
    let Arrival { request, payload, held, .. } = arrival;
    let DirectRequest { head, activity_id, transport_id, replica, .. } = request;
    let response = match head {
        Err(error) => gateway.refuse(&activity_id.to_string(), &error),
        Ok(parts) => {
            let call = DirectCall { parts, connection: info, replica, payload, held };
            let answering = AssertUnwindSafe(gateway.answer_direct(call)).catch_unwind();
            answering.await.unwrap_or_else(|panic| {
                crate::transport::log_panic(panic.as_ref());
                crate::transport::Handler::after_panic(gateway.as_ref())
            })
        }
    };
    Answer { response: response::whole(response), activity_id, transport_id }
}

/// A task that is aborted with its connection.
struct OwnedTask(JoinHandle<Answer>);

impl Future for OwnedTask {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        // Panics are caught inside, and only this type aborts the task.
        self.0.poll_unpin(context).map(|answer| answer.expect("the task catches its panics"))
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        // A client that disconnects cancels its requests, as over HTTP.
        self.0.abort();
    }
}
