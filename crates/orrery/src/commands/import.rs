//! `orrery import`: from a file or standard input into a container.
//!
//! One thread reads and prepares records in chunks, a few ahead; the writer batches and sends them.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use orrery_model::offer::DEFAULT_THROUGHPUT;
use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::{Object, Value};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::client::{Client, ContainerArguments, ContainerPath, ServerArguments};
use crate::failure::Failure;
use crate::io::{input_name, print};
use crate::transfer::input::{CsvArguments, Input, InputFormat, Place};
use crate::transfer::progress::{self, ExpectedTotal, InputProgress};
use crate::transfer::{
    BATCH_WAIT_MAX, BatchLimits, Checkpoint, FailedRecord, IdRule, ItemWriter, Outcome, PaceOptions,
    PendingItem, PreparedItem, ProvisionedThroughput, RemoteContainer, Summary, Tracker, WriteOptions,
    prepare, run_on_threads, supervise,
};

/// The most records of a chunk.
const CHUNK_RECORDS_MAX: usize = 500;
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Chunks read ahead of the writer.
const CHUNKS_AHEAD: usize = 4;

/// How long an import should take at most with the throughput that it provisions.
const FITTING_SECONDS: u64 = 120;
/// Request units to write a kilobyte of small items, which cost the most: some 6 units for 100 bytes.
const UNITS_PER_KILOBYTE: u64 = 60;
/// Rough compression ratio of gzip files.
const COMPRESSION_RATIO: u64 = 6;
/// What one physical partition serves.
const PARTITION_UNITS_MAX: i64 = 10_000;

#[derive(Args)]
pub(crate) struct ImportArguments {
    /// The file to read, plain or gzip; - is standard input.
    #[arg(default_value = "-")]
    file: PathBuf,

    #[command(flatten)]
    container: ContainerArguments,

    /// Input format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = InputFormat::Auto)]
    format: InputFormat,

    /// Take the id from this property, a string or a number.
    #[arg(long, value_name = "PROPERTY", conflicts_with = "generate_ids")]
    id_from: Option<String>,

    /// Generate missing ids from position and content; the same in every run.
    #[arg(long)]
    generate_ids: bool,

    #[command(flatten)]
    csv: CsvArguments,

    #[command(flatten)]
    create: CreateArguments,

    #[command(flatten)]
    write: WriteOptions,

    #[command(flatten)]
    pace: PaceOptions,

    #[command(flatten)]
    pub(super) server: ServerArguments,
}

/// The container to create if it does not exist.
#[derive(Args)]
pub(crate) struct CreateArguments {
    /// Create the database and the container if they do not exist.
    #[arg(long, help_heading = "Container")]
    create: bool,

    /// The partition key of a created container, such as /customer. Up to three, separated by commas, make a
    /// hierarchical key.
    #[arg(long, value_name = "PATH", value_delimiter = ',', requires = "create", help_heading = "Container")]
    partition_key: Vec<String>,

    /// The throughput of a created container, in request units per second. [default: autoscale, up to what fits the import]
    #[arg(long, value_name = "NUMBER", help_heading = "Container")]
    throughput: Option<u32>,
}

pub(super) fn run(arguments: &ImportArguments, output: &mut impl Write) -> Result<(), Failure> {
    run_on_threads(import(arguments, output))
}

