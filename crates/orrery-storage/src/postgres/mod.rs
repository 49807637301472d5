//! The PostgreSQL store: one database shared by several processes and, with Citus, spread over several machines.
//!
//! Two tables hold everything: `part` has one row per partition, which is its lock, its LSN and its fence; `kv` has
//! the entries. Isolation is READ COMMITTED: a writer takes its row locks first, and it waits for a lock only if it
//! holds no other, so there are no deadlocks.
//!
//! * `commit`, `group`, `turns`: how writes are grouped into transactions; `read`, `read_each`: how reads work.
//! * `schema`, `migrations`, `sql`, `key`: tables, their versions, every statement, the encoding of keys.
//! * `pool`, `connect`, `tls`, `options`: connections; `server_error`: whether an error can be retried.
//! * `cluster`, `spread`: routing and placement on Citus.
//! * `coordination`, `listen`: communication between processes; `load`: bulk loads and range deletions.
//!
//! `docs/design/0008-postgresql-store.md` has the alternatives and measurements.

mod cluster;
mod commit;
mod connect;
mod coordination;
mod group;
mod key;
mod listen;
mod load;
mod migrations;
mod options;
mod pool;
mod read;
mod read_each;
mod schema;
mod server_error;
mod shared;
mod spread;
mod sql;
mod status;
mod tls;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use self::cluster::Cluster;
use self::migrations::SCHEMA_VERSION;
use self::pool::Node;
use self::read::PostgresSnapshot;
use self::shared::Shared;
use self::tls::Tls;
use orrery_env::monotonic;

use crate::contract::Coordination;
use crate::contract::{
    BoxFuture, CommitError, Entry, ErasedOp, KeyRange, Limits, Lsn, NodeStatus, PartitionId, PartitionInfo,
    PartitionRef, PartitionStore, Pending, ReadPage, ReadRequest, ReadResult, Snapshot, StoreError,
    consecutive,
};
use crate::transaction;

pub use self::options::{InvalidStoreUrl, PostgresOptions};
pub use self::schema::PostgresError;
pub use self::status::StoreStatus;

/// A store on a PostgreSQL server or a Citus cluster, usable by several processes at once.
pub struct Postgres {
    shared: Arc<Shared>,
}

impl Postgres {
    /// Whether the text is a `postgres://` or `postgresql://` URL.
    pub fn is_url(text: &str) -> bool {
        options::is_store_url(text)
    }

    /// Opens the store, creating or migrating its tables if necessary. Must be called inside a Tokio runtime.
    pub async fn open(options: PostgresOptions) -> Result<Self, PostgresError> {
        // Checks in this order, so that the first message an operator gets names the cause: reach the server, then
        // its version, then the user's privileges.
        let (mut node, tls, server) = Self::reach(&options).await?;
        if schema::version(&node, &options).await? < SCHEMA_VERSION {
            schema::migrate(&node, &options, &server).await?;
        }
        schema::check_rights(&node, &options).await?;
        // A random name per process tells its transactions from those of other processes, also after a restart.
        let mut writer = [0; 16];
        options.env.fill_random(&mut writer);
        let mut options = options;
        // Known only after connecting, so the pool is built again with the settings for Citus.
        if server.citus.is_some() {
            options.on_citus();
            node = Node::new(&options.config, &options, tls.as_ref()).map_err(PostgresError::Options)?;
        }
        let cluster = Cluster::new(node, &options, tls.clone(), server.citus.is_some());
        let shared = Arc::new(Shared::new(options, cluster, u128::from_be_bytes(writer)));
        listen::start(&shared, tls);
        load::sweep_in_background(&shared);
        Ok(Self { shared })
    }

    /// Creates or migrates the tables; returns the schema versions before and after.
    pub async fn initialise(options: &PostgresOptions) -> Result<(i32, i32), PostgresError> {
        let (node, _, server) = Self::reach(options).await?;
        let before = schema::migrate(&node, options, &server).await?;
        Ok((before, SCHEMA_VERSION))
    }

    async fn reach(options: &PostgresOptions) -> Result<(Node, Option<Tls>, schema::Server), PostgresError> {
        let tls = Tls::new(&options.tls).map_err(PostgresError::Options)?;
        let node = Node::new(&options.config, options, tls.as_ref()).map_err(PostgresError::Options)?;
        let server = schema::check_server(&node, options).await?;
        Ok((node, tls, server))
    }

