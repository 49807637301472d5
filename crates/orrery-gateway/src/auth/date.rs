//! Dates of requests, and how far from now they may be.
//!
//! SDKs send RFC 1123. The service parses leniently and assumes UTC, so case is ignored, the weekday and the zone are
//! optional, and ISO 8601 is accepted.

use orrery_model::civil;

use super::AuthFailure;

/// How long a signature stays valid after its date.
const VALIDITY_SECONDS: i64 = 900;
/// The allowed clock skew, in addition to the validity: signatures are accepted 15 minutes ahead and 30 behind.
const SKEW_SECONDS: i64 = 900;

/// The period in which a signature is accepted, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateWindow {
    pub start: i64,
    pub expiry: i64,
}

impl DateWindow {
    pub fn of(signed_at: i64) -> Self {
        Self { start: signed_at - SKEW_SECONDS, expiry: signed_at + VALIDITY_SECONDS + SKEW_SECONDS }
    }

    pub fn check(self, now: i64) -> Result<(), AuthFailure> {
        if (self.start..=self.expiry).contains(&now) {
            Ok(())
        } else {
            Err(AuthFailure::OutsideWindow { window: self, now })
        }
    }
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
// 1970-01-01, day 0, was a Thursday.
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// Seconds since the Unix epoch.
pub fn parse_date(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= 64)?.trim();
    // A year and a hyphen: no other form begins so.
    if text.starts_with(|c: char| c.is_ascii_digit()) && text.as_bytes().get(4) == Some(&b'-') {
        return parse_iso(text);
    }
    // The weekday follows from the date and is not compared with it.
    let text = text.split_once(',').map_or(text, |(_weekday, rest)| rest);
    let mut words = text.split_ascii_whitespace();
    let day = number(words.next()?, 1, 2)?;
    let month_name = words.next()?;
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month_name))?;
    let year = number(words.next()?, 4, 4)?;
    let seconds = parse_time(words.next()?)?;
    match words.next() {
        None => {}
        Some(zone) if ["gmt", "utc", "z", "+0000", "-0000"].contains(&zone.to_ascii_lowercase().as_str()) => {
        }
        Some(_) => return None,
    }
    if words.next().is_some() {
        return None;
    }
    Some(days_since_epoch(year, i64::try_from(month).ok()? + 1, day)? * 86_400 + seconds)
}

/// `2024-01-31T10:00:00[.fraction][Z]`, with a blank allowed for the `T`.
fn parse_iso(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let time = time.trim_end_matches(['Z', 'z']).trim_end_matches("+00:00");
    let time = match time.split_once('.') {
        Some((time, fraction)) => {
            let digits = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
            digits.then_some(time)?
        }
        None => time,
    };
    let days = days_since_epoch(number(year, 4, 4)?, number(month, 2, 2)?, number(day, 2, 2)?)?;
    Some(days * 86_400 + parse_time(time)?)
}

fn parse_time(text: &str) -> Option<i64> {
    let mut parts = text.split(':');
    let (hour, minute, second) =
        (number(parts.next()?, 1, 2)?, number(parts.next()?, 2, 2)?, number(parts.next()?, 2, 2)?);
    // A leap second is the second after it, as Unix time has none.
    let legal = parts.next().is_none() && hour < 24 && minute < 60 && second <= 60;
    legal.then_some(hour * 3600 + minute * 60 + second)
}

fn number(text: &str, digits_min: usize, digits_max: usize) -> Option<i64> {
    let legal = (digits_min..=digits_max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if legal { text.parse().ok() } else { None }
}

/// Days from 1970-01-01; none if the date does not exist.
fn days_since_epoch(year: i64, month: i64, day: i64) -> Option<i64> {
    let exists = (1..=12).contains(&month) && (1..=civil::days_in_month(year, month)).contains(&day);
    exists.then(|| civil::days_of_date(year, month, day))
}

/// RFC 1123 text of a time, as the `date` header and messages carry it.
pub fn print_date(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil::date_of_days(days);
    let month_index = usize::try_from(month - 1).unwrap_or(0);
    let weekday = WEEKDAYS[usize::try_from(days.rem_euclid(7)).unwrap_or(0)];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {} {year:04} {hour:02}:{minute:02}:{second:02} GMT", MONTHS[month_index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_dates_are_read() {
        // 1493254272 = 2017-04-27 00:51:12 UTC, the date of the published signing example.
        for text in [
            "Thu, 27 Apr 2017 00:51:12 GMT",
            "thu, 27 apr 2017 00:51:12 gmt",
            "27 Apr 2017 00:51:12 GMT",
            "Thu, 27 Apr 2017 00:51:12",
            "Thu, 27 Apr 2017 00:51:12 +0000",
            "2017-04-27T00:51:12Z",
            "2017-04-27T00:51:12.1234567Z",
            "2017-04-27 00:51:12",
        ] {
            assert_eq!(parse_date(text.as_bytes()), Some(1_493_254_272), "{text}");
        }
    }

    #[test]
    fn nonsense_is_not_a_date() {
        for text in [
            "",
            "yesterday",
            "Thu, 31 Feb 2017 00:51:12 GMT",
            "Thu, 29 Feb 2023 00:51:12 GMT",
            "Thu, 27 Apr 17 00:51:12 GMT",
            "Thu, 27 Apr 2017 24:00:00 GMT",
            "Thu, 27 Apr 2017 00:51:12 EST",
            "Thu, 27 Apr 2017 00:51:12 GMT again",
            "2017-04-27",
            "2017-13-27T00:51:12Z",
            "2017-04-27T00:51:12.Z",
            "99999999999999999999",
        ] {
            assert_eq!(parse_date(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn printing_agrees_with_an_independent_library() {
        for seconds in [0, 951_782_399, 951_782_400, 1_493_254_272, 1_709_164_800, 4_102_444_799] {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            let expected = httpdate::fmt_http_date(time);
            let seconds = i64::try_from(seconds).unwrap();
            assert_eq!(print_date(seconds), expected);
            assert_eq!(parse_date(expected.as_bytes()), Some(seconds));
        }
    }

    #[test]
    fn the_window_is_fifteen_minutes_ahead_and_thirty_behind() {
        let window = DateWindow::of(10_000);
        assert!(window.check(10_000 - 900).is_ok());
        assert!(window.check(10_000 - 901).is_err());
        assert!(window.check(10_000 + 1800).is_ok());
        assert!(window.check(10_000 + 1801).is_err());
    }
}
