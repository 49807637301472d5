//! Heat: the recent usage of each partition, its hottest keys, and why requests were throttled.

use std::collections::{HashMap, VecDeque};

use orrery_model::{Charge, Object, Value};
use parking_lot::Mutex;

/// Seconds of usage that are retained.
const SECONDS: i64 = 300;
const SLOTS: usize = 300;
/// Keys tracked per partition. A key with more than a 64th of the load is never missed.
const KEYS_MAX: usize = 64;
/// Seconds of usage that are retained for each of those keys.
const KEY_SECONDS: i64 = 60;
const KEY_SLOTS: usize = 60;
/// How many throttled requests are retained.
const EVENTS_MAX: usize = 100;

/// A hot key of a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    /// The partition key value as JSON.
    pub key: String,
    /// An upper bound, overestimated by at most the count of the least tracked key.
    pub charge: Charge,
    /// Its part of what the partition's keys used lately, in percent.
    pub share_percent: u64,
    /// What it used in each of the last complete seconds, oldest first, since it has been tracked.
    pub seconds: Vec<Charge>,
}

/// The load of one partition.
#[derive(Clone, Debug, Default)]
pub struct PartitionHeat {
    pub last_second: Charge,
    /// Over the last minute, per second.
    pub per_second_last_minute: f64,
    /// Throttled requests since the server started.
    pub throttled: u64,
    /// Unused throughput of the last minutes, for bursts.
    pub banked: Charge,
    pub hottest: Vec<HotKey>,
}

impl PartitionHeat {
    pub(crate) fn hottest_value(&self) -> Value {
        let hottest = self.hottest.iter().map(|hot| {
            let mut key = Object::new();
            key.set("partitionKey", Value::from(hot.key.as_str()));
            key.set("requestUnits", Value::from(hot.charge.as_f64()));
            key.set("sharePercent", Value::from(i64::try_from(hot.share_percent).unwrap_or(100)));
            if !hot.seconds.is_empty() {
                let seconds = hot.seconds.iter().map(|used| Value::from(used.as_f64()));
                key.set("usedBySecond", seconds.collect::<Vec<_>>().into());
            }
            Value::from(key)
        });
        hottest.collect::<Vec<_>>().into()
    }
}

/// One second of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeatSecond {
    pub used: Charge,
    /// Throttled requests.
    pub throttled: u32,
}

/// Why a request was throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleCause {
    /// The partition's second is spent.
    Budget,
    /// The rest of the second is reserved for high-priority requests.
    Priority,
    /// The share of the request's throughput bucket is spent.
    Bucket(u8),
    /// The account's budget for metadata is spent.
    Metadata,
    /// The account has created or changed too many resources lately.
    AccountLimit,
}

/// A throttled request.
#[derive(Clone, Debug)]
pub struct ThrottleEvent {
    pub at_ms: i64,
    /// By name; none for metadata, which has no container and no partition.
    pub container: Option<String>,
    pub range_id: u32,
    pub key: Option<String>,
    /// The key's share of the partition's recent usage, in percent.
    pub key_share_percent: u64,
    pub budget_per_second: u64,
    pub cause: ThrottleCause,
    pub retry_after_ms: u32,
}

/// Tracks one partition.
#[derive(Debug, Default)]
pub(crate) struct Heat {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    second: i64,
    /// Usage of the last seconds, the current one at `second % SECONDS`.
    used: Box<[u64; SLOTS]>,
    throttled: u64,
    /// Throttled requests of the last seconds, indexed like `used`.
    refused: Box<[u32; SLOTS]>,
    keys: HashMap<String, KeyHeat>,
    keys_total: u64,
}

/// A tracked key.
#[derive(Debug)]
struct KeyHeat {
    /// Its charges, halved every minute.
    count: u64,
    /// The last second with usage; older slots are stale.
    last: i64,
    /// Usage by second, in slots by second number; hundredths.
    used: Box<[u32; KEY_SLOTS]>,
}

impl KeyHeat {
    fn new(count: u64, second: i64) -> Self {
        Self { count, last: second, used: Box::new([0; KEY_SLOTS]) }
    }

