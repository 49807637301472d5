//! `orrery import`: from a file or standard input into a container.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::{Object, Value};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::arguments::ImportArguments;
use super::checkpoint::Checkpoint;
use super::input::{self, Input};
use super::outcome::{Failed, Outcome, Summary};
use super::progress::{self, Whole};
use super::target::{IdRule, Prepared, Target, prepare};
use super::tracker::Tracker;
use super::writer::{Item, Writer, WriterOptions};
use super::{attend, print, run_on_threads};
use crate::client::Client;
use crate::client::feed::Place;
use crate::failure::Failure;

/// Records that are read ahead together, at most.
const CHUNK_RECORDS_MAX: usize = 500;
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Chunks that are read ahead.
const CHUNKS_AHEAD: usize = 4;
/// When nothing more comes for so long, what waits for company is sent.
const COMPANY_TIME_MAX: Duration = Duration::from_millis(200);

pub(crate) fn run(arguments: &ImportArguments, output: &mut impl Write) -> Result<(), Failure> {
    run_on_threads(import(arguments, output))
}

async fn import(arguments: &ImportArguments, output: &mut impl Write) -> Result<(), Failure> {
    let client = Arc::new(arguments.server.connect()?.paced(arguments.pace.request_units));
    let outcome = Arc::new(Outcome::new(arguments.write.failures.as_deref())?);
    let opened = Input::open(&arguments.file, arguments.format, &arguments.csv)?;
    let place = Place::new(&arguments.place.database, &arguments.place.container);
    let target = open_target(arguments, &client, &place).await?;
    let (checkpoint, records_done) = open_checkpoint(arguments, &client, &target, opened.bytes)?;
    outcome.skipped.store(records_done, Ordering::Relaxed);

    let tracker = Arc::new(Tracker::new());
    tracker.add(0, records_done);
    let settle = {
        let tracker = Arc::clone(&tracker);
        Arc::new(move |ticket| tracker.settle(ticket))
    };
    let options =
        WriterOptions { batch_items: arguments.write.batch, concurrency: arguments.pace.concurrency };
    let writer = Writer::open(Arc::clone(&client), &place, Arc::clone(&outcome), settle, &options).await?;
    let whole = match opened.bytes {
        Some(length) => Whole::Bytes(length, Arc::clone(&opened.bytes_read)),
        None => Whole::Unknown,
    };
    let shown = progress::show(arguments.pace.quiet, Arc::clone(&outcome), Arc::clone(&client), whole);
    let chunks = read_ahead(opened, target.key.clone(), id_rule(arguments), records_done);
    let save = || match &checkpoint {
        Some(checkpoint) => checkpoint.save(state(&tracker)),
        None => Ok(()),
    };
    let work = write_chunks(chunks, writer, &outcome, &tracker);
    let read = attend(&outcome, work, shown, save).await;

    let why = outcome.take_reason().or_else(|| {
        let error = read.as_ref().err()?;
        Some(Failure::refused(format!("{}: {error}", input::name(&arguments.file))))
    });
    let complete = read.is_ok() && !outcome.is_stopped();
    match &checkpoint {
        Some(checkpoint) if complete => checkpoint.remove()?,
        Some(checkpoint) => checkpoint.save(state(&tracker))?,
        None => {}
    }
    let summary = Summary {
        verb: "Imported",
        what: format!("into {place}"),
        complete,
        checkpoint: arguments.pace.checkpoint.as_ref(),
        clients: &[&client],
        error: why.as_ref().and_then(|failure| failure.message.as_deref()),
    };
    print(&summary.write(&outcome, arguments.pace.output), output)?;
    if let Some(failure) = why {
        return Err(failure);
    }
    if complete && outcome.failed.load(Ordering::Relaxed) == 0 {
        Ok(())
    } else {
        Err(Failure::already_told())
    }
}

async fn open_target(arguments: &ImportArguments, client: &Client, place: &Place) -> Result<Target, Failure> {
    if !arguments.create.create {
        return Target::find(client, place).await?.ok_or_else(|| {
            Failure::refused(format!(
                "there is no container {place} at {}: --create makes it",
                client.account().endpoint()
            ))
        });
    }
    if let Some(target) = Target::find(client, place).await? {
        return Ok(target);
    }
    let paths: Vec<&str> = arguments.create.partition_key.iter().map(String::as_str).collect();
    if paths.is_empty() {
        return Err(Failure::usage("--create needs the --partition-key of the new container"));
    }
    let key = PartitionKeyDefinition::with_paths(&paths).map_err(|error| Failure::usage(error.message))?;
    let mut definition = Object::new();
    definition.set("partitionKey", key.to_value());
    Target::create(client, place, definition, arguments.create.throughput).await
}

