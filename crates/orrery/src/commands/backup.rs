//! `orrery backup`: copies the files of a running server's embedded store into a backup directory or a single file.
//!
//! The server takes a checkpoint, which is instant. This command copies its files in chunks, limited by `--rate-mb`,
//! skips files that the directory already has from earlier backups, and verifies checksums. `BackupRepository`
//! specifies the layout of a backup directory.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use orrery_advisor::moment;
use orrery_env::{SystemEnv, monotonic};
use orrery_model::{Object, Value};
use orrery_storage::{BackupRepository, BackupSummary, CheckpointFile, NewBackup};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::archive::{self, Scratch};
use crate::client::{Client, Request, ServerArguments, accepted_json, block_on};
use crate::failure::Failure;
use crate::io::{Output, byte_size, count, print};

const PATH: &str = "/_orrery/checkpoints";

#[derive(Args)]
pub(crate) struct BackupArguments {
    /// The backup directory, which holds any number of backups; created if it does not exist. Or a new file that ends
    /// with .tar, for a single backup.
    #[arg(value_name = "DIRECTORY|FILE.tar")]
    directory: PathBuf,

    /// Only list the backups in the directory.
    #[arg(long, conflicts_with_all = ["verify", "keep", "rate_mb"])]
    list: bool,

    /// Only verify the backups in the directory against their checksums.
    #[arg(long, conflicts_with_all = ["keep", "rate_mb"])]
    verify: bool,

    /// Afterwards remove all but this many newest backups, and files that no remaining backup needs.
    #[arg(long, value_name = "NUMBER")]
    keep: Option<std::num::NonZero<usize>>,

    /// Copy at most this much per second.
    #[arg(long, value_name = "MB")]
    rate_mb: Option<std::num::NonZero<u32>>,

    #[command(flatten)]
    server: ServerArguments,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = Output::Text)]
    output: Output,
}

pub(super) fn run(arguments: &BackupArguments, output: &mut dyn Write) -> Result<(), Failure> {
    if arguments.list || arguments.verify {
        return inspect(arguments, output);
    }
    let file = archive::is_file(&arguments.directory).then_some(&arguments.directory);
    if let Some(file) = file {
        if arguments.keep.is_some() {
            return Err(Failure::usage("--keep needs a backup directory: a file holds one backup"));
        }
        if file.exists() {
            return Err(Failure::refused(format!("{} exists: name a new file", file.display())));
        }
    }
    // A single file is packed from a directory that exists only meanwhile.
    let scratch = file.map(|file| Scratch::beside(file)).transpose()?;
    let directory = scratch.as_ref().map_or(arguments.directory.as_path(), Scratch::path);
    let repository = BackupRepository::create(directory).map_err(Failure::refused)?;
    let (summary, copied) = block_on(copy(arguments, &repository))?;
    // Old backups go only after the new one is complete.
    let removed = arguments.keep.map_or(Ok(0), |keep| repository.prune(keep.get()));
    let removed = removed.map_err(Failure::refused)?;
    if let Some(file) = file {
        archive::pack(directory, file)?;
    }
    let answer = {
        let mut object = describe(&summary);
        object.set("copiedBytes", Value::from(copied.cast_signed()));
        object.set("removedBackups", Value::from(i64::try_from(removed).unwrap_or(i64::MAX)));
        Value::Object(object)
    };
    let text = arguments.output.render(&answer, || {
        let removed = match removed {
            0 => String::new(),
            removed => format!("removed {}\n", count(removed as u64, "older backup")),
        };
        format!(
            "backup {} of {}: {}, {} ({} copied)\n{removed}",
            summary.name,
            moment::print(summary.taken_ms),
            count(summary.files as u64, "file"),
            size(summary.bytes),
            size(copied)
        )
    });
    print(output, &text)
}

fn inspect(arguments: &BackupArguments, output: &mut dyn Write) -> Result<(), Failure> {
    // Unpacked files exist as long as `_scratch`.
    let (repository, _scratch) = archive::open(&arguments.directory)?;
    let backups = repository.backups().map_err(Failure::refused)?;
    for backup in backups.iter().filter(|_| arguments.verify) {
        repository.verify(&backup.name).map_err(Failure::refused)?;
    }
    let answer = Value::from(backups.iter().map(|backup| describe(backup).into()).collect::<Vec<Value>>());
    let text = arguments.output.render(&answer, || {
        let verified = if arguments.verify { ", verified" } else { "" };
        let line = |backup: &BackupSummary| {
            let (taken, bytes) = (moment::print(backup.taken_ms), size(backup.bytes));
            format!("{}  {taken}  {bytes}{verified}\n", backup.name)
        };
        let lines: String = backups.iter().map(line).collect();
        if lines.is_empty() { "there is no backup yet\n".to_owned() } else { lines }
    });
    print(output, &text)
}

