//! The secondary index: which terms an item has, and how a new generation of entries is filled.
//!
//! An item's entries are part of its own write: the terms of the old version that the new one lacks go, the new
//! ones come. A changed indexing policy makes a new *generation* of entries beside the old one; writes keep
//! both until the background has caught up, so that queries are right throughout.
//!
//! What may live here: what depends on the indexing policy alone. How entries are encoded is `layout::index_entry`,
//! which of them a query uses is `query`.

pub(crate) mod rebuild;
mod terms;

use std::sync::Arc;

use crate::partition::Partitions;

pub(crate) use terms::{named_paths, push_entries};

/// Partitions with their indexes.
pub struct Indexes {
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) index_rebuilds: rebuild::RebuildProgress,
}

impl Indexes {
    pub(crate) fn new(partitions: Arc<Partitions>) -> Self {
        Self { partitions, index_rebuilds: rebuild::RebuildProgress::default() }
    }
}

layer!(Indexes { partitions: Partitions });
