//! The report behind `orrery store status`.

use std::collections::HashMap;

use super::migrations::SCHEMA_VERSION;
use super::options::PostgresOptions;
use super::pool::{Node, Session};
use super::schema::{self, PostgresError};
use super::server_error::ServerError;
use super::tls::Tls;
use super::{Postgres, key, sql};
use crate::contract::{NodeStatus, PartitionId, StandbyStatus};

/// The state of a store, as far as it is visible without opening it.
#[derive(Clone, Debug)]
pub struct StoreStatus {
    pub place: String,
    pub server_version: String,
    pub citus_version: Option<String>,
    /// 0 = the tables do not exist yet.
    pub schema_version: i32,
    pub schema_version_known: i32,
    pub nodes: Vec<NodeStatus>,
    /// Processes that have the store open.
    pub gateways: i64,
}

/// A receiver that replays nothing counts as far as it has written the WAL.
const STANDBYS: &str = "SELECT coalesce(application_name, ''), state || '/' || sync_state, \
       pg_wal_lsn_diff(pg_current_wal_lsn(), coalesce(replay_lsn, flush_lsn))::bigint, \
       (extract(epoch FROM replay_lag) * 1000)::bigint \
     FROM pg_stat_replication WHERE coalesce(application_name, '') NOT LIKE 'citus\\_shard%' ORDER BY 1";

const GATEWAYS: &str = "SELECT count(*) FROM member WHERE seen > now() - interval '10 seconds'";

const SIZES: &str = "SELECT pg_table_size('kv') + pg_table_size('part'), \
     pg_indexes_size('kv') + pg_indexes_size('part')";

const NODES: &str = "SELECT nodename, nodeport, groupid FROM pg_dist_node \
     WHERE noderole = 'primary' AND isactive ORDER BY nodeid";

const SHARDS: &str = "SELECT p.shardid, p.groupid, d.logicalrelid = 'part'::regclass FROM pg_dist_placement p \
     JOIN pg_dist_shard d ON d.shardid = p.shardid \
     WHERE d.logicalrelid IN ('part'::regclass, 'kv'::regclass) AND p.shardstate = 1";

/// The sizes of the shards on the queried node.
const SHARD_SIZES: &str = "SELECT coalesce(sum(pg_table_size(t)), 0)::bigint, \
       coalesce(sum(pg_indexes_size(t)), 0)::bigint \
     FROM (SELECT to_regclass(name) AS t FROM unnest($1::text[]) AS n(name)) tables WHERE t IS NOT NULL";

const SHARD_OF: &str =
    "SELECT number, get_shard_id_for_distribution_column('part', number) FROM unnest($1::int[]) AS n(number)";

impl Postgres {
    /// Queries the server without changing anything.
    pub async fn status(options: &PostgresOptions) -> Result<StoreStatus, PostgresError> {
        let (node, tls, server) = Self::reach(options).await?;
        let place = options.place();
        let schema_version = schema::version(&node, options).await?;
        let failed = |fault: ServerError| PostgresError::Failed {
            place: place.clone(),
            detail: fault.text().to_owned(),
        };
        let session = node.session().await.map_err(failed)?;
        // A status is also asked for before `orrery store init` has created the tables.
        let has_tables = schema_version > 0;
        let mut gateways = 0;
        if has_tables {
            let rows = session.query(GATEWAYS, &[]).await.map_err(failed)?;
            gateways = rows.first().map_or(0, |row| row.get(0));
        }
        let nodes = if server.citus.is_some() {
            cluster_nodes(&session, options, tls.as_ref(), has_tables).await.map_err(failed)?
        } else {
            vec![only_node(&session, &place, has_tables).await.map_err(failed)?]
        };
        session.release();
        Ok(StoreStatus {
            place,
            server_version: server.version,
            citus_version: server.citus,
            schema_version,
            schema_version_known: SCHEMA_VERSION,
            nodes,
            gateways,
        })
    }
}

async fn partitions(session: &Session) -> Result<Vec<PartitionId>, ServerError> {
    let rows = session.query(sql::PARTITIONS, &[]).await?;
    let mut partitions: Vec<_> = rows.iter().map(|row| key::from_column(row.get(0))).collect();
    partitions.sort_unstable();
    Ok(partitions)
}

