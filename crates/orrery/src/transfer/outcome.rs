//! What a transfer came to: counts while it runs, what failed and why, and the summary at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use orrery_model::{Object, Value};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cli::Output;
use crate::client::Client;
use crate::failure::Failure;

/// Shared by everything that takes part.
pub(super) struct Outcome {
    pub(super) items: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Records that an earlier run had done.
    pub(super) skipped: AtomicU64,
    reasons: Mutex<BTreeMap<(u16, u32, String), Reason>>,
    failures_file: Option<Mutex<File>>,
    stopped: AtomicBool,
    stop: Notify,
    why: Mutex<Option<Failure>>,
    started: Instant,
}

/// A kind of failure.
struct Reason {
    count: u64,
    /// The first one, by number or id.
    example: String,
    text: String,
}

/// What could not be done.
pub(super) struct Failed<'a> {
    pub(super) status: u16,
    pub(super) substatus: u32,
    pub(super) reason: &'a str,
    /// How the record is called: its number, or its id.
    pub(super) record: &'a str,
    /// The item's text, if it is JSON.
    pub(super) item: Option<&'a [u8]>,
}

/// Kinds of failures that are told apart; further ones are counted together.
const REASONS_MAX: usize = 20;

impl Outcome {
    pub(super) fn new(failures: Option<&Path>) -> Result<Self, Failure> {
        let open = |path: &Path| {
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
            reasons: Mutex::new(BTreeMap::new()),
            failures_file: failures.map(open).transpose()?,
            stopped: AtomicBool::new(false),
            stop: Notify::new(),
            why: Mutex::new(None),
            started: Instant::now(),
        })
    }

    pub(super) fn done(&self, items: u64, bytes: u64) {
        self.items.fetch_add(items, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes a record that is given up. Goes on, unless that cannot even be written down.
    pub(super) fn fail(&self, failed: &Failed<'_>) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        // Reasons of one kind differ in names and values; the kind is what counts.
        let kind: String =
            failed.reason.chars().take_while(|c| !matches!(c, '"' | '\'' | '[')).take(60).collect();
        let mut reasons = self.reasons.lock();
        let key = (failed.status, failed.substatus, kind);
        let key = if reasons.len() >= REASONS_MAX && !reasons.contains_key(&key) {
            (0, 0, String::new())
        } else {
            key
        };
        let reason = reasons.entry(key).or_insert_with(|| Reason {
            count: 0,
            example: failed.record.to_owned(),
            text: failed.reason.to_owned(),
        });
        reason.count += 1;
        drop(reasons);
        if let Some(file) = &self.failures_file {
            let line = failure_line(failed);
            if let Err(error) = file.lock().write_all(line.as_bytes()) {
                self.stop_because(Failure::refused(format!("the failures file cannot be written: {error}")));
            }
        }
    }

    /// Ends the transfer, for the first reason that is given.
    pub(super) fn stop_because(&self, failure: Failure) {
        self.why.lock().get_or_insert(failure);
        self.stop();
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.stop.notify_waiters();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Waits until the transfer is stopped.
    pub(super) async fn until_stopped(&self) {
        loop {
            let notified = self.stop.notified();
            if self.is_stopped() {
                return;
            }
            notified.await;
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    pub(super) fn take_reason(&self) -> Option<Failure> {
        self.why.lock().take()
    }
}

fn failure_line(failed: &Failed<'_>) -> String {
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
    // The item as it was, so that it can be mended and imported again.
    if let Some(item) = failed.item.and_then(|item| std::str::from_utf8(item).ok()) {
        line.pop();
        line.push_str(",\"item\":");
        compact(item, &mut line);
        line.push('}');
    }
    line.push('\n');
    line
}

/// Writes JSON without the white space between its parts, so that it fits on a line.
pub(super) fn compact(json: &str, out: &mut String) {
    let (mut in_string, mut escaped, mut copied) = (false, false, 0);
    for (at, byte) in json.bytes().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
        } else if byte == b'"' {
            in_string = true;
        } else if byte.is_ascii_whitespace() {
            out.push_str(&json[copied..at]);
            copied = at + 1;
        }
    }
    out.push_str(&json[copied..]);
}

/// How the transfer is called in the summary.
pub(super) struct Summary<'a> {
    pub(super) verb: &'static str,
    pub(super) what: String,
    pub(super) complete: bool,
    pub(super) checkpoint: Option<&'a PathBuf>,
    pub(super) clients: &'a [&'a Client],
    /// Why it was stopped, if it was; people are told on standard error.
    pub(super) error: Option<&'a str>,
}

