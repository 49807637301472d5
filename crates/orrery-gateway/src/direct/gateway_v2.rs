//! Gateway 2.0: the frames of direct mode, each as the body of an HTTP/2 request, on a port of its own.
//!
//! Rust, Java and .NET clients use it if the account document advertises the port (`thinClientReadableLocations`) and
//! `POST /connectivity-probe` succeeds. HTTP carries the frames and nothing else: method, path and headers of the outer
//! request do not count, and its status is 200 whatever the response in the frame says. There is no handshake and no
//! replica address. What [`crate::transport`] limits for HTTP is limited here too; in addition, a payload is read only
//! for a request that is authorised, within the memory budget of all requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use orrery_env::monotonic;
use orrery_model::Error;
use tokio::time::{Instant, timeout_at};

use super::frame::{ActivityId, METADATA_BYTES_MAX, RequestFrame};
use super::request::DirectRequest;
use super::response;
use crate::dispatch::BODY_BYTES_MAX;
use crate::headers;
use crate::pipeline::Gateway;
use crate::transport::{BodyError, ConnectionInfo, Handler, HangUp, HeldUntilSent};

/// Where clients ask whether this port can be reached.
const PROBE_PATH: &str = "/connectivity-probe";

/// A frame must arrive completely within this time.
const FRAME_TIME_MAX: Duration = Duration::from_mins(1);

/// Answers requests on the port of Gateway 2.0.
pub struct GatewayV2 {
    pub gateway: Arc<Gateway>,
}

impl Handler for GatewayV2 {
    async fn handle(&self, request: Request<Incoming>, connection: ConnectionInfo) -> Response<Full<Bytes>> {
        let (outer, body) = request.into_parts();
        // Browsers can reach this port as well, so host and origin of the outer request are checked like any
        // other's.
        if let Some(refused) = self.gateway.refuse_foreign(&outer, connection.peer) {
            return refused;
        }
        // Every client of Gateway 2.0 speaks HTTP/2; anything else came here by mistake.
        if outer.version != Version::HTTP_2 {
            return plain(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "Gateway 2.0 requires HTTP/2.");
        }
        if outer.method != Method::POST {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "Gateway 2.0 requires POST.");
        }
        // Clients fall back to the ordinary gateway unless this returns 200.
        if outer.uri.path() == PROBE_PATH {
            return plain(StatusCode::OK, "");
        }
        let mut arriving = Arriving::new(body);
        let request = match arriving.request().await {
            Ok(request) => request,
            Err(error) => return self.refuse(&error),
        };
        // There is no replica address to check: the request goes through a gateway, which resolves its partition
        // anew.
        let DirectRequest { head, activity_id, transport_id, has_payload, .. } = request;
        let parts = match head {
            Ok(parts) => parts,
            Err(error) => {
                return framed(
                    self.gateway.refuse(&activity_id.to_string(), &error),
                    activity_id,
                    transport_id,
                );
            }
        };
        // Outside the closure, because the reservation lasts until the response is complete.
        let mut held = None;
        // The pipeline calls this only for a request that is authorised.
        let payload = async || {
            if !has_payload {
                return Ok(Bytes::new());
            }
            let length = arriving.payload_length().await?;
            held = Some(self.gateway.hold_body(length as u64).await.ok_or(BodyError::NoMemory)?);
            arriving.payload(length).await
        };
        let response = self.gateway.answer_framed(parts, connection, payload).await;
        framed(response, activity_id, transport_id)
    }

    fn after_panic(&self) -> Response<Full<Bytes>> {
        framed(self.gateway.after_panic(), ActivityId::NIL, None)
    }
}

impl GatewayV2 {
    /// The frame that answers what is no frame.
    fn refuse(&self, error: &Error) -> Response<Full<Bytes>> {
        framed(self.gateway.refuse(&ActivityId::NIL.to_string(), error), ActivityId::NIL, None)
    }
}

