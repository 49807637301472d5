//! The HTTP gateway: the Cosmos DB wire protocol, in and out.
//!
//! Only this crate knows HTTP, headers and status codes. `transport` turns bytes on a port into requests, `direct` does
//! the same for the protocol of direct mode, `pipeline` handles a request in named steps, `dispatch` calls the
//! database, `wire` reads and writes the body formats, `admin` is Orrery's own API under `/_orrery`, `explorer` the web
//! page.

mod account;
mod addresses;
mod admin;
pub mod auth;
mod consistency;
mod container_metrics;
pub mod direct;
mod dispatch;
pub mod durable_file;
mod explorer;
mod faults;
pub mod headers;
mod hosts;
pub mod memory;
pub mod metrics;
mod observation;
pub mod operation;
mod options;
pub mod path;
mod pipeline;
mod recorder;
mod refusal;
mod reply;
mod rights;
pub mod transport;
pub mod wire;

pub use consistency::{AccountConsistency, ConsistencyLevel};
pub use hosts::{HostPolicy, InvalidHost};
pub use observation::ObservationOptions;
pub use options::{CrossPartitionQueries, GatewayOptions, PortEndpoint};
pub use pipeline::Gateway;
