//! The store on PostgreSQL: the conformance suite, and what only it has to do.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

#[macro_use]
mod suite;

use std::sync::Arc;

use orrery_storage::{Limits, PartitionStore, Postgres, PostgresOptions};

use crate::suite::Subject;

fn open(url: &str, limits: Limits) -> Arc<dyn PartitionStore> {
    let mut options = PostgresOptions::parse(url).unwrap();
    options.limits = limits;
    options.connections_max = 6;
    let opening = async move { Postgres::open(options).await.unwrap() };
    Arc::new(tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(opening)))
}

fn postgres(limits: Limits) -> Subject {
    let url = orrery_testing::fresh_store_url();
    let store = open(&url, limits);
    Subject { store, reopen: Some(Box::new(move || open(&url, limits))), keep: Box::new(()) }
}

conformance!(postgres_store, postgres);
