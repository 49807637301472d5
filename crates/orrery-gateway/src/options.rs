//! What the gateway needs besides the database.

use std::sync::Arc;

use orrery_db::{ClientMerge, Database, MovableClock, SystemEnv};
use orrery_env::Env;

use crate::auth::{AccountKeys, AuthOptions};
use crate::consistency::AccountConsistency;
use crate::hosts::HostPolicy;
use crate::memory::MemoryBudget;
use crate::metrics::Metrics;

/// What the gateway needs besides the database.
pub struct GatewayOptions {
    pub keys: AccountKeys,
    pub auth: AuthOptions,
    pub metrics: Arc<Metrics>,
    /// The server's certificate, for download.
    pub certificate_pem: Option<String>,
    /// What the account promises its readers.
    pub consistency: AccountConsistency,
    /// The address that the account document names, with a slash at its end; by default the one that a client used.
    pub advertised: Option<String>,
    /// A clock that operators may move; only for tests.
    pub clock: Option<Arc<MovableClock>>,
    pub cross_partition_queries: CrossPartitionQueries,
    /// Under which names the server answers, and to which web pages.
    pub hosts: HostPolicy,
    /// What all requests may use of the memory together.
    pub memory: MemoryBudget,
    /// Where direct mode is served, if it is.
    pub direct: Option<DirectEndpoint>,
}

/// Where clients reach direct mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectEndpoint {
    pub port: u16,
    /// The host, with or without a port, that clients are to use instead of the one by which they reached the gateway.
    pub advertised: Option<String>,
}

impl DirectEndpoint {
    /// Host and port for a client that has used this host, with or without a port, for the gateway.
    pub(crate) fn authority(&self, host: &str) -> String {
        let host = match &self.advertised {
            Some(advertised) if port_of(advertised).is_some() => return advertised.clone(),
            Some(advertised) => advertised,
            None => host,
        };
        let host = match port_of(host) {
            Some(port) => &host[..host.len() - port.len() - 1],
            None => host,
        };
        format!("{host}:{}", self.port)
    }
}

/// The port at the end of a host. Colons inside brackets belong to an address.
fn port_of(host: &str) -> Option<&str> {
    let (_, port) = host.rsplit_once(':')?;
    (!port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())).then_some(port)
}

/// Who merges the rows of queries over several keys that are sorted, grouped, counted or cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrossPartitionQueries {
    /// The server, for everybody.
    Merge,
    /// The server; but clients that are known to ask for a plan are told to, where their merge is sure to be right.
    #[default]
    Auto,
    /// The client, always, as with the service.
    Plan,
}

impl CrossPartitionQueries {
    /// Whether a client is known to plan and merge when it is told to, and to need no more than that. The Python
    /// client is: its tests expect it to have asked for the ranges by then.
    pub(crate) fn follows(self, user_agent: Option<&str>) -> bool {
        self == Self::Auto && user_agent.is_some_and(|agent| agent.starts_with("azsdk-python-cosmos"))
    }

    pub(crate) fn client_merge(self, follows: bool) -> ClientMerge {
        match self {
            Self::Plan => ClientMerge::Always,
            Self::Auto if follows => ClientMerge::WhereSure,
            Self::Auto | Self::Merge => ClientMerge::Never,
        }
    }
}

impl GatewayOptions {
    /// The time that dates of signatures are compared with: clients do not follow a clock that was moved.
    pub(crate) fn signing_seconds(&self, database: &Database) -> i64 {
        if self.clock.is_some() { SystemEnv.now_seconds() } else { database.env().now_seconds() }
    }
}
