//! The port with well-behaved and hostile clients, over real sockets.

#![allow(clippy::disallowed_methods, reason = "a test is not replayed")]

use std::net::Ipv4Addr;
use std::sync::Arc;

use http::{Method, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prometheus_client::metrics::gauge::Gauge;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::certificate::TlsPolicy;
use super::*;

const BODY_MAX: usize = 100_000;
/// The longest that a test waits; only failures take that long.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct TestHandler {
    body_time_max: Option<Duration>,
    entered: Notify,
    release: Notify,
}

impl Handler for TestHandler {
    async fn handle(&self, request: Request<Incoming>, connection: ConnectionInfo) -> Response<Full<Bytes>> {
        match request.uri().path() {
            "/echo" => {
                let time_max = self.body_time_max.unwrap_or(PATIENCE);
                match read_body(request.into_body(), BODY_MAX, time_max).await {
                    Ok(body) => Response::new(Full::new(body)),
                    Err(BodyError::TooLarge) => status(413),
                    Err(BodyError::TimedOut) => status(408),
                    Err(BodyError::Broken(_)) => status(400),
                    Err(BodyError::NoMemory) => status(429),
                }
            }
            "/panic" => panic!("the handler was asked to"),
            "/wait" => {
                self.entered.notify_one();
                self.release.notified().await;
                text("released")
            }
            "/big" => Response::new(Full::new(Bytes::from(vec![b'x'; 64 << 20]))),
            _ => text(&format!("{:?} tls={}", request.version(), connection.tls)),
        }
    }
}

fn text(text: &str) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes())))
}

fn status(code: u16) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

struct TestServer {
    address: SocketAddr,
    handler: Arc<TestHandler>,
    connections_open: Gauge,
    trust_pem: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Drained>,
}

fn patient() -> TransportOptions {
    TransportOptions {
        handshake_timeout: PATIENCE,
        head_timeout: PATIENCE,
        idle_timeout: PATIENCE,
        write_timeout: PATIENCE,
        drain_timeout: PATIENCE,
        ..TransportOptions::default()
    }
}

fn start(options: TransportOptions) -> TestServer {
    start_with(options, TestHandler::default())
}

fn start_with(options: TransportOptions, handler: TestHandler) -> TestServer {
    start_by_policy(options, handler, &TlsPolicy::default())
}

fn start_by_policy(options: TransportOptions, handler: TestHandler, policy: &TlsPolicy) -> TestServer {
    let names: Vec<String> = certificate::LOCAL_NAMES.iter().map(|name| (*name).to_owned()).collect();
    // The clients of these tests check the certificate against the system's clock.
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let certificate = certificate::create(&names, i64::try_from(now).unwrap(), policy).unwrap();
    let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let (handler, connections_open) = (Arc::new(handler), Gauge::default());
    let server = Server {
        handler: Arc::clone(&handler),
        tls: Some(certificate.tls),
        options,
        connections_open: connections_open.clone(),
    };
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.run(listener, async {
        stopped.await.ok();
    }));
    TestServer { address, handler, connections_open, trust_pem: certificate.current.trust_pem(), stop, task }
}

impl TestServer {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn connect_tls(&self, alpn: &[&str]) -> TlsStream<TcpStream> {
        let mut config = self.client_config(rustls::ALL_VERSIONS).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        self.connect_with(config).await.unwrap()
    }

    fn client_config(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.trust_pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots)
    }

    async fn connect_with(&self, config: rustls::ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, self.connect().await).await
    }

    async fn http1(&self) -> http1::SendRequest<Full<Bytes>> {
        http1_on(self.connect().await).await
    }

    async fn http2(&self) -> http2::SendRequest<Full<Bytes>> {
        http2_on(self.connect().await).await
    }

    /// Checks that others are not affected: new connections of both kinds are served.
    async fn assert_well(&self) {
        let mut client = self.http1().await;
        assert_eq!(send1(&mut client, get("/")).await, (StatusCode::OK, "HTTP/1.1 tls=false".into()));
        let mut client = self.http2().await;
        assert_eq!(send2(&mut client, get("/")).await, (StatusCode::OK, "HTTP/2.0 tls=false".into()));
    }

    async fn stop(self) -> Drained {
        self.stop.send(()).unwrap();
        timeout(PATIENCE, self.task).await.unwrap().unwrap()
    }
}

