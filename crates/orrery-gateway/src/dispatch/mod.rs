//! From a request that may pass to the verb of the database that answers it.
//!
//! What may live here: reading what a verb needs out of headers and body, and writing its outcome as a reply. Nothing is
//! decided here that the database decides.

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
use crate::options::{CrossPartitionQueries, DirectEndpoint};
use crate::path::Path;
use crate::transport::ConnectionInfo;

/// The largest request body: an item, or a whole batch.
pub(crate) const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A request whose caller is known and whose body is read.
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
    /// The address that the account document names, if not the one that the client used.
    pub advertised: Option<&'a str>,
    pub direct: Option<&'a DirectEndpoint>,
}

/// The host as the client named it: HTTP/2 has it in the URL, HTTP/1.1 in a header.
fn host(parts: &Parts) -> Option<&str> {
    let host = parts.uri.authority().map(http::uri::Authority::as_str);
    host.or_else(|| headers::non_empty(&parts.headers, "host"))
}

/// Scheme and host as the client named them.
pub(crate) fn origin(parts: &Parts, connection: &ConnectionInfo) -> Option<String> {
    let host = host(parts)?;
    let scheme = if connection.tls { "https" } else { "http" };
    Some(format!("{scheme}://{host}"))
}
