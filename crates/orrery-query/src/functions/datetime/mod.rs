//! Dates and times: texts of one ISO form, always UTC, to the tenth of a microsecond.
//!
//! A moment is a count of ticks ([`Moment`]); every function reads a text into one, works on it and
//! writes it back. The current time comes with the context and is the same for a whole query, which
//! makes the per-row and the static functions agree.

mod format;
mod moment;
mod part;

use orrery_model::Value;

use self::moment::{Moment, TICKS_PER_MILLISECOND};
use self::part::Part;
use super::arguments::{integer, optional, string, value};
use super::{Evaluated, Function, row, row_in_context};
use crate::context::Context;
use crate::error::EvalError;
use crate::operand::{Operand, owned};

pub(super) static FUNCTIONS: &[Function] = &[
    row_in_context!("AGO", 1..=2, None, ago),
    row_in_context!("DATETIMEADD", 2..=3, None, add),
    row!("DATETIMEBIN", 2..=4, None, bin),
    row!("DATETIMEDIFF", 3..=3, None, difference),
    row!("DATETIMEFORMAT", 2..=2, None, formatted),
    row!("DATETIMEFROMPARTS", 3..=7, None, from_parts),
    row!("DATETIMEPART", 2..=2, None, part_of),
    row!("DATETIMETOTICKS", 1..=1, None, |a| Some(moment(a, 0)?.ticks())),
    row!("DATETIMETOTIMESTAMP", 1..=1, None, |a| Some(moment(a, 0)?.milliseconds())),
    row!("DAY", 1..=1, PreciseScan, |a| Some(Part::Day.of(moment(a, 0)?))),
    row_in_context!("GETCURRENTDATETIME", 0..=0, None, current_text),
    row_in_context!("GETCURRENTDATETIMESTATIC", 0..=0, Seek, current_text),
    row_in_context!("GETCURRENTTICKS", 0..=0, None, current_ticks),
    row_in_context!("GETCURRENTTICKSSTATIC", 0..=0, Seek, current_ticks),
    row_in_context!("GETCURRENTTIMESTAMP", 0..=0, None, |context, _| Ok(owned(context.now_ms))),
    row_in_context!("GETCURRENTTIMESTAMPSTATIC", 0..=0, Seek, |context, _| Ok(owned(context.now_ms))),
    row!("IS_DATETIME", 1..=1, None, is_datetime),
    row!("MONTH", 1..=1, PreciseScan, |a| Some(Part::Month.of(moment(a, 0)?))),
    row_in_context!("NOW", 0..=2, None, now),
    row!("TICKSTODATETIME", 1..=2, None, from_ticks),
    row!("TIMESTAMPTODATETIME", 1..=2, None, from_timestamp),
    row!("YEAR", 1..=1, PreciseScan, |a| Some(Part::Year.of(moment(a, 0)?))),
];

fn moment(arguments: &[Operand<'_>], at: usize) -> Option<Moment> {
    Moment::parse(string(arguments, at)?)
}

fn part(arguments: &[Operand<'_>], at: usize) -> Option<Part> {
    Part::parse(string(arguments, at)?)
}

/// The forms of these functions that take a time span are not documented.
fn undocumented_time_span<'a>(name: &str) -> Evaluated<'a> {
    Err(EvalError::Message(format!(
        "The form of {name} with a time span is not documented by the service and cannot be evaluated here."
    )))
}

fn add<'a>(_: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    if arguments.len() == 2 {
        return undocumented_time_span("DATETIMEADD");
    }
    Ok(added(arguments).and_then(owned))
}

