//! A transaction while it is decided: the values it has read, the changes it has made so far, and what each kind of action
//! does to them.
//!
//! Scripts use it too, one action at a time on top of their earlier writes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use orrery_metering::cost;
use orrery_model::document::parse_object;
use orrery_model::patch::Patch;
use orrery_model::{Charge, Error};
use orrery_query::Condition;
use orrery_query::context::{Policies, Random};
use orrery_storage::{Key, Lsn, PackedKeys, View, WriteSet};

use super::checks::{id_exists, item_not_found, precondition, precondition_failed};
use super::{Action, ActionKind, ActionResult, ActionSuccess, Effect, ItemTransaction};
use crate::items::prepare::PreparedItem;
use crate::layout::document::document_value;
use crate::layout::keys;
use crate::layout::statistics::Statistics;
use crate::layout::stored::StoredItem;

/// The state of the logical partition as the transaction has changed it so far.
pub(crate) struct Working<'a> {
    pub(super) transaction: &'a ItemTransaction,
    pub(super) view: &'a dyn View,
    pub(super) lsn: Lsn,
    pub(super) statistics: Statistics,
    /// Every version is kept.
    pub(super) keeps_history: bool,
    pub(super) writes: BTreeMap<Key, Option<Bytes>>,
    /// Index entries to add and delete. Entries of different items never collide, so order is irrelevant unless an item
    /// is written twice.
    pub(super) unread: Vec<(PackedKeys, Option<Bytes>)>,
    /// An item was written twice: index entries are merged into the other writes.
    pub(super) repeated: bool,
    /// Replaced versions, while the container is being repartitioned.
    pub(super) tombstones: u16,
    /// Keys that turned out to be needed. They count as absent so that one pass finds all of them, however long the
    /// batch; then everything is decided again with their values.
    missing: RefCell<BTreeSet<Key>>,
    /// The first invariant that turned out to be broken: the final decision is then [`Decision::Inconsistent`].
    ///
    /// [`Decision::Inconsistent`]: orrery_storage::Decision::Inconsistent
    broken: Cell<Option<&'static str>>,
}

/// An existing item affected by this transaction.
pub(super) struct ExistingItem {
    pub(super) id: Box<str>,
    pub(super) item: StoredItem,
    /// Neither expired nor purged.
    pub(super) visible: bool,
    /// Counted in the statistics, unless a purge has already deducted it.
    pub(super) counted: bool,
}

impl<'a> Working<'a> {
    pub(super) fn new(transaction: &'a ItemTransaction, view: &'a dyn View, lsn: Lsn) -> Self {
        let stored = view.get(&keys::statistics(&transaction.effective));
        let statistics = stored.as_ref().map(|bytes| Statistics::decode(bytes));
        let keeps_history = view.get(&keys::history_mark(0)).is_some();
        let working = Self::after(transaction, view, lsn, statistics.flatten().unwrap_or_default());
        // Starting from zero instead would let the logical partition grow beyond its limit.
        working.require(statistics != Some(None), "counters have a known format");
        Self { keeps_history, ..working }
    }

    /// Starts from the effects of earlier actions, as shown by `view`.
    pub(crate) fn after(
        transaction: &'a ItemTransaction,
        view: &'a dyn View,
        lsn: Lsn,
        statistics: Statistics,
    ) -> Self {
        Self {
            transaction,
            view,
            lsn,
            statistics,
            // History is written when the transaction is applied.
            keeps_history: false,
            writes: BTreeMap::new(),
            unread: Vec::new(),
            repeated: false,
            tombstones: 0,
            missing: RefCell::default(),
            broken: Cell::new(None),
        }
    }

    /// Keys that turned out to be needed. While there are any, decisions are not final.
    pub(crate) fn take_missing(&self) -> BTreeSet<Key> {
        self.missing.take()
    }

    /// Whether decisions so far are provisional.
    pub(super) fn is_missing_reads(&self) -> bool {
        !self.missing.borrow().is_empty()
    }

