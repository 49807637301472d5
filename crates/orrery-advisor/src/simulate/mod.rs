//! The simulator: partitions, splits, throttling and cost over a year of a container that no machine here holds.
//!
//! Nothing is stored. Keys are weights on the true hash's places: the heaviest one by one, the rest as an even
//! remainder; time goes in steps, and in each step every partition gets its part of the load and of the new bytes. The
//! same scenario and seed give the same result.

mod keys;
mod run;
mod scenario;

pub use run::{Day, Outcome, simulate};
pub use scenario::{KeyKind, Scenario, ScenarioError, Visits};
