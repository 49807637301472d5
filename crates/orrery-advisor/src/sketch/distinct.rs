//! Estimates the number of distinct values: HyperLogLog with 2^14 one-byte registers (16 KB) and Ertl's estimator.

const BITS: u32 = 14;
const REGISTERS: usize = 1 << BITS;
/// One more than the maximum number of leading zeros in the rest of a hash.
const RANK_MAX: usize = 64 - BITS as usize + 1;

/// The standard error: 1.04 / √registers.
pub const DISTINCT_ERROR: f64 = 0.0081;

/// Counts distinct hashes.
#[derive(Clone, Debug)]
pub struct Distinct {
    registers: Box<[u8]>,
}

impl Default for Distinct {
    fn default() -> Self {
        Self { registers: vec![0; REGISTERS].into_boxed_slice() }
    }
}

impl Distinct {
    /// Adds a value, given by its well-mixed hash.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        // The first bits select the register; the rank is that of the rest.
        let register = &mut self.registers[usize::try_from(hash >> (64 - BITS)).unwrap_or(0)];
        // The lowest bit set bounds the count of zeros where all of the rest are zero.
        let rest = hash << BITS | 1 << (BITS - 1);
        #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
        let rank = rest.leading_zeros() as u8 + 1;
        if rank > *register {
            *register = rank;
        }
    }

    /// Ertl's estimator, which is accurate over the whole range of counts.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn estimate(&self) -> f64 {
        let count = REGISTERS as f64;
        let mut ranks = [0u32; RANK_MAX + 1];
        for rank in &self.registers {
            ranks[usize::from(*rank)] += 1;
        }
        let mut sum = count * tau(1.0 - f64::from(ranks[RANK_MAX]) / count);
        for rank in ranks[1..RANK_MAX].iter().rev() {
            sum = 0.5 * (sum + f64::from(*rank));
        }
        sum += count * sigma(f64::from(ranks[0]) / count);
        count * count / (2.0 * std::f64::consts::LN_2 * sum)
    }
}

/// Contribution of empty registers.
fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if (z - before).abs() <= f64::EPSILON * z {
            return z;
        }
    }
}

/// Contribution of saturated registers.
fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if (z - before).abs() <= f64::EPSILON {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix;

    #[test]
    fn counts_are_within_three_standard_errors() {
        for count in [1u64, 10, 1000, 20_000, 40_000, 300_000] {
            let mut distinct = Distinct::default();
            for value in (0..count).chain(0..count / 2) {
                distinct.add(mix(value));
            }
            let (estimate, truth) = (distinct.estimate(), count as f64);
            assert!(
                (estimate - truth).abs() <= (truth * 3.0 * DISTINCT_ERROR).max(0.5),
                "{count}: {estimate}"
            );
        }
    }
}
