//! What a group of commits has written so far. A key that several members write is written once, with its last
//! value.
//!
//! A commit writes some twenty keys of a hundred bytes, and each is looked up here once, by the one thread that
//! writes. So the table holds places in the list of changes instead of keys, and keys are hashed in one go.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::journal::Change;

pub(super) struct Overlay {
    changes: Vec<Change>,
    places: HashTable<usize>,
    bytes: usize,
    /// Drawn anew for every group: nobody can choose keys that meet.
    seed: u64,
}

impl Default for Overlay {
    fn default() -> Self {
        Self {
            changes: Vec::new(),
            places: HashTable::new(),
            bytes: 0,
            seed: RandomState::new().hash_one(0_u8),
        }
    }
}

impl Overlay {
    pub(super) fn put(&mut self, key: Bytes, value: Option<Bytes>) {
        self.bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
        let (changes, seed) = (&mut self.changes, self.seed);
        let is_it = |place: &usize| changes[*place].key == key;
        let hash = |place: &usize| xxh3_64_with_seed(&changes[*place].key, seed);
        match self.places.entry(xxh3_64_with_seed(&key, seed), is_it, hash) {
            Entry::Occupied(place) => changes[*place.get()].value = value,
            Entry::Vacant(place) => {
                place.insert(changes.len());
                changes.push(Change { key, value });
            }
        }
    }

    /// The group's change of the key, if it has one.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Change> {
        let hash = xxh3_64_with_seed(key, self.seed);
        let place = self.places.find(hash, |place| self.changes[*place].key == key)?;
        Some(&self.changes[*place])
    }

    /// Keys and values of all writes, those that were written again included.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn into_changes(self) -> Vec<Change> {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_counts() {
        let mut overlay = Overlay::default();
        let key = |number: u32| Bytes::from(format!("key {number}"));
        for round in 0..3_u32 {
            for number in 0..200 {
                let value = (number % 3 != round).then(|| Bytes::from(round.to_string()));
                overlay.put(key(number), value);
            }
        }
        for number in 0..200 {
            let expected = (number % 3 != 2).then(|| Bytes::from("2"));
            assert_eq!(overlay.get(&key(number)).map(|change| &change.value), Some(&expected));
        }
        assert!(overlay.get(&key(200)).is_none());
        let keys: Vec<Bytes> = overlay.into_changes().into_iter().map(|change| change.key).collect();
        assert_eq!(keys, (0..200).map(key).collect::<Vec<_>>());
    }
}
