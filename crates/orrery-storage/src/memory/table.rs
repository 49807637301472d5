//! A multi-version ordered map.
//!
//! Every change gets a version. A snapshot pins the current version; while a pin exists, a change keeps the
//! value it replaces next to the new one. Without a pin a change simply overwrites, so the common case costs
//! what a `BTreeMap` costs. Old values are dropped with the last pin that can see them, and pins older than
//! the store's limit are ignored, so a leaked snapshot retains nothing.
//!
//! Keys that operations never read (index entries, by far the most) wait in [`Deferred`] until a scan comes near them:
//! finding the places of fifteen keys would take most of the time of a commit. Nothing is deferred while a pin exists.

use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::deferred::Deferred;
use super::table_key::TableKey;
use crate::contract::{Direction, Entry, Key, KeyRange, ReadPage, Scan, Tally, Want, WriteSet};

/// A point in the table's history.
pub(super) type Version = u64;

/// Deferred keys beyond which they are moved into the map: enough that neighbours follow each other, few enough that
/// moving them takes a few milliseconds.
const DEFERRED_KEYS_MAX: usize = 8192;

#[derive(Default)]
pub(super) struct Table {
    current: BTreeMap<TableKey, Current>,
    /// Earlier values that a pin may see, oldest first, each with the version that wrote it.
    older: BTreeMap<TableKey, Vec<(Version, Option<Bytes>)>>,
    deferred: Deferred,
    version: Version,
    pins: BTreeMap<Version, Pin>,
    /// Keys that have older values, with the version that replaced them, oldest first.
    replaced: VecDeque<(Version, TableKey)>,
    bytes: usize,
}

struct Current {
    /// `None` = deleted, but an older value may still be visible to a pin.
    value: Option<Bytes>,
    since: Version,
}

struct Pin {
    count: usize,
    newest: Instant,
}

impl Table {
    /// Total size of the current keys and values; deferred keys count whether they are new or not.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.deferred.bytes()
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Keeps the current version readable until [`Table::unpin`] or until the pin expires.
    pub(super) fn pin(&mut self, now: Instant) -> Version {
        // Deferred keys carry no version, so a pin could not tell later ones from those that it may see.
        self.settle();
        let pin = self.pins.entry(self.version).or_insert(Pin { count: 0, newest: now });
        pin.count += 1;
        pin.newest = now;
        self.version
    }

    pub(super) fn unpin(&mut self, version: Version) {
        // An expired pin has been removed already.
        let Some(pin) = self.pins.get_mut(&version) else { return };
        assert!(pin.count > 0, "version {version} is unpinned more often than it was pinned");
        pin.count -= 1;
        if pin.count == 0 {
            self.pins.remove(&version);
            self.prune();
        }
    }

