//! Items: preparing them, writing them in transactions, reading them one by one and in feeds.
//!
//! A write is one operation on one partition (`transaction.rs`): it checks the existing state, then derives everything
//! that changes with the item. Expired and purged items are invisible even before they are removed.
//!
//! Only item operations that need neither queries nor scripts belong here.

mod all_versions;
pub(crate) mod areas;
pub(crate) mod batch;
pub(crate) mod change_feed;
pub(crate) mod expiry;
pub(crate) mod explain;
pub(crate) mod feed;
pub(crate) mod fill;
pub(crate) mod history;
pub(crate) mod insertion_order;
pub(crate) mod point;
pub(crate) mod prepare;
pub(crate) mod purge;
pub(crate) mod transaction;

use std::sync::Arc;

use orrery_model::partition_key::{EffectiveKey, PartitionKey};
use orrery_model::{Error, ErrorKind, Result};

use crate::catalog::{Container, Partition};
use crate::index::Indexes;
use crate::layout::stored::StoredItem;

/// Indexed partitions with their items.
pub struct Items {
    pub(crate) indexes: Arc<Indexes>,
    pub(crate) purges: purge::PurgeSet,
    pub(crate) unsettled_histories: history::Unsettled,
    pub(crate) feed_cursors: expiry::FeedCursors,
    pub(crate) large: insertion_order::LargePartitions,
}

layer!(Items { indexes: Indexes });

impl Items {
    pub(crate) fn new(indexes: Arc<Indexes>) -> Self {
        Self {
            indexes,
            purges: purge::PurgeSet::default(),
            unsettled_histories: history::Unsettled::default(),
            feed_cursors: expiry::FeedCursors::default(),
            large: insertion_order::LargePartitions::default(),
        }
    }

    /// Whether the item is visible: neither expired nor purged.
    pub(crate) fn is_visible(
        &self,
        container: &Container,
        _partition: &Partition,
        effective: &EffectiveKey,
        item: &StoredItem,
    ) -> bool {
        // Both checks are in memory; the store is not asked.
        !self.is_expired(container, item) && !self.purges.hides(container.rid, effective, item.lsn)
    }

    /// The same by the item's key.
    pub(crate) fn is_visible_at(&self, container: &Container, item_key: &[u8], item: &StoredItem) -> bool {
        !self.is_expired(container, item) && !self.purges.hides_at(container.rid, item_key, item.lsn)
    }

    fn is_expired(&self, container: &Container, item: &StoredItem) -> bool {
        let default_ttl = container.definition.default_ttl;
        default_ttl.is_some() && item.is_expired(default_ttl, self.env.now_seconds())
    }
}

/// The key that a request must carry.
pub(crate) fn required_key(key: Option<&PartitionKey>) -> Result<&PartitionKey> {
    key.ok_or_else(|| Error::bad_request("PartitionKey value must be supplied for this operation."))
}

/// The error if the key in the request differs from the item's.
pub(crate) fn key_mismatch() -> Error {
    Error::new(
        ErrorKind::PartitionKeyMismatch,
        "PartitionKey extracted from document doesn't match the one specified in the header. Learn more: https://aka.ms/CosmosDB/sql/errors/wrong-pk-value",
    )
}
