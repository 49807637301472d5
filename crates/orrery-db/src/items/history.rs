//! The retained versions of items: a history next to the items, for the change feed of all versions and deletes.
//!
//! A partition that retains versions carries a *history mark*, which every write reads: a write is in the history
//! exactly if it came after the mark, regardless of the caller's view of the container. The mark holds the position
//! after which the history is complete; trimming advances it. Marks follow the catalog: they are set before a new
//! container becomes visible, before a replaced definition is acknowledged, and again when the server starts.
//!
//! Layout of a version: format `01`; what happened (1 create, 2 replace, 3 delete); flags (bit 0: the lifetime was
//! over); timestamp i64 (seconds); the number of the version before u64, 0 = none; length of the place u16; the
//! place (effective key and id); then the item as it is stored or, of a delete, its partition key as JSON. Integers
//! are big-endian.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::Result;
use orrery_model::rid::ContainerRid;
use orrery_storage::{Decision, Key, Lsn, PartitionRef, ReadRequest, Scan, View, WriteSet};
use parking_lot::Mutex;

use super::Items;
use crate::catalog::{Container, Partition};
use crate::failure::store_failure;
use crate::layout::history::Version;
use crate::layout::keys;

/// The step of an operation that ends an item, and the one that starts a version.
pub(crate) const END: u8 = 0;
pub(crate) const BEGIN: u8 = 1;

/// Versions removed per transaction.
const TRIM_AT_ONCE: usize = 500;

/// Containers whose marks or history may not match their definition, with a counter: an entry may only be removed if it
/// was not added again meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Unsettled(Mutex<HashMap<ContainerRid, u64>>);

impl Items {
    /// For how many seconds all versions are retained; none if only the latest is.
    pub(crate) fn history_seconds(&self, container: &Container) -> Option<i64> {
        // The container's own policy, or the server's default.
        let own = container.definition.change_feed_retention_minutes.filter(|minutes| *minutes > 0);
        let minutes = own.or(self.options.change_feed_retention_minutes.filter(|minutes| *minutes > 0));
        minutes.map(|minutes| i64::from(minutes) * 60)
    }

    /// The position after which the partition's history is complete; none if there is no history.
    pub(crate) async fn history_floor(&self, partition: &Partition) -> Result<Option<Lsn>> {
        let scan = ReadRequest::Scan(Scan::forward(keys::history_marks(), usize::from(u16::MAX)));
        let page = self.store.read(partition.store, scan).await.map_err(store_failure)?;
        // The highest counts: after a merge each sequence has a mark, and the history is complete only where all are.
        Ok(page.entries.iter().map(|entry| number(&entry.value)).max())
    }

    /// Enables history in a new partition from its first write on.
    pub(crate) async fn record_from_the_start(&self, partition: PartitionRef) -> Result<()> {
        let mut writes = WriteSet::default();
        // Position 0: everything that is ever written will be there.
        writes.put(keys::history_mark(0), Bytes::copy_from_slice(&0u64.to_be_bytes()));
        self.commit_as_it_is(partition, writes).await?;
        Ok(())
    }

    /// Schedules a check of the container's marks.
    pub(crate) fn unsettle_history(&self, container: ContainerRid) {
        // A counter and not a flag: a check that began before may then not clear it.
        *self.unsettled_histories.0.lock().entry(container).or_default() += 1;
    }

    /// Updates the marks of a container's partitions to match its definition. Splits may run concurrently.
    pub(crate) async fn set_history_mark(&self, rid: ContainerRid) -> Result<()> {
        let mut attempt = 0;
        loop {
            let Some(container) = self.catalog.snapshot().container_by_rid(rid).cloned() else {
                return Ok(());
            };
            match self.set_marks_once(&container).await {
                Err(error) if self.may_route_again(&error, &mut attempt).await => {}
                result => return result,
            }
        }
    }

    async fn set_marks_once(&self, container: &Container) -> Result<()> {
        let on = self.history_seconds(container).is_some();
        for partition in &container.partitions {
            // Reading first saves the write in the usual case.
            if self.history_floor(partition).await?.is_some() == on {
                continue;
            }
            let numberings = partition.numberings.max(1);
            let decide = move |view: &dyn View, lsn| set_mark(view, lsn, on, numberings);
            // Decided again inside: a split or another process may have set it meanwhile.
            self.commit_decision(partition, vec![keys::history_mark(0)], decide).await?;
        }
        Ok(())
    }

