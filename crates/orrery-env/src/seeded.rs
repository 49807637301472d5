//! A deterministic environment: the same seed gives the same bytes, and its clock moves only explicitly.

use parking_lot::Mutex;

use crate::Env;

/// Time and randomness from a seed.
#[derive(Debug)]
pub struct SeededEnv {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    now_ms: i64,
    random: u64,
}

impl SeededEnv {
    /// `now_ms` is its initial time.
    pub fn new(seed: u64, now_ms: i64) -> Self {
        Self { state: Mutex::new(State { now_ms, random: seed }) }
    }

    /// Advances the clock.
    pub fn advance(&self, milliseconds: i64) {
        self.state.lock().now_ms += milliseconds;
    }
}

impl Env for SeededEnv {
    fn now_ms(&self) -> i64 {
        self.state.lock().now_ms
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        let mut state = self.state.lock();
        for piece in bytes.chunks_mut(8) {
            // SplitMix64: every seed, 0 included, gives a full period.
            state.random = state.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = state.random;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^= mixed >> 31;
            piece.copy_from_slice(&mixed.to_le_bytes()[..piece.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays() {
        let (one, same, other) = (SeededEnv::new(7, 5), SeededEnv::new(7, 5), SeededEnv::new(8, 5));
        let draw = |env: &SeededEnv| (0..10).map(|_| env.random_u64()).collect::<Vec<_>>();
        let drawn = draw(&one);
        assert_eq!(drawn, draw(&same));
        assert_ne!(drawn, draw(&other));
        one.advance(1000);
        assert_eq!((one.now_ms(), same.now_ms()), (1005, 5));
    }
}
