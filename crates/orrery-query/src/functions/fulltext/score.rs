//! BM25: how well a document answers a term, given statistics over all documents.

/// Saturation of repeated words and weight of the document's length, at their customary values.
const SATURATION: f64 = 1.2;
const LENGTH_WEIGHT: f64 = 0.75;

/// The statistics that do not depend on the term.
#[derive(Clone, Copy, Debug)]
pub struct Bm25 {
    /// How many documents there are.
    pub documents: f64,
    /// How many words they have together.
    pub words: f64,
}

impl Bm25 {
    /// The score of a document of `length` words in which a term occurs `occurrences` times, when
    /// `hits` documents hold that term.
    #[expect(clippy::cast_precision_loss, reason = "counts of words are far below 2^53")]
    pub fn score(&self, occurrences: usize, length: usize, hits: f64) -> f64 {
        if occurrences == 0 {
            return 0.0;
        }
        let (occurrences, length) = (occurrences as f64, length as f64);
        // The statistics come with the query: nonsense must not leave the logarithm without a value.
        let rarity = (1.0 + (self.documents - hits + 0.5).max(0.0) / (hits.max(0.0) + 0.5)).ln();
        let mean_length = if self.documents > 0.0 { self.words / self.documents } else { 0.0 };
        let relative_length = if mean_length > 0.0 { length / mean_length } else { 1.0 };
        let damping = SATURATION * (1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * relative_length);
        rarity * occurrences * (SATURATION + 1.0) / (occurrences + damping)
    }
}
