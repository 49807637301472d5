//! `orrery copy`: containers from one account to another, with their definitions.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use orrery_db::SystemEnv;
use orrery_model::{Object, Value};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::arguments::CopyArguments;
use super::checkpoint::Checkpoint;
use super::outcome::{Failed, Outcome, Summary};
use super::progress::{self, Whole};
use super::source::{Batch, LanePosition, Source, item_line, positions};
use super::target::{IdRule, Target, Throughput, create_like, prepare};
use super::tracker::Tracker;
use super::writer::{Item, Writer, WriterOptions};
use super::{attend, print, run_on_threads};
use crate::client::feed::Place;
use crate::client::{Account, Client, Request, path};
use crate::failure::Failure;

/// Pages that wait to be written.
const PAGES_AHEAD: usize = 2;
/// When nothing more comes for so long, what waits for company is sent.
const COMPANY_TIME_MAX: Duration = Duration::from_millis(200);

pub(crate) fn run(arguments: &CopyArguments, output: &mut impl Write) -> Result<(), Failure> {
    run_on_threads(copy(arguments, output))
}

async fn copy(arguments: &CopyArguments, output: &mut impl Write) -> Result<(), Failure> {
    let connect = |text: &str| {
        let client = arguments.trust.connect(Account::parse(text)?)?;
        Ok::<_, Failure>(Arc::new(client.paced(arguments.pace.request_units)))
    };
    let (from, to) = (connect(&arguments.from)?, connect(&arguments.to)?);
    let outcome = Arc::new(Outcome::new(arguments.write.failures.as_deref())?);
    let to_database = arguments.to_database.as_ref().unwrap_or(&arguments.database);
    let names = match &arguments.container {
        Some(container) => vec![container.clone()],
        None => list_containers(&from, &arguments.database).await?,
    };
    let pairs: Vec<(Place, Place)> = names
        .iter()
        .map(|name| {
            let to_name = arguments.to_container.as_ref().unwrap_or(name);
            (Place::new(&arguments.database, name), Place::new(to_database, to_name))
        })
        .collect();
    if from.account().endpoint() == to.account().endpoint() && pairs.iter().any(|(from, to)| from == to) {
        return Err(Failure::usage("a container cannot be copied onto itself"));
    }
    let (checkpoint, state) = open_checkpoint(arguments, &from, &to)?;
    let copier = Copier {
        from: Arc::clone(&from),
        to: Arc::clone(&to),
        outcome: Arc::clone(&outcome),
        arguments,
        progress: Mutex::new(Progress::parse(state.as_ref())),
        current: Mutex::new(None),
    };
    let shown = progress::show(arguments.pace.quiet, Arc::clone(&outcome), Arc::clone(&to), Whole::Unknown);
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
                outcome.stop_because(failure);
            }
        }
    };
    attend(&outcome, work, shown, save).await;

    let why = outcome.take_reason();
    let complete = !outcome.is_stopped();
    match &checkpoint {
        Some(checkpoint) if complete => checkpoint.remove()?,
        Some(checkpoint) => checkpoint.save(copier.state())?,
        None => {}
    }
    let what = match pairs.as_slice() {
        [(from, to)] => format!("of {from} to {to}"),
        pairs => format!("of {} containers", pairs.len()),
    };
    let summary = Summary {
        verb: "Copied",
        what,
        complete,
        checkpoint: arguments.pace.checkpoint.as_ref(),
        clients: &[&from, &to],
        error: why.as_ref().and_then(|failure| failure.message.as_deref()),
    };
    print(&summary.write(&outcome, arguments.pace.output), output)?;
    match why {
        Some(failure) => Err(failure),
        None if complete && outcome.failed.load(Ordering::Relaxed) == 0 => Ok(()),
        None => Err(Failure::already_told()),
    }
}

async fn list_containers(client: &Client, database: &str) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    let mut continuation: Option<String> = None;
    loop {
        let mut request = Request::get(path(&["dbs", database, "colls"]));
        if let Some(token) = &continuation {
            request = request.with("x-ms-continuation", token);
        }
        let answer = client.ask(&SystemEnv, &request).await?.accepted()?;
        let body = answer.json().unwrap_or_default();
        let rows = body.get("DocumentCollections").and_then(Value::as_array).unwrap_or(&[]);
        names.extend(rows.iter().filter_map(|row| Some(row.get("id")?.as_str()?.to_owned())));
        continuation = answer.continuation().map(str::to_owned);
        if continuation.is_none() {
            return Ok(names);
        }
    }
}

fn open_checkpoint(
    arguments: &CopyArguments,
    from: &Client,
    to: &Client,
) -> Result<(Option<Checkpoint>, Option<Value>), Failure> {
    let Some(path) = &arguments.pace.checkpoint else { return Ok((None, None)) };
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
    let (checkpoint, state) = Checkpoint::open(path, identity.into())?;
    Ok((Some(checkpoint), state))
}

/// Positions by container; each names the container's RID, because one that was made anew begins anew.
#[derive(Default)]
struct Progress(BTreeMap<String, (String, Value)>);

