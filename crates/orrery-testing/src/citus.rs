//! The Citus cluster that `ORRERY_TEST_STORE_URL` may name. Tests never start one; without a cluster they are skipped with
//! a message.

use std::process::Command;

use tokio_postgres::{Client, NoTls};

/// A connection to the coordinator.
pub struct Citus {
    client: Client,
}

/// One node, as listed in the cluster's metadata.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Worker {
    pub host: String,
    pub port: i32,
}

const OWNERS: &str = "SELECT s.shardid, n.nodename, n.nodeport FROM pg_dist_shard s \
     JOIN pg_dist_placement p ON p.shardid = s.shardid \
     JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary' \
     WHERE s.logicalrelid = ($1::text || '.part')::regclass ORDER BY s.shardid";

impl Citus {
    /// The cluster of the test URL, if it has at least two workers.
    ///
    /// # Panics
    /// If the server cannot be queried.
    pub async fn find() -> Option<Self> {
        let url = std::env::var("ORRERY_TEST_STORE_URL").ok().filter(|url| !url.is_empty())?;
        let (client, connection) =
            tokio_postgres::connect(&url, NoTls).await.expect("the test server can be reached");
        drop(tokio::spawn(connection));
        let found = client.query("SELECT 1 FROM pg_extension WHERE extname = 'citus'", &[]).await;
        if found.expect("the server answers").is_empty() {
            return None;
        }
        let this = Self { client };
        (this.workers().await.len() > 1).then_some(this)
    }

    /// The connection to the coordinator.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The nodes that hold shards.
    ///
    /// # Panics
    /// If the query fails.
    pub async fn workers(&self) -> Vec<Worker> {
        let rows = self
            .client
            .query("SELECT nodename, nodeport FROM pg_dist_node WHERE shouldhaveshards ORDER BY 1, 2", &[]);
        let worker = |row: &tokio_postgres::Row| Worker { host: row.get(0), port: row.get(1) };
        rows.await.expect("the cluster answers").iter().map(worker).collect()
    }

    /// The owner of each shard of a store.
    ///
    /// # Panics
    /// If the query fails.
    pub async fn shards(&self, schema: &str) -> Vec<(i64, Worker)> {
        let rows = self.client.query(OWNERS, &[&schema]).await.expect("the cluster answers");
        let shard = |row: &tokio_postgres::Row| (row.get(0), Worker { host: row.get(1), port: row.get(2) });
        rows.iter().map(shard).collect()
    }

    /// The shard of a partition and the node that owns it.
    ///
    /// # Panics
    /// If the query fails.
    pub async fn owner(&self, schema: &str, partition: i32) -> (i64, Worker) {
        let sql = "SELECT get_shard_id_for_distribution_column(($1::text || '.part')::regclass, $2::int)";
        let row = self.client.query_one(sql, &[&schema, &partition]).await.expect("the cluster answers");
        let shard: i64 = row.get(0);
        let found = self.shards(schema).await.into_iter().find(|(id, _)| *id == shard);
        found.expect("every shard has an owner")
    }

    /// Moves each shard of a store to the next worker online, one by one; returns the number of moves.
    ///
    /// # Panics
    /// If a move fails.
    pub async fn move_everything(&self, schema: &str) -> usize {
        let workers = self.workers().await;
        let shards = self.shards(schema).await;
        for (shard, from) in &shards {
            let at = workers.iter().position(|worker| worker == from).unwrap_or(0);
            let to = &workers[(at + 1) % workers.len()];
            let sql = "SELECT citus_move_shard_placement($1::bigint, $2::text, $3::int, $4::text, $5::int)";
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [shard, &from.host, &from.port, &to.host, &to.port];
            self.client.query(sql, &parameters).await.expect("a shard can be moved");
        }
        shards.len()
    }

    /// A connection to one node.
    ///
    /// # Panics
    /// If it is unreachable.
    pub async fn connect(&self, worker: &Worker) -> Client {
        let url = std::env::var("ORRERY_TEST_STORE_URL").unwrap_or_default();
        let known: tokio_postgres::Config = url.parse().expect("the test URL can be read");
        let mut config = tokio_postgres::Config::new();
        config.host(&worker.host).port(u16::try_from(worker.port).expect("a port"));
        config.user(known.get_user().unwrap_or("postgres"));
        config.dbname(known.get_dbname().unwrap_or("postgres"));
        if let Some(password) = known.get_password() {
            config.password(password);
        }
        let (client, connection) = config.connect(NoTls).await.expect("the node can be reached");
        drop(tokio::spawn(connection));
        client
    }
}

/// Kills and restarts a worker with the command in `ORRERY_TEST_CITUS_RESTART`, if set.
///
/// # Panics
/// If the command fails.
pub fn restart_worker() -> bool {
    run("ORRERY_TEST_CITUS_RESTART")
}

/// Kills and restarts the coordinator with the command in `ORRERY_TEST_CITUS_RESTART_COORDINATOR`, if set.
///
/// # Panics
/// If the command fails.
pub fn restart_coordinator() -> bool {
    run("ORRERY_TEST_CITUS_RESTART_COORDINATOR")
}

fn run(variable: &str) -> bool {
    let Some(command) = std::env::var(variable).ok().filter(|text| !text.is_empty()) else { return false };
    let status = Command::new("sh").args(["-c", &command]).status().expect("the command can be run");
    assert!(status.success(), "{command} failed");
    true
}

/// A node that may join and leave the cluster: `ORRERY_TEST_CITUS_SPARE`, as host:port.
pub fn spare() -> Option<Worker> {
    let text = std::env::var("ORRERY_TEST_CITUS_SPARE").ok()?;
    let (host, port) = text.rsplit_once(':')?;
    Some(Worker { host: host.to_owned(), port: port.parse().ok()? })
}
