//! What a write leaves behind: the item, its RID and feed entry, its index entries, unique tuples, expiry entry and history.

use bytes::Bytes;
use orrery_metering::cost;
use orrery_model::Value;
use orrery_model::document::parse_object;
use orrery_storage::Key;

use super::working::{ExistingItem, Working};
use super::{ActionResult, ActionSuccess, Effect, IndexEntries};
use crate::items::history;
use crate::items::prepare::{PreparedItem, unique_hashes};
use crate::layout::history::Version;
use crate::layout::stored::{StoredItem, ordinal};
use crate::layout::{keys, tombstone};

impl Working<'_> {
    /// Writes an item, replacing the existing one if there is one.
    pub(super) fn put(
        &mut self,
        new: &PreparedItem,
        existing: Option<&ExistingItem>,
        position: u16,
    ) -> ActionResult {
        let unique_keys = self.transaction.unique_keys_of(&new.unique_hashes);
        if let Err(error) = self.check_put(new, existing, &unique_keys) {
            return ActionResult { outcome: Err(error), charge: cost::refused_write(0) };
        }
        let effect = if existing.is_some_and(|existing| existing.visible) {
            Effect::Replaced
        } else {
            Effect::Created
        };
        // The old version goes before the new one comes, since both may write the same keys.
        let old_entries = self.take_out(existing);
        let item_key = keys::item(&self.transaction.effective, new.id.as_str());
        let ordinal = self.place(&item_key, new, existing, position);
        let item = StoredItem {
            lsn: self.lsn,
            position,
            timestamp: self.transaction.now_seconds(),
            ordinal,
            ttl: new.ttl,
            version: self.transaction.script.map(|script| script.version(position)),
            is_plain: new.is_plain,
            body: new.body.clone(),
        };
        self.write_references(&item_key, &item, new, unique_keys);
        let terms = self.reindex(new, &item, &old_entries, effect);
        if self.keeps_history {
            self.record_begin(&item_key, &item, existing);
        }
        // After `place`, which looks whether the item was written before.
        self.writes.insert(item_key, Some(item.encode()));
        let charge = match effect {
            Effect::Replaced => cost::replace(new.body.len(), terms),
            _ => cost::create(new.body.len(), terms),
        };
        ActionResult { outcome: Ok(ActionSuccess { effect, item }), charge }
    }

    /// Removes the secondary entries of the existing version; returns its index entries, which may stay.
    fn take_out(&mut self, existing: Option<&ExistingItem>) -> IndexEntries {
        let Some(existing) = existing else { return IndexEntries::default() };
        let value = parse_object(&existing.item.body).ok();
        self.remove_references(&existing.item, value.as_ref(), &existing.id);
        self.index_entries(Some(&existing.item), value.as_ref(), &existing.id)
    }

    /// Assigns the RID: that of the replaced item, which may have had another id, or a new one.
    fn place(
        &mut self,
        item_key: &Key,
        new: &PreparedItem,
        existing: Option<&ExistingItem>,
        position: u16,
    ) -> u64 {
        let old_key = existing
            .filter(|existing| *existing.id != *new.id.as_str())
            .map(|existing| keys::item(&self.transaction.effective, &existing.id));
        self.notice_repeated(item_key);
        if let Some(old_key) = &old_key {
            self.notice_repeated(old_key);
        }
        let replaced = existing.filter(|existing| existing.visible);
        let ordinal = match (replaced, self.transaction.script) {
            (Some(existing), _) => existing.item.ordinal,
            (None, Some(script)) => script.ordinal(position),
            (None, None) => ordinal(self.lsn, position, self.transaction.range_id),
        };
        // An invisible item does not pass on its RID.
        if let Some(existing) = existing.filter(|existing| !existing.visible) {
            self.writes.insert(keys::rid(existing.item.ordinal), None);
        }
        // Unchanged for a plain replacement: the RID leads to the same key.
        if replaced.is_none() || old_key.is_some() {
            self.writes.insert(keys::rid(ordinal), Some(Bytes::copy_from_slice(item_key)));
        }
        if let Some(old_key) = old_key {
            self.writes.insert(old_key, None);
        }
        ordinal
    }

    /// Writes the item's feed entry, expiry entry and unique tuples.
    fn write_references(
        &mut self,
        item_key: &Key,
        item: &StoredItem,
        new: &PreparedItem,
        unique_keys: Vec<Key>,
    ) {
        self.writes.insert(keys::feed(item.lsn, item.position), Some(Bytes::copy_from_slice(item_key)));
        if let Some(expiry) = own_expiry(item) {
            self.writes.insert(keys::expiry(expiry, item_key), Some(Bytes::new()));
        }
        for key in unique_keys {
            self.writes.insert(key, Some(Bytes::copy_from_slice(new.id.as_str().as_bytes())));
        }
    }

    /// Writes new index entries and deletes obsolete ones; returns the number of terms changed.
    fn reindex(
        &mut self,
        new: &PreparedItem,
        item: &StoredItem,
        old_entries: &IndexEntries,
        effect: Effect,
    ) -> usize {
        // Entries were built ahead for whole items; a patch has none.
        let made = self.transaction.entries.get(usize::from(item.position));
        let new_entries = match made.filter(|made| !made.keys.is_empty()) {
            Some(made) => made.clone(),
            None => self.index_entries(Some(item), Some(&new.value), new.id.as_str()),
        };
        self.require_entries_of(&new_entries, new, item);
        let value = Bytes::copy_from_slice(&item.ordinal.to_be_bytes());
        if old_entries.keys.is_empty() {
            self.write_index(new_entries.keys, Some(&value));
            return new_entries.terms;
        }
        // Only the difference is written: most terms of an item stay when it is replaced.
        let gone = old_entries.keys.filter(|key| !new_entries.keys.contains(key));
        // An entry contains the ordinal, so it is unchanged only if the ordinal is.
        let kept_ordinal = effect == Effect::Replaced;
        let added = if kept_ordinal {
            new_entries.keys.filter(|key| !old_entries.keys.contains(key))
        } else {
            new_entries.keys.clone()
        };
        // Whether counted from the old or the new version, the same entries stay.
        self.require(
            !kept_ordinal || old_entries.keys.len() - gone.len() == new_entries.keys.len() - added.len(),
            "the index entries of an item are exactly its terms",
        );
        let terms = self.transaction.terms_of(&added) + self.transaction.terms_of(&gone);
        self.write_index(added, Some(&value));
        self.write_index(gone, None);
        terms
    }

    /// Checks that index entries are those of the version that is written: entries built in advance could belong to another
    /// item, and would lead queries there for good, because nothing reads entries before it writes them.
    fn require_entries_of(&self, entries: &IndexEntries, new: &PreparedItem, item: &StoredItem) {
        let mut place = Key::new();
        keys::push_place(&mut place, &self.transaction.effective, new.id.as_str());
        let lead_to_item = entries.keys.iter().all(|key| key.ends_with(&place));
        // Computing the terms again would double the work of all writers, so only tests do.
        let are_terms = || {
            let terms = self.index_entries(Some(item), Some(&new.value), new.id.as_str());
            terms.keys.iter().eq(entries.keys.iter())
        };
        self.require(
            lead_to_item && (!cfg!(debug_assertions) || are_terms()),
            "the index entries of an item are exactly its terms",
        );
    }

    /// Records a new version in the history, and the end of an existing but invisible item.
    fn record_begin(&mut self, item_key: &Key, item: &StoredItem, existing: Option<&ExistingItem>) {
        let previous = existing.filter(|existing| existing.visible).map(|existing| existing.item.lsn);
        if let Some(existing) = existing.filter(|existing| !existing.visible) {
            self.record_end(existing, item.position);
        }
        let version = Version::written(item_key, item, previous);
        self.writes.insert(keys::history(item.lsn, item.position, history::BEGIN), Some(version));
    }

    /// Records the end of an item in the history: as expired, or as deleted if it was purged.
    fn record_end(&mut self, existing: &ExistingItem, position: u16) {
        let item_key = keys::item(&self.transaction.effective, &existing.id);
        // Invisible and still counted: expired. A purge has deducted what it hides.
        let expired = !existing.visible && existing.counted;
        let now = self.transaction.now_seconds();
        let version =
            Version::deleted(&item_key, &self.transaction.partition_key, now, &existing.item, expired);
        self.writes.insert(keys::history(self.lsn, position, history::END), Some(version));
    }

    /// Removes an item and everything that refers to it.
    pub(super) fn delete(&mut self, existing: ExistingItem, position: u16) -> ActionResult {
        let value = parse_object(&existing.item.body).ok();
        let id = value
            .as_ref()
            .and_then(|value| value.get("id"))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let item_key = keys::item(&self.transaction.effective, &id);
        self.notice_repeated(&item_key);
        self.remove_references(&existing.item, value.as_ref(), &id);
        self.writes.insert(item_key, None);
        self.writes.insert(keys::rid(existing.item.ordinal), None);
        // Computed again from the body, because nothing reads entries before it deletes them.
        let entries = self.index_entries(Some(&existing.item), value.as_ref(), &id);
        self.write_index(entries.keys, None);
        if existing.counted {
            let bytes = existing.item.body.len() as u64;
            self.require(self.statistics.items > 0, "every stored item was counted");
            self.require(self.statistics.bytes >= bytes, "the counted bytes include every counted item");
            self.statistics.items = self.statistics.items.saturating_sub(1);
            self.statistics.bytes = self.statistics.bytes.saturating_sub(bytes);
        }
        if self.keeps_history {
            self.record_end(&existing, position);
        }
        let charge = cost::delete(entries.terms);
        ActionResult { outcome: Ok(ActionSuccess { effect: Effect::Deleted, item: existing.item }), charge }
    }

    /// The index entries of a version, in every maintained generation.
    fn index_entries(&self, item: Option<&StoredItem>, value: Option<&Value>, id: &str) -> IndexEntries {
        match (item, value) {
            (Some(item), Some(value)) => self.transaction.entries_of(value, item.timestamp, id),
            _ => IndexEntries::default(),
        }
    }

    /// Removes the feed entry, expiry entry and unique tuples of a version.
    fn remove_references(&mut self, item: &StoredItem, value: Option<&Value>, id: &str) {
        // The feed has each item once, at its latest change.
        self.writes.insert(keys::feed(item.lsn, item.position), None);
        let item_key = keys::item(&self.transaction.effective, id);
        if self.transaction.container.repartition.is_some() {
            let tombstone = tombstone::encode(&item_key, &item.body);
            // Tells the copier that this version is gone, which the feed does not.
            self.writes.insert(tombstone::key(self.lsn, self.tombstones), Some(tombstone));
            self.tombstones += 1;
        }
        if let Some(expiry) = own_expiry(item) {
            self.writes.insert(keys::expiry(expiry, &item_key), None);
        }
        let definition = self.transaction.definition();
        if definition.unique_keys.is_empty() {
            return;
        }
        let hashes = value.and_then(|value| unique_hashes(definition, value).ok()).unwrap_or_default();
        for key in self.transaction.unique_keys_of(&hashes) {
            // An expired item may have lost its tuple to another one already.
            if self.get(&key).is_some_and(|holder| holder == id.as_bytes()) {
                self.writes.insert(key, None);
            }
        }
    }
}

/// The second at which an item expires by its own `ttl`. The container's default is not stored with each item, so that
/// changing it takes effect at once: the sweeper finds those items by the feed.
fn own_expiry(item: &StoredItem) -> Option<i64> {
    item.ttl.filter(|ttl| *ttl > 0).map(|ttl| item.timestamp.saturating_add(i64::from(ttl)))
}