trait TestStream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static {}
impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static> TestStream for S {}

async fn http1_on(stream: impl TestStream) -> http1::SendRequest<Full<Bytes>> {
    let (client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn http2_on(stream: impl TestStream) -> http2::SendRequest<Full<Bytes>> {
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (client, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    client
}

fn get(path: &str) -> Request<Full<Bytes>> {
    let uri = format!("http://localhost{path}");
    Request::builder().uri(uri).header("host", "localhost").body(Full::default()).unwrap()
}

fn post(path: &str, body: Vec<u8>) -> Request<Full<Bytes>> {
    let mut request = get(path);
    *request.method_mut() = Method::POST;
    *request.body_mut() = Full::new(body.into());
    request
}

async fn answer(response: hyper::Result<Response<Incoming>>) -> (StatusCode, String) {
    let response = response.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn send1(
    client: &mut http1::SendRequest<Full<Bytes>>,
    mut request: Request<Full<Bytes>>,
) -> (StatusCode, String) {
    *request.uri_mut() = request.uri().path_and_query().unwrap().as_str().parse().unwrap();
    client.ready().await.unwrap();
    answer(timeout(PATIENCE, client.send_request(request)).await.unwrap()).await
}

async fn send2(
    client: &mut http2::SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> (StatusCode, String) {
    client.ready().await.unwrap();
    answer(timeout(PATIENCE, client.send_request(request)).await.unwrap()).await
}

/// Sends bytes and reads whatever comes back until the server closes.
async fn exchange_raw(mut stream: impl TestStream, bytes: &[u8]) -> Vec<u8> {
    // The server may close before it has read everything.
    stream.write_all(bytes).await.ok();
    read_to_end(&mut stream).await
}

async fn read_to_end(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut received = Vec::new();
    let read = async {
        let mut chunk = [0; 4096];
        // A reset is an end too.
        while let Ok(length @ 1..) = stream.read(&mut chunk).await {
            received.extend_from_slice(&chunk[..length]);
        }
    };
    timeout(PATIENCE, read).await.expect("the server must close the connection");
    received
}

#[tokio::test]
async fn one_port_serves_every_protocol() {
    let server = start(patient());
    server.assert_well().await;

    let stream = server.connect_tls(&["http/1.1"]).await;
    let mut client = http1_on(stream).await;
    assert_eq!(send1(&mut client, get("/")).await.1, "HTTP/1.1 tls=true");
    assert_eq!(send1(&mut client, get("/")).await.1, "HTTP/1.1 tls=true");

    for alpn in [&["h2", "http/1.1"][..], &[]] {
        let stream = server.connect_tls(alpn).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), alpn.first().map(|name| name.as_bytes()));
        let mut client = http2_on(stream).await;
        assert_eq!(send2(&mut client, get("/")).await.1, "HTTP/2.0 tls=true");
    }
    let mut client = http1_on(server.connect_tls(&[]).await).await;
    assert_eq!(send1(&mut client, get("/")).await.1, "HTTP/1.1 tls=true");
}

#[tokio::test]
async fn http_1_0_and_tiny_pieces_are_understood() {
    let server = start(patient());
    let mut stream = server.connect().await;
    for byte in b"GET / HTTP/1.0\r\n\r\n" {
        stream.write_all(&[*byte]).await.unwrap();
        stream.flush().await.unwrap();
    }
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with(b"HTTP/1.0 200"), "{}", String::from_utf8_lossy(&answer));
    assert!(answer.ends_with(format!("{:?} tls=false", Version::HTTP_10).as_bytes()));
}

#[tokio::test]
async fn bodies_are_read_up_to_their_limit() {
    let server = start(patient());
    for length in [0, 1, 20_000, BODY_MAX, BODY_MAX + 1, 3_000_000] {
        let expected = if length > BODY_MAX { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::OK };
        let mut client = server.http1().await;
        let (status, body) = send1(&mut client, post("/echo", vec![b'y'; length])).await;
        assert_eq!(status, expected, "{length}");
        assert!(status != StatusCode::OK || body.len() == length);
        let mut client = server.http2().await;
        let (status, body) = send2(&mut client, post("/echo", vec![b'y'; length])).await;
        assert_eq!(status, expected, "{length}");
        assert!(status != StatusCode::OK || body.len() == length);
    }
    server.assert_well().await;
}

#[tokio::test]
async fn chunked_bodies_are_read_and_limited() {
    let server = start(patient());
    let head = "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let whole = format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    assert!(exchange_raw(server.connect().await, whole.as_bytes()).await.ends_with(b"abcde"));
    let mut long = head.to_owned();
    for _ in 0..200 {
        long.push_str("400\r\n");
        long.push_str(&"z".repeat(1024));
        long.push_str("\r\n");
    }
    let refused = exchange_raw(server.connect().await, format!("{long}0\r\n\r\n").as_bytes()).await;
    assert!(refused.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&refused));
    let broken = exchange_raw(server.connect().await, format!("{head}nonsense\r\nabc").as_bytes()).await;
    assert!(broken.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&broken));
    server.assert_well().await;
}

