//! Changing and ignoring case, character by character and for no particular language.
//!
//! Only mappings from one character to one are used, so a text keeps its length: a sharp s stays as
//! it is in capitals. The dotted and dotless i of Turkish keep to themselves.

use std::borrow::Cow;

const DOTTED_CAPITAL_I: char = '\u{130}';
const DOTLESS_SMALL_I: char = '\u{131}';

pub(super) fn upper(text: &str) -> String {
    if text.is_ascii() { text.to_ascii_uppercase() } else { text.chars().map(upper_char).collect() }
}

pub(super) fn lower(text: &str) -> String {
    if text.is_ascii() { text.to_ascii_lowercase() } else { text.chars().map(lower_char).collect() }
}

/// A form that is equal for texts that differ in case alone.
///
/// Capitals first, so that letters with two small forms, such as sigma, meet.
pub(super) fn fold(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Cow::Owned(text.to_ascii_lowercase());
        }
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|character| lower_char(upper_char(character))).collect())
}

fn upper_char(character: char) -> char {
    if character == DOTLESS_SMALL_I { character } else { single(character, character.to_uppercase()) }
}

fn lower_char(character: char) -> char {
    if character == DOTTED_CAPITAL_I { character } else { single(character, character.to_lowercase()) }
}

fn single(character: char, mut mapped: impl ExactSizeIterator<Item = char>) -> char {
    match (mapped.len(), mapped.next()) {
        (1, Some(mapped)) => mapped,
        _ => character,
    }
}
