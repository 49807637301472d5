//! The secondary index: the terms of an item, and filling a new generation.
//!
//! An item's entries are part of its own write: terms that the new version lacks are deleted, new ones are added. A
//! changed indexing policy creates a new *generation* of entries beside the old one; writes maintain both until the
//! background has caught up, so queries are correct throughout.
//!
//! Only what depends on the indexing policy belongs here. The encoding of entries is in `layout::index_entry`; which of
//! them a query uses is decided in `query`.

pub(crate) mod check;
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