    /// The counters as they are now.
    pub(super) fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Checks an invariant of the stored data. The decision continues either way, on whatever values there are, because only
    /// a final one can tell that the data is wrong: until then missing values count as absent.
    pub(super) fn require(&self, holds: bool, invariant: &'static str) {
        // The first broken invariant is the cause; later ones may be its consequences.
        if !holds && self.broken.get().is_none() {
            self.broken.set(Some(invariant));
        }
    }

    /// The counters and the writes as they are now.
    pub(crate) fn into_changes(mut self) -> (Statistics, BTreeMap<Key, Option<Bytes>>) {
        self.join_index_entries();
        (self.statistics, self.writes)
    }

    /// The write set; `None` if nothing changes. Fails if an invariant is broken.
    pub(super) fn into_writes(mut self) -> Result<Option<WriteSet>, String> {
        let own_items = keys::item(&self.transaction.effective, "");
        // The last check before anything is written: an item under another key could
        // never be found or split correctly.
        self.require(
            self.writes.keys().all(|key| key.first() != own_items.first() || key.starts_with(&own_items)),
            "a transaction writes items of its own logical partition only",
        );
        if let Some(invariant) = self.broken.get() {
            return Err(format!("broken invariant: {invariant}"));
        }
        if self.writes.is_empty() {
            return Ok(None);
        }
        let statistics_key = keys::statistics(&self.transaction.effective);
        // Every write rewrites the counters with its LSN, so that scripts detect it by this one key.
        self.statistics.written_at = self.lsn;
        let statistics = self.statistics.encode(&self.transaction.partition_key);
        self.writes.insert(statistics_key, Some(statistics));
        let mut writes = WriteSet { unread: self.unread, ..WriteSet::default() };
        for (key, value) in self.writes {
            match value {
                Some(value) => writes.put(key, value),
                None => writes.delete(key),
            }
        }
        Ok(Some(writes))
    }

    /// Writes or deletes index entries of an item.
    pub(super) fn write_index(&mut self, keys: PackedKeys, value: Option<&Bytes>) {
        if !keys.is_empty() {
            self.unread.push((keys, value.cloned()));
        }
        if self.repeated {
            self.join_index_entries();
        }
    }

    /// Must be called before an item is written or deleted: if it was written before, the order matters.
    pub(super) fn notice_repeated(&mut self, item_key: &[u8]) {
        if !self.repeated && self.writes.contains_key(item_key) {
            self.repeated = true;
            self.join_index_entries();
        }
    }

    /// Merges index entries into the ordered writes, where a later change replaces an earlier one.
    fn join_index_entries(&mut self) {
        for (keys, value) in std::mem::take(&mut self.unread) {
            self.writes.extend(keys.iter().map(|key| (key.to_vec(), value.clone())));
        }
    }

    /// The value of a key after the changes so far. One that has not been read counts as absent for now.
    pub(super) fn get(&self, key: &[u8]) -> Option<Bytes> {
        match self.writes.get(key) {
            Some(written) => written.clone(),
            // Not written by this transaction: the value as the store has it.
            None if self.view.has_read(key) => self.view.get(key),
            None => {
                self.missing.borrow_mut().insert(key.to_vec());
                None
            }
        }
    }

    /// The item with this id, whether or not readers can see it.
    pub(super) fn load_existing(&self, id: &str) -> Option<ExistingItem> {
        let bytes = self.get(&keys::item(&self.transaction.effective, id))?;
        let item = StoredItem::decode(&bytes);
        self.require(item.is_some(), "items have a known format");
        let item = item?;
        let definition = self.transaction.definition();
        let purged = item.lsn <= self.statistics.purged_to;
        let expired = item.is_expired(definition.default_ttl, self.transaction.now_seconds());
        Some(ExistingItem { id: id.into(), item, visible: !purged && !expired, counted: !purged })
    }

