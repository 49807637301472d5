//! `orrery export`: a container as JSON lines.
//!
//! File and checkpoint are kept in step: a checkpoint stores the positions of the lanes and the length of the file that
//! belongs to them, and a resumed export first truncates the file to that length.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use orrery_env::{monotonic, task};
use orrery_model::{Object, Value};
use tokio::sync::mpsc;

use crate::client::{Client, ContainerArguments, ServerArguments};
use crate::failure::Failure;
use crate::io::print;
use crate::transfer::progress::{self, ExpectedTotal};
use crate::transfer::{
    Checkpoint, ContainerReader, ItemBatch, LanePosition, Outcome, PaceOptions, RemoteContainer,
    SAVE_INTERVAL, Summary, Tracker, item_line, positions, run_on_threads, supervise,
};

/// Pages read ahead of the writer.
const PAGES_AHEAD: usize = 4;

#[derive(Args)]
pub(crate) struct ExportArguments {
    /// The file to write, compressed if its name ends in .gz; - is standard output.
    #[arg(default_value = "-")]
    file: PathBuf,

    #[command(flatten)]
    container: ContainerArguments,

    /// Include _rid, _self, _etag, _attachments and _ts.
    #[arg(long)]
    system_properties: bool,

    /// Replace the file if it exists.
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    pace: PaceOptions,

    #[command(flatten)]
    pub(super) server: ServerArguments,
}

pub(super) fn run(arguments: &ExportArguments, output: &mut impl Write) -> Result<(), Failure> {
    run_on_threads(export(arguments, output))
}

async fn export(arguments: &ExportArguments, output: &mut impl Write) -> Result<(), Failure> {
    let to_standard_output = arguments.file == Path::new("-");
    if to_standard_output && arguments.pace.checkpoint.is_some() {
        return Err(Failure::usage("--checkpoint needs a file to export to, not standard output"));
    }
    let client = Arc::new(arguments.server.connect()?.limited_to(arguments.pace.request_units));
    let outcome = Arc::new(Outcome::new(None)?);
    let path = arguments.container.path();
    let container = RemoteContainer::require(&client, &path).await?;
    let (checkpoint, state) = arguments.pace.open_checkpoint(identity(arguments, &client, &container))?;
    let written = state.as_ref().and_then(|state| state.get("bytes")).and_then(Value::as_i64);
    let file = ExportFile::open(arguments, written.and_then(|bytes| u64::try_from(bytes).ok()))?;
    let from = positions(state.as_ref().and_then(|state| state.get("lanes")))?;

    let concurrency = arguments.pace.concurrency;
    let reader = ContainerReader::new(Arc::clone(&client), path.clone(), Arc::clone(&outcome), concurrency);
    let tracker = Arc::clone(&reader.tracker);
    let (sender, receiver) = mpsc::channel(PAGES_AHEAD);
    let reading = task::spawn("read", Arc::new(reader).read(from, sender));
    let total = container.items.map_or(ExpectedTotal::Unknown, ExpectedTotal::Items);
    let shown = progress::show(arguments.pace.quiet, Arc::clone(&outcome), Arc::clone(&client), total);
    let work = async {
        let mut exporter = Exporter {
            file,
            tracker: &tracker,
            outcome: &outcome,
            checkpoint: checkpoint.as_ref(),
            keep_system_properties: arguments.system_properties,
        };
        exporter.write_all(receiver).await
    };
    // The exporter saves checkpoints itself, in step with the file.
    let result = supervise(&outcome, work, shown, || Ok(())).await;
    if let Err(failure) = result {
        outcome.stop_because(failure);
    }
    // A reader blocked on the full channel ends, because the receiver is dropped.
    reading.await.map_err(|error| Failure::internal(format!("reading failed: {error}")))?;

    let why = outcome.take_reason();
    let complete = !outcome.is_stopped();
    if complete && let Some(checkpoint) = &checkpoint {
        checkpoint.remove()?;
    }
    let clients: [&Client; 1] = [&client];
    let summary =
        Summary::new("Exported", format!("from {path}"), complete, &arguments.pace, &clients, why.as_ref());
    let text = summary.write(&outcome, arguments.pace.output);
    if to_standard_output {
        // Standard output is the export itself.
        print(&mut io::stderr(), &text)?;
    } else {
        print(output, &text)?;
    }
    match why {
        Some(failure) => Err(failure),
        None if complete => Ok(()),
        None => Err(Failure::already_reported()),
    }
}

