//! Files and standard input as a stream of records, with bounded memory.
//!
//! A record is the text of one JSON object, or the reason why it could not be read. Reading continues after a bad record
//! wherever the format allows finding the next one. What lives here: one file per format.

mod csv;
mod json;

use std::fmt;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::ValueEnum;

use crate::failure::Failure;
use crate::io::{decompress, open_input, unreadable};

pub(crate) use self::csv::CsvArguments;
use self::csv::CsvOptions;

/// Longer records are skipped and reported. No item may be this long.
pub(super) const RECORD_BYTES_MAX: usize = 4 << 20;

/// One record: its text, or why it could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) place: Place,
    pub(crate) text: Result<Vec<u8>, String>,
}

/// The position of a record for messages, starting at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The line it starts on.
    Line(u64),
    /// Its number in an array: all of it may be on one line.
    Element(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(formatter, "line {number}"),
            Self::Element(number) => write!(formatter, "element {number}"),
        }
    }
}

/// A stream of records. An `Err` item ends it.
pub(crate) trait Records: Iterator<Item = io::Result<Record>> + Send {}
impl<I: Iterator<Item = io::Result<Record>> + Send> Records for I {}

/// The format of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputFormat {
    /// By the file's extension, else by its first character.
    Auto,
    /// One JSON object per line.
    Jsonl,
    /// A JSON array of objects, or concatenated objects.
    Json,
    /// Comma-separated values.
    Csv,
}

/// An open input and its size.
pub(crate) struct Input {
    pub(crate) records: Box<dyn Records>,
    /// Bytes in the file, before decompression; none for standard input.
    pub(crate) bytes: Option<u64>,
    /// Bytes read so far.
    pub(crate) bytes_read: Arc<AtomicU64>,
    /// Whether the file is compressed.
    pub(crate) is_compressed: bool,
}

impl Input {
    /// Opens a file, or standard input for `-`.
    pub(crate) fn open(path: &Path, format: InputFormat, csv: &CsvArguments) -> Result<Self, Failure> {
        let csv = CsvOptions::new(csv)?;
        let failed = |error: io::Error| unreadable(path, &error);
        let bytes_read = Arc::new(AtomicU64::new(0));
        let (source, bytes) = open_input(path)?;
        // Counted before decompression, like the length of the file.
        let counted = CountingReader { source, bytes_read: Arc::clone(&bytes_read) };
        let (mut reader, is_compressed) = decompress(counted).map_err(failed)?;
        let format = match format {
            // Only CSV has column names to be given.
            InputFormat::Auto if csv.columns.is_some() => InputFormat::Csv,
            InputFormat::Auto => {
                detect(path, &mut *reader, csv.delimiter).map_err(failed)?.ok_or_else(|| {
                    unreadable(path, &"it is neither JSON nor CSV with a header line; specify the --format")
                })?
            }
            format => format,
        };
        let records: Box<dyn Records> = match format {
            InputFormat::Jsonl | InputFormat::Auto => Box::new(json::JsonLines::new(reader)),
            InputFormat::Json => Box::new(json::JsonElements::new(reader)),
            InputFormat::Csv => csv.records(reader).map_err(failed)?,
        };
        Ok(Self { records, bytes, bytes_read, is_compressed })
    }
}

/// Detects the format by the file's extension, else by the first character that is not white space. Text without a
/// delimiter in its first line, or without a second line, is not treated as CSV: the import would be empty.
fn detect(path: &Path, reader: &mut dyn BufRead, delimiter: u8) -> io::Result<Option<InputFormat>> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("jsonl" | "ndjson") => return Ok(Some(InputFormat::Jsonl)),
        Some("csv" | "tsv") => return Ok(Some(InputFormat::Csv)),
        Some("json") => return Ok(Some(InputFormat::Json)),
        _ => {}
    }
    // Looking at the buffer takes nothing from the reader.
    let start = json::strip_mark(reader.fill_buf()?);
    Ok(match start.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => Some(InputFormat::Json),
        Some(b'{') | None => Some(InputFormat::Jsonl),
        Some(_) => {
            let mut lines = start.trim_ascii_start().splitn(2, |byte| *byte == b'\n');
            let has_columns = lines.next().is_some_and(|line| line.contains(&delimiter));
            let has_rows = lines.next().is_some_and(|rest| !rest.trim_ascii().is_empty());
            (has_columns && has_rows).then_some(InputFormat::Csv)
        }
    })
}

/// Counts the bytes read, for the progress bar.
struct CountingReader<R> {
    source: R,
    bytes_read: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.source.read(buffer)?;
        self.bytes_read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}
