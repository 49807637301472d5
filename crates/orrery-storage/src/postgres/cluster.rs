//! Routes requests to the nodes of the database: one server, or a Citus cluster in which each partition is on one node.
//!
//! On Citus any node answers any statement, so a stale route costs time, never correctness. Routes are looked up once,
//! cached for half a minute, and dropped when a connection is lost. A partition whose owner is unreachable is served
//! through the node in the URL or, failing that, through any other. A route that cannot be looked up stays as it is, so
//! losing the coordinator stops no traffic.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use orrery_env::monotonic;

use super::key;
use super::options::PostgresOptions;
use super::pool::{Node, Session};
use super::server_error::ServerError;
use super::tls::Tls;
use crate::contract::PartitionId;

/// How long a route is cached.
const ROUTE_AGE_MAX: Duration = Duration::from_secs(30);
/// How long an unreachable owner is bypassed.
const DETOUR_AGE_MAX: Duration = Duration::from_secs(3);

/// Finds the node that owns a partition's shard.
const OWNER: &str = "SELECT n.nodename, n.nodeport FROM pg_dist_placement p \
     JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary' \
     WHERE p.shardid = get_shard_id_for_distribution_column('part', $1::int) AND p.shardstate = 1 LIMIT 1";

/// Lists the nodes that answer statements on any partition.
const NODES: &str = "SELECT nodename, nodeport FROM pg_dist_node \
     WHERE noderole = 'primary' AND isactive AND hasmetadata AND metadatasynced ORDER BY nodeid";

/// Host name and port of a node, as the cluster's metadata has them.
type NodeAddress = (String, u16);

pub(super) struct Cluster {
    main: Arc<Node>,
    /// Only on Citus.
    routing: Option<Routing>,
}

struct Routing {
    options: PostgresOptions,
    tls: Option<Tls>,
    nodes: Mutex<BTreeMap<NodeAddress, Arc<Node>>>,
    nodes_listed: Mutex<Option<Instant>>,
    routes: Mutex<HashMap<PartitionId, Route>>,
}

struct Route {
    node: Arc<Node>,
    until: Instant,
}

impl Cluster {
    pub(super) fn new(main: Node, options: &PostgresOptions, tls: Option<Tls>, citus: bool) -> Self {
        let routing = citus.then(|| Routing {
            options: options.clone(),
            tls,
            nodes: Mutex::default(),
            nodes_listed: Mutex::default(),
            routes: Mutex::default(),
        });
        Self { main: Arc::new(main), routing }
    }

    /// The node in the URL, for statements that do not concern one partition.
    pub(super) fn main(&self) -> &Arc<Node> {
        &self.main
    }

    pub(super) fn is_citus(&self) -> bool {
        self.routing.is_some()
    }

    /// The partition's owner, or the node in the URL if the owner is unknown or unreachable.
    pub(super) async fn node_of(&self, partition: PartitionId) -> Arc<Node> {
        let Some(routing) = &self.routing else { return Arc::clone(&self.main) };
        if let Some(route) = routing.routes.lock().get_mut(&partition) {
            let is_old = monotonic::now() >= route.until;
            if !is_old && !route.node.is_down() {
                return Arc::clone(&route.node);
            }
            // One request looks the route up; the others use the old one in the meantime.
            if is_old {
                route.until = monotonic::now() + DETOUR_AGE_MAX;
            }
        }
        // The lock is not held during the look-up, which takes a round trip.
        let (node, age_max) = match routing.look_up(&self.main, partition).await {
            Ok(Some(node)) => (node, ROUTE_AGE_MAX),
            // The owner is not reachable from here. Any other node forwards the statements; soon look again.
            Ok(None) => (self.any_but(None), DETOUR_AGE_MAX),
            Err(fault) => {
                // Nobody could be asked. The known route is most likely still right.
                tracing::debug!(reason = fault.text(), "cannot look up the owner of a partition");
                let known = routing.routes.lock().get(&partition).map(|route| Arc::clone(&route.node));
                let node = known.filter(|node| !node.is_down()).unwrap_or_else(|| self.any_but(None));
                (node, DETOUR_AGE_MAX)
            }
        };
        let route = Route { node: Arc::clone(&node), until: monotonic::now() + age_max };
        routing.routes.lock().insert(partition, route);
        node
    }

    /// A connection to the partition's owner, or to any node that can reach it.
    pub(super) async fn session(&self, partition: PartitionId) -> Result<Session, ServerError> {
        self.session_by(partition, async |node| node.session().await).await
    }

    /// Like `session`, for a transaction that writes.
    pub(super) async fn writing_session(&self, partition: PartitionId) -> Result<Session, ServerError> {
        self.session_by(partition, async |node| node.writing_session().await).await
    }

    async fn session_by(
        &self,
        partition: PartitionId,
        take: impl AsyncFn(&Node) -> Result<Session, ServerError>,
    ) -> Result<Session, ServerError> {
        let node = self.node_of(partition).await;
        let failed = match take(&node).await {
            Ok(session) => return Ok(session),
            Err(fault) => fault,
        };
        if self.routing.is_none() || !node.is_down() {
            return Err(failed);
        }
        // The owner has just become unreachable: go through another node instead of failing the request.
        self.forget(partition);
        let other = self.any_but(Some(&node));
        // No other node is up: report the first error rather than waiting for the same node again.
        if Arc::ptr_eq(&other, &node) { Err(failed) } else { take(&other).await }
    }