#[tokio::test]
async fn long_heads_are_accepted_and_longer_ones_refused() {
    let server = start(patient());
    let with_headers = |count: usize, length: usize| {
        let mut request = get("/");
        for number in 0..count {
            let name: http::HeaderName = format!("x-test-{number}").parse().unwrap();
            request.headers_mut().insert(name, "v".repeat(length).parse().unwrap());
        }
        request
    };
    // Four tokens of 16 KB and a little more than 64 KB in one header.
    for (count, length) in [(4, 16_384), (1, 66_000), (60, 100)] {
        let mut client = server.http1().await;
        assert_eq!(send1(&mut client, with_headers(count, length)).await.0, StatusCode::OK);
        let mut client = server.http2().await;
        assert_eq!(send2(&mut client, with_headers(count, length)).await.0, StatusCode::OK);
    }
    let huge = format!("GET / HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "v".repeat(400_000));
    let answer = exchange_raw(server.connect().await, huge.as_bytes()).await;
    // The refusal may be lost when the connection is reset under the rest of the head.
    assert!(answer.starts_with(b"HTTP/1.1 431") || answer.is_empty());
    let many = "x-name: v\r\n".repeat(1000);
    let answer =
        exchange_raw(server.connect().await, format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    let mut client = server.http2().await;
    client.ready().await.unwrap();
    let refused = client.send_request(with_headers(20, 16_384)).await;
    assert!(refused.is_err() || refused.unwrap().status() == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    // Headers without end.
    let mut stream = server.connect().await;
    let endless = async {
        stream.write_all(b"GET / HTTP/1.1\r\nx: ").await?;
        loop {
            stream.write_all(&[b'v'; 10_000]).await?;
        }
    };
    let result: std::io::Result<()> = timeout(PATIENCE, endless).await.unwrap();
    assert!(result.is_err());
    server.assert_well().await;
}

/// A small generator, so that a failure names its seed and can be repeated.
struct Noise(u64);

impl Noise {
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.0.to_be_bytes()[1]
        };
        (0..length).map(|_| next()).collect()
    }
}

#[tokio::test]
async fn garbage_harms_nobody() {
    let server = start(TransportOptions {
        handshake_timeout: Duration::from_millis(300),
        head_timeout: Duration::from_millis(300),
        idle_timeout: Duration::from_millis(300),
        ..patient()
    });
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let mut attacks: Vec<Vec<u8>> = vec![
        b"\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n".to_vec(),
        b"POST /echo HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello".to_vec(),
        b"GET / HTTP/1.1\r\n: no name\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nname\0: x\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".to_vec(),
        // A TLS record of the wrong version, one that is cut short, one that is larger than allowed.
        vec![0x16, 0x03, 0x00, 0x00, 0x05, 1, 2, 3, 4, 5],
        vec![0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00],
        vec![0x16, 0x03, 0x03, 0xFF, 0xFF],
        vec![0x16],
    ];
    // HTTP/2: a frame that is too long, of stream 0, of unknown kind, headers that do not decode, a window
    // update of 0, settings of a wrong length, data on a stream that was never opened.
    for frame in [
        &[0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 1][..],
        &[0, 0, 1, 0, 0, 0, 0, 0, 0, b'x'],
        &[0, 0, 1, 0x55, 0, 0, 0, 0, 1, b'x'],
        &[0, 0, 4, 1, 5, 0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF],
        &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 5, 4, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5],
        &[0, 0, 1, 0, 0, 0, 0, 0, 3, b'x'],
        &[0, 0, 1, 9, 0, 0, 0, 0, 1, 0x82],
    ] {
        attacks.push([&preface, frame].concat());
    }
    let mut noise = Noise(0x5EED);
    for length in [1, 7, 100, 5000] {
        for start in [&b""[..], &[0x16, 3, 1], &preface] {
            attacks.push([start, &noise.bytes(length)].concat());
        }
    }
    for attack in &attacks {
        exchange_raw(server.connect().await, attack).await;
    }
    let mut stream = server.connect_tls(&["h2"]).await;
    stream.write_all(&noise.bytes(2000)).await.unwrap();
    read_to_end(&mut stream).await;
    server.assert_well().await;
    assert_eq!(server.stop().await, Drained { cut: 0 });
}