    /// Starts a change: everything written until the next call becomes visible as one version.
    pub(super) fn begin_change(&mut self, now: Instant, pin_age_max: Duration) {
        let mut expired = false;
        // Pins are ordered by version, and therefore by age.
        // Expired pins go here and not in a timer: without changes they retain nothing.
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

    /// Applies the write set of an operation, which names no key twice.
    pub(super) fn apply(&mut self, writes: WriteSet) {
        for key in writes.deletes {
            self.delete(&key);
        }
        for (key, value) in writes.puts {
            self.put(&key, value);
        }
        for (keys, value) in writes.unread {
            // With a pin the replaced values must be kept, which needs their places in the map.
            if self.pins.is_empty() {
                self.deferred.add(keys, value);
            } else {
                keys.iter().for_each(|key| self.write(TableKey::new(key), value.clone()));
            }
        }
        if self.deferred.keys() > DEFERRED_KEYS_MAX {
            self.settle();
        }
    }

    pub(super) fn put(&mut self, key: &[u8], value: Bytes) {
        self.settle_before(key);
        self.write(TableKey::new(key), Some(value));
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        self.settle_before(key);
        self.write(TableKey::new(key), None);
    }

    pub(super) fn get(&self, key: &[u8], at: Version) -> Option<Bytes> {
        // Newer than what the map has: a write of the same key settles first. No pin
        // exists while anything is deferred.
        if let Some((_, value)) = self.deferred.set_of(key) {
            return value.clone();
        }
        let key = TableKey::new(key);
        self.current.get(&key).and_then(|current| self.visible(&key, current, at)).cloned()
    }

    /// Whether [`Table::settle`] must run before this range is scanned.
    pub(super) fn must_settle(&self, range: &KeyRange) -> bool {
        self.deferred.overlaps(range)
    }

    /// Moves deferred keys into the map.
    pub(super) fn settle(&mut self) {
        let deferred = std::mem::take(&mut self.deferred);
        deferred.each_in_order(|key, value| self.write(key, value));
    }

    /// Reads a range that has been settled.
    pub(super) fn scan(&self, scan: &Scan, at: Version) -> ReadPage {
        if scan.range.is_empty() {
            return ReadPage::default();
        }
        assert!(!self.must_settle(&scan.range), "a range is settled before it is scanned");
        let range = self.current.range(bounds(&scan.range));
        match scan.direction {
            Direction::Forward => self.collect_page(range, scan, at),
            Direction::Backward => self.collect_page(range.rev(), scan, at),
        }
    }

    /// Counts a range that has been settled.
    pub(super) fn tally(&self, tally: &Tally, at: Version) -> ReadPage {
        if tally.range.is_empty() {
            return ReadPage::default();
        }
        assert!(!self.must_settle(&tally.range), "a range is settled before it is counted");
        let range = self.current.range(bounds(&tally.range));
        // Deleted keys stay in the map as long as a pin can see their older values.
        let present = range.filter(|(key, current)| self.visible(key, current, at).is_some());
        tally.of_keys(present.map(|(key, _)| key.bytes()), false)
    }

    /// The first keys of a range.
    pub(super) fn keys(&mut self, range: &KeyRange, keys_max: usize) -> Vec<Key> {
        if range.is_empty() {
            return Vec::new();
        }
        if self.must_settle(range) {
            self.settle();
        }
        let present = self.current.range(bounds(range)).filter(|(_, current)| current.value.is_some());
        present.take(keys_max).map(|(key, _)| key.bytes()).collect()
    }

    /// A later write of a deferred key must come after it.
    fn settle_before(&mut self, key: &[u8]) {
        if self.deferred.may_have(key) {
            self.settle();
        }
    }

    fn write(&mut self, key: TableKey, value: Option<Bytes>) {
        let (key_bytes, value_bytes) = (key.len(), value.as_ref().map_or(0, Bytes::len));
        match self.current.entry(key) {
            Place::Vacant(place) => {
                if value.is_some() {
                    self.bytes += key_bytes + value_bytes;
                    place.insert(Current { value, since: self.version });
                }
            }
            Place::Occupied(mut place) => {
                let current = place.get_mut();
                if let Some(replaced) = &current.value {
                    let replaced_bytes = key_bytes + replaced.len();
                    assert!(self.bytes >= replaced_bytes, "the table's size never goes below zero");
                    self.bytes -= replaced_bytes;
                }
                let is_gone = value.is_none();
                if !is_gone {
                    self.bytes += key_bytes + value_bytes;
                }
                let replaced = std::mem::replace(&mut current.value, value);
                let replaced_since = std::mem::replace(&mut current.since, self.version);
                // A value written after the newest pin is visible to no pin.
                let visible = self.pins.last_key_value().is_some_and(|(pinned, _)| *pinned >= replaced_since);
                // Kept beside the new value until the last pin that can see it is gone.
                if visible {
                    let key = place.key().clone();
                    self.older.entry(key.clone()).or_default().push((replaced_since, replaced));
                    self.replaced.push_back((self.version, key));
                } else if is_gone && (self.older.is_empty() || !self.older.contains_key(place.key())) {
                    // Nothing refers to the key any more; otherwise the deletion itself must stay visible.
                    place.remove();
                }
            }
        }
    }

    /// Drops replaced values that no pin can see.
    fn prune(&mut self) {
        let oldest_pin = self.pins.first_key_value().map_or(Version::MAX, |(version, _)| *version);
        // Oldest first, so that the search ends at the first value that is still needed.
        while self.replaced.front().is_some_and(|(replaced_at, _)| *replaced_at <= oldest_pin) {
            let Some((_, key)) = self.replaced.pop_front() else { break };
            // Pruned already by another entry for the same key.
            let (Some(current), Some(older)) = (self.current.get(&key), self.older.get_mut(&key)) else {
                continue;
            };
            let replaced_at = |at: usize| older.get(at + 1).map_or(current.since, |(since, _)| *since);
            let unseen = (0..older.len()).take_while(|at| replaced_at(*at) <= oldest_pin).count();
            older.drain(..unseen);
            if older.is_empty() {
                let is_gone = current.value.is_none();
                self.older.remove(&key);
                if is_gone {
                    self.current.remove(&key);
                }
            }
        }
    }

    fn visible<'a>(&'a self, key: &TableKey, current: &'a Current, at: Version) -> Option<&'a Bytes> {
        // The usual case. Otherwise the newest of the older values that is not after the version.
        if current.since <= at {
            return current.value.as_ref();
        }
        let older = self.older.get(key)?.iter().rev();
        older.skip_while(|(since, _)| *since > at).map(|(_, value)| value.as_ref()).next().flatten()
    }

    fn collect_page<'a>(
        &'a self,
        range: impl Iterator<Item = (&'a TableKey, &'a Current)>,
        scan: &Scan,
        at: Version,
    ) -> ReadPage {
        let mut page = ReadPage::default();
        let mut bytes = 0;
        for (key, current) in range {
            let Some(value) = self.visible(key, current, at) else { continue };
            if page.entries.len() >= scan.entries_max || (bytes >= scan.bytes_max && !page.entries.is_empty())
            {
                page.more = true;
                break;
            }
            let value = match scan.want {
                Want::Keys => Bytes::new(),
                Want::KeysAndValues => value.clone(),
            };
            bytes += key.len() + value.len();
            page.entries.push(Entry { key: key.bytes(), value });
        }
        page
    }
}

