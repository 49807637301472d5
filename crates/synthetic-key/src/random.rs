//! The source of random suffixes, which the caller injects.

use std::hash::{BuildHasher, Hasher};

/// A source of uniform choices.
pub trait Randomness {
    /// A uniform number in `0..bound`. `bound` is at least 1.
    fn below(&mut self, bound: u32) -> u32;
}

impl<F: FnMut(u32) -> u32> Randomness for F {
    fn below(&mut self, bound: u32) -> u32 {
        self(bound)
    }
}

/// Always the same choice, limited to the bound: for tests, and for strategies without randomness.
#[derive(Clone, Copy, Debug)]
pub struct Fixed(pub u32);

impl Randomness for Fixed {
    fn below(&mut self, bound: u32) -> u32 {
        self.0.min(bound - 1)
    }
}

/// SplitMix64: the same seed yields the same choices.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}

impl Randomness for Seeded {
    fn below(&mut self, bound: u32) -> u32 {
        let bound = u64::from(bound.max(1));
        // Reject draws beyond the last whole multiple of the bound, so that all choices are equally likely.
        let limit = u64::MAX - u64::MAX % bound;
        loop {
            let drawn = self.next();
            if drawn < limit {
                return u32::try_from(drawn % bound).expect("below a 32-bit bound");
            }
        }
    }
}

/// Unpredictable choices, seeded by the operating system: for applications.
#[derive(Clone, Debug)]
pub struct SystemRandom(Seeded);

impl SystemRandom {
    /// Seeds itself from the operating system.
    pub fn new() -> Self {
        // The standard library seeds its hash maps from the operating system, which saves a dependency. Suffixes
        // need an even spread, not secrecy.
        Self(Seeded(std::hash::RandomState::new().build_hasher().finish()))
    }
}

impl Default for SystemRandom {
    fn default() -> Self {
        Self::new()
    }
}

impl Randomness for SystemRandom {
    fn below(&mut self, bound: u32) -> u32 {
        self.0.below(bound)
    }
}