/// Identifies this transfer: a checkpoint of another one is refused.
fn identity(arguments: &ExportArguments, client: &Client, container: &RemoteContainer) -> Object {
    let mut identity = Object::new();
    identity.set("operation", Value::from("export"));
    identity.set("endpoint", Value::from(client.account().endpoint()));
    identity.set("container", Value::from(container.path.to_string()));
    identity.set("rid", Value::from(container.rid.as_str()));
    identity.set("file", Value::from(arguments.file.display().to_string()));
    identity.set("systemProperties", Value::from(arguments.system_properties));
    identity
}

/// Writes pages as they arrive, and keeps file and checkpoint in step.
struct Exporter<'a> {
    file: ExportFile,
    tracker: &'a Tracker<LanePosition>,
    outcome: &'a Outcome,
    checkpoint: Option<&'a Checkpoint>,
    keep_system_properties: bool,
}

impl Exporter<'_> {
    async fn write_all(&mut self, mut batches: mpsc::Receiver<ItemBatch>) -> Result<(), Failure> {
        let mut saved = monotonic::now();
        let mut text = String::new();
        loop {
            let batch = tokio::select! {
                batch = batches.recv() => batch,
                () = self.outcome.until_stopped() => None,
            };
            let Some(batch) = batch else { break };
            text.clear();
            for item in &batch.items {
                item_line(item, self.keep_system_properties, &mut text)?;
                text.push('\n');
            }
            self.file.write(text.as_bytes())?;
            self.outcome.done(batch.items.len() as u64, text.len() as u64);
            // Still in the buffer, but a checkpoint fsyncs the file before it states this position.
            for _ in &batch.items {
                self.tracker.settle(batch.ticket);
            }
            if self.checkpoint.is_some() && monotonic::elapsed(saved) >= SAVE_INTERVAL {
                self.save()?;
                saved = monotonic::now();
            }
        }
        // Also after an interruption, so that the next run resumes here.
        self.save()
    }

    fn save(&mut self) -> Result<(), Failure> {
        // Without a checkpoint too: what is reported as exported is on disk.
        let bytes = self.file.sync()?;
        let Some(checkpoint) = self.checkpoint else { return Ok(()) };
        let mut state = Object::new();
        state.set("bytes", Value::from(i64::try_from(bytes).unwrap_or(i64::MAX)));
        let lanes: Vec<Value> = self.tracker.reached().iter().map(LanePosition::to_value).collect();
        state.set("lanes", lanes.into());
        checkpoint.save(state.into())
    }
}

/// The output.
enum ExportFile {
    Standard(BufWriter<io::Stdout>),
    Plain(BufWriter<File>, String),
    /// One gzip member between two checkpoints; concatenated members are valid gzip.
    Gzip(GzEncoder<BufWriter<File>>, String),
}

impl ExportFile {
    /// Opens the output, truncated to what the checkpoint of an earlier run covers.
    fn open(arguments: &ExportArguments, written: Option<u64>) -> Result<Self, Failure> {
        let path = &arguments.file;
        if path == Path::new("-") {
            return Ok(Self::Standard(BufWriter::new(io::stdout())));
        }
        let name = path.display().to_string();
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Failure::refused(format!("{name} exists: pass --overwrite to replace it"))
            }
            io::ErrorKind::NotFound if written.is_some() => Failure::refused(format!(
                "{name} is missing, but its checkpoint exists: remove the checkpoint to start over"
            )),
            _ => Failure::refused(format!("{name} cannot be written: {error}")),
        };
        let mut file = match written {
            Some(_) => OpenOptions::new().write(true).open(path),
            None if arguments.overwrite => File::create(path),
            None => OpenOptions::new().write(true).create_new(true).open(path),
        }
        .map_err(failed)?;
        // What was written after the checkpoint will be written again.
        if let Some(bytes) = written {
            if file.metadata().map_err(failed)?.len() < bytes {
                return Err(Failure::refused(format!(
                    "{name} is shorter than its checkpoint says: remove both to start over"
                )));
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
            // Whoever reads the pipe has seen enough, which needs no message.
            Self::Standard(_) if error.kind() == io::ErrorKind::BrokenPipe => Failure::already_reported(),
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

    /// Flushes and fsyncs; returns the length of the file.
    fn sync(&mut self) -> Result<u64, Failure> {
        let mut sync = || match self {
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
                // The next member continues in the same file.
                *output = GzEncoder::new(BufWriter::with_capacity(256 << 10, file), Compression::default());
                Ok(length)
            }
        };
        let result: io::Result<u64> = sync();
        result.map_err(|error| self.failure(&error))
    }
}
