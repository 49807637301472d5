//! The outcome of a transfer: counters while it runs, failures by reason, and the summary at the end.
//!
//! One [`Outcome`] is shared by readers, writers and the progress display. It also carries the stop flag: the first fatal
//! error or a signal sets it, and every task ends at its next step.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use orrery_env::monotonic;
use orrery_model::{Object, Value};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::options::PaceOptions;
use crate::client::Client;
use crate::failure::Failure;
use crate::io::{JsonStrings, Output, byte_size, count};

/// The state of a transfer, shared by its tasks.
pub(crate) struct Outcome {
    pub(crate) items: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Records that an earlier run completed.
    pub(crate) skipped: AtomicU64,
    failure_kinds: Mutex<BTreeMap<(u16, u32, String), FailureKind>>,
    failures_file: Option<Mutex<File>>,
    stopped: AtomicBool,
    stop: Notify,
    why: Mutex<Option<Failure>>,
    started: Instant,
}

/// Failures of one kind.
struct FailureKind {
    count: u64,
    /// The first failed record, by number or id.
    example: String,
    text: String,
}

/// A record that could not be written.
pub(crate) struct FailedRecord<'a> {
    pub(crate) status: u16,
    pub(crate) substatus: u32,
    pub(crate) reason: &'a str,
    /// Its number in the input, or its id.
    pub(crate) record: &'a str,
    /// The item's text, if it is JSON.
    pub(crate) item: Option<&'a [u8]>,
}

/// Failures are grouped into at most this many kinds; the rest are counted together.
const FAILURE_KINDS_MAX: usize = 20;

impl Outcome {
    pub(crate) fn new(failures: Option<&Path>) -> Result<Self, Failure> {
        let open = |path: &Path| {
            // Appended to, because a resumed transfer must keep the failures of earlier runs.
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.map(Mutex::new).map_err(|error| {
                Failure::refused(format!("the failures file {} cannot be written: {error}", path.display()))
            })
        };
        Ok(Self {
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            failure_kinds: Mutex::new(BTreeMap::new()),
            failures_file: failures.map(open).transpose()?,
            stopped: AtomicBool::new(false),
            stop: Notify::new(),
            why: Mutex::new(None),
            started: monotonic::now(),
        })
    }

