//! State shared by all parts of the store: connections, lanes and waiters per partition, whether it is open.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{RwLock, watch};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use orrery_env::monotonic;

use super::cluster::Cluster;
use super::commit::{Lane, LaneTurns};
use super::key;
use super::options::PostgresOptions;
use super::pool::{Node, Session};
use super::server_error::ServerError;
use crate::contract::{BoxFuture, Lsn, PartitionId, PartitionRef, StoreError};

/// How long reads and partition changes are retried while the server is unavailable.
const RETRY_FOR: Duration = Duration::from_secs(10);

pub(super) struct Shared {
    pub(super) options: PostgresOptions,
    pub(super) cluster: Cluster,
    /// A random id of this process, for as long as it has the store open.
    pub(super) writer: u128,
    groups: AtomicU64,
    closed: AtomicBool,
    /// Read-locked by commits; closing takes the write lock to wait for them.
    pub(super) busy: RwLock<()>,
    pub(super) turns: LaneTurns,
    lanes: Mutex<HashMap<PartitionRef, Arc<Lane>>>,
    locals: Mutex<HashMap<PartitionId, Arc<Local>>>,
    /// The NOTIFY channel of the announced partition.
    pub(super) channel: String,
    pub(super) closing: watch::Sender<bool>,
}

/// This process's state of a partition.
pub(super) struct Local {
    /// The highest LSN seen so far; `None` once this process has destroyed the partition.
    pub(super) progress: watch::Sender<Option<Lsn>>,
}

impl Shared {
    /// The partition whose changes are announced to other processes at once. The database keeps its catalog there.
    pub(super) const ANNOUNCED: PartitionId = PartitionId(0);

    pub(super) fn new(options: PostgresOptions, cluster: Cluster, writer: u128) -> Self {
        let turns = if cluster.is_citus() { LaneTurns::each() } else { LaneTurns::shared() };
        Self {
            channel: format!("orrery_{}", options.schema),
            options,
            cluster,
            writer,
            groups: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            busy: RwLock::new(()),
            turns,
            lanes: Mutex::default(),
            locals: Mutex::default(),
            closing: watch::Sender::new(false),
        }
    }

    pub(super) fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Unavailable("it is closed".to_owned()));
        }
        Ok(())
    }

    pub(super) fn close(&self) -> bool {
        self.closing.send_replace(true);
        !self.closed.swap(true, Ordering::AcqRel)
    }

    pub(super) fn next_group(&self) -> u64 {
        self.groups.fetch_add(1, Ordering::Relaxed)
    }

    /// A connection to the partition's owner.
    pub(super) async fn session(&self, partition: PartitionId) -> Result<Session, ServerError> {
        self.cluster.session(partition).await
    }

    /// Like [`Shared::session`], for a transaction that writes.
    pub(super) async fn writing_session(&self, partition: PartitionId) -> Result<Session, ServerError> {
        self.cluster.writing_session(partition).await
    }

    pub(super) async fn node_of(&self, partition: PartitionId) -> Arc<Node> {
        self.cluster.node_of(partition).await
    }

    /// Invalidates a route after a lost connection: the partition may have moved.
    pub(super) fn forget_route(&self, partition: PartitionId) {
        self.cluster.forget(partition);
    }

    pub(super) fn lane(&self, partition: PartitionRef) -> Arc<Lane> {
        // Lanes are kept by partition and epoch, so operations on a retired partition never
        // join a group of its successor.
        let mut lanes = self.lanes.lock();
        Arc::clone(lanes.entry(partition).or_insert_with(|| Arc::new(Lane::new(partition))))
    }

    /// Bytes that this process has written but the partition's row does not include yet.
    pub(super) fn uncounted(&self, id: PartitionId) -> i64 {
        let lanes = self.lanes.lock();
        let own = lanes.iter().filter(|(partition, _)| partition.id == id);
        own.map(|(_, lane)| lane.uncounted.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn local(&self, id: PartitionId) -> Arc<Local> {
        let mut locals = self.locals.lock();
        Arc::clone(
            // Zero is below every LSN, so the first one that is heard of wakes waiters.
            locals.entry(id).or_insert_with(|| Arc::new(Local { progress: watch::Sender::new(Some(0)) })),
        )
    }

    /// Wakes waiters: the partition has reached this LSN.
    pub(super) fn advance(&self, id: PartitionId, lsn: Lsn) {
        // No entry means that nobody in this process waits for the partition.
        let local = self.locals.lock().get(&id).cloned();
        if let Some(local) = local {
            // Notifications and own commits arrive in any order; waiters must only see LSNs grow.
            local.progress.send_if_modified(|known| {
                let news = known.is_some_and(|known| lsn > known);
                if news {
                    *known = Some(lsn);
                }
                news
            });
        }
    }

    /// Drops the state of a partition that this process destroys.
    pub(super) fn forget(&self, id: PartitionId) {
        if let Some(local) = self.locals.lock().remove(&id) {
            // Wakes those who wait for an LSN; they find the partition gone.
            local.progress.send_replace(None);
        }
        self.lanes.lock().retain(|partition, _| partition.id != id);
        self.cluster.remove(id);
    }

    /// Runs one idempotent statement of a partition, retrying like [`Self::repeat`]; one that `writes` needs the host that
    /// accepts writes.
    pub(super) async fn query(
        &self,
        partition: PartitionId,
        writes: bool,
        statement: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let work = || -> BoxFuture<'_, _> {
            Box::pin(async {
                let session = if writes {
                    self.writing_session(partition).await?
                } else {
                    self.session(partition).await?
                };
                let rows = session.query(statement, parameters).await?;
                session.release();
                Ok(rows)
            })
        };
        self.repeat(partition, work).await
    }

    /// Runs idempotent work until it succeeds or a retry is pointless.
    pub(super) async fn repeat<'w, T>(
        &self,
        partition: PartitionId,
        work: impl Fn() -> BoxFuture<'w, Result<T, ServerError>>,
    ) -> Result<T, StoreError> {
        let began = monotonic::now();
        let mut pause = Duration::from_millis(5);
        loop {
            self.check_open()?;
            // `work` takes a new session each time, so a retry never runs inside a broken transaction.
            let fault = match work().await {
                Ok(out) => return Ok(out),
                Err(fault) => fault,
            };
            // Closing is the reason to report, not the error that it caused.
            if self.check_open().is_err() || !fault.is_retryable() || monotonic::elapsed(began) > RETRY_FOR {
                self.check_open()?;
                return Err(StoreError::Unavailable(fault.text().to_owned()));
            }
            // The next attempt looks the owner up again: the partition may have moved.
            if matches!(fault, ServerError::Lost(_)) {
                self.forget_route(partition);
            }
            tracing::debug!(partition = key::column(partition), reason = fault.text(), "retrying");
            orrery_env::task::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }
}
