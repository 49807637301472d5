//! Signed requests of Cosmos DB's protocol over HTTP/1.1.

use std::io;

use memchr::{memchr, memmem};
use orrery_gateway::auth::{MasterKey, print_date, string_to_sign};

use super::{Answer, Dialect};
use crate::cosmos::{CONTAINER, DATABASE, now_seconds};
use crate::documents::{self, ITEMS_PER_KEY};
use crate::workload::Operation;

const BATCH_ITEMS: u64 = 50;

pub(super) struct Http {
    address: String,
    key: MasterKey,
    /// Header lines that all requests have, with the date.
    common: Vec<u8>,
    date: String,
    /// The authorization of POST to the container, which depends on the date alone.
    post: String,
    /// Reused to sign, and for bodies.
    text: Vec<u8>,
    body: Vec<u8>,
}

impl Http {
    pub(super) fn new(address: &str) -> Self {
        let mut http = Self {
            address: address.to_owned(),
            key: MasterKey::well_known(),
            common: Vec::new(),
            date: String::new(),
            post: String::new(),
            text: Vec::new(),
            body: Vec::new(),
        };
        http.refresh();
        http
    }

    fn read(&mut self, number: u64, out: &mut Vec<u8>) {
        self.text.clear();
        self.text.extend_from_slice(b"get\ndocs\n");
        let link = self.text.len();
        push_container(&mut self.text);
        self.text.extend_from_slice(b"/docs/");
        documents::push_id(&mut self.text, number);
        out.extend_from_slice(b"GET /");
        out.extend_from_slice(&self.text[link..]);
        self.text.push(b'\n');
        let date = self.text.len();
        self.text.extend_from_slice(self.date.as_bytes());
        self.text[date..].make_ascii_lowercase();
        self.text.extend_from_slice(b"\n\n");
        out.extend_from_slice(b" HTTP/1.1\r\nauthorization: type%3Dmaster%26ver%3D1.0%26sig%3D");
        push_escaped(out, &self.key.sign(&self.text));
        self.push_headers(number, out);
        out.extend_from_slice(b"\r\n");
    }

    /// A POST of what is in `self.body`.
    fn post(&mut self, number: u64, headers: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b"POST /");
        push_container(out);
        out.extend_from_slice(b"/docs HTTP/1.1\r\nauthorization: ");
        out.extend_from_slice(self.post.as_bytes());
        self.push_headers(number, out);
        out.extend_from_slice(headers);
        out.extend_from_slice(b"content-length: ");
        documents::push_number(out, self.body.len() as u64, 1);
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(&self.body);
    }

    fn push_headers(&self, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.common);
        out.extend_from_slice(b"x-ms-documentdb-partitionkey: [\"");
        documents::push_key(out, number);
        out.extend_from_slice(b"\"]\r\n");
    }
}

