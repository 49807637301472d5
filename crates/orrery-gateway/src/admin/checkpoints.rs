//! `/_orrery/checkpoints`: the files of the embedded store, for `orrery backup`.
//!
//! A checkpoint costs almost nothing, but keeps replaced files on disk. So only a few may exist at a time, and an idle
//! one is dropped. Clients copy the files in chunks, at their own pace, and skip those they have from an earlier
//! backup.
//!
//! * `POST /_orrery/checkpoints` takes one and lists its files.
//! * `GET /_orrery/checkpoints/ID/files?path=…&offset=…` returns a part of a file.
//! * `DELETE /_orrery/checkpoints/ID` drops it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use orrery_db::{Checkpoint, Database};
use orrery_env::{monotonic, task};
use orrery_model::value::Value;
use orrery_model::{Error, ErrorKind, Object, Result};
use parking_lot::Mutex;

use super::query_argument;
use crate::reply::Reply;

/// Checkpoints that may exist at once.
const CHECKPOINTS_MAX: usize = 4;
/// An idle checkpoint is dropped after this time.
const IDLE_MAX: Duration = Duration::from_mins(10);
/// The largest part of a file in one response.
const PART_BYTES_MAX: usize = 4 << 20;

/// The checkpoints of a server.
#[derive(Default)]
pub(crate) struct Checkpoints(Arc<Mutex<HashMap<String, Held>>>);

struct Held {
    checkpoint: Arc<dyn Checkpoint>,
    used: Instant,
}

impl Checkpoints {
    /// Handles a request; `rest` is the path below `/_orrery/checkpoints`.
    pub(super) async fn route(
        &self,
        database: &Arc<Database>,
        method: &Method,
        rest: &str,
        query: &str,
    ) -> Result<Reply> {
        match (method, rest.strip_prefix('/').map(|rest| rest.split_once('/').unwrap_or((rest, "")))) {
            (&Method::POST, None) => self.take(database).await,
            (&Method::GET, Some((id, "files"))) => self.read(id, query).await,
            (&Method::DELETE, Some((id, ""))) => {
                // Removing the links takes a moment, so do it outside the lock.
                let held = self.0.lock().remove(id);
                held.map(|_| Reply::new(StatusCode::NO_CONTENT)).ok_or_else(unknown)
            }
            _ => Err(Error::new(ErrorKind::NotFound, "There is nothing here.")),
        }
    }

    async fn take(&self, database: &Arc<Database>) -> Result<Reply> {
        if self.0.lock().len() >= CHECKPOINTS_MAX {
            let message = format!("There are already {CHECKPOINTS_MAX} checkpoints; delete one first.");
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let checkpoint: Arc<dyn Checkpoint> = Arc::from(database.take_checkpoint().await?);
        let id = database.env().guid();
        let answer = describe(&id, checkpoint.as_ref());
        self.0.lock().insert(id.clone(), Held { checkpoint, used: monotonic::now() });
        // Weak, so that the timer does not keep checkpoints alive beyond the server.
        task::spawn("expire a checkpoint", expire(Arc::downgrade(&self.0), id));
        Ok(Reply::json(StatusCode::CREATED, answer.to_json()))
    }

    async fn read(&self, id: &str, query: &str) -> Result<Reply> {
        let path =
            query_argument(query, "path").ok_or_else(|| Error::bad_request("Name the path of a file."))?;
        let offset = query_argument(query, "offset").map_or(Ok(0), |text| text.parse());
        let offset: u64 = offset.map_err(|_| Error::bad_request("The offset is not a number."))?;
        let checkpoint = {
            let mut held = self.0.lock();
            let held = held.get_mut(id).ok_or_else(unknown)?;
            // A backup at its own pace keeps its checkpoint; the timer looks at this when it fires.
            held.used = monotonic::now();
            // Read outside the lock. A checkpoint that is deleted meanwhile lives until the read ends.
            Arc::clone(&held.checkpoint)
        };
        let part =
            task::run_blocking("read a checkpoint", move || checkpoint.read(&path, offset, PART_BYTES_MAX));
        let part = part.await.map_err(|error| Error::internal(error.to_string()))?;
        let part = part.map_err(|error| Error::internal(format!("The file cannot be read: {error}")))?;
        let part = part.ok_or_else(|| Error::new(ErrorKind::NotFound, "The checkpoint has no such file."))?;
        let mut reply = Reply::json(StatusCode::OK, part);
        reply.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        Ok(reply)
    }
}

/// Drops the checkpoint once it has been idle for long enough.
async fn expire(checkpoints: Weak<Mutex<HashMap<String, Held>>>, id: String) {
    let mut left = IDLE_MAX;
    loop {
        task::sleep(left).await;
        let Some(checkpoints) = checkpoints.upgrade() else { return };
        let mut checkpoints = checkpoints.lock();
        let Some(held) = checkpoints.get(&id) else { return };
        // Used meanwhile: wait for the rest of its time.
        left = IDLE_MAX.saturating_sub(monotonic::elapsed(held.used));
        if left.is_zero() {
            checkpoints.remove(&id);
            return;
        }
    }
}

fn unknown() -> Error {
    Error::new(ErrorKind::NotFound, "There is no such checkpoint; it may have expired.")
}

fn describe(id: &str, checkpoint: &dyn Checkpoint) -> Value {
    let files = checkpoint.files().iter().map(|file| {
        let mut object = Object::new();
        object.set("path", Value::from(file.path.as_str()));
        object.set("bytes", Value::from(file.bytes.cast_signed()));
        if let Some(checksum) = file.checksum {
            object.set("xxh3", Value::from(format!("{checksum:032x}").as_str()));
        }
        Value::Object(object)
    });
    let mut object = Object::new();
    object.set("id", Value::from(id));
    object.set("history", Value::from(checkpoint.history()));
    object.set("takenMs", Value::from(checkpoint.taken_ms()));
    object.set("files", Value::from(files.collect::<Vec<_>>()));
    Value::Object(object)
}
