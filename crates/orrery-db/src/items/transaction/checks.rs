//! What an action requires: conditions on the item's version, keys and unique tuples that are free, room in the logical
//! partition.

use orrery_metering::cost;
use orrery_model::document::parse_object;
use orrery_model::etag::Etag;
use orrery_model::{Error, ErrorKind};
use orrery_storage::Key;

use super::working::{ExistingItem, Working};
use super::{Action, ActionKind, ActionResult};
use crate::items::prepare::PreparedItem;
use crate::layout::stored::StoredItem;

impl Working<'_> {
    /// Keys with the same hash share a position in the store (in hash version 1, strings that differ only after 100
    /// characters). An item of another key is invisible, and its id cannot be used.
    pub(super) fn foreign_key(
        &self,
        action: &Action,
        existing: Option<&ExistingItem>,
    ) -> Option<ActionResult> {
        let key = &self.transaction.partition_key;
        let definition = &self.transaction.definition().partition_key;
        // Nearly all keys: no other can have the same hash.
        if !definition.may_collide(key) {
            return None;
        }
        let existing = existing.filter(|existing| existing.visible)?;
        let stored = parse_object(&existing.item.body).ok().and_then(|value| definition.extract(&value).ok());
        if stored.as_ref() == Some(key) {
            return None;
        }
        // Creating would overwrite the other item; for everything else there is no such item.
        let error = match action.kind {
            ActionKind::Create(_) | ActionKind::Upsert(_) => Error::new(
                ErrorKind::KeyHashCollision,
                "Another item with this id exists under a partition key value that hashes to the same place.",
            ),
            _ => item_not_found(),
        };
        Some(ActionResult { outcome: Err(error), charge: cost::missing_item() })
    }

    /// Checks whether an item may be written, and updates the counters.
    pub(super) fn check_put(
        &mut self,
        new: &PreparedItem,
        existing: Option<&ExistingItem>,
        unique_keys: &[Key],
    ) -> Result<(), Error> {
        // Checked inside the transaction, so that no way of writing can get around it: routing relies on it.
        if let Some(policy) = &self.transaction.container.synthetic {
            policy.check(&new.value, &self.transaction.partition_key)?;
        }
        let old_id = existing.map_or(new.id.as_str(), |existing| &existing.id);
        // The tuple may be held by this very item, under its old or its new id.
        for key in unique_keys {
            if let Some(holder) = self.get(key)
                && holder != new.id.as_str().as_bytes()
                && holder != old_id.as_bytes()
                // An expired holder has lost its claim, although its entry is still there.
                && self.holds_tuple(&holder)
            {
                return Err(unique_violation());
            }
        }
        self.count(new.body.len(), existing).map_or(Ok(()), Err)
    }

    /// Whether the item that reserved a unique tuple is still visible.
    fn holds_tuple(&self, holder: &[u8]) -> bool {
        let id = std::str::from_utf8(holder).expect("the store holds ids as text");
        self.load_existing(id).is_some_and(|existing| existing.visible)
    }

    /// Adjusts the counters for an item of this size, unless the logical partition would be too large.
    fn count(&mut self, size: usize, existing: Option<&ExistingItem>) -> Option<Error> {
        let mut statistics = self.statistics;
        match existing.filter(|existing| existing.counted) {
            Some(existing) => {
                let bytes = existing.item.body.len() as u64;
                self.require(statistics.bytes >= bytes, "the counted bytes include every counted item");
                statistics.bytes = statistics.bytes.saturating_sub(bytes);
            }
            None => statistics.items += 1,
        }
        statistics.bytes += size as u64;
        // Checked before the counters change: a refused action leaves them as they were.
        if statistics.bytes > self.transaction.logical_partition_bytes_max {
            return Some(Error::new(
                ErrorKind::LogicalPartitionFull,
                "Partition key reached maximum size of 20 GB. Learn more: https://aka.ms/CosmosDB/sql/errors/full-pk",
            ));
        }
        self.statistics = statistics;
        None
    }
}

pub(super) fn precondition(action: &Action, item: &StoredItem) -> Option<Error> {
    let etag: Etag = item.etag();
    let differs = |wanted: &str| wanted != "*" && !etag.matches(wanted);
    let failed = match action.kind {
        ActionKind::Create(_) | ActionKind::Read | ActionKind::Sweep => false,
        ActionKind::Upsert(_) | ActionKind::Replace(_) | ActionKind::Delete => {
            action.if_match.as_deref().is_some_and(differs)
        }
        // Of the writes only a patch honours if-none-match.
        ActionKind::Patch { .. } => {
            action.if_match.as_deref().is_some_and(differs)
                || action.if_none_match.as_deref().is_some_and(|unwanted| !differs(unwanted))
        }
    };
    failed.then(precondition_failed)
}

pub(crate) fn precondition_failed() -> Error {
    Error::new(
        ErrorKind::PreconditionFailed,
        "One of the specified pre-condition is not met. Learn more: https://aka.ms/CosmosDB/sql/errors/precondition-failed",
    )
}

pub(crate) fn item_not_found() -> Error {
    // Client test suites check for either sentence.
    Error::new(
        ErrorKind::NotFound,
        "Entity with the specified id does not exist in the system. Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found",
    )
}

pub(super) fn id_exists() -> Error {
    Error::new(ErrorKind::Conflict, "Entity with the specified id already exists in the system.")
}

fn unique_violation() -> Error {
    Error::new(ErrorKind::Conflict, "Unique index constraint violation.")
}