    fn add(&mut self, second: i64, charge: Charge) {
        // Slots of the seconds in which the key was not used hold values of a minute ago.
        for back in 0..(second - self.last).clamp(0, KEY_SECONDS) {
            self.used[key_slot(second - back)] = 0;
        }
        self.last = self.last.max(second);
        self.count += charge.hundredths();
        let used = &mut self.used[key_slot(second)];
        *used = used.saturating_add(u32::try_from(charge.hundredths()).unwrap_or(u32::MAX));
    }

    /// The last `seconds` complete seconds, oldest first.
    fn timeline(&self, now: i64, seconds: usize) -> Vec<Charge> {
        let seconds = i64::try_from(seconds).unwrap_or(KEY_SECONDS).min(KEY_SECONDS - 1);
        let at = |back| {
            let is_kept = now - back <= self.last && now - back > self.last - KEY_SECONDS;
            Charge::from_hundredths(if is_kept { self.used[key_slot(now - back)].into() } else { 0 })
        };
        (1..=seconds).rev().map(at).collect()
    }
}

fn key_slot(second: i64) -> usize {
    usize::try_from(second.rem_euclid(KEY_SECONDS)).unwrap_or(0)
}

impl Default for State {
    fn default() -> Self {
        Self {
            second: 0,
            used: Box::new([0; SLOTS]),
            throttled: 0,
            refused: Box::new([0; SLOTS]),
            keys: HashMap::new(),
            keys_total: 0,
        }
    }
}

impl Heat {
    pub(crate) fn used(&self, second: i64, charge: Charge, key: Option<&str>) {
        let mut state = self.state.lock();
        // Before anything is added, so that the slot holds only this second.
        state.roll(second);
        let slot = slot(second);
        state.used[slot] += charge.hundredths();
        let Some(key) = key else { return };
        state.keys_total += charge.hundredths();
        if let Some(known) = state.keys.get_mut(key) {
            known.add(second, charge);
            return;
        }
        // Space-Saving algorithm: a new key replaces the least one and inherits its count as possible error.
        let mut inherited = 0;
        if state.keys.len() >= KEYS_MAX
            && let Some(least) =
                state.keys.iter().min_by_key(|(_, known)| known.count).map(|(key, _)| key.clone())
        {
            inherited = state.keys.remove(&least).map_or(0, |known| known.count);
        }
        let mut tracked = KeyHeat::new(inherited, second);
        tracked.add(second, charge);
        state.keys.insert(key.to_owned(), tracked);
    }

    /// Counts a throttled request and returns the key's share of the load, in percent.
    pub(crate) fn throttled(&self, second: i64, key: Option<&str>) -> u64 {
        let mut state = self.state.lock();
        state.roll(second);
        state.throttled += 1;
        let slot = slot(second);
        state.refused[slot] = state.refused[slot].saturating_add(1);
        let count = key.and_then(|key| state.keys.get(key)).map_or(0, |known| known.count);
        state.share_percent(count)
    }

    /// The higher usage of the current and the last second.
    pub(crate) fn recent_peak(&self, second: i64) -> Charge {
        let mut state = self.state.lock();
        state.roll(second);
        // The current second is incomplete, so the last one counts if it was higher.
        Charge::from_hundredths(state.used[slot(second)].max(state.used[slot(second - 1)]))
    }

    /// The last complete seconds, oldest first; at most as many as are retained.
    pub(crate) fn timeline(&self, second: i64, seconds: usize) -> Vec<HeatSecond> {
        let mut state = self.state.lock();
        state.roll(second);
        let seconds = i64::try_from(seconds).unwrap_or(SECONDS).clamp(1, SECONDS - 1);
        let at = |back| HeatSecond {
            used: Charge::from_hundredths(state.used[slot(second - back)]),
            throttled: state.refused[slot(second - back)],
        };
        (1..=seconds).rev().map(at).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub(crate) fn view(&self, second: i64, keys_max: usize) -> PartitionHeat {
        let mut state = self.state.lock();
        state.roll(second);
        // The current second is incomplete and left out.
        let minute: u64 = (1..=60).map(|back| state.used[slot(second - back)]).sum();
        let mut hottest: Vec<HotKey> = state
            .keys
            .iter()
            .map(|(key, known)| HotKey {
                key: key.clone(),
                charge: Charge::from_hundredths(known.count),
                share_percent: state.share_percent(known.count),
                seconds: Vec::new(),
            })
            .collect();
        hottest.sort_by(|a, b| b.charge.cmp(&a.charge).then_with(|| a.key.cmp(&b.key)));
        hottest.truncate(keys_max);
        for hot in &mut hottest {
            hot.seconds =
                state.keys.get(&hot.key).map_or_else(Vec::new, |known| known.timeline(second, KEY_SLOTS));
        }
        PartitionHeat {
            last_second: Charge::from_hundredths(state.used[slot(second - 1)]),
            per_second_last_minute: minute as f64 / 6000.0,
            throttled: state.throttled,
            banked: Charge::ZERO,
            hottest,
        }
    }
}

fn slot(second: i64) -> usize {
    usize::try_from(second.rem_euclid(SECONDS)).unwrap_or(0)
}

impl State {
    /// A key's count as part of all, in percent.
    fn share_percent(&self, count: u64) -> u64 {
        (count * 100).checked_div(self.keys_total).unwrap_or(0).min(100)
    }

