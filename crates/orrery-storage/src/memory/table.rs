//! An ordered map that can be read as it was at an earlier moment.
//!
//! Every change gets a version. A reader that must see one moment pins the current version; while it does,
//! a change keeps the value it replaces beside the new one. Without a pin a change simply overwrites, so the
//! common case costs what a `BTreeMap` costs. Old values are dropped as soon as the last pin that could see
//! them goes, and pins older than the store's limit are ignored, so a forgotten snapshot holds nothing up.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::contract::{Direction, Entry, Key, KeyRange, ReadPage, Scan, Want};

/// A moment of the table.
pub(super) type Version = u64;

#[derive(Default)]
pub(super) struct Table {
    slots: BTreeMap<Key, Slot>,
    version: Version,
    pins: BTreeMap<Version, Pin>,
    /// Keys with replaced values and the version that replaced them, oldest first.
    replaced: VecDeque<(Version, Key)>,
    bytes: usize,
}

struct Slot {
    /// `None`: deleted, but an older value may still be visible to a pin.
    current: Option<Bytes>,
    since: Version,
    /// What the slot held before, oldest first, each with the version that wrote it.
    older: Vec<(Version, Option<Bytes>)>,
}

struct Pin {
    count: usize,
    newest: Instant,
}

impl Table {
    /// The bytes of all current keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Keeps the current moment readable until [`Table::unpin`] or until the pin is too old.
    pub(super) fn pin(&mut self, now: Instant) -> Version {
        let pin = self.pins.entry(self.version).or_insert(Pin { count: 0, newest: now });
        pin.count += 1;
        pin.newest = now;
        self.version
    }

    pub(super) fn unpin(&mut self, version: Version) {
        // A pin that became too old is gone already.
        let Some(pin) = self.pins.get_mut(&version) else { return };
        pin.count -= 1;
        if pin.count == 0 {
            self.pins.remove(&version);
            self.prune();
        }
    }

    /// Starts a change: everything written until the next call belongs to one moment.
    pub(super) fn begin_change(&mut self, now: Instant, pin_age_max: Duration) {
        let mut expired = false;
        while let Some(oldest) = self.pins.first_entry() {
            if now.duration_since(oldest.get().newest) < pin_age_max {
                break;
            }
            oldest.remove();
            expired = true;
        }
        if expired {
            self.prune();
        }
        self.version += 1;
    }

    pub(super) fn put(&mut self, key: Key, value: Bytes) {
        self.write(key, Some(value));
    }

    pub(super) fn delete(&mut self, key: Key) {
        self.write(key, None);
    }

    pub(super) fn get(&self, key: &[u8], at: Version) -> Option<Bytes> {
        self.slots.get(key).and_then(|slot| slot.visible(at)).cloned()
    }

    pub(super) fn scan(&self, scan: &Scan, at: Version) -> ReadPage {
        if scan.range.is_empty() {
            return ReadPage::default();
        }
        let range = self.slots.range::<[u8], _>(bounds(&scan.range));
        match scan.direction {
            Direction::Forward => collect_page(range, scan, at),
            Direction::Backward => collect_page(range.rev(), scan, at),
        }
    }

    /// The first keys of a range.
    pub(super) fn keys(&self, range: &KeyRange, keys_max: usize) -> Vec<Key> {
        if range.is_empty() {
            return Vec::new();
        }
        let present = self.slots.range::<[u8], _>(bounds(range)).filter(|(_, slot)| slot.current.is_some());
        present.take(keys_max).map(|(key, _)| key.clone()).collect()
    }

    fn write(&mut self, key: Key, value: Option<Bytes>) {
        let (key_bytes, value_bytes) = (key.len(), value.as_ref().map_or(0, Bytes::len));
        let Some(slot) = self.slots.get_mut(&key) else {
            if let Some(value) = value {
                self.bytes += key_bytes + value_bytes;
                let slot = Slot { current: Some(value), since: self.version, older: Vec::new() };
                self.slots.insert(key, slot);
            }
            return;
        };
        if let Some(current) = &slot.current {
            self.bytes -= key_bytes + current.len();
        }
        if value.is_some() {
            self.bytes += key_bytes + value_bytes;
        }
        let replaced = std::mem::replace(&mut slot.current, value);
        let replaced_since = std::mem::replace(&mut slot.since, self.version);
        // A value written after the newest pin is visible to none of them.
        let visible = self.pins.last_key_value().is_some_and(|(pinned, _)| *pinned >= replaced_since);
        if visible {
            slot.older.push((replaced_since, replaced));
            self.replaced.push_back((self.version, key));
        } else if slot.current.is_none() && slot.older.is_empty() {
            self.slots.remove(&key);
        }
    }

