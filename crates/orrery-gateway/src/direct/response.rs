//! Converts the pipeline's response into a frame: each header becomes a token.

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use http::{HeaderMap, Response};
use http_body_util::{BodyExt, Full};

use super::frame::{self, ActivityId};
use super::token::TokenWriter;
use crate::headers;
use crate::transport::HeldUntilSent;

/// Identifiers of tokens that are not headers.
const PAYLOAD_PRESENT: u16 = 0;
const LSN: u16 = 19;
const TRANSPORT_REQUEST_ID: u16 = 53;

/// A payload that is sent without copying, and the memory it holds until then.
pub(super) struct LargePayload {
    pub(super) bytes: Bytes,
    pub(super) _held: Option<HeldUntilSent>,
}

/// The response with its body in one piece, as it always is.
pub(super) fn whole(response: Response<Full<Bytes>>) -> Response<Bytes> {
    response.map(|body| match body.collect().now_or_never() {
        Some(Ok(collected)) => collected.to_bytes(),
        _ => Bytes::new(),
    })
}

/// Writes the response up to its payload; returns the payload if it is large enough to be sent without copying.
pub(super) fn write(
    response: Response<Bytes>,
    activity_id: ActivityId,
    transport_id: Option<u32>,
    out: &mut BytesMut,
) -> Option<LargePayload> {
    /// Smaller payloads are copied after their head, so that several responses share one write.
    const COPIED_BYTES_MAX: usize = 32 << 10;

    let (mut parts, body) = response.into_parts();
    let start = frame::begin(parts.status.as_u16(), activity_id, out);
    let mut tokens = TokenWriter(out);
    // Clients read the payload's length only if this flag is set.
    tokens.byte(PAYLOAD_PRESENT, u8::from(!body.is_empty()));
    // Responses come in any order; by this id the client finds the request.
    if let Some(id) = transport_id {
        tokens.ulong(TRANSPORT_REQUEST_ID, id);
    }
    write_tokens(&parts.headers, &mut tokens);
    frame::end(start, out);
    if body.is_empty() {
        return None;
    }
    out.put_u32_le(u32::try_from(body.len()).expect("a page has a few megabytes"));
    if body.len() > COPIED_BYTES_MAX {
        // The reservation moves along: the memory is in use until the socket has taken the bytes.
        return Some(LargePayload { bytes: body, _held: parts.extensions.remove() });
    }
    out.put_slice(&body);
    None
}

fn write_tokens(sent: &HeaderMap, tokens: &mut TokenWriter<'_>) {
    let mut has_lsn = false;
    for (name, value) in sent {
        let value = value.as_bytes();
        // Text that is no UTF-8 cannot be a number; the tokens with strings take the bytes as they are.
        let text = std::str::from_utf8(value).unwrap_or_default();
        // The numbers are the protocol's identifiers for responses, which differ from those for requests.
        match name.as_str() {
            headers::CONTINUATION => tokens.text(3, value),
            "etag" => tokens.text(4, value),
            "x-ms-retry-after-ms" => set_number(12, text, tokens),
            headers::RESOURCE_QUOTA => tokens.text(14, value),
            headers::RESOURCE_USAGE => tokens.text(15, value),
            "x-ms-schemaversion" => tokens.small_text(16, value),
            "lsn" => {
                has_lsn = true;
                set_long(LSN, text, tokens);
            }
            "x-ms-item-count" => set_number(20, text, tokens),
            headers::REQUEST_CHARGE => set_double(21, text, tokens),
            "x-ms-alt-content-path" => tokens.text(23, value),
            "x-ms-content-path" => tokens.text(24, value),
            "x-ms-quorum-acked-lsn" => set_long(26, text, tokens),
            headers::SUBSTATUS => set_number(28, text, tokens),
            "x-ms-documentdb-collection-index-transformation-progress" => set_number(29, text, tokens),
            "x-ms-current-write-quorum" => set_number(30, text, tokens),
            "x-ms-current-replica-set-size" => set_number(31, text, tokens),
            headers::RANGE_ID => tokens.text(33, value),
            headers::SCRIPT_LOG => tokens.text(37, value),
            "x-ms-xp-role" => set_number(38, text, tokens),
            "x-ms-documentdb-query-metrics" => tokens.text(40, value),
            "x-ms-global-committed-lsn" => set_long(41, text, tokens),
            "x-ms-number-of-read-regions" => set_number(48, text, tokens),
            "x-ms-offer-replace-pending" => tokens.byte(49, u8::from(text.eq_ignore_ascii_case("true"))),
            "x-ms-item-lsn" => set_long(50, text, tokens),
            headers::SHARE_THROUGHPUT => tokens.byte(54, u8::from(text.eq_ignore_ascii_case("true"))),
            "x-ms-cosmos-llsn" => set_long(58, text, tokens),
            "x-ms-cosmos-quorum-acked-llsn" => set_long(59, text, tokens),
            "x-ms-cosmos-item-llsn" => set_long(60, text, tokens),
            headers::SESSION_TOKEN => tokens.text(62, own_session(value)),
            "x-ms-cosmos-index-utilization" => tokens.text(68, value),
            "x-ms-cosmos-query-execution-info" => tokens.text(69, value),
            "x-ms-request-duration-ms" => set_double(81, text, tokens),
            "x-ms-cosmos-query-requiresdistribution" => {
                tokens.byte(102, u8::from(text.eq_ignore_ascii_case("true")));
            }
            "x-ms-cosmos-query-advice" => tokens.text(117, value),
            _ => {}
        }
    }
    if !has_lsn {
        // For resources outside item partitions. Clients consider a response without an LSN as coming from a broken
        // replica.
        for id in [LSN, 26, 41, 58, 59] {
            tokens.longlong(id, 1);
        }
        for id in [30, 31] {
            tokens.ulong(id, 1);
        }
        tokens.ulong(48, 0);
    }
}

/// The session token of the partition, without its range: clients prepend that themselves.
fn own_session(token: &[u8]) -> &[u8] {
    let start = token.iter().rposition(|byte| *byte == b':').map_or(0, |at| at + 1);
    &token[start..]
}

fn set_number(id: u16, text: &str, tokens: &mut TokenWriter<'_>) {
    if let Ok(number) = text.parse() {
        tokens.ulong(id, number);
    }
}

fn set_long(id: u16, text: &str, tokens: &mut TokenWriter<'_>) {
    if let Ok(number) = text.parse() {
        tokens.longlong(id, number);
    }
}

fn set_double(id: u16, text: &str, tokens: &mut TokenWriter<'_>) {
    if let Ok(number) = text.parse() {
        tokens.double(id, number);
    }
}
