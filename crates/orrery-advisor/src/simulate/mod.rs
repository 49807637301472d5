//! The simulator: partitions, splits, throttling and cost of a container over a year, at sizes that do not fit on one
//! machine.
//!
//! No items are stored. Keys are weights at their hash positions: the heaviest individually, the rest as an even
//! remainder. Time advances in steps; in each step every partition gets its share of the load and of the new bytes. The
//! same scenario and seed produce the same result. Left out: bursts, and the time that a split takes.

mod keys;
mod run;
mod scenario;

pub use run::{Day, Outcome, simulate};
pub use scenario::{KeyKind, Scenario, ScenarioError, Visits};