    pub(crate) fn done(&self, items: u64, bytes: u64) {
        self.items.fetch_add(items, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a record that is given up and logs it to the failures file. Stops the transfer if that file fails.
    pub(crate) fn fail(&self, failed: &FailedRecord<'_>) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        // Messages of one kind differ in the names and values they quote; group by what precedes the first quote.
        let kind: String =
            failed.reason.chars().take_while(|c| !matches!(c, '"' | '\'' | '[')).take(60).collect();
        let mut reasons = self.failure_kinds.lock();
        let key = (failed.status, failed.substatus, kind);
        let key = if reasons.len() >= FAILURE_KINDS_MAX && !reasons.contains_key(&key) {
            // Beyond the bound, one more kind stands for all others.
            (0, 0, String::new())
        } else {
            key
        };
        let reason = reasons.entry(key).or_insert_with(|| FailureKind {
            count: 0,
            example: failed.record.to_owned(),
            text: failed.reason.to_owned(),
        });
        reason.count += 1;
        // The file is written without holding the counters.
        drop(reasons);
        if let Some(file) = &self.failures_file {
            let line = failure_line(failed);
            if let Err(error) = file.lock().write_all(line.as_bytes()) {
                self.stop_because(Failure::refused(format!("the failures file cannot be written: {error}")));
            }
        }
    }

    /// Stops the transfer. The first failure is the one that is reported.
    pub(crate) fn stop_because(&self, failure: Failure) {
        // The first reason counts: later ones follow from it.
        self.why.lock().get_or_insert(failure);
        self.stop();
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.stop.notify_waiters();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Resolves once the transfer is stopped.
    pub(crate) async fn until_stopped(&self) {
        loop {
            // Registered before the flag is checked, so that no notification is missed in between.
            let notified = self.stop.notified();
            if self.is_stopped() {
                return;
            }
            notified.await;
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        monotonic::elapsed(self.started).as_secs_f64()
    }

    pub(crate) fn take_reason(&self) -> Option<Failure> {
        self.why.lock().take()
    }
}

fn failure_line(failed: &FailedRecord<'_>) -> String {
    let mut object = Object::new();
    object.set("record", Value::from(failed.record));
    if failed.status != 0 {
        object.set("status", Value::from(i64::from(failed.status)));
    }
    if failed.substatus != 0 {
        object.set("substatus", Value::from(i64::from(failed.substatus)));
    }
    object.set("reason", Value::from(failed.reason));
    let mut line = Value::from(object).to_json();
    // The item as it was, so that it can be fixed and imported again.
    if let Some(item) = failed.item.and_then(|item| std::str::from_utf8(item).ok()) {
        // The object is opened again, and the item added as text.
        line.pop();
        line.push_str(",\"item\":");
        compact(item, &mut line);
        line.push('}');
    }
    line.push('\n');
    line
}

/// Appends JSON without the white space between tokens, so that it fits on one line. Does not parse it.
pub(crate) fn compact(json: &str, out: &mut String) {
    let (mut strings, mut copied) = (JsonStrings::default(), 0);
    for (at, byte) in json.bytes().enumerate() {
        if !strings.contain(byte) && byte.is_ascii_whitespace() {
            out.push_str(&json[copied..at]);
            copied = at + 1;
        }
    }
    out.push_str(&json[copied..]);
}

/// What the summary says besides the counters.
pub(crate) struct Summary<'a> {
    verb: &'static str,
    what: String,
    complete: bool,
    checkpoint: Option<&'a PathBuf>,
    clients: &'a [&'a Client],
    /// Why it was stopped, for the JSON summary; in text mode the error goes to standard error.
    error: Option<&'a str>,
}

impl<'a> Summary<'a> {
    /// `why` it was stopped, if it was.
    pub(crate) fn new(
        verb: &'static str,
        what: String,
        complete: bool,
        pace: &'a PaceOptions,
        clients: &'a [&'a Client],
        why: Option<&'a Failure>,
    ) -> Self {
        let error = why.and_then(|failure| failure.message.as_deref());
        Self { verb, what, complete, checkpoint: pace.checkpoint.as_ref(), clients, error }
    }

    pub(crate) fn write(&self, outcome: &Outcome, output: Output) -> String {
        match output {
            Output::Json => self.json(outcome),
            Output::Text => self.text(outcome),
        }
    }

    fn sum(&self, figure: impl Fn(&Client) -> &AtomicU64) -> u64 {
        self.clients.iter().map(|client| figure(client).load(Ordering::Relaxed)).sum()
    }

    #[expect(clippy::cast_precision_loss, reason = "rounded for display")]
    fn text(&self, outcome: &Outcome) -> String {
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let (items, bytes, seconds) = (load(&outcome.items), load(&outcome.bytes), outcome.seconds());
        let mut text = String::new();
        let mut line = |arguments: std::fmt::Arguments<'_>| {
            text.write_fmt(arguments).expect("a String accepts every write");
            text.push('\n');
        };
        line(format_args!(
            "{} {} ({}) {} in {seconds:.1} s: {:.0} items/s, {}/s.",
            self.verb,
            count(items, "item"),
            byte_size(bytes as f64),
            self.what,
            items as f64 / seconds.max(0.001),
            byte_size(bytes as f64 / seconds.max(0.001)),
        ));
        if load(&outcome.skipped) > 0 {
            line(format_args!(
                "Skipped    {} completed by an earlier run",
                count(load(&outcome.skipped), "record")
            ));
        }
        line(format_args!(
            "Charge     {:.2} RU",
            self.sum(|client| &client.statistics.charge) as f64 / 100.0
        ));
        line(format_args!(
            "Retries    {} throttled (429), {} after other errors",
            self.sum(|client| &client.statistics.throttled),
            self.sum(|client| &client.statistics.retried)
        ));
        if let Some(memory) = peak_memory() {
            line(format_args!("Memory     {} peak", byte_size(memory as f64)));
        }
        line(format_args!("Failed     {}", load(&outcome.failed)));
        for ((status, substatus, _), reason) in outcome.failure_kinds.lock().iter() {
            let code = match (status, substatus) {
                (0, _) => "not sent".to_owned(),
                (status, 0) => status.to_string(),
                (status, substatus) => format!("{status}/{substatus}"),
            };
            line(format_args!("  {:>9}  {code}: {} (first: {})", reason.count, reason.text, reason.example));
        }
        if !self.complete {
            match self.checkpoint {
                Some(path) => line(format_args!(
                    "Incomplete; run the same command again to resume from the checkpoint {}.",
                    path.display()
                )),
                None => line(format_args!("Incomplete; run the same command again to start over.")),
            }
        }
        text
    }

