//! Prepared statements over PostgreSQL's own protocol: Bind, Execute and Sync in one write, as `pgbench -M prepared` sends
//! them.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::{Answer, Dialect};
use crate::documents::{self, ITEMS_PER_KEY};
use crate::postgres::{CREATE, LOAD, READ, UPSERT};
use crate::workload::{Operation, Workload};

const BATCH_ITEMS: u64 = 50;
/// The type of a text, in arrays.
const TEXT: i32 = 25;

pub(super) struct Postgres {
    address: String,
    statements: &'static [(&'static str, &'static str)],
    /// Reused for documents.
    value: Vec<u8>,
}

impl Postgres {
    pub(super) fn new(address: &str, workload: Workload) -> Self {
        const BATCH: &[(&str, &str)] = &[("batch", LOAD)];
        const SINGLE: &[(&str, &str)] = &[("read", READ), ("create", CREATE), ("upsert", UPSERT)];
        let statements = if workload == Workload::Batch50 { BATCH } else { SINGLE };
        Self { address: address.to_owned(), statements, value: Vec::new() }
    }

    fn item(&mut self, statement: &str, number: u64, version: Option<u64>, out: &mut Vec<u8>) {
        let bind = begin_bind(out, statement, 2 + i16::from(version.is_some()));
        push_value(out, |out| documents::push_key(out, number));
        push_value(out, |out| documents::push_id(out, number));
        if let Some(version) = version {
            self.value.clear();
            documents::push_item(&mut self.value, number, version);
            push_value(out, |out| out.extend_from_slice(&self.value));
        }
        end_bind(out, bind);
    }
}

/// Begins the message; all parameters are binary.
fn begin_bind(out: &mut Vec<u8>, statement: &str, parameters: i16) -> usize {
    out.push(b'B');
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(0);
    out.extend_from_slice(statement.as_bytes());
    out.push(0);
    for number in [1, 1, parameters] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    start
}

