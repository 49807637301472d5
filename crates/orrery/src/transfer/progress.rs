//! Progress while a transfer runs: a bar on a terminal, a line every few seconds elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::outcome::{Outcome, size};
use crate::client::Client;

const BAR_INTERVAL: Duration = Duration::from_millis(100);
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// What is known of the whole.
pub(super) enum Whole {
    /// Bytes of the input, and how many of them were read.
    Bytes(u64, Arc<AtomicU64>),
    /// Items that there should be.
    Items(u64),
    Unknown,
}

/// Shows progress until it is dropped or aborted.
pub(super) async fn show(quiet: bool, outcome: Arc<Outcome>, client: Arc<Client>, whole: Whole) {
    if quiet {
        return std::future::pending().await;
    }
    if std::io::stderr().is_terminal() {
        return show_bar(&outcome, &client, &whole).await;
    }
    loop {
        tokio::time::sleep(LINE_INTERVAL).await;
        // Whoever does not listen any more need not stop the transfer.
        writeln!(std::io::stderr(), "{}", line(&outcome, &client, &whole)).ok();
    }
}

async fn show_bar(outcome: &Outcome, client: &Client, whole: &Whole) {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let template = match whole {
        Whole::Unknown => "{spinner} {elapsed_precise} {msg}",
        _ => "{elapsed_precise} [{bar:30}] {percent}% {msg}, {eta} left",
    };
    // The template is ours; if it were wrong the default bar would do.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    let guard = ClearOnDrop(bar);
    loop {
        tokio::time::sleep(BAR_INTERVAL).await;
        match whole {
            Whole::Bytes(length, read) => {
                guard.0.set_length(*length);
                guard.0.set_position(read.load(Ordering::Relaxed));
            }
            Whole::Items(count) => {
                guard.0.set_length(*count);
                guard.0.set_position(outcome.items.load(Ordering::Relaxed).min(*count));
            }
            Whole::Unknown => guard.0.tick(),
        }
        guard.0.set_message(figures(outcome, client));
    }
}

/// The bar goes away when the transfer ends, however it does.
struct ClearOnDrop(ProgressBar);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn figures(outcome: &Outcome, client: &Client) -> String {
    let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
    let (items, bytes, seconds) = (load(&outcome.items), load(&outcome.bytes), outcome.seconds().max(0.001));
    let mut text =
        format!("{items} items, {:.0}/s, {}/s", items as f64 / seconds, size(bytes as f64 / seconds));
    for (count, name) in
        [(load(&outcome.failed), "failed"), (load(&client.statistics.throttled), "waits (429)")]
    {
        if count > 0 {
            text.extend([", ", &count.to_string(), " ", name]);
        }
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn line(outcome: &Outcome, client: &Client, whole: &Whole) -> String {
    let share = match whole {
        Whole::Bytes(length, read) => Some((read.load(Ordering::Relaxed), *length)),
        Whole::Items(count) => Some((outcome.items.load(Ordering::Relaxed), *count)),
        Whole::Unknown => None,
    };
    let share = share.filter(|(_, whole)| *whole > 0);
    let share =
        share.map(|(part, whole)| format!("{:.0} %, ", (part as f64 / whole as f64).min(1.0) * 100.0));
    format!("{:.0} s: {}{}", outcome.seconds(), share.unwrap_or_default(), figures(outcome, client))
}
