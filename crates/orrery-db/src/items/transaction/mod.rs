//! The one way items are written: a list of actions on one logical partition, decided and applied as a whole.
//!
//! A single create or replace is a transaction of one action; a batch has up to a hundred. Everything an item touches
//! (itself, its feed entry, its history, its unique tuples, its expiry entry, the counters of its logical partition) is
//! in the same write set. Actions see the effects of earlier ones; the first failure aborts the transaction, and
//! nothing is written.
//!
//! `working` holds the state of a transaction while it is decided, `checks` what an action requires, `effects` what a write
//! leaves behind. Invariants that hold the stored data together are checked on the way; a broken one makes the whole
//! decision [`Decision::Inconsistent`], which takes the partition's writes offline.

mod checks;
mod effects;
mod working;

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::container::ContainerDefinition;
use orrery_model::ids::ItemId;
use orrery_model::partition_key::{EffectiveKey, PartitionKey};
use orrery_model::patch::Patch;
use orrery_model::{Charge, Error, ErrorKind, Value};
use orrery_query::Condition;
use orrery_storage::{Decision, Key, KeyPacker, Lsn, Op, PackedKeys, View};

use super::prepare::PreparedItem;
use crate::catalog::Container;
use crate::index;
use crate::layout::statistics::Statistics;
use crate::layout::stored::StoredItem;
use crate::layout::{index_entry, keys};

pub(crate) use checks::{item_not_found, precondition_failed};
pub(crate) use working::Working;

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
        // Read by every write: the counters, the fences of index and cut-over, and whether history is kept.
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
        // Everything is decided on what has been read so far; keys found missing on the way are asked for below.
        let (results, failed) = self.run_actions(&mut working);
        let missing = working.take_missing();
        if !missing.is_empty() {
            // The store reads them and decides again from the start.
            return Decision::NeedReads(missing.into_iter().collect());
        }
        let statistics = working.statistics();
        let outcome = TransactionOutcome { results, failed, stale: false, statistics };
        match working.into_writes() {
            Err(broken) => Decision::Inconsistent(broken),
            Ok(Some(mut writes)) if !failed => {
                // The first write with a new index version records it, which invalidates stale writers.
                let version = self.container.index.version;
                if version > index::rebuild::version_in(view).max(1) {
                    let version = Bytes::copy_from_slice(&version.to_be_bytes());
                    writes.put(keys::INDEX_VERSION.to_vec(), version);
                }
                Decision::Write(writes, outcome)
            }
            // Failed, or nothing changes: reads only.
            Ok(_) => Decision::Reject(outcome),
        }
    }
}

impl ItemTransaction {
    /// Runs the actions in order, up to the first one that fails.
    fn run_actions(&self, working: &mut Working<'_>) -> (Vec<ActionResult>, bool) {
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
            if failed && !working.is_missing_reads() {
                break;
            }
        }
        (results, failed)
    }

    /// Builds the index entries that are certain to be needed.
    #[must_use]
    pub(crate) fn with_entries(mut self) -> Self {
        let now = self.now_seconds();
        let entries = self.actions.iter().map(|action| match &action.kind {
            // Of a patch the new version is not known yet, and of a deletion the old one is needed.
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
        // Both, while a new one is being built.
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

#[cfg(test)]
mod tests;
