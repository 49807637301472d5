//! Recordings of a container's requests: operation, key values, parameters, time and charge, but never item bodies. The
//! advisor replays them as a workload under other keys.
//!
//! Bounded: few recordings, each with a maximum of requests and bytes; the rest is only counted. They are kept in
//! memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use orrery_model::value::Value;
use orrery_model::{Error, ErrorKind, Object, Result};
use parking_lot::Mutex;

use super::Resources;
use crate::catalog::OfferOwner;

/// The maximum number of recordings.
const RECORDINGS_MAX: usize = 8;
/// The maximum number of requests in a recording, and of their bytes.
pub const RECORDED_REQUESTS_MAX: usize = 200_000;
const RECORDED_BYTES_MAX: usize = 64 << 20;
/// Requests with a longer description are skipped.
const LINE_BYTES_MAX: usize = 8 << 10;

/// All recordings of a server.
#[derive(Debug, Default)]
pub struct Recordings {
    /// The number of running recordings, which requests check first.
    running: AtomicUsize,
    list: Mutex<Vec<Recording>>,
}

#[derive(Debug)]
struct Recording {
    database: String,
    container: String,
    key_paths: Vec<String>,
    throughput: Option<u32>,
    started_ms: i64,
    ended_ms: Option<i64>,
    requests_max: usize,
    bytes: usize,
    lines: Vec<String>,
    dropped: u64,
}

impl Recording {
    fn head(&self) -> Object {
        let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
        let mut object = Object::new();
        object.set("recording", Value::from(1));
        object.set("database", Value::from(self.database.as_str()));
        object.set("container", Value::from(self.container.as_str()));
        let paths = self.key_paths.iter().map(|path| Value::from(path.as_str()));
        object.set("partitionKey", paths.collect::<Vec<_>>().into());
        if let Some(throughput) = self.throughput {
            object.set("throughput", number(throughput.into()));
        }
        object.set("startedMs", Value::from(self.started_ms));
        if let Some(ended_ms) = self.ended_ms {
            object.set("endedMs", Value::from(ended_ms));
        }
        object.set("running", Value::from(self.ended_ms.is_none()));
        object.set("requests", number(self.lines.len() as u64));
        object.set("bytes", number(self.bytes as u64));
        object.set("dropped", number(self.dropped));
        object
    }
}

impl Recordings {
    /// Whether this container is being recorded.
    pub fn wants(&self, database: &str, container: &str) -> bool {
        // Every request asks, so the usual answer costs one load and no lock.
        self.running.load(Ordering::Relaxed) > 0
            && self.list.lock().iter().any(|recording| {
                recording.ended_ms.is_none()
                    && recording.database == database
                    && recording.container == container
            })
    }

    /// Adds a request, as one line of JSON.
    pub fn note(&self, database: &str, container: &str, line: String) {
        let mut list = self.list.lock();
        let running = list.iter_mut().find(|recording| {
            recording.ended_ms.is_none() && recording.database == database && recording.container == container
        });
        // Stopped between the question and the answer.
        let Some(recording) = running else { return };
        let fits = recording.lines.len() < recording.requests_max
            && recording.bytes + line.len() <= RECORDED_BYTES_MAX
            && line.len() <= LINE_BYTES_MAX;
        if fits {
            recording.bytes += line.len();
            recording.lines.push(line);
        } else {
            // Counted, so that the advisor knows that it sees only a part.
            recording.dropped += 1;
        }
    }

    fn with<T>(
        &self,
        database: &str,
        container: &str,
        act: impl FnOnce(&mut Vec<Recording>, usize) -> T,
    ) -> Result<T> {
        let mut list = self.list.lock();
        let at = list
            .iter()
            .position(|recording| recording.database == database && recording.container == container);
        let at =
            at.ok_or_else(|| Error::new(ErrorKind::NotFound, "There is no recording of this container."))?;
        let result = act(&mut list, at);
        // `act` may have stopped or removed one.
        let running = list.iter().filter(|recording| recording.ended_ms.is_none()).count();
        self.running.store(running, Ordering::Relaxed);
        Ok(result)
    }
}

impl Resources {
    pub fn recordings(&self) -> &Recordings {
        &self.recordings
    }

    /// Starts recording a container's requests. Replaces an earlier recording of it that has ended.
    pub fn start_recording(
        &self,
        database: &str,
        container: &str,
        requests_max: Option<usize>,
    ) -> Result<Value> {
        let catalog = self.catalog.snapshot();
        let found = catalog.container(database, container)?;
        let offer = catalog.offer_of(OfferOwner::Container(found.rid));
        let paths = found.definition.partition_key.paths().iter();
        let recording = Recording {
            database: database.to_owned(),
            container: container.to_owned(),
            key_paths: paths.map(|path| path.as_str().to_owned()).collect(),
            throughput: offer.map(|offer| offer.document.throughput.maximum()),
            started_ms: self.env.now_ms(),
            ended_ms: None,
            requests_max: requests_max.unwrap_or(RECORDED_REQUESTS_MAX).clamp(1, RECORDED_REQUESTS_MAX),
            bytes: 0,
            lines: Vec::new(),
            dropped: 0,
        };
        let mut list = self.recordings.list.lock();
        let same = |other: &Recording| other.database == database && other.container == container;
        if list.iter().any(|other| same(other) && other.ended_ms.is_none()) {
            return Err(Error::new(ErrorKind::Conflict, "The container is already being recorded."));
        }
        // An earlier one of the same container has ended; it makes room.
        list.retain(|other| !same(other));
        if list.len() >= RECORDINGS_MAX {
            return Err(Error::bad_request(format!(
                "There are already {RECORDINGS_MAX} recordings. Discard one first."
            )));
        }
        let head = recording.head();
        list.push(recording);
        let running = list.iter().filter(|recording| recording.ended_ms.is_none()).count();
        self.recordings.running.store(running, Ordering::Relaxed);
        Ok(head.into())
    }

    /// Stops a recording; it can still be downloaded.
    pub fn stop_recording(&self, database: &str, container: &str) -> Result<Value> {
        let now_ms = self.env.now_ms();
        self.recordings.with(database, container, |list, at| {
            // Stopping twice keeps the first time.
            list[at].ended_ms.get_or_insert(now_ms);
            list[at].head().into()
        })
    }

    /// Discards a recording.
    pub fn discard_recording(&self, database: &str, container: &str) -> Result<Value> {
        self.recordings.with(database, container, |list, at| list.remove(at).head().into())
    }

    /// Lists the recordings.
    pub fn list_recordings(&self) -> Value {
        let list = self.recordings.list.lock();
        list.iter().map(|recording| Value::from(recording.head())).collect::<Vec<_>>().into()
    }

    /// A recording as JSON lines: a header, then one line per request.
    pub fn recording_lines(&self, database: &str, container: &str) -> Result<String> {
        self.recordings.with(database, container, |list, at| {
            let recording = &list[at];
            let mut text = String::with_capacity(recording.bytes + recording.lines.len() + 512);
            text.push_str(&Value::from(recording.head()).to_json());
            text.push('\n');
            for line in &recording.lines {
                text.push_str(line);
                text.push('\n');
            }
            text
        })
    }
}
