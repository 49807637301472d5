//! Writing items: upserts gathered by physical partition, many at once, with a bounded number of requests
//! under way.
//!
//! Every item ends up settled with its ticket: written, or given up with a reason. Whatever can pass by itself
//! (throttling, splits, faults of the network) is tried again first. What cannot get better (a wrong key, a
//! container that is gone, a server that stays away) stops the whole transfer, unsettled.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use orrery_db::SystemEnv;
use orrery_model::value::write_json_string;
use parking_lot::RwLock;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::outcome::{Failed, Outcome};
use super::target::Prepared;
use super::tracker::Ticket;
use crate::client::feed::{Place, Range, ascii_json, range_of};
use crate::client::{Answer, Client, Request};
use crate::failure::Failure;

/// A request is sent when it has this many bytes; larger items travel alone.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// What may wait in unfinished batches, all together.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// How often single operations of batches are tried again without any success in between.
const ROUNDS_MAX: u32 = 200;

/// An item on its way.
pub(super) struct Item {
    pub(super) ticket: Ticket,
    /// Its number in the input; 0 if it has none.
    pub(super) record: u64,
    pub(super) prepared: Prepared,
}

impl Item {
    fn name(&self) -> String {
        if self.record > 0 { self.record.to_string() } else { self.prepared.id.clone() }
    }
}

/// Called for every item that is written or given up.
pub(super) type Settle = Arc<dyn Fn(Ticket) + Send + Sync>;

pub(super) struct Writer {
    shared: Arc<Shared>,
    /// Unfinished batches by range, with their bytes.
    waiting: HashMap<usize, (Vec<Item>, usize)>,
    waiting_bytes: usize,
    requests: Arc<Semaphore>,
    tasks: JoinSet<()>,
}

struct Shared {
    client: Arc<Client>,
    place: Place,
    ranges: RwLock<Arc<Vec<Range>>>,
    outcome: Arc<Outcome>,
    settle: Settle,
    batch_items: usize,
}

pub(super) struct WriterOptions {
    pub(super) batch_items: u16,
    pub(super) concurrency: u16,
}

impl Writer {
    pub(super) async fn open(
        client: Arc<Client>,
        place: &Place,
        outcome: Arc<Outcome>,
        settle: Settle,
        options: &WriterOptions,
    ) -> Result<Self, Failure> {
        let ranges = client.read_ranges(&SystemEnv, place).await?;
        let shared = Shared {
            client,
            place: place.clone(),
            ranges: RwLock::new(Arc::new(ranges)),
            outcome,
            settle,
            batch_items: options.batch_items.into(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            waiting: HashMap::new(),
            waiting_bytes: 0,
            requests: Arc::new(Semaphore::new(options.concurrency.into())),
            tasks: JoinSet::new(),
        })
    }

    /// Takes an item; waits while too many requests are under way.
    pub(super) async fn write(&mut self, item: Item) {
        let bytes = item.prepared.body.len();
        if self.shared.batch_items == 1 || bytes > BATCH_BYTES_MAX / 2 {
            return self.send(vec![item]).await;
        }
        let range = range_of(&self.shared.ranges.read(), &item.prepared.effective);
        let full = self.waiting.get(&range).is_some_and(|(items, waiting)| {
            items.len() >= self.shared.batch_items || waiting + bytes > BATCH_BYTES_MAX
        });
        if full {
            self.flush_range(range).await;
        }
        let (items, waiting) = self.waiting.entry(range).or_default();
        items.push(item);
        *waiting += bytes;
        self.waiting_bytes += bytes;
        if items.len() >= self.shared.batch_items {
            self.flush_range(range).await;
        } else if self.waiting_bytes > WAITING_BYTES_MAX {
            self.flush().await;
        }
    }

    async fn flush_range(&mut self, range: usize) {
        if let Some((items, bytes)) = self.waiting.remove(&range) {
            self.waiting_bytes -= bytes;
            self.send(items).await;
        }
    }

    /// Sends what waits for company.
    pub(super) async fn flush(&mut self) {
        let ranges: Vec<usize> = self.waiting.keys().copied().collect();
        for range in ranges {
            self.flush_range(range).await;
        }
    }