async fn standbys(session: &Session) -> Result<Vec<StandbyStatus>, ServerError> {
    let rows = session.query(STANDBYS, &[]).await?;
    let standby = |row: &tokio_postgres::Row| StandbyStatus {
        name: row.get(0),
        state: row.get(1),
        behind_bytes: row.get(2),
        behind_ms: row.get(3),
    };
    Ok(rows.iter().map(standby).collect())
}

async fn only_node(session: &Session, place: &str, has_tables: bool) -> Result<NodeStatus, ServerError> {
    let mut node = NodeStatus { name: place.to_owned(), ..NodeStatus::default() };
    node.standbys = standbys(session).await?;
    if has_tables {
        let sizes = session.query(SIZES, &[]).await?;
        (node.table_bytes, node.index_bytes) = sizes.first().map_or((0, 0), |row| (row.get(0), row.get(1)));
        node.partitions = partitions(session).await?;
    }
    Ok(node)
}

/// Partitions and sizes per cluster node. Nodes that cannot be queried are listed too.
async fn cluster_nodes(
    session: &Session,
    options: &PostgresOptions,
    tls: Option<&Tls>,
    has_tables: bool,
) -> Result<Vec<NodeStatus>, ServerError> {
    let mut nodes: Vec<NodeStatus> = Vec::new();
    // Citus numbers nodes by group; a placement names the group, not the host.
    let mut of_group: HashMap<i32, usize> = HashMap::new();
    let mut places: Vec<(String, i32)> = Vec::new();
    for row in session.query(NODES, &[]).await? {
        let (host, port, group): (String, i32, i32) = (row.get(0), row.get(1), row.get(2));
        of_group.insert(group, nodes.len());
        nodes.push(NodeStatus { name: format!("{host}:{port}"), ..NodeStatus::default() });
        places.push((host, port));
    }
    // Which node has which shard, and the names of the shards' tables there.
    let mut of_shard: HashMap<i64, usize> = HashMap::new();
    let mut tables: Vec<Vec<String>> = vec![Vec::new(); nodes.len()];
    if has_tables {
        for row in session.query(SHARDS, &[]).await? {
            let (shard, group, is_part): (i64, i32, bool) = (row.get(0), row.get(1), row.get(2));
            let Some(at) = of_group.get(&group) else { continue };
            let table = if is_part { "part" } else { "kv" };
            tables[*at].push(format!("{}.{table}_{shard}", options.schema));
            of_shard.insert(shard, *at);
            // `part` and `kv` are co-located, so counting one of them counts the shards.
            nodes[*at].shards += usize::from(is_part);
        }
    }
    // Sizes and standbys are asked of each node itself; a failure is reported with the node.
    for ((node, tables), (host, port)) in nodes.iter_mut().zip(&tables).zip(&places) {
        if let Err(fault) = ask(node, options, tls, (host, *port), tables).await {
            node.failure = Some(fault.text().to_owned());
        }
    }
    if !has_tables {
        return Ok(nodes);
    }
    // This query needs all nodes: one that is down must not hide what is known about the others.
    if let Ok(found) = partitions(session).await {
        let numbers: Vec<i32> = found.iter().map(|id| key::column(*id)).collect();
        for row in session.query(SHARD_OF, &[&numbers]).await? {
            let (part, shard): (i32, i64) = (row.get(0), row.get(1));
            if let Some(at) = of_shard.get(&shard) {
                nodes[*at].partitions.push(key::from_column(part));
            }
        }
    } else if nodes.iter().all(|node| node.failure.is_none()) {
        for node in &mut nodes {
            node.failure = Some("cannot list its partitions".to_owned());
        }
    }
    for node in &mut nodes {
        node.partitions.sort_unstable();
    }
    Ok(nodes)
}

/// Standbys and sizes, which only the server itself knows.
async fn ask(
    status: &mut NodeStatus,
    options: &PostgresOptions,
    tls: Option<&Tls>,
    (host, port): (&str, i32),
    tables: &[String],
) -> Result<(), ServerError> {
    let port = u16::try_from(port).map_err(|_| ServerError::Permanent("it has no port".to_owned()))?;
    // Connections of its own, closed with the report: a status must not take those of requests.
    let node = Node::new(&options.at_node(host, port), options, tls).map_err(ServerError::Permanent)?;
    let session = node.session().await?;
    status.standbys = standbys(&session).await?;
    let sizes = session.query(SHARD_SIZES, &[&tables]).await?;
    (status.table_bytes, status.index_bytes) = sizes.first().map_or((0, 0), |row| (row.get(0), row.get(1)));
    session.release();
    Ok(())
}
