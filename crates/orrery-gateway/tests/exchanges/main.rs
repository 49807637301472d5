//! Whole exchanges over a socket: what a client sends and what comes back, status, headers and body.
//!
//! The exchanges are text, one file per area, in the form that `script` describes. Formats that are not text
//! (binary JSON, HybridRow) are in `binary`.

#![allow(unreachable_pub, reason = "a test binary has no outside")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod binary;
mod client;
mod rights;
mod script;
mod server;

use script::{run, run_with_controls};

macro_rules! exchanges {
    ($($name:ident),+) => {
        $(
            #[tokio::test]
            async fn $name() {
                run(include_str!(concat!(stringify!($name), ".txt"))).await;
            }
        )+
    };
}

exchanges!(
    account,
    all_versions,
    authorization,
    batches,
    bounded_staleness,
    change_feed,
    containers,
    databases,
    encryption_keys,
    errors,
    feeds,
    hosts,
    items,
    offers,
    permissions,
    script_rights,
    procedures,
    queries,
    scripts,
    sessions,
    strong_consistency,
    triggers,
    unsupported
);

#[tokio::test]
async fn faults() {
    run_with_controls(include_str!("faults.txt")).await;
}
