//! The writes of the current group, and the buffer that holds them.
//!
//! Changes are encoded once, directly in journal format: the group's record is complete as soon as its last member has
//! decided. The memtable then refers to keys and values inside that record, so the twenty or so entries of a commit
//! are copied once and never allocated separately.
//!
//! A later change of a key overwrites an earlier one of the same length and is appended otherwise; the last one wins,
//! in the memtable as in a replayed journal. A hash table finds keys that later members may read. Unread keys, which
//! are the large majority, are not in it.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::deferred::{Changes, KeyBounds};
use super::journal::{ChangeSpan, Draft};
use super::layout::Slot;
use crate::packed::{KeyHead, key_head};

pub(super) struct Overlay {
    draft: Draft,
    spans: Vec<ChangeSpan>,
    /// The hash of each readable key, and the index of its last change in `spans`.
    table: HashTable<(u64, usize)>,
    /// Changes that are not in the table.
    unread: Vec<usize>,
    /// Random per group, so that a client cannot provoke hash collisions.
    seed: u64,
}

/// A key's value after a change; `None` if it was deleted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) value: Option<Bytes>,
}

impl Overlay {
    /// Preallocates a record of this size.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self {
            draft: Draft::with_capacity(bytes),
            spans: Vec::new(),
            table: HashTable::new(),
            unread: Vec::new(),
            seed: RandomState::new().hash_one(0_u8),
        }
    }

    pub(super) fn put(&mut self, slot: Slot, key: &[u8], value: Option<&[u8]>) {
        let hash = self.hash(slot, key);
        let (draft, spans) = (&mut self.draft, &mut self.spans);
        let found = self.table.find_mut(hash, |(_, at)| draft.is_of(&spans[*at], slot, key));
        if let Some((_, at)) = found {
            // An unread change, which is not in the table, may be of the same key; a later change must come after it.
            let may_be_older = self.unread.last().is_some_and(|unread| unread > at);
            if may_be_older || !draft.overwrite(&spans[*at], value) {
                *at = spans.len();
                spans.push(draft.push(slot, key, value));
            }
            return;
        }
        self.table.insert_unique(hash, (hash, spans.len()), |(hash, _)| *hash);
        spans.push(draft.push(slot, key, value));
    }

    /// Like [`Overlay::put`], for a key that includes its slot.
    pub(super) fn put_full(&mut self, key: &[u8], value: Option<&[u8]>) {
        let (slot, key) = Slot::split(key);
        self.put(slot, key, value);
    }

    /// Like [`Overlay::put`], for a key that no operation reads.
    pub(super) fn put_unread(&mut self, slot: Slot, key: &[u8], value: Option<&[u8]>) {
        self.unread.push(self.spans.len());
        self.spans.push(self.draft.push(slot, key, value));
    }

    /// The key's value in this group, if the group has changed it.
    pub(super) fn get(&self, slot: Slot, key: &[u8]) -> Option<Changed> {
        let is_it = |(_, at): &(u64, usize)| self.draft.is_of(&self.spans[*at], slot, key);
        let (_, at) = self.table.find(self.hash(slot, key), is_it)?;
        Some(Changed { value: self.draft.value(&self.spans[*at]).map(Bytes::copy_from_slice) })
    }

    /// Adds unread keys to the table, for range deletions, which read any key.
    pub(super) fn find_unread(&mut self) {
        for at in std::mem::take(&mut self.unread) {
            let (slot, key) = Slot::split(self.draft.key(&self.spans[at]));
            let hash = self.hash(slot, key);
            let (draft, spans) = (&self.draft, &self.spans);
            match self.table.find_mut(hash, |(_, other)| draft.is_of(&spans[*other], slot, key)) {
                Some((_, other)) => *other = at.max(*other),
                None => drop(self.table.insert_unique(hash, (hash, at), |(hash, _)| *hash)),
            }
        }
    }

    /// The current size of the record.
    pub(super) fn bytes(&self) -> usize {
        self.draft.bytes()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub(super) fn changes_count(&self) -> usize {
        self.spans.len()
    }

    pub(super) fn draft(&mut self) -> &mut Draft {
        &mut self.draft
    }

    /// Keys (with slots) and values in write order.
    pub(super) fn changes(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.spans.iter().map(|span| (self.draft.key(span), self.draft.value(span)))
    }

    /// The changes for the memtable. Those to be inserted at once are in key order: neighbouring inserts then walk the
    /// same path, which stays in the CPU cache. Several changes of one key keep their order.
    pub(super) fn into_changes(self) -> Changes {
        let Self { draft, spans, unread, .. } = self;
        let mut bounds = KeyBounds::default();
        for at in &unread {
            bounds.add(draft.key(&spans[*at]));
        }
        // Two lists, in write order: what must be in the memtable at once, and what may wait.
        let (mut direct, mut deferrable) = (Vec::new(), Vec::with_capacity(unread.len()));
        let mut unread = unread.into_iter().peekable();
        for (at, span) in spans.iter().enumerate() {
            if unread.next_if_eq(&at).is_some() {
                deferrable.push(*span);
            } else {
                direct.push(*span);
            }
        }
        // A change that is inserted at once may be of the same key as a deferrable one of this group, and come after it.
        if direct.iter().any(|span| bounds.contain(draft.key(span))) {
            (direct, deferrable, bounds) = (spans, Vec::new(), KeyBounds::default());
        }
        let mut ordered: Vec<(KeyHead, ChangeSpan)> =
            direct.into_iter().map(|span| (key_head(draft.key(&span)), span)).collect();
        // The keys of each commit are sorted already, which a stable merge sort exploits.
        ordered.sort_by(|(head, span), (other_head, other)| {
            head.cmp(other_head).then_with(|| draft.key(span).cmp(draft.key(other)))
        });
        let direct = ordered.into_iter().map(|(_, span)| span).collect();
        Changes { memory: draft.into_memory(), direct, deferrable, bounds }
    }

    fn hash(&self, slot: Slot, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed ^ u64::from(slot.0) << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> String {
        format!("a key that is longer than its prefix {number}")
    }

    fn sorted(overlay: Overlay) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let Changes { memory, direct, deferrable, .. } = overlay.into_changes();
        assert!(deferrable.is_empty());
        let changes = direct.iter().map(|span| span.change(&memory));
        changes.map(|change| (change.key.to_vec(), change.value.map(|value| value.to_vec()))).collect()
    }

    #[test]
    fn the_last_value_wins() {
        let mut overlay = Overlay::with_capacity(0);
        let slots = [Slot(1), Slot(2)];
        // Values of the same length are replaced in place, others are appended.
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
    fn unread_changes_are_written_in_order() {
        let mut overlay = Overlay::with_capacity(100);
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

    #[test]
    fn unread_changes_are_deferrable_unless_others_lie_between() {
        let names = |memory: &Bytes, spans: &[ChangeSpan]| -> Vec<Vec<u8>> {
            spans.iter().map(|span| span.key_in(memory).to_vec()).collect()
        };
        let key = |slot: u32, name: &str| Slot(slot).key(name.as_bytes()).to_vec();
        let with = |others: &[(u32, &str)]| {
            let mut overlay = Overlay::with_capacity(0);
            for (slot, name) in [(1, "m"), (2, "x"), (1, "k")] {
                overlay.put_unread(Slot(slot), name.as_bytes(), Some(b"1"));
            }
            for (slot, name) in others {
                overlay.put(Slot(*slot), name.as_bytes(), None);
            }
            let Changes { memory, direct, deferrable, .. } = overlay.into_changes();
            (names(&memory, &direct), names(&memory, &deferrable))
        };
        let deferred = vec![key(1, "m"), key(2, "x"), key(1, "k")];
        assert_eq!(
            with(&[(2, "a"), (1, "z"), (1, "a")]),
            (vec![key(1, "a"), key(1, "z"), key(2, "a")], deferred,)
        );
        for inside in [(1, "k"), (1, "l"), (2, "x")] {
            let (direct, deferrable) = with(&[(1, "a"), inside]);
            assert_eq!((direct.len(), deferrable.len()), (5, 0), "{inside:?}");
            assert!(direct.is_sorted());
        }
    }
}
