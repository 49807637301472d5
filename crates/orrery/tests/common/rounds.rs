//! How often a crash test kills its server, and when. The moments come from a seed, which is printed and can be given
//! again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::until;

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

    /// Lets the server live for `least` requests and up to `more` others.
    pub fn wait(&mut self, crew: &Crew, least: u64, more: u64) {
        crew.wait_for(least + self.dice.below(more));
    }
}

/// The clients of a server that will be killed. They count what they have done, so that the server can be killed at a
/// random point of their work and not at a time that means something else on every machine.
#[derive(Default)]
pub struct Crew {
    stop: AtomicBool,
    done: AtomicU64,
}

impl Crew {
    /// Runs a thread for each state until `meanwhile` is over, which kills the server or has seen enough.
    pub fn work<S: Send>(
        states: &mut [S],
        client: impl Fn(u64, &mut S, &Self) + Sync,
        meanwhile: impl FnOnce(&Self),
    ) {
        let crew = Self::default();
        std::thread::scope(|scope| {
            for (number, state) in (0..).zip(states) {
                let (client, crew) = (&client, &crew);
                scope.spawn(move || client(number, state, crew));
            }
            let watched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| meanwhile(&crew)));
            crew.stop.store(true, Ordering::Relaxed);
            watched.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A client has got an answer.
    pub fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until the clients have got this many more answers.
    pub fn wait_for(&self, answers: u64) {
        let from = self.done.load(Ordering::Relaxed);
        until("the clients to go on", || (self.done.load(Ordering::Relaxed) >= from + answers).then_some(()));
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
