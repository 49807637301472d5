//! A multi-version ordered map.
//!
//! Every change gets a version. A snapshot pins the current version; while a pin exists, a change keeps the
//! value it replaces next to the new one. Without a pin a change simply overwrites, so the common case costs
//! what a `BTreeMap` costs. Old values are dropped with the last pin that can see them, and pins older than
//! the store's limit are ignored, so a leaked snapshot retains nothing.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::contract::{Direction, Entry, Key, KeyRange, ReadPage, Scan, Want};

/// A point in the table's history.
pub(super) type Version = u64;

#[derive(Default)]
pub(super) struct Table {
    histories: BTreeMap<Key, History>,
    version: Version,
    pins: BTreeMap<Version, Pin>,
    /// Keys that have older values, with the version that replaced them, oldest first.
    replaced: VecDeque<(Version, Key)>,
    bytes: usize,
}

struct History {
    /// `None` = deleted, but an older value may still be visible to a pin.
    current: Option<Bytes>,
    since: Version,
    /// Earlier values, oldest first, each with the version that wrote it.
    older: Vec<(Version, Option<Bytes>)>,
}

struct Pin {
    count: usize,
    newest: Instant,
}

impl Table {
    /// Total size of the current keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Keeps the current version readable until [`Table::unpin`] or until the pin expires.
    pub(super) fn pin(&mut self, now: Instant) -> Version {
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
        self.histories.get(key).and_then(|history| history.visible(at)).cloned()
    }

    pub(super) fn scan(&self, scan: &Scan, at: Version) -> ReadPage {
        if scan.range.is_empty() {
            return ReadPage::default();
        }
        let range = self.histories.range::<[u8], _>(bounds(&scan.range));
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
        let present =
            self.histories.range::<[u8], _>(bounds(range)).filter(|(_, history)| history.current.is_some());
        present.take(keys_max).map(|(key, _)| key.clone()).collect()
    }

    fn write(&mut self, key: Key, value: Option<Bytes>) {
        let (key_bytes, value_bytes) = (key.len(), value.as_ref().map_or(0, Bytes::len));
        let Some(history) = self.histories.get_mut(&key) else {
            if let Some(value) = value {
                self.bytes += key_bytes + value_bytes;
                let history = History { current: Some(value), since: self.version, older: Vec::new() };
                self.histories.insert(key, history);
            }
            return;
        };
        if let Some(current) = &history.current {
            let replaced_bytes = key_bytes + current.len();
            assert!(self.bytes >= replaced_bytes, "the table's size never goes below zero");
            self.bytes -= replaced_bytes;
        }
        if value.is_some() {
            self.bytes += key_bytes + value_bytes;
        }
        let replaced = std::mem::replace(&mut history.current, value);
        let replaced_since = std::mem::replace(&mut history.since, self.version);
        // A value written after the newest pin is visible to no pin.
        let visible = self.pins.last_key_value().is_some_and(|(pinned, _)| *pinned >= replaced_since);
        if visible {
            history.older.push((replaced_since, replaced));
            self.replaced.push_back((self.version, key));
        } else if history.current.is_none() && history.older.is_empty() {
            self.histories.remove(&key);
        }
    }

    /// Drops replaced values that no pin can see.
    fn prune(&mut self) {
        let oldest_pin = self.pins.first_key_value().map_or(Version::MAX, |(version, _)| *version);
        while self.replaced.front().is_some_and(|(replaced_at, _)| *replaced_at <= oldest_pin) {
            let Some((_, key)) = self.replaced.pop_front() else { break };
            let Some(history) = self.histories.get_mut(&key) else { continue };
            history.forget_before(oldest_pin);
            if history.current.is_none() && history.older.is_empty() {
                self.histories.remove(&key);
            }
        }
    }
}

impl History {
    fn visible(&self, at: Version) -> Option<&Bytes> {
        if self.since <= at {
            return self.current.as_ref();
        }
        self.older.iter().rev().find(|(since, _)| *since <= at).and_then(|(_, value)| value.as_ref())
    }

    /// Drops values that were replaced at or before the oldest pinned version.
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

fn collect_page<'a>(
    histories: impl Iterator<Item = (&'a Key, &'a History)>,
    scan: &Scan,
    at: Version,
) -> ReadPage {
    let mut page = ReadPage::default();
    let mut bytes = 0;
    for (key, history) in histories {
        let Some(value) = history.visible(at) else { continue };
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
    fn a_pin_keeps_its_version_and_leaves_no_garbage() {
        let mut table = Table::default();
        let (now, age) = (orrery_env::monotonic::now(), Duration::from_mins(1));
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
        assert_eq!(table.histories.len(), 1);
        assert!(table.replaced.is_empty());
        assert!(table.histories.values().all(|history| history.older.is_empty()));
        assert_eq!(table.bytes(), 1 + "new 2".len());
    }

    #[test]
    fn an_expired_pin_retains_nothing() {
        let mut table = Table::default();
        let age = Duration::from_secs(5);
        let start = orrery_env::monotonic::now();
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
