//! The one way items are written: a list of actions on one logical partition, decided and applied as a whole.
//!
//! A single create or replace is a transaction of one action; a batch has up to a hundred. Everything an item touches
//! (itself, its feed entry, its history, its unique tuples, its expiry entry, the counters of its logical partition) is
//! in the same write set. Actions see the effects of earlier ones; the first failure aborts the transaction, and
//! nothing is written.

use orrery_model::document::parse_object;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::container::ContainerDefinition;
use orrery_model::etag::Etag;
use orrery_model::ids::ItemId;
use orrery_model::partition_key::{EffectiveKey, PartitionKey};
use orrery_model::patch::Patch;
use orrery_model::{Charge, Error, ErrorKind, Value};
use orrery_query::Condition;
use orrery_query::context::{Policies, Random};
use orrery_storage::{Decision, Key, KeyPacker, Lsn, Op, PackedKeys, View, WriteSet};

use orrery_metering::cost;

use super::history;
use super::prepare::{PreparedItem, unique_hashes};
use crate::catalog::Container;
use crate::index;
use crate::layout::document::document_value;
use crate::layout::history::Version;
use crate::layout::index_entry;
use crate::layout::statistics::Statistics;
use crate::layout::stored::{StoredItem, ordinal};
use crate::layout::{keys, tombstone};

/// The maximum size of a batch response: a batch that reads more fails as a whole, with 413 for the operation that
/// exceeded it (the service's clients test this with ten reads of a megabyte).
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Initial capacity, enough for the index entries of a 1 KB item.
const ENTRIES_BYTES: usize = 2500;

/// What to do with one item.
#[derive(Debug)]
pub(crate) enum ActionKind {
    Create(PreparedItem),
    Upsert(PreparedItem),
    /// The new version may have another id: the item is then renamed and keeps its RID.
    Replace(PreparedItem),
    Patch {
        patch: Patch,
        condition: Option<Condition>,
    },
    Delete,
    /// Removes the item only if it has expired or was purged.
    Sweep,
    Read,
}

/// One step of a transaction.
#[derive(Debug)]
pub(crate) struct Action {
    pub id: ItemId,
    pub kind: ActionKind,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
}

/// The result of one action.
#[derive(Clone, Debug)]
pub(crate) struct ActionResult {
    pub outcome: Result<ActionSuccess, Error>,
    pub charge: Charge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Created,
    Replaced,
    Deleted,
    Read,
    NotModified,
}

#[derive(Clone, Debug)]
pub(crate) struct ActionSuccess {
    pub effect: Effect,
    /// The item after the action; for a delete, what was deleted.
    pub item: StoredItem,
}

impl ActionSuccess {
    /// The size of the item in the response; deleted and unchanged items have no body there.
    fn answer_bytes(&self) -> usize {
        match self.effect {
            Effect::Created | Effect::Replaced | Effect::Read => self.item.body.len(),
            Effect::Deleted | Effect::NotModified => 0,
        }
    }
}

/// The result of a transaction: one result per action, up to the failed one, if any.
#[derive(Clone, Debug, Default)]
pub(crate) struct TransactionOutcome {
    pub results: Vec<ActionResult>,
    pub failed: bool,
    /// The container's index has changed since the transaction was prepared: prepare it again.
    pub stale: bool,
    /// The logical partition's counters after the transaction.
    pub statistics: Statistics,
}

impl TransactionOutcome {
    fn stale() -> Self {
        Self { failed: true, stale: true, ..Self::default() }
    }
}

/// A transaction on one logical partition.
#[derive(Debug)]
pub(crate) struct ItemTransaction {
    pub operation_id: u128,
    pub container: Arc<Container>,
    /// The partition's number inside its container, for the ordinals of new items.
    pub range_id: u32,
    pub partition_key: PartitionKey,
    pub effective: EffectiveKey,
    pub now_ms: i64,
    pub logical_partition_bytes_max: u64,
    pub actions: Arc<Vec<Action>>,
    /// Index entries of the written items, built in advance as far as possible, because all writers wait for decisions.
    pub entries: Vec<IndexEntries>,
    /// Set if a script made these writes.
    pub script: Option<ScriptStamp>,
}

/// The index entries of a version, in every maintained generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexEntries {
    keys: PackedKeys,
    /// Their total charge.
    terms: usize,
}

