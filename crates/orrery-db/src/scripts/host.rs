//! The database side of a running script. The script has its own thread; its operations arrive over a channel and are
//! executed here, by the request's future, on its session.

use orrery_model::document::parse_object;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use orrery_model::ids::ItemId;
use orrery_model::value::write_json_string;
use orrery_model::{Error, ErrorKind, Result, Value};
use orrery_script::{Cancellation, Host, Invocation, Limits, Outcome, ScriptError};
use tokio::sync::{mpsc, oneshot};

use orrery_metering::cost;

use super::session::Session;
use super::slots::ScriptText;
use crate::failure::{script_failure, script_timed_out};
use crate::items::batch::{BatchKind, BatchOperation};
use crate::items::transaction::Effect;
use crate::layout::page_request::PageRequest;
use crate::layout::stored::StoredItem;
use crate::partition::Receipt;
use crate::query::MetadataPage;
use crate::query::QueryRequest;

/// How long to wait for a script's thread beyond its time limit.
const GRACE: Duration = Duration::from_secs(1);

/// An operation requested by a script.
struct Asked {
    operation: String,
    payload: String,
    answer: oneshot::Sender<String>,
}

/// The script's end of the channel.
struct ChannelHost {
    asked: mpsc::UnboundedSender<Asked>,
    has_room: Arc<AtomicBool>,
    started_at_ms: i64,
    random: u64,
}

impl Host for ChannelHost {
    fn call(&mut self, operation: &str, payload: &str) -> Option<String> {
        let (answer, answered) = oneshot::channel();
        let asked = Asked { operation: operation.to_owned(), payload: payload.to_owned(), answer };
        // A closed channel means that the request is gone; without an answer the script ends.
        self.asked.send(asked).ok()?;
        // Blocks the script's own thread, never one that serves requests.
        answered.blocking_recv().ok()
    }

    fn accepts(&self) -> bool {
        self.has_room.load(Ordering::Acquire)
    }

    fn started_at_ms(&self) -> i64 {
        self.started_at_ms
    }

    fn random(&mut self) -> u64 {
        // The splitmix64 step.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
}

/// Stops the script when its request is dropped.
struct StopOnDrop(Cancellation);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Session<'_> {
    /// Runs a script in this transaction.
    pub(super) async fn run_script(
        &mut self,
        receipt: &mut Receipt,
        invocation: Invocation,
    ) -> Result<Outcome> {
        let limits = Limits::for_time(self.database.options.script_time_max);
        let places = &self.database.slots;
        let script = ScriptText::of(self.container.rid, &invocation.source);
        // Waits here, before a thread is taken.
        let place = places.enter(script).await?;
        receipt.add(cost::script());
        let (asked, mut asking) = mpsc::unbounded_channel();
        // Shared with the script's thread: `isAccepted` must answer without a round trip to this future.
        let has_room = Arc::new(AtomicBool::new(self.has_room()));
        let host = ChannelHost {
            asked,
            has_room: Arc::clone(&has_room),
            started_at_ms: self.now_ms(),
            random: self.database.env.random_u64(),
        };
        let cancellation = Cancellation::default();
        // If the client disconnects, this future is dropped, and the engine stops at its next check.
        let _stop = StopOnDrop(cancellation.clone());
        let mut thread = orrery_env::task::run_blocking("script", move || {
            let outcome = orrery_script::run(&invocation, &limits, cancellation, Box::new(host));
            // A thread that could not be stopped in time keeps its slot until it ends.
            drop(place);
            outcome
        });
        let too_late = orrery_env::task::sleep(limits.time + GRACE);
        tokio::pin!(too_late);
        let mut fatal = None;
        loop {
            tokio::select! {
                // In this order: an operation that the script has asked for before it ended must still be carried out.
                biased;
                Some(asked) = asking.recv() => {
                    let answered = self.answer(receipt, &asked.operation, &asked.payload).await;
                    has_room.store(self.has_room(), Ordering::Release);
                    match answered {
                        Ok(text) => {
                            // Ignore a closed channel: the script may have ended.
                            drop(asked.answer.send(text));
                        }
                        // Without a response the script ends.
                        // Kept until the thread has ended: dropping the sender makes the call fail inside the
                        // script.
                        Err(error) => fatal = Some(error),
                    }
                }
                outcome = &mut thread => {
                    let outcome = outcome.map_err(|_| Error::internal("The script engine failed."))?;
                    // Remembered by its text, so that its next calls get fewer slots.
                    if outcome == Err(ScriptError::TimedOut) {
                        places.was_stopped(script);
                    }
                    // An error of ours outweighs what the script made of it.
                    return match fatal {
                        Some(error) => Err(error),
                        None => outcome.map_err(script_failure),
                    };
                }
                () = &mut too_late => {
                    places.was_stopped(script);
                    tracing::warn!("a script did not stop in time; abandoning its thread");
                    return Err(script_timed_out());
                }
            }
        }
    }

    /// Executes an operation. An error ends the attempt; failures of the operation itself are part of the response.
    async fn answer(&mut self, receipt: &mut Receipt, operation: &str, payload: &str) -> Result<String> {
        let before = receipt.charge;
        match self.carry_out(receipt, operation, payload).await {
            Ok(text) => Ok(text),
            Err(error) => match number_of(error.kind) {
                Some(number) => {
                    // A failed operation is not free, as elsewhere.
                    if receipt.charge == before {
                        receipt.add(cost::missing_item());
                    }
                    Ok(refusal(number, &error))
                }
                None => Err(error),
            },
        }
    }

