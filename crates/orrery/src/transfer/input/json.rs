//! JSON lines, and JSON arrays or objects one after the other, cut into texts without parsing them whole.

use std::io::{self, BufRead};

use super::{RECORD_BYTES_MAX, Record};

/// Some programs begin a file with a mark of its encoding.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

pub(super) fn strip_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)
}

fn too_long() -> String {
    format!("the record is longer than {} MB", RECORD_BYTES_MAX >> 20)
}

/// One record a line. Empty lines are no records.
pub(super) struct Lines<R> {
    reader: R,
    is_first: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, is_first: true }
    }

    /// The next line without its end; none at the end of the input.
    fn line(&mut self) -> io::Result<Option<Record>> {
        let mut line = Vec::new();
        let mut is_long = false;
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                let ended = line.is_empty() && !is_long;
                return Ok((!ended).then(|| if is_long { Err(too_long()) } else { Ok(line) }));
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let part = &buffer[..end.unwrap_or(buffer.len())];
            if line.len() + part.len() > RECORD_BYTES_MAX {
                is_long = true;
                line = Vec::new();
            }
            if !is_long {
                line.extend_from_slice(part);
            }
            let length = part.len() + usize::from(end.is_some());
            self.reader.consume(length);
            if end.is_some() {
                return Ok(Some(if is_long { Err(too_long()) } else { Ok(line) }));
            }
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let record = match self.line() {
                Ok(record) => record?,
                Err(error) => return Some(Err(error)),
            };
            let record = match record {
                Ok(line) if self.is_first => Ok(strip_mark(&line).to_vec()),
                record => record,
            };
            self.is_first = false;
            if record.as_ref().is_ok_and(|line| line.trim_ascii().is_empty()) {
                continue;
            }
            return Some(Ok(record));
        }
    }
}

/// The elements of an array, or values that follow one another. Only brackets and texts are looked at: whether
/// an element is JSON is found out when it is written.
pub(super) struct Elements<R> {
    reader: R,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    /// Inside the array: an element or its end may come.
    InArray,
    /// Behind an element of the array: a comma or the end must come.
    BehindElement,
    /// Values one after the other.
    Loose,
    Ended,
}

impl<R: BufRead> Elements<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, state: State::Start }
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            let buffer = self.reader.fill_buf()?;
            let spaces = buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            if buffer.is_empty() {
                return Ok(None);
            }
            let next = buffer.get(spaces).copied();
            self.reader.consume(spaces);
            if next.is_some() {
                return Ok(next);
            }
        }
    }

    fn element(&mut self) -> io::Result<Option<Record>> {
        if self.state == State::Start {
            let marked = self.reader.fill_buf()?.starts_with(BYTE_ORDER_MARK);
            if marked {
                self.reader.consume(BYTE_ORDER_MARK.len());
            }
            self.state = State::Loose;
            if self.peek()? == Some(b'[') {
                self.reader.consume(1);
                self.state = State::InArray;
            }
        }
        let next = self.peek()?;
        let next = match (self.state, next) {
            (State::BehindElement, Some(b',')) => {
                self.reader.consume(1);
                self.state = State::InArray;
                self.peek()?
            }
            (State::BehindElement, Some(byte)) if byte != b']' => {
                return Err(broken(&format!("'{}' stands where a comma should", byte.escape_ascii())));
            }
            (_, next) => next,
        };
        match (self.state, next) {
            (State::Ended, _) | (State::Loose, None) => Ok(None),
            (State::InArray | State::BehindElement, Some(b']')) => {
                self.reader.consume(1);
                if let Some(byte) = self.peek()? {
                    return Err(broken(&format!("'{}' follows the array", byte.escape_ascii())));
                }
                self.state = State::Ended;
                Ok(None)
            }
            (_, None) => Err(broken("the array is not closed")),
            _ => {
                let record = self.value()?;
                if self.state == State::InArray {
                    self.state = State::BehindElement;
                }
                Ok(Some(record))
            }
        }
    }

    /// Takes one value: up to its closing bracket, or for a scalar up to what can follow one.
    fn value(&mut self) -> io::Result<Record> {
        let mut text = Vec::new();
        let (mut depth, mut in_string, mut escaped, mut is_long) = (0_usize, false, false, false);
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                // A scalar may end with the input; a bracket or a text may not.
                if depth > 0 || in_string {
                    return Err(broken("the input ends inside a record"));
                }
                return Ok(if is_long { Err(too_long()) } else { Ok(text) });
            }
            let mut taken = 0;
            let mut ended = false;
            for byte in buffer {
                if in_string {
                    match byte {
                        _ if escaped => escaped = false,
                        b'\\' => escaped = true,
                        b'"' => in_string = false,
                        _ => {}
                    }
                } else {
                    match byte {
                        b'"' => in_string = true,
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' if depth > 0 => {
                            depth -= 1;
                            ended = depth == 0;
                        }
                        b',' | b'}' | b']' if depth == 0 => {
                            ended = true;
                            break;
                        }
                        byte if depth == 0 && byte.is_ascii_whitespace() => {
                            ended = true;
                            break;
                        }
                        _ => {}
                    }
                }
                taken += 1;
                if ended {
                    break;
                }
            }
            if text.len() + taken > RECORD_BYTES_MAX {
                is_long = true;
                text = Vec::new();
            }
            if !is_long {
                text.extend_from_slice(&buffer[..taken]);
            }
            // A bracket that closes nothing must not be looked at forever.
            if ended && taken == 0 && text.is_empty() && !is_long {
                return Err(broken("a bracket or comma stands where a record should"));
            }
            self.reader.consume(taken);
            if ended {
                return Ok(if is_long { Err(too_long()) } else { Ok(text) });
            }
        }
    }
}