impl Progress {
    fn parse(state: Option<&Value>) -> Self {
        let containers = state.and_then(|state| state.get("containers")).and_then(Value::as_object);
        let entries = containers.into_iter().flat_map(Object::iter).filter_map(|(name, entry)| {
            let rid = entry.get("rid")?.as_str()?.to_owned();
            Some((name.to_owned(), (rid, entry.get("lanes")?.clone())))
        });
        Self(entries.collect())
    }

    fn lanes(&self, place: &Place, rid: &str) -> Option<Value> {
        self.0.get(&place.container).filter(|(known, _)| known == rid).map(|(_, lanes)| lanes.clone())
    }
}

/// The container under way.
struct Current {
    name: String,
    rid: String,
    positions: Arc<Tracker<LanePosition>>,
}

struct Copier<'a> {
    from: Arc<Client>,
    to: Arc<Client>,
    outcome: Arc<Outcome>,
    arguments: &'a CopyArguments,
    progress: Mutex<Progress>,
    current: Mutex<Option<Current>>,
}

impl Copier<'_> {
    fn note_current(&self) {
        if let Some(current) = &*self.current.lock() {
            let lanes: Vec<Value> = current.positions.reached().iter().map(LanePosition::to_value).collect();
            // Before the first range is known there is nothing that could be gone on from.
            if !lanes.is_empty() {
                let position = (current.rid.clone(), lanes.into());
                self.progress.lock().0.insert(current.name.clone(), position);
            }
        }
    }

    fn state(&self) -> Value {
        self.note_current();
        let mut containers = Object::new();
        for (name, (rid, lanes)) in &self.progress.lock().0 {
            let mut entry = Object::new();
            entry.set("rid", Value::from(rid.as_str()));
            entry.set("lanes", lanes.clone());
            containers.set(name.as_str(), Value::from(entry));
        }
        let mut state = Object::new();
        state.set("containers", containers.into());
        state.into()
    }

    async fn copy_container(&self, from: &Place, to: &Place) -> Result<(), Failure> {
        let original = Target::require(&self.from, from).await?;
        let found = Target::find(&self.to, to).await?;
        let target = if let Some(target) = found {
            target
        } else {
            let throughput = match self.arguments.throughput {
                Some(units) => Some(Throughput::Manual(units.into())),
                None => original.throughput(&self.from).await?,
            };
            create_like(&self.to, to, &original, throughput).await?
        };
        let positions = positions(self.progress.lock().lanes(from, &original.rid).as_ref())?;
        if positions.iter().all(|position| position.finished) {
            return Ok(());
        }
        let concurrency = self.arguments.pace.concurrency;
        let source =
            Source::new(Arc::clone(&self.from), from.clone(), Arc::clone(&self.outcome), concurrency);
        let tracker = Arc::clone(&source.tracker);
        *self.current.lock() = Some(Current {
            name: from.container.clone(),
            rid: original.rid.clone(),
            positions: Arc::clone(&tracker),
        });
        let settle = {
            let tracker = Arc::clone(&tracker);
            Arc::new(move |ticket| tracker.settle(ticket))
        };
        let options = WriterOptions { batch_items: self.arguments.write.batch, concurrency };
        let writer =
            Writer::open(Arc::clone(&self.to), to, Arc::clone(&self.outcome), settle, &options).await?;
        let (sender, receiver) = mpsc::channel(PAGES_AHEAD);
        let reading = tokio::spawn(Arc::new(source).read(positions, sender));
        let written = self.write_batches(receiver, writer, &target, &tracker).await;
        if written.is_err() {
            self.outcome.stop();
        }
        reading.await.map_err(|error| Failure::internal(format!("the reader failed: {error}")))?;
        self.note_current();
        *self.current.lock() = None;
        written
    }

    async fn write_batches(
        &self,
        mut batches: mpsc::Receiver<Batch>,
        mut writer: Writer,
        target: &Target,
        tracker: &Tracker<LanePosition>,
    ) -> Result<(), Failure> {
        while !self.outcome.is_stopped() {
            let batch = tokio::select! {
                batch = timeout(COMPANY_TIME_MAX, batches.recv()) => batch,
                () = self.outcome.until_stopped() => break,
            };
            let batch = match batch {
                // A reader may be waiting for what was read to be written.
                Err(_) => {
                    writer.flush().await;
                    continue;
                }
                Ok(None) => break,
                Ok(Some(batch)) => batch,
            };
            for item in &batch.items {
                let mut text = String::with_capacity(item.get().len());
                item_line(item, false, &mut text)?;
                match prepare(&target.key, &IdRule::Given, 0, text.into_bytes()) {
                    Ok(prepared) => {
                        writer.write(Item { ticket: batch.ticket, record: 0, prepared }).await;
                    }
                    Err((reason, text)) => {
                        let record = "an item of the source";
                        let item = Some(text.as_slice());
                        self.outcome.fail(&Failed { status: 0, substatus: 0, reason: &reason, record, item });
                        tracker.settle(batch.ticket);
                    }
                }
            }
        }
        writer.finish().await;
        Ok(())
    }
}
