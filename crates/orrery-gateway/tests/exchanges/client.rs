//! A client of a few lines: one connection per request, HTTP/1.1 as it is written.

use std::net::SocketAddr;

use orrery_model::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Option<Value> {
        orrery_model::value::parse(&self.body).ok()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub async fn send(address: SocketAddr, request: &Request) -> Response {
    try_send(address, request).await.unwrap_or_else(|| panic!("no response to {request:?}"))
}

/// None if the server hangs up without an answer.
pub async fn try_send(address: SocketAddr, request: &Request) -> Option<Response> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut head = format!(
        "{} {} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n",
        request.method,
        request.target,
        request.body.len()
    );
    for (name, value) in &request.headers {
        head.extend([name.as_str(), ": ", value, "\r\n"]);
    }
    head.push_str("\r\n");
    // A server may answer and hang up before it has read a body that it refuses.
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&request.body).await.ok();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.ok();
    if bytes.is_empty() {
        return None;
    }
    let response = parse(&bytes);
    assert!(response.is_some(), "no response to {request:?}: {:?}", String::from_utf8_lossy(&bytes));
    response
}

fn parse(bytes: &[u8]) -> Option<Response> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .map(|line| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned())));
    let response =
        Response { status, headers: headers.collect::<Option<_>>()?, body: bytes[end + 4..].to_vec() };
    let length = response.header("content-length").map(|length| length.parse::<usize>().unwrap());
    // To HEAD and 304 a server may tell the length of what it does not send.
    assert!(length.is_none_or(|length| response.body.is_empty() || length == response.body.len()));
    Some(response)
}