fn describe(backup: &BackupSummary) -> Object {
    let mut object = Object::new();
    object.set("name", Value::from(backup.name.as_str()));
    object.set("taken", Value::from(moment::print(backup.taken_ms).as_str()));
    object.set("files", Value::from(i64::try_from(backup.files).unwrap_or(i64::MAX)));
    object.set("bytes", Value::from(backup.bytes.cast_signed()));
    object
}

#[expect(clippy::cast_precision_loss, reason = "rounded for display")]
fn size(bytes: u64) -> String {
    byte_size(bytes as f64)
}

/// Takes a checkpoint and copies it; returns the bytes that had to be copied.
async fn copy(
    arguments: &BackupArguments,
    repository: &BackupRepository,
) -> Result<(BackupSummary, u64), Failure> {
    let client = arguments.server.connect()?;
    // A retry may take a second checkpoint; the first one then expires.
    let taken = accepted_json(client.send(&SystemEnv, &Request::post(PATH, "")).await?)?;
    let malformed = || Failure::refused("the server did not return a checkpoint: is it an Orrery server?");
    let id = taken.get("id").and_then(Value::as_str).ok_or_else(malformed)?;
    let history = taken.get("history").and_then(Value::as_str).ok_or_else(malformed)?;
    let taken_ms = taken.get("takenMs").and_then(Value::as_i64).ok_or_else(malformed)?;
    let files = taken.get("files").and_then(Value::as_array).ok_or_else(malformed)?;
    let files = files.iter().map(parse_file).collect::<Option<Vec<_>>>().ok_or_else(malformed)?;
    let mut backup = repository.begin(history, taken_ms).map_err(Failure::refused)?;
    let mut pace = Pace::new(arguments.rate_mb.map(std::num::NonZero::get));
    let progress = progress_bar(&files);
    let mut copied = Ok(());
    for file in &files {
        if !backup.reuse(file) {
            copied = copy_file(&client, id, file, &mut backup, &mut pace, &progress).await;
        }
        // Reused files count too, so that the bar reaches its end.
        progress.inc(file.bytes);
        // The first failure ends the copy, but the checkpoint is still released below.
        if copied.is_err() {
            break;
        }
    }
    progress.finish_and_clear();
    // No longer needed, whatever happened; if this fails, it expires.
    client.send(&SystemEnv, &Request::delete(format!("{PATH}/{id}"))).await.ok();
    copied?;
    let bytes = backup.copied_bytes();
    Ok((backup.finish().map_err(Failure::refused)?, bytes))
}

fn parse_file(file: &Value) -> Option<CheckpointFile> {
    let checksum = file.get("xxh3").and_then(Value::as_str);
    Some(CheckpointFile {
        path: file.get("path")?.as_str()?.to_owned(),
        bytes: file.get("bytes")?.as_i64()?.try_into().ok()?,
        checksum: checksum.map(|text| u128::from_str_radix(text, 16)).transpose().ok()?,
    })
}

async fn copy_file(
    client: &Client,
    id: &str,
    file: &CheckpointFile,
    backup: &mut NewBackup<'_>,
    pace: &mut Pace,
    progress: &ProgressBar,
) -> Result<(), Failure> {
    progress.set_message(file.path.clone());
    let mut receiver = backup.receive(file).map_err(Failure::refused)?;
    let path = utf8_percent_encode(&file.path, NON_ALPHANUMERIC);
    let mut offset = 0;
    while offset < file.bytes {
        let query = format!("path={path}&offset={offset}");
        let request = Request::get(format!("{PATH}/{id}/files")).with_query(&query);
        let part = client.send(&SystemEnv, &request).await?.accepted()?.body;
        // Asking again for the same offset would never end.
        if part.is_empty() {
            return Err(Failure::refused(format!("the server sent less of {} than it announced", file.path)));
        }
        receiver.write(&part).map_err(Failure::refused)?;
        offset += part.len() as u64;
        pace.wait(part.len()).await;
    }
    receiver.finish().map_err(Failure::refused)
}

/// Limits the rate of copying.
struct Pace {
    bytes_per_second: Option<u64>,
    begun: Instant,
    bytes: u64,
}

impl Pace {
    fn new(rate_mb: Option<u32>) -> Self {
        let bytes_per_second = rate_mb.map(|rate| u64::from(rate) << 20);
        Self { bytes_per_second, begun: monotonic::now(), bytes: 0 }
    }

    async fn wait(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if let Some(rate) = self.bytes_per_second {
            // Counted from the start, so that a slow part is made up for.
            let due = self.begun + Duration::from_millis(self.bytes.saturating_mul(1000) / rate);
            tokio::time::sleep_until(due.into()).await;
        }
    }
}

/// A bar on a terminal, nothing elsewhere.
fn progress_bar(files: &[CheckpointFile]) -> ProgressBar {
    let is_terminal = std::io::stderr().is_terminal();
    let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(files.iter().map(|file| file.bytes).sum()), target);
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {bytes} of {total_bytes}, {eta} left, {msg}")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
