//! Taking parts of a string: LEFT, RIGHT, SUBSTRING, TRIM and the parts around a separator.
//!
//! All positions are UTF-16 code units (`units`); the cut itself is made there.

use orrery_model::Number;

use super::super::arguments::{exact_integer, integer, number, optional, string};
use super::units;
use crate::operand::Operand;

pub(super) fn left(arguments: &[Operand<'_>]) -> Option<String> {
    substring_of(string(arguments, 0)?, Number::Int(0), number(arguments, 1)?)
}

pub(super) fn right(arguments: &[Operand<'_>]) -> Option<String> {
    let text = string(arguments, 0)?;
    let count = usize::try_from(integer(arguments, 1)?.max(0)).ok()?;
    let length = units::length(text);
    Some(units::slice(text, length.saturating_sub(count), length).into_owned())
}

pub(super) fn substring(arguments: &[Operand<'_>]) -> Option<String> {
    substring_of(string(arguments, 0)?, number(arguments, 1)?, number(arguments, 2)?)
}

/// Part of a text, empty where a bound is negative or past the end.
fn substring_of(text: &str, start: Number, count_max: Number) -> Option<String> {
    let (start, count) = (exact_integer(start)?, exact_integer(count_max)?);
    let (Ok(start), Ok(count)) = (usize::try_from(start), usize::try_from(count)) else {
        return Some(String::new());
    };
    let length = units::length(text);
    Some(units::slice(text, start.min(length), start.saturating_add(count).min(length)).into_owned())
}

/// What stands before or after the first or last place where the second text is found.
pub(super) fn around(arguments: &[Operand<'_>], last: bool, after: bool) -> Option<String> {
    let (text, part) = (string(arguments, 0)?, string(arguments, 1)?);
    let at = if last { text.rfind(part) } else { text.find(part) }?;
    Some(if after { &text[at + part.len()..] } else { &text[..at] }.to_owned())
}

/// Strips white space, or the characters of the second argument if it has any, from either end.
pub(super) fn trim(arguments: &[Operand<'_>], at_start: bool, at_end: bool) -> Option<String> {
    let mut text = string(arguments, 0)?;
    let characters = optional(arguments, 1, string)?.filter(|characters| !characters.is_empty());
    let stripped = |character: char| {
        characters.map_or_else(|| character.is_whitespace(), |characters| characters.contains(character))
    };
    if at_start {
        text = text.trim_start_matches(stripped);
    }
    if at_end {
        text = text.trim_end_matches(stripped);
    }
    Some(text.to_owned())
}
