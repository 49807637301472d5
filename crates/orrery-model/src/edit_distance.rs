//! Edit distance: how many characters must be inserted, deleted or replaced to turn one word into another.

/// The distance of two words, unless it is more than `edits_max`.
pub fn edit_distance(left: &[char], right: &[char], edits_max: usize) -> Option<usize> {
    if left.len().abs_diff(right.len()) > edits_max {
        return None;
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
        // Distances never shrink from row to row, so the rest cannot bring them back within the limit.
        if row.iter().all(|distance| *distance > edits_max) {
            return None;
        }
    }
    Some(row[right.len()]).filter(|distance| *distance <= edits_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_single_edits() {
        let check = |left: &str, right: &str, edits_max: usize, expected: Option<usize>| {
            let characters = |word: &str| word.chars().collect::<Vec<_>>();
            assert_eq!(
                edit_distance(&characters(left), &characters(right), edits_max),
                expected,
                "{left} {right}"
            );
        };
        check("", "", 0, Some(0));
        check("kitten", "sitting", 3, Some(3));
        check("kitten", "sitting", 2, None);
        check("flaw", "lawn", usize::MAX, Some(2));
        check("abc", "", 3, Some(3));
        check("abc", "abcdef", 2, None);
    }
}
