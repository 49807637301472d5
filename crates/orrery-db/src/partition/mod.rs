//! Physical partitions: the one place that touches the store.
//!
//! A request is routed to a partition by the catalog, admitted by the partition's budget, and then reads a snapshot or
//! commits one operation. If the partition was split or moved meanwhile, the catalog is refreshed and the request
//! retried.
//!
//! Only what applies to any partition belongs here. Items, indexes and queries are above.

mod account_limits;
mod admission;
mod allowance;
mod commit;
mod coordination;
mod gate;
mod heat;
mod ledger;
mod offline;
mod options;
mod overlay;
pub(crate) mod read;
mod receipt;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use orrery_env::{Env, task};
use orrery_model::offer::PARTITION_THROUGHPUT_MAX;
use orrery_storage::{PartitionId, PartitionStore};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::catalog::CatalogStore;

pub use account_limits::AccountChange;
pub(crate) use admission::Admitted;
pub(crate) use coordination::ReshapingLock;
pub(crate) use gate::Gates;
pub use heat::{HeatSecond, HotKey, PartitionHeat, ThrottleCause, ThrottleEvent};
pub use ledger::{KeyLoad, MINUTES as LEDGER_MINUTES};
pub use options::Options;
pub(crate) use overlay::Overlay;
pub(crate) use read::ROUTING_ATTEMPTS;
pub use receipt::{KeyUsage, Receipt, RequestContext, Served, item_quota};

/// The partitions of all containers, and what routing and admission need.
pub struct Partitions {
    pub(crate) store: Arc<dyn PartitionStore>,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) catalog: CatalogStore,
    pub(crate) options: Options,
    pub(crate) budgets: admission::Budgets,
    /// Coordinates writes with running scripts.
    pub(crate) gates: Gates,
    /// One split or merge at a time; also held by changes that the split log does not record.
    pub(crate) reshapings: tokio::sync::Mutex<()>,
    /// The last published demand of this process.
    budget_note: Mutex<Bytes>,
    /// Partitions that accept no writes because their data is inconsistent.
    pub(crate) offline: Arc<offline::OfflinePartitions>,
    /// Wakes the background work.
    pub(crate) wake: Arc<Notify>,
    /// The database is closing: long-running work should stop.
    stopping: AtomicBool,
}

impl Partitions {
    pub(crate) fn new(
        store: Arc<dyn PartitionStore>,
        env: Arc<dyn Env>,
        catalog: CatalogStore,
        options: Options,
    ) -> Self {
        Self {
            store,
            env,
            catalog,
            budgets: admission::Budgets::new(options.burst_throughput_max),
            options,
            gates: Gates::default(),
            reshapings: tokio::sync::Mutex::new(()),
            budget_note: Mutex::default(),
            offline: Arc::default(),
            wake: Arc::default(),
            stopping: AtomicBool::new(false),
        }
    }

    pub fn env(&self) -> &dyn Env {
        &*self.env
    }

    /// Stops long-running work.
    pub(crate) fn begin_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(crate) fn wake_maintenance(&self) {
        self.wake.notify_one();
    }

    /// Whether the database is closing.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Drops cached state of removed partitions.
    pub(crate) fn forget_partitions(&self, partitions: &[PartitionId]) {
        for partition in partitions {
            self.budgets.forget(*partition);
            self.offline.forget(*partition);
        }
    }

    /// Reclaims the space of removed containers in the background.
    pub(crate) fn destroy_partitions(self: &Arc<Self>, partitions: Vec<PartitionId>) {
        // At once: a new container must not find the budget of an old partition.
        self.forget_partitions(&partitions);
        let partitions_of = Arc::clone(self);
        // Destroying may take long, and its failure does not concern the request: the catalog no longer names them.
        task::spawn("destroy partitions", async move {
            for partition in partitions {
                if let Err(error) = partitions_of.store.destroy(partition).await {
                    tracing::warn!(%error, partition = partition.0, "cannot destroy a partition; the next start retries");
                }
            }
        });
    }

    /// The size at which a physical partition splits.
    pub fn partition_bytes_max(&self) -> u64 {
        self.options.partition_bytes_max
    }

    /// The maximum request units per second of a physical partition.
    pub(crate) fn partition_throughput_max(&self) -> u32 {
        self.options.partition_throughput_max.unwrap_or(PARTITION_THROUGHPUT_MAX)
    }
}
