//! Request units per second: who may go on, who must wait, and where the load is.
//!
//! The provisioned throughput of a container is divided evenly over its physical partitions; containers that
//! share their database's throughput share its partitions' budgets. A request is admitted by the budgets of
//! the partitions it visits, before the work, and settled with what it really cost, after it.

mod admission;
mod background;
mod budget;
mod growth;
mod heat;

pub(crate) use admission::Admitted;
pub(crate) use admission::Budgets;
pub use budget::{Budget, Priority, Throttled};
pub use heat::{HotKey, PartitionHeat, ThrottleCause, ThrottleEvent};
