//! Progress of a transfer on standard error: a bar on a terminal, a line every few seconds elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::outcome::Outcome;
use crate::client::Client;
use crate::io::{byte_size, count};

const BAR_INTERVAL: Duration = Duration::from_millis(100);
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The expected amount of work.
pub(crate) enum ExpectedTotal {
    /// The bytes of a file.
    Bytes(InputProgress),
    /// Items in the container, according to the server.
    Items(u64),
    Unknown,
}

/// How far a file has been imported. Reading runs ahead of writing, so the bytes read are scaled by the share of read
/// records that have been written.
pub(crate) struct InputProgress {
    pub(crate) length: u64,
    pub(crate) bytes_read: Arc<AtomicU64>,
    pub(crate) records_read: Arc<AtomicU64>,
}

impl InputProgress {
    fn bytes_done(&self, outcome: &Outcome) -> u64 {
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let done = load(&outcome.items) + load(&outcome.failed) + load(&outcome.skipped);
        let read = load(&self.records_read).max(1);
        let bytes = u128::from(load(&self.bytes_read).min(self.length)) * u128::from(done.min(read))
            / u128::from(read);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Shows progress until it is dropped.
pub(crate) async fn show(quiet: bool, outcome: Arc<Outcome>, client: Arc<Client>, total: ExpectedTotal) {
    if quiet {
        // It must not end: `supervise` polls it for as long as the transfer runs.
        return std::future::pending().await;
    }
    if std::io::stderr().is_terminal() {
        return show_bar(&outcome, &client, &total).await;
    }
    loop {
        orrery_env::task::sleep(LINE_INTERVAL).await;
        // Progress is optional: ignore a closed standard error.
        writeln!(std::io::stderr(), "{}", line(&outcome, &client, &total)).ok();
    }
}

async fn show_bar(outcome: &Outcome, client: &Client, total: &ExpectedTotal) {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    // The message is cut at the width of the terminal: a bar that wraps cannot be redrawn.
    let template = match total {
        ExpectedTotal::Unknown => "{spinner} {elapsed} {wide_msg}",
        _ => "{elapsed} [{bar:14}] {percent}%, {eta} left, {wide_msg}",
    };
    // Our own template always parses; the default bar would do otherwise.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    let guard = ClearOnDrop(bar);
    loop {
        orrery_env::task::sleep(BAR_INTERVAL).await;
        match total {
            ExpectedTotal::Bytes(input) => {
                guard.0.set_length(input.length);
                guard.0.set_position(input.bytes_done(outcome));
            }
            ExpectedTotal::Items(count) => {
                guard.0.set_length(*count);
                guard.0.set_position(outcome.items.load(Ordering::Relaxed).min(*count));
            }
            ExpectedTotal::Unknown => guard.0.tick(),
        }
        guard.0.set_message(figures(outcome, client));
    }
}

/// Clears the bar when the transfer ends, also when it is cancelled.
struct ClearOnDrop(ProgressBar);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[expect(clippy::cast_precision_loss, reason = "rounded for display")]
fn figures(outcome: &Outcome, client: &Client) -> String {
    let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
    let (items, bytes, seconds) = (load(&outcome.items), load(&outcome.bytes), outcome.seconds().max(0.001));
    let mut text = format!(
        "{}, {:.0}/s, {}/s",
        count(items, "item"),
        items as f64 / seconds,
        byte_size(bytes as f64 / seconds)
    );
    for (count, name) in
        [(load(&outcome.failed), "failed"), (load(&client.statistics.throttled), "throttled")]
    {
        if count > 0 {
            text.extend([", ", &count.to_string(), " ", name]);
        }
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "rounded for display")]
fn line(outcome: &Outcome, client: &Client, total: &ExpectedTotal) -> String {
    let share = match total {
        ExpectedTotal::Bytes(input) => Some((input.bytes_done(outcome), input.length)),
        ExpectedTotal::Items(count) => Some((outcome.items.load(Ordering::Relaxed), *count)),
        ExpectedTotal::Unknown => None,
    };
    let share = share.filter(|(_, total)| *total > 0);
    let share = share.map(|(part, total)| (part as f64 / total as f64).min(1.0));
    let percent = share.map(|share| format!("{:.0} %, ", share * 100.0)).unwrap_or_default();
    let seconds = outcome.seconds();
    let left = share.filter(|share| *share > 0.01).map(|share| seconds / share - seconds);
    let left = left.map(|left| format!(", about {left:.0} s left")).unwrap_or_default();
    format!("{seconds:.0} s: {percent}{}{left}", figures(outcome, client))
}