#[tokio::test]
async fn slow_heads_are_cut_off_while_others_are_served() {
    let server = start(TransportOptions { head_timeout: Duration::from_millis(200), ..patient() });
    let slow = async {
        let stream = server.connect().await;
        let (mut reader, mut writer) = stream.into_split();
        let drip = tokio::spawn(async move {
            writer.write_all(b"GET / HTTP/1.1\r\n").await?;
            let mut pause = tokio::time::interval(Duration::from_millis(20));
            loop {
                pause.tick().await;
                writer.write_all(b"x-a: b\r\n").await?;
            }
            #[expect(unreachable_code, reason = "the type of the errors above")]
            Ok::<(), std::io::Error>(())
        });
        let received = read_to_end(&mut reader).await;
        drip.abort();
        received
    };
    let (received, ()) = tokio::join!(slow, server.assert_well());
    assert!(!received.starts_with(b"HTTP/1.1 200"));
    // The second request of a connection has the same limit.
    let mut stream = server.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut status_line = [0; 12];
    stream.read_exact(&mut status_line).await.unwrap();
    assert_eq!(&status_line, b"HTTP/1.1 200");
    stream.write_all(b"GET / HT").await.unwrap();
    read_to_end(&mut stream).await;
}

#[tokio::test]
async fn slow_bodies_are_given_up() {
    let handler = TestHandler { body_time_max: Some(Duration::from_millis(100)), ..TestHandler::default() };
    let server = start_with(patient(), handler);
    let head = b"POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 100\r\n\r\nabc";
    let received = exchange_raw(server.connect().await, head).await;
    assert!(received.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&received));
    server.assert_well().await;
}

#[tokio::test]
async fn silent_connections_are_closed() {
    let server = start(TransportOptions { handshake_timeout: Duration::from_millis(100), ..patient() });
    let mut plain = server.connect().await;
    let mut half_tls = server.connect().await;
    half_tls.write_all(&[0x16, 0x03, 0x01]).await.unwrap();
    let mut half_preface = server.connect().await;
    half_preface.write_all(b"PRI * HT").await.unwrap();
    for stream in [&mut plain, &mut half_tls, &mut half_preface] {
        read_to_end(stream).await;
    }
    server.assert_well().await;
}

