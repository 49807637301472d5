//! `orrery export`: a container as JSON lines.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use orrery_model::{Object, Value};
use tokio::sync::mpsc;

use super::arguments::ExportArguments;
use super::checkpoint::Checkpoint;
use super::outcome::{Outcome, Summary};
use super::progress::{self, Whole};
use super::source::{Batch, LanePosition, Source, item_line, positions};
use super::target::Target;
use super::tracker::Tracker;
use super::{SAVE_INTERVAL, attend, print, run_on_threads};
use crate::client::Client;
use crate::client::feed::Place;
use crate::failure::Failure;

/// Pages that wait to be written.
const PAGES_AHEAD: usize = 4;

pub(crate) fn run(arguments: &ExportArguments, output: &mut impl Write) -> Result<(), Failure> {
    run_on_threads(export(arguments, output))
}

async fn export(arguments: &ExportArguments, output: &mut impl Write) -> Result<(), Failure> {
    let to_standard_output = arguments.file == Path::new("-");
    if to_standard_output && arguments.pace.checkpoint.is_some() {
        return Err(Failure::usage("a checkpoint needs a file to write to, not standard output"));
    }
    let client = Arc::new(arguments.server.connect()?.paced(arguments.pace.request_units));
    let outcome = Arc::new(Outcome::new(None)?);
    let place = Place::new(&arguments.place.database, &arguments.place.container);
    let target = Target::require(&client, &place).await?;
    let (checkpoint, state) = open_checkpoint(arguments, &client, &target)?;
    let written = state.as_ref().and_then(|state| state.get("bytes")).and_then(Value::as_i64);
    let lines = Lines::open(arguments, written.and_then(|bytes| u64::try_from(bytes).ok()))?;
    let from = positions(state.as_ref().and_then(|state| state.get("lanes")))?;

    let concurrency = arguments.pace.concurrency;
    let source = Source::new(Arc::clone(&client), place.clone(), Arc::clone(&outcome), concurrency);
    let tracker = Arc::clone(&source.tracker);
    let (sender, receiver) = mpsc::channel(PAGES_AHEAD);
    let reading = tokio::spawn(Arc::new(source).read(from, sender));
    let whole = target.items.map_or(Whole::Unknown, Whole::Items);
    let shown = progress::show(arguments.pace.quiet, Arc::clone(&outcome), Arc::clone(&client), whole);
    let work = async {
        let mut exporter = Exporter {
            lines,
            tracker: &tracker,
            outcome: &outcome,
            checkpoint: checkpoint.as_ref(),
            keep_system: arguments.system_properties,
        };
        exporter.write_all(receiver).await
    };
    let result = attend(&outcome, work, shown, || Ok(())).await;
    if let Err(failure) = result {
        outcome.stop_because(failure);
    }
    // A reader that waits for a full channel ends, because the other side is gone.
    reading.await.map_err(|error| Failure::internal(format!("the reader failed: {error}")))?;

    let why = outcome.take_reason();
    let complete = !outcome.is_stopped();
    if complete && let Some(checkpoint) = &checkpoint {
        checkpoint.remove()?;
    }
    let summary = Summary {
        verb: "Exported",
        what: format!("of {place}"),
        complete,
        checkpoint: arguments.pace.checkpoint.as_ref(),
        clients: &[&client],
        error: why.as_ref().and_then(|failure| failure.message.as_deref()),
    };
    let text = summary.write(&outcome, arguments.pace.output);
    if to_standard_output {
        print(&text, &mut io::stderr())?;
    } else {
        print(&text, output)?;
    }
    match why {
        Some(failure) => Err(failure),
        None if complete => Ok(()),
        None => Err(Failure::already_told()),
    }
}

fn open_checkpoint(
    arguments: &ExportArguments,
    client: &Client,
    target: &Target,
) -> Result<(Option<Checkpoint>, Option<Value>), Failure> {
    let Some(path) = &arguments.pace.checkpoint else { return Ok((None, None)) };
    let mut identity = Object::new();
    identity.set("operation", Value::from("export"));
    identity.set("endpoint", Value::from(client.account().endpoint()));
    identity.set("container", Value::from(target.place.to_string()));
    identity.set("rid", Value::from(target.rid.as_str()));
    identity.set("file", Value::from(arguments.file.display().to_string()));
    identity.set("systemProperties", Value::from(arguments.system_properties));
    let (checkpoint, state) = Checkpoint::open(path, identity.into())?;
    Ok((Some(checkpoint), state))
}

/// Writes pages as they come, and keeps file and position in step.
struct Exporter<'a> {
    lines: Lines,
    tracker: &'a Tracker<LanePosition>,
    outcome: &'a Outcome,
    checkpoint: Option<&'a Checkpoint>,
    keep_system: bool,
}