fn id_rule(arguments: &ImportArguments) -> IdRule {
    match &arguments.id_from {
        Some(property) => IdRule::From(property.clone()),
        None if arguments.generate_ids => IdRule::Made,
        None => IdRule::Given,
    }
}

fn open_checkpoint(
    arguments: &ImportArguments,
    client: &Client,
    target: &Target,
    bytes: Option<u64>,
) -> Result<(Option<Checkpoint>, u64), Failure> {
    let Some(path) = &arguments.pace.checkpoint else { return Ok((None, 0)) };
    let mut identity = Object::new();
    identity.set("operation", Value::from("import"));
    identity.set("source", Value::from(input::name(&arguments.file)));
    if let Some(bytes) = bytes {
        identity.set("bytes", Value::from(i64::try_from(bytes).unwrap_or(i64::MAX)));
    }
    identity.set("endpoint", Value::from(client.account().endpoint()));
    identity.set("container", Value::from(target.place.to_string()));
    identity.set("rid", Value::from(target.rid.as_str()));
    let (checkpoint, state) = Checkpoint::open(path, identity.into())?;
    let records = state.as_ref().and_then(|state| state.get("records")).and_then(Value::as_i64).unwrap_or(0);
    Ok((Some(checkpoint), u64::try_from(records).unwrap_or(0)))
}

fn state(tracker: &Tracker<u64>) -> Value {
    let records = tracker.reached().first().copied().unwrap_or(0);
    let mut state = Object::new();
    state.set("records", Value::from(i64::try_from(records).unwrap_or(i64::MAX)));
    state.into()
}

/// Records that were read together.
struct Chunk {
    /// The number of the last one, from 1.
    last: u64,
    records: Vec<Result<Prepared, (String, Vec<u8>)>>,
}

/// Reads and prepares records on a thread of its own.
fn read_ahead(
    input: Input,
    key: PartitionKeyDefinition,
    rule: IdRule,
    skip: u64,
) -> mpsc::Receiver<std::io::Result<Chunk>> {
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut number = 0;
        let (mut records, mut bytes) = (Vec::new(), 0);
        for record in input.records {
            number += 1;
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    if !records.is_empty() {
                        sender.blocking_send(Ok(Chunk { last: number - 1, records })).ok();
                    }
                    sender.blocking_send(Err(error)).ok();
                    return;
                }
            };
            if number <= skip {
                continue;
            }
            bytes += record.as_ref().map_or(0, Vec::len);
            records.push(match record {
                Ok(text) => prepare(&key, &rule, number, text),
                Err(reason) => Err((reason, Vec::new())),
            });
            if records.len() >= CHUNK_RECORDS_MAX || bytes >= CHUNK_BYTES_MAX {
                let chunk = Chunk { last: number, records: std::mem::take(&mut records) };
                bytes = 0;
                // The other side is gone when the import was stopped.
                if sender.blocking_send(Ok(chunk)).is_err() {
                    return;
                }
            }
        }
        if !records.is_empty() {
            sender.blocking_send(Ok(Chunk { last: number, records })).ok();
        }
    });
    receiver
}

/// Writes what is read, to the end or until it is stopped.
async fn write_chunks(
    mut chunks: mpsc::Receiver<std::io::Result<Chunk>>,
    mut writer: Writer,
    outcome: &Outcome,
    tracker: &Tracker<u64>,
) -> std::io::Result<()> {
    let mut result = Ok(());
    while !outcome.is_stopped() {
        let chunk = tokio::select! {
            chunk = timeout(COMPANY_TIME_MAX, chunks.recv()) => chunk,
            () = outcome.until_stopped() => break,
        };
        let chunk = match chunk {
            Err(_) => {
                writer.flush().await;
                continue;
            }
            Ok(None) => break,
            Ok(Some(Err(error))) => {
                result = Err(error);
                break;
            }
            Ok(Some(Ok(chunk))) => chunk,
        };
        let ticket = tracker.begin(0, chunk.records.len(), chunk.last);
        let first = chunk.last + 1 - chunk.records.len() as u64;
        for (record, prepared) in (first..).zip(chunk.records) {
            match prepared {
                Ok(prepared) => writer.write(Item { ticket, record, prepared }).await,
                Err((reason, text)) => {
                    let item = (!text.is_empty()).then_some(text.as_slice());
                    let record = record.to_string();
                    outcome.fail(&Failed { status: 0, substatus: 0, reason: &reason, record: &record, item });
                    tracker.settle(ticket);
                }
            }
        }
    }
    writer.finish().await;
    result
}
