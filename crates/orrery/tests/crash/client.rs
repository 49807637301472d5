//! A client of HTTP/1.1 over one connection, with signed requests.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use orrery_db::SystemEnv;
use orrery_gateway::auth::{MasterKey, print_date, sign_request};
use orrery_model::Value;
use orrery_model::env::Env;

/// What a request waits for at most; only failures take that long.
const PATIENCE: Duration = Duration::from_mins(1);

pub struct Client {
    port: u16,
    key: MasterKey,
    stream: Option<TcpStream>,
}

pub struct Response {
    pub status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        orrery_model::value::parse(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    pub fn new(port: u16) -> Self {
        Self { port, key: MasterKey::well_known(), stream: None }
    }

    /// Sends a request and waits for its answer. An error means that nobody knows what became of it.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let outcome = self.exchange(method, path, headers, body);
        if outcome.is_err() {
            self.stream = None;
        }
        outcome
    }

    fn exchange(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let date = print_date(SystemEnv.now_seconds());
        let authorization = sign_request(&self.key, method, path, None, &date);
        let length = body.len();
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nx-ms-date: {date}\r\nauthorization: {authorization}\r\ncontent-length: {length}\r\n"
        );
        for (name, value) in headers {
            request.extend([name, ": ", value, "\r\n"]);
        }
        request.push_str("\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect(("127.0.0.1", self.port))?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                none.insert(stream)
            }
        };
        stream.write_all(&bytes)?;
        receive(stream)
    }
}

fn receive(stream: &mut TcpStream) -> io::Result<Response> {
    let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut bytes = Vec::new();
    let mut chunk = [0; 16 * 1024];
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        match stream.read(&mut chunk)? {
            0 => return Err(broken()),
            count => bytes.extend_from_slice(&chunk[..count]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).ok_or_else(broken)?;
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
    let mut response = Response { status, headers, body: bytes.split_off(end + 4) };
    let length: usize = response.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    while response.body.len() < length {
        match stream.read(&mut chunk)? {
            0 => return Err(broken()),
            count => response.body.extend_from_slice(&chunk[..count]),
        }
    }
    Ok(response)
}
