//! Fuzzing with the ordinary compiler: inputs are mutated blindly, for a short time, from seeds that are close to valid.
//!
//! `ORRERY_FUZZ_SECONDS` is the time for each target (2 by default, so that every run of the tests fuzzes a little);
//! `ORRERY_FUZZ_SEED` repeats a run. A finding prints its seed and its input. The targets in `fuzz/` use libFuzzer, which
//! is guided by coverage but needs a nightly compiler.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

const INPUT_BYTES_MAX: usize = 4096;

/// Gives mutated seeds to the target until its time is over. A panic of the target is a finding.
///
/// # Panics
/// With the panic of the target.
#[expect(clippy::print_stderr, reason = "shown to the developer")]
pub fn fuzz(name: &str, seeds: &[Vec<u8>], target: impl Fn(&[u8])) {
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let time = Duration::from_secs(setting("ORRERY_FUZZ_SECONDS").unwrap_or(2));
    let seed = setting("ORRERY_FUZZ_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 20);
    let mut dice = Dice(seed);
    let began = Instant::now();
    let mut inputs = 0_u64;
    let run = |input: &[u8]| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
            eprintln!("{name} failed; ORRERY_FUZZ_SEED={seed}, input {}", hex(input));
            resume_unwind(panic);
        }
    };
    for seed in seeds {
        run(seed);
    }
    while began.elapsed() < time {
        // Looking at the clock takes longer than most targets.
        for _ in 0..64 {
            run(&dice.mutated(seeds));
            inputs += 1;
        }
    }
    eprintln!("{name}: {inputs} inputs, seed {seed}");
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).expect("a nibble is a digit");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).expect("it is below the bound")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn mutated(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = seeds.get(self.below(seeds.len())).cloned().unwrap_or_default();
        for _ in 0..=self.below(4) {
            self.mutate(&mut input, seeds);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        const REMARKABLE: [u8; 8] = [0, 1, 0x7F, 0x80, 0xFF, b'"', b'[', b'}'];
        let at = self.below(input.len());
        match self.below(8) {
            0 if !input.is_empty() => input[at] ^= 1 << self.below(8),
            1 if !input.is_empty() => input[at] = self.byte(),
            2 if !input.is_empty() => input[at] = REMARKABLE[self.below(REMARKABLE.len())],
            3 => input.insert(at, self.byte()),
            4 if !input.is_empty() => drop(input.remove(at)),
            5 => input.truncate(at),
            // A piece of itself, or of another seed.
            6 => {
                let other = seeds.get(self.below(seeds.len())).cloned().unwrap_or_default();
                let from = self.below(other.len());
                let to = from + self.below(other.len() - from + 1).min(64);
                input.splice(at..at, other[from..to.min(other.len())].iter().copied());
            }
            _ => {
                let numbers = [0, 1, u32::MAX, u32::MAX - 1, 0x7FFF_FFFF, 0x8000_0000];
                let bytes = numbers[self.below(numbers.len())].to_le_bytes();
                let to = (at + 4).min(input.len());
                input.splice(at..to, bytes);
            }
        }
    }
}

/// Stands for the macro of libFuzzer, so that its targets run here too.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: &[u8]| $body:block) => {
        pub fn target($input: &[u8]) $body
    };
    (|$text:ident: &str| $body:block) => {
        pub fn target(input: &[u8]) {
            let Ok($text) = std::str::from_utf8(input) else { return };
            $body
        }
    };
}
