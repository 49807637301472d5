//! The nodes of the database: one server, or a Citus cluster in which each partition lies on one of several.
//!
//! On Citus any node answers any statement, so a wrong route is slow, never wrong. Routes are looked up once,
//! kept for half a minute, and forgotten when a connection is lost. A partition whose owner cannot be reached
//! is served through the node of the URL or, without that, through any other; a route that cannot be looked
//! up stays as it was, so that the loss of the coordinator stops no traffic.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::fault::Fault;
use super::key;
use super::options::PostgresOptions;
use super::pool::{Node, Session};
use super::tls::Tls;
use crate::contract::PartitionId;

/// How long a route is believed.
const ROUTE_AGE_MAX: Duration = Duration::from_secs(30);
/// How long a way round an owner that cannot be reached is taken.
const DETOUR_AGE_MAX: Duration = Duration::from_secs(3);

/// Who owns a partition's shard.
const OWNER: &str = "SELECT n.nodename, n.nodeport FROM pg_dist_placement p \
     JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary' \
     WHERE p.shardid = get_shard_id_for_distribution_column('part', $1::int) AND p.shardstate = 1 LIMIT 1";

/// All that answer statements on any partition.
const NODES: &str = "SELECT nodename, nodeport FROM pg_dist_node \
     WHERE noderole = 'primary' AND isactive AND hasmetadata AND metadatasynced ORDER BY nodeid";

/// The name and port of a node, as the cluster knows it.
type Place = (String, u16);

pub(super) struct Cluster {
    main: Arc<Node>,
    /// Only on Citus.
    routing: Option<Routing>,
}

struct Routing {
    options: PostgresOptions,
    tls: Option<Tls>,
    nodes: Mutex<BTreeMap<Place, Arc<Node>>>,
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

    /// The node of the URL, for what is not about one partition.
    pub(super) fn main(&self) -> &Arc<Node> {
        &self.main
    }

    pub(super) fn is_citus(&self) -> bool {
        self.routing.is_some()
    }

    /// The node that has the partition; the one of the URL if that cannot be told or reached.
    pub(super) async fn node_of(&self, partition: PartitionId) -> Arc<Node> {
        let Some(routing) = &self.routing else { return Arc::clone(&self.main) };
        if let Some(route) = routing.routes.lock().get_mut(&partition) {
            let is_old = Instant::now() >= route.until;
            if !is_old && !route.node.is_down() {
                return Arc::clone(&route.node);
            }
            // One looks it up; the others go the old way meanwhile.
            if is_old {
                route.until = Instant::now() + DETOUR_AGE_MAX;
            }
        }
        let (node, age_max) = match routing.look_up(&self.main, partition).await {
            Ok(Some(node)) => (node, ROUTE_AGE_MAX),
            Ok(None) => (self.any_but(None), DETOUR_AGE_MAX),
            Err(fault) => {
                tracing::debug!(reason = fault.text(), "the owner of a partition is not known");
                let known = routing.routes.lock().get(&partition).map(|route| Arc::clone(&route.node));
                let node = known.filter(|node| !node.is_down()).unwrap_or_else(|| self.any_but(None));
                (node, DETOUR_AGE_MAX)
            }
        };
        let route = Route { node: Arc::clone(&node), until: Instant::now() + age_max };
        routing.routes.lock().insert(partition, route);
        node
    }

    /// A connection to the node that has the partition, or to any that can reach it.
    pub(super) async fn session(&self, partition: PartitionId) -> Result<Session, Fault> {
        self.session_by(partition, async |node| node.session().await).await
    }

    /// The same for a transaction that writes.
    pub(super) async fn writing_session(&self, partition: PartitionId) -> Result<Session, Fault> {
        self.session_by(partition, async |node| node.writing_session().await).await
    }

    async fn session_by(
        &self,
        partition: PartitionId,
        take: impl AsyncFn(&Node) -> Result<Session, Fault>,
    ) -> Result<Session, Fault> {
        let node = self.node_of(partition).await;
        let failed = match take(&node).await {
            Ok(session) => return Ok(session),
            Err(fault) => fault,
        };
        if self.routing.is_none() || !node.is_down() {
            return Err(failed);
        }
        self.forget(partition);
        let other = self.any_but(Some(&node));
        if Arc::ptr_eq(&other, &node) { Err(failed) } else { take(&other).await }
    }