    /// One round of background work: trims old versions, and removes the history of containers that no longer retain
    /// it.
    pub(crate) async fn maintain_history(&self, container: &Arc<Container>) -> Result<()> {
        let unsettled = self.unsettled_histories.0.lock().get(&container.rid).copied();
        let mut container = Arc::clone(container);
        if unsettled.is_some() {
            self.set_history_mark(container.rid).await?;
            // The round may have started before the latest change.
            match self.catalog.snapshot().container_by_rid(container.rid) {
                Some(current) => container = Arc::clone(current),
                None => return Ok(()),
            }
        }
        let before = match self.history_seconds(&container) {
            Some(seconds) => self.env.now_seconds().saturating_sub(seconds),
            None if unsettled.is_some() => i64::MAX,
            // It keeps no history and has none left.
            None => return Ok(()),
        };
        for partition in &container.partitions {
            self.trim_history(partition, before).await?;
        }
        let mut all = self.unsettled_histories.0.lock();
        if unsettled.is_some() && all.get(&container.rid).copied() == unsettled {
            all.remove(&container.rid);
        }
        Ok(())
    }

    /// Removes versions older than the retention time.
    async fn trim_history(&self, partition: &Partition, before: i64) -> Result<()> {
        // Usually there is nothing to do, which the oldest version shows.
        let mut entries_max = 1;
        loop {
            let scan = ReadRequest::Scan(Scan::forward(keys::history_after(0), entries_max));
            let page = self.store.read(partition.store, scan).await.map_err(store_failure)?;
            let old: Vec<Key> = page
                .entries
                .into_iter()
                // Versions are in the order of their writes, so the old ones are in front. One
                // that cannot be decoded goes too.
                .take_while(|entry| {
                    Version::decode(&entry.value).is_none_or(|version| version.timestamp < before)
                })
                .map(|entry| entry.key)
                .collect();
            let Some((last, _, _)) = old.last().and_then(|key| keys::parse_history(key)) else {
                return Ok(());
            };
            let count = old.len();
            let everything = before == i64::MAX;
            let decide = move |view: &dyn View, _| trim(view, &old, last, everything);
            let trimmed = self.commit_decision(partition, vec![keys::history_mark(0)], decide).await?.out;
            if !trimmed || (count < entries_max && !page.more) || self.is_stopping() {
                return Ok(());
            }
            // There was something to trim, so there is probably more.
            entries_max = TRIM_AT_ONCE;
        }
    }
}

fn number(bytes: &[u8]) -> Lsn {
    bytes.try_into().map_or(Lsn::MAX, u64::from_be_bytes)
}

/// Enables or disables history in one partition.
fn set_mark(view: &dyn View, lsn: Lsn, on: bool, numberings: u16) -> Decision<()> {
    // Another check was faster.
    if view.get(&keys::history_mark(0)).is_some() == on {
        return Decision::Reject(());
    }
    let mut writes = WriteSet::default();
    if on {
        // Earlier writes are not in the history.
        writes.put(keys::history_mark(0), Bytes::copy_from_slice(&lsn.to_be_bytes()));
    } else {
        for numbering in 0..numberings {
            writes.delete(keys::history_mark(numbering));
        }
    }
    Decision::Write(writes, ())
}

/// Removes versions and advances the mark to the last of them. `everything`: the history is being removed, unless it has
/// been enabled again meanwhile.
fn trim(view: &dyn View, versions: &[Key], to: Lsn, everything: bool) -> Decision<bool> {
    let floor = view.get(&keys::history_mark(0)).map(|bytes| number(&bytes));
    if floor.is_some() == everything {
        return Decision::Reject(false);
    }
    let mut writes = WriteSet::default();
    if let Some(floor) = floor {
        // The mark moves in the same commit as the deletions: a reader never finds a gap that the mark denies.
        writes.put(keys::history_mark(0), Bytes::copy_from_slice(&floor.max(to).to_be_bytes()));
    }
    for key in versions {
        writes.delete(key.clone());
    }
    Decision::Write(writes, true)
}