fn push_container(out: &mut Vec<u8>) {
    for part in ["dbs/", DATABASE, "/colls/", CONTAINER] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Base64 has three characters that are escaped.
fn push_escaped(out: &mut Vec<u8>, base64: &str) {
    for byte in base64.bytes() {
        match byte {
            b'+' => out.extend_from_slice(b"%2B"),
            b'/' => out.extend_from_slice(b"%2F"),
            b'=' => out.extend_from_slice(b"%3D"),
            other => out.push(other),
        }
    }
}

impl Dialect for Http {
    fn request(&mut self, operation: Operation, out: &mut Vec<u8>) {
        const JSON: &[u8] = b"content-type: application/json\r\n";
        const UPSERT: &[u8] = b"x-ms-documentdb-is-upsert: True\r\ncontent-type: application/json\r\n";
        const BATCH: &[u8] = b"x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: True\r\n";
        self.body.clear();
        match operation {
            Operation::Create(number) => {
                documents::push_item(&mut self.body, number, 0);
                self.post(number, JSON, out);
            }
            Operation::Upsert(number, version) => {
                documents::push_item(&mut self.body, number, version);
                self.post(number, UPSERT, out);
            }
            Operation::Batch(first) => {
                // All in the logical partition of the first one.
                let first = first / ITEMS_PER_KEY * ITEMS_PER_KEY;
                self.body.push(b'[');
                for number in first..first + BATCH_ITEMS {
                    if number > first {
                        self.body.push(b',');
                    }
                    self.body.extend_from_slice(br#"{"operationType":"Create","resourceBody":"#);
                    documents::push_item(&mut self.body, number, 0);
                    self.body.push(b'}');
                }
                self.body.push(b']');
                self.post(first, BATCH, out);
            }
            Operation::Read(number) => self.read(number, out),
            other => unreachable!("{other:?} belongs to no workload of this generator"),
        }
    }

    fn answer(&self, operation: Operation, bytes: &[u8]) -> Result<Option<Answer>, String> {
        let Some(head) = Head::of(bytes)? else { return Ok(None) };
        let (body, end) = match head.length {
            Some(length) => {
                let Some(body) = bytes.get(head.bytes..head.bytes + length) else { return Ok(None) };
                (body, head.bytes + length)
            }
            None => match chunks_length(&bytes[head.bytes..])? {
                Some(length) => (&bytes[head.bytes..head.bytes + length], head.bytes + length),
                None => return Ok(None),
            },
        };
        let is_right = match (operation, head.status) {
            (Operation::Read(_), 200) => body.len() > 900,
            (Operation::Create(_), 201) | (Operation::Upsert(..), 200 | 201) => true,
            (Operation::Batch(_), 200) => {
                memmem::find_iter(body, b"\"statusCode\":201").count() as u64 == BATCH_ITEMS
            }
            _ => false,
        };
        if is_right {
            return Ok(Some(Answer { bytes: end, closes: head.closes }));
        }
        let body: String = String::from_utf8_lossy(body).chars().take(200).collect();
        Err(format!("status {}: {}", head.status, body.replace(['\r', '\n'], " ")))
    }

    fn open(&self) -> io::Result<std::net::TcpStream> {
        std::net::TcpStream::connect(&self.address)
    }

    fn refresh(&mut self) {
        self.date = print_date(now_seconds());
        self.common =
            format!("\r\nhost: {}\r\nx-ms-date: {}\r\nx-ms-version: 2018-12-31\r\n", self.address, self.date)
                .into_bytes();
        let link = format!("dbs/{DATABASE}/colls/{CONTAINER}");
        let text = string_to_sign("POST", "docs", &link, self.date.as_bytes(), b"");
        let mut post = b"type%3Dmaster%26ver%3D1.0%26sig%3D".to_vec();
        push_escaped(&mut post, &self.key.sign(text.as_bytes()));
        self.post = String::from_utf8_lossy(&post).into_owned();
    }
}

/// What the head of an answer says about its end.
struct Head {
    status: u16,
    /// Up to the body.
    bytes: usize,
    /// None if it comes in chunks.
    length: Option<usize>,
    closes: bool,
}

impl Head {
    fn of(bytes: &[u8]) -> Result<Option<Self>, String> {
        let number = |digits: &[u8]| {
            std::str::from_utf8(digits).ok().and_then(|digits| digits.trim().parse::<usize>().ok())
        };
        let Some(mut at) = memchr(b'\n', bytes).map(|at| at + 1) else { return Ok(None) };
        let status = bytes.get(9..12).and_then(number).ok_or("the answer has no status")?;
        let mut head = Self { status: status as u16, bytes: 0, length: Some(0), closes: false };
        while let Some(length) = memchr(b'\n', &bytes[at..]) {
            let line = &bytes[at..at + length];
            at += length + 1;
            match line.first() {
                Some(b'\r') | None => {
                    head.bytes = at;
                    return Ok(Some(head));
                }
                Some(b'c' | b'C') => {
                    if let Some(value) = value_of(line, b"content-length:") {
                        head.length =
                            Some(number(value).ok_or("the response's content-length is not a number")?);
                    } else if let Some(value) = value_of(line, b"connection:") {
                        head.closes = value.trim_ascii().eq_ignore_ascii_case(b"close");
                    }
                }
                Some(b't' | b'T') if value_of(line, b"transfer-encoding:").is_some() => head.length = None,
                _ => {}
            }
        }
        Ok(None)
    }
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then_some(value)
}

/// The length of a body in chunks, once it is complete.
fn chunks_length(bytes: &[u8]) -> Result<Option<usize>, String> {
    let mut at = 0;
    loop {
        let Some(line) = memchr(b'\n', &bytes[at..]) else { return Ok(None) };
        let digits = std::str::from_utf8(&bytes[at..at + line]).unwrap_or_default();
        let digits = digits.split(';').next().unwrap_or_default().trim();
        let length = usize::from_str_radix(digits, 16).map_err(|_| "a chunk has no length")?;
        at += line + 1 + length + 2;
        if bytes.len() < at {
            return Ok(None);
        }
        if length == 0 {
            return Ok(Some(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use orrery_gateway::auth::sign_request;

    use super::*;

    fn answer(operation: Operation, text: &str) -> Result<Option<usize>, String> {
        let http = Http::new("127.0.0.1:1");
        Ok(http.answer(operation, text.as_bytes())?.map(|answer| answer.bytes))
    }

    /// What a server verifies is what the client commands sign.
    #[test]
    fn requests_are_signed_like_those_of_the_commands() {
        let mut http = Http::new("127.0.0.1:1");
        for (operation, method, path) in [
            (Operation::Read(7), "GET", "/dbs/bench/colls/items/docs/user0000000007"),
            (Operation::Create(7), "POST", "/dbs/bench/colls/items/docs"),
            (Operation::Upsert(7, 1), "POST", "/dbs/bench/colls/items/docs"),
            (Operation::Batch(123), "POST", "/dbs/bench/colls/items/docs"),
        ] {
            let mut out = Vec::new();
            http.request(operation, &mut out);
            let text = String::from_utf8(out).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("{method} {path} HTTP/1.1\r\n")), "{head}");
            let expected = sign_request(&MasterKey::well_known(), method, path, None, &http.date);
            assert!(head.contains(&format!("\r\nauthorization: {expected}\r\n")), "{head}");
            if method == "POST" {
                assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
                serde_json::from_str::<serde_json::Value>(body).unwrap();
            } else {
                assert!(body.is_empty());
            }
        }
    }

    #[test]
    fn answers_end_where_they_say() {
        let read = Operation::Read(1);
        let body = "x".repeat(1000);
        let whole = format!("HTTP/1.1 200 OK\r\nx: y\r\nContent-Length: 1000\r\n\r\n{body}");
        for cut in [0, 5, 20, 60, whole.len() - 1] {
            assert_eq!(answer(read, &whole[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(answer(read, &whole), Ok(Some(whole.len())));
        let chunked =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3e8;x=y\r\n{body}\r\n0\r\n\r\n");
        for cut in [50, 60, chunked.len() - 2] {
            assert_eq!(answer(read, &chunked[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(answer(read, &chunked), Ok(Some(chunked.len())));
    }

    #[test]
    fn wrong_answers_are_failures() {
        let empty = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        assert!(answer(Operation::Read(1), empty).is_err());
        assert!(answer(Operation::Create(1), empty).is_err());
        assert!(answer(Operation::Batch(1), empty).is_err());
        assert!(answer(Operation::Upsert(1, 1), empty).is_ok());
        let refused = "HTTP/1.1 429 Too Many\r\ncontent-length: 2\r\n\r\nno";
        let failure = answer(Operation::Create(1), refused).unwrap_err();
        assert!(failure.contains("429") && failure.contains("no"), "{failure}");
    }
}
