//! JSON lines, JSON arrays and concatenated JSON values, cut into records without parsing them.

use std::io::{self, BufRead};

use super::{Place, RECORD_BYTES_MAX, Record};
use crate::io::JsonStrings;

/// Some programs start a UTF-8 file with a byte order mark.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

pub(super) fn strip_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)
}

fn too_long() -> String {
    format!("the record is longer than {} MB", RECORD_BYTES_MAX >> 20)
}

/// One record per line. Empty lines are skipped.
pub(super) struct JsonLines<R> {
    reader: R,
    /// Lines read so far.
    lines: u64,
}

impl<R: BufRead> JsonLines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, lines: 0 }
    }

    /// The next line without its line feed; none at the end of the input.
    fn line(&mut self) -> io::Result<Option<Result<Vec<u8>, String>>> {
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
                // What was read of it is dropped, and the rest skipped up to its end, so that memory stays
                // bounded.
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

impl<R: BufRead> Iterator for JsonLines<R> {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let text = match self.line() {
                Ok(text) => text?,
                Err(error) => return Some(Err(error)),
            };
            self.lines += 1;
            let text = match text {
                Ok(line) if self.lines == 1 => Ok(strip_mark(&line).to_vec()),
                text => text,
            };
            if text.as_ref().is_ok_and(|line| line.trim_ascii().is_empty()) {
                continue;
            }
            return Some(Ok(Record { place: Place::Line(self.lines), text }));
        }
    }
}

/// The elements of an array, or concatenated values. Only brackets and strings are recognised; whether an element is
/// valid JSON shows when it is prepared for writing.
pub(super) struct JsonElements<R> {
    reader: R,
    state: ParserState,
    /// Elements read so far.
    elements: u64,
}

/// Where the reader is between two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    Start,
    /// Inside the array: an element or the closing bracket may follow.
    InArray,
    /// After an element of the array: a comma or the closing bracket must follow.
    AfterElement,
    /// Concatenated values, no array.
    Concatenated,
    Ended,
}

impl<R: BufRead> JsonElements<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, state: ParserState::Start, elements: 0 }
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
        if self.state == ParserState::Start {
            let marked = self.reader.fill_buf()?.starts_with(BYTE_ORDER_MARK);
            if marked {
                self.reader.consume(BYTE_ORDER_MARK.len());
            }
            self.state = ParserState::Concatenated;
            if self.peek()? == Some(b'[') {
                self.reader.consume(1);
                self.state = ParserState::InArray;
            }
        }
        let next = self.peek()?;
        // After an element only a comma or the closing bracket may follow.
        let next = match (self.state, next) {
            (ParserState::AfterElement, Some(b',')) => {
                self.reader.consume(1);
                self.state = ParserState::InArray;
                self.peek()?
            }
            (ParserState::AfterElement, Some(byte)) if byte != b']' => {
                return Err(broken(&format!("expected a comma, found '{}'", byte.escape_ascii())));
            }
            (_, next) => next,
        };
        match (self.state, next) {
            (ParserState::Ended, _) | (ParserState::Concatenated, None) => Ok(None),
            (ParserState::InArray | ParserState::AfterElement, Some(b']')) => {
                self.reader.consume(1);
                // Anything behind the array is a mistake, such as a second array.
                if let Some(byte) = self.peek()? {
                    return Err(broken(&format!("unexpected '{}' after the array", byte.escape_ascii())));
                }
                self.state = ParserState::Ended;
                Ok(None)
            }
            (_, None) => Err(broken("the array is not closed")),
            _ => {
                let text = self.value()?;
                if self.state == ParserState::InArray {
                    self.state = ParserState::AfterElement;
                }
                self.elements += 1;
                Ok(Some(Record { place: Place::Element(self.elements), text }))
            }
        }
    }

    /// Reads one value: up to its closing bracket, or for a scalar up to a delimiter.
    fn value(&mut self) -> io::Result<Result<Vec<u8>, String>> {
        let mut text = Vec::new();
        let (mut depth, mut strings, mut is_long) = (0_usize, JsonStrings::default(), false);
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                // A scalar may end with the input; an object, array or string may not.
                if depth > 0 || strings.is_open() {
                    return Err(broken("the input ends inside a record"));
                }
                return Ok(if is_long { Err(too_long()) } else { Ok(text) });
            }
            let mut taken = 0;
            let mut ended = false;
            for byte in buffer {
                if !strings.contain(*byte) {
                    match byte {
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' if depth > 0 => {
                            depth -= 1;
                            ended = depth == 0;
                        }
                        // The delimiter stays in the input, for the next step.
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
            // Reject an unmatched bracket, which would otherwise be seen again forever.
            if ended && taken == 0 && text.is_empty() && !is_long {
                return Err(broken("expected a record, found a bracket or comma"));
            }
            self.reader.consume(taken);
            if ended {
                return Ok(if is_long { Err(too_long()) } else { Ok(text) });
            }
        }
    }
}

