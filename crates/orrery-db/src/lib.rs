//! The database: catalog, partitions, items, metering. It knows no HTTP and no engine.
//!
//! A request works on one snapshot of the catalog. Its partition key gives the effective key, which gives the
//! partition; reads ask the store for one moment of that partition, writes hand it one operation that lands
//! whole or not at all.
//!
//! The modules are layers, each built on the ones before it and none on the ones after it:
//! `layout → catalog → partition → index → items → query → scripts → resources → lifecycle → database`.
//! From `partition` on each layer is a type that owns the one below and reaches it by dereferencing, so a method of a
//! lower layer cannot call one of a higher: it does not compile. A test computes the graph of the modules and compares
//! it with the drawing in docs/ARCHITECTURE.md.

/// Lets a layer reach everything of the layer below.
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
pub use items::batch::{BatchKind, BatchOperation, BatchOutcome, BatchResult};
pub use items::change_feed::{ChangeMode, ChangePage, ChangeRequest, ChangeStart};
pub use items::explain::ChargeExplanation;
pub use items::feed::{FeedPage, FeedScope};
pub use items::point::{ItemOptions, ItemReply, Triggers};
pub use items::transaction::Effect;
pub use layout::page_request::PageRequest;
pub use lifecycle::{
    ContainerView, LargeKey, LivePartition, LiveView, MergeReport, PartitionLoad, PartitionView,
    RepartitionRequest, RepartitionStatus, SplitReport,
};
pub use orrery_env::{ClockReading, MovableClock, SystemEnv};
pub use orrery_metering::{Budget, Priority, Throttled, cost};
pub use orrery_query::context::Memory as QueryMemory;
pub use orrery_query::limits as query_limits;
pub use orrery_storage::{Checkpoint, Health};
pub use partition::{
    HeatSecond, HotKey, KeyUsage, Options, PartitionHeat, Receipt, RequestContext, Served, ThrottleCause,
    ThrottleEvent,
};
pub use query::{
    Cancellation, ClientMerge, Considered, MetadataPage, QueryMetrics, QueryOptions, QueryPage, QueryRequest,
    Routing, StateMemory,
};
pub use resources::{
    Access, Grant, MetadataReply, OfferReply, PermissionReply, RECORDED_REQUESTS_MAX, RangesPage, Recordings,
    Wish,
};
pub use scripts::ProcedureCall;
