//! Partition keys, measured instead of guessed.
//!
//! The advisor takes items and a workload, tries candidate keys (properties, concatenations, suffixes, hierarchies) by
//! putting both through the true hash onto the partitions that the throughput gives, and ranks them with reasons. The
//! simulator plays the same model at sizes that no machine here holds.
//!
//! Everything is pure: items and operations in, a report out. Memory is bounded by sketches and samples.

#![allow(clippy::cast_precision_loss, reason = "figures for people, and estimates")]
#![allow(clippy::format_push_string, reason = "reports are written once")]

pub mod advise;
pub mod analysis;
pub mod candidate;
pub mod datasets;
pub mod discover;
pub mod fields;
pub mod growth;
pub mod layout;
pub mod moment;
pub mod planner;
pub mod predict;
pub mod random;
pub mod rank;
pub mod replay;
pub mod report;
pub mod simulate;
pub mod sketch;
pub mod workload;

pub use advise::{AdviceError, Advisor, Config, Measured, Report, Scope};
pub use layout::Limits;
