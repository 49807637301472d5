//! The `orrery` binary: parses the command line, runs one command, and turns every failure into one sentence and an
//! exit code.
//!
//! Exit codes: 0 success, 1 not found or refused, 2 bad usage, 3 internal error.
//!
//! Modules depend on each other in one direction only: `commands` → `serve` → `transfer` → `client` → `io` → `failure`.
//! A test of the workspace checks it.

mod client;
mod commands;
mod failure;
mod io;
mod serve;
mod transfer;

use std::io::Write;
use std::process::ExitCode;

use failure::Failure;

/// Requests are allocated and freed on different threads, which the system allocator is slow at (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The panic hook has printed the message by then; only the exit code is missing.
    let result = std::panic::catch_unwind(commands::run)
        .unwrap_or_else(|_| Err(Failure::internal("internal error (this is a bug)")));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = &failure.message {
                // If standard error is closed, the exit code still reports the failure.
                writeln!(std::io::stderr(), "orrery: {message}").ok();
            }
            if let Some(detail) = &failure.detail {
                writeln!(std::io::stderr(), "{}", detail.trim_end()).ok();
            }
            ExitCode::from(failure.exit_code)
        }
    }
}
