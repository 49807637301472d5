//! `orrery copy`: containers from one account to another, with their definitions.
//!
//! Containers are copied one after the other, the partitions of each in parallel. Server-side scripts are not copied.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::Args;
use orrery_model::{Object, Value};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::client::{Account, Client, ContainerPath, TrustArguments, announce, id_of};
use crate::failure::Failure;
use crate::io::print;
use crate::transfer::progress::{self, ExpectedTotal};
use crate::transfer::{
    BATCH_WAIT_MAX, BatchLimits, ContainerReader, FailedRecord, IdRule, ItemBatch, ItemWriter, LanePosition,
    Outcome, PaceOptions, PendingItem, ProvisionedThroughput, RemoteContainer, Summary, Tracker,
    WriteOptions, item_line, positions, prepare, run_on_threads, supervise,
};

/// Pages read ahead of the writer.
const PAGES_AHEAD: usize = 2;

#[derive(Args)]
pub(crate) struct CopyArguments {
    /// The account to read from, as AccountEndpoint=URL;AccountKey=KEY; or the URL of an emulator.
    #[arg(long, value_name = "CONNECTION", env = "ORRERY_FROM", hide_env_values = true)]
    from: String,

    /// The account to write to.
    #[arg(long, value_name = "CONNECTION", env = "ORRERY_TO", hide_env_values = true)]
    to: String,

    /// The database.
    #[arg(long, short, value_name = "ID", env = "ORRERY_DATABASE")]
    database: String,

    /// The container. [default: all containers of the database]
    #[arg(long, short, value_name = "ID", env = "ORRERY_CONTAINER")]
    container: Option<String>,

    /// The database to write to. [default: the same name]
    #[arg(long, value_name = "ID")]
    to_database: Option<String>,

    /// The container to write to. [default: the same name]
    #[arg(long, value_name = "ID", requires = "container")]
    to_container: Option<String>,

    /// The throughput of created containers, in request units per second. [default: that of the originals]
    #[arg(long, value_name = "NUMBER")]
    throughput: Option<u32>,

    #[command(flatten)]
    write: WriteOptions,

    #[command(flatten)]
    pace: PaceOptions,

    #[command(flatten)]
    trust: TrustArguments,
}

pub(super) fn run(arguments: &CopyArguments, output: &mut impl Write) -> Result<(), Failure> {
    run_on_threads(copy(arguments, output))
}

async fn copy(arguments: &CopyArguments, output: &mut impl Write) -> Result<(), Failure> {
    let connect = |text: &str| {
        let client = arguments.trust.connect(Account::parse(text)?)?;
        // Each side has the limit for itself.
        Ok::<_, Failure>(Arc::new(client.limited_to(arguments.pace.request_units)))
    };
    let (from, to) = (connect(&arguments.from)?, connect(&arguments.to)?);
    if !arguments.pace.quiet {
        announce(to.account(), "copying to");
    }
    let outcome = Arc::new(Outcome::new(arguments.write.failures.as_deref())?);
    let to_database = arguments.to_database.as_ref().unwrap_or(&arguments.database);
    let names = match &arguments.container {
        Some(container) => vec![container.clone()],
        None => from.list_containers(&arguments.database).await?.iter().map(id_of).collect(),
    };
    let pairs: Vec<(ContainerPath, ContainerPath)> = names
        .iter()
        .map(|name| {
            let to_name = arguments.to_container.as_ref().unwrap_or(name);
            (ContainerPath::new(&arguments.database, name), ContainerPath::new(to_database, to_name))
        })
        .collect();
    if from.account().endpoint() == to.account().endpoint() && pairs.iter().any(|(from, to)| from == to) {
        return Err(Failure::usage("a container cannot be copied onto itself"));
    }
    let (checkpoint, state) = arguments.pace.open_checkpoint(identity(arguments, &from, &to))?;
    let copier = Copier {
        from: Arc::clone(&from),
        to: Arc::clone(&to),
        outcome: Arc::clone(&outcome),
        arguments,
        positions: Mutex::new(SavedPositions::parse(state.as_ref())),
        current: Mutex::new(None),
    };
    let total = expected_total(&from, &pairs).await?;
    let shown = progress::show(arguments.pace.quiet, Arc::clone(&outcome), Arc::clone(&to), total);
    let save = || match &checkpoint {
        Some(checkpoint) => checkpoint.save(copier.state()),
        None => Ok(()),
    };
    let work = async {
        for (from, to) in &pairs {
            if outcome.is_stopped() {
                break;
            }
            if let Err(failure) = copier.copy_container(from, to).await {
                // The remaining containers are not copied either.
                outcome.stop_because(failure);
            }
        }
    };
    supervise(&outcome, work, shown, save).await;

    let why = outcome.take_reason();
    let complete = !outcome.is_stopped();
    match &checkpoint {
        // A later copy must not take this one for its beginning.
        Some(checkpoint) if complete => checkpoint.remove()?,
        Some(checkpoint) => checkpoint.save(copier.state())?,
        None => {}
    }
    let what = match pairs.as_slice() {
        [(from, to)] => format!("from {from} to {to}"),
        pairs => format!("from {} containers", pairs.len()),
    };
    let clients: [&Client; 2] = [&from, &to];
    let summary = Summary::new("Copied", what, complete, &arguments.pace, &clients, why.as_ref());
    print(output, &summary.write(&outcome, arguments.pace.output))?;
    match why {
        Some(failure) => Err(failure),
        None if complete && outcome.failed.load(Ordering::Relaxed) == 0 => Ok(()),
        None => Err(Failure::already_reported()),
    }
}