    /// The node in the URL, or another one while it is down.
    fn any_but(&self, not: Option<&Arc<Node>>) -> Arc<Node> {
        let usable = |node: &&Arc<Node>| !node.is_down() && not.is_none_or(|not| !Arc::ptr_eq(not, node));
        if usable(&&self.main) {
            return Arc::clone(&self.main);
        }
        let Some(routing) = &self.routing else { return Arc::clone(&self.main) };
        let nodes = routing.nodes.lock();
        Arc::clone(nodes.values().find(usable).unwrap_or(&self.main))
    }

    /// Invalidates a route, so that its next use looks it up again.
    pub(super) fn forget(&self, partition: PartitionId) {
        if let Some(routing) = &self.routing
            && let Some(route) = routing.routes.lock().get_mut(&partition)
        {
            // Kept, but expired: if the look-up fails, the old route still serves.
            route.until = monotonic::now();
        }
    }

    /// Drops the route of a destroyed partition.
    pub(super) fn remove(&self, partition: PartitionId) {
        if let Some(routing) = &self.routing {
            routing.routes.lock().remove(&partition);
        }
    }

    pub(super) fn close(&self) {
        self.main.close();
        for node in self.routing.iter().flat_map(|routing| {
            let nodes: Vec<_> = routing.nodes.lock().values().cloned().collect();
            nodes
        }) {
            node.close();
        }
    }
}

impl Routing {
    async fn look_up(
        &self,
        main: &Arc<Node>,
        partition: PartitionId,
    ) -> Result<Option<Arc<Node>>, ServerError> {
        let session = self.metadata_session(main).await?;
        self.list_nodes(&session).await?;
        let rows = session.query(OWNER, &[&key::column(partition)]).await?;
        session.release();
        let Some(row) = rows.first() else { return Ok(None) };
        let node = self.node(row.get(0), row.get(1))?;
        // A node that is unreachable from here must not make its partitions unavailable.
        if node.is_down() {
            return Ok(None);
        }
        // Citus names its nodes by addresses of its own network, which this machine may not reach.
        match node.session().await {
            Ok(session) => session.release(),
            Err(fault) => {
                tracing::warn!(
                    node = row.get::<_, String>(0),
                    reason = fault.text(),
                    "a cluster node is not reachable directly; requests go through another one"
                );
                return Ok(None);
            }
        }
        Ok(Some(node))
    }

    /// A connection for reading the cluster's metadata: to the node in the URL, or to any other.
    async fn metadata_session(&self, main: &Arc<Node>) -> Result<Session, ServerError> {
        let mut failed = None;
        let others: Vec<Arc<Node>> = self.nodes.lock().values().cloned().collect();
        // Reachable nodes first. If all are marked as down, try one anyway: the mark may be stale.
        let (up, down): (Vec<_>, Vec<_>) =
            std::iter::once(Arc::clone(main)).chain(others).partition(|node| !node.is_down());
        for node in up.into_iter().chain(down.into_iter().take(1)) {
            match node.session().await {
                Ok(session) => return Ok(session),
                Err(fault) => failed = Some(fault),
            }
        }
        Err(failed.unwrap_or_else(|| ServerError::Lost("no cluster node is reachable".to_owned())))
    }

    /// Refreshes the list of nodes, at most now and then.
    async fn list_nodes(&self, session: &Session) -> Result<(), ServerError> {
        if self.nodes_listed.lock().is_some_and(|listed| monotonic::elapsed(listed) < ROUTE_AGE_MAX) {
            return Ok(());
        }
        let rows = session.query(NODES, &[]).await?;
        *self.nodes_listed.lock() = Some(monotonic::now());
        let mut listed = Vec::new();
        for row in &rows {
            let place: (String, i32) = (row.get(0), row.get(1));
            self.node(place.0.clone(), place.1)?;
            listed.push(place);
        }
        // Nodes that have left the cluster are closed with their last user.
        self.nodes.lock().retain(|(host, port), _| {
            listed.iter().any(|(name, number)| name == host && *number == i32::from(*port))
        });
        Ok(())
    }

    fn node(&self, host: String, port: i32) -> Result<Arc<Node>, ServerError> {
        let port =
            u16::try_from(port).map_err(|_| ServerError::Permanent("a node has no port".to_owned()))?;
        let place = (host, port);
        let known = self.nodes.lock().get(&place).cloned();
        if let Some(node) = known {
            return Ok(node);
        }
        let config = self.options.at_node(&place.0, port);
        let node = Node::new(&config, &self.options, self.tls.as_ref()).map_err(ServerError::Permanent)?;
        // Another request may have added it in the meantime; then its connections are used.
        Ok(Arc::clone(self.nodes.lock().entry(place).or_insert(Arc::new(node))))
    }
}
