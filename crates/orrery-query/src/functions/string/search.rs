//! Finding one string in another: CONTAINS and its relatives, INDEX_OF, StringEquals.
//!
//! Ignoring case folds both strings first and then compares them byte by byte, so one code path serves both forms.

use std::borrow::Cow;

use super::super::Evaluated;
use super::super::arguments::{all_of, any_of, flag, integer, optional, string};
use super::{case, units};
use crate::context::Context;
use crate::error::EvalError;
use crate::operand::{Operand, owned};

pub(super) fn contains(arguments: &[Operand<'_>]) -> Option<bool> {
    compare(arguments, |text, wanted| text.contains(wanted))
}

pub(super) fn starts_with(arguments: &[Operand<'_>]) -> Option<bool> {
    compare(arguments, |text, wanted| text.starts_with(wanted))
}

pub(super) fn ends_with(arguments: &[Operand<'_>]) -> Option<bool> {
    compare(arguments, |text, wanted| text.ends_with(wanted))
}

pub(super) fn equals(arguments: &[Operand<'_>]) -> Option<bool> {
    compare(arguments, |text, wanted| text == wanted)
}

/// Compares two texts, after folding both if the third argument says so.
fn compare(arguments: &[Operand<'_>], holds: fn(&str, &str) -> bool) -> Option<bool> {
    let (text, wanted) = (string(arguments, 0)?, string(arguments, 1)?);
    let ignore_case = flag(arguments, 2)?;
    Some(if ignore_case { holds(&case::fold(text), &case::fold(wanted)) } else { holds(text, wanted) })
}

pub(super) fn contains_any<'a>(
    context: &Context<'_>,
    arguments: &[Operand<'a>],
    ignore_case: bool,
) -> Evaluated<'a> {
    let Some(found) = search_each(context, arguments, ignore_case, true)? else { return Ok(None) };
    Ok(any_of(found.into_iter()).and_then(owned))
}

pub(super) fn contains_all<'a>(
    context: &Context<'_>,
    arguments: &[Operand<'a>],
    ignore_case: bool,
) -> Evaluated<'a> {
    let Some(found) = search_each(context, arguments, ignore_case, false)? else { return Ok(None) };
    Ok(all_of(found.into_iter()).and_then(owned))
}

/// Whether the text has each of the others, up to the first answer that decides. A query has room for forty thousand
/// of them, and each goes through the whole text.
fn search_each(
    context: &Context<'_>,
    arguments: &[Operand<'_>],
    ignore_case: bool,
    deciding: bool,
) -> Result<Option<Vec<Option<bool>>>, EvalError> {
    let Some(text) = haystack(arguments, ignore_case) else { return Ok(None) };
    let mut found = Vec::with_capacity(arguments.len() - 1);
    for at in 1..arguments.len() {
        context.bytes(text.len())?;
        let is_found = holds(&text, arguments, at, ignore_case);
        found.push(is_found);
        if is_found == Some(deciding) {
            break;
        }
    }
    Ok(Some(found))
}

fn haystack<'v>(arguments: &'v [Operand<'_>], ignore_case: bool) -> Option<Cow<'v, str>> {
    let text = string(arguments, 0)?;
    Some(if ignore_case { case::fold(text) } else { Cow::Borrowed(text) })
}

fn holds(text: &str, arguments: &[Operand<'_>], at: usize, ignore_case: bool) -> Option<bool> {
    let wanted = string(arguments, at)?;
    Some(if ignore_case { text.contains(&*case::fold(wanted)) } else { text.contains(wanted) })
}

/// A start before the text or past its end finds nothing.
pub(super) fn index_of(arguments: &[Operand<'_>]) -> Option<i64> {
    let (text, wanted) = (string(arguments, 0)?, string(arguments, 1)?);
    let from = optional(arguments, 2, integer)?.unwrap_or(0);
    let from = match usize::try_from(from) {
        Ok(from) if from <= units::length(text) => from,
        _ => return Some(-1),
    };
    // A start in the middle of a character begins with the next.
    let first = units::byte_of(text, from).or_else(|| units::byte_of(text, from + 1))?;
    let found = text[first..].find(wanted);
    Some(match found {
        Some(offset) => i64::try_from(units::length(&text[..first + offset])).ok()?,
        None => -1,
    })
}

/// The match must end at or before the position given; without one, anywhere.
pub(super) fn last_index_of(arguments: &[Operand<'_>]) -> Option<i64> {
    let (text, wanted) = (string(arguments, 0)?, string(arguments, 1)?);
    let length = units::length(text);
    let end = match optional(arguments, 2, integer)? {
        Some(last) if last < 0 => return Some(-1),
        // The position is that of the last unit, the end is one further.
        Some(last) => usize::try_from(last).ok()?.saturating_add(1).min(length),
        None => length,
    };
    if wanted.is_empty() {
        // It is found at the last unit, not behind it.
        return i64::try_from(end.min(length.saturating_sub(1))).ok();
    }
    // An end inside a character leaves that character out.
    let end = units::byte_of(text, end).or_else(|| units::byte_of(text, end - 1))?;
    Some(match text[..end].rfind(wanted) {
        Some(offset) => i64::try_from(units::length(&text[..offset])).ok()?,
        None => -1,
    })
}
