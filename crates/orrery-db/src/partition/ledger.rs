//! The ledger: what each logical partition used over the last minutes, counted exactly, where [`super::heat`] finds only
//! the hottest.
//!
//! Bounded: there is a maximum of keys per partition and one for the process; the usage of further keys, and of requests
//! without a single key, is counted together as that of others. Kept in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use orrery_model::Charge;
use parking_lot::Mutex;

/// Minutes that are retained, the current one included.
pub const MINUTES: usize = 5;
const SLOTS: i64 = 5;
/// Keys tracked per partition, and by the whole process (about 150 bytes each).
const PARTITION_KEYS_MAX: usize = 20_000;
const KEYS_MAX: usize = 200_000;

/// What a key used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLoad {
    pub used: Charge,
    /// Throttled requests.
    pub throttled: u64,
}

/// The number of keys that all ledgers track.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quota(Arc<AtomicUsize>);

/// One partition's ledger.
#[derive(Debug)]
pub(crate) struct Ledger {
    quota: Quota,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    minute: i64,
    keys: HashMap<String, Minutes>,
    others: Minutes,
}

/// The last minutes, in slots by minute number.
#[derive(Clone, Copy, Debug, Default)]
struct Minutes {
    /// The last minute with usage; older slots are stale.
    last: i64,
    used: [u64; MINUTES],
    throttled: [u32; MINUTES],
}

impl Ledger {
    pub(crate) fn new(quota: &Quota) -> Self {
        Self { quota: quota.clone(), state: Mutex::default() }
    }

    /// Counts the charge of a request; `None` if it has no single key.
    pub(crate) fn used(&self, second: i64, key: Option<&str>, charge: Charge) {
        self.count(second, key, |slot, minutes| minutes.used[slot] += charge.hundredths());
    }

    /// Counts a throttled request.
    pub(crate) fn throttled(&self, second: i64, key: Option<&str>) {
        self.count(second, key, |slot, minutes| {
            minutes.throttled[slot] = minutes.throttled[slot].saturating_add(1);
        });
    }

    fn count(&self, second: i64, key: Option<&str>, add: impl FnOnce(usize, &mut Minutes)) {
        let minute = second.div_euclid(60);
        let mut state = self.state.lock();
        self.roll(&mut state, minute);
        let minutes = match key {
            // Two look-ups instead of an owned key for each request.
            Some(key) if state.keys.contains_key(key) => state.keys.get_mut(key),
            // Within both bounds a new key is tracked; beyond them it counts with the others.
            Some(key) if state.keys.len() < PARTITION_KEYS_MAX && self.quota.take() => {
                Some(state.keys.entry(key.to_owned()).or_default())
            }
            _ => None,
        };
        let Some(minutes) = minutes else {
            state.others.roll(minute);
            return add(slot(minute), &mut state.others);
        };
        minutes.roll(minute);
        add(slot(minute), minutes);
    }

    /// Once a minute, forgets the keys without usage in the retained time.
    fn roll(&self, state: &mut State, minute: i64) {
        if minute <= state.minute {
            return;
        }
        state.minute = minute;
        let before = state.keys.len();
        let oldest = minute - SLOTS;
        state.keys.retain(|_, minutes| minutes.last > oldest);
        // The quota is shared by all partitions.
        self.quota.give_back(before - state.keys.len());
    }

    /// The usage of these keys and of all others, over the last `minutes`.
    pub(crate) fn usage<'k>(
        &self,
        second: i64,
        minutes: usize,
        keys: impl Iterator<Item = &'k str>,
    ) -> Vec<KeyLoad> {
        let minute = second.div_euclid(60);
        let mut state = self.state.lock();
        self.roll(&mut state, minute);
        keys.map(|key| state.keys.get(key).map(|own| own.sum(minute, minutes)).unwrap_or_default()).collect()
    }

    /// The usage of keys that are not tracked, and of requests without a single key.
    pub(crate) fn others(&self, second: i64, minutes: usize) -> KeyLoad {
        self.state.lock().others.sum(second.div_euclid(60), minutes)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // A dropped partition frees what it tracked.
        self.quota.give_back(self.state.get_mut().keys.len());
    }
}

impl Quota {
    fn take(&self) -> bool {
        // Never above the maximum, however many threads take at once.
        let update = |count| (count < KEYS_MAX).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).is_ok()
    }

    fn give_back(&self, keys: usize) {
        self.0.fetch_sub(keys, Ordering::Relaxed);
    }
}

impl Minutes {
    /// Clears the slots of the minutes since the last usage.
    fn roll(&mut self, minute: i64) {
        let passed = (minute - self.last).clamp(0, SLOTS);
        for back in 0..passed {
            self.used[slot(minute - back)] = 0;
            self.throttled[slot(minute - back)] = 0;
        }
        self.last = self.last.max(minute);
    }

    fn sum(mut self, minute: i64, minutes: usize) -> KeyLoad {
        // On a copy: slots that have become stale count as empty.
        self.roll(minute);
        let slots = (0..SLOTS).take(minutes.max(1)).map(|back| slot(minute - back));
        let (used, throttled) = slots.fold((0, 0), |(used, throttled), slot| {
            (used + self.used[slot], throttled + u64::from(self.throttled[slot]))
        });
        KeyLoad { used: Charge::from_hundredths(used), throttled }
    }
}

fn slot(minute: i64) -> usize {
    usize::try_from(minute.rem_euclid(SLOTS)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(ledger: &Ledger, second: i64, minutes: usize, key: &str) -> (u64, u64) {
        let usage = ledger.usage(second, minutes, [key].into_iter())[0];
        (usage.used.hundredths(), usage.throttled)
    }

    #[test]
    fn every_key_is_counted_exactly_by_the_minute() {
        let ledger = Ledger::new(&Quota::default());
        for number in 0..10_000 {
            let key = format!("[{}]", number % 5000);
            ledger.used(600 + number / 100, Some(&key), Charge::from_hundredths(250));
        }
        ledger.throttled(690, Some("[7]"));
        ledger.used(690, None, Charge::from_hundredths(9900));
        assert_eq!(usage(&ledger, 699, 5, "[7]"), (500, 1));
        assert_eq!(usage(&ledger, 699, 1, "[7]"), (0, 1), "its charges are of the minute before");
        assert_eq!(usage(&ledger, 699, 5, "[none]"), (0, 0));
        assert_eq!(ledger.others(699, 5).used.hundredths(), 9900);
        // Five minutes later everything is forgotten, and the keys make room.
        assert_eq!(usage(&ledger, 1000, 5, "[7]"), (0, 0));
        assert_eq!(ledger.quota.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn keys_beyond_the_bound_are_counted_as_others() {
        let quota = Quota::default();
        let ledger = Ledger::new(&quota);
        for number in 0..PARTITION_KEYS_MAX + 10 {
            ledger.used(60, Some(&format!("[{number}]")), Charge::from_hundredths(100));
        }
        assert_eq!(ledger.others(60, 1).used.hundredths(), 1000);
        assert_eq!(quota.0.load(Ordering::Relaxed), PARTITION_KEYS_MAX);
        drop(ledger);
        assert_eq!(quota.0.load(Ordering::Relaxed), 0);
    }
}
