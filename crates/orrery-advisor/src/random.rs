//! Seeded randomness for the advisor and the simulator.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Random {
    /// The same seed yields the same sequence.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: no division, and a negligible bias.
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// A random index of a list with this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length.max(1) as u64)).unwrap_or(0)
    }

    /// A number in [0, 1).
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An approximately normal number: the sum of twelve uniform ones.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// Mixes the bits of a number.
pub fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(GOLDEN);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// Ranks by Zipf's law: rank `r` (from 0) with a weight of `(r + 1) ^ -exponent`.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Cumulative weights, the last being 1.
    cumulative: Vec<f64>,
}

impl Zipf {
    /// Prepares `count` ranks.
    #[expect(clippy::cast_precision_loss, reason = "ranks are far below 2^53")]
    pub fn new(count: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (0..count.max(1))
            .map(|rank| {
                sum += ((rank + 1) as f64).powf(-exponent);
                sum
            })
            .collect();
        for weight in &mut cumulative {
            *weight /= sum;
        }
        Self { cumulative }
    }

    /// Draws a rank.
    pub fn rank(&self, random: &mut Random) -> usize {
        let at = random.unit();
        self.cumulative.partition_point(|weight| *weight <= at).min(self.cumulative.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_draws_are_even() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..4).map(|_| random.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mut random = Random::new(1);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.index(10)] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn ranks_follow_their_law() {
        let (zipf, mut random) = (Zipf::new(100, 1.0), Random::new(3));
        let mut counts = [0u32; 100];
        for _ in 0..100_000 {
            counts[zipf.rank(&mut random)] += 1;
        }
        // The harmonic number of 100 is 5.187.
        assert!((18_700..19_900).contains(&counts[0]), "{}", counts[0]);
        assert!((9_200..10_100).contains(&counts[1]), "{}", counts[1]);
    }
}
