//! The harness of the tests that run the real binary: a server process, a client, commands, and what crash tests share.
//!
//! What lives here: whatever two test binaries need. No assertions about the product beyond "it started" and "it answered".

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, clippy::unwrap_used, clippy::print_stderr, reason = "test code")]

mod client;
mod command;
mod rounds;
mod server;
mod versions;
pub mod windows;

pub use client::{Client, Response};
pub use command::{orrery, path_text, run, run_with_input};
pub use rounds::{Dice, Rounds};
pub use server::{Exit, Server};
pub use versions::{Expected, KnownVersions};

/// The items of the container that [`Client::create_container`] creates.
pub const DOCS: &str = "/dbs/db/colls/c/docs";

/// The longest a test waits for something that should happen soon. Generous, because machines are busy.
pub const TIME_MAX: std::time::Duration = std::time::Duration::from_mins(2);

/// Polls until there is an answer.
pub fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(begun.elapsed() < TIME_MAX, "timed out waiting for {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