/// Ends the message and adds Execute and Sync; results are text.
fn end_bind(out: &mut Vec<u8>, start: usize) {
    out.extend_from_slice(&0_i16.to_be_bytes());
    end_length(out, start);
    out.extend_from_slice(b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04");
}

fn end_length(out: &mut [u8], start: usize) {
    let length = (out.len() - start) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn push_value(out: &mut Vec<u8>, push: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    push(out);
    let length = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// An array of texts, one for each number.
fn push_array(out: &mut Vec<u8>, numbers: std::ops::Range<u64>, push: impl Fn(&mut Vec<u8>, u64)) {
    push_value(out, |out| {
        for number in [1, 0, TEXT, (numbers.end - numbers.start) as i32, 1] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for number in numbers {
            push_value(out, |out| push(out, number));
        }
    });
}

impl Dialect for Postgres {
    fn request(&mut self, operation: Operation, out: &mut Vec<u8>) {
        match operation {
            Operation::Read(number) => self.item("read", number, None, out),
            Operation::Create(number) => self.item("create", number, Some(0), out),
            Operation::Upsert(number, version) => self.item("upsert", number, Some(version), out),
            Operation::Batch(first) => {
                let first = first / ITEMS_PER_KEY * ITEMS_PER_KEY;
                let numbers = || first..first + BATCH_ITEMS;
                let bind = begin_bind(out, "batch", 3);
                push_array(out, numbers(), documents::push_key);
                push_array(out, numbers(), documents::push_id);
                push_array(out, numbers(), |out, number| documents::push_item(out, number, 0));
                end_bind(out, bind);
            }
            other => unreachable!("{other:?} belongs to no workload of this generator"),
        }
    }

    fn answer(&self, operation: Operation, bytes: &[u8]) -> Result<Option<Answer>, String> {
        let (mut at, mut rows) = (0, 0);
        while let Some((kind, message)) = message_at(bytes, at) {
            at += 5 + message.len();
            match kind {
                b'D' => rows += 1,
                b'E' => return Err(error_text(message)),
                b'Z' if rows == u64::from(matches!(operation, Operation::Read(_))) => {
                    return Ok(Some(Answer { bytes: at, closes: false }));
                }
                b'Z' => return Err(format!("{operation:?}: {rows} rows")),
                _ => {}
            }
        }
        Ok(None)
    }

    fn open(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        let mut out = vec![0; 4];
        // Version 3.0.
        out.extend_from_slice(&196_608_i32.to_be_bytes());
        out.extend_from_slice(b"user\0bench\0database\0postgres\0\0");
        end_length(&mut out, 0);
        exchange(&mut stream, &out)?;
        out.clear();
        for (name, sql) in self.statements {
            out.push(b'P');
            let start = out.len();
            out.extend_from_slice(&[0; 4]);
            out.extend([name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat());
            end_length(&mut out, start);
        }
        out.extend_from_slice(b"S\0\0\0\x04");
        exchange(&mut stream, &out)?;
        Ok(stream)
    }

    fn refresh(&mut self) {}
}

/// The type and content of the message at this place, once it is complete.
fn message_at(bytes: &[u8], at: usize) -> Option<(u8, &[u8])> {
    let kind = *bytes.get(at)?;
    let length = bytes.get(at + 1..at + 5)?.try_into().map(i32::from_be_bytes).ok()?;
    let end = at + 1 + usize::try_from(length).ok()?.max(4);
    Some((kind, bytes.get(at + 5..end)?))
}

/// Sends messages and waits until the server is ready for more.
fn exchange(stream: &mut TcpStream, messages: &[u8]) -> io::Result<()> {
    stream.write_all(messages)?;
    let (mut bytes, mut buffer, mut at) = (Vec::new(), [0; 4096], 0);
    loop {
        while let Some((kind, message)) = message_at(&bytes, at) {
            at += 5 + message.len();
            match kind {
                b'E' => return Err(io::Error::other(error_text(message))),
                b'R' if message != [0; 4] => {
                    return Err(io::Error::other("the server asks for a password"));
                }
                b'Z' => return Ok(()),
                _ => {}
            }
        }
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&buffer[..read]);
    }
}

/// The fields of an error, which end with a zero each.
fn error_text(message: &[u8]) -> String {
    let fields = message.split(|byte| *byte == 0).filter(|field| matches!(field.first(), Some(b'C' | b'M')));
    let fields: Vec<String> = fields.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).collect();
    fields.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = (content.len() as i32 + 4).to_be_bytes();
        [&[kind], length.as_slice(), content].concat()
    }

    /// The bytes of the protocol's documentation (53.7, message formats).
    #[test]
    fn requests_are_bind_execute_and_sync() {
        let mut out = Vec::new();
        Postgres::new("", Workload::PointRead).request(Operation::Read(123), &mut out);
        let bind = b"\0read\0\0\x01\0\x01\0\x02\0\0\0\x09p00000001\0\0\0\x0Euser0000000123\0\0";
        let expected = [message(b'B', bind), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
        assert_eq!(out, expected);
    }

    #[test]
    fn answers_end_when_the_server_is_ready() {
        let postgres = Postgres::new("", Workload::PointRead);
        let (row, done) = (message(b'D', b"\0\x01\0\0\0\x01x"), message(b'C', b"SELECT 1\0"));
        let (bound, ready) = (message(b'2', b""), message(b'Z', b"I"));
        let whole = [bound.clone(), row, done.clone(), ready.clone()].concat();
        for cut in [0, 4, 7, whole.len() - 1] {
            assert!(postgres.answer(Operation::Read(1), &whole[..cut]).unwrap().is_none());
        }
        let answer = postgres.answer(Operation::Read(1), &whole).unwrap().unwrap();
        assert_eq!(answer.bytes, whole.len());
        let without = [bound, done, ready].concat();
        assert!(postgres.answer(Operation::Read(1), &without).is_err());
        assert!(postgres.answer(Operation::Create(1), &without).unwrap().is_some());
        let failed = message(b'E', b"SERROR\0C23505\0Mduplicate key\0\0");
        let failure = postgres.answer(Operation::Create(1), &failed).err().unwrap();
        assert_eq!(failure, "23505: duplicate key");
    }
}