fn bounds(range: &KeyRange) -> (std::ops::Bound<TableKey>, std::ops::Bound<TableKey>) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let end = range.end.as_deref().map_or(Unbounded, |end| Excluded(TableKey::new(end)));
    (Included(TableKey::new(&range.start)), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Scan {
        Scan::forward(KeyRange::all(), usize::MAX)
    }

    #[test]
    fn a_pin_keeps_its_version_and_leaves_no_garbage() {
        let mut table = Table::default();
        let (now, age) = (orrery_env::monotonic::now(), Duration::from_mins(1));
        table.begin_change(now, age);
        table.put(b"a", "1".into());
        table.put(b"b", "1".into());
        let first = table.pin(now);
        for round in 0..3 {
            table.begin_change(now, age);
            table.put(b"a", format!("new {round}").into());
            table.delete(b"b");
            table.put(b"c", "new".into());
        }
        let second = table.pin(now);
        table.begin_change(now, age);
        table.delete(b"c");
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
        assert_eq!(table.current.len(), 1);
        assert!(table.replaced.is_empty() && table.older.is_empty());
        assert_eq!(table.bytes(), 1 + "new 2".len());
    }

    #[test]
    fn an_expired_pin_retains_nothing() {
        let mut table = Table::default();
        let age = Duration::from_secs(5);
        let start = orrery_env::monotonic::now();
        table.begin_change(start, age);
        table.put(b"a", "1".into());
        let pinned = table.pin(start);
        table.begin_change(start + age, age);
        table.put(b"a", "2".into());
        assert!(table.replaced.is_empty());
        table.unpin(pinned);
        assert_eq!(table.get(b"a", table.version()).unwrap(), "2");
    }

    /// Random changes of a few keys, each as a read key or as one that is not, beside a plain map: whatever is deferred,
    /// reads, scans and snapshots see what was written last.
    #[test]
    fn deferred_keys_are_seen() {
        use std::collections::BTreeMap as Plain;

        use crate::packed::KeyPacker;

        let mut state = 7_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (now, age) = (orrery_env::monotonic::now(), Duration::from_mins(1));
        let (mut table, mut plain) = (Table::default(), Plain::<Key, Bytes>::new());
        let mut pinned: Option<(Version, Plain<Key, Bytes>)> = None;
        let mut deferred = 0;
        for round in 0..4000_u64 {
            let mut writes = WriteSet::default();
            let mut names: Vec<Key> =
                (0..=random(5)).map(|_| format!("{:0>30}", random(60)).into_bytes()).collect();
            names.sort();
            names.dedup();
            let value = (random(3) > 0).then(|| Bytes::from(round.to_string()));
            for name in &names {
                match &value {
                    Some(value) => plain.insert(name.clone(), value.clone()),
                    None => plain.remove(name),
                };
            }
            match (random(4), &value) {
                (0, Some(value)) => {
                    writes.puts = names.into_iter().map(|name| (name, value.clone())).collect();
                }
                (0, None) => writes.deletes = names,
                _ => {
                    let mut packer = KeyPacker::default();
                    for name in names {
                        packer.bytes().extend_from_slice(&name);
                        packer.end_key();
                    }
                    writes.unread.push((packer.finish(), value));
                }
            }
            table.begin_change(now, age);
            table.apply(writes);
            deferred = deferred.max(table.deferred.keys());
            let name = format!("{:0>30}", random(60)).into_bytes();
            assert_eq!(table.get(&name, table.version()), plain.get(&name).cloned(), "round {round}");
            match random(60) {
                0 if pinned.is_none() => pinned = Some((table.pin(now), plain.clone())),
                1 => {
                    if let Some((version, seen)) = pinned.take() {
                        assert_eq!(contents(&mut table, version), seen);
                        table.unpin(version);
                    }
                }
                2 => assert_eq!(contents(&mut table, Version::MAX), plain, "round {round}"),
                3 => {
                    let mut range = KeyRange::prefix(b"0000");
                    range.end = Some(format!("{:0>30}", random(60)).into_bytes());
                    let expected: Vec<Key> =
                        plain.range(..range.end.clone().unwrap()).map(|(k, _)| k.clone()).collect();
                    assert_eq!(table.keys(&range, usize::MAX), expected);
                }
                _ => {}
            }
        }
        assert!(deferred > 10, "{deferred} keys were deferred at once");
        if let Some((version, _)) = pinned {
            table.unpin(version);
        }
        assert_eq!(contents(&mut table, Version::MAX), plain);
        assert!(table.older.is_empty() && table.replaced.is_empty());
        let bytes: usize = plain.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert_eq!((table.bytes(), table.current.len()), (bytes, plain.len()));
    }

    fn contents(table: &mut Table, at: Version) -> BTreeMap<Key, Bytes> {
        if table.must_settle(&KeyRange::all()) {
            table.settle();
        }
        table.scan(&all(), at).entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
    }
}