    async fn carry_out(&mut self, receipt: &mut Receipt, operation: &str, payload: &str) -> Result<String> {
        let payload = parse_object(payload.as_bytes())?;
        let text = |name: &str| payload.get(name).and_then(Value::as_str).map(str::to_owned);
        let kind = match operation {
            "list" => {
                let page = self.list(receipt, &page_of(&payload)).await?;
                return Ok(rows(&page.documents, page.continuation.as_deref()));
            }
            "query" => {
                let spec = payload.get("spec").cloned().unwrap_or_default();
                let request = QueryRequest::parse(spec.to_json().as_bytes())?;
                let page = self.query(receipt, &request, page_of(&payload)).await?;
                return Ok(rows(&page.rows, page.continuation.as_deref()));
            }
            // A query without items, such as an expression: it needs no partition.
            "evaluate" => {
                let spec = payload.get("spec").cloned().unwrap_or_default();
                let request = QueryRequest::parse(spec.to_json().as_bytes())?;
                let nothing = MetadataPage::default();
                let page = self.database.query_metadata(nothing, &request, &PageRequest::default())?;
                return Ok(rows(
                    page.resources.iter().map(Value::to_json).collect::<Vec<_>>().join(",").as_bytes(),
                    None,
                ));
            }
            "read" => BatchKind::Read,
            "create" => BatchKind::Create,
            "upsert" => BatchKind::Upsert,
            "replace" => BatchKind::Replace,
            "patch" => BatchKind::Patch,
            "delete" => BatchKind::Delete,
            _ => return Err(Error::bad_request(format!("The operation '{operation}' does not exist."))),
        };
        let id = match text("rid") {
            // Scripts address items by their `_self` links, which contain RIDs.
            Some(rid) => Some(self.id_of_rid(&rid).await.inspect_err(|_| receipt.add(cost::missing_item()))?),
            None => text("id").map(|id| ItemId::parse(&id)).transpose()?,
        };
        if kind == BatchKind::Read {
            let id = id.ok_or_else(|| Error::bad_request("The document link is not valid."))?;
            let item = self.read_item(receipt, &id).await?;
            let unchanged = text("ifNoneMatch").is_some_and(|etag| item.etag().matches(&etag));
            return Ok(if unchanged {
                resource(None, 304, true)
            } else {
                resource(Some(&self.document(&item)), 200, false)
            });
        }
        // The same preparation as for a batch, so that scripts and clients meet the same checks.
        let operation = BatchOperation {
            kind,
            id: id.map(|id| id.as_str().to_owned()),
            body: text("body").map(Bytes::from),
            if_match: text("etag"),
            if_none_match: None,
            partition_key: None,
        };
        let action = self.prepare(&operation)?;
        let success = self.write(receipt, action).await?;
        Ok(match success.effect {
            Effect::Deleted => resource(None, 204, false),
            Effect::Created => resource(Some(&self.document(&success.item)), 201, false),
            _ => resource(Some(&self.document(&success.item)), 200, false),
        })
    }

    pub(super) fn document(&self, item: &StoredItem) -> Vec<u8> {
        let mut text = Vec::with_capacity(item.body.len() + 256);
        item.write_document(self.container.rid, &mut text);
        text
    }
}

fn page_of(payload: &Value) -> PageRequest {
    PageRequest {
        items_max: payload.get("pageSize").and_then(Value::as_i64),
        continuation: payload.get("continuation").and_then(Value::as_str).map(str::to_owned),
    }
}

/// The error number for scripts: the API uses the status codes of the wire protocol. `None` = not reported to the
/// script.
fn number_of(kind: ErrorKind) -> Option<u16> {
    match kind {
        ErrorKind::BadRequest
        | ErrorKind::InvalidQuery
        | ErrorKind::PartitionKeyMismatch
        | ErrorKind::CrossPartitionQuery
        | ErrorKind::Script { .. } => Some(400),
        ErrorKind::Forbidden | ErrorKind::QuotaExceeded | ErrorKind::LogicalPartitionFull => Some(403),
        ErrorKind::NotFound => Some(404),
        ErrorKind::Conflict | ErrorKind::KeyHashCollision => Some(409),
        ErrorKind::PreconditionFailed => Some(412),
        ErrorKind::TooLarge => Some(413),
        ErrorKind::NotImplemented => Some(501),
        _ => None,
    }
}

fn refusal(number: u16, error: &Error) -> String {
    let mut body = String::new();
    if error.kind == ErrorKind::InvalidQuery {
        // The text is already the JSON list of errors.
        body.push_str(&error.message);
    } else {
        body.push_str("{\"Errors\":[");
        write_json_string(&error.message, &mut body);
        body.push_str("]}");
    }
    let mut out = format!("{{\"error\":{{\"number\":{number},\"body\":");
    write_json_string(&body, &mut out);
    out.push_str("},\"body\":null,\"options\":{}}");
    out
}

fn resource(document: Option<&[u8]>, status: u16, not_modified: bool) -> String {
    let document = document.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or("null");
    let modified = if not_modified { ",\"notModified\":true" } else { "" };
    format!("{{\"error\":null,\"body\":{document},\"options\":{{\"statusCode\":{status}{modified}}}}}")
}

fn rows(rows: &[u8], continuation: Option<&str>) -> String {
    let mut out = String::from("{\"error\":null,\"body\":[");
    out.push_str(std::str::from_utf8(rows).unwrap_or_default());
    out.push_str("],\"options\":{\"statusCode\":200");
    if let Some(token) = continuation {
        out.push_str(",\"continuation\":");
        write_json_string(token, &mut out);
    }
    out.push_str("}}");
    out
}
