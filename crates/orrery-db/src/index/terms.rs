//! Computes the index entries of an item from the indexing policy.
//!
//! One walk over the value follows the policy's paths as a tree, so an excluded subtree is not visited and the cost is that
//! of the indexed part. The same function serves writes, rebuilds and the check that entries are exactly the terms.

use orrery_model::Value;
use orrery_model::container::{IndexStep, IndexingPolicy, PathEnd, PolicyPath};
use orrery_model::partition_key::EffectiveKey;
use orrery_storage::KeyPacker;

use crate::catalog::policy_tree::PolicyPlace;
use crate::catalog::{Generation, PolicyTree};
use crate::layout::index_entry;
use crate::layout::index_entry::PathHash;
use crate::layout::keys::push_place;
use crate::layout::stored::SYSTEM_PROPERTIES;

/// Appends all index keys of the item in a generation.
///
/// `timestamp` is the item's `_ts`, which is indexed although it is not part of the stored body.
pub(crate) fn push_entries(
    keys: &mut KeyPacker,
    generation: &Generation,
    item: &Value,
    timestamp: i64,
    effective: &EffectiveKey,
    id: &str,
) {
    let tree = &generation.tree;
    // Indexing mode "none": no entries at all.
    if !tree.is_enabled() {
        return;
    }
    // Computed properties become members, so that one walk covers both.
    let item = generation.computed.apply(item);
    let item = item.as_ref();
    let mut place = Vec::with_capacity(effective.as_bytes().len() + 8 + id.len());
    push_place(&mut place, effective, id);
    let mut walk = Walk { number: generation.number, tree, place: &place, keys };
    walk.value(item, PathHash::ROOT, tree.root(), true);
    let timestamp = Value::from(timestamp);
    walk.value(&timestamp, PathHash::ROOT.property("_ts"), tree.property(tree.root(), "_ts"), false);
    // A property that the policy lists explicitly is indexed even where it is missing.
    for path in named_paths(&generation.policy) {
        let steps = || path.steps.iter().filter_map(property_name);
        // Present ones were found by the walk.
        if steps().try_fold(item, |value, name| value.get(name)).is_none() {
            let hash = steps().fold(PathHash::ROOT, PathHash::property);
            walk.push(|key| index_entry::push_term(key, generation.number, hash, None));
        }
    }
    for (number, paths) in (0u32..).zip(&generation.policy.composite) {
        let values =
            paths.iter().map(|path| (composite_value(&path.steps, item, &timestamp), path.descending));
        walk.push(|key| index_entry::push_composite_term(key, generation.number, number, values));
    }
}

/// The properties that a policy lists explicitly, except for system properties.
pub(crate) fn named_paths(policy: &IndexingPolicy) -> impl Iterator<Item = &PolicyPath> {
    policy.included.iter().filter(|path| {
        let is_ours = |name: &str| name == "id" || SYSTEM_PROPERTIES.contains(&name);
        path.end == PathEnd::Scalar
            && path.tuple.is_empty()
            && path.steps.iter().all(|step| property_name(step).is_some())
            && path.steps.first().and_then(property_name).is_some_and(|name| !is_ours(name))
    })
}

fn property_name(step: &IndexStep) -> Option<&str> {
    match step {
        IndexStep::Property(name) => Some(name),
        IndexStep::Element => None,
    }
}

/// The value of a composite index for an item. Array elements are not included.
fn composite_value<'v>(steps: &[IndexStep], item: &'v Value, timestamp: &'v Value) -> Option<&'v Value> {
    if let [IndexStep::Property(name)] = steps
        && **name == *"_ts"
    {
        return Some(timestamp);
    }
    steps.iter().try_fold(item, |value, step| match step {
        IndexStep::Property(name) => value.get(name),
        IndexStep::Element => None,
    })
}

struct Walk<'a> {
    number: u32,
    tree: &'a PolicyTree,
    /// The suffix of each key: the escaped and terminated effective key, and the id.
    place: &'a [u8],
    keys: &'a mut KeyPacker,
}

impl Walk<'_> {
    fn push(&mut self, push_term: impl FnOnce(&mut Vec<u8>)) {
        let key = self.keys.bytes();
        // The term first, then the item's place: entries of equal values are in key order.
        push_term(key);
        key.extend_from_slice(self.place);
        self.keys.end_key();
    }

    fn value(&mut self, value: &Value, path: PathHash, place: PolicyPlace, is_root: bool) {
        // The item itself is not a value that a query could compare.
        if !is_root && self.tree.indexes(place) {
            let number = self.number;
            self.push(|key| index_entry::push_term(key, number, path, Some(value)));
        }
        match value {
            Value::Object(object) => {
                for (name, member) in object.iter() {
                    let place = self.tree.property(place, name);
                    self.below(member, path.property(name), place);
                }
            }
            Value::Array(items) => {
                let place = self.tree.element(place);
                for item in items {
                    self.below(item, path.element(), place);
                }
            }
            _ => {}
        }
    }

    fn below(&mut self, value: &Value, path: PathHash, place: PolicyPlace) {
        // An excluded subtree without included paths below it is not visited at all.
        if self.tree.indexes(place) || self.tree.indexes_below(place) {
            self.value(value, path, place, false);
        }
    }
}
