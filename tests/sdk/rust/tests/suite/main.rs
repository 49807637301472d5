//! The official Rust client against a running server.

#![allow(clippy::large_futures, reason = "the client's futures are large")]

mod batch;
mod connect;
mod items;
mod partition_keys;
mod patch;
mod query;
mod resources;
mod synthetic_keys;
mod throughput;
