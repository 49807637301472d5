//! The database as its callers see it, on the stores of this process.
//!
//! Most tests are scripts (see `common::script`): a container, a list of steps, and what each must answer.

#![allow(clippy::disallowed_methods, reason = "a test is not replayed")]
#![allow(unreachable_pub, clippy::unwrap_used, reason = "a test binary has no outside")]

mod common;

mod all_versions;
mod background;
mod batches;
mod change_feed;
mod charges;
mod containers;
mod counters;
mod exactly_once;
mod feeds;
mod guide;
mod insertion_order;
mod items;
mod lifetimes;
mod model;
mod offers;
mod parallel;
mod permissions;
mod purges;
mod queries;
mod repartition;
mod reshaping;
mod scripts;
mod sessions;
mod slow_queries;
mod splits;
mod synthetic;
mod synthetic_versions;
mod throughput;
mod unique_keys;
