//! The environment of an evaluation besides its row: time, randomness, policies and functions.
//!
//! The crate reads no clock and no entropy, so that the same query over the same rows gives the same result; the caller
//! supplies both.

use std::sync::atomic::{AtomicU64, Ordering};

use orrery_model::Value;
use orrery_model::container::DistanceFunction;

use crate::error::EvalError;

/// The container settings that functions depend on, by property path such as `/text`.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Metric of each vector path.
    pub vectors: Vec<(String, DistanceFunction)>,
    /// Language of each full-text path.
    pub full_text: Vec<(String, String)>,
    /// Default language of full-text paths.
    pub default_language: Option<String>,
    /// Whether coordinates are planar instead of longitude and latitude.
    pub planar_geometry: bool,
}

impl Policies {
    /// The metric of a vector path; cosine where the policy has none.
    pub fn distance_function(&self, path: &str) -> DistanceFunction {
        let found = self.vectors.iter().find(|(known, _)| known == path);
        found.map_or_else(DistanceFunction::default, |(_, function)| *function)
    }

    /// The language of a full-text path.
    pub fn language(&self, path: &str) -> &str {
        let found = self.full_text.iter().find(|(known, _)| known == path);
        found
            .map(|(_, language)| language.as_str())
            .or(self.default_language.as_deref())
            .unwrap_or(DEFAULT_LANGUAGE)
    }
}

/// The language of text without a policy.
pub const DEFAULT_LANGUAGE: &str = "en-US";

/// Runs user-defined functions.
pub trait UdfCaller: Sync {
    /// Calls the function `name`; `None` as result is `undefined`.
    fn call(&self, name: &str, arguments: &[Value]) -> Result<Option<Value>, EvalError>;
}

/// A small deterministic generator for `RAND()`, seeded by the caller.
#[derive(Debug)]
pub struct Random(AtomicU64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The next number in [0, 1), by the splitmix64 step.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    pub fn next(&self) -> f64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut bits = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The environment of one evaluation. Cheap to copy: the evaluator sets `language` and `distance` for the property of
/// each call.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    /// Milliseconds since 1970, fixed for the whole query.
    pub now_ms: i64,
    pub random: &'c Random,
    pub policies: &'c Policies,
    /// Language of the current full-text call's property.
    pub language: &'c str,
    /// Metric of the current `VectorDistance` call's property, unless its options set one.
    pub distance: DistanceFunction,
    pub udf: Option<&'c dyn UdfCaller>,
    /// The remaining work; without it the caller has to stop a runaway join itself.
    pub work: Option<&'c Work<'c>>,
}

/// Interrupts an evaluation: its time is up, or the client has disconnected.
pub trait Interrupt: Sync {
    /// Called every few thousand steps. An error ends the evaluation.
    fn check(&self) -> Result<(), EvalError>;
}

/// The shared memory budget for query state: sorted rows, groups, distinct values, rows of subqueries.
pub trait Memory: Sync {
    /// Reserves bytes until they are released or the query ends. False if there are not enough left.
    fn take(&self, bytes: usize) -> bool;
    fn give_back(&self, bytes: usize);
}

/// The unit of reservation. Smaller state is not counted at all.
const MEMORY_PIECE_BYTES: usize = 256 << 10;

/// The shared memory reserved by a stage of a query.
#[derive(Debug, Default)]
pub(crate) struct Held(usize);

impl Held {
    /// Increases the reservation to this many bytes in total.
    #[inline]
    pub(crate) fn grow_to(&mut self, bytes: usize, context: &Context<'_>) -> Result<(), EvalError> {
        // Most queries never hold a whole piece, so they never touch the budget that all requests share.
        if bytes < self.0 + MEMORY_PIECE_BYTES { Ok(()) } else { self.take(bytes, context) }
    }

    #[cold]
    fn take(&mut self, bytes: usize, context: &Context<'_>) -> Result<(), EvalError> {
        let missing = bytes.next_multiple_of(MEMORY_PIECE_BYTES) - self.0;
        let memory = context.work.and_then(|work| work.memory);
        if memory.is_some_and(|memory| !memory.take(missing)) {
            return Err(EvalError::NoMemory);
        }
        self.0 += missing;
        Ok(())
    }