#[tokio::test]
async fn idle_connections_are_closed_but_not_early() {
    let idle = Duration::from_millis(400);
    let server = start(TransportOptions {
        idle_timeout: idle,
        handshake_timeout: Duration::from_millis(50),
        ..patient()
    });
    for protocol in [Version::HTTP_11, Version::HTTP_2] {
        let mut stream = server.connect().await;
        let begin = Instant::now();
        if protocol == Version::HTTP_2 {
            stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        } else {
            stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        }
        let received = read_to_end(&mut stream).await;
        assert!(!received.is_empty());
        assert!(begin.elapsed() >= idle, "{protocol:?} closed after {:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn a_request_under_way_is_not_idle() {
    let server = start(TransportOptions {
        idle_timeout: Duration::from_millis(50),
        head_timeout: Duration::from_millis(50),
        ..patient()
    });
    let mut client = server.http1().await;
    let waiting = send1(&mut client, get("/wait"));
    let release = async {
        server.handler.entered.notified().await;
        // Others are served, fall silent and are cut off, one after the other.
        for _ in 0..4 {
            let mut idle = server.connect().await;
            idle.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            read_to_end(&mut idle).await;
        }
        server.handler.release.notify_one();
    };
    let (answer, ()) = tokio::join!(waiting, release);
    assert_eq!(answer, (StatusCode::OK, "released".into()));
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_off() {
    let server = start(TransportOptions { write_timeout: Duration::from_millis(200), ..patient() });
    let mut stream = server.connect().await;
    stream.write_all(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    wait_until(|| server.connections_open.get() == 1).await;
    wait_until(|| server.connections_open.get() == 0).await;
    // HTTP/2: a request whose response the client gives no room for (its window is 0).
    let mut stream = server.connect().await;
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    // GET http://x/big, without indexing, as plain strings.
    let block = b"\x82\x86\x04\x04/big\x01\x01x";
    let headers = [0, 0, u8::try_from(block.len()).unwrap(), 1, 5, 0, 0, 0, 1];
    let bytes = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &headers, block].concat();
    stream.write_all(&bytes).await.unwrap();
    wait_until(|| server.connections_open.get() == 1).await;
    wait_until(|| server.connections_open.get() == 0).await;
    server.assert_well().await;
}

async fn wait_until(condition: impl Fn() -> bool) {
    orrery_testing::wait::eventually_true("the condition", async || condition()).await;
}

#[tokio::test]
async fn connections_are_bounded() {
    let server = start(TransportOptions { connections_max: 2, ..patient() });
    let mut first = server.http1().await;
    let mut second = server.http1().await;
    send1(&mut first, get("/")).await;
    send1(&mut second, get("/")).await;
    let mut third = server.http1().await;
    let waiting = send1(&mut third, get("/"));
    let mut waiting = std::pin::pin!(waiting);
    assert!(timeout(Duration::from_millis(200), &mut waiting).await.is_err());
    assert_eq!(server.connections_open.get(), 2);
    drop(first);
    assert_eq!(waiting.await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_panic_ends_one_request_only() {
    let server = start(patient());
    let mut client = server.http1().await;
    let (status, body) = send1(&mut client, get("/panic")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(body.contains("InternalServerError"));
    assert_eq!(send1(&mut client, get("/")).await.0, StatusCode::OK);
    let mut client = server.http2().await;
    let mut other = client.clone();
    let (panicked, waited, ()) =
        tokio::join!(send2(&mut client, get("/panic")), send2(&mut other, get("/wait")), async {
            server.handler.entered.notified().await;
            server.handler.release.notify_one();
        });
    assert_eq!(panicked.0, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(waited.0, StatusCode::OK);
}

#[tokio::test]
async fn stopping_lets_requests_finish() {
    let server = start(patient());
    let mut idle = server.connect().await;
    let mut kept = server.http1().await;
    send1(&mut kept, get("/")).await;
    let (mut one, mut two) = (server.http1().await, server.http2().await);
    let (address, handler) = (server.address, Arc::clone(&server.handler));
    let waiting =
        tokio::spawn(
            async move { tokio::join!(send1(&mut one, get("/wait")), send2(&mut two, get("/wait"))) },
        );
    handler.entered.notified().await;
    wait_until(|| server.connections_open.get() == 4).await;
    let mut stopping = std::pin::pin!(server.stop());
    assert!(timeout(Duration::from_millis(100), &mut stopping).await.is_err());
    assert!(TcpStream::connect(address).await.is_err());
    read_to_end(&mut idle).await;
    handler.release.notify_one();
    handler.release.notify_waiters();
    tokio::spawn(async move {
        // The second request may enter after the first was released.
        loop {
            handler.release.notify_one();
            tokio::task::yield_now().await;
        }
    });
    let (first, second) = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert_eq!((first.1.as_str(), second.1.as_str()), ("released", "released"));
    assert_eq!(stopping.await, Drained { cut: 0 });
}

#[tokio::test]
async fn stopping_cuts_what_does_not_finish() {
    let server = start(TransportOptions { drain_timeout: Duration::from_millis(100), ..patient() });
    let (mut one, mut two) = (server.http1().await, server.http2().await);
    let handler = Arc::clone(&server.handler);
    let cut_one = tokio::spawn(async move { one.send_request(get("/wait")).await.is_err() });
    handler.entered.notified().await;
    let cut_two = tokio::spawn(async move { two.send_request(get("/wait")).await.is_err() });
    handler.entered.notified().await;
    assert_eq!(server.stop().await, Drained { cut: 2 });
    assert!(cut_one.await.unwrap() && cut_two.await.unwrap());
}

#[tokio::test]
async fn a_port_in_use_is_an_error() {
    let first = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let error = bind(first.local_addr().unwrap()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn old_versions_of_tls_can_be_refused() {
    let policy = TlsPolicy { only_tls13: true, ..TlsPolicy::default() };
    let server = start_by_policy(patient(), TestHandler::default(), &policy);
    let old = server.client_config(&[&rustls::version::TLS12]).with_no_client_auth();
    assert!(server.connect_with(old).await.is_err());
    let new = server.client_config(&[&rustls::version::TLS13]).with_no_client_auth();
    server.connect_with(new).await.unwrap();
}

#[tokio::test]
async fn clients_can_be_required_to_have_a_certificate() {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    let (authority_key, client_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let mut client = CertificateParams::new(vec!["client".to_owned()]).unwrap();
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let client = client.signed_by(&client_key, &Issuer::new(authority, authority_key)).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority_pem).unwrap();

    let policy = TlsPolicy { client_authorities: Some(file.path().to_owned()), ..TlsPolicy::default() };
    let options = TransportOptions { requires_tls: true, ..patient() };
    let server = start_by_policy(options, TestHandler::default(), &policy);
    // The server refuses at its end of the handshake, so with TLS 1.3 a client notices when it reads.
    let refused = server.client_config(rustls::ALL_VERSIONS).with_no_client_auth();
    if let Ok(mut stream) = server.connect_with(refused).await {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.ok();
        assert!(stream.read_to_end(&mut Vec::new()).await.is_err());
    }
    let mut plain = server.connect().await;
    plain.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.ok();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).await.ok();
    assert!(answer.is_empty());

    let key =
        rustls::pki_types::PrivateKeyDer::from_pem_slice(client_key.serialize_pem().as_bytes()).unwrap();
    let config = server.client_config(rustls::ALL_VERSIONS);
    let config = config.with_client_auth_cert(vec![client.der().clone()], key).unwrap();
    let mut accepted = http1_on(server.connect_with(config).await.unwrap()).await;
    assert_eq!(send1(&mut accepted, get("/")).await, (StatusCode::OK, "HTTP/1.1 tls=true".into()));
}
