//! Detects the protocol from a connection's first bytes.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// What an HTTP/2 client sends first.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The type of the record that begins a TLS handshake; no HTTP method begins with this byte.
pub(super) const TLS_HANDSHAKE: u8 = 0x16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Reads until the bytes are known to be the HTTP/2 preface or not. Also returns the bytes, which belong to the stream.
/// `None` if the client closed without sending anything.
pub(super) async fn detect(io: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(Protocol, Bytes)>> {
    let mut first_bytes = BytesMut::with_capacity(1024);
    loop {
        if io.read_buf(&mut first_bytes).await? == 0 {
            // Only a part of the preface: let HTTP/1 respond.
            let protocol = (!first_bytes.is_empty()).then_some(Protocol::Http1);
            return Ok(protocol.map(|protocol| (protocol, first_bytes.freeze())));
        }
        // The preface may arrive in pieces; the first byte that differs settles it.
        let compared = first_bytes.len().min(HTTP2_PREFACE.len());
        if first_bytes[..compared] != HTTP2_PREFACE[..compared] {
            return Ok(Some((Protocol::Http1, first_bytes.freeze())));
        }
        if compared == HTTP2_PREFACE.len() {
            return Ok(Some((Protocol::Http2, first_bytes.freeze())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(input: &[u8], expected: Option<Protocol>) {
        let found = detect(&mut &input[..]).await.unwrap();
        assert_eq!(found.as_ref().map(|(protocol, _)| *protocol), expected);
        if let Some((_, first_bytes)) = found {
            assert!(input.starts_with(&first_bytes));
        }
    }

    #[tokio::test]
    async fn the_preface_decides() {
        check(b"", None).await;
        check(b"GET / HTTP/1.1\r\n", Some(Protocol::Http1)).await;
        check(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0", Some(Protocol::Http2)).await;
        check(b"PRI * HTTP/2.0\r\n\r\n", Some(Protocol::Http1)).await;
        check(b"PRI", Some(Protocol::Http1)).await;
        check(b"PROPFIND / HTTP/1.1\r\n", Some(Protocol::Http1)).await;
    }
}