fn broken(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed JSON: {message}"))
}

impl<R: BufRead> Iterator for JsonElements<R> {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let element = self.element().transpose();
        if matches!(element, None | Some(Err(_))) {
            self.state = ParserState::Ended;
        }
        element
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn read(records: impl Iterator<Item = io::Result<Record>>) -> Vec<String> {
        let text = |record: io::Result<Record>| match record.map(|record| record.text) {
            Ok(Ok(text)) => String::from_utf8(text).unwrap(),
            Ok(Err(reason)) => format!("! {reason}"),
            Err(error) => format!("!! {error}"),
        };
        records.map(text).collect()
    }

    /// Also reads with a buffer of one byte, so that a record crosses every buffer boundary.
    fn elements(text: &str) -> Vec<String> {
        let whole = read(JsonElements::new(text.as_bytes()));
        let small = read(JsonElements::new(BufReader::with_capacity(1, text.as_bytes())));
        assert_eq!(whole, small.clone(), "{text}");
        small
    }

    #[test]
    fn each_line_is_a_record() {
        let text = "\u{feff}{\"a\":1}\n\n  \r\n{\"b\":2}\r\nbroken\n{\"c\":3}";
        let expected = ["{\"a\":1}", "{\"b\":2}\r", "broken", "{\"c\":3}"];
        assert_eq!(read(JsonLines::new(text.as_bytes())), expected);
        assert_eq!(read(JsonLines::new(BufReader::with_capacity(3, text.as_bytes()))), expected);
        assert_eq!(read(JsonLines::new(&b""[..])), [""; 0]);
    }

    #[test]
    fn records_know_their_place() {
        let places = |records: &mut dyn Iterator<Item = io::Result<Record>>| -> Vec<String> {
            records.map(|record| record.unwrap().place.to_string()).collect()
        };
        assert_eq!(places(&mut JsonLines::new(&b"{}\n\n \n{}\nx\n"[..])), ["line 1", "line 4", "line 5"]);
        assert_eq!(places(&mut JsonElements::new(&b"[{},\n\n{}]"[..])), ["element 1", "element 2"]);
    }

    #[test]
    fn overlong_lines_are_skipped() {
        let mut text = vec![b'x'; RECORD_BYTES_MAX + 1];
        text.extend_from_slice(b"\n{}\n");
        assert_eq!(read(JsonLines::new(&text[..])), ["! the record is longer than 4 MB", "{}"]);
    }

    #[test]
    fn arrays_and_concatenated_values_are_split() {
        assert_eq!(elements("[]"), [""; 0]);
        assert_eq!(
            elements(" [ {\"a\":\"]},{\\\"\"} , {\"b\":[1,[2]]}\n,3, \"x\" ] "),
            ["{\"a\":\"]},{\\\"\"}", "{\"b\":[1,[2]]}", "3", "\"x\""]
        );
        assert_eq!(elements("{\"a\":1}{\"b\":2}\n{\"c\":3}"), ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]);
        assert_eq!(elements(""), [""; 0]);
    }

    #[test]
    fn malformed_arrays_end_with_a_reason() {
        for (text, count, reason) in [
            ("[{\"a\":1}", 1, "not closed"),
            ("[{\"a\":1} {\"b\":2}]", 1, "expected a comma"),
            ("[{\"a\":", 0, "ends inside"),
            ("[{}] x", 1, "after the array"),
            ("[,]", 0, "expected a record"),
            ("}", 0, "expected a record"),
        ] {
            let records = elements(text);
            assert_eq!(records.len(), count + 1, "{text}: {records:?}");
            assert!(records[count].contains(reason), "{text}: {records:?}");
        }
    }
}
