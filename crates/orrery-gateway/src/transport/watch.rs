//! Tracks the activity of a connection, so that one timer per connection can distinguish slow clients from idle and
//! busy ones.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use orrery_env::monotonic;

use super::{HeldUntilSent, TransportOptions};

/// The state of a connection, shared by its stream and its requests.
pub(super) struct Activity(Mutex<State>);

struct State {
    /// HTTP/2 multiplexes heads, pings and settings, so heads are only tracked for HTTP/1.
    notes_heads: bool,
    /// Requests whose response has not been handed over yet.
    in_flight: usize,
    /// When the first bytes of the current head arrived.
    head_since: Option<Instant>,
    /// The last end of a request, or the start of the connection.
    quiet_since: Instant,
    /// Since when the peer has not read, although there are bytes to send.
    write_blocked_since: Option<Instant>,
    /// Responses waiting for the peer's flow control, and since when none has progressed.
    responses_waiting: usize,
    responses_waiting_since: Instant,
}

/// The verdict of the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No problem; check again at this time.
    Fine(Instant),
    /// Idle for too long: close gracefully.
    Idle,
    /// The client is stuck: close.
    Stuck(&'static str),
}

impl Activity {
    pub(super) fn new(notes_heads: bool) -> Arc<Self> {
        let now = monotonic::timer_now();
        Arc::new(Self(Mutex::new(State {
            notes_heads,
            in_flight: 0,
            // The first bytes of the first head were already read to detect the protocol.
            head_since: notes_heads.then_some(now),
            quiet_since: now,
            write_blocked_since: None,
            responses_waiting: 0,
            responses_waiting_since: now,
        })))
    }

    pub(super) fn verdict(&self, options: &TransportOptions) -> Verdict {
        let state = self.0.lock();
        let now = monotonic::timer_now();
        // A timer that is not running now cannot expire before its full duration.
        let deadline = |since: Option<Instant>, limit| since.unwrap_or(now) + limit;
        // While a request is in flight, bytes belong to its body, whose time the handler limits.
        let head_end = deadline(state.head_since.filter(|_| state.in_flight == 0), options.head_timeout);
        let write_end = deadline(state.write_blocked_since, options.write_timeout);
        let response_since = (state.responses_waiting > 0).then_some(state.responses_waiting_since);
        let response_end = deadline(response_since, options.write_timeout);
        let idle = state.in_flight == 0 && state.head_since.is_none();
        let idle_end = deadline(idle.then_some(state.quiet_since), options.idle_timeout);
        if now >= head_end {
            Verdict::Stuck("the head of a request did not arrive in time")
        } else if now >= write_end || now >= response_end {
            Verdict::Stuck("the client does not read its response")
        } else if now >= idle_end {
            Verdict::Idle
        } else {
            Verdict::Fine(head_end.min(write_end).min(response_end).min(idle_end))
        }
    }

    fn bytes_arrived(&self) {
        let mut state = self.0.lock();
        if state.notes_heads && state.in_flight == 0 && state.head_since.is_none() {
            state.head_since = Some(monotonic::timer_now());
        }
    }

    fn write_was(&self, blocked: bool) {
        let mut state = self.0.lock();
        if !blocked {
            state.write_blocked_since = None;
        } else if state.write_blocked_since.is_none() {
            state.write_blocked_since = Some(monotonic::timer_now());
        }
    }
}

/// A request in flight, from its head until its response is handed over or dropped.
pub(super) struct InFlight {
    activity: Arc<Activity>,
    responding: bool,
}

impl InFlight {
    pub(super) fn begin(activity: &Arc<Activity>) -> Self {
        let mut state = activity.0.lock();
        state.in_flight += 1;
        // hyper calls the service once the head is complete.
        state.head_since = None;
        drop(state);
        Self { activity: Arc::clone(activity), responding: false }
    }

    /// Ties the request to its response: it ends when the connection is done with the body.
    pub(super) fn respond(mut self, body: Full<Bytes>, held: Option<HeldUntilSent>) -> WatchedBody {
        let mut state = self.activity.0.lock();
        // The first one starts the clock.
        if state.responses_waiting == 0 {
            state.responses_waiting_since = monotonic::timer_now();
        }
        state.responses_waiting += 1;
        drop(state);
        self.responding = true;
        WatchedBody { body, rest: Bytes::new(), _held: held, _in_flight: self }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let now = monotonic::timer_now();
        let mut state = self.activity.0.lock();
        state.in_flight -= 1;
        // A connection becomes idle with the end of its last request.
        state.quiet_since = now;
        if self.responding {
            state.responses_waiting -= 1;
            // Progress of one response counts for all: the client reads, if slowly.
            state.responses_waiting_since = now;
        }
    }
}

/// A response body that reports when it has been sent. It is handed over in pieces as the connection's buffer has
/// space, so unread data stays here, where it is counted.
pub(super) struct WatchedBody {
    body: Full<Bytes>,
    /// The unsent rest of the current chunk of the body.
    rest: Bytes,
    _held: Option<HeldUntilSent>,
    _in_flight: InFlight,
}

const PIECE_BYTES_MAX: usize = 128 << 10;

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            let frame = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                other => return other,
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        let bytes = self.rest.len().min(PIECE_BYTES_MAX);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // hyper sends this as the content length; without it HTTP/1 responses would be chunked.
        let in_body = self.body.size_hint().exact().expect("the body is whole");
        SizeHint::with_exact(in_body + self.rest.len() as u64)
    }
}

/// A stream that tracks activity, preceded by the bytes that were read to detect the protocol.
pub(super) struct Watched<Io> {
    io: Io,
    first_bytes: Bytes,
    activity: Arc<Activity>,
}

impl<Io> Watched<Io> {
    pub(super) fn new(io: Io, first_bytes: Bytes, activity: Arc<Activity>) -> Self {
        Self { io, first_bytes, activity }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Watched<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The bytes read for detection come first. They are not counted as arriving, because the head's clock runs
        // from the start of the connection.
        if self.first_bytes.has_remaining() {
            let length = self.first_bytes.len().min(buffer.remaining());
            buffer.put_slice(&self.first_bytes.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.io).poll_read(context, buffer);
        // No bytes mean the end of the stream.
        if result.is_ready() && buffer.filled().len() > before {
            self.activity.bytes_arrived();
        }
        result
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Watched<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.io).poll_write(context, bytes);
        // Pending means that the socket takes nothing more: the peer does not read.
        self.activity.write_was(result.is_pending());
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.activity.write_was(result.is_pending());
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_flush(context);
        self.activity.write_was(result.is_pending());
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_shutdown(context);
        self.activity.write_was(result.is_pending());
        result
    }
}
