//! How often a crash test kills its server, and when. The moments come from a seed, which is printed and can be given
//! again.

use std::time::Duration;

/// The rounds of one test.
pub struct Rounds {
    pub count: u64,
    pub seed: u64,
    pub dice: Dice,
}

impl Rounds {
    /// `ORRERY_SOAK_ROUNDS` rounds, but at least `least`. The seed is `ORRERY_SEED`, or any.
    pub fn new(what: &str, least: u64) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let count = number("ORRERY_SOAK_ROUNDS").unwrap_or(least).max(least);
        let seed = number("ORRERY_SEED").unwrap_or_else(|| u64::from(std::process::id()));
        eprintln!("{what} under kill -9: {count} rounds with ORRERY_SEED={seed}");
        Self { count, seed, dice: Dice::new(seed) }
    }

    /// Lets the server live for `least_ms` and up to 1.2 seconds more.
    pub fn wait(&mut self, least_ms: u64) {
        std::thread::sleep(Duration::from_millis(least_ms + self.dice.below(1200)));
    }
}

/// Random choices that a seed repeats.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// `SplitMix64`.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
