//! The database: catalog, partitions, items, metering. Independent of HTTP and of the storage engine.
//!
//! A request works on one snapshot of the catalog. Its partition key determines the effective key, which determines the
//! partition. Reads use a snapshot of that partition; writes are one atomic operation.
//!
//! The modules are layers, each built on the ones before it and none on the ones after it: `layout → catalog →
//! partition → index → items → query → scripts → resources → lifecycle → database`. From `partition` on, each layer is
//! a type that owns the one below and derefs to it, so a lower layer cannot call a higher one: it would not compile. A
//! test computes the graph of the modules and compares it with the drawing in docs/ARCHITECTURE.md.

/// Implements `Deref` from a layer to the one below.
macro_rules! layer {
    ($upper:ident { $field:ident: $lower:ident }) => {
        impl std::ops::Deref for $upper {
            type Target = std::sync::Arc<$lower>;

            fn deref(&self) -> &Self::Target {
                &self.$field
            }
        }
    };
}

mod catalog;
mod database;
mod failure;
mod index;
mod items;
mod layout;
mod lifecycle;
mod partition;
mod query;
mod resources;
mod scripts;

pub use catalog::{
    CATALOG_PARTITION, Catalog, Container, DatabaseEntry, GoneRanges, Partition, Repartition, Repartitioned,
    RetiredRange, SYNTHETIC_KEY, ScriptKind, SyntheticPolicy, UNFINISHED_MOVE_KEY,
};
pub use database::Database;
pub use index::check::{StoreCheck, check_store};
pub use items::batch::{BatchKind, BatchOperation, BatchOutcome, BatchResult};
pub use items::change_feed::{ChangeMode, ChangePage, ChangeRequest, ChangeStart};
pub use items::explain::ChargeExplanation;
pub use items::feed::{FeedPage, FeedScope};
pub use items::point::{ItemOptions, ItemReply, Triggers};
pub use items::transaction::Effect;
pub use layout::page_request::PageRequest;
pub use lifecycle::{
    BackgroundTask, ContainerView, LargeKey, LedgerKey, LedgerPage, LivePartition, LiveView, MergeReport,
    PartitionBounds, PartitionKeys, PartitionLoad, PartitionView, RepartitionRequest, RepartitionStatus,
    SplitReport, store_nodes_value,
};
pub use orrery_env::{ClockReading, MovableClock, SystemEnv};
pub use orrery_metering::{Budget, Priority, Throttled, cost};
pub use orrery_query::context::Memory as QueryMemory;
pub use orrery_query::limits as query_limits;
pub use orrery_query::plan::Features;
pub use orrery_storage::{Checkpoint, Health};
pub use partition::{
    AccountChange, HeatSecond, HotKey, KeyLoad, KeyUsage, LEDGER_MINUTES, Options, PartitionHeat, Receipt,
    RequestContext, Served, ThrottleCause, ThrottleEvent, item_quota,
};
pub use query::{
    Cancellation, ClientMerge, Considered, IndexMetrics, MetadataPage, QueryMetrics, QueryOptions, QueryPage,
    QueryRequest, Routing, StateMemory,
};
pub use resources::{
    Access, Grant, MetadataReply, OfferReply, PermissionReply, RECORDED_REQUESTS_MAX, RangesPage, Recordings,
    ResourceFeed, Wish,
};
pub use scripts::ProcedureCall;
