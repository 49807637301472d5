//! Stored procedures, triggers and user-defined functions: JavaScript under limits.
//!
//! A script runs in a sandbox of its own: an engine without files, network, modules or timers, whose memory, stack
//! and time are limited before the first line of anything runs. It knows no database. What a script asks of its
//! collection goes, as JSON text, to a [`Host`], which may refuse; the rest of the server-side programming interface
//! is JavaScript itself (`prelude/`).
//!
//! The caller brings the thread: running a script blocks until it has ended or was stopped.

mod function;
mod memory;
mod procedure;
mod sandbox;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use function::{FunctionError, Functions};
pub use procedure::{Invocation, Outcome, Role, run};

/// What a sandbox may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From the first line to the last.
    pub time: Duration,
    /// After so long no further operation is accepted, so that a script can end in order.
    pub accepts: Duration,
    pub memory_bytes: usize,
    pub stack_bytes: usize,
    /// Characters of the response body.
    pub message_characters: usize,
    /// Characters that `console.log` may gather.
    pub log_characters: usize,
}

impl Limits {
    /// The service's.
    pub const TIME: Duration = Duration::from_secs(5);

    /// The service's limits for so much time, of which the last fifth is for ending.
    pub fn for_time(time: Duration) -> Self {
        Self {
            time,
            accepts: time * 4 / 5,
            memory_bytes: 64 << 20,
            stack_bytes: 512 << 10,
            message_characters: 4 << 20,
            log_characters: 16 << 10,
        }
    }
}

/// The other side of a script: what it may ask of the database, and the world's time and chance.
pub trait Host: Send {
    /// Carries out one operation. Both texts are JSON; the answer is
    /// `{"error": null or {"number", "body"}, "body": …, "options": {…}}`. `None` = the script must end.
    fn call(&mut self, operation: &str, payload: &str) -> Option<String>;

    /// Whether there is room for a further operation.
    fn accepts(&self) -> bool;

    /// Milliseconds since 1970 when the script began.
    fn started_at_ms(&self) -> i64;

    fn random(&mut self) -> u64;
}

/// Stops a script from another thread.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Why a script did not end well. All it has done is to be undone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The text is not a function.
    #[error("{0}")]
    Compile(String),
    /// The script threw, or ran out of memory or stack.
    #[error("{text}")]
    Thrown {
        /// What was thrown, as text.
        text: String,
        /// Where, line by line.
        stack: String,
        /// The `number` of the error, if it had one.
        number: u16,
    },
    #[error("the script took too long")]
    TimedOut,
    /// Nobody waits for it any more.
    #[error("the script was cancelled")]
    Cancelled,
    /// The sandbox could not be made.
    #[error("the script engine failed: {0}")]
    Engine(String),
}
