//! Direct mode: the protocol that the .NET and Java clients speak by default, frames over TLS on a port of its own.
//!
//! One connection carries many requests at once, whose responses come in any order. A frame becomes the request that HTTP
//! would have carried (`request`), the gateway's pipeline answers it, and the answer becomes a frame (`response`):
//! what a request means is decided in one place, for both ways. Where the port is, clients learn from the addresses of a
//! container's partitions (`crate::addresses`).
//!
//! Clients may be slow, broken or hostile here too. Lengths are checked before anything is kept for them; who has not
//! shown a valid signature yet gets a place in the `lobby` only, and no memory for large payloads; requests in flight on
//! a connection, and the time for a frame, are bounded; everything else is bounded by the pipeline.

mod connection;
mod frame;
mod lobby;
mod request;
mod response;
mod server;
mod token;

pub use frame::{MalformedFrame, RequestFrame};
pub use request::DirectRequest;
pub use server::DirectServer;
