//! Whether two words differ by at most a few edits (insert, delete, replace one character).

use orrery_model::edit_distance::edit_distance;

/// Longer words are not compared: fuzzy search is for typing mistakes.
const WORD_CHARACTERS_MAX: usize = 128;

pub(super) fn within(left: &str, right: &str, edits_max: usize) -> bool {
    // One character more than is compared shows that a word is too long.
    let left: Vec<char> = left.chars().take(WORD_CHARACTERS_MAX + 1).collect();
    let right: Vec<char> = right.chars().take(WORD_CHARACTERS_MAX + 1).collect();
    let too_long = left.len().max(right.len()) > WORD_CHARACTERS_MAX;
    !too_long && edit_distance(&left, &right, edits_max).is_some()
}