fn added(arguments: &[Operand<'_>]) -> Option<String> {
    let shifted = part(arguments, 0)?.add(moment(arguments, 2)?, integer(arguments, 1)?.into())?;
    Some(shifted.to_text())
}

fn bin(arguments: &[Operand<'_>]) -> Option<String> {
    /// Bins may not be counted from before this year.
    const FIRST_START: &str = "1601-01-01";

    let start = optional(arguments, 3, moment)?.unwrap_or(Moment::EPOCH);
    let size = optional(arguments, 2, integer)?.unwrap_or(1);
    if size <= 0 || start < Moment::parse(FIRST_START)? {
        return None;
    }
    Some(part(arguments, 1)?.bin(moment(arguments, 0)?, size.into(), start)?.to_text())
}

fn difference(arguments: &[Operand<'_>]) -> Option<Value> {
    let crossed = part(arguments, 0)?.boundaries_between(moment(arguments, 1)?, moment(arguments, 2)?);
    #[expect(clippy::cast_precision_loss, reason = "only nanoseconds over centuries exceed an integer")]
    Some(i64::try_from(crossed).map_or_else(|_| (crossed as f64).into(), Value::from))
}

fn formatted(arguments: &[Operand<'_>]) -> Option<String> {
    Some(format::format(moment(arguments, 0)?, string(arguments, 1)?))
}

fn from_parts(arguments: &[Operand<'_>]) -> Option<String> {
    // What is left out: the first month and day, and midnight.
    let mut parts = [0, 1, 1, 0, 0, 0, 0];
    for (at, part) in parts.iter_mut().enumerate().take(arguments.len()) {
        *part = integer(arguments, at)?;
    }
    let [year, month, day, hour, minute, second, fraction] = parts;
    Some(Moment::from_parts(year, month, day, hour, minute, second, fraction)?.to_text())
}

fn part_of(arguments: &[Operand<'_>]) -> Option<i64> {
    // Weekdays can be read, but not added or counted.
    if ["weekday", "dw"]
        .iter()
        .any(|name| string(arguments, 0).is_some_and(|part| name.eq_ignore_ascii_case(part)))
    {
        return Some(moment(arguments, 1)?.weekday());
    }
    Some(part(arguments, 0)?.of(moment(arguments, 1)?))
}

fn from_ticks(arguments: &[Operand<'_>]) -> Option<String> {
    Some(Moment::from_ticks(integer(arguments, 0)?.into())?.to_text())
}

fn from_timestamp(arguments: &[Operand<'_>]) -> Option<String> {
    let ticks = i128::from(integer(arguments, 0)?) * i128::from(TICKS_PER_MILLISECOND);
    Some(Moment::from_ticks(ticks)?.to_text())
}

#[expect(clippy::unnecessary_wraps, reason = "rows take optional results")]
fn is_datetime(arguments: &[Operand<'_>]) -> Option<bool> {
    Some(value(arguments, 0).and_then(Value::as_str).and_then(Moment::parse).is_some())
}

fn current(context: &Context<'_>) -> Option<Moment> {
    Moment::from_ticks(i128::from(context.now_ms) * i128::from(TICKS_PER_MILLISECOND))
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of a function body")]
fn current_text<'a>(context: &Context<'_>, _: &[Operand<'a>]) -> Evaluated<'a> {
    Ok(current(context).and_then(|moment| owned(moment.to_text())))
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of a function body")]
fn current_ticks<'a>(context: &Context<'_>, _: &[Operand<'a>]) -> Evaluated<'a> {
    Ok(current(context).and_then(|moment| owned(moment.ticks())))
}

fn now<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    match arguments.len() {
        0 => current_text(context, arguments),
        2 => Ok(shifted_now(context, arguments, 1)),
        _ => undocumented_time_span("NOW"),
    }
}

fn ago<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    if arguments.len() == 1 {
        return undocumented_time_span("AGO");
    }
    Ok(shifted_now(context, arguments, -1))
}

fn shifted_now<'a>(context: &Context<'_>, arguments: &[Operand<'_>], direction: i128) -> Operand<'a> {
    let count = direction * i128::from(integer(arguments, 1)?);
    owned(part(arguments, 0)?.add(current(context)?, count)?.to_text())
}
