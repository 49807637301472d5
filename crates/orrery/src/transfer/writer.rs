//! Writing items: upserts batched by physical partition, with a bounded number of requests in flight.
//!
//! Every item ends up settled with its ticket: written, or given up with a reason. Transient failures (throttling,
//! splits, network errors) are retried first. A failure that every further item would share (a wrong key, a deleted
//! container, an unreachable server) stops the whole transfer and leaves its items unsettled, so that a checkpoint does
//! not skip them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use orrery_env::{SystemEnv, task};
use orrery_model::value::write_json_string;
use parking_lot::RwLock;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::input::Place;
use super::item::PreparedItem;
use super::outcome::{FailedRecord, Outcome};
use super::tracker::Ticket;
use crate::client::{Client, ContainerPath, PartitionRange, Request, Response, ascii_json, range_of};
use crate::failure::Failure;

/// A batch is sent when it reaches this size; larger items are sent alone.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// The total size of incomplete batches.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Consecutive retries of a batch that make no progress.
const RETRIES_MAX: u32 = 200;

/// An item to be written, and the chunk it belongs to.
pub(crate) struct PendingItem {
    pub(crate) ticket: Ticket,
    /// Where it is in the input; none if it did not come from a file.
    pub(crate) place: Option<Place>,
    pub(crate) prepared: PreparedItem,
}

impl PendingItem {
    fn name(&self) -> String {
        self.place.map_or_else(|| self.prepared.id.clone(), |place| place.to_string())
    }
}

/// Called for every item that is written or given up.
pub(crate) type Settle = Arc<dyn Fn(Ticket) + Send + Sync>;

/// Batches items and sends them.
pub(crate) struct ItemWriter {
    shared: Arc<Shared>,
    /// Incomplete batches by range, with their size.
    waiting: HashMap<usize, (Vec<PendingItem>, usize)>,
    waiting_bytes: usize,
    requests: Arc<Semaphore>,
    tasks: JoinSet<()>,
}

/// What the requests in flight share.
struct Shared {
    client: Arc<Client>,
    container: ContainerPath,
    ranges: RwLock<Arc<Vec<PartitionRange>>>,
    outcome: Arc<Outcome>,
    settle: Settle,
    batch_items: usize,
}

/// Batch size and concurrency of an [`ItemWriter`].
pub(crate) struct BatchLimits {
    pub(crate) batch_items: u16,
    pub(crate) concurrency: u16,
}

impl ItemWriter {
    pub(crate) async fn open(
        client: Arc<Client>,
        container: &ContainerPath,
        outcome: Arc<Outcome>,
        settle: Settle,
        limits: &BatchLimits,
    ) -> Result<Self, Failure> {
        let ranges = client.read_ranges(&SystemEnv, container).await?;
        let shared = Shared {
            client,
            container: container.clone(),
            ranges: RwLock::new(Arc::new(ranges)),
            outcome,
            settle,
            batch_items: limits.batch_items.into(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            waiting: HashMap::new(),
            waiting_bytes: 0,
            requests: Arc::new(Semaphore::new(limits.concurrency.into())),
            tasks: JoinSet::new(),
        })
    }