    /// Applies one action; a failed one changes nothing.
    pub(crate) fn run(&mut self, action: &Action, position: u16) -> ActionResult {
        let existing = self.load_existing(action.id.as_str());
        // First: the item at this place may belong to another key.
        if let Some(result) = self.foreign_key(action, existing.as_ref()) {
            return result;
        }
        let visible = existing.as_ref().is_some_and(|existing| existing.visible);
        let size = existing.as_ref().map_or(0, |existing| existing.item.body.len());
        let refuse = |error: Error| ActionResult { outcome: Err(error), charge: cost::refused_write(size) };
        // An invisible item has no etag to compare with.
        if visible
            && let Some(existing) = &existing
            && let Some(error) = precondition(action, &existing.item)
        {
            return refuse(error);
        }
        match (&action.kind, existing) {
            (ActionKind::Create(_), Some(existing)) if existing.visible => refuse(id_exists()),
            (ActionKind::Create(item) | ActionKind::Upsert(item), existing) => {
                self.put(item, existing.as_ref(), position)
            }
            (ActionKind::Replace(item), Some(existing)) if existing.visible => {
                // A rename: the new id must be free. One that has expired makes room.
                if item.id != action.id
                    && let Some(other) = self.load_existing(item.id.as_str())
                {
                    if other.visible {
                        return refuse(id_exists());
                    }
                    self.delete(other, position);
                }
                self.put(item, Some(&existing), position)
            }
            (ActionKind::Patch { patch, condition }, Some(existing)) if existing.visible => {
                match self.patched(patch, condition.as_ref(), &existing.item) {
                    Ok(item) => {
                        let mut result = self.put(&item, Some(&existing), position);
                        result.charge += cost::patch_operations(patch.len());
                        result
                    }
                    Err(error) => refuse(error),
                }
            }
            (ActionKind::Delete, Some(existing)) if existing.visible => self.delete(existing, position),
            // Still expired or purged now, in commit order: the sweeper has read it earlier.
            (ActionKind::Sweep, Some(existing)) if !existing.visible => self.delete(existing, position),
            // Rewritten or removed meanwhile: nothing to do, and no reason to fail the others.
            (ActionKind::Sweep, _) => {
                let success = ActionSuccess { effect: Effect::NotModified, item: StoredItem::default() };
                ActionResult { outcome: Ok(success), charge: Charge::ZERO }
            }
            (ActionKind::Read, Some(existing)) if existing.visible => read(action, existing.item),
            _ => ActionResult { outcome: Err(item_not_found()), charge: cost::missing_item() },
        }
    }

    /// The new version that a patch makes of an item, if its condition holds.
    fn patched(
        &self,
        patch: &Patch,
        condition: Option<&Condition>,
        item: &StoredItem,
    ) -> Result<PreparedItem, Error> {
        let definition = self.transaction.definition();
        if let Some(condition) = condition {
            let document = document_value(item, self.transaction.container.rid)?;
            // A fixed seed: a decision must come out the same each time it runs.
            let (random, policies) = (Random::new(0), Policies::default());
            let context = orrery_query::Context::new(self.transaction.now_ms, &random, &policies);
            if !condition.holds(&document, &context) {
                return Err(precondition_failed());
            }
        }
        let mut value = parse_object(&item.body)?;
        patch.apply(&mut value)?;
        PreparedItem::from_value(definition, value)
    }
}

fn read(action: &Action, item: StoredItem) -> ActionResult {
    let charge = cost::point_read(item.body.len());
    let matches = |wanted: &str| item.etag().matches(wanted);
    // A read in a batch whose if-match holds is treated like a failed if-none-match (`CosmosBulkTest` of the Java
    // client).
    let unchanged = action.if_none_match.as_deref().is_some_and(|wanted| wanted == "*" || matches(wanted))
        || action.if_match.as_deref().is_some_and(matches);
    if unchanged {
        return ActionResult {
            outcome: Ok(ActionSuccess { effect: Effect::NotModified, item }),
            charge: cost::missing_item(),
        };
    }
    ActionResult { outcome: Ok(ActionSuccess { effect: Effect::Read, item }), charge }
}