    async fn send(&mut self, items: Vec<Item>) {
        let requests = Arc::clone(&self.requests);
        let permit = tokio::select! {
            permit = requests.acquire_owned() => permit.expect("the semaphore is never closed"),
            () = self.shared.outcome.until_stopped() => return,
        };
        while self.tasks.try_join_next().is_some() {}
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move {
            let outcome = Arc::clone(&shared.outcome);
            tokio::select! {
                () = shared.write_all(items) => {}
                // Requests under way are given a moment by the caller, not here: unsettled items are written again.
                () = outcome.until_stopped() => {}
            }
            drop(permit);
        });
    }

    /// Sends the rest and waits for everything.
    pub(super) async fn finish(mut self) {
        self.flush().await;
        while self.tasks.join_next().await.is_some() {}
    }
}

/// What became of a batch.
enum Step {
    Done,
    /// These again, after a pause.
    Again(Vec<Item>, Duration),
    /// These, by the ranges of now.
    Regroup(Vec<Item>),
    /// These in smaller batches.
    Smaller(Vec<Item>),
    Stop(Failure),
}

impl Shared {
    async fn write_all(&self, items: Vec<Item>) {
        let mut queue = vec![items];
        let mut rounds = 0;
        while let Some(items) = queue.pop() {
            let before = items.len();
            let step = if before == 1 { self.write_one(items).await } else { self.write_batch(items).await };
            match step {
                Step::Done => rounds = 0,
                Step::Again(items, pause) => {
                    rounds = if items.len() < before { 0 } else { rounds + 1 };
                    if rounds > ROUNDS_MAX {
                        for item in &items {
                            self.give_up(item, 429, 0, "the server kept telling to try again later");
                        }
                        continue;
                    }
                    tokio::time::sleep(pause).await;
                    queue.push(items);
                }
                Step::Regroup(items) => {
                    rounds += 1;
                    if rounds > ROUNDS_MAX {
                        for item in &items {
                            self.give_up(item, 410, 1002, "the partitions kept changing");
                        }
                        continue;
                    }
                    match self.client.read_ranges(&SystemEnv, &self.place).await {
                        Ok(ranges) => *self.ranges.write() = Arc::new(ranges),
                        Err(failure) => return self.outcome.stop_because(failure),
                    }
                    queue.extend(self.grouped(items));
                }
                Step::Smaller(mut items) => {
                    let rest = items.split_off(items.len() / 2);
                    queue.extend([items, rest]);
                }
                Step::Stop(failure) => return self.outcome.stop_because(failure),
            }
        }
    }

    fn grouped(&self, items: Vec<Item>) -> Vec<Vec<Item>> {
        let ranges = Arc::clone(&self.ranges.read());
        let mut groups: HashMap<usize, Vec<Item>> = HashMap::new();
        for item in items {
            groups.entry(range_of(&ranges, &item.prepared.effective)).or_default().push(item);
        }
        groups.into_values().collect()
    }

    fn settle_written(&self, item: &Item) {
        self.outcome.done(1, item.prepared.body.len() as u64);
        (self.settle)(item.ticket);
    }

    fn give_up(&self, item: &Item, status: u16, substatus: u32, reason: &str) {
        let body = &item.prepared.body;
        let name = item.name();
        self.outcome.fail(&Failed { status, substatus, reason, record: &name, item: Some(body) });
        (self.settle)(item.ticket);
    }

    async fn write_one(&self, items: Vec<Item>) -> Step {
        let Some(item) = items.first() else { return Step::Done };
        let request = Request::post(self.place.items_path(), item.prepared.body.clone())
            .with("x-ms-documentdb-is-upsert", "True")
            .with("prefer", "return=minimal")
            .with("x-ms-documentdb-partitionkey", &ascii_json(&item.prepared.key));
        let answer = match self.client.ask(&SystemEnv, &request).await {
            Ok(answer) => answer,
            Err(failure) => return Step::Stop(failure),
        };
        if answer.is_success() {
            self.settle_written(item);
            return Step::Done;
        }
        if let Some(failure) = self.hopeless(&answer) {
            return Step::Stop(failure);
        }
        if answer.status == 429 {
            return Step::Again(items, Duration::from_secs(1));
        }
        self.give_up(item, answer.status, answer.substatus(), &answer.message());
        Step::Done
    }