    /// Releases everything, once the state is dropped.
    pub(crate) fn give_back(self, context: &Context<'_>) {
        if self.0 > 0
            && let Some(memory) = context.work.and_then(|work| work.memory)
        {
            memory.give_back(self.0);
        }
    }
}

/// Counts the work of an evaluation, and interrupts it.
///
/// A *row* is one combination of joined elements: a join inside one document multiplies array lengths, so even one
/// document can take forever, and the caller sets a bound. A *step* is work of a few nanoseconds: an operator, an
/// element visited, sixteen bytes searched. Every [`STEPS_BETWEEN_CHECKS`] steps the [`Interrupt`] is checked.
/// Long-running functions check it themselves (`Context::steps`).
pub struct Work<'w> {
    rows_left: AtomicU64,
    steps: AtomicU64,
    /// The step count of the next check.
    ask_at: AtomicU64,
    interrupt: Option<&'w dyn Interrupt>,
    memory: Option<&'w dyn Memory>,
}

/// Well below a millisecond of work.
pub const STEPS_BETWEEN_CHECKS: u64 = 1 << 14;

/// Bytes searched or compared per step.
const BYTES_IN_STEP: u64 = 16;

impl<'w> Work<'w> {
    pub fn new(rows: u64) -> Self {
        Self {
            rows_left: AtomicU64::new(rows),
            steps: AtomicU64::new(0),
            // Without an interrupt there is nothing to ask.
            ask_at: AtomicU64::new(u64::MAX),
            interrupt: None,
            memory: None,
        }
    }

    #[must_use]
    pub fn with_memory(self, memory: Option<&'w dyn Memory>) -> Self {
        Self { memory, ..self }
    }

    #[must_use]
    pub fn with_interrupt(self, interrupt: &'w dyn Interrupt) -> Self {
        Self { interrupt: Some(interrupt), ask_at: AtomicU64::new(STEPS_BETWEEN_CHECKS), ..self }
    }

    /// The remaining rows.
    pub fn left(&self) -> u64 {
        self.rows_left.load(Ordering::Relaxed)
    }

    /// The steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    // Only one thread evaluates with a context, so counters are loaded and stored separately: an atomic addition would
    // take longer than most steps.
    #[inline]
    fn take(&self, steps: u64) -> Result<(), EvalError> {
        let taken = self.steps.load(Ordering::Relaxed).saturating_add(steps);
        self.steps.store(taken, Ordering::Relaxed);
        if taken < self.ask_at.load(Ordering::Relaxed) { Ok(()) } else { self.ask(taken) }
    }

    #[cold]
    fn ask(&self, taken: u64) -> Result<(), EvalError> {
        self.ask_at.store(taken.saturating_add(STEPS_BETWEEN_CHECKS), Ordering::Relaxed);
        self.interrupt.map_or(Ok(()), Interrupt::check)
    }
}

impl<'c> Context<'c> {
    pub fn new(now_ms: i64, random: &'c Random, policies: &'c Policies) -> Self {
        let language = policies.default_language.as_deref().unwrap_or(DEFAULT_LANGUAGE);
        Self {
            now_ms,
            random,
            policies,
            language,
            distance: DistanceFunction::default(),
            udf: None,
            work: None,
        }
    }

    #[must_use]
    pub fn with_udf(self, udf: &'c dyn UdfCaller) -> Self {
        Self { udf: Some(udf), ..self }
    }

    #[must_use]
    pub fn with_work(self, work: &'c Work<'c>) -> Self {
        Self { work: Some(work), ..self }
    }

    /// Counts one row of work.
    pub(crate) fn spend(&self) -> Result<(), EvalError> {
        let Some(work) = self.work else { return Ok(()) };
        // Loaded and stored separately, as in `Work::take`.
        match work.rows_left.load(Ordering::Relaxed) {
            0 => Err(EvalError::WorkExceeded),
            left => {
                work.rows_left.store(left - 1, Ordering::Relaxed);
                work.take(1)
            }
        }
    }

    /// Counts steps of work; fails if the evaluation has to end.
    #[inline]
    pub(crate) fn steps(&self, steps: u64) -> Result<(), EvalError> {
        match self.work {
            None => Ok(()),
            Some(work) => work.take(steps),
        }
    }

    /// Counts searching or comparing this many bytes.
    pub(crate) fn bytes(&self, bytes: usize) -> Result<(), EvalError> {
        self.steps(1 + bytes as u64 / BYTES_IN_STEP)
    }
}
