//! What a group of commits has written so far, and the memory that it stays in.
//!
//! Changes are written down once, in the form that the journal keeps: the group's record is complete when the last
//! of its members has decided. The memtable then refers to keys and values inside the record, so that some twenty
//! entries of a commit are copied once and allocated not at all.
//!
//! A later change of a key overwrites the earlier one where it fits, and follows it otherwise; the last one counts,
//! in the memtable as in a replayed journal. Keys that later members may look at are found by a table of places.
//! Those that nobody looks at, most of them by far, are not in it.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::journal::{Change, Draft, Place};
use super::layout::Slot;

pub(super) struct Overlay {
    draft: Draft,
    places: Vec<Place>,
    /// Hashes of keys, and where the last change of the key is in the list.
    table: HashTable<(u64, usize)>,
    /// Changes that are not in the table.
    unread: Vec<usize>,
    /// Drawn anew for every group: nobody can choose keys that meet.
    seed: u64,
}

/// A key's value after a change; `None` if it was deleted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) value: Option<Bytes>,
}

impl Overlay {
    /// With room for a record of this size.
    pub(super) fn with_room(bytes: usize) -> Self {
        Self {
            draft: Draft::with_room(bytes),
            places: Vec::new(),
            table: HashTable::new(),
            unread: Vec::new(),
            seed: RandomState::new().hash_one(0_u8),
        }
    }

    pub(super) fn put(&mut self, slot: Slot, key: &[u8], value: Option<&[u8]>) {
        let hash = self.hash(slot, key);
        let (draft, places) = (&mut self.draft, &mut self.places);
        let found = self.table.find_mut(hash, |(_, at)| draft.is_of(&places[*at], slot, key));
        if let Some((_, at)) = found {
            // A change that is not in the table may be of this key: what comes after it must stand after it.
            let may_be_older = self.unread.last().is_some_and(|unread| unread > at);
            if may_be_older || !draft.overwrite(&places[*at], value) {
                *at = places.len();
                places.push(draft.push(slot, key, value));
            }
            return;
        }
        self.table.insert_unique(hash, (hash, places.len()), |(hash, _)| *hash);
        places.push(draft.push(slot, key, value));
    }

    /// The same for a key that is given with its slot.
    pub(super) fn put_full(&mut self, key: &[u8], value: Option<&[u8]>) {
        let (slot, key) = Slot::split(key);
        self.put(slot, key, value);
    }

    /// The same for a key that no operation looks at.
    pub(super) fn put_unread(&mut self, slot: Slot, key: &[u8], value: Option<&[u8]>) {
        self.unread.push(self.places.len());
        self.places.push(self.draft.push(slot, key, value));
    }

    /// What the group has made of the key, if it has changed it.
    pub(super) fn get(&self, slot: Slot, key: &[u8]) -> Option<Changed> {
        let is_it = |(_, at): &(u64, usize)| self.draft.is_of(&self.places[*at], slot, key);
        let (_, at) = self.table.find(self.hash(slot, key), is_it)?;
        Some(Changed { value: self.draft.value(&self.places[*at]).map(Bytes::copy_from_slice) })
    }

    /// Makes all keys findable, for those who look at keys that no operation looks at.
    pub(super) fn find_unread(&mut self) {
        for at in std::mem::take(&mut self.unread) {
            let (slot, key) = Slot::split(self.draft.key(&self.places[at]));
            let hash = self.hash(slot, key);
            let (draft, places) = (&self.draft, &self.places);
            match self.table.find_mut(hash, |(_, other)| draft.is_of(&places[*other], slot, key)) {
                Some((_, other)) => *other = at.max(*other),
                None => drop(self.table.insert_unique(hash, (hash, at), |(hash, _)| *hash)),
            }
        }
    }

