//! The database: catalog, partitions, items, metering. It knows no HTTP and no engine.
//!
//! A request works on one snapshot of the catalog. Its partition key gives the effective key, which gives the
//! partition; reads ask the store for one moment of that partition, writes hand it one operation that lands
//! whole or not at all.

mod catalog;
mod cluster;
mod containers;
mod continuation;
pub mod cost;
mod databases;
mod encryption_keys;
mod env;
mod failure;
mod index;
mod items;
mod maintenance;
mod metadata;
mod offers;
mod partitions;
mod permissions;
mod queries;
mod recording;
mod repartition;
mod resource_token;
mod scripts;
mod synthetic;
mod throughput;
mod trace;
mod users;

use std::sync::Arc;

use orrery_model::Result;
use orrery_model::env::Env;
use orrery_storage::PartitionStore;

use catalog::CatalogStore;
use items::purge::PurgeSet;

pub use catalog::{
    CATALOG_PARTITION, Catalog, Container, DatabaseEntry, Former, GoneRanges, Partition, ScriptKind,
    UNFINISHED_MOVE_KEY,
};
pub use containers::RangesPage;
pub use env::{ClockReading, MovableClock, SystemEnv};
pub use items::batch::{BatchKind, BatchOperation, BatchOutcome, BatchResult};
pub use items::change_feed::{ChangeMode, ChangePage, ChangeRequest, ChangeStart};
pub use items::explain::ChargeExplanation;
pub use items::feed::{FeedPage, FeedScope};
pub use items::point::{ItemOptions, ItemReply};
pub use items::transaction::Effect;
pub use metadata::{MetadataPage, MetadataReply, PageRequest};
pub use offers::OfferReply;
pub use orrery_query::limits as query_limits;
pub use partitions::{ContainerView, LargeKey, MergeReport, PartitionLoad, PartitionView, SplitReport};
pub use permissions::PermissionReply;
pub use queries::{ClientMerge, Considered, QueryMetrics, QueryOptions, QueryPage, QueryRequest, Routing};
pub use recording::{RECORDED_REQUESTS_MAX, Recordings};
pub use repartition::{Repartition, RepartitionRequest, RepartitionStatus, Repartitioned};
pub use resource_token::{Access, Grant};
pub use scripts::{ProcedureCall, Triggers};
pub use synthetic::{Policy as SyntheticPolicy, SYNTHETIC_KEY};
pub use throughput::{Budget, HotKey, PartitionHeat, Priority, ThrottleCause, ThrottleEvent, Throttled};
pub use trace::{Served, Trace};

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct Options {
    /// Databases and containers together.
    pub account_resources_max: usize,
    /// Bytes of items under one partition key value.
    pub logical_partition_bytes_max: u64,
    /// How often expired items are looked for.
    pub sweep_interval_ms: u64,
    /// Bytes that a physical partition may hold before it splits.
    pub partition_bytes_max: u64,
    /// Request units per second that a physical partition may have before it splits; by default the service's.
    pub partition_throughput_max: Option<u32>,
    /// Whether requests beyond the provisioned throughput are told to wait. Charges are reported either way.
    pub throttle: bool,
    /// For tests: give every new container this many physical partitions, whatever its throughput.
    pub partitions_at_creation: Option<u32>,
    /// Minutes that every version of every item is kept, in containers whose change feed policy says nothing.
    pub change_feed_retention_minutes: Option<u32>,
    /// How long a script may run, and the functions of one page of a query.
    pub script_time_max: std::time::Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            account_resources_max: 500,
            logical_partition_bytes_max: 20 << 30,
            sweep_interval_ms: 5_000,
            partition_bytes_max: 50 << 30,
            partition_throughput_max: None,
            throttle: false,
            partitions_at_creation: None,
            change_feed_retention_minutes: None,
            script_time_max: orrery_script::Limits::TIME,
        }
    }
}

/// A running database.
pub struct Database {
    pub(crate) store: Arc<dyn PartitionStore>,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) catalog: CatalogStore,
    pub(crate) options: Options,
    pub(crate) purges: PurgeSet,
    pub(crate) unsettled_histories: items::history::Unsettled,
    pub(crate) index_rebuilds: index::rebuild::Progress,
    pub(crate) budgets: throughput::Budgets,
    pub(crate) repartitions: repartition::Progress,
    /// One split or merge at a time; held too by whoever changes a partition in ways that these do not follow.
    pub(crate) reshapings: tokio::sync::Mutex<()>,
    /// How many queries may be evaluating long stretches of items at once.
    pub(crate) evaluations: tokio::sync::Semaphore,
    /// What queries know of items without the property that they sort by.
    pub(crate) lacking: queries::LackingItems,
    pub(crate) scripts: scripts::Scripts,
    maintenance: maintenance::Maintenance,
    pub(crate) recordings: recording::Recordings,
    following: cluster::Following,
}

impl Database {
    /// Opens the database in a store, continues what an earlier run left unfinished, and starts the
    /// background work. Must be called inside a Tokio runtime.
    pub async fn open(
        store: Arc<dyn PartitionStore>,
        env: Arc<dyn Env>,
        options: Options,
    ) -> Result<Arc<Self>> {
        let catalog = CatalogStore::open(Arc::clone(&store), Arc::clone(&env)).await?;
        let database = Arc::new(Self {
            store,
            env,
            catalog,
            options,
            purges: PurgeSet::default(),
            unsettled_histories: items::history::Unsettled::default(),
            index_rebuilds: index::rebuild::Progress::default(),
            budgets: throughput::Budgets::default(),
            recordings: recording::Recordings::default(),
            repartitions: repartition::Progress::default(),
            reshapings: tokio::sync::Mutex::new(()),
            evaluations: tokio::sync::Semaphore::new(
                std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
            ),
            lacking: queries::LackingItems::default(),
            scripts: scripts::Scripts::default(),
            maintenance: maintenance::Maintenance::default(),
            following: cluster::Following::default(),
        });
        database.roll_back_interrupted().await?;
        if database.is_shared() {
            database.check_partitions().await?;
        } else {
            database.remove_orphaned_partitions().await?;
        }
        // Before purges are looked for: whoever begins one later sees that this process is there.
        database.share_budgets().await?;
        database.load_purges().await?;
        for container in database.catalog.snapshot().containers() {
            database.unsettle_history(container.rid);
            database.set_recording(container.rid).await?;
        }
        database.start_maintenance();
        database.resume_repartitions();
        database.start_following();
        if database.catalog.snapshot().offers.values().any(|offer| offer.pending) {
            database.wake_maintenance();
        }
        Ok(database)
    }

    pub fn env(&self) -> &dyn Env {
        &*self.env
    }

    /// The catalog of this moment.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.snapshot()
    }

    /// Does now what the clock makes due: somebody has moved it.
    pub fn clock_was_moved(&self) {
        self.wake_maintenance();
    }

    /// Which engine keeps the data.
    pub fn store_name(&self) -> &'static str {
        self.store.name()
    }

    /// Stops background work and closes the store. Requests that come later fail as unavailable.
    pub async fn close(&self) -> Result<()> {
        self.following.stop();
        self.repartitions.stop();
        self.maintenance.stop().await;
        self.store.close().await.map_err(failure::store_failure)
    }
}
