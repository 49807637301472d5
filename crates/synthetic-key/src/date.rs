//! Dates truncated to a unit, in UTC: `2018`, `2018-08`, `2018-W32`, `2018-08-09`, `2018-08-09T14`,
//! `2018-08-09T14:05`.
//!
//! Parsed from a string, `YYYY-MM-DD` alone or followed by `Thh:mm`, `:ss`, a fraction and `Z` or an
//! offset (UTC without either), or from a number of seconds or milliseconds since 1970. Years range
//! from 1 to 9999.

use crate::civil::{date_of_days, days_in_month, days_of_date};
use crate::{DateFormat, Epoch, Property};

/// 0001-01-01 and 9999-12-31 in days since 1970: the supported range.
const FIRST_DAY: i64 = -719_162;
const LAST_DAY: i64 = 2_932_896;

pub(crate) fn formatted(
    property: Property<'_>,
    unit: DateFormat,
    epoch: Option<Epoch>,
) -> Result<String, String> {
    let minutes = match (property, epoch) {
        (Property::Text(text), None) => {
            minutes_of_text(text).ok_or_else(|| format!("{text:?} is not a date"))?
        }
        (Property::Number(number), Some(epoch)) => minutes_of_number(number, epoch)?,
        (_, None) => return Err("expected a date as a string".to_owned()),
        (_, Some(_)) => return Err("expected a number of seconds or milliseconds".to_owned()),
    };
    let days = minutes.div_euclid(1440);
    if !(FIRST_DAY..=LAST_DAY).contains(&days) {
        return Err("the date is outside the years 1 to 9999".to_owned());
    }
    let (year, month, day) = date_of_days(days);
    let (hour, minute) = (minutes.rem_euclid(1440) / 60, minutes.rem_euclid(60));
    Ok(match unit {
        DateFormat::Year => format!("{year:04}"),
        DateFormat::Month => format!("{year:04}-{month:02}"),
        DateFormat::Week => {
            // A week belongs to the year of its Thursday.
            let thursday = days - (days + 3).rem_euclid(7) + 3;
            let (year, ..) = date_of_days(thursday);
            let week = (thursday - days_of_date(year, 1, 1)) / 7 + 1;
            format!("{year:04}-W{week:02}")
        }
        DateFormat::Day => format!("{year:04}-{month:02}-{day:02}"),
        DateFormat::Hour => format!("{year:04}-{month:02}-{day:02}T{hour:02}"),
        DateFormat::Minute => format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}"),
    })
}

fn minutes_of_number(number: f64, epoch: Epoch) -> Result<i64, String> {
    let per_minute = match epoch {
        Epoch::Seconds => 60.0,
        Epoch::Milliseconds => 60_000.0,
    };
    // Down, also before 1970, where truncating would go towards the epoch.
    let minutes = (number / per_minute).floor();
    // Far outside of the years checked later, and safely within an `i64`.
    if minutes.abs() > 1e13 || minutes.is_nan() {
        return Err("the date is outside the years 1 to 9999".to_owned());
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole and small")]
    Ok(minutes as i64)
}

/// Minutes since 1970 of a date string, or `None` if it is not a date.
fn minutes_of_text(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        digits
            .iter()
            .try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
    };
    let is = |at: usize, wanted: u8| bytes.get(at) == Some(&wanted);
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    if !is(4, b'-')
        || !is(7, b'-')
        || year < 1
        || !(1..=12).contains(&month)
        || day < 1
        || day > days_in_month(year, month)
    {
        return None;
    }
    let days = days_of_date(year, month, day);
    if bytes.len() == 10 {
        return Some(days * 1440);
    }
    let (hour, minute) = (number(11, 13)?, number(14, 16)?);
    if !is(10, b'T') || !is(13, b':') || hour > 23 || minute > 59 {
        return None;
    }
    let mut at = 16;
    if is(at, b':') {
        // Seconds and their fraction are validated, but no unit shows them.
        if number(17, 19)? > 59 {
            return None;
        }
        at = 19;
        if is(at, b'.') {
            let fraction = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if fraction == 0 {
                return None;
            }
            at += 1 + fraction;
        }
    }
    // Local time minus its offset is UTC. Whatever else follows makes the text no date.
    let offset = match bytes.get(at) {
        None => 0,
        Some(b'Z') if bytes.len() == at + 1 => 0,
        Some(sign @ (b'+' | b'-')) if bytes.len() == at + 6 && is(at + 3, b':') => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = hours * 60 + minutes;
            if *sign == b'-' { -offset } else { offset }
        }
        Some(_) => return None,
    };
    Some(days * 1440 + hour * 60 + minute - offset)
}
