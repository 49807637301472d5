//! How often a test kills its server, and when: from a seed, which is printed and can be given again.

use std::time::Duration;

pub struct Rounds {
    pub count: u64,
    pub seed: u64,
    random: u64,
}

impl Rounds {
    /// `ORRERY_SOAK_ROUNDS`, but never fewer than `least`; the seed is `ORRERY_SEED`, or any.
    pub fn new(what: &str, least: u64) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let count = number("ORRERY_SOAK_ROUNDS").unwrap_or(least).max(least);
        let seed = number("ORRERY_SEED").unwrap_or_else(|| u64::from(std::process::id()));
        eprintln!("{what} under kill -9: {count} rounds with ORRERY_SEED={seed}");
        Self { count, seed, random: seed }
    }

    /// Lets the server live for so many milliseconds and up to 1.2 seconds more.
    pub fn wait(&mut self, least_ms: u64) {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis(least_ms + (self.random >> 33) % 1200));
    }
}
