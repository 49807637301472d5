//! Frames: the messages of direct mode.
//!
//! A frame starts with its length, which covers everything up to the payload. A request continues with the kind of
//! resource, the kind of operation and an activity id, a response with the status and the activity id; then both have
//! tokens. If the token `PayloadPresent` says so, the payload follows, preceded by its own length.
//!
//! The first frame of a connection, the *context request*, identifies the client; the server replies with a *context
//! response*.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::token::{MalformedToken, TokenValue, TokenWriter, Tokens};

/// Length, kind of resource, kind of operation, activity id.
pub(super) const HEAD_BYTES: usize = 24;

/// The maximum size of a head with its tokens. A string token has at most 64 KB, and no request has more than a few of
/// them.
pub(super) const METADATA_BYTES_MAX: usize = 256 << 10;

/// The kind of resource and of operation of a context request.
const CONNECTION: u16 = 0;

/// A protocol violation that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedFrame {
    #[error("a frame of {0} bytes is too short or too long")]
    Length(u32),
    #[error("a payload of {0} bytes is too long to skip")]
    Payload(u32),
    #[error("the first frame is not a context request")]
    NoContext,
    #[error("a required token is missing")]
    MissingToken,
    #[error(transparent)]
    Token(#[from] MalformedToken),
}

/// An activity id as it is on the wire: the first three groups are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityId(pub [u8; 16]);

impl ActivityId {
    /// Of a response to a frame that has none.
    pub(super) const NIL: Self = Self([0; 16]);
}

impl std::fmt::Display for ActivityId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The layout of a Windows GUID; the last two groups are bytes in their written order.
        const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
        for (at, place) in ORDER.into_iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                formatter.write_str("-")?;
            }
            write!(formatter, "{:02x}", self.0[place])?;
        }
        Ok(())
    }
}

/// The head of a request and its tokens, borrowed from the frame.
#[derive(Clone, Debug)]
pub struct RequestFrame {
    pub resource: u16,
    pub operation: u16,
    pub activity_id: ActivityId,
    /// All of the frame up to its payload.
    bytes: Bytes,
}

impl RequestFrame {
    /// Takes a frame from the front of the buffer, without its payload; none if it is not complete.
    pub fn take(buffer: &mut BytesMut) -> Result<Option<Self>, MalformedFrame> {
        let Some(length) = announced(buffer)? else { return Ok(None) };
        // The bytes stay in the buffer: the frame is taken whole or not at all.
        if buffer.len() < length {
            return Ok(None);
        }
        // Shares the buffer's memory. Header values made from tokens share it too, so a request copies none of
        // them.
        let bytes = buffer.split_to(length).freeze();
        let mut head = &bytes[4..HEAD_BYTES];
        let (resource, operation) = (head.get_u16_le(), head.get_u16_le());
        let activity_id = ActivityId(head.try_into().map_err(|_| MalformedToken::Truncated)?);
        Ok(Some(Self { resource, operation, activity_id, bytes }))
    }

    pub fn is_context_request(&self) -> bool {
        (self.resource, self.operation) == (CONNECTION, CONNECTION)
    }

    pub fn tokens(&self) -> Tokens<'_> {
        Tokens::new(&self.bytes[HEAD_BYTES..])
    }

    /// A slice of this frame that shares its memory.
    pub(super) fn share(&self, part: &[u8]) -> Bytes {
        self.bytes.slice_ref(part)
    }
}

/// The length of the frame at the front of the buffer, once it is known.
fn announced(buffer: &[u8]) -> Result<Option<usize>, MalformedFrame> {
    let Some(length) = buffer.first_chunk() else { return Ok(None) };
    let length = u32::from_le_bytes(*length);
    match usize::try_from(length) {
        // Checked on the first four bytes, before the buffer grows towards the announced length.
        Ok(bytes) if (HEAD_BYTES..=METADATA_BYTES_MAX).contains(&bytes) => Ok(Some(bytes)),
        _ => Err(MalformedFrame::Length(length)),
    }
}

/// How a client identifies itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContextRequest {
    pub(super) activity_id: ActivityId,
    client_version: Bytes,
    /// For the log.
    pub(super) user_agent: Bytes,
}

impl ContextRequest {
    pub(super) fn parse(frame: &RequestFrame) -> Result<Self, MalformedFrame> {
        const PROTOCOL_VERSION: u16 = 0;
        const CLIENT_VERSION: u16 = 1;
        const USER_AGENT: u16 = 2;
        if !frame.is_context_request() {
            return Err(MalformedFrame::NoContext);
        }
        let (mut protocol, mut client_version, mut user_agent) = (None, None, None);
        for token in frame.tokens() {
            match token? {
                (PROTOCOL_VERSION, TokenValue::ULong(version)) => protocol = Some(version),
                (CLIENT_VERSION, TokenValue::Text(text)) => client_version = Some(text),
                (USER_AGENT, TokenValue::Text(text)) => user_agent = Some(text),
                // Clients add tokens with their versions; what the server does not know says nothing it needs.
                _ => {}
            }
        }
        // The protocol version must be present, but its value is not compared: clients send the one they were
        // built with.
        let (Some(_), Some(client_version), Some(user_agent)) = (protocol, client_version, user_agent) else {
            return Err(MalformedFrame::MissingToken);
        };
        let [client_version, user_agent] = [client_version, user_agent].map(|part| frame.share(part));
        Ok(Self { activity_id: frame.activity_id, client_version, user_agent })
    }

