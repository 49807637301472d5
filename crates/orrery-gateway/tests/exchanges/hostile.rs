//! Clients that break the protocol of direct mode, or try to: they are refused, and others are served meanwhile.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{Request, send};
use crate::direct::{DirectClient, Frame, connect_tls, connect_tls_over, context_request, frame_of};
use crate::script::authorization;
use crate::server::TestServer;

/// Longer than anything here takes, shorter than the server's own patience with slow clients.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn request(server: &TestServer, method: &str, target: &str, body: &[u8]) -> Request {
    let mut headers = authorization(server, "primary", method, target);
    if target.contains("/docs") {
        headers.push(("x-ms-documentdb-partitionkey".to_owned(), "[\"a\"]".to_owned()));
    }
    Request { method: method.to_owned(), target: target.to_owned(), headers, body: body.to_vec() }
}

/// A server with one item.
pub async fn prepared() -> TestServer {
    let server = TestServer::start().await;
    let container = br#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    for (target, body) in [
        ("/dbs", &br#"{"id":"db"}"#[..]),
        ("/dbs/db/colls", container),
        ("/dbs/db/colls/c/docs", br#"{"id":"1","pk":"a"}"#),
    ] {
        assert_eq!(send(server.address, &request(&server, "POST", target, body)).await.status, 201);
    }
    server
}

fn read_frame(server: &TestServer) -> Frame {
    frame_of(&request(server, "GET", "/dbs/db/colls/c/docs/1", b"")).unwrap()
}

async fn is_closed(client: &mut DirectClient) -> bool {
    let mut rest = Vec::new();
    // A reset is as good as an orderly end.
    timeout(PATIENCE, client.stream.read_to_end(&mut rest)).await.is_ok_and(|_| rest.is_empty())
}

async fn reads(client: &mut DirectClient, server: &TestServer) -> u16 {
    client.send(&read_frame(server).bytes()).await;
    timeout(PATIENCE, client.receive()).await.unwrap().unwrap().status
}

#[tokio::test]
async fn garbage_ends_the_connection_that_sent_it() {
    let server = prepared().await;
    let mut good = DirectClient::connect(&server.direct).await;
    let unknown_type = {
        let mut bytes = read_frame(&server).bytes();
        // The type of the first token.
        bytes[26] = 99;
        bytes
    };
    let cut_token = {
        let mut bytes = read_frame(&server).bytes();
        let length = u32::try_from(bytes.len() - 2).unwrap();
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    for (what, bytes) in [
        ("two gigabytes", (2_u32 << 30).to_le_bytes().to_vec()),
        ("all ones", vec![0xFF; 64]),
        ("no length", vec![0; 64]),
        ("an unknown type", unknown_type),
        ("a token beyond its frame", cut_token),
        ("HTTP", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec()),
    ] {
        let mut bad = DirectClient::connect(&server.direct).await;
        bad.send(&bytes).await;
        assert!(is_closed(&mut bad).await, "{what}");
        assert_eq!(reads(&mut good, &server).await, 200, "{what}");
    }
}

#[tokio::test]
async fn nothing_is_served_before_the_context_request() {
    let server = prepared().await;
    let mut client = DirectClient { stream: connect_tls(&server.direct).await };
    client.send(&read_frame(&server).bytes()).await;
    assert!(is_closed(&mut client).await);
}

#[tokio::test]
async fn the_context_request_can_be_repeated() {
    let server = prepared().await;
    let mut client = DirectClient::connect(&server.direct).await;
    client.send(&context_request()).await;
    let mut length = [0; 4];
    client.stream.read_exact(&mut length).await.unwrap();
    let mut rest = vec![0; u32::from_le_bytes(length) as usize - 4];
    client.stream.read_exact(&mut rest).await.unwrap();
    assert_eq!(rest[..4], 200_u32.to_le_bytes());
    assert_eq!(reads(&mut client, &server).await, 200);
}

#[tokio::test]
async fn a_partial_frame_waits_for_the_rest() {
    let server = prepared().await;
    let mut slow = DirectClient::connect(&server.direct).await;
    let mut good = DirectClient::connect(&server.direct).await;
    let bytes = read_frame(&server).bytes();
    for part in bytes.chunks(7) {
        slow.send(part).await;
        assert_eq!(reads(&mut good, &server).await, 200);
    }
    assert_eq!(timeout(PATIENCE, slow.receive()).await.unwrap().unwrap().status, 200);
}

#[tokio::test]
async fn oversized_payloads_are_rejected_and_the_connection_continues() {
    let server = prepared().await;
    let mut client = DirectClient::connect(&server.direct).await;
    let mut frame = frame_of(&request(&server, "POST", "/dbs/db/colls/c/docs", b"{}")).unwrap();
    frame.payload = vec![b' '; (2 << 20) + 1];
    client.send(&frame.bytes()).await;
    assert_eq!(client.receive().await.unwrap().status, 413);
    assert_eq!(reads(&mut client, &server).await, 200);

    // A length beyond everything is not even passed over.
    let small = Frame::new("Document", "Create").bytes();
    let mut bytes = small[..24].to_vec();
    bytes.extend([2, 0, 0, 1]);
    bytes[..4].copy_from_slice(&28_u32.to_le_bytes());
    bytes.extend(u32::MAX.to_le_bytes());
    client.send(&bytes).await;
    assert!(is_closed(&mut client).await);
}

#[tokio::test]
async fn every_request_is_authenticated() {
    let server = prepared().await;
    let mut client = DirectClient::connect(&server.direct).await;
    assert_eq!(reads(&mut client, &server).await, 200);
    let mut unsigned = request(&server, "GET", "/dbs/db/colls/c/docs/1", b"");
    unsigned.headers.retain(|(name, _)| name != "authorization");
    client.send(&frame_of(&unsigned).unwrap().bytes()).await;
    assert_eq!(client.receive().await.unwrap().status, 401);
    // A large payload of somebody who may not send it is passed over.
    let mut large = request(&server, "POST", "/dbs/db/colls/c/docs", &vec![b' '; 1 << 20]);
    large.headers = authorization(&server, "a stranger", "POST", "/dbs/db/colls/c/docs");
    client.send(&frame_of(&large).unwrap().bytes()).await;
    assert_eq!(client.receive().await.unwrap().status, 401);
    assert_eq!(reads(&mut client, &server).await, 200);
}

#[tokio::test]
async fn idle_unauthenticated_connections_are_evicted() {
    let server = prepared().await;
    let mut good = DirectClient::connect(&server.direct).await;
    assert_eq!(reads(&mut good, &server).await, 200);
    // More than there are places for connections that have not authenticated.
    let mut idle = Vec::new();
    for _ in 0..1100 {
        idle.push(TcpStream::connect(server.direct.address).await.unwrap());
    }
    assert_eq!(reads(&mut good, &server).await, 200);
    let mut late = timeout(PATIENCE, DirectClient::connect(&server.direct)).await.unwrap();
    assert_eq!(reads(&mut late, &server).await, 200);
    // The first ones were pushed out.
    let mut byte = [0];
    let end = timeout(PATIENCE, idle[0].read(&mut byte)).await.unwrap();
    assert!(end.unwrap_or(0) == 0);
}

#[tokio::test]
async fn a_thousand_concurrent_requests_are_answered() {
    let server = prepared().await;
    let mut client = DirectClient::connect(&server.direct).await;
    let frame = read_frame(&server).bytes();
    let all = frame.repeat(1000);
    let (mut reader, mut writer) = tokio::io::split(client.stream);
    let writing = tokio::spawn(async move {
        writer.write_all(&all).await.unwrap();
        writer.flush().await.unwrap();
        writer
    });
    let mut seen = 0;
    let mut bytes = Vec::new();
    while seen < 1000 {
        let mut chunk = vec![0; 64 << 10];
        let count = timeout(PATIENCE, reader.read(&mut chunk)).await.unwrap().unwrap();
        assert!(count > 0, "the server hung up after {seen}");
        bytes.extend(&chunk[..count]);
        while let Some(length) = whole_response(&bytes) {
            assert_eq!(bytes[4..8], 200_u32.to_le_bytes());
            bytes.drain(..length);
            seen += 1;
        }
    }
    client = DirectClient { stream: reader.unsplit(writing.await.unwrap()) };
    assert_eq!(reads(&mut client, &server).await, 200);
}

/// A stream that keeps what was read.
struct Tap {
    io: TcpStream,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for Tap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.io).poll_read(context, buffer);
        self.seen.lock().unwrap().extend(&buffer.filled()[before..]);
        result
    }
}