fn broken(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the JSON is broken: {message}"))
}

impl<R: BufRead> Iterator for Elements<R> {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let element = self.element().transpose();
        if matches!(element, None | Some(Err(_))) {
            self.state = State::Ended;
        }
        element
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    /// Reads with the smallest buffers, so that every boundary is met.
    fn read(records: impl Iterator<Item = io::Result<Record>>) -> Vec<String> {
        let text = |record: io::Result<Record>| match record {
            Ok(Ok(text)) => String::from_utf8(text).unwrap(),
            Ok(Err(reason)) => format!("! {reason}"),
            Err(error) => format!("!! {error}"),
        };
        records.map(text).collect()
    }

    fn elements(text: &str) -> Vec<String> {
        let whole = read(Elements::new(text.as_bytes()));
        let small = read(Elements::new(BufReader::with_capacity(1, text.as_bytes())));
        assert_eq!(whole, small.clone(), "{text}");
        small
    }

    #[test]
    fn lines_are_records() {
        let text = "\u{feff}{\"a\":1}\n\n  \r\n{\"b\":2}\r\nbroken\n{\"c\":3}";
        let expected = ["{\"a\":1}", "{\"b\":2}\r", "broken", "{\"c\":3}"];
        assert_eq!(read(Lines::new(text.as_bytes())), expected);
        assert_eq!(read(Lines::new(BufReader::with_capacity(3, text.as_bytes()))), expected);
        assert_eq!(read(Lines::new(&b""[..])), [""; 0]);
    }

    #[test]
    fn long_lines_are_skipped() {
        let mut text = vec![b'x'; RECORD_BYTES_MAX + 1];
        text.extend_from_slice(b"\n{}\n");
        assert_eq!(read(Lines::new(&text[..])), ["! the record is longer than 4 MB", "{}"]);
    }

    #[test]
    fn arrays_are_cut_into_elements() {
        assert_eq!(elements("[]"), [""; 0]);
        assert_eq!(
            elements(" [ {\"a\":\"]},{\\\"\"} , {\"b\":[1,[2]]}\n,3, \"x\" ] "),
            ["{\"a\":\"]},{\\\"\"}", "{\"b\":[1,[2]]}", "3", "\"x\""]
        );
        assert_eq!(elements("{\"a\":1}{\"b\":2}\n{\"c\":3}"), ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]);
        assert_eq!(elements(""), [""; 0]);
    }

    #[test]
    fn broken_arrays_end_with_a_reason() {
        for (text, count, reason) in [
            ("[{\"a\":1}", 1, "not closed"),
            ("[{\"a\":1} {\"b\":2}]", 1, "where a comma should"),
            ("[{\"a\":", 0, "ends inside"),
            ("[{}] x", 1, "follows the array"),
            ("[,]", 0, "where a record should"),
            ("}", 0, "where a record should"),
        ] {
            let records = elements(text);
            assert_eq!(records.len(), count + 1, "{text}: {records:?}");
            assert!(records[count].contains(reason), "{text}: {records:?}");
        }
    }
}
