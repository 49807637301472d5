//! The lifecycle of partitions and containers: splits, merges, growth, repartitioning, background work, several
//! servers.
//!
//! Each is a sequence of steps recorded in the catalog, so that a restart or another server can resume it.
//!
//! Only work that outlives a request belongs here.

mod background;
mod cluster;
mod copy;
mod growth;
mod ledger;
mod live_view;
mod maintenance;
mod merge;
mod repartition;
mod reshape;
mod split;
mod view;

use std::sync::Arc;

use crate::resources::Resources;

pub use background::{BackgroundTask, store_nodes_value};
pub use ledger::{LedgerKey, LedgerPage};
pub use live_view::{LivePartition, LiveView};
pub use merge::MergeReport;
pub use repartition::{RepartitionRequest, RepartitionStatus};
pub use split::SplitReport;
pub use view::{ContainerView, LargeKey, PartitionBounds, PartitionKeys, PartitionLoad, PartitionView};

/// Resources with the work that changes them over time.
pub struct Lifecycle {
    pub(crate) resources: Arc<Resources>,
    pub(crate) repartitions: repartition::CopyProgress,
    pub(crate) maintenance: maintenance::Maintenance,
    pub(crate) following: cluster::Following,
}

layer!(Lifecycle { resources: Resources });

impl Lifecycle {
    pub(crate) fn new(resources: Arc<Resources>) -> Self {
        Self {
            resources,
            repartitions: repartition::CopyProgress::default(),
            maintenance: maintenance::Maintenance::default(),
            following: cluster::Following::default(),
        }
    }
}
