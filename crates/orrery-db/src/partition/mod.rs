//! Physical partitions: the one place that touches the store.
//!
//! A request is routed to a partition by the catalog, admitted by the partition's budget, and then reads one moment of
//! it or commits one operation on it. When the partition has split or moved meanwhile, the catalog is looked at again.
//!
//! What may live here: everything that is true of a partition whatever it holds. Items, indexes and queries are above.

mod admission;
mod allowance;
mod commit;
mod coordination;
mod gate;
mod heat;
mod options;
mod overlay;
mod read;
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

pub(crate) use admission::Admitted;
pub(crate) use coordination::ReshapingLock;
pub(crate) use gate::Gates;
pub use heat::{HeatSecond, HotKey, PartitionHeat, ThrottleCause, ThrottleEvent};
pub use options::Options;
pub(crate) use overlay::Overlay;
pub(crate) use read::ROUTING_ATTEMPTS;
pub use receipt::{KeyUsage, Receipt, RequestContext, Served};

/// The partitions of all containers, and what routing and admission need.
pub struct Partitions {
    pub(crate) store: Arc<dyn PartitionStore>,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) catalog: CatalogStore,
    pub(crate) options: Options,
    pub(crate) budgets: admission::Budgets,
    /// Who may write to a logical partition while a script works on it.
    pub(crate) gates: Gates,
    /// One split or merge at a time; held too by whoever changes a partition in ways that these do not follow.
    pub(crate) reshapings: tokio::sync::Mutex<()>,
    /// What other processes were told last of the demand on this one.
    budget_note: Mutex<Bytes>,
    /// Wakes the background work.
    pub(crate) wake: Arc<Notify>,
    /// The database is being closed: long work ends early.
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
            options,
            budgets: admission::Budgets::default(),
            gates: Gates::default(),
            reshapings: tokio::sync::Mutex::new(()),
            budget_note: Mutex::default(),
            wake: Arc::default(),
            stopping: AtomicBool::new(false),
        }
    }

    pub fn env(&self) -> &dyn Env {
        &*self.env
    }

    /// Makes long work end early.
    pub(crate) fn begin_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(crate) fn wake_maintenance(&self) {
        self.wake.notify_one();
    }

    /// Whether the database is being closed.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Forgets what is kept in memory of partitions that are gone.
    pub(crate) fn forget_partitions(&self, partitions: &[PartitionId]) {
        for partition in partitions {
            self.budgets.forget(*partition);
        }
    }

    /// Gives the space of removed containers back, without making the client wait.
    pub(crate) fn destroy_partitions(self: &Arc<Self>, partitions: Vec<PartitionId>) {
        self.forget_partitions(&partitions);
        let partitions_of = Arc::clone(self);
        task::spawn("destroy partitions", async move {
            for partition in partitions {
                if let Err(error) = partitions_of.store.destroy(partition).await {
                    tracing::warn!(%error, partition = partition.0, "a partition is left to the next start");
                }
            }
        });
    }

    /// Request units per second that a physical partition may have.
    pub(crate) fn partition_throughput_max(&self) -> u32 {
        self.options.partition_throughput_max.unwrap_or(PARTITION_THROUGHPUT_MAX)
    }
}
