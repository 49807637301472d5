//! Input and output of commands: files and standard input with bounded memory, output formats, human-readable text.
//!
//! Everything written to standard output goes through [`print`], so that a closed pipe (`orrery … | head`) ends a
//! command quietly everywhere. Progress bars belong to the transfers and live in `transfer::progress`.

mod json_strings;
pub(crate) mod rows;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use clap::ValueEnum;
use flate2::bufread::MultiGzDecoder;
use orrery_model::Value;

use crate::failure::Failure;
pub(crate) use json_strings::JsonStrings;

const BUFFER_BYTES: usize = 256 << 10;
const GZIP_MAGIC: [u8; 2] = [0x1F, 0x8B];

/// The format of a command's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[value(alias = "table")]
    Text,
    /// One JSON object.
    Json,
}

impl Output {
    /// The server's JSON unchanged, or the text that `describe` renders from it.
    pub(crate) fn render(self, answer: &Value, describe: impl FnOnce() -> String) -> String {
        match self {
            Self::Json => answer.to_json() + "\n",
            Self::Text => describe(),
        }
    }
}

/// The format of a report that also exists as a page with plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportOutput {
    /// For a terminal.
    Text,
    /// One JSON object.
    Json,
    /// One HTML page with plots.
    Html,
}

/// Writes a result. A closed pipe is not a failure: the reader has seen enough.
pub(crate) fn print(output: &mut dyn Write, text: &str) -> Result<(), Failure> {
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::refused(format!("the output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// How messages refer to an input.
pub(crate) fn input_name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// Opens a file, or standard input for `-`; also returns the file's length, which pipes do not have.
pub(crate) fn open_input(path: &Path) -> Result<(Box<dyn Read + Send>, Option<u64>), Failure> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), None));
    }
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
    Ok((Box::new(file), metadata.is_file().then_some(metadata.len())))
}

/// Buffers a reader and decompresses it if it starts like gzip; also returns whether it does.
pub(crate) fn decompress(reader: impl Read + Send + 'static) -> io::Result<(Box<dyn BufRead + Send>, bool)> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, reader);
    if reader.fill_buf()?.starts_with(&GZIP_MAGIC) {
        // A gzip file may consist of several parts, one after another.
        Ok((Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(reader))), true))
    } else {
        Ok((Box::new(reader), false))
    }
}

/// Reads a whole file of at most this many bytes, decompressed.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> Result<String, Failure> {
    let failed = |error: io::Error| unreadable(path, &error);
    let mut text = String::new();
    let (reader, _) = decompress(open_input(path)?.0).map_err(failed)?;
    // One byte more shows that the file is too long.
    reader.take(bytes_max + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > bytes_max {
        return Err(unreadable(path, &format!("it is longer than {bytes_max} bytes")));
    }
    Ok(text)
}

pub(crate) fn unreadable(path: &Path, reason: &dyn std::fmt::Display) -> Failure {
    Failure::refused(format!("{} cannot be read: {reason}", input_name(path)))
}

/// One line of input, without its end.
pub(crate) enum InputLine<'a> {
    Text(&'a [u8]),
    /// The line was longer than allowed and has been skipped.
    TooLong,
}

/// Processes a stream of lines, one JSON value per line in and out.
///
/// `answer` returns what to print: `Ok` for a valid line, `Err` for an invalid one, None for a line without output. If
/// any line was invalid, the command ends with exit code 1.
pub(crate) fn answer_lines(
    input: &mut impl BufRead,
    output: &mut impl Write,
    line_bytes_max: u64,
    mut answer: impl FnMut(InputLine<'_>) -> Result<Option<Result<Value, Value>>, Failure>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::refused(format!("the input cannot be read: {error}"));
    let mut all_good = true;
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = Read::take(&mut *input, line_bytes_max).read_until(b'\n', &mut line).map_err(failed)?;
        if length == 0 {
            break;
        }
        let is_cut = length as u64 == line_bytes_max && line.last() != Some(&b'\n');
        let answered = if is_cut {
            skip_line(input).map_err(failed)?;
            answer(InputLine::TooLong)?
        } else {
            answer(InputLine::Text(&line))?
        };
        let Some(answered) = answered else { continue };
        all_good &= answered.is_ok();
        let (Ok(value) | Err(value)) = answered;
        match writeln!(output, "{}", value.to_json()) {
            Ok(()) => {}
            // As in `print`: the reader has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            Err(error) => return Err(Failure::refused(format!("the output cannot be written: {error}"))),
        }
    }
    if all_good { Ok(()) } else { Err(Failure::already_reported()) }
}

fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = buffer.len();
        input.consume(end.map_or(length, |end| end + 1));
        if end.is_some() || length == 0 {
            return Ok(());
        }
    }
}

/// A JSON value for people: strings without quotes, everything else as JSON.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_json(), str::to_owned)
}

/// A number of bytes with a unit, for people.
pub(crate) fn byte_size(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e9 => format!("{:.2} GB", bytes / 1e9),
        bytes if bytes >= 1e6 => format!("{:.1} MB", bytes / 1e6),
        bytes if bytes >= 1e3 => format!("{:.1} kB", bytes / 1e3),
        bytes => format!("{bytes:.0} B"),
    }
}

/// A count with its noun: `1 partition`, `2 partitions`.
pub(crate) fn count(number: impl Into<u64>, noun: &str) -> String {
    match number.into() {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}
