//! The HTTP gateway: the Cosmos DB wire protocol, in and out.
//!
//! Only this crate knows HTTP, headers and status codes. `transport` turns bytes on a port into requests,
//! `auth` says who is asking, `wire` reads and writes the binary body formats.

pub mod auth;
pub mod metrics;
pub mod transport;
pub mod wire;