    /// Clears the seconds since the last use, and ages the key counters.
    fn roll(&mut self, second: i64) {
        let passed = second.saturating_sub(self.second);
        if passed <= 0 {
            return;
        }
        for back in 0..passed.min(SECONDS) {
            self.used[slot(second - back)] = 0;
            self.refused[slot(second - back)] = 0;
        }
        // Halving every minute keeps the list current.
        if second.div_euclid(60) != self.second.div_euclid(60) {
            self.keys.values_mut().for_each(|known| known.count /= 2);
            self.keys.retain(|_, known| known.count > 0);
            self.keys_total /= 2;
        }
        self.second = second;
    }
}

/// The latest throttled requests.
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<VecDeque<ThrottleEvent>>);

impl Events {
    pub(crate) fn push(&self, event: ThrottleEvent) {
        let mut events = self.0.lock();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// The newest first.
    pub(crate) fn list(&self) -> Vec<ThrottleEvent> {
        self.0.lock().iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_key_is_named_among_many() {
        let heat = Heat::default();
        for step in 0..10_000 {
            let key = if step % 10 == 0 { "[\"hot\"]".to_owned() } else { format!("[{step}]") };
            heat.used(100, Charge::from_hundredths(100), Some(&key));
        }
        let view = heat.view(101, 3);
        assert_eq!(view.hottest[0].key, "[\"hot\"]");
        assert!((10..15).contains(&view.hottest[0].share_percent), "{}", view.hottest[0].share_percent);
        assert_eq!(view.last_second.hundredths(), 1_000_000);
        assert!(heat.throttled(100, Some("[\"hot\"]")) >= 10);
        assert_eq!(heat.view(1000, 3).last_second, Charge::ZERO);
    }

    #[test]
    fn a_hot_key_has_its_last_seconds() {
        let heat = Heat::default();
        for (second, charge) in [(100, 250), (101, 100), (101, 50), (103, 300)] {
            heat.used(second, Charge::from_hundredths(charge), Some("[1]"));
        }
        let last = |now, count: usize| {
            let seconds = heat.view(now, 1).hottest.remove(0).seconds;
            seconds[seconds.len() - count..].iter().map(|used| used.hundredths()).collect::<Vec<_>>()
        };
        assert_eq!(last(104, 5), [0, 250, 150, 0, 300]);
        assert_eq!(last(103, 4), [0, 250, 150, 0], "the current second is not complete");
        assert_eq!(last(163, 59).iter().sum::<u64>(), 0);
    }

    #[test]
    fn the_last_seconds_are_kept_one_by_one() {
        let heat = Heat::default();
        heat.used(100, Charge::from_hundredths(250), None);
        heat.throttled(101, None);
        heat.throttled(101, None);
        heat.used(102, Charge::from_hundredths(300), None);
        let seconds = |now, count| {
            let seconds = heat.timeline(now, count);
            seconds.iter().map(|at| (at.used.hundredths(), at.throttled)).collect::<Vec<_>>()
        };
        assert_eq!(seconds(102, 2), [(250, 0), (0, 2)]);
        assert_eq!(seconds(103, 4), [(0, 0), (250, 0), (0, 2), (300, 0)]);
        assert_eq!(seconds(103, 10_000).len(), SLOTS - 1);
        assert_eq!(seconds(500, 2), [(0, 0), (0, 0)]);
    }
}
