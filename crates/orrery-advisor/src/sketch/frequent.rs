//! The heaviest keys of a stream in bounded memory (Misra and Gries, with purges in blocks).
//!
//! A table tracks up to [`ENTRIES_MAX`] keys. When it is full, the median weight is subtracted from every key and keys
//! without weight are dropped. The subtracted amount is remembered: a key's true weight is at least the tracked one and at
//! most that plus [`Frequent::error_bytes`], which never exceeds the total divided by half the entries. So a key with more than
//! a thousandth of all bytes is never missed.

/// Most tracked keys.
const ENTRIES_MAX: usize = 2048;
const SLOTS: usize = ENTRIES_MAX * 2;

/// A key and its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The key's hash; 0 = an empty entry.
    pub hash: u64,
    pub items: u64,
    pub bytes: u64,
    /// When it was seen first and last.
    pub first_ms: i64,
    pub last_ms: i64,
}

/// The heaviest keys by bytes.
#[derive(Clone, Debug)]
pub struct Frequent {
    slots: Box<[Entry]>,
    used: usize,
    error_bytes: u64,
    error_items: u64,
}

impl Default for Frequent {
    fn default() -> Self {
        let slots = vec![Entry::default(); SLOTS].into_boxed_slice();
        Self { slots, used: 0, error_bytes: 0, error_items: 0 }
    }
}

impl Frequent {
    /// Adds an item of a key; returns the key's item count.
    #[inline]
    pub fn add(&mut self, hash: u64, bytes: u64, at_ms: i64) -> u64 {
        // 0 marks an empty slot.
        let hash = hash.max(1);
        let mut at = place(hash);
        loop {
            let slot = &mut self.slots[at];
            if slot.hash == hash {
                slot.items += 1;
                slot.bytes += bytes;
                slot.first_ms = slot.first_ms.min(at_ms);
                slot.last_ms = slot.last_ms.max(at_ms);
                return slot.items;
            }
            if slot.hash == 0 {
                break;
            }
            at = (at + 1) % SLOTS;
        }
        // Half of the slots stay free, so that probing is short.
        if self.used == ENTRIES_MAX {
            self.purge();
            return self.add(hash, bytes, at_ms);
        }
        self.slots[at] = Entry { hash, items: 1, bytes, first_ms: at_ms, last_ms: at_ms };
        self.used += 1;
        1
    }

    fn purge(&mut self) {
        let mut entries: Vec<Entry> = self.slots.iter().filter(|entry| entry.hash != 0).copied().collect();
        let middle = entries.len() / 2;
        let (_, median, _) = entries.select_nth_unstable_by_key(middle, |entry| entry.bytes);
        let (bytes, items) = (median.bytes, median.items);
        self.error_bytes += bytes;
        self.error_items += items;
        // Rebuilt, because removing single entries would interrupt the probing of others.
        self.slots.fill(Entry::default());
        self.used = 0;
        for mut entry in entries.into_iter().filter(|entry| entry.bytes > bytes) {
            entry.bytes -= bytes;
            entry.items = entry.items.saturating_sub(items).max(1);
            let mut at = place(entry.hash);
            while self.slots[at].hash != 0 {
                at = (at + 1) % SLOTS;
            }
            self.slots[at] = entry;
            self.used += 1;
        }
    }

    /// The heaviest keys, heaviest first.
    pub fn top(&self, count: usize) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.slots.iter().filter(|entry| entry.hash != 0).copied().collect();
        entries.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.hash.cmp(&b.hash)));
        entries.truncate(count);
        entries
    }

    /// Upper bound on the bytes by which a key's weight is underestimated.
    pub fn error_bytes(&self) -> u64 {
        self.error_bytes
    }

    /// Upper bound on the items by which a key's count is underestimated.
    pub fn error_items(&self) -> u64 {
        self.error_items
    }
}

fn place(hash: u64) -> usize {
    usize::try_from(hash % SLOTS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix;

    #[test]
    fn heavy_keys_survive_any_number_of_light_ones() {
        let mut frequent = Frequent::default();
        let total = 400_000u64;
        for step in 0..total {
            // Two percent, half a percent, and all others once.
            let key = match step {
                _ if step % 50 == 0 => 1,
                _ if step % 200 == 1 => 2,
                _ => 1000 + step,
            };
            frequent.add(mix(key), 100, i64::try_from(step).unwrap());
        }
        let top = frequent.top(2);
        assert_eq!([top[0].hash, top[1].hash], [mix(1), mix(2)]);
        for (entry, items) in top.iter().zip([total / 50, total / 200]) {
            assert!(entry.bytes <= items * 100 && entry.bytes + frequent.error_bytes() >= items * 100);
            assert!(entry.items <= items && entry.items + frequent.error_items() >= items);
        }
        assert!(frequent.error_bytes() <= total * 100 / (ENTRIES_MAX as u64 / 2));
        assert_eq!((top[0].first_ms, top[1].last_ms), (0, 399_801));
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut frequent = Frequent::default();
        for step in 0..10_000u64 {
            frequent.add(mix(step % 1000), 10 + step % 1000, 0);
        }
        let top = frequent.top(1);
        assert_eq!((top[0].hash, top[0].items, top[0].bytes), (mix(999), 10, 10_090));
        assert_eq!(frequent.error_bytes(), 0);
    }
}
