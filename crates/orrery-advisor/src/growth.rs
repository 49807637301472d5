//! Predicts how a candidate's data spreads as it grows: partitions that become too large split as in the server (in the
//! middle of their range of hashes, or at the median of their data if that leaves one half too large), until only one
//! key is left.

use crate::analysis::{BUCKETS, Spread};
use crate::layout::Limits;

/// Most partitions that are modelled; growth beyond them is ignored.
const PARTITIONS_MAX: usize = 20_000;

/// The partitions at one data size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    pub days: f64,
    pub bytes: f64,
    pub partitions: usize,
    pub splits: usize,
    /// The largest partition's share of all bytes.
    pub largest_share: f64,
    /// Bytes of the largest partition as a multiple of an even share.
    pub unevenness: f64,
    /// Partitions that are too large but contain a single key.
    pub stuck: usize,
}

/// The partitions when the data has grown to `bytes`.
#[expect(clippy::cast_precision_loss, reason = "sizes for people")]
pub fn stage(spread: &Spread, is_divisible: bool, limits: &Limits, days: f64, bytes: f64) -> Stage {
    // The spread that was measured, at another size.
    let total: u64 = spread.buckets.iter().sum();
    let scale = if total == 0 { 0.0 } else { bytes / total as f64 };
    // The sum before each bucket, so that the bytes of a range are one difference.
    let mut sums = Vec::with_capacity(BUCKETS + 1);
    sums.push(0.0);
    for bucket in &spread.buckets {
        sums.push(sums[sums.len() - 1] + *bucket as f64 * scale);
    }
    // Positions in the key space, in units of buckets; a fraction is inside one.
    let at = |position: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the buckets")]
        let whole = (position as usize).min(BUCKETS - 1);
        sums[whole] + (sums[whole + 1] - sums[whole]) * (position - whole as f64)
    };
    let count = limits.partition_count() as usize;
    let mut ranges: Vec<(f64, f64)> = (0..count)
        .map(|index| {
            let edge = |index: usize| {
                let exact = BUCKETS as f64 * index as f64 / count as f64;
                // Split between buckets, so that a heavy key is not cut in two.
                if count <= BUCKETS / 2 { exact.round() } else { exact }
            };
            (edge(index), edge(index + 1))
        })
        .collect();
    let (mut splits, mut done) = (0, Vec::new());
    let mut stuck = 0;
    // Ranges are split until each fits, contains one key or the model is full.
    while let Some((from, to)) = ranges.pop() {
        let size = at(to) - at(from);
        let is_large = size > limits.partition_bytes;
        // A bucket narrower than the distance between keys contains one key, unless keys have further levels.
        let is_one = to - from < 2.0 && !is_divisible;
        if !is_large || is_one || done.len() + ranges.len() >= PARTITIONS_MAX || to - from < 1e-6 {
            stuck += usize::from(is_large);
            done.push(size);
            continue;
        }
        // Between buckets, so that no key is cut in two.
        let between = |position: f64| {
            let is_cut = !is_divisible && to - from >= 2.0;
            if is_cut { position.round().clamp(from.floor() + 1.0, to.ceil() - 1.0) } else { position }
        };
        let mut middle = between(f64::midpoint(from, to));
        let left = at(middle) - at(from);
        // As the server does: at the median only if the middle of the hashes leaves one half too large.
        if left.max(size - left) > limits.partition_bytes {
            middle = between(median(&at, from, to));
        }
        splits += 1;
        ranges.push((from, middle));
        ranges.push((middle, to));
    }
    let largest = done.iter().copied().fold(0.0, f64::max);
    let share = if bytes > 0.0 { largest / bytes } else { 1.0 / done.len() as f64 };
    Stage {
        days,
        bytes,
        partitions: done.len(),
        splits,
        largest_share: share,
        unevenness: share * done.len() as f64,
        stuck,
    }
}

/// The median position of the data.
fn median(at: &impl Fn(f64) -> f64, from: f64, to: f64) -> f64 {
    let (mut low, mut high) = (from, to);
    let half = f64::midpoint(at(from), at(to));
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        // Sixty halvings exhaust the precision of a double.
        if at(middle) < half {
            low = middle;
        } else {
            high = middle;
        }
    }
    // Never at the edge: both sides must be non-empty ranges.
    let margin = (to - from) * 1e-6;
    low.clamp(from + margin, to - margin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analyzer;
    use crate::candidate::Candidate;
    use crate::fields::Paths;
    use crate::layout::GIB;

    fn spread(giant_percent: u64) -> Vec<Spread> {
        let mut paths = Paths::new();
        let candidates = vec![
            Candidate::property("/tenant", &mut paths),
            Candidate::hierarchical(&["/tenant", "/id"], &mut paths),
        ];
        let mut analyzer = Analyzer::new(paths, candidates, 2, None, 1);
        for number in 0..20_000u64 {
            let tenant = if number % 100 < giant_percent { 0 } else { number % 997 + 1 };
            analyzer.add(format!(r#"{{"id":"{number}","tenant":"t{tenant}"}}"#).as_bytes()).unwrap();
        }
        analyzer.finish().spreads
    }

    #[test]
    fn even_keys_split_into_even_partitions() {
        let limits = Limits { partitions: Some(2), ..Limits::default() };
        let even = stage(&spread(0)[0], false, &limits, 0.0, 1000.0 * GIB);
        assert!((20..=40).contains(&even.partitions), "{even:?}");
        assert_eq!((even.splits, even.stuck), (even.partitions - 2, 0));
        assert!(even.unevenness < 2.0, "{even:?}");
        let small = stage(&spread(0)[0], false, &limits, 0.0, 10.0 * GIB);
        assert_eq!((small.partitions, small.splits), (2, 0));
    }

    #[test]
    fn a_partition_is_cut_in_the_middle_unless_that_leaves_one_half_too_large() {
        let limits = Limits { partitions: Some(1), ..Limits::default() };
        let mut spread = spread(0).remove(0);
        let quarters = |spread: &mut Spread, bytes: [u64; 4]| {
            spread.buckets.iter_mut().enumerate().for_each(|(at, own)| *own = bytes[at * 4 / BUCKETS]);
        };
        // Of 60 GB, 48 are in the lower half: the middle is enough, although the halves are uneven.
        quarters(&mut spread, [4, 4, 1, 1]);
        let uneven = stage(&spread, false, &limits, 0.0, 60.0 * GIB);
        assert_eq!(uneven.partitions, 2);
        assert!((uneven.largest_share - 0.8).abs() < 1e-9, "{uneven:?}");
        // Of 80 GB, 64 would remain in the lower half: the median cuts them to 40 each.
        let halved = stage(&spread, false, &limits, 0.0, 80.0 * GIB);
        assert_eq!(halved.partitions, 2);
        assert!((halved.largest_share - 0.5).abs() < 1e-3, "{halved:?}");
    }

    #[test]
    fn a_large_key_cannot_be_split_but_a_hierarchy_can() {
        let limits = Limits { partitions: Some(2), ..Limits::default() };
        let spreads = spread(40);
        let flat = stage(&spreads[0], false, &limits, 0.0, 1000.0 * GIB);
        assert_eq!(flat.stuck, 1);
        assert!((0.38..0.5).contains(&flat.largest_share), "{flat:?}");
        let levels = stage(&spreads[1], true, &limits, 0.0, 1000.0 * GIB);
        assert_eq!(levels.stuck, 0);
        assert!(levels.largest_share < 0.06, "{levels:?}");
    }
}
