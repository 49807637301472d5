//! Texts measured and cut by UTF-16 code units.

use std::borrow::Cow;

pub(super) fn length(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().map(char::len_utf16).sum() }
}

/// The part from one unit to another, both within the text.
pub(super) fn slice(text: &str, start: usize, end: usize) -> Cow<'_, str> {
    if start >= end {
        return Cow::Borrowed("");
    }
    if text.is_ascii() {
        return Cow::Borrowed(&text[start..end]);
    }
    if let (Some(start), Some(end)) = (byte_of(text, start), byte_of(text, end)) {
        return Cow::Borrowed(&text[start..end]);
    }
    // A bound inside a character: the halves that are left show as replacement characters.
    let units: Vec<u16> = text.encode_utf16().skip(start).take(end - start).collect();
    Cow::Owned(String::from_utf16_lossy(&units))
}

/// The byte at which a unit begins, if a character begins there or the text ends there.
pub(super) fn byte_of(text: &str, unit: usize) -> Option<usize> {
    if text.is_ascii() {
        return (unit <= text.len()).then_some(unit);
    }
    let mut units = 0;
    for (byte, character) in text.char_indices() {
        if units >= unit {
            return (units == unit).then_some(byte);
        }
        units += character.len_utf16();
    }
    (units == unit).then_some(text.len())
}
