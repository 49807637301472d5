//! Direct mode: the default protocol of the .NET and Java clients, frames over TLS on a separate port.
//!
//! One connection carries many requests at once, whose responses come in any order. A frame is converted into the
//! equivalent HTTP request (`request`), handled by the gateway's pipeline, and the response converted into a frame
//! (`response`), so requests are interpreted in one place for both transports. Clients learn the port from the address
//! feed (`crate::addresses`). Gateway 2.0 (`gateway_v2`) carries the same frames in HTTP/2 requests.
//!
//! Clients may be slow, broken or hostile here too. Lengths are checked before anything is allocated; unauthenticated
//! clients are limited to a place in the `lobby` and get no memory for large payloads; requests in flight per
//! connection and the time for a frame are bounded; everything else is bounded by the pipeline.

mod connection;
mod frame;
mod gateway_v2;
mod lobby;
mod request;
mod response;
mod server;
mod token;

pub use frame::{MalformedFrame, RequestFrame};
pub use gateway_v2::GatewayV2;
pub use request::DirectRequest;
pub use server::DirectServer;
