//! Physical partitions: how they are written to, how one becomes two, and how two become one again.

mod copy;
pub(crate) mod journal;
mod merge;
mod reshape;
mod split;
mod view;

pub(crate) use copy::POSITIONS;
pub use merge::MergeReport;
pub use split::SplitReport;
pub use view::{ContainerView, LargeKey, PartitionLoad, PartitionView};