impl Exporter<'_> {
    async fn write_all(&mut self, mut batches: mpsc::Receiver<Batch>) -> Result<(), Failure> {
        let mut saved = Instant::now();
        let mut text = String::new();
        loop {
            let batch = tokio::select! {
                batch = batches.recv() => batch,
                () = self.outcome.until_stopped() => None,
            };
            let Some(batch) = batch else { break };
            text.clear();
            for item in &batch.items {
                item_line(item, self.keep_system, &mut text)?;
                text.push('\n');
            }
            self.lines.write(text.as_bytes())?;
            self.outcome.done(batch.items.len() as u64, text.len() as u64);
            for _ in &batch.items {
                self.tracker.settle(batch.ticket);
            }
            if self.checkpoint.is_some() && saved.elapsed() >= SAVE_INTERVAL {
                self.save()?;
                saved = Instant::now();
            }
        }
        self.save()
    }

    fn save(&mut self) -> Result<(), Failure> {
        let bytes = self.lines.settle()?;
        let Some(checkpoint) = self.checkpoint else { return Ok(()) };
        let mut state = Object::new();
        state.set("bytes", Value::from(i64::try_from(bytes).unwrap_or(i64::MAX)));
        let lanes: Vec<Value> = self.tracker.reached().iter().map(LanePosition::to_value).collect();
        state.set("lanes", lanes.into());
        checkpoint.save(state.into())
    }
}

/// Where lines go.
enum Lines {
    Standard(BufWriter<io::Stdout>),
    Plain(BufWriter<File>, String),
    /// One member for each stretch between two checkpoints: members one after the other are valid gzip.
    Gzip(GzEncoder<BufWriter<File>>, String),
}

impl Lines {
    /// Opens the output, cut to the bytes that an earlier run has written for certain.
    fn open(arguments: &ExportArguments, written: Option<u64>) -> Result<Self, Failure> {
        let path = &arguments.file;
        if path == Path::new("-") {
            return Ok(Self::Standard(BufWriter::new(io::stdout())));
        }
        let name = path.display().to_string();
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Failure::refused(format!("{name} exists: --overwrite replaces it"))
            }
            io::ErrorKind::NotFound if written.is_some() => {
                Failure::refused(format!("{name} is gone, but the checkpoint belongs to it: remove that too"))
            }
            _ => Failure::refused(format!("{name} cannot be written: {error}")),
        };
        let mut file = match written {
            Some(_) => OpenOptions::new().write(true).open(path),
            None if arguments.overwrite => File::create(path),
            None => OpenOptions::new().write(true).create_new(true).open(path),
        }
        .map_err(failed)?;
        if let Some(bytes) = written {
            if file.metadata().map_err(failed)?.len() < bytes {
                return Err(Failure::refused(format!("{name} is shorter than its checkpoint says")));
            }
            file.set_len(bytes).map_err(failed)?;
            file.seek(SeekFrom::End(0)).map_err(failed)?;
        }
        let buffered = BufWriter::with_capacity(256 << 10, file);
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz")) {
            return Ok(Self::Gzip(GzEncoder::new(buffered, Compression::default()), name));
        }
        Ok(Self::Plain(buffered, name))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        match self {
            Self::Standard(_) if error.kind() == io::ErrorKind::BrokenPipe => Failure::already_told(),
            Self::Standard(_) => Failure::refused(format!("standard output cannot be written: {error}")),
            Self::Plain(_, name) | Self::Gzip(_, name) => {
                Failure::refused(format!("{name} cannot be written: {error}"))
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let result = match self {
            Self::Standard(output) => output.write_all(bytes),
            Self::Plain(output, _) => output.write_all(bytes),
            Self::Gzip(output, _) => output.write_all(bytes),
        };
        result.map_err(|error| self.failure(&error))
    }

    /// Brings everything to the disk and tells how long the file is.
    fn settle(&mut self) -> Result<u64, Failure> {
        let mut settle = || match self {
            Self::Standard(output) => output.flush().map(|()| 0),
            Self::Plain(output, _) => {
                output.flush()?;
                output.get_ref().sync_all()?;
                output.get_ref().metadata().map(|metadata| metadata.len())
            }
            Self::Gzip(output, _) => {
                output.try_finish()?;
                output.get_mut().flush()?;
                let file = output.get_ref().get_ref().try_clone()?;
                file.sync_all()?;
                let length = file.metadata()?.len();
                // The next member goes on in the same file.
                *output = GzEncoder::new(BufWriter::with_capacity(256 << 10, file), Compression::default());
                Ok(length)
            }
        };
        let result: io::Result<u64> = settle();
        result.map_err(|error| self.failure(&error))
    }
}