    /// The size of the record so far.
    pub(super) fn bytes(&self) -> usize {
        self.draft.bytes()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn changes_count(&self) -> usize {
        self.places.len()
    }

    pub(super) fn draft(&mut self) -> &mut Draft {
        &mut self.draft
    }

    /// Keys with their slots and values, in the order in which they were written.
    pub(super) fn changes(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.places.iter().map(|place| (self.draft.key(place), self.draft.value(place)))
    }

    /// The changes by key: whoever looks for their places in an ordered structure comes along the same way again and
    /// again, and finds it in the processor's cache. Of several changes of one key the last comes last.
    pub(super) fn into_sorted_changes(self) -> impl Iterator<Item = Change> {
        let draft = self.draft;
        let mut ordered: Vec<(Beginning, Place)> =
            self.places.into_iter().map(|place| (beginning(draft.key(&place)), place)).collect();
        // Each commit's keys are in order already, which this sort makes use of.
        ordered.sort_by(|(beginning, place), (other_beginning, other)| {
            beginning.cmp(other_beginning).then_with(|| draft.key(place).cmp(draft.key(other)))
        });
        let memory = draft.into_memory();
        ordered.into_iter().map(move |(_, place)| place.change(&memory))
    }

    fn hash(&self, slot: Slot, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed ^ u64::from(slot.0) << 16)
    }
}

/// What most keys are told apart by: slot, kind, generation, path, and the beginning of the value.
type Beginning = [u64; 3];

fn beginning(key: &[u8]) -> Beginning {
    let mut bytes = [0; 24];
    let length = key.len().min(bytes.len());
    bytes[..length].copy_from_slice(&key[..length]);
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|offset| bytes[at + offset]));
    [word(0), word(8), word(16)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> String {
        format!("a key that is longer than its beginning {number}")
    }

    fn sorted(overlay: Overlay) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let changes = overlay.into_sorted_changes();
        changes.map(|change| (change.key.to_vec(), change.value.map(|value| value.to_vec()))).collect()
    }

    #[test]
    fn the_last_value_counts() {
        let mut overlay = Overlay::with_room(0);
        let slots = [Slot(1), Slot(2)];
        // Values of one length replace each other in place, others do not.
        for value in ["0", "1", "long", "2"] {
            for number in 0..200 {
                for slot in slots {
                    let value = (number % 3 != slot.0 || value != "2").then_some(value.as_bytes());
                    overlay.put(slot, key(number).as_bytes(), value);
                }
            }
        }
        let expected = |slot: Slot, number: u32| (number % 3 != slot.0).then(|| b"2".to_vec());
        for slot in slots {
            for number in 0..200 {
                let found = overlay.get(slot, key(number).as_bytes()).unwrap();
                assert_eq!(found.value.map(|value| value.to_vec()), expected(slot, number));
            }
            assert!(overlay.get(slot, key(200).as_bytes()).is_none());
        }
        let changes = sorted(overlay);
        assert!(changes.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        let last: std::collections::BTreeMap<_, _> = changes.into_iter().collect();
        assert_eq!(last.len(), 400);
        for slot in slots {
            for number in 0..200 {
                assert_eq!(last[&slot.key(key(number).as_bytes())[..]], expected(slot, number));
            }
        }
    }

    #[test]
    fn what_nobody_looks_at_is_there_all_the_same() {
        let mut overlay = Overlay::with_room(100);
        overlay.put_unread(Slot(1), b"a", Some(b"1"));
        overlay.put(Slot(1), b"b", Some(b"1"));
        overlay.put_unread(Slot(1), b"b", None);
        overlay.put_unread(Slot(1), b"a", Some(b"22"));
        overlay.put(Slot(1), b"c", Some(b"1"));
        overlay.put_unread(Slot(1), b"c", None);
        overlay.put(Slot(1), b"c", Some(b"3"));
        assert!(overlay.get(Slot(1), b"a").is_none());
        overlay.find_unread();
        assert_eq!(overlay.get(Slot(1), b"a"), Some(Changed { value: Some(Bytes::from("22")) }));
        assert_eq!(overlay.get(Slot(1), b"b"), Some(Changed { value: None }));
        let key = |name: &str| Slot(1).key(name.as_bytes()).to_vec();
        let expected = [
            (key("a"), Some(b"1".to_vec())),
            (key("a"), Some(b"22".to_vec())),
            (key("b"), Some(b"1".to_vec())),
            (key("b"), None),
            (key("c"), Some(b"1".to_vec())),
            (key("c"), None),
            (key("c"), Some(b"3".to_vec())),
        ];
        assert_eq!(sorted(overlay), expected);
    }
}