impl Summary<'_> {
    pub(super) fn write(&self, outcome: &Outcome, output: Output) -> String {
        match output {
            Output::Json => self.json(outcome),
            Output::Text => self.text(outcome),
        }
    }

    fn sum(&self, figure: impl Fn(&Client) -> &AtomicU64) -> u64 {
        self.clients.iter().map(|client| figure(client).load(Ordering::Relaxed)).sum()
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn text(&self, outcome: &Outcome) -> String {
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let (items, bytes, seconds) = (load(&outcome.items), load(&outcome.bytes), outcome.seconds());
        let mut text = String::new();
        let mut line = |arguments: std::fmt::Arguments<'_>| {
            text.write_fmt(arguments).expect("a String accepts every write");
            text.push('\n');
        };
        line(format_args!(
            "{} {items} items ({}) {} in {seconds:.1} s: {:.0} items/s, {}/s.",
            self.verb,
            size(bytes as f64),
            self.what,
            items as f64 / seconds.max(0.001),
            size(bytes as f64 / seconds.max(0.001)),
        ));
        if load(&outcome.skipped) > 0 {
            line(format_args!("Before     {} records were done by an earlier run", load(&outcome.skipped)));
        }
        line(format_args!(
            "Charge     {:.2} RU",
            self.sum(|client| &client.statistics.charge) as f64 / 100.0
        ));
        line(format_args!(
            "Waited     {} times because of throttling (429), {} attempts after other faults",
            self.sum(|client| &client.statistics.throttled),
            self.sum(|client| &client.statistics.retried)
        ));
        if let Some(memory) = peak_memory() {
            line(format_args!("Memory     {} at most", size(memory as f64)));
        }
        line(format_args!("Failed     {}", load(&outcome.failed)));
        for ((status, substatus, _), reason) in outcome.reasons.lock().iter() {
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
                    "Not complete. The same command goes on from the checkpoint {}.",
                    path.display()
                )),
                None => line(format_args!("Not complete. The same command begins again.")),
            }
        }
        text
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn json(&self, outcome: &Outcome) -> String {
        let count = |figure: u64| Value::from(i64::try_from(figure).unwrap_or(i64::MAX));
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let seconds = outcome.seconds();
        let mut object = Object::new();
        object.set("complete", Value::from(self.complete));
        if let Some(error) = self.error {
            object.set("error", Value::from(error));
        }
        object.set("items", count(load(&outcome.items)));
        object.set("bytes", count(load(&outcome.bytes)));
        object.set("seconds", Value::from((seconds * 1000.0).round() / 1000.0));
        let rate = load(&outcome.items) as f64 / seconds.max(0.001);
        object.set("itemsPerSecond", Value::from(rate.round()));
        object.set("doneBefore", count(load(&outcome.skipped)));
        let charge = self.sum(|client| &client.statistics.charge) as f64 / 100.0;
        object.set("requestUnits", Value::from(charge));
        object.set("throttled", count(self.sum(|client| &client.statistics.throttled)));
        object.set("retried", count(self.sum(|client| &client.statistics.retried)));
        if let Some(memory) = peak_memory() {
            object.set("memoryBytesMax", count(memory));
        }
        object.set("failed", count(load(&outcome.failed)));
        let reasons = outcome.reasons.lock();
        let rows = reasons.iter().map(|((status, substatus, _), reason)| {
            let mut row = Object::new();
            row.set("count", count(reason.count));
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

/// Bytes with a unit, for people.
pub(super) fn size(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e9 => format!("{:.2} GB", bytes / 1e9),
        bytes if bytes >= 1e6 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.1} kB", bytes / 1e3),
    }
}

/// The most memory that this process has had, where the system tells.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_fits_on_a_line() {
        let mut out = String::new();
        compact("{\n  \"a b\" : [1,\t2], \"c\\\" \" : \"x\ty\" }", &mut out);
        assert_eq!(out, "{\"a b\":[1,2],\"c\\\" \":\"x\ty\"}");
    }

    #[test]
    fn failures_are_counted_by_kind_and_written_down() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let outcome = Outcome::new(Some(file.path())).ok().unwrap();
        for (record, name) in [("1", "a"), ("2", "b")] {
            let reason = format!("The property '{name}' is wrong.");
            outcome.fail(&Failed { status: 400, substatus: 0, reason: &reason, record, item: Some(b"{ }") });
        }
        outcome.fail(&Failed { status: 0, substatus: 0, reason: "no JSON", record: "3", item: None });
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
        assert!(text.contains("1  not sent: no JSON (first: 3)"), "{text}");
        let lines = std::fs::read_to_string(file.path()).unwrap();
        let first = lines.lines().next().unwrap();
        assert_eq!(first, r#"{"record":"1","status":400,"reason":"The property 'a' is wrong.","item":{}}"#);
    }
}