/// Ties a script's transaction to the snapshot it has read, and provides the identity of its writes.
///
/// A script sees the etags and RIDs of its writes before they have an LSN, so they derive from a random number instead.
/// Their ranges are disjoint from those derived from LSNs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScriptStamp {
    /// The last write of the logical partition when the script read it.
    pub read_at: Lsn,
    pub seed: u64,
}

impl ScriptStamp {
    fn version(self, position: u16) -> u64 {
        1 << 63 | (self.seed >> 1).wrapping_add(u64::from(position)) & (u64::MAX >> 1)
    }

    fn ordinal(self, position: u16) -> u64 {
        1 << 59 | (self.seed >> 5) & !0xFFFF | u64::from(position)
    }
}

impl Op for ItemTransaction {
    type Out = TransactionOutcome;

    fn id(&self) -> u128 {
        self.operation_id
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        keys.push(keys::statistics(&self.effective));
        keys.push(keys::INDEX_VERSION.to_vec());
        keys.push(keys::history_mark(0));
        let mut named: HashSet<&str> = HashSet::new();
        for action in self.actions.iter() {
            self.reads_of(action, &mut named, keys);
        }
        // Two actions of a batch may compete for one unique tuple.
        keys.sort_unstable();
        keys.dedup();
    }

    fn decide(&self, view: &dyn View, lsn: Lsn) -> Decision<TransactionOutcome> {
        let frozen = self.container.repartition.as_ref().is_some_and(|repartition| repartition.frozen);
        if frozen || self.container.index.version < index::rebuild::version_in(view) {
            return Decision::Reject(TransactionOutcome::stale());
        }
        let mut working = Working::new(self, view, lsn);
        // There was a write since the script read: its decisions may be invalid.
        if self.script.is_some_and(|script| script.read_at != working.statistics.written_at) {
            return Decision::Reject(TransactionOutcome::stale());
        }
        let mut results = Vec::with_capacity(self.actions.len());
        let mut failed = false;
        let mut answer_bytes = 0;
        for (position, action) in self.actions.iter().enumerate() {
            let position = u16::try_from(position).expect("neither batches nor scripts write so often");
            let mut result = working.run(action, position);
            answer_bytes += result.outcome.as_ref().map_or(0, ActionSuccess::answer_bytes);
            // One item always fits, and scripts have their own limit.
            let is_batch = self.script.is_none() && position > 0;
            if answer_bytes > ANSWER_BYTES_MAX && is_batch && result.outcome.is_ok() {
                result.outcome = Err(Error::new(ErrorKind::TooLarge, "Response size is too large"));
            }
            failed = result.outcome.is_err();
            results.push(result);
            // While reads are missing a failure is not final, and later actions may need reads as well.
            if failed && working.missing.borrow().is_empty() {
                break;
            }
        }
        let missing = working.missing.take();
        if !missing.is_empty() {
            return Decision::NeedReads(missing.into_iter().collect());
        }
        let outcome = TransactionOutcome { results, failed, stale: false, statistics: working.statistics };
        match working.into_writes() {
            Some(mut writes) if !failed => {
                // The first write with a new index version records it, which invalidates stale writers.
                let version = self.container.index.version;
                if version > index::rebuild::version_in(view).max(1) {
                    let version = Bytes::copy_from_slice(&version.to_be_bytes());
                    writes.put(keys::INDEX_VERSION.to_vec(), version);
                }
                Decision::Write(writes, outcome)
            }
            _ => Decision::Reject(outcome),
        }
    }
}

impl ItemTransaction {
    /// Builds the index entries that are certain to be needed.
    #[must_use]
    pub(crate) fn with_entries(mut self) -> Self {
        let now = self.now_seconds();
        let entries = self.actions.iter().map(|action| match &action.kind {
            ActionKind::Create(item) | ActionKind::Upsert(item) | ActionKind::Replace(item) => {
                self.entries_of(&item.value, now, item.id.as_str())
            }
            ActionKind::Patch { .. } | ActionKind::Delete | ActionKind::Sweep | ActionKind::Read => {
                IndexEntries::default()
            }
        });
        self.entries = entries.collect();
        self
    }

    fn entries_of(&self, value: &Value, timestamp: i64, id: &str) -> IndexEntries {
        let index = &self.container.index;
        let mut keys = KeyPacker::with_capacity(24, ENTRIES_BYTES);
        for generation in index.generations() {
            index::push_entries(&mut keys, generation, value, timestamp, &self.effective, id);
        }
        let keys = keys.finish();
        IndexEntries { terms: self.terms_of(&keys), keys }
    }

