//! Stored procedures, triggers and user-defined functions: JavaScript with limits.
//!
//! Every script runs in its own sandbox: an engine without files, network, modules or timers, whose memory, stack and
//! time are limited before any code runs in it. This crate knows no database. What a script requests from its collection
//! goes to a [`Host`] as JSON text, and the host may refuse; the rest of the server-side API is JavaScript itself
//! (`prelude/`).
//!
//! The caller provides the thread: running a script blocks until it has finished or was stopped. Left out: scheduling and
//! transactions, which are the database's part (`docs/design/0007-script-transactions.md`).

mod function;
mod memory;
mod procedure;
mod sandbox;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use function::{FunctionError, Functions};
pub use procedure::{Invocation, Outcome, Role, run};

/// The resources a sandbox may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Total run time.
    pub time: Duration,
    /// After this time no further operation is accepted, so that a script can finish in an orderly way.
    pub accepts: Duration,
    pub memory_bytes: usize,
    pub stack_bytes: usize,
    /// Maximum length of the response body, in characters.
    pub message_characters: usize,
    /// Maximum length of the output of `console.log`, in characters.
    pub log_characters: usize,
}

impl Limits {
    /// The time limit of the service.
    pub const TIME: Duration = Duration::from_secs(5);

    /// The service's limits with this time limit, the last fifth of which is reserved for finishing.
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

/// What a script may use of its environment: operations on the database, the clock and the RNG.
pub trait Host: Send {
    /// Executes one operation. Arguments and result are JSON; the result is
    /// `{"error": null or {"number", "body"}, "body": …, "options": {…}}`. `None` = the script must stop.
    fn call(&mut self, operation: &str, payload: &str) -> Option<String>;

    /// Whether the transaction can take another operation.
    fn accepts(&self) -> bool;

    /// When the script started, in milliseconds since 1970.
    fn started_at_ms(&self) -> i64;

    /// Random bits, for `Math.random` and new ids.
    fn random(&mut self) -> u64;
}

/// Stops a script from another thread.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Makes the script stop at its next check.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether [`Cancellation::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Why a script failed. The caller must roll back everything it did.
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
        /// The stack trace.
        stack: String,
        /// The `number` of the error, if it had one.
        number: u16,
    },
    /// It exceeded [`Limits::time`].
    #[error("the script took too long")]
    TimedOut,
    /// The request was abandoned.
    #[error("the script was cancelled")]
    Cancelled,
    /// The sandbox could not be created.
    #[error("the script engine failed: {0}")]
    Engine(String),
}