    /// The node of the URL, or another one while that is away.
    fn any_but(&self, not: Option<&Arc<Node>>) -> Arc<Node> {
        let usable = |node: &&Arc<Node>| !node.is_down() && not.is_none_or(|not| !Arc::ptr_eq(not, node));
        if usable(&&self.main) {
            return Arc::clone(&self.main);
        }
        let Some(routing) = &self.routing else { return Arc::clone(&self.main) };
        let nodes = routing.nodes.lock();
        Arc::clone(nodes.values().find(usable).unwrap_or(&self.main))
    }

    /// The route is looked up again before it is used again.
    pub(super) fn forget(&self, partition: PartitionId) {
        if let Some(routing) = &self.routing
            && let Some(route) = routing.routes.lock().get_mut(&partition)
        {
            route.until = Instant::now();
        }
    }

    /// Forgets a partition that is gone.
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
    async fn look_up(&self, main: &Arc<Node>, partition: PartitionId) -> Result<Option<Arc<Node>>, Fault> {
        let session = self.somebody(main).await?;
        self.list_nodes(&session).await?;
        let rows = session.query(OWNER, &[&key::column(partition)]).await?;
        session.release();
        let Some(row) = rows.first() else { return Ok(None) };
        let node = self.node(row.get(0), row.get(1))?;
        // A node that cannot be reached from here must not take its partitions with it.
        if node.is_down() {
            return Ok(None);
        }
        match node.session().await {
            Ok(session) => session.release(),
            Err(fault) => {
                tracing::warn!(
                    node = row.get::<_, String>(0),
                    reason = fault.text(),
                    "a node of the cluster cannot be reached directly"
                );
                return Ok(None);
            }
        }
        Ok(Some(node))
    }

    /// A connection to whoever can tell where things are: the node of the URL, or any.
    async fn somebody(&self, main: &Arc<Node>) -> Result<Session, Fault> {
        let mut failed = None;
        let others: Vec<Arc<Node>> = self.nodes.lock().values().cloned().collect();
        let (up, down): (Vec<_>, Vec<_>) =
            std::iter::once(Arc::clone(main)).chain(others).partition(|node| !node.is_down());
        for node in up.into_iter().chain(down.into_iter().take(1)) {
            match node.session().await {
                Ok(session) => return Ok(session),
                Err(fault) => failed = Some(fault),
            }
        }
        Err(failed.unwrap_or_else(|| Fault::Lost("no node of the cluster can be reached".to_owned())))
    }

    /// Gets to know the nodes, now and then.
    async fn list_nodes(&self, session: &Session) -> Result<(), Fault> {
        if self.nodes_listed.lock().is_some_and(|listed| listed.elapsed() < ROUTE_AGE_MAX) {
            return Ok(());
        }
        let rows = session.query(NODES, &[]).await?;
        *self.nodes_listed.lock() = Some(Instant::now());
        let mut listed = Vec::new();
        for row in &rows {
            let place: (String, i32) = (row.get(0), row.get(1));
            self.node(place.0.clone(), place.1)?;
            listed.push(place);
        }
        // Nodes that left the cluster are closed once nobody uses them.
        self.nodes.lock().retain(|(host, port), _| {
            listed.iter().any(|(name, number)| name == host && *number == i32::from(*port))
        });
        Ok(())
    }

    fn node(&self, host: String, port: i32) -> Result<Arc<Node>, Fault> {
        let port = u16::try_from(port).map_err(|_| Fault::Definite("a node has no port".to_owned()))?;
        let place = (host, port);
        let known = self.nodes.lock().get(&place).cloned();
        if let Some(node) = known {
            return Ok(node);
        }
        let config = self.options.at_node(&place.0, port);
        let node = Node::new(&config, &self.options, self.tls.as_ref()).map_err(Fault::Definite)?;
        Ok(Arc::clone(self.nodes.lock().entry(place).or_insert(Arc::new(node))))
    }
}
