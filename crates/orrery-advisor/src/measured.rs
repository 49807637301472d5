//! The measurements of one candidate key: results of the analysis, the forecast and the ranking.

use crate::analysis::HeavyKey;
use crate::candidate::Candidate;
use crate::growth::Stage;
use crate::predict::Prediction;
use crate::prices::Bill;

/// Whether transactions stay within one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scope {
    Kept,
    /// This share of batches would no longer be one transaction.
    Lost(f64),
    /// The workload has no batches.
    Unknown,
}

/// The measurements of one candidate.
#[derive(Clone, Debug)]
pub struct Measured {
    pub candidate: Candidate,
    pub distinct: f64,
    pub heaviest: Vec<HeavyKey>,
    /// The heaviest key's share of all bytes, and the error bound of that share.
    pub largest_share: f64,
    pub largest_share_error: f64,
    pub largest_bytes: f64,
    /// Days until the largest key reaches the size limit; `None` if it never does.
    pub days_until_full: Option<f64>,
    /// Items and bytes per partition.
    pub partitions: Vec<(u64, u64)>,
    /// Bytes of the largest partition as a multiple of an even share.
    pub unevenness: f64,
    /// Items of the busiest partition per time window as a multiple of an even share, on average.
    pub window_unevenness: Option<f64>,
    /// Items per time window and cell of the key space.
    pub heat: Vec<Vec<u32>>,
    pub growth: Vec<Stage>,
    /// The key starts with a time, so all current writes go to the same key.
    pub begins_with_time: bool,
    /// Share of items whose key has no value at all: each of its properties is missing or null.
    pub without_key: f64,
    /// Share of items that would collide with another one of the same id and key.
    pub repeated: f64,
    /// Partitions without any item.
    pub partitions_empty: usize,
    pub prediction: Prediction,
    pub scope: Scope,
    /// The replayed load around the clock for a month, in each way to pay.
    pub bill: Bill,
    pub verdict: Verdict,
}

/// A candidate's score and the reasons for it.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Lower is better: request units per second, with penalties.
    pub score: f64,
    /// Request units per second to provision now, and in a year.
    pub needed_now: f64,
    pub needed_later: f64,
    /// Why it is unusable, whatever its cost.
    pub unfit: Option<String>,
    /// Its score differs from the best one by less than the forecast's error.
    pub is_tied: bool,
    /// The evidence for its rank.
    pub evidence: Vec<String>,
    /// A candidate that builds on the same property and avoids its danger.
    pub alternative: Option<String>,
    /// Reasons for and against it.
    pub good: Vec<String>,
    pub bad: Vec<String>,
}
