//! Files and standard input as a stream of records, read with bounded memory.
//!
//! A record is the text of one JSON object, or the reason why there is none at its place. Reading goes on
//! after a bad record wherever the format lets us find the next one.

mod csv;
mod json;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use super::arguments::{CsvArguments, Format};
use crate::failure::Failure;

pub(crate) use self::csv::CsvOptions;

/// The longest record that is read. Items are smaller; whatever is longer is skipped and told.
pub(super) const RECORD_BYTES_MAX: usize = 4 << 20;

/// One record: its text, or why it has none.
pub(crate) type Record = Result<Vec<u8>, String>;

/// Records one after the other. An error is one that ends the stream.
pub(crate) trait Records: Iterator<Item = io::Result<Record>> + Send {}
impl<I: Iterator<Item = io::Result<Record>> + Send> Records for I {}

/// An input that is open, and how much of it there is.
pub(crate) struct Input {
    pub(crate) records: Box<dyn Records>,
    /// Bytes in the file; none for standard input.
    pub(crate) bytes: Option<u64>,
    /// Bytes of the file that were read so far.
    pub(crate) bytes_read: Arc<AtomicU64>,
}

impl Input {
    /// Opens a file, or standard input for `-`.
    pub(crate) fn open(path: &Path, format: Format, csv: &CsvArguments) -> Result<Self, Failure> {
        let csv = CsvOptions::new(csv)?;
        let failed = |error: io::Error| Failure::refused(format!("{} cannot be read: {error}", name(path)));
        let bytes_read = Arc::new(AtomicU64::new(0));
        let (source, bytes): (Box<dyn Read + Send>, _) = if path == Path::new("-") {
            (Box::new(io::stdin()), None)
        } else {
            let file = File::open(path).map_err(failed)?;
            let length = file.metadata().map_err(failed)?;
            (Box::new(file), length.is_file().then_some(length.len()))
        };
        let counted = Counted { source, bytes_read: Arc::clone(&bytes_read) };
        let mut reader: Box<dyn BufRead + Send> = Box::new(BufReader::with_capacity(256 << 10, counted));
        if reader.fill_buf().map_err(failed)?.starts_with(&[0x1F, 0x8B]) {
            reader = Box::new(BufReader::with_capacity(256 << 10, MultiGzDecoder::new(reader)));
        }
        let format = match format {
            Format::Auto => detect(path, &mut *reader).map_err(failed)?,
            format => format,
        };
        let records: Box<dyn Records> = match format {
            Format::Jsonl | Format::Auto => Box::new(json::Lines::new(reader)),
            Format::Json => Box::new(json::Elements::new(reader)),
            Format::Csv => csv.records(reader).map_err(failed)?,
        };
        Ok(Self { records, bytes, bytes_read })
    }
}

/// How messages call an input.
pub(crate) fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// The format by the file's name, else by the first character that is not a space.
fn detect(path: &Path, reader: &mut dyn BufRead) -> io::Result<Format> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("jsonl" | "ndjson") => return Ok(Format::Jsonl),
        Some("csv" | "tsv") => return Ok(Format::Csv),
        Some("json") => return Ok(Format::Json),
        _ => {}
    }
    let start = json::strip_mark(reader.fill_buf()?);
    Ok(match start.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => Format::Json,
        Some(b'{') | None => Format::Jsonl,
        Some(_) => Format::Csv,
    })
}

/// Counts what passes, for the progress bar.
struct Counted<R> {
    source: R,
    bytes_read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.source.read(buffer)?;
        self.bytes_read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}
