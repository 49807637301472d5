//! Ids that occur several times: two items with the same id and the same key would collide.
//!
//! All items of a share of the ids are compared. The share is halved whenever it becomes too many.

use std::collections::HashMap;

/// The maximum number of tracked ids.
const IDS_MAX: usize = 8192;

/// The items of some ids, under every candidate.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    /// The keys that an id was seen with, each with its number of items, by candidate.
    ids: HashMap<u64, Seen>,
    /// Ids whose hash ends with this many zeros are tracked.
    zeros: u32,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    items: u64,
    /// The first item's keys; those of others only if an id repeats, which is rare.
    keys: Vec<Vec<u64>>,
}

impl Repeats {
    /// Whether an id is tracked.
    #[inline]
    pub fn follows(&self, id: u64) -> bool {
        id.trailing_zeros() >= self.zeros
    }

    /// Adds an item of such an id, by the hashes of its keys under each candidate.
    pub fn add(&mut self, id: u64, keys: impl Iterator<Item = u64>) {
        let seen = self.ids.entry(id).or_default();
        seen.items += 1;
        seen.keys.push(keys.collect());
        if self.ids.len() > IDS_MAX {
            // Half of the ids stay, the same ones whatever the order of the items.
            self.zeros += 1;
            let zeros = self.zeros;
            self.ids.retain(|id, _| id.trailing_zeros() >= zeros);
        }
    }

    /// The share of items that would collide under a candidate with another one of the same id and key.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn share(&self, candidate: usize) -> f64 {
        let (mut items, mut repeated) = (0, 0);
        for seen in self.ids.values() {
            let mut keys: Vec<u64> = seen.keys.iter().map(|keys| keys[candidate]).collect();
            keys.sort_unstable();
            keys.dedup();
            items += seen.items;
            // With each key the id may exist once.
            repeated += seen.items - keys.len() as u64;
        }
        repeated as f64 / (items as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix;

    #[test]
    fn repeated_ids_are_found_among_any_number() {
        let mut repeats = Repeats::default();
        for number in 0..200_000u64 {
            // Each id twice: under the first candidate with the same key, under the second with another.
            let id = mix(number % 100_000);
            if repeats.follows(id) {
                repeats.add(id, [mix(number % 100_000 % 7), mix(number)].into_iter());
            }
        }
        assert!(repeats.ids.len() <= IDS_MAX);
        assert!((repeats.share(0) - 0.5).abs() < 1e-9 && repeats.share(1) == 0.0);
    }
}