    /// The response: the protocol version, and the idle timeout in seconds after which the server may close the
    /// connection.
    pub(super) fn answer(&self, idle_seconds: u32, unauthenticated_seconds: u32, out: &mut BytesMut) {
        let start = begin(200, self.activity_id, out);
        let mut tokens = TokenWriter(out);
        // The ids of context responses have their own numbering: protocol version, client version, server agent,
        // server version, then the two idle timeouts.
        tokens.ulong(0, 1);
        tokens.small_text(1, &self.client_version);
        tokens.small_text(2, b"Orrery");
        tokens.small_text(3, b"2.14.0.0");
        tokens.ulong(4, idle_seconds);
        tokens.ulong(5, unauthenticated_seconds);
        end(start, out);
    }
}

/// Writes the head of a response and returns where it starts.
pub(super) fn begin(status: u16, activity_id: ActivityId, out: &mut BytesMut) -> usize {
    let start = out.len();
    // The length is known only after the tokens; `end` fills it in.
    out.put_u32_le(0);
    out.put_u32_le(status.into());
    out.put_slice(&activity_id.0);
    start
}

/// Sets the length of the response that starts here, now that its tokens are written.
pub(super) fn end(start: usize, out: &mut BytesMut) {
    let length = u32::try_from(out.len() - start).expect("tokens take a few kilobytes");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(resource: u16, operation: u16, tokens: &[u8]) -> BytesMut {
        let mut bytes = BytesMut::new();
        bytes.put_u32_le(u32::try_from(HEAD_BYTES + tokens.len()).unwrap());
        bytes.put_u16_le(resource);
        bytes.put_u16_le(operation);
        bytes.put_slice(&[1; 16]);
        bytes.put_slice(tokens);
        bytes
    }

    #[test]
    fn frames_are_taken_when_they_are_complete() {
        let whole = frame(3, 1, &[2, 0, 0, 1]);
        for length in 0..whole.len() {
            let mut part = BytesMut::from(&whole[..length]);
            assert!(RequestFrame::take(&mut part).unwrap().is_none());
            assert_eq!(part.len(), length);
        }
        let mut more = whole.clone();
        more.put_slice(b"next");
        let taken = RequestFrame::take(&mut more).unwrap().unwrap();
        assert_eq!((taken.resource, taken.operation, more.as_ref()), (3, 1, &b"next"[..]));
        assert_eq!(taken.tokens().next(), Some(Ok((2, TokenValue::Byte(1)))));
    }

    #[test]
    fn impossible_lengths_are_refused_before_anything_is_kept() {
        for length in [0, 23, 262_145, 2 << 30, u32::MAX] {
            let mut bytes = BytesMut::from(&length.to_le_bytes()[..]);
            assert_eq!(RequestFrame::take(&mut bytes).unwrap_err(), MalformedFrame::Length(length));
        }
    }

    #[test]
    fn activity_ids_are_printed_in_their_own_order() {
        let bytes =
            [0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF];
        assert_eq!(ActivityId(bytes).to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn the_context_is_negotiated() {
        let mut tokens = BytesMut::new();
        let mut writer = TokenWriter(&mut tokens);
        writer.ulong(0, 1);
        writer.small_text(1, b"2018-12-31");
        writer.small_text(2, b"agent");
        writer.byte(4, 1);
        let taken = RequestFrame::take(&mut frame(0, 0, &tokens)).unwrap().unwrap();
        let context = ContextRequest::parse(&taken).unwrap();
        assert_eq!(context.user_agent.as_ref(), b"agent");
        let mut out = BytesMut::new();
        context.answer(600, 30, &mut out);
        assert_eq!(u32::from_le_bytes(out[..4].try_into().unwrap()) as usize, out.len());
        assert_eq!(u32::from_le_bytes(out[4..8].try_into().unwrap()), 200);
        let ids: Vec<u16> = Tokens::new(&out[24..]).map(|token| token.unwrap().0).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5]);

        let other = RequestFrame::take(&mut frame(3, 3, &tokens)).unwrap().unwrap();
        assert_eq!(ContextRequest::parse(&other), Err(MalformedFrame::NoContext));
        let bare = RequestFrame::take(&mut frame(0, 0, &[])).unwrap().unwrap();
        assert_eq!(ContextRequest::parse(&bare), Err(MalformedFrame::MissingToken));
    }
}
