//! The harness of the tests that run the real binary: a server process, a client, commands, and what crash tests share.
//!
//! What lives here: whatever two test binaries need. No assertions about the product beyond "it started" and "it answered".

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, clippy::unwrap_used, clippy::print_stderr, reason = "test code")]
#![allow(clippy::disallowed_methods, reason = "a test is not replayed")]

mod client;
mod command;
mod rounds;
mod server;
mod versions;
pub mod windows;

pub use client::{Client, Response};
pub use command::{orrery, path_text, run, run_with_input};
pub use orrery_testing::wait::{TIME_MAX, pause, until, until_within};
pub use rounds::{Crew, Dice, Rounds};
pub use server::{Exit, Server};
pub use versions::{Expected, KnownVersions};

/// The items of the container that [`Client::create_container`] creates.
pub const DOCS: &str = "/dbs/db/colls/c/docs";