    fn open_partition(&self, id: PartitionId) -> Result<(), StoreError> {
        self.shared.check_open()?;
        // Its key range contains the names of committed transactions.
        if id == key::RESERVED {
            return Err(StoreError::Unavailable(format!("partition id {} is reserved", id.0)));
        }
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Stops the listener; connections close with the last user of the pools.
        self.shared.closing.send_replace(true);
    }
}

impl PartitionStore for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn limits(&self) -> Limits {
        self.shared.options.limits
    }

    fn partitions(&self) -> Pending<'_, Vec<PartitionInfo>> {
        Box::pin(async move {
            let rows = self
                .shared
                .repeat(Shared::ANNOUNCED, || {
                    Box::pin(async {
                        let session = self.shared.cluster.main().session().await?;
                        let rows = session.query(sql::PARTITIONS, &[]).await?;
                        session.release();
                        Ok(rows)
                    })
                })
                .await?;
            let info = |row: &tokio_postgres::Row| PartitionInfo {
                id: key::from_column(row.get(0)),
                epoch: row.get::<_, i64>(1).cast_unsigned(),
                lsn: row.get::<_, i64>(2).cast_unsigned(),
            };
            Ok(rows.iter().map(info).collect())
        })
    }

    fn choose_ids(&self, from: u32, count: usize, beside: Vec<PartitionId>) -> Pending<'_, Vec<PartitionId>> {
        Box::pin(async move {
            if !self.shared.cluster.is_citus() {
                return Ok(consecutive(from, count));
            }
            let choose = || -> BoxFuture<'_, Result<Vec<PartitionId>, server_error::ServerError>> {
                Box::pin(async {
                    let session = self.shared.cluster.main().session().await?;
                    let chosen = spread::choose(&session, from, count, &beside).await?;
                    session.release();
                    Ok(chosen)
                })
            };
            let chosen = self.shared.repeat(Shared::ANNOUNCED, choose).await?;
            // A badly placed partition is better than none.
            Ok(if chosen.len() == count { chosen } else { consecutive(from, count) })
        })
    }

    fn nodes(&self) -> Pending<'_, Vec<NodeStatus>> {
        Box::pin(async move {
            self.shared.check_open()?;
            let status = Self::status(&self.shared.options).await;
            Ok(status.map_err(|error| StoreError::Unavailable(error.to_string()))?.nodes)
        })
    }

    fn create(&self, id: PartitionId, lsn: Lsn) -> Pending<'_, ()> {
        Box::pin(async move {
            self.open_partition(id)?;
            loop {
                let number = lsn.cast_signed();
                let rows = self
                    .shared
                    .repeat(id, || {
                        Box::pin(async {
                            let session = self.shared.writing_session(id).await?;
                            let rows = session.query(sql::CREATE, &[&key::column(id), &number]).await?;
                            session.release();
                            Ok(rows)
                        })
                    })
                    .await?;
                if let Some(row) = rows.first() {
                    // Somebody may already be waiting for an LSN of this partition.
                    self.shared.advance(id, row.get::<_, i64>(0).cast_unsigned());
                    return Ok(());
                }
                // Another process is destroying an earlier partition with this id, or died while doing so.
                load::clear(&self.shared, id).await?;
            }
        })
    }

    fn retire(&self, partition: PartitionRef) -> Pending<'_, Lsn> {
        Box::pin(async move {
            self.open_partition(partition.id)?;
            let epoch = partition.epoch.cast_signed();
            let part = key::column(partition.id);
            let rows = self.shared.query(partition.id, true, sql::RETIRE, &[&part, &epoch]).await?;
            // No row matched the epoch: another process has retired the partition already.
            rows.first().map(|row| row.get::<_, i64>(0).cast_unsigned()).ok_or(StoreError::Fenced)
        })
    }

    fn destroy(&self, id: PartitionId) -> Pending<'_, ()> {
        Box::pin(async move {
            self.open_partition(id)?;
            // Two steps: a negative epoch hides the partition at once, then its entries are deleted in batches. A
            // crash in between leaves a condemned row, which the sweep of any process finishes.
            let condemned = self.shared.query(id, true, sql::CONDEMN, &[&key::column(id)]).await?;
            self.shared.forget(id);
            if condemned.is_empty() { Ok(()) } else { load::clear(&self.shared, id).await }
        })
    }

    fn commit(&self, partition: PartitionRef, op: Box<dyn ErasedOp>) -> Pending<'_, Lsn, CommitError> {
        Box::pin(async move {
            self.open_partition(partition.id).map_err(|error| CommitError::Unavailable(error.to_string()))?;
            self.shared.lane(partition).commit(&self.shared, op).await
        })
    }

    fn read(&self, partition: PartitionRef, request: ReadRequest) -> Pending<'_, ReadPage> {
        Box::pin(async move {
            self.open_partition(partition.id)?;
            let key_bytes_max = self.shared.options.limits.key_bytes_max;
            let found = self
                .shared
                .repeat(partition.id, || {
                    Box::pin(async {
                        let session = self.shared.session(partition.id).await?;
                        let found = read::read(&session, partition.id, &request, key_bytes_max).await?;
                        session.release();
                        Ok(found)
                    })
                })
                .await?;
            match found {
                // The statement returns epoch and entries as of one moment, so a page read after
                // the retirement is never served.
                Some((epoch, page)) if epoch == partition.epoch => Ok(page),
                _ => Err(StoreError::Fenced),
            }
        })
    }

    fn read_each(&self, reads: Vec<(PartitionRef, ReadRequest)>) -> BoxFuture<'_, Vec<ReadResult>> {
        Box::pin(read_each::read_each(self, reads))
    }

    fn snapshot(&self, partition: PartitionRef) -> Pending<'_, Box<dyn Snapshot>> {
        Box::pin(async move {
            self.open_partition(partition.id)?;
            let taken = self
                .shared
                .repeat(partition.id, || Box::pin(PostgresSnapshot::take(&self.shared, partition)))
                .await?;
            taken.map(|snapshot| Box::new(snapshot) as Box<dyn Snapshot>).ok_or(StoreError::Fenced)
        })
    }

    fn bulk_load(&self, partition: PartitionRef, entries: Vec<Entry>) -> Pending<'_, ()> {
        Box::pin(async move {
            self.open_partition(partition.id)?;
            // Before the first statement, so that a load is refused as a whole.
            transaction::check_entries(&entries, &self.shared.options.limits)?;
            load::load(&self.shared, partition, entries).await
        })
    }

    fn delete_range(&self, partition: PartitionRef, range: KeyRange, count_max: usize) -> Pending<'_, usize> {
        Box::pin(async move {
            self.open_partition(partition.id)?;
            load::delete_range(&self.shared, partition, &range, count_max).await
        })
    }

    fn wait_lsn(&self, id: PartitionId, after: Lsn, timeout: Duration) -> Pending<'_, Lsn> {
        Box::pin(async move {
            self.open_partition(id)?;
            let deadline = monotonic::timer_now() + timeout;
            // Subscribed before the first poll: an LSN that arrives between poll and wait is not missed.
            let mut closing = self.shared.closing.subscribe();
            let mut progress = self.shared.local(id).progress.subscribe();
            loop {
                let rows = self.shared.query(id, false, sql::STATE, &[&key::column(id)]).await?;
                // A negative epoch means that the partition is being destroyed.
                let there = rows.first().filter(|row| row.get::<_, i64>(0) >= 0);
                let reached = there.ok_or(StoreError::Fenced)?.get::<_, i64>(1).cast_unsigned();
                self.shared.advance(id, reached);
                if reached > after || monotonic::timer_now() >= deadline {
                    return Ok(reached);
                }
                // The channel reports this process's own writes and notifications from others; polling finds the rest.
                let next_poll = deadline.min(monotonic::timer_now() + self.shared.options.poll_interval);
                tokio::select! {
                    _ = progress.wait_for(|known| known.is_none_or(|known| known > after)) => {}
                    () = tokio::time::sleep_until(next_poll) => {}
                    _ = closing.wait_for(|closing| *closing) => {}
                }
                self.shared.check_open()?;
            }
        })
    }

    fn size_bytes(&self, id: PartitionId) -> Pending<'_, u64> {
        Box::pin(async move {
            self.open_partition(id)?;
            load::size_bytes(&self.shared, id).await
        })
    }

    fn coordination(&self) -> Option<&dyn Coordination> {
        Some(self)
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            if self.shared.close() {
                // Commits in progress finish; pending ones are refused.
                drop(self.shared.busy.write().await);
                coordination::withdraw_note(&self.shared).await;
                self.shared.cluster.close();
            }
            Ok(())
        })
    }
}