/// The total number of items, if the source reports it. A missing container fails the copy before anything is changed.
async fn expected_total(
    from: &Client,
    pairs: &[(ContainerPath, ContainerPath)],
) -> Result<ExpectedTotal, Failure> {
    let mut total = Some(0);
    for (path, _) in pairs {
        let items = RemoteContainer::require(from, path).await?.items;
        total = total.zip(items).map(|(total, items)| total + items);
    }
    Ok(total.filter(|total| *total > 0).map_or(ExpectedTotal::Unknown, ExpectedTotal::Items))
}

/// Identifies this transfer: a checkpoint of another one is refused.
fn identity(arguments: &CopyArguments, from: &Client, to: &Client) -> Object {
    let mut identity = Object::new();
    identity.set("operation", Value::from("copy"));
    for (name, value) in [
        ("from", Some(from.account().endpoint())),
        ("to", Some(to.account().endpoint())),
        ("database", Some(arguments.database.clone())),
        ("container", arguments.container.clone()),
        ("toDatabase", arguments.to_database.clone()),
        ("toContainer", arguments.to_container.clone()),
    ] {
        if let Some(value) = value {
            identity.set(name, Value::from(value));
        }
    }
    identity
}

/// Positions by container name. Each carries the container's RID: a container that was recreated starts over.
#[derive(Default)]
struct SavedPositions(BTreeMap<String, (String, Value)>);

impl SavedPositions {
    fn parse(state: Option<&Value>) -> Self {
        let containers = state.and_then(|state| state.get("containers")).and_then(Value::as_object);
        let entries = containers.into_iter().flat_map(Object::iter).filter_map(|(name, entry)| {
            let rid = entry.get("rid")?.as_str()?.to_owned();
            Some((name.to_owned(), (rid, entry.get("lanes")?.clone())))
        });
        Self(entries.collect())
    }

    fn lanes(&self, container: &ContainerPath, rid: &str) -> Option<Value> {
        self.0.get(&container.container).filter(|(known, _)| known == rid).map(|(_, lanes)| lanes.clone())
    }
}

/// The container being copied.
struct CurrentContainer {
    name: String,
    rid: String,
    positions: Arc<Tracker<LanePosition>>,
}

struct Copier<'a> {
    from: Arc<Client>,
    to: Arc<Client>,
    outcome: Arc<Outcome>,
    arguments: &'a CopyArguments,
    positions: Mutex<SavedPositions>,
    current: Mutex<Option<CurrentContainer>>,
}