async fn import(arguments: &ImportArguments, output: &mut impl Write) -> Result<(), Failure> {
    // Names the server that is about to be changed, unless asked to be quiet.
    let client =
        if arguments.pace.quiet { arguments.server.connect() } else { arguments.server.connect_to_change() };
    let client = Arc::new(client?.limited_to(arguments.pace.request_units));
    let outcome = Arc::new(Outcome::new(arguments.write.failures.as_deref())?);
    let opened = Input::open(&arguments.file, arguments.format, &arguments.csv)?;
    let path = arguments.container.path();
    let container = open_container(arguments, &client, &path, &opened).await?;
    let (checkpoint, records_done) = open_checkpoint(arguments, &client, &container, opened.bytes)?;
    outcome.skipped.store(records_done, Ordering::Relaxed);

    let tracker = Arc::new(Tracker::new());
    // A single lane: records are numbered through the whole input.
    tracker.add(0, records_done);
    let settle = {
        let tracker = Arc::clone(&tracker);
        Arc::new(move |ticket| tracker.settle(ticket))
    };
    let limits = BatchLimits { batch_items: arguments.write.batch, concurrency: arguments.pace.concurrency };
    let writer = ItemWriter::open(Arc::clone(&client), &path, Arc::clone(&outcome), settle, &limits).await?;
    let records_read = Arc::new(AtomicU64::new(0));
    let total = match opened.bytes {
        Some(length) => ExpectedTotal::Bytes(InputProgress {
            length,
            bytes_read: Arc::clone(&opened.bytes_read),
            records_read: Arc::clone(&records_read),
        }),
        None => ExpectedTotal::Unknown,
    };
    let shown = progress::show(arguments.pace.quiet, Arc::clone(&outcome), Arc::clone(&client), total);
    let chunks = read_ahead(opened, container.key.clone(), id_rule(arguments), records_done, records_read);
    let save = || match &checkpoint {
        Some(checkpoint) => checkpoint.save(state(&tracker)),
        None => Ok(()),
    };
    let work = write_chunks(chunks, writer, &outcome, &tracker);
    let read = supervise(&outcome, work, shown, save).await;

    let why = outcome.take_reason().or_else(|| {
        let error = read.as_ref().err()?;
        Some(Failure::refused(format!("{}: {error}", input_name(&arguments.file))))
    });
    let complete = read.is_ok() && !outcome.is_stopped();
    match &checkpoint {
        Some(checkpoint) if complete => checkpoint.remove()?,
        Some(checkpoint) => checkpoint.save(state(&tracker))?,
        None => {}
    }
    let clients: [&Client; 1] = [&client];
    let summary =
        Summary::new("Imported", format!("into {path}"), complete, &arguments.pace, &clients, why.as_ref());
    print(output, &summary.write(&outcome, arguments.pace.output))?;
    if let Some(failure) = why {
        return Err(failure);
    }
    if complete && outcome.failed.load(Ordering::Relaxed) == 0 {
        Ok(())
    } else {
        Err(Failure::already_reported())
    }
}

/// The container to write to; created if the arguments ask for it.
async fn open_container(
    arguments: &ImportArguments,
    client: &Client,
    path: &ContainerPath,
    input: &Input,
) -> Result<RemoteContainer, Failure> {
    if !arguments.create.create {
        return RemoteContainer::find(client, path).await?.ok_or_else(|| {
            Failure::refused(format!(
                "there is no container {path} at {}: pass --create to create it",
                client.account().endpoint()
            ))
        });
    }
    if let Some(container) = RemoteContainer::find(client, path).await? {
        return Ok(container);
    }
    let paths: Vec<&str> = arguments.create.partition_key.iter().map(String::as_str).collect();
    if paths.is_empty() {
        return Err(Failure::usage("--create needs --partition-key for the new container"));
    }
    let key = PartitionKeyDefinition::with_paths(&paths).map_err(|error| Failure::usage(error.message))?;
    let mut definition = Object::new();
    definition.set("partitionKey", key.to_value());
    let given = arguments.create.throughput.map(|units| ProvisionedThroughput::Manual(units.into()));
    let fitting = if given.is_none() { fitting_throughput(input) } else { None };
    let created = RemoteContainer::create(client, path, definition, given.or(fitting)).await?;
    if let Some(throughput) = fitting.filter(|_| !arguments.pace.quiet) {
        // Only for people: ignore a closed standard error.
        writeln!(
            std::io::stderr(),
            "Created {path} with {throughput}, to fit this import; --throughput sets another."
        )
        .ok();
    }
    Ok(created)
}

/// The throughput at which an import of this size takes minutes rather than hours; none if the minimum suffices.
///
/// Autoscale, because the container then costs a tenth of that when idle. At most what one physical partition serves:
/// more would divide the container into partitions, which never merge automatically.
fn fitting_throughput(input: &Input) -> Option<ProvisionedThroughput> {
    // Standard input has no known size, so it gets as much as one partition serves.
    let Some(bytes) = input.bytes else { return Some(ProvisionedThroughput::Autoscale(PARTITION_UNITS_MAX)) };
    let bytes = if input.is_compressed { bytes.saturating_mul(COMPRESSION_RATIO) } else { bytes };
    let per_second = bytes / 1000 * UNITS_PER_KILOBYTE / FITTING_SECONDS;
    let thousands = i64::try_from(per_second.div_ceil(1000)).unwrap_or(i64::MAX);
    let units = thousands.saturating_mul(1000).min(PARTITION_UNITS_MAX);
    (per_second > u64::from(DEFAULT_THROUGHPUT)).then_some(ProvisionedThroughput::Autoscale(units))
}

fn id_rule(arguments: &ImportArguments) -> IdRule {
    match &arguments.id_from {
        Some(property) => IdRule::FromProperty(property.clone()),
        None if arguments.generate_ids => IdRule::Generate,
        None => IdRule::Required,
    }
}

