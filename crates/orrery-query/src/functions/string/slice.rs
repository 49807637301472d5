//! Taking parts of a text.

use super::super::arguments::{integer, optional, string};
use super::units;
use crate::operand::Operand;

pub(super) fn left(arguments: &[Operand<'_>]) -> Option<String> {
    let (text, length, count) = measured(arguments)?;
    Some(units::slice(text, 0, count.min(length)).into_owned())
}

pub(super) fn right(arguments: &[Operand<'_>]) -> Option<String> {
    let (text, length, count) = measured(arguments)?;
    Some(units::slice(text, length.saturating_sub(count), length).into_owned())
}

/// A text, its length and a count of units that is not negative.
fn measured<'v>(arguments: &'v [Operand<'_>]) -> Option<(&'v str, usize, usize)> {
    let text = string(arguments, 0)?;
    let count = integer(arguments, 1)?.max(0);
    Some((text, units::length(text), usize::try_from(count).ok()?))
}

pub(super) fn substring(arguments: &[Operand<'_>]) -> Option<String> {
    let text = string(arguments, 0)?;
    let (start, count) = (integer(arguments, 1)?, integer(arguments, 2)?);
    let (Ok(start), Ok(count)) = (usize::try_from(start), usize::try_from(count)) else {
        return Some(String::new());
    };
    let length = units::length(text);
    Some(units::slice(text, start.min(length), start.saturating_add(count).min(length)).into_owned())
}

/// Strips white space, or the characters of the second argument, from either end.
pub(super) fn trim(arguments: &[Operand<'_>], at_start: bool, at_end: bool) -> Option<String> {
    let mut text = string(arguments, 0)?;
    let characters = optional(arguments, 1, string)?;
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