impl AsyncWrite for Tap {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// The Java client breaks off a connection where one record carries two of its responses.
#[tokio::test]
async fn responses_do_not_share_tls_records() {
    let server = prepared().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let io = TcpStream::connect(server.direct.address).await.unwrap();
    let stream = connect_tls_over(&server.direct, Tap { io, seen: Arc::clone(&seen) }).await;
    let mut client = DirectClient::negotiate(stream).await;
    seen.lock().unwrap().clear();
    client.send(&read_frame(&server).bytes().repeat(20)).await;
    for _ in 0..20 {
        assert_eq!(timeout(PATIENCE, client.receive()).await.unwrap().unwrap().status, 200);
    }
    // A record has its type, its version, its length, and as many bytes.
    let mut bytes = &seen.lock().unwrap()[..];
    let mut records = 0;
    while let [23, _, _, high, low, rest @ ..] = bytes {
        bytes = &rest[usize::from(u16::from_be_bytes([*high, *low]))..];
        records += 1;
    }
    assert_eq!((records, bytes.len()), (20, 0));
}

/// The length of the response at the front, if all of it is there. All have a payload.
fn whole_response(bytes: &[u8]) -> Option<usize> {
    let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
    let head = number(0)?;
    let length = head + 4 + number(head)?;
    (bytes.len() >= length).then_some(length)
}
