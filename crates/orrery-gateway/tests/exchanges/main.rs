//! Whole exchanges over a socket: what a client sends and what comes back, status, headers and body.
//!
//! The exchanges are text, one file per area, in the form that `script` describes. Formats that are not text
//! (binary JSON, HybridRow) are in `binary`.

#![allow(unreachable_pub, reason = "a test binary has no outside")]
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests")]

mod binary;
mod client;
mod direct;
mod gateway_v2;
mod hostile;
mod rights;
mod script;
mod server;

use script::{run, run_advertising, run_direct, run_gateway_v2, run_with_controls};

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
    addresses,
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
    previous_images,
    script_rights,
    procedures,
    queries,
    scripts,
    sessions,
    strong_consistency,
    triggers,
    unsupported
);

/// Behind a mapped port clients must be told the address that leads there.
#[tokio::test]
async fn advertised_address() {
    let expected = r#"{"writableLocations":[{"databaseAccountEndpoint":"https://localhost:9000/"}],"readableLocations":[{"databaseAccountEndpoint":"https://localhost:9000/"}]}"#;
    run_advertising("https://localhost:9000/", &format!("> GET /\n< 200\n< {expected}\n")).await;
}

macro_rules! framed_exchanges {
    ($($name:ident),+) => {
        mod over_direct_mode {
            use super::run_direct;
            $(
                #[tokio::test]
                async fn $name() {
                    run_direct(include_str!(concat!(stringify!($name), ".txt"))).await;
                }
            )+
        }

        mod over_gateway_v2 {
            use super::run_gateway_v2;
            $(
                #[tokio::test]
                async fn $name() {
                    run_gateway_v2(include_str!(concat!(stringify!($name), ".txt"))).await;
                }
            )+
        }
    };
}

framed_exchanges!(
    all_versions,
    authorization,
    batches,
    bounded_staleness,
    change_feed,
    errors,
    feeds,
    items,
    permissions,
    procedures,
    queries,
    script_rights,
    sessions,
    strong_consistency,
    triggers
);

#[tokio::test]
async fn faults() {
    run_with_controls(include_str!("faults.txt")).await;
}
