//! Keys as weights at their hash positions.

use orrery_model::KeyPart;
use orrery_model::partition_key::encode::component_v2;

use super::scenario::{KeyKind, KeysPart};

/// Keys that are modelled individually; the others form an even remainder.
const EXPLICIT_MAX: u64 = 200_000;
/// The key space of the first level.
pub(super) const SPACE: f64 = (1u128 << 126) as f64;
/// Pieces that a hierarchical key can be split into.
const PARTS: usize = 256;

/// A distribution over the key space, from 0 to 1.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    /// Sorted key positions, with cumulative weights.
    places: Vec<f64>,
    sums: Vec<f64>,
    /// Spread evenly over everything.
    remainder: f64,
    /// The heaviest key's weight.
    pub(super) heaviest: f64,
    pub(super) distinct: f64,
}

/// The position of a key, from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "53 bits of a place are enough")]
pub(super) fn place(name: &str) -> f64 {
    u128::from_be_bytes(component_v2(&KeyPart::from(name))) as f64 / SPACE
}

impl Weights {
    /// Keys that are written throughout.
    #[expect(clippy::cast_precision_loss, reason = "weights")]
    pub(super) fn steady(keys: &KeysPart) -> Self {
        // Each suffix has a position of its own, so fewer keys are modelled individually.
        let explicit = keys.count.min(EXPLICIT_MAX / u64::from(keys.suffixes).clamp(1, 1000)).max(1);
        let exponent = if keys.kind == KeyKind::Zipf { keys.exponent } else { 0.0 };
        let mut weights: Vec<f64> = (1..=explicit).map(|rank| (rank as f64).powf(-exponent)).collect();
        // The sum of the others, approximated by the integral.
        let (from, to) = (explicit as f64 + 0.5, keys.count as f64 + 0.5);
        let rest = if keys.count <= explicit {
            0.0
        } else if (exponent - 1.0).abs() < 1e-9 {
            (to / from).ln()
        } else {
            (to.powf(1.0 - exponent) - from.powf(1.0 - exponent)) / (1.0 - exponent)
        };
        let total: f64 = weights.iter().sum::<f64>() + rest;
        for weight in &mut weights {
            *weight /= total;
        }
        let suffixes = keys.suffixes.min(1000);
        let entries = weights.iter().enumerate().flat_map(|(rank, weight)| {
            (1..=suffixes).map(move |suffix| {
                let name = if suffixes > 1 { format!("key-{rank}.{suffix}") } else { format!("key-{rank}") };
                (place(&name), weight / f64::from(suffixes))
            })
        });
        let heaviest = weights.first().copied().unwrap_or(0.0) / f64::from(keys.suffixes);
        let distinct = keys.count as f64 * f64::from(keys.suffixes);
        Self::of(entries.collect(), rest / total, heaviest, distinct, keys.hierarchical)
    }

    /// The keys of one period.
    pub(super) fn of_period(keys: &KeysPart, period: u64) -> Self {
        let suffixes = keys.suffixes;
        let entries = (1..=suffixes).map(|suffix| {
            let name =
                if suffixes > 1 { format!("period-{period}.{suffix}") } else { format!("period-{period}") };
            (place(&name), 1.0 / f64::from(suffixes))
        });
        Self::of(entries.collect(), 0.0, 1.0 / f64::from(suffixes), f64::from(suffixes), false)
    }

    /// A uniform distribution.
    pub(super) fn even() -> Self {
        Self { places: Vec::new(), sums: Vec::new(), remainder: 1.0, heaviest: 0.0, distinct: 0.0 }
    }

    #[expect(clippy::cast_precision_loss, reason = "parts of a key")]
    fn of(
        mut entries: Vec<(f64, f64)>,
        remainder: f64,
        heaviest: f64,
        distinct: f64,
        hierarchical: bool,
    ) -> Self {
        if hierarchical {
            // A heavy key consists of adjacent pieces, between which a partition can split.
            let parts = |&(place, weight): &(f64, f64)| {
                let count = if weight > 1e-5 { PARTS } else { 1 };
                (0..count).map(move |part| (place + part as f64 * 1e-12, weight / count as f64))
            };
            entries = entries.iter().flat_map(parts).collect();
        }
        entries.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut sum = 0.0;
        let sums = entries.iter().map(|(_, weight)| {
            sum += weight;
            sum
        });
        let sums = sums.collect();
        Self {
            places: entries.into_iter().map(|(place, _)| place).collect(),
            sums,
            remainder,
            heaviest,
            distinct,
        }
    }

    fn below(&self, at: f64) -> f64 {
        let count = self.places.partition_point(|place| *place < at);
        let explicit = if count == 0 { 0.0 } else { self.sums[count - 1] };
        explicit + self.remainder * at
    }

    /// The weight of a range.
    pub(super) fn within(&self, from: f64, to: f64) -> f64 {
        (self.below(to) - self.below(from)).max(0.0)
    }

    /// The median of a range; `None` if the range contains a single key.
    pub(super) fn middle(&self, from: f64, to: f64) -> Option<f64> {
        let half = f64::midpoint(self.below(from), self.below(to));
        let (mut low, mut high) = (from, to);
        for _ in 0..80 {
            let middle = f64::midpoint(low, high);
            if self.below(middle) < half {
                low = middle;
            } else {
                high = middle;
            }
        }
        let whole = self.within(from, to);
        // The median may fall on a key, which belongs to one side or the other.
        let best = [low, high].into_iter().filter(|at| *at > from && *at < to).min_by(|a, b| {
            let uneven = |at: &f64| (self.within(from, *at) - whole / 2.0).abs();
            uneven(a).total_cmp(&uneven(b))
        })?;
        let left = self.within(from, best);
        // A split that moves almost nothing is useless.
        (left > whole * 0.02 && left < whole * 0.98).then_some(best)
    }
}