    /// Accepts an item; waits while too many requests are in flight.
    pub(crate) async fn write(&mut self, item: PendingItem) {
        let bytes = item.prepared.body.len();
        // Two items of this size would not fit into one request.
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
        // Many partitions with a few items each add up.
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

    /// Sends all incomplete batches.
    pub(crate) async fn flush(&mut self) {
        // Listed first, because flushing changes the map.
        let ranges: Vec<usize> = self.waiting.keys().copied().collect();
        for range in ranges {
            self.flush_range(range).await;
        }
    }

    async fn send(&mut self, items: Vec<PendingItem>) {
        let requests = Arc::clone(&self.requests);
        let permit = tokio::select! {
            permit = requests.acquire_owned() => permit.expect("the semaphore is never closed"),
            () = self.shared.outcome.until_stopped() => return,
        };
        // Forget finished tasks, or the set would grow with the number of batches.
        while self.tasks.try_join_next().is_some() {}
        let shared = Arc::clone(&self.shared);
        task::spawn_in(&mut self.tasks, "write a batch", async move {
            let outcome = Arc::clone(&shared.outcome);
            tokio::select! {
                () = shared.write_all(items) => {}
                // Cancelled requests leave their items unsettled; a resumed run writes them again.
                () = outcome.until_stopped() => {}
            }
            drop(permit);
        });
    }

    /// Sends the rest and waits for all requests.
    pub(crate) async fn finish(mut self) {
        self.flush().await;
        while self.tasks.join_next().await.is_some() {}
    }
}

/// What to do after a request.
enum NextStep {
    Done,
    /// Retry these after a delay.
    Retry(Vec<PendingItem>, Duration),
    /// The ranges changed: batch these again by the current ranges.
    Regroup(Vec<PendingItem>),
    /// Retry these in smaller batches.
    Bisect(Vec<PendingItem>),
    Stop(Failure),
}

impl Shared {
    async fn write_all(&self, items: Vec<PendingItem>) {
        // A stack: what has to be repeated or divided comes before the rest.
        let mut queue = vec![items];
        let mut retries = 0;
        while let Some(items) = queue.pop() {
            let before = items.len();
            let step = if before == 1 { self.write_one(items).await } else { self.write_batch(items).await };
            match step {
                NextStep::Done => retries = 0,
                NextStep::Retry(items, pause) => {
                    // Only attempts without any progress count.
                    retries = if items.len() < before { 0 } else { retries + 1 };
                    if retries > RETRIES_MAX {
                        for item in &items {
                            self.give_up(item, 429, 0, "still throttled after all retries");
                        }
                        continue;
                    }
                    task::sleep(pause).await;
                    queue.push(items);
                }
                NextStep::Regroup(items) => {
                    retries += 1;
                    if retries > RETRIES_MAX {
                        for item in &items {
                            self.give_up(item, 410, 1002, "the partitions kept changing during all retries");
                        }
                        continue;
                    }
                    match self.client.read_ranges(&SystemEnv, &self.container).await {
                        Ok(ranges) => *self.ranges.write() = Arc::new(ranges),
                        Err(failure) => return self.outcome.stop_because(failure),
                    }
                    queue.extend(self.grouped(items));
                }
                NextStep::Bisect(mut items) => {
                    let rest = items.split_off(items.len() / 2);
                    queue.extend([items, rest]);
                }
                NextStep::Stop(failure) => return self.outcome.stop_because(failure),
            }
        }
    }

    fn grouped(&self, items: Vec<PendingItem>) -> Vec<Vec<PendingItem>> {
        let ranges = Arc::clone(&self.ranges.read());
        let mut groups: HashMap<usize, Vec<PendingItem>> = HashMap::new();
        for item in items {
            groups.entry(range_of(&ranges, &item.prepared.effective)).or_default().push(item);
        }
        groups.into_values().collect()
    }

    fn settle_written(&self, item: &PendingItem) {
        self.outcome.done(1, item.prepared.body.len() as u64);
        (self.settle)(item.ticket);
    }

    fn give_up(&self, item: &PendingItem, status: u16, substatus: u32, reason: &str) {
        let body = &item.prepared.body;
        let name = item.name();
        self.outcome.fail(&FailedRecord { status, substatus, reason, record: &name, item: Some(body) });
        (self.settle)(item.ticket);
    }

    async fn write_one(&self, items: Vec<PendingItem>) -> NextStep {
        let Some(item) = items.first() else { return NextStep::Done };
        let request = Request::post(self.container.items_path(), item.prepared.body.clone())
            .with("x-ms-documentdb-is-upsert", "True")
            .with("prefer", "return=minimal")
            .with("x-ms-documentdb-partitionkey", &ascii_json(&item.prepared.key));
        let response = match self.client.send(&SystemEnv, &request).await {
            Ok(response) => response,
            Err(failure) => return NextStep::Stop(failure),
        };
        if response.is_success() {
            self.settle_written(item);
            return NextStep::Done;
        }
        if let Some(failure) = self.fatal(&response) {
            return NextStep::Stop(failure);
        }
        // The client has waited as long as it waits for one request; here there is no hurry.
        if response.status == 429 {
            return NextStep::Retry(items, Duration::from_secs(1));
        }
        self.give_up(item, response.status, response.substatus(), &response.message());
        NextStep::Done
    }

