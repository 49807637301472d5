//! Time, randomness and tasks: everything a seed must be able to replay.
//!
//! No other crate calls the operating system for these; `clippy.toml` bans direct calls and names the replacement.
//!
//! * [`Env`] is injected into the database: the calendar clock that drives expiry and budgets, and random bytes.
//!   [`SystemEnv`] is the real one, [`MovableClock`] a clock that an operator or a test moves, [`SeededEnv`] replays.
//! * [`monotonic`] measures durations and deadlines.
//! * [`task`] starts threads and tasks, each with a name, and makes them wait.
//!
//! Left out: timeouts and intervals. They belong to the Tokio runtime, whose clock tests can pause.

#![allow(clippy::disallowed_methods, reason = "this crate is the replacement")]

mod env;
pub mod monotonic;
mod seeded;
mod system;
pub mod task;

pub use env::Env;
pub use seeded::SeededEnv;
pub use system::{ClockReading, MovableClock, SystemEnv};
