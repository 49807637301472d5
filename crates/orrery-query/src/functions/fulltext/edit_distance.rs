//! Whether two words differ by at most a few edits (insert, delete, replace one character).

/// Longer words are not compared: fuzzy search is for typing mistakes.
const WORD_CHARACTERS_MAX: usize = 128;

pub(super) fn within(left: &str, right: &str, edits_max: usize) -> bool {
    let left: Vec<char> = left.chars().take(WORD_CHARACTERS_MAX + 1).collect();
    let right: Vec<char> = right.chars().take(WORD_CHARACTERS_MAX + 1).collect();
    let too_long = left.len().max(right.len()) > WORD_CHARACTERS_MAX;
    if too_long || left.len().abs_diff(right.len()) > edits_max {
        return false;
    }
    // One row of the table of distances between prefixes at a time.
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, character) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, other) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(character != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
        if row.iter().all(|distance| *distance > edits_max) {
            return false;
        }
    }
    row[right.len()] <= edits_max
}