    /// Drops replaced values that no pin can see any more.
    fn prune(&mut self) {
        let oldest_pin = self.pins.first_key_value().map_or(Version::MAX, |(version, _)| *version);
        while self.replaced.front().is_some_and(|(replaced_at, _)| *replaced_at <= oldest_pin) {
            let Some((_, key)) = self.replaced.pop_front() else { break };
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            slot.forget_before(oldest_pin);
            if slot.current.is_none() && slot.older.is_empty() {
                self.slots.remove(&key);
            }
        }
    }
}

impl Slot {
    fn visible(&self, at: Version) -> Option<&Bytes> {
        if self.since <= at {
            return self.current.as_ref();
        }
        self.older.iter().rev().find(|(since, _)| *since <= at).and_then(|(_, value)| value.as_ref())
    }

    /// Forgets values that were replaced at or before the oldest moment that is still read.
    fn forget_before(&mut self, oldest: Version) {
        let replaced_at = |at: usize| self.older.get(at + 1).map_or(self.since, |(since, _)| *since);
        let unseen = (0..self.older.len()).take_while(|at| replaced_at(*at) <= oldest).count();
        self.older.drain(..unseen);
    }
}

fn bounds(range: &KeyRange) -> (std::ops::Bound<&[u8]>, std::ops::Bound<&[u8]>) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    (Included(range.start.as_slice()), range.end.as_deref().map_or(Unbounded, Excluded))
}

fn collect_page<'a>(slots: impl Iterator<Item = (&'a Key, &'a Slot)>, scan: &Scan, at: Version) -> ReadPage {
    let mut page = ReadPage::default();
    let mut bytes = 0;
    for (key, slot) in slots {
        let Some(value) = slot.visible(at) else { continue };
        if page.entries.len() >= scan.entries_max || (bytes >= scan.bytes_max && !page.entries.is_empty()) {
            page.more = true;
            break;
        }
        let value = match scan.want {
            Want::Keys => Bytes::new(),
            Want::KeysAndValues => value.clone(),
        };
        bytes += key.len() + value.len();
        page.entries.push(Entry { key: key.clone(), value });
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Scan {
        Scan::forward(KeyRange::all(), usize::MAX)
    }

    #[test]
    fn a_pin_keeps_its_moment_and_nothing_is_left_behind() {
        let mut table = Table::default();
        let (now, age) = (Instant::now(), Duration::from_mins(1));
        table.begin_change(now, age);
        table.put(b"a".to_vec(), "1".into());
        table.put(b"b".to_vec(), "1".into());
        let first = table.pin(now);
        for round in 0..3 {
            table.begin_change(now, age);
            table.put(b"a".to_vec(), format!("new {round}").into());
            table.delete(b"b".to_vec());
            table.put(b"c".to_vec(), "new".into());
        }
        let second = table.pin(now);
        table.begin_change(now, age);
        table.delete(b"c".to_vec());
        let keys = |table: &Table, at| {
            table.scan(&all(), at).entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>()
        };
        assert_eq!(keys(&table, first), [b"a", b"b"]);
        assert_eq!(table.get(b"a", first).unwrap(), "1");
        assert_eq!(keys(&table, second), [b"a", b"c"]);
        assert_eq!(table.get(b"a", second).unwrap(), "new 2");
        assert_eq!(keys(&table, table.version()), [b"a"]);
        table.unpin(first);
        assert_eq!(keys(&table, second), [b"a", b"c"]);
        table.unpin(second);
        assert_eq!(table.slots.len(), 1);
        assert!(table.replaced.is_empty());
        assert!(table.slots.values().all(|slot| slot.older.is_empty()));
        assert_eq!(table.bytes(), 1 + "new 2".len());
    }

    #[test]
    fn an_old_pin_holds_nothing_up() {
        let mut table = Table::default();
        let age = Duration::from_secs(5);
        let start = Instant::now();
        table.begin_change(start, age);
        table.put(b"a".to_vec(), "1".into());
        let pinned = table.pin(start);
        table.begin_change(start + age, age);
        table.put(b"a".to_vec(), "2".into());
        assert!(table.replaced.is_empty());
        table.unpin(pinned);
        assert_eq!(table.get(b"a", table.version()).unwrap(), "2");
    }
}