    async fn write_batch(&self, items: Vec<PendingItem>) -> NextStep {
        let ranges = Arc::clone(&self.ranges.read());
        let Some(first) = items.first() else { return NextStep::Done };
        let range = &ranges[range_of(&ranges, &first.prepared.effective)];
        // Not a transaction: the items may have different keys, and each has its own result.
        let request = Request::post(self.container.items_path(), batch_body(&items))
            .with("x-ms-cosmos-is-batch-request", "True")
            .with("x-ms-cosmos-batch-atomic", "False")
            .with("x-ms-cosmos-batch-continue-on-error", "True")
            .with("prefer", "return=minimal")
            .with("x-ms-documentdb-partitionkeyrangeid", &range.id);
        let response = match self.client.send(&SystemEnv, &request).await {
            Ok(response) => response,
            // The client has retried already.
            Err(failure) => return NextStep::Stop(failure),
        };
        if response.is_range_gone() {
            return NextStep::Regroup(items);
        }
        if let Some(failure) = self.fatal(&response) {
            return NextStep::Stop(failure);
        }
        match response.status {
            200..300 => {}
            429 => return NextStep::Retry(items, Duration::from_secs(1)),
            // One bad item fails the whole request, or together they are too large: bisect to find it.
            _ => return NextStep::Bisect(items),
        }
        match serde_json::from_slice::<Vec<OperationResult>>(&response.body) {
            Ok(rows) if rows.len() == items.len() => self.settle_batch(items, &rows),
            _ => NextStep::Stop(Failure::refused("the server's response to a batch cannot be parsed")),
        }
    }

    /// Settles the items that succeeded or failed for good; returns the others.
    fn settle_batch(&self, items: Vec<PendingItem>, rows: &[OperationResult]) -> NextStep {
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
                // Undecided, or undone because of another item: an upsert can simply be repeated.
                (408 | 410 | 424 | 449 | 503, _) => {
                    pause = pause.max(Duration::from_millis(50));
                    again.push(item);
                }
                (status, substatus) => {
                    let reason = row.message.as_deref().unwrap_or("no reason given");
                    self.give_up(&item, status, substatus, reason);
                }
            }
        }
        if throttled > 0 {
            self.client.statistics.throttled.fetch_add(1, Ordering::Relaxed);
        }
        if gone.is_empty() {
            return if again.is_empty() { NextStep::Done } else { NextStep::Retry(again, pause) };
        }
        // Regrouping sends each of them to the range that holds it now.
        gone.extend(again);
        NextStep::Regroup(gone)
    }

    /// A failure that every further item would share.
    fn fatal(&self, response: &Response) -> Option<Failure> {
        let is_fatal = match response.status {
            401 | 404 | 405 | 501 => true,
            // With a sub-status it concerns one item: its logical partition is full.
            403 => response.substatus() == 0,
            _ => false,
        };
        is_fatal.then(|| {
            let reason = response.message();
            Failure::refused(format!(
                "writing to {} was refused ({}): {reason}",
                self.container, response.status
            ))
        })
    }
}

/// The result of one operation of a batch.
#[derive(Deserialize)]
struct OperationResult {
    #[serde(rename = "statusCode")]
    status: u16,
    #[serde(rename = "subStatusCode", default)]
    substatus: u32,
    #[serde(rename = "retryAfterMilliseconds")]
    retry_after_ms: Option<u64>,
    message: Option<String>,
}

fn batch_body(items: &[PendingItem]) -> Bytes {
    let length = items.iter().map(|item| item.prepared.body.len() + item.prepared.key.len() + 80).sum();
    let mut body = Vec::with_capacity(length);
    body.push(b'[');
    let mut key = String::new();
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        key.clear();
        // The partition key is JSON text inside JSON.
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
