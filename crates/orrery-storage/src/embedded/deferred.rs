//! Changes that wait to be inserted into the memtable.
//!
//! Index entries are three quarters of all changes, no operation reads them, and finding their places in the memtable
//! one by one costs more than anything else in a commit. They wait here, durable and published like the rest, until a
//! read comes near them, until there are so many that neighbours follow each other in the memtable's order, or until
//! the memtable is sealed.

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::journal::{Change, ChangeSpan};
use super::layout::Slot;
use crate::packed::key_head;

/// Changes beyond which they are inserted: a few milliseconds of work, which overlap an fsync.
pub(super) const DEFERRED_MAX: usize = 8192;

/// The changes of a group.
pub(super) struct Changes {
    pub(super) memory: Bytes,
    /// To be inserted at once, in key order.
    pub(super) direct: Vec<ChangeSpan>,
    /// May wait, in write order.
    pub(super) deferrable: Vec<ChangeSpan>,
    /// What the deferrable keys lie between.
    pub(super) bounds: KeyBounds,
}

/// The first and the last key of each slot, slots included.
#[derive(Debug, Default)]
pub(super) struct KeyBounds(Vec<(Vec<u8>, Vec<u8>)>);

impl KeyBounds {
    pub(super) fn add(&mut self, key: &[u8]) {
        // A store has few slots in one group, so a list is searched faster than a map.
        match self.0.iter_mut().find(|(first, _)| Slot::split(first).0 == Slot::split(key).0) {
            None => self.0.push((key.to_vec(), key.to_vec())),
            Some((first, _)) if key < first.as_slice() => key.clone_into(first),
            Some((_, last)) if key > last.as_slice() => key.clone_into(last),
            Some(_) => {}
        }
    }

    fn add_all(&mut self, other: &Self) {
        for (first, last) in &other.0 {
            self.add(first);
            self.add(last);
        }
    }

    pub(super) fn contain(&self, key: &[u8]) -> bool {
        self.0.iter().any(|(first, last)| first.as_slice() <= key && key <= last.as_slice())
    }

    fn overlap(&self, start: &[u8], end: &[u8]) -> bool {
        self.0.iter().any(|(first, last)| start <= last.as_slice() && first.as_slice() < end)
    }
}

#[derive(Default)]
pub(super) struct Deferred {
    groups: Mutex<Groups>,
    /// Apart from the groups, so that reads elsewhere do not wait while groups are inserted. Covers all groups.
    bounds: RwLock<KeyBounds>,
}

#[derive(Default)]
struct Groups {
    list: Vec<Group>,
    changes: usize,
    bytes: usize,
}

struct Group {
    sequence: u64,
    memory: Bytes,
    spans: Vec<ChangeSpan>,
}

impl Deferred {
    /// Keeps changes; called before their sequence number is published.
    pub(super) fn add(&self, sequence: u64, memory: Bytes, spans: Vec<ChangeSpan>, bounds: &KeyBounds) {
        // Both locks, the groups first, as in `settle`: no reader may see the bounds without the changes.
        let mut groups = self.groups.lock();
        self.bounds.write().add_all(bounds);
        groups.changes += spans.len();
        groups.bytes += spans.iter().map(ChangeSpan::bytes).sum::<usize>();
        groups.list.push(Group { sequence, memory, spans });
    }

    pub(super) fn changes(&self) -> usize {
        self.groups.lock().changes
    }

    /// Bytes of keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.groups.lock().bytes
    }

    /// Whether the key may be among them.
    pub(super) fn is_near_key(&self, key: &[u8]) -> bool {
        self.bounds.read().contain(key)
    }

    /// Whether keys from `start`, inclusively, to `end`, exclusively, may be among them.
    pub(super) fn is_near_range(&self, start: &[u8], end: &[u8]) -> bool {
        self.bounds.read().overlap(start, end)
    }

    /// Hands all changes to what `memtable` returns, with their sequence numbers, in key order; changes of a key in the
    /// order in which they were written. Returns when all are inserted, even if another thread has begun to.
    ///
    /// `memtable` is called under the lock: before, it could return one that is sealed when the changes arrive.
    pub(super) fn settle<I: FnMut(u64, Change)>(&self, memtable: impl FnOnce() -> I) {
        let mut locked = self.groups.lock();
        if locked.list.is_empty() {
            return;
        }
        let mut insert = memtable();
        let Groups { list, changes, .. } = std::mem::take(&mut *locked);
        let mut ordered = Vec::with_capacity(changes);
        for group in &list {
            ordered.extend(group.spans.iter().map(|span| {
                let key = span.key_in(&group.memory);
                (key_head(key), key, group, span)
            }));
        }
        // Stable: the groups and their changes are in the order in which they were written.
        ordered.sort_by(|one, other| one.0.cmp(&other.0).then_with(|| one.1.cmp(other.1)));
        for (_, _, group, span) in ordered {
            insert(group.sequence, span.change(&group.memory));
        }
        // Only now do others find the changes in the memtable.
        self.bounds.write().0.clear();
    }
}