    /// The charge for index entries.
    fn terms_of(&self, keys: &PackedKeys) -> usize {
        let serving = self.container.index.serving.number;
        keys.iter().map(|key| index_entry::charged_terms(key, serving)).sum()
    }

    /// The keys that an action always reads.
    pub(crate) fn reads_of<'a>(&self, action: &'a Action, named: &mut HashSet<&'a str>, keys: &mut Vec<Key>) {
        if named.insert(action.id.as_str()) {
            keys.push(keys::item(&self.effective, action.id.as_str()));
        }
        if let ActionKind::Create(item) | ActionKind::Upsert(item) | ActionKind::Replace(item) = &action.kind
        {
            if named.insert(item.id.as_str()) {
                keys.push(keys::item(&self.effective, item.id.as_str()));
            }
            keys.extend(self.unique_keys_of(&item.unique_hashes));
        }
    }

    fn definition(&self) -> &ContainerDefinition {
        &self.container.definition
    }

    fn now_seconds(&self) -> i64 {
        self.now_ms.div_euclid(1000)
    }

    fn unique_keys_of(&self, hashes: &[[u8; 32]]) -> Vec<Key> {
        let policies = 0u8..;
        policies.zip(hashes).map(|(policy, hash)| keys::unique(policy, &self.effective, hash)).collect()
    }
}

/// The state of the logical partition as the transaction has changed it so far.
pub(crate) struct Working<'a> {
    transaction: &'a ItemTransaction,
    view: &'a dyn View,
    lsn: Lsn,
    statistics: Statistics,
    /// Every version is kept.
    keeps_history: bool,
    writes: BTreeMap<Key, Option<Bytes>>,
    /// Index entries to add and delete. Entries of different items never collide, so order is irrelevant unless an item
    /// is written twice.
    unread: Vec<(PackedKeys, Option<Bytes>)>,
    /// An item was written twice: index entries are merged into the other writes.
    repeated: bool,
    /// Replaced versions, while the container is being repartitioned.
    tombstones: u16,
    /// Keys that turned out to be needed. They count as absent so that one pass finds all of them, however long the
    /// batch; then everything is decided again with their values.
    missing: RefCell<BTreeSet<Key>>,
}

/// An existing item affected by this transaction.
struct ExistingItem {
    id: Box<str>,
    item: StoredItem,
    /// Neither expired nor purged.
    visible: bool,
    /// Counted in the statistics, unless a purge has already deducted it.
    counted: bool,
}

