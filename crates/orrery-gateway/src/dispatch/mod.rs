//! Maps an authorised request to the database method that handles it.
//!
//! Extracts arguments from headers and body, and converts the outcome into a reply. All decisions are the database's.

mod items;
mod resources;
mod scripts;

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use orrery_db::Database;

use crate::consistency::AccountConsistency;
use crate::headers;
use crate::memory::MemoryBudget;
use crate::operation::Verb;
use crate::options::{CrossPartitionQueries, PortEndpoint};
use crate::path::Path;
use crate::transport::ConnectionInfo;

/// The largest request body: an item, or a whole batch.
pub(crate) const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// An authenticated request with its body.
pub(crate) struct Call<'a> {
    pub database: &'a Arc<Database>,
    pub parts: &'a Parts,
    pub verb: Verb,
    pub path: &'a Path,
    pub body: Bytes,
    pub connection: ConnectionInfo,
    pub cross_partition_queries: CrossPartitionQueries,
    pub activity_id: &'a str,
    pub consistency: AccountConsistency,
    pub memory: &'a MemoryBudget,
    /// The address in the account document, if not the one that the client used.
    pub advertised: Option<&'a str>,
    pub direct: Option<&'a PortEndpoint>,
    pub gateway_v2: Option<&'a PortEndpoint>,
}

/// The host in the request: HTTP/2 has it in the URL, HTTP/1.1 in a header.
fn host(parts: &Parts) -> Option<&str> {
    let host = parts.uri.authority().map(http::uri::Authority::as_str);
    host.or_else(|| headers::non_empty(&parts.headers, "host"))
}

/// Scheme and host of the request.
pub(crate) fn origin(parts: &Parts, connection: &ConnectionInfo) -> Option<String> {
    let host = host(parts)?;
    let scheme = if connection.tls { "https" } else { "http" };
    Some(format!("{scheme}://{host}"))
}