/// A frame of which some bytes have arrived.
struct Arriving {
    body: Incoming,
    buffer: BytesMut,
    deadline: Instant,
}

impl Arriving {
    fn new(body: Incoming) -> Self {
        Self { body, buffer: BytesMut::new(), deadline: monotonic::timer_now() + FRAME_TIME_MAX }
    }

    /// Waits for the next bytes; false at the end of the body.
    async fn more(&mut self) -> Result<bool, BodyError> {
        loop {
            let next = timeout_at(self.deadline, self.body.frame()).await.map_err(|_| BodyError::TimedOut)?;
            let Some(next) = next else { return Ok(false) };
            let next = next.map_err(|error| BodyError::Broken(error.to_string()))?;
            // Trailers carry nothing here and are skipped.
            if let Ok(data) = next.into_data() {
                self.buffer.extend_from_slice(&data);
                return Ok(true);
            }
        }
    }

    /// The head of the frame, with its tokens.
    async fn request(&mut self) -> Result<DirectRequest, Error> {
        let malformed = |why: String| Error::bad_request(format!("The body is not a request frame: {why}."));
        loop {
            let taken = RequestFrame::take(&mut self.buffer).map_err(|error| malformed(error.to_string()))?;
            if let Some(frame) = taken {
                return DirectRequest::parse(&frame).map_err(|error| malformed(error.to_string()));
            }
            // A frame that is not complete with this many bytes has been refused for its length.
            debug_assert!(self.buffer.len() < METADATA_BYTES_MAX);
            if !self.more().await.map_err(|error| malformed(error.to_string()))? {
                return Err(malformed("it ends early".to_owned()));
            }
        }
    }

    async fn payload_length(&mut self) -> Result<usize, BodyError> {
        self.fill(4).await?;
        let length = usize::try_from(self.buffer.get_u32_le()).unwrap_or(usize::MAX);
        if length > BODY_BYTES_MAX { Err(BodyError::TooLarge) } else { Ok(length) }
    }

    async fn payload(mut self, length: usize) -> Result<Bytes, BodyError> {
        self.fill(length).await?;
        // Reading on finds what should not be there, and the end of a proper body.
        while self.buffer.len() == length {
            if !self.more().await? {
                return Ok(self.buffer.freeze());
            }
        }
        Err(BodyError::Broken("bytes follow the payload".to_owned()))
    }

    /// Waits until at least this many bytes are there.
    async fn fill(&mut self, length: usize) -> Result<(), BodyError> {
        while self.buffer.len() < length {
            if !self.more().await? {
                return Err(BodyError::Broken("the payload is shorter than announced".to_owned()));
            }
        }
        Ok(())
    }
}

/// The HTTP response that carries this response as a frame.
fn framed(
    mut response: Response<Full<Bytes>>,
    activity_id: ActivityId,
    transport_id: Option<u32>,
) -> Response<Full<Bytes>> {
    // The transport looks for these on the outer response.
    let extensions = response.extensions_mut();
    let (held, hang_up) = (extensions.remove::<HeldUntilSent>(), extensions.remove::<HangUp>());
    let mut out = BytesMut::new();
    // One body needs one piece, so even a large payload is copied behind its head.
    if let Some(payload) = response::write(response::whole(response), activity_id, transport_id, &mut out) {
        out.extend_from_slice(&payload.bytes);
    }
    let mut outer = Response::new(Full::new(out.freeze()));
    outer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // For logs on the way, which cannot look into the frame.
    if let Ok(id) = HeaderValue::from_str(&activity_id.to_string()) {
        outer.headers_mut().insert(headers::ACTIVITY_ID, id);
    }
    if let Some(held) = held {
        outer.extensions_mut().insert(held);
    }
    if let Some(hang_up) = hang_up {
        outer.extensions_mut().insert(hang_up);
    }
    outer
}

/// A response without a frame, to a request that no client of Gateway 2.0 sends.
fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
