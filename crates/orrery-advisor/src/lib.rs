//! Evaluates partition keys by measurement.
//!
//! The advisor takes items and a workload and tries candidate keys (properties, concatenations, suffixes, hierarchies):
//! it maps both with the service's hash onto the partitions that the throughput implies, and ranks the candidates with
//! reasons. The simulator runs the same model at sizes that do not fit on one machine.
//!
//! Everything is pure: items and operations in, a report out. Sketches and samples bound the memory. Charges and budgets
//! are those of `orrery-metering`, so predictions follow the server's own rules. Left out: bursts, caches and latency.

#![allow(clippy::cast_precision_loss, reason = "approximate figures and estimates")]
#![allow(clippy::format_push_string, reason = "reports are written once")]

pub mod advise;
pub mod analysis;
pub mod candidate;
pub mod clock;
pub mod datasets;
pub mod discover;
pub mod fields;
pub mod growth;
pub mod guard;
pub mod guard_facts;
pub mod layout;
pub mod matching;
pub mod measured;
pub mod moment;
pub mod planner;
pub mod predict;
pub mod prices;
pub mod query_cost;
pub mod random;
pub mod rank;
pub mod repeats;
pub mod replay;
pub mod report;
pub mod service_logs;
pub mod simulate;
pub mod sketch;
pub mod terms;
pub mod what_if;
pub mod workload;

pub use advise::{AdviceError, Advisor, Config, Report};
pub use layout::Limits;
pub use measured::{Measured, Scope, Verdict};
pub use prices::Prices;
