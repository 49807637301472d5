//! What the gateway needs besides the database.

use std::sync::Arc;

use orrery_db::{ClientMerge, Database, Features, MovableClock, SystemEnv};
use orrery_env::Env;

use crate::auth::{AuthOptions, KeyRing};
use crate::consistency::AccountConsistency;
use crate::hosts::HostPolicy;
use crate::memory::MemoryBudget;
use crate::metrics::Metrics;
use crate::observation::ObservationOptions;
use crate::transport::certificate::CurrentCertificate;

/// Settings and services of the gateway, apart from the database.
pub struct GatewayOptions {
    pub keys: Arc<KeyRing>,
    pub auth: AuthOptions,
    pub metrics: Arc<Metrics>,
    /// The server's certificate, for download.
    pub certificate: Option<Arc<CurrentCertificate>>,
    /// The account's default consistency.
    pub consistency: AccountConsistency,
    /// The address in the account document, with a trailing slash; by default the one that the client used.
    pub advertised: Option<String>,
    /// A clock that operators may move; only for tests.
    pub clock: Option<Arc<MovableClock>>,
    pub cross_partition_queries: CrossPartitionQueries,
    /// The accepted host names and web origins.
    pub hosts: HostPolicy,
    /// The memory budget of all requests.
    pub memory: MemoryBudget,
    /// Where direct mode is served, if it is.
    pub direct: Option<PortEndpoint>,
    /// Where Gateway 2.0 is served, if it is.
    pub gateway_v2: Option<PortEndpoint>,
    pub observation: ObservationOptions,
}

/// How clients reach a port besides the gateway's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortEndpoint {
    pub port: u16,
    /// The host, and optionally port, for clients to use instead of the one by which they reached the gateway.
    pub advertised: Option<String>,
}

impl PortEndpoint {
    /// Host and port for a client that has used this host, with or without a port, for the gateway.
    pub(crate) fn authority(&self, host: &str) -> String {
        let host = match &self.advertised {
            Some(advertised) if port_of(advertised).is_some() => return advertised.clone(),
            Some(advertised) => advertised,
            None => host,
        };
        // The host is the one that the client reached, its port that of the gateway.
        let host = match port_of(host) {
            Some(port) => &host[..host.len() - port.len() - 1],
            None => host,
        };
        format!("{host}:{}", self.port)
    }
}

/// The port at the end of a host. Colons inside brackets belong to an address.
fn port_of(host: &str) -> Option<&str> {
    // An IPv6 address ends with its bracket, so what follows its last colon is not only digits.
    let (_, port) = host.rsplit_once(':')?;
    (!port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())).then_some(port)
}

/// Who merges cross-partition queries that sort, group, aggregate or limit rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrossPartitionQueries {
    /// Always the server.
    Merge,
    /// Each client that can; the server for the others.
    #[default]
    Auto,
    /// The client, always, as with the service.
    Plan,
}

/// What clients can merge that send a query first and ask for a plan when it is refused (400, sub-status 1004), by
/// their user agents. They list these features only when they ask for the plan. The other official clients either plan
/// first, and name ranges from then on, or cannot merge. The JavaScript client would merge, but loses rows (DISTINCT with
/// ORDER BY drops 0) and aggregates mixed types wrongly, so the server merges for it.
const MERGING_CLIENTS: &[(&str, &str)] = &[(
    "azsdk-python-cosmos",
    "Aggregate,CompositeAggregate,Distinct,MultipleOrderBy,OffsetAndLimit,OrderBy,Top,NonStreamingOrderBy,HybridSearch,CountIf,WeightedRankFusion",
)];

impl CrossPartitionQueries {
    /// Which queries the client with this name is asked to merge; a client may also say what it can merge.
    pub(crate) fn client_merge(self, user_agent: Option<&str>, features: Option<&str>) -> ClientMerge {
        let known = || {
            let agent = user_agent?;
            MERGING_CLIENTS.iter().find(|(name, _)| agent.contains(name)).map(|(_, features)| *features)
        };
        match self {
            Self::Plan => ClientMerge::Always,
            Self::Merge => ClientMerge::Never,
            // What a client says about itself wins over what is known of its name.
            Self::Auto => features
                .or_else(known)
                .map_or(ClientMerge::Never, |features| ClientMerge::With(Features::parse(features))),
        }
    }

    /// Whether to answer for ranges that are gone: this client would ask the ones it knows again, and repeat rows.
    pub(crate) fn serves_gone_ranges(self, user_agent: Option<&str>) -> bool {
        self == Self::Auto && user_agent.is_some_and(|agent| agent.starts_with("azsdk-python-cosmos"))
    }
}

impl GatewayOptions {
    /// The real time, for checking signature dates: clients do not follow a moved clock.
    pub(crate) fn signing_seconds(&self, database: &Database) -> i64 {
        if self.clock.is_some() { SystemEnv.now_seconds() } else { database.env().now_seconds() }
    }
}
