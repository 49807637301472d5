//! The outside world of a test: time stands still until it is moved, and a seed gives all randomness.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use orrery_env::Env;

/// 2026-01-01T00:00:00Z.
pub const START_SECONDS: i64 = 1_767_225_600;

pub struct TestEnv {
    now_ms: AtomicI64,
    random: AtomicU64,
}

impl TestEnv {
    pub fn new(seed: u64) -> Self {
        Self { now_ms: AtomicI64::new(START_SECONDS * 1000), random: AtomicU64::new(seed) }
    }

    pub fn advance_seconds(&self, seconds: i64) {
        self.now_ms.fetch_add(seconds * 1000, Ordering::SeqCst);
    }
}

impl Env for TestEnv {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let state = self.random.fetch_add(GOLDEN, Ordering::SeqCst);
            chunk.copy_from_slice(&mix(state).to_le_bytes()[..chunk.len()]);
        }
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64: enough to be different every time, and the same for the same seed.
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(GOLDEN);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// A stream of random choices for tests that make up their own steps.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.below(from.len() as u64);
        &from[usize::try_from(at).unwrap()]
    }
}
