//! What `orrery store status` tells.

use super::options::PostgresOptions;
use super::schema::{self, PostgresError, SCHEMA_VERSION};
use super::{Postgres, key};
use crate::contract::PartitionId;

/// The state of a store, as far as it can be told without opening it.
#[derive(Clone, Debug)]
pub struct StoreStatus {
    pub place: String,
    pub server_version: String,
    pub citus_version: Option<String>,
    /// 0 = there are no tables yet.
    pub schema_version: i32,
    pub schema_version_known: i32,
    pub nodes: Vec<NodeStatus>,
    /// Processes that have the store open.
    pub gateways: i64,
    /// Each standby with its state and how many bytes of the log it is behind.
    pub standbys: Vec<(String, String, i64)>,
}

/// One server, and what lies there.
#[derive(Clone, Debug, Default)]
pub struct NodeStatus {
    pub name: String,
    pub partitions: Vec<PartitionId>,
    pub table_bytes: i64,
    pub index_bytes: i64,
}

impl Postgres {
    /// Looks without changing anything.
    pub async fn status(options: &PostgresOptions) -> Result<StoreStatus, PostgresError> {
        let (node, _, server) = Self::reach(options).await?;
        let place = options.place();
        let schema_version = schema::version(&node, options).await?;
        let failed = |fault: super::fault::Fault| PostgresError::Failed {
            place: place.clone(),
            detail: fault.text().to_owned(),
        };
        let session = node.session().await.map_err(failed)?;
        let standbys = session
            .query(
                "SELECT coalesce(application_name, ''), coalesce(state, '') || '/' || coalesce(sync_state, ''), \
                   coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn), 0)::bigint \
                 FROM pg_stat_replication ORDER BY 1",
                &[],
            )
            .await
            .map_err(failed)?;
        let mut nodes = Vec::new();
        let mut gateways = 0;
        if schema_version > 0 {
            let rows = session
                .query("SELECT count(*) FROM member WHERE seen > now() - interval '10 seconds'", &[])
                .await
                .map_err(failed)?;
            gateways = rows.first().map_or(0, |row| row.get(0));
            nodes = if server.citus.is_some() {
                super::cluster::node_status(&session).await.map_err(failed)?
            } else {
                let sizes = session
                    .query("SELECT pg_table_size('kv'), pg_indexes_size('kv')", &[])
                    .await
                    .map_err(failed)?;
                let parts = session.query(super::sql::PARTITIONS, &[]).await.map_err(failed)?;
                let mut partitions: Vec<_> = parts.iter().map(|row| key::from_column(row.get(0))).collect();
                partitions.sort_unstable();
                let (table_bytes, index_bytes) = sizes.first().map_or((0, 0), |row| (row.get(0), row.get(1)));
                vec![NodeStatus { name: place.clone(), partitions, table_bytes, index_bytes }]
            };
        }
        session.release();
        Ok(StoreStatus {
            place,
            server_version: server.version,
            citus_version: server.citus,
            schema_version,
            schema_version_known: SCHEMA_VERSION,
            nodes,
            gateways,
            standbys: standbys.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect(),
        })
    }
}