/// The checkpoint, if any, and the number of records that need not be read again.
fn open_checkpoint(
    arguments: &ImportArguments,
    client: &Client,
    container: &RemoteContainer,
    bytes: Option<u64>,
) -> Result<(Option<Checkpoint>, u64), Failure> {
    let mut identity = Object::new();
    identity.set("operation", Value::from("import"));
    identity.set("source", Value::from(input_name(&arguments.file)));
    // In a file of another length the same number would be another record.
    if let Some(bytes) = bytes {
        identity.set("bytes", Value::from(i64::try_from(bytes).unwrap_or(i64::MAX)));
    }
    identity.set("endpoint", Value::from(client.account().endpoint()));
    identity.set("container", Value::from(container.path.to_string()));
    identity.set("rid", Value::from(container.rid.as_str()));
    let (checkpoint, state) = arguments.pace.open_checkpoint(identity)?;
    let records = state.as_ref().and_then(|state| state.get("records")).and_then(Value::as_i64).unwrap_or(0);
    Ok((checkpoint, u64::try_from(records).unwrap_or(0)))
}

fn state(tracker: &Tracker<u64>) -> Value {
    let records = tracker.reached().first().copied().unwrap_or(0);
    let mut state = Object::new();
    state.set("records", Value::from(i64::try_from(records).unwrap_or(i64::MAX)));
    state.into()
}

/// The position of a record and the item prepared from it, or the reason why it failed and its text.
type PlacedRecord = (Place, Result<PreparedItem, (String, Vec<u8>)>);

/// Consecutive records.
struct RecordChunk {
    /// The number of the last one; the first of the input is 1.
    last: u64,
    records: Vec<PlacedRecord>,
}

/// Reads and prepares records on a separate thread. The first `skip` records are already imported.
fn read_ahead(
    input: Input,
    key: PartitionKeyDefinition,
    rule: IdRule,
    skip: u64,
    records_read: Arc<AtomicU64>,
) -> mpsc::Receiver<std::io::Result<RecordChunk>> {
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    orrery_env::task::run_blocking("read ahead", move || {
        let mut number = 0;
        let (mut records, mut bytes) = (Vec::new(), 0);
        for record in input.records {
            // Counted from the start even if skipped: checkpoints and messages name records by number.
            number += 1;
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    // What was read before the error is still imported.
                    if !records.is_empty() {
                        sender.blocking_send(Ok(RecordChunk { last: number - 1, records })).ok();
                    }
                    sender.blocking_send(Err(error)).ok();
                    return;
                }
            };
            records_read.store(number, Ordering::Relaxed);
            if number <= skip {
                continue;
            }
            bytes += record.text.as_ref().map_or(0, Vec::len);
            let prepared = match record.text {
                Ok(text) => prepare(&key, &rule, number, text),
                Err(reason) => Err((reason, Vec::new())),
            };
            records.push((record.place, prepared));
            if records.len() >= CHUNK_RECORDS_MAX || bytes >= CHUNK_BYTES_MAX {
                let chunk = RecordChunk { last: number, records: std::mem::take(&mut records) };
                bytes = 0;
                // The receiver is dropped when the import stops.
                if sender.blocking_send(Ok(chunk)).is_err() {
                    return;
                }
            }
        }
        if !records.is_empty() {
            sender.blocking_send(Ok(RecordChunk { last: number, records })).ok();
        }
    });
    receiver
}

/// Writes chunks until the input ends or the transfer is stopped.
async fn write_chunks(
    mut chunks: mpsc::Receiver<std::io::Result<RecordChunk>>,
    mut writer: ItemWriter,
    outcome: &Outcome,
    tracker: &Tracker<u64>,
) -> std::io::Result<()> {
    let mut result = Ok(());
    while !outcome.is_stopped() {
        let chunk = tokio::select! {
            chunk = timeout(BATCH_WAIT_MAX, chunks.recv()) => chunk,
            () = outcome.until_stopped() => break,
        };
        let chunk = match chunk {
            // The input is slow: what waits for a full batch is written now.
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
        // Settled once each of its records is written or has failed.
        let ticket = tracker.begin(0, chunk.records.len(), chunk.last);
        for (place, prepared) in chunk.records {
            match prepared {
                Ok(prepared) => writer.write(PendingItem { ticket, place: Some(place), prepared }).await,
                Err((reason, text)) => {
                    let item = (!text.is_empty()).then_some(text.as_slice());
                    let record = place.to_string();
                    outcome.fail(&FailedRecord {
                        status: 0,
                        substatus: 0,
                        reason: &reason,
                        record: &record,
                        item,
                    });
                    tracker.settle(ticket);
                }
            }
        }
    }
    writer.finish().await;
    result
}
