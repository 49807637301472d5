//! Keys that wait to be moved into the map.

use bytes::Bytes;

use super::table_key::TableKey;
use crate::contract::{Key, KeyRange};
use crate::packed::{PackedKeys, key_head};

/// Sets of keys in the order in which they were written, each with a common value; `None` deletes.
#[derive(Default)]
pub(super) struct Deferred {
    sets: Vec<(PackedKeys, Option<Bytes>)>,
    keys: usize,
    bytes: usize,
    /// All keys lie between these, inclusively.
    first: Key,
    last: Key,
}

impl Deferred {
    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    /// Size of the keys and values to be put.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, keys: PackedKeys, value: Option<Bytes>) {
        // An empty set has no bounds.
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return };
        if self.sets.is_empty() || first < self.first.as_slice() {
            first.clone_into(&mut self.first);
        }
        if self.sets.is_empty() || last > self.last.as_slice() {
            last.clone_into(&mut self.last);
        }
        self.keys += keys.len();
        if let Some(value) = &value {
            self.bytes += keys.iter().map(|key| key.len() + value.len()).sum::<usize>();
        }
        self.sets.push((keys, value));
    }

    /// Whether the key may be in a set.
    pub(super) fn may_have(&self, key: &[u8]) -> bool {
        !self.sets.is_empty() && self.first.as_slice() <= key && key <= self.last.as_slice()
    }

    pub(super) fn overlaps(&self, range: &KeyRange) -> bool {
        !self.sets.is_empty()
            && range.start <= self.last
            && range.end.as_ref().is_none_or(|end| *end > self.first)
    }

    /// The last set that the key is in.
    pub(super) fn set_of(&self, key: &[u8]) -> Option<&(PackedKeys, Option<Bytes>)> {
        if !self.may_have(key) {
            return None;
        }
        // The last set that has the key was written last.
        self.sets.iter().rev().find(|(keys, _)| keys.contains(key))
    }

    /// Calls `write` with every key and its last value, in key order: neighbours are found faster.
    pub(super) fn each_in_order(self, mut write: impl FnMut(TableKey, Option<Bytes>)) {
        let mut keys = Vec::with_capacity(self.keys);
        for (set, (packed, _)) in self.sets.iter().enumerate() {
            keys.extend(packed.iter().map(|key| (key_head(key), key, set)));
        }
        // By key, then in the order in which they were written.
        // The heads decide nearly always, without following the pointers to the keys.
        keys.sort_unstable();
        for (at, (_, key, set)) in keys.iter().enumerate() {
            // Only the last change of a key counts; nobody can see the ones before.
            let is_last = keys.get(at + 1).is_none_or(|(_, next, _)| next != key);
            if is_last {
                write(TableKey::new(key), self.sets[*set].1.clone());
            }
        }
    }
}