    async fn write_batch(&self, items: Vec<Item>) -> Step {
        let ranges = Arc::clone(&self.ranges.read());
        let Some(first) = items.first() else { return Step::Done };
        let range = &ranges[range_of(&ranges, &first.prepared.effective)];
        let request = Request::post(self.place.items_path(), batch_body(&items))
            .with("x-ms-cosmos-is-batch-request", "True")
            .with("x-ms-cosmos-batch-atomic", "False")
            .with("x-ms-cosmos-batch-continue-on-error", "True")
            .with("prefer", "return=minimal")
            .with("x-ms-documentdb-partitionkeyrangeid", &range.id);
        let answer = match self.client.ask(&SystemEnv, &request).await {
            Ok(answer) => answer,
            Err(failure) => return Step::Stop(failure),
        };
        if answer.is_range_gone() {
            return Step::Regroup(items);
        }
        if let Some(failure) = self.hopeless(&answer) {
            return Step::Stop(failure);
        }
        match answer.status {
            200..300 => {}
            429 => return Step::Again(items, Duration::from_secs(1)),
            // One item spoils the others, or together they are too large: smaller requests tell which.
            _ => return Step::Smaller(items),
        }
        match serde_json::from_slice::<Vec<Row>>(&answer.body) {
            Ok(rows) if rows.len() == items.len() => self.sort_out(items, &rows),
            _ => Step::Stop(Failure::refused("the server's answer to a batch cannot be understood")),
        }
    }

    /// Settles what is decided and gathers what is not.
    fn sort_out(&self, items: Vec<Item>, rows: &[Row]) -> Step {
        let (mut again, mut gone) = (Vec::new(), Vec::new());
        let mut pause = Duration::ZERO;
        let mut throttled = 0;
        for (item, row) in items.into_iter().zip(rows) {
            match (row.status, row.substatus) {
                (200..300, _) => self.settle_written(&item),
                (429, _) => {
                    throttled += 1;
                    pause = pause.max(Duration::from_millis(row.retry_after_ms.unwrap_or(100).min(60_000)));
                    again.push(item);
                }
                (410, 1002) => gone.push(item),
                (408 | 410 | 424 | 449 | 503, _) => {
                    pause = pause.max(Duration::from_millis(50));
                    again.push(item);
                }
                (status, substatus) => {
                    let reason = row.message.as_deref().unwrap_or("no reason was given");
                    self.give_up(&item, status, substatus, reason);
                }
            }
        }
        if throttled > 0 {
            self.client.statistics.throttled.fetch_add(1, Ordering::Relaxed);
        }
        if gone.is_empty() {
            return if again.is_empty() { Step::Done } else { Step::Again(again, pause) };
        }
        gone.extend(again);
        Step::Regroup(gone)
    }

    /// An answer that will be the same for every item.
    fn hopeless(&self, answer: &Answer) -> Option<Failure> {
        let is_hopeless = match answer.status {
            401 | 404 | 405 | 501 => true,
            // Other refusals of this kind are about one item: its key is full.
            403 => answer.substatus() == 0,
            _ => false,
        };
        is_hopeless.then(|| {
            let reason = answer.message();
            Failure::refused(format!("writing to {} was refused ({}): {reason}", self.place, answer.status))
        })
    }
}

/// One operation's result.
#[derive(Deserialize)]
struct Row {
    #[serde(rename = "statusCode")]
    status: u16,
    #[serde(rename = "subStatusCode", default)]
    substatus: u32,
    #[serde(rename = "retryAfterMilliseconds")]
    retry_after_ms: Option<u64>,
    message: Option<String>,
}

fn batch_body(items: &[Item]) -> Bytes {
    let length = items.iter().map(|item| item.prepared.body.len() + item.prepared.key.len() + 80).sum();
    let mut body = Vec::with_capacity(length);
    body.push(b'[');
    let mut key = String::new();
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        key.clear();
        write_json_string(&item.prepared.key, &mut key);
        body.extend_from_slice(b"{\"operationType\":\"Upsert\",\"partitionKey\":");
        body.extend_from_slice(key.as_bytes());
        body.extend_from_slice(b",\"resourceBody\":");
        body.extend_from_slice(&item.prepared.body);
        body.push(b'}');
    }
    body.push(b']');
    body.into()
}
