//! Plans a query: which part of the key space it has to visit, and by which access paths.
//!
//! `windows.rs` and `synthetic_routing.rs` narrow the key space, `access.rs` lists the access paths, `points.rs` the
//! items that a filter names, `cover.rs` the entries that answer a query alone, both by what `indexed.rs` knows of the
//! index; `shortcut` of `orrery-query` handles counts, minimum and maximum. `client_plan.rs` and `client_merge.rs` are
//! for clients that merge partitions themselves, `index_metrics.rs` for those that request index metrics.
//!
//! Only decisions that follow from the query and the catalog belong here. Nothing is read from a partition.

pub(super) mod access;
pub(super) mod client_merge;
pub(super) mod client_plan;
pub(super) mod cover;
pub(super) mod index_metrics;
mod indexed;
pub(super) mod points;
mod synthetic_routing;
pub(super) mod windows;
