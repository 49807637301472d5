//! Physical partitions: how they are written to, and how one becomes two.

pub(crate) mod journal;
mod split;
mod view;

pub use split::SplitReport;
pub use view::{ContainerView, PartitionView};
