//! The nodes of the database: one server, or a Citus cluster in which each partition lies on one of several.
//!
//! On Citus any node answers any statement, so a wrong route is slow, never wrong. Routes are looked up once,
//! kept for half a minute, and forgotten when a connection is lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::fault::Fault;
use super::key;
use super::options::PostgresOptions;
use super::pool::{Node, Session};
use super::status::NodeStatus;
use super::tls::Tls;
use crate::contract::PartitionId;

/// How long a route is believed.
const ROUTE_AGE_MAX: Duration = Duration::from_secs(30);

/// Who owns a partition's shard.
const OWNER: &str = "SELECT n.nodename, n.nodeport FROM pg_dist_placement p \
     JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary' \
     WHERE p.shardid = get_shard_id_for_distribution_column('part', $1::int) AND p.shardstate = 1 LIMIT 1";

const SHARDS: &str = "SELECT n.nodename || ':' || n.nodeport, p.shardid, \
     coalesce(s.shard_size, 0)::bigint FROM pg_dist_placement p \
     JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary' \
     JOIN pg_dist_shard d ON d.shardid = p.shardid AND d.logicalrelid = 'kv'::regclass \
     LEFT JOIN citus_shards s ON s.shardid = p.shardid AND s.nodename = n.nodename AND s.nodeport = n.nodeport";

const SHARD_OF: &str =
    "SELECT part, get_shard_id_for_distribution_column('kv', part) FROM part WHERE epoch >= 0";

pub(super) struct Cluster {
    main: Arc<Node>,
    /// Only on Citus.
    routing: Option<Routing>,
}

struct Routing {
    options: PostgresOptions,
    tls: Option<Tls>,
    nodes: Mutex<HashMap<(String, u16), Arc<Node>>>,
    routes: Mutex<HashMap<PartitionId, (Arc<Node>, Instant)>>,
}

impl Cluster {
    pub(super) fn new(main: Node, options: &PostgresOptions, tls: Option<Tls>, citus: bool) -> Self {
        let routing = citus.then(|| Routing {
            options: options.clone(),
            tls,
            nodes: Mutex::default(),
            routes: Mutex::default(),
        });
        Self { main: Arc::new(main), routing }
    }

    /// The node of the URL, for what is not about one partition.
    pub(super) fn main(&self) -> &Arc<Node> {
        &self.main
    }

    /// The node that has the partition; the one of the URL if that cannot be told or reached.
    pub(super) async fn node_of(&self, partition: PartitionId) -> Arc<Node> {
        let Some(routing) = &self.routing else { return Arc::clone(&self.main) };
        let known = routing.routes.lock().get(&partition).cloned();
        if let Some((node, since)) = known
            && since.elapsed() < ROUTE_AGE_MAX
        {
            return node;
        }
        let node = match routing.look_up(&self.main, partition).await {
            Ok(Some(node)) => node,
            Ok(None) => Arc::clone(&self.main),
            Err(fault) => {
                tracing::debug!(reason = fault.text(), "the owner of a partition is not known");
                Arc::clone(&self.main)
            }
        };
        routing.routes.lock().insert(partition, (Arc::clone(&node), Instant::now()));
        node
    }

    /// Until it is looked up again, the node of the URL serves.
    pub(super) fn forget(&self, partition: PartitionId) {
        if let Some(routing) = &self.routing {
            routing.routes.lock().remove(&partition);
        }
    }

    pub(super) fn close(&self) {
        self.main.close();
        for node in
            self.routing.iter().flat_map(|routing| routing.nodes.lock().values().cloned().collect::<Vec<_>>())
        {
            node.close();
        }
    }
}

impl Routing {
    async fn look_up(&self, main: &Node, partition: PartitionId) -> Result<Option<Arc<Node>>, Fault> {
        let session = main.session().await?;
        let rows = session.query(OWNER, &[&key::column(partition)]).await?;
        session.release();
        let Some(row) = rows.first() else { return Ok(None) };
        let (host, port): (String, i32) = (row.get(0), row.get(1));
        let port = u16::try_from(port).map_err(|_| Fault::Definite("a node has no port".to_owned()))?;
        let place = (host.clone(), port);
        let known = self.nodes.lock().get(&place).cloned();
        let node = if let Some(node) = known {
            node
        } else {
            let config = self.options.at_node(&host, port);
            let node = Node::new(&config, &self.options, self.tls.as_ref()).map_err(Fault::Definite)?;
            Arc::clone(self.nodes.lock().entry(place).or_insert(Arc::new(node)))
        };
        // A node that cannot be reached from here must not take its partitions with it.
        match node.session().await {
            Ok(session) => session.release(),
            Err(fault) => {
                tracing::warn!(
                    node = host,
                    reason = fault.text(),
                    "a node of the cluster cannot be reached directly"
                );
                return Ok(None);
            }
        }
        Ok(Some(node))
    }
}

/// What lies on each node.
pub(super) async fn node_status(session: &Session) -> Result<Vec<NodeStatus>, Fault> {
    let mut nodes: Vec<NodeStatus> = Vec::new();
    let mut node_of_shard: HashMap<i64, usize> = HashMap::new();
    for row in session.query(SHARDS, &[]).await? {
        let (name, shard, bytes): (String, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let at = nodes.iter().position(|node| node.name == name).unwrap_or_else(|| {
            nodes.push(NodeStatus { name, ..NodeStatus::default() });
            nodes.len() - 1
        });
        nodes[at].table_bytes += bytes;
        node_of_shard.insert(shard, at);
    }
    for row in session.query(SHARD_OF, &[]).await? {
        let (part, shard): (i32, i64) = (row.get(0), row.get(1));
        if let Some(at) = node_of_shard.get(&shard) {
            nodes[*at].partitions.push(key::from_column(part));
        }
    }
    for node in &mut nodes {
        node.partitions.sort_unstable();
    }
    Ok(nodes)
}
