//! The servers behind a store, if it has any: nodes, their partitions, their standbys.

use super::PartitionId;

/// One server and the data on it.
#[derive(Clone, Debug, Default)]
pub struct NodeStatus {
    pub name: String,
    pub partitions: Vec<PartitionId>,
    /// On Citus: the number of shards on this node.
    pub shards: usize,
    pub table_bytes: i64,
    pub index_bytes: i64,
    pub standbys: Vec<StandbyStatus>,
    /// Why the server could not be queried.
    pub failure: Option<String>,
}

/// One standby of a server, as its primary reports it.
#[derive(Clone, Debug)]
pub struct StandbyStatus {
    pub name: String,
    /// As the server reports it, for example `streaming/sync`. `None` = the user lacks the privilege to see it; the other
    /// fields are then unknown as well.
    pub state: Option<String>,
    /// Bytes of WAL that the standby has not replayed yet.
    pub behind_bytes: Option<i64>,
    /// How far the replay lags behind in time; `None` while there are no writes.
    pub behind_ms: Option<i64>,
}
