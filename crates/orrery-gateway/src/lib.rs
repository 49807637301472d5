//! The HTTP gateway: the Cosmos DB wire protocol, in and out.
//!
//! Only this crate knows HTTP, headers and status codes. `transport` turns bytes on a port into requests,
//! `auth` says who is asking, `path` and `operation` decide what is asked, `service` answers it, `wire` reads and
//! writes the body formats.

mod account;
mod admin;
pub mod auth;
mod consistency;
mod controls;
mod explain;
mod faults;
pub mod headers;
pub mod metrics;
pub mod operation;
mod partition_metrics;
pub mod path;
mod recording;
mod reply;
mod service;
mod synthetic;
pub mod transport;
pub mod wire;

pub use consistency::{AccountConsistency, ConsistencyLevel};
pub use service::{CrossPartitionQueries, Gateway, GatewayOptions};
