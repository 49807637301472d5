//! Requests to a running server: one over plain HTTP, signed with an account key.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use orrery_gateway::auth::{MasterKey, WELL_KNOWN_KEY, print_date, sign_request};
use orrery_model::env::Env;

use crate::failure::Failure;

/// A server that says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_mins(2);
/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A server and the key to it.
pub(crate) struct Client {
    address: String,
    key: MasterKey,
}

impl Client {
    /// `endpoint` is `http://host:port`; without a key the well-known one of emulators is used.
    pub(crate) fn new(endpoint: &str, key: Option<&str>) -> Result<Self, Failure> {
        let address = endpoint.strip_prefix("http://").ok_or_else(|| {
            Failure::usage(format!("the endpoint must begin with http://, not be {endpoint}"))
        })?;
        let address = address.trim_end_matches('/').to_owned();
        let key = MasterKey::parse(key.unwrap_or(WELL_KNOWN_KEY))
            .map_err(|error| Failure::usage(format!("the key cannot be used: {error}")))?;
        Ok(Self { address, key })
    }

    /// Posts JSON and gives back the status and the body.
    pub(crate) fn post(&self, env: &dyn Env, path: &str, body: &str) -> Result<(u16, String), Failure> {
        self.send(env, "POST", path, None, body)
    }

    /// Asks for JSON and gives back the status and the body. The query is escaped already.
    pub(crate) fn get(
        &self,
        env: &dyn Env,
        path: &str,
        query: Option<&str>,
    ) -> Result<(u16, String), Failure> {
        self.send(env, "GET", path, query, "")
    }

    fn send(
        &self,
        env: &dyn Env,
        method: &str,
        path: &str,
        query: Option<&str>,
        body: &str,
    ) -> Result<(u16, String), Failure> {
        let refused = |error: std::io::Error| {
            Failure::refused(format!("the server at {} does not answer: {error}", self.address))
        };
        let date = print_date(env.now_seconds());
        let authorization = sign_request(&self.key, method, path, query, &date);
        let target = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        let mut stream = TcpStream::connect(&self.address).map_err(refused)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(refused)?;
        write!(
            stream,
            "{method} {target} HTTP/1.1\r\nhost: {}\r\nauthorization: {authorization}\r\nx-ms-date: {date}\r\nx-ms-version: 2018-12-31\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.address,
            body.len(),
        )
        .map_err(refused)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(refused)?;
        let answer = String::from_utf8_lossy(&answer);
        let parsed = answer.split_once("\r\n\r\n").and_then(|(head, body)| {
            let status = head.split(' ').nth(1)?.parse().ok()?;
            // The server sends whole bodies with their length.
            Some((status, body.to_owned()))
        });
        parsed.ok_or_else(|| Failure::refused(format!("the answer of {} is not HTTP", self.address)))
    }
}
