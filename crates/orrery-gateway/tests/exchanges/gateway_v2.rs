//! Gateway 2.0: the frames of direct mode in HTTP/2 requests, and what is sent there that is no frame.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::client::{self, Response};
use crate::direct::{frame_of, read_parts, read_response};
use crate::hostile;
use crate::server::TestServer;

/// A connection to the port of Gateway 2.0.
pub struct FramedClient {
    address: SocketAddr,
    sender: http2::SendRequest<Full<Bytes>>,
}

impl FramedClient {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { address, sender }
    }

    /// Sends a frame and reads the one that answers it; none if the server resets the stream instead.
    pub async fn exchange(&mut self, frame: Vec<u8>) -> Option<Response> {
        let (status, body) = self.post("/", frame).await?;
        assert_eq!(status, StatusCode::OK);
        read_response(&mut &body[..]).await
    }

    async fn post(&mut self, path: &str, body: Vec<u8>) -> Option<(StatusCode, Vec<u8>)> {
        self.send(self.request(Method::POST, path), body).await
    }

    fn request(&self, method: Method, path: &str) -> http::request::Builder {
        Request::builder().method(method).uri(format!("http://{}{path}", self.address))
    }

    async fn send(
        &mut self,
        request: http::request::Builder,
        body: Vec<u8>,
    ) -> Option<(StatusCode, Vec<u8>)> {
        self.sender.ready().await.unwrap();
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let response = self.sender.send_request(request).await.ok()?;
        let status = response.status();
        Some((status, response.into_body().collect().await.unwrap().to_bytes().to_vec()))
    }

    /// The status and the text of the frame that answers these bytes.
    async fn refusal(&mut self, bytes: Vec<u8>) -> (u16, String) {
        let (status, body) = self.post("/", bytes).await.unwrap();
        assert_eq!(status, StatusCode::OK);
        let (status, _, payload) = read_parts(&mut &body[..]).await.unwrap();
        (status, String::from_utf8(payload).unwrap())
    }
}

#[tokio::test]
async fn the_account_document_names_the_port() {
    let server = TestServer::start().await;
    let request = hostile::request(&server, "GET", "/", b"");
    let account = client::send(server.address, &request).await.json().unwrap();
    for name in ["thinClientReadableLocations", "thinClientWritableLocations"] {
        let location = &account.get(name).unwrap().as_array().unwrap()[0];
        let endpoint = location.get("databaseAccountEndpoint").unwrap().as_str().unwrap();
        assert_eq!(endpoint, format!("http://127.0.0.1:{}/", server.gateway_v2.port()));
    }
}

#[tokio::test]
async fn clients_probe_the_port_first() {
    let server = TestServer::start().await;
    let mut client = FramedClient::connect(server.gateway_v2).await;
    let probed = client.post("/connectivity-probe", Vec::new()).await.unwrap();
    assert_eq!(probed, (StatusCode::OK, Vec::new()));
    let got = client.send(client.request(Method::GET, "/"), Vec::new()).await.unwrap();
    assert_eq!(got.0, StatusCode::METHOD_NOT_ALLOWED);
    let old = hostile::request(&server, "POST", "/connectivity-probe", b"");
    assert_eq!(client::send(server.gateway_v2, &old).await.status, 505);
}

#[tokio::test]
async fn foreign_pages_and_hosts_are_refused() {
    let server = TestServer::start().await;
    let mut client = FramedClient::connect(server.gateway_v2).await;
    let from_page = client.request(Method::POST, "/").header("origin", "https://evil.example");
    assert_eq!(client.send(from_page, Vec::new()).await.unwrap().0, StatusCode::FORBIDDEN);
    let rebound = Request::builder().method(Method::POST).uri("http://evil.example/");
    assert_eq!(client.send(rebound, Vec::new()).await.unwrap().0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn what_is_no_frame_is_answered_with_one() {
    let server = hostile::prepared().await;
    let mut client = FramedClient::connect(server.gateway_v2).await;
    let create = hostile::request(&server, "POST", "/dbs/db/colls/c/docs", br#"{"id":"2","pk":"a"}"#);
    let whole = frame_of(&create).unwrap().bytes();
    let head = usize::try_from(u32::from_le_bytes(whole[..4].try_into().unwrap())).unwrap();
    let with_length = |length: u32| {
        let mut bytes = whole.clone();
        bytes[head..head + 4].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    let mut unknown_type = whole.clone();
    unknown_type[26] = 99;
    for (bytes, status, reason) in [
        (Vec::new(), 400, "it ends early"),
        (b"GET / HTTP/1.1".to_vec(), 400, "too short or too long"),
        (whole[..head - 3].to_vec(), 400, "it ends early"),
        (unknown_type, 400, "unknown token type"),
        (whole[..head + 2].to_vec(), 400, "shorter than announced"),
        (whole[..whole.len() - 1].to_vec(), 400, "shorter than announced"),
        (with_length(3), 400, "bytes follow the payload"),
        (with_length(u32::MAX), 413, "too large"),
    ] {
        let (answered, text) = client.refusal(bytes).await;
        assert!(answered == status && text.contains(reason), "{answered} {text}");
    }
    // None of them has created anything, and the connection still works.
    assert_eq!(client.exchange(whole).await.unwrap().status, 201);
}

/// A payload is read only for a request that may be sent.
#[tokio::test]
async fn frames_are_authenticated() {
    let server = hostile::prepared().await;
    let mut client = FramedClient::connect(server.gateway_v2).await;
    let mut create = hostile::request(&server, "POST", "/dbs/db/colls/c/docs", br#"{"id":"2","pk":"a"}"#);
    for (name, value) in &mut create.headers {
        if name == "authorization" {
            *value = value.replace("sig%3d", "sig%3dA").replace("sig%3D", "sig%3DA");
        }
    }
    let mut bytes = frame_of(&create).unwrap().bytes();
    let head = usize::try_from(u32::from_le_bytes(bytes[..4].try_into().unwrap())).unwrap();
    // An authorised request of this size would be refused for its size.
    bytes[head..head + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(client.refusal(bytes).await.0, 401);
}