impl<'a> Working<'a> {
    fn new(transaction: &'a ItemTransaction, view: &'a dyn View, lsn: Lsn) -> Self {
        let statistics = view.get(&keys::statistics(&transaction.effective));
        let statistics = statistics.and_then(|bytes| Statistics::decode(&bytes)).unwrap_or_default();
        let keeps_history = view.get(&keys::history_mark(0)).is_some();
        Self { keeps_history, ..Self::after(transaction, view, lsn, statistics) }
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
        }
    }

    /// Keys that turned out to be needed. While there are any, decisions are not final.
    pub(crate) fn take_missing(&self) -> BTreeSet<Key> {
        self.missing.take()
    }

    /// The counters and the writes as they are now.
    pub(crate) fn into_changes(mut self) -> (Statistics, BTreeMap<Key, Option<Bytes>>) {
        self.join_index_entries();
        (self.statistics, self.writes)
    }

    fn into_writes(mut self) -> Option<WriteSet> {
        if self.writes.is_empty() {
            return None;
        }
        let statistics_key = keys::statistics(&self.transaction.effective);
        self.statistics.written_at = self.lsn;
        let statistics = self.statistics.encode(&self.transaction.partition_key);
        self.writes.insert(statistics_key, Some(statistics));
        debug_assert!(
            self.writes.keys().all(|key| {
                keys::parse_item(key).is_none_or(|(effective, _)| effective == self.transaction.effective)
            }),
            "a transaction writes items of its own logical partition alone"
        );
        let mut writes = WriteSet { unread: self.unread, ..WriteSet::default() };
        for (key, value) in self.writes {
            match value {
                Some(value) => writes.put(key, value),
                None => writes.delete(key),
            }
        }
        Some(writes)
    }

    /// Writes or deletes index entries of an item.
    fn write_index(&mut self, keys: PackedKeys, value: Option<&Bytes>) {
        if !keys.is_empty() {
            self.unread.push((keys, value.cloned()));
        }
        if self.repeated {
            self.join_index_entries();
        }
    }

    /// Must be called before an item is written or deleted: if it was written before, the order matters.
    fn notice_repeated(&mut self, item_key: &[u8]) {
        if !self.repeated && self.writes.contains_key(item_key) {
            self.repeated = true;
            self.join_index_entries();
        }
    }

    fn join_index_entries(&mut self) {
        for (keys, value) in std::mem::take(&mut self.unread) {
            self.writes.extend(keys.iter().map(|key| (key.to_vec(), value.clone())));
        }
    }

    fn get(&self, key: &[u8]) -> Option<Bytes> {
        match self.writes.get(key) {
            Some(written) => written.clone(),
            None if self.view.has_read(key) => self.view.get(key),
            None => {
                self.missing.borrow_mut().insert(key.to_vec());
                None
            }
        }
    }

    fn load_existing(&self, id: &str) -> Option<ExistingItem> {
        let bytes = self.get(&keys::item(&self.transaction.effective, id))?;
        let item = StoredItem::decode(&bytes).expect("the store holds items of a known format");
        let definition = self.transaction.definition();
        let purged = item.lsn <= self.statistics.purged_to;
        let expired = item.is_expired(definition.default_ttl, self.transaction.now_seconds());
        Some(ExistingItem { id: id.into(), item, visible: !purged && !expired, counted: !purged })
    }

    pub(crate) fn run(&mut self, action: &Action, position: u16) -> ActionResult {
        let met = self.load_existing(action.id.as_str());
        if let Some(result) = self.foreign_key(action, met.as_ref()) {
            return result;
        }
        let visible = met.as_ref().is_some_and(|met| met.visible);
        let size = met.as_ref().map_or(0, |met| met.item.body.len());
        let refuse = |error: Error| ActionResult { outcome: Err(error), charge: cost::refused_write(size) };
        if visible
            && let Some(met) = &met
            && let Some(error) = precondition(action, &met.item)
        {
            return refuse(error);
        }
        match (&action.kind, met) {
            (ActionKind::Create(_), Some(met)) if met.visible => refuse(id_exists()),
            (ActionKind::Create(item) | ActionKind::Upsert(item), met) => {
                self.put(item, met.as_ref(), position)
            }
            (ActionKind::Replace(item), Some(met)) if met.visible => {
                if item.id != action.id
                    && let Some(other) = self.load_existing(item.id.as_str())
                {
                    if other.visible {
                        return refuse(id_exists());
                    }
                    self.delete(other, position);
                }
                self.put(item, Some(&met), position)
            }
            (ActionKind::Patch { patch, condition }, Some(met)) if met.visible => {
                match self.patched(patch, condition.as_ref(), &met.item) {
                    Ok(item) => {
                        let mut result = self.put(&item, Some(&met), position);
                        result.charge += cost::patch_operations(patch.len());
                        result
                    }
                    Err(error) => refuse(error),
                }
            }
            (ActionKind::Delete, Some(met)) if met.visible => self.delete(met, position),
            (ActionKind::Sweep, Some(met)) if !met.visible => self.delete(met, position),
            // Rewritten or removed meanwhile: nothing to do, and no reason to fail the others.
            (ActionKind::Sweep, _) => {
                let success = ActionSuccess { effect: Effect::NotModified, item: StoredItem::default() };
                ActionResult { outcome: Ok(success), charge: Charge::ZERO }
            }
            (ActionKind::Read, Some(met)) if met.visible => read(action, met.item),
            _ => ActionResult { outcome: Err(item_not_found()), charge: cost::missing_item() },
        }
    }

    /// Keys with the same hash share a position in the store (in hash version 1, strings that differ only after 100
    /// characters). An item of another key is invisible, and its id cannot be used.
    fn foreign_key(&self, action: &Action, met: Option<&ExistingItem>) -> Option<ActionResult> {
        let key = &self.transaction.partition_key;
        let definition = &self.transaction.definition().partition_key;
        if !definition.may_collide(key) {
            return None;
        }
        let met = met.filter(|met| met.visible)?;
        let stored = parse_object(&met.item.body).ok().and_then(|value| definition.extract(&value).ok());
        if stored.as_ref() == Some(key) {
            return None;
        }
        let error = match action.kind {
            ActionKind::Create(_) | ActionKind::Upsert(_) => Error::new(
                ErrorKind::KeyHashCollision,
                "Another item with this id exists under a partition key value that hashes to the same place.",
            ),
            _ => item_not_found(),
        };
        Some(ActionResult { outcome: Err(error), charge: cost::missing_item() })
    }

    fn patched(
        &self,
        patch: &Patch,
        condition: Option<&Condition>,
        item: &StoredItem,
    ) -> Result<PreparedItem, Error> {
        let definition = self.transaction.definition();
        if let Some(condition) = condition {
            let document = document_value(item, self.transaction.container.rid)?;
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

    /// Writes an item, replacing the existing one if there is one.
    fn put(&mut self, new: &PreparedItem, met: Option<&ExistingItem>, position: u16) -> ActionResult {
        let unique_keys = self.transaction.unique_keys_of(&new.unique_hashes);
        if let Err(error) = self.check_put(new, met, &unique_keys) {
            return ActionResult { outcome: Err(error), charge: cost::refused_write(0) };
        }
        let effect = if met.is_some_and(|met| met.visible) { Effect::Replaced } else { Effect::Created };
        let old_entries = self.take_out(met);
        let item_key = keys::item(&self.transaction.effective, new.id.as_str());
        let ordinal = self.place(&item_key, new, met, position);
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
            self.record_begin(&item_key, &item, met);
        }
        self.writes.insert(item_key, Some(item.encode()));
        let charge = match effect {
            Effect::Replaced => cost::replace(new.body.len(), terms),
            _ => cost::create(new.body.len(), terms),
        };
        ActionResult { outcome: Ok(ActionSuccess { effect, item }), charge }
    }

    /// Checks whether an item may be written, and updates the counters.
    fn check_put(
        &mut self,
        new: &PreparedItem,
        met: Option<&ExistingItem>,
        unique_keys: &[Key],
    ) -> Result<(), Error> {
        if let Some(policy) = &self.transaction.container.synthetic {
            policy.check(&new.value, &self.transaction.partition_key)?;
        }
        let old_id = met.map_or(new.id.as_str(), |met| &met.id);
        for key in unique_keys {
            if let Some(holder) = self.get(key)
                && holder != new.id.as_str().as_bytes()
                && holder != old_id.as_bytes()
                && self.holds_tuple(&holder)
            {
                return Err(unique_violation());
            }
        }
        self.count(new.body.len(), met).map_or(Ok(()), Err)
    }

    /// Removes the secondary entries of the existing version; returns its index entries, which may stay.
    fn take_out(&mut self, met: Option<&ExistingItem>) -> IndexEntries {
        let Some(met) = met else { return IndexEntries::default() };
        let value = parse_object(&met.item.body).ok();
        self.remove_references(&met.item, value.as_ref(), &met.id);
        self.index_entries(Some(&met.item), value.as_ref(), &met.id)
    }

    /// Assigns the RID: that of the replaced item, which may have had another id, or a new one.
    fn place(
        &mut self,
        item_key: &Key,
        new: &PreparedItem,
        met: Option<&ExistingItem>,
        position: u16,
    ) -> u64 {
        let old_key = met
            .filter(|met| *met.id != *new.id.as_str())
            .map(|met| keys::item(&self.transaction.effective, &met.id));
        self.notice_repeated(item_key);
        if let Some(old_key) = &old_key {
            self.notice_repeated(old_key);
        }
        let replaced = met.filter(|met| met.visible);
        let ordinal = match (replaced, self.transaction.script) {
            (Some(met), _) => met.item.ordinal,
            (None, Some(script)) => script.ordinal(position),
            (None, None) => ordinal(self.lsn, position, self.transaction.range_id),
        };
        // An invisible item does not pass on its RID.
        if let Some(met) = met.filter(|met| !met.visible) {
            self.writes.insert(keys::rid(met.item.ordinal), None);
        }
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
        let made = self.transaction.entries.get(usize::from(item.position));
        let new_entries = match made.filter(|made| !made.keys.is_empty()) {
            Some(made) => made.clone(),
            None => self.index_entries(Some(item), Some(&new.value), new.id.as_str()),
        };
        let value = Bytes::copy_from_slice(&item.ordinal.to_be_bytes());
        if old_entries.keys.is_empty() {
            self.write_index(new_entries.keys, Some(&value));
            return new_entries.terms;
        }
        let gone = old_entries.keys.filter(|key| !new_entries.keys.contains(key));
        // An entry contains the ordinal, so it is unchanged only if the ordinal is.
        let kept_ordinal = effect == Effect::Replaced;
        let added = if kept_ordinal {
            new_entries.keys.filter(|key| !old_entries.keys.contains(key))
        } else {
            new_entries.keys
        };
        let terms = self.transaction.terms_of(&added) + self.transaction.terms_of(&gone);
        self.write_index(added, Some(&value));
        self.write_index(gone, None);
        terms
    }

    /// Records a new version in the history, and the end of an existing but invisible item.
    fn record_begin(&mut self, item_key: &Key, item: &StoredItem, met: Option<&ExistingItem>) {
        let previous = met.filter(|met| met.visible).map(|met| met.item.lsn);
        if let Some(met) = met.filter(|met| !met.visible) {
            self.record_end(met, item.position);
        }
        let version = Version::written(item_key, item, previous);
        self.writes.insert(keys::history(item.lsn, item.position, history::BEGIN), Some(version));
    }

    /// Whether the item that reserved a unique tuple is still visible.
    fn holds_tuple(&self, holder: &[u8]) -> bool {
        let id = std::str::from_utf8(holder).expect("the store holds ids as text");
        self.load_existing(id).is_some_and(|met| met.visible)
    }

    /// Adjusts the counters for an item of this size, unless the logical partition would be too large.
    fn count(&mut self, size: usize, met: Option<&ExistingItem>) -> Option<Error> {
        let mut statistics = self.statistics;
        match met.filter(|met| met.counted) {
            Some(met) => {
                debug_assert!(
                    statistics.bytes >= met.item.body.len() as u64,
                    "bytes are counted before they go"
                );
                statistics.bytes = statistics.bytes.saturating_sub(met.item.body.len() as u64);
            }
            None => statistics.items += 1,
        }
        statistics.bytes += size as u64;
        if statistics.bytes > self.transaction.logical_partition_bytes_max {
            return Some(Error::new(
                ErrorKind::LogicalPartitionFull,
                "Partition key reached maximum size of 20 GB. Learn more: https://aka.ms/CosmosDB/sql/errors/full-pk",
            ));
        }
        self.statistics = statistics;
        None
    }

    /// Records the end of an item in the history: as expired, or as deleted if it was purged.
    fn record_end(&mut self, met: &ExistingItem, position: u16) {
        let item_key = keys::item(&self.transaction.effective, &met.id);
        let expired = !met.visible && met.counted;
        let now = self.transaction.now_seconds();
        let version =
            Version::deleted(&item_key, &self.transaction.partition_key, now, met.item.lsn, expired);
        self.writes.insert(keys::history(self.lsn, position, history::END), Some(version));
    }

    fn delete(&mut self, met: ExistingItem, position: u16) -> ActionResult {
        let value = parse_object(&met.item.body).ok();
        let id = value
            .as_ref()
            .and_then(|value| value.get("id"))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let item_key = keys::item(&self.transaction.effective, &id);
        self.notice_repeated(&item_key);
        self.remove_references(&met.item, value.as_ref(), &id);
        self.writes.insert(item_key, None);
        self.writes.insert(keys::rid(met.item.ordinal), None);
        let entries = self.index_entries(Some(&met.item), value.as_ref(), &id);
        self.write_index(entries.keys, None);
        if met.counted {
            debug_assert!(self.statistics.items > 0, "an item that is there was counted");
            debug_assert!(self.statistics.bytes >= met.item.body.len() as u64, "and so were its bytes");
            self.statistics.items = self.statistics.items.saturating_sub(1);
            self.statistics.bytes = self.statistics.bytes.saturating_sub(met.item.body.len() as u64);
        }
        if self.keeps_history {
            self.record_end(&met, position);
        }
        let charge = cost::delete(entries.terms);
        ActionResult { outcome: Ok(ActionSuccess { effect: Effect::Deleted, item: met.item }), charge }
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
        self.writes.insert(keys::feed(item.lsn, item.position), None);
        let item_key = keys::item(&self.transaction.effective, id);
        if self.transaction.container.repartition.is_some() {
            let tombstone = tombstone::encode(&item_key, &item.body);
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

fn precondition(action: &Action, item: &StoredItem) -> Option<Error> {
    let etag: Etag = item.etag();
    let differs = |wanted: &str| wanted != "*" && !etag.matches(wanted);
    let failed = match action.kind {
        ActionKind::Create(_) | ActionKind::Read | ActionKind::Sweep => false,
        ActionKind::Upsert(_) | ActionKind::Replace(_) | ActionKind::Delete => {
            action.if_match.as_deref().is_some_and(differs)
        }
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

fn id_exists() -> Error {
    Error::new(ErrorKind::Conflict, "Entity with the specified id already exists in the system.")
}

fn unique_violation() -> Error {
    Error::new(ErrorKind::Conflict, "Unique index constraint violation.")
}
