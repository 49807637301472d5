//! Finds a suffix count: enough that writes reach every partition, no more than reads can visit.
//!
//! Each count is tried with the service's hash on many base values, so the curve includes the effect of chance on few keys
//! and many partitions.

use orrery_metering::cost;

use crate::candidate::{Candidate, Visit};
use crate::fields::Paths;
use crate::layout::Layout;
use orrery_model::KeyPart;

/// The counts that are tried.
pub const COUNTS: [u32; 22] =
    [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 32, 50, 64, 100, 128, 200, 256, 400, 512, 800, 1000];
/// Base values per count.
const BASES: usize = 48;
/// Among counts within this share of the minimum, the smallest wins.
pub const TOLERANCE: f64 = 0.03;

/// A write rate and a read pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanInput {
    pub partitions: u32,
    /// Request units per second of writes.
    pub write_units: f64,
    /// Request units per second of reads that specify the suffix.
    pub known_units: f64,
    /// Reads per second that must visit all suffixes.
    pub all_reads: f64,
    /// Request units of such a read beyond the cost of visiting partitions: entries and items.
    pub all_read_units: f64,
    /// Whether such reads are for many base values, or for the one that is being written.
    pub reads_are_spread: bool,
}

/// The effect of one suffix count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanPoint {
    pub suffixes: u32,
    /// Request units per second that must be provisioned so that the busiest partition does not throttle.
    pub needed: f64,
    /// Request units per second that are consumed.
    pub used: f64,
    /// Load of the busiest partition as a multiple of an even share.
    pub hot_factor: f64,
    /// Partitions visited by a read over all suffixes.
    pub visited: f64,
}

/// The best count, and the whole curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub best: u32,
    pub curve: Vec<PlanPoint>,
}

/// Finds the cheapest suffix count.
pub fn plan(input: &PlanInput) -> Plan {
    let layout = Layout::even(input.partitions);
    let curve: Vec<PlanPoint> = COUNTS.iter().map(|count| point(input, &layout, *count)).collect();
    let least = curve.iter().map(|point| point.needed).fold(f64::INFINITY, f64::min);
    // The curve ascends by suffix count, so the first point within the tolerance is the smallest count.
    let best = curve.iter().find(|point| point.needed <= least * (1.0 + TOLERANCE));
    Plan { best: best.map_or(1, |point| point.suffixes), curve }
}

#[expect(clippy::cast_precision_loss, reason = "approximate ratios")]
fn point(input: &PlanInput, layout: &Layout, count: u32) -> PlanPoint {
    let mut paths = Paths::new();
    // The base is the only part, so the keys are those of one base value and its suffixes.
    let candidate = Candidate::random_suffix(&[("/base", None)], count, &mut paths);
    let mut sum = PlanPoint { suffixes: count, needed: 0.0, used: 0.0, hot_factor: 0.0, visited: 0.0 };
    for base in 0..BASES {
        let known = [KeyPart::from(format!("base {base}").as_str())];
        let Visit::Keys(keys) = candidate.visit(&paths, &known[..]) else { continue };
        let mut keys_of = vec![0u32; layout.count()];
        for key in &keys {
            keys_of[layout.partition_of(key.place)] += 1;
        }
        let visited = keys_of.iter().filter(|keys| **keys > 0).count();
        let visit = cost::query(&cost::QueryWork { partitions: visited as u64, ..Default::default() });
        let read = visit.as_f64() + input.all_read_units;
        let spread = input.write_units + input.known_units;
        let load = |keys: &u32| {
            let part = f64::from(*keys) / f64::from(count);
            // Reads of many base values hit all partitions alike; reads of the current one only those with its keys.
            let visits = match (input.reads_are_spread, *keys) {
                (true, _) => input.all_reads * read / layout.count() as f64,
                (false, 0) => 0.0,
                (false, _) => input.all_reads * read / visited as f64,
            };
            spread * part + visits
        };
        // Throughput is divided evenly, so every partition must be given what the busiest one needs.
        let most = keys_of.iter().map(load).fold(0.0, f64::max);
        let used = spread + input.all_reads * read;
        let needed = most * layout.count() as f64;
        sum.needed += needed / BASES as f64;
        sum.used += used / BASES as f64;
        sum.hot_factor += if used > 0.0 { needed / used / BASES as f64 } else { 0.0 };
        sum.visited += visited as f64 / BASES as f64;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITES: PlanInput = PlanInput {
        partitions: 8,
        write_units: 10_000.0,
        known_units: 0.0,
        all_reads: 0.0,
        all_read_units: 0.0,
        reads_are_spread: true,
    };

    #[test]
    fn writes_alone_want_many_suffixes() {
        let plan = plan(&WRITES);
        // One key is in one partition: eight times as much must be provisioned.
        assert!((plan.curve[0].needed - 80_000.0).abs() < 1.0);
        assert!((plan.curve[0].visited - 1.0).abs() < 1e-9);
        assert!(plan.best >= 200, "{}", plan.best);
        assert!(plan.curve.windows(2).all(|pair| pair[1].needed <= pair[0].needed * 1.05));
        let last = plan.curve.last().unwrap();
        assert!(last.needed < 12_500.0 && (last.visited - 8.0).abs() < 1e-9, "{last:?}");
    }

    #[test]
    fn reads_of_everything_want_few() {
        let few = plan(&PlanInput { write_units: 100.0, all_reads: 500.0, ..WRITES });
        assert_eq!(few.best, 1);
        let mixed = plan(&PlanInput { partitions: 100, all_reads: 100.0, ..WRITES });
        let alone = plan(&PlanInput { partitions: 100, ..WRITES });
        assert!(mixed.best <= alone.best, "{} {}", mixed.best, alone.best);
        let used = |plan: &Plan| plan.curve.iter().map(|point| point.used).collect::<Vec<_>>();
        assert!(
            used(&mixed).windows(2).all(|pair| pair[1] >= pair[0] * 0.999),
            "reads cost more with more suffixes"
        );
    }
}