impl Copier<'_> {
    fn save_current(&self) {
        if let Some(current) = &*self.current.lock() {
            let lanes: Vec<Value> = current.positions.reached().iter().map(LanePosition::to_value).collect();
            // Before the first range is known there is no position to resume from.
            if !lanes.is_empty() {
                let position = (current.rid.clone(), lanes.into());
                self.positions.lock().0.insert(current.name.clone(), position);
            }
        }
    }

    fn state(&self) -> Value {
        self.save_current();
        let mut containers = Object::new();
        for (name, (rid, lanes)) in &self.positions.lock().0 {
            let mut entry = Object::new();
            entry.set("rid", Value::from(rid.as_str()));
            entry.set("lanes", lanes.clone());
            containers.set(name.as_str(), Value::from(entry));
        }
        let mut state = Object::new();
        state.set("containers", containers.into());
        state.into()
    }

    async fn copy_container(&self, from: &ContainerPath, to: &ContainerPath) -> Result<(), Failure> {
        let original = RemoteContainer::require(&self.from, from).await?;
        let found = RemoteContainer::find(&self.to, to).await?;
        // An existing container is written to as it is; its definition is not compared.
        let target = if let Some(target) = found {
            target
        } else {
            let throughput = match self.arguments.throughput {
                Some(units) => Some(ProvisionedThroughput::Manual(units.into())),
                None => original.throughput(&self.from).await?,
            };
            RemoteContainer::create(&self.to, to, original.user_definition(), throughput).await?
        };
        let positions = positions(self.positions.lock().lanes(from, &original.rid).as_ref())?;
        // An earlier run has copied this container completely.
        if positions.iter().all(|position| position.finished) {
            return Ok(());
        }
        let concurrency = self.arguments.pace.concurrency;
        let reader = ContainerReader::new(
            Arc::clone(&self.from),
            from.clone(),
            Arc::clone(&self.outcome),
            concurrency,
        );
        let tracker = Arc::clone(&reader.tracker);
        *self.current.lock() = Some(CurrentContainer {
            name: from.container.clone(),
            rid: original.rid.clone(),
            positions: Arc::clone(&tracker),
        });
        let settle = {
            let tracker = Arc::clone(&tracker);
            Arc::new(move |ticket| tracker.settle(ticket))
        };
        let limits = BatchLimits { batch_items: self.arguments.write.batch, concurrency };
        let writer =
            ItemWriter::open(Arc::clone(&self.to), to, Arc::clone(&self.outcome), settle, &limits).await?;
        // Bounded, so that reading does not run away from writing.
        let (sender, receiver) = mpsc::channel(PAGES_AHEAD);
        let reading = orrery_env::task::spawn("read", Arc::new(reader).read(positions, sender));
        let written = self.write_batches(receiver, writer, &target, &tracker).await;
        if written.is_err() {
            self.outcome.stop();
        }
        reading.await.map_err(|error| Failure::internal(format!("reading failed: {error}")))?;
        // Also after a failure: the next run resumes from here.
        self.save_current();
        *self.current.lock() = None;
        written
    }

    async fn write_batches(
        &self,
        mut batches: mpsc::Receiver<ItemBatch>,
        mut writer: ItemWriter,
        target: &RemoteContainer,
        tracker: &Tracker<LanePosition>,
    ) -> Result<(), Failure> {
        while !self.outcome.is_stopped() {
            let batch = tokio::select! {
                batch = timeout(BATCH_WAIT_MAX, batches.recv()) => batch,
                () = self.outcome.until_stopped() => break,
            };
            let batch = match batch {
                // A lane that is being replaced waits until everything read from it is written.
                Err(_) => {
                    writer.flush().await;
                    continue;
                }
                Ok(None) => break,
                Ok(Some(batch)) => batch,
            };
            for item in &batch.items {
                let mut text = String::with_capacity(item.get().len());
                // Without system properties, which the target adds itself.
                item_line(item, false, &mut text)?;
                match prepare(&target.key, &IdRule::Required, 0, text.into_bytes()) {
                    Ok(prepared) => {
                        writer.write(PendingItem { ticket: batch.ticket, place: None, prepared }).await;
                    }
                    Err((reason, text)) => {
                        let record = "an item of the source container";
                        let item = Some(text.as_slice());
                        self.outcome.fail(&FailedRecord {
                            status: 0,
                            substatus: 0,
                            reason: &reason,
                            record,
                            item,
                        });
                        tracker.settle(batch.ticket);
                    }
                }
            }
        }
        writer.finish().await;
        Ok(())
    }
}
