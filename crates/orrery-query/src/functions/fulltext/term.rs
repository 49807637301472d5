//! A search term: one word, or several in a row that make a phrase, exactly or with a few edits.

use orrery_model::Value;

use super::analyzer::{Analyzer, Word};
use super::edit_distance::within;

/// The most edits a fuzzy term may ask for.
const EDITS_MAX: i64 = 2;

pub(super) struct Term {
    words: Vec<Word>,
    edits: usize,
}

impl Term {
    /// Reads a string, or `{"term": …, "distance": 1 or 2}` for a fuzzy match.
    pub(super) fn read(analyzer: &Analyzer, term: &Value) -> Option<Self> {
        let (text, edits) = match term {
            Value::String(text) => (text.as_ref(), 0),
            Value::Object(fuzzy) => {
                let distance = fuzzy.get("distance").map_or(Some(0), Value::as_i64)?;
                (0..=EDITS_MAX).contains(&distance).then_some(())?;
                (fuzzy.get("term")?.as_str()?, usize::try_from(distance).ok()?)
            }
            _ => return None,
        };
        Some(Self { words: analyzer.words(text), edits })
    }

    /// What looking for it takes.
    pub(super) fn steps_in(&self, text: &[Word]) -> u64 {
        // Edits take far longer to compare than equal words.
        let each = if self.edits > 0 { 64 } else { 1 };
        text.len() as u64 * each
    }

    /// How often the term occurs. A term of nothing but stop words never does.
    pub(super) fn count_in(&self, text: &[Word]) -> usize {
        let Some((first, rest)) = self.words.split_first() else { return 0 };
        let starts_at = |at: &usize| {
            let start = &text[*at];
            self.is_match(first, start)
                && rest.iter().all(|word| {
                    // Words are in order of position, so the one wanted lies within the next few.
                    let wanted = start.position + (word.position - first.position);
                    let after = &text[*at..];
                    after
                        .binary_search_by_key(&wanted, |candidate| candidate.position)
                        .is_ok_and(|found| self.is_match(word, &after[found]))
                })
        };
        (0..text.len()).filter(starts_at).count()
    }

    fn is_match(&self, wanted: &Word, word: &Word) -> bool {
        wanted.stem == word.stem || (self.edits > 0 && within(&wanted.stem, &word.stem, self.edits))
    }
}
