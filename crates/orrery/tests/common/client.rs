//! A client that sends signed requests over one HTTP/1.1 connection. It never retries: crash tests must know the fate of
//! every request.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use orrery_env::{Env, SystemEnv};
use orrery_gateway::auth::{MasterKey, print_date, sign_request};
use orrery_model::Value;

use super::TIME_MAX;

/// One connection, opened when it is first needed.
pub struct Client {
    port: u16,
    key: MasterKey,
    stream: Option<TcpStream>,
}

/// What the server answered.
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

    /// A client that signs with this key.
    pub fn with_key(port: u16, key: &str) -> Self {
        Self { key: MasterKey::parse(key).unwrap(), ..Self::new(port) }
    }

    /// Sends a request and waits for the response. An error means that its fate is unknown.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let outcome = self.exchange((method, path), headers, body);
        if outcome.is_err() {
            self.stream = None;
        }
        outcome
    }

    /// Sends JSON that must be answered with this status; returns the answer.
    pub fn post(&mut self, path: &str, body: &str, status: u16) -> Value {
        self.post_with(path, &[], body, status).json()
    }

    /// Like [`Client::post`], with headers.
    pub fn post_with(&mut self, path: &str, headers: &[(&str, &str)], body: &str, status: u16) -> Response {
        let response = self.send("POST", path, headers, body.as_bytes()).unwrap();
        assert_eq!(response.status, status, "{path}: {}", response.text());
        response
    }

    /// Reads JSON, which must be there.
    pub fn get(&mut self, path: &str) -> Value {
        let response = self.send("GET", path, &[], b"").unwrap();
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.json()
    }

    /// Creates the database `db` and in it the container `c`, partitioned by `/pk`.
    pub fn create_container(&mut self, headers: &[(&str, &str)]) {
        self.post("/dbs", r#"{"id":"db"}"#, 201);
        let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
        self.post_with("/dbs/db/colls", headers, body, 201);
    }

    fn exchange(
        &mut self,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let date = print_date(SystemEnv.now_seconds());
        // The query string is not signed.
        let signed = path.split('?').next().unwrap_or(path);
        let authorization = sign_request(&self.key, method, signed, None, &date);
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
                stream.set_read_timeout(Some(TIME_MAX))?;
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