    #[expect(clippy::cast_precision_loss, reason = "rounded for display")]
    fn json(&self, outcome: &Outcome) -> String {
        let number = |figure: u64| Value::from(i64::try_from(figure).unwrap_or(i64::MAX));
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let seconds = outcome.seconds();
        let mut object = Object::new();
        object.set("complete", Value::from(self.complete));
        if let Some(error) = self.error {
            object.set("error", Value::from(error));
        }
        object.set("items", number(load(&outcome.items)));
        object.set("bytes", number(load(&outcome.bytes)));
        object.set("seconds", Value::from((seconds * 1000.0).round() / 1000.0));
        let rate = load(&outcome.items) as f64 / seconds.max(0.001);
        object.set("itemsPerSecond", Value::from(rate.round()));
        object.set("doneBefore", number(load(&outcome.skipped)));
        let charge = self.sum(|client| &client.statistics.charge) as f64 / 100.0;
        object.set("requestUnits", Value::from(charge));
        object.set("throttled", number(self.sum(|client| &client.statistics.throttled)));
        object.set("retried", number(self.sum(|client| &client.statistics.retried)));
        if let Some(memory) = peak_memory() {
            object.set("memoryBytesMax", number(memory));
        }
        object.set("failed", number(load(&outcome.failed)));
        let reasons = outcome.failure_kinds.lock();
        let rows = reasons.iter().map(|((status, substatus, _), reason)| {
            let mut row = Object::new();
            row.set("count", number(reason.count));
            row.set("status", Value::from(i64::from(*status)));
            row.set("substatus", Value::from(i64::from(*substatus)));
            row.set("reason", Value::from(reason.text.as_str()));
            row.set("first", Value::from(reason.example.as_str()));
            Value::from(row)
        });
        object.set("failures", Value::from(rows.collect::<Vec<_>>()));
        Value::from(object).to_json() + "\n"
    }
}

/// The peak resident memory of this process, where the system reports it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_json_fits_on_one_line() {
        let mut out = String::new();
        compact("{\n  \"a b\" : [1,\t2], \"c\\\" \" : \"x\ty\" }", &mut out);
        assert_eq!(out, "{\"a b\":[1,2],\"c\\\" \":\"x\ty\"}");
    }

    #[test]
    fn failures_are_grouped_by_kind_and_logged() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let outcome = Outcome::new(Some(file.path())).ok().unwrap();
        for (record, name) in [("1", "a"), ("2", "b")] {
            let reason = format!("The property '{name}' is wrong.");
            outcome.fail(&FailedRecord {
                status: 400,
                substatus: 0,
                reason: &reason,
                record,
                item: Some(b"{ }"),
            });
        }
        outcome.fail(&FailedRecord {
            status: 0,
            substatus: 0,
            reason: "not valid JSON",
            record: "3",
            item: None,
        });
        let summary = Summary {
            verb: "Imported",
            what: "x".to_owned(),
            complete: true,
            checkpoint: None,
            clients: &[],
            error: None,
        };
        let text = summary.write(&outcome, Output::Text);
        assert!(text.contains("2  400: The property 'a' is wrong. (first: 1)"), "{text}");
        assert!(text.contains("1  not sent: not valid JSON (first: 3)"), "{text}");
        let lines = std::fs::read_to_string(file.path()).unwrap();
        let first = lines.lines().next().unwrap();
        assert_eq!(first, r#"{"record":"1","status":400,"reason":"The property 'a' is wrong.","item":{}}"#);
    }
}
