//! Recognises, parses and prints times in data.

/// How the value of a property in new items is determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Independent of when an item is written.
    #[default]
    Free,
    /// The time itself, in a format that can represent any time, in steps of a day, an hour …
    Time { step_ms: i64 },
    /// A value that items written at about the same time share.
    Period,
}

impl Pace {
    /// Whether new items get the value of their time.
    pub fn follows(self) -> bool {
        self != Self::Free
    }
}

use orrery_model::civil::{date_of_days, days_of_date};

/// Milliseconds since the Unix epoch of an ISO 8601 date or time: `2018-08`, `2018-08-09`, `2018-08-09T12:30`,
/// with seconds, fractions, `Z` or an offset.
pub fn parse_text(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if !(7..=40).contains(&bytes.len()) || bytes[4] != b'-' {
        return None;
    }
    let year = digits(bytes.get(0..4)?)?;
    let month = digits(bytes.get(5..7)?)?;
    if !(1..=12).contains(&month) || year < 1900 {
        return None;
    }
    if bytes.len() == 7 {
        return Some(days_of_date(year, month, 1) * 86_400_000);
    }
    let day = (bytes[7] == b'-').then(|| digits(bytes.get(8..10)?)).flatten()?;
    if !(1..=31).contains(&day) {
        return None;
    }
    let midnight = days_of_date(year, month, day) * 86_400_000;
    let Some(separator) = bytes.get(10) else { return Some(midnight) };
    if !matches!(separator, b'T' | b't' | b' ') {
        return None;
    }
    let hour = digits(bytes.get(11..13)?)?;
    let minute = match bytes.get(13) {
        Some(b':') => digits(bytes.get(14..16)?)?,
        None => 0,
        Some(_) => return None,
    };
    let mut ms = (hour * 60 + minute) * 60_000;
    let mut rest = bytes.get(16..).unwrap_or(&[]);
    if let [b':', after @ ..] = rest {
        ms += digits(after.get(0..2)?)? * 1000;
        rest = &after[2..];
        if let [b'.', fraction @ ..] = rest {
            let count = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let mut milliseconds = 0;
            // Digits beyond milliseconds are ignored.
            for at in 0..3 {
                milliseconds =
                    milliseconds * 10 + fraction[..count].get(at).map_or(0, |byte| i64::from(byte - b'0'));
            }
            ms += milliseconds;
            rest = &fraction[count..];
        }
    }
    let offset = match rest {
        [] | [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), offset @ ..] => {
            let minutes = digits(offset.get(0..2)?)? * 60 + offset.get(3..5).and_then(digits).unwrap_or(0);
            if *sign == b'+' { -minutes } else { minutes }
        }
        _ => return None,
    };
    Some(midnight + ms + offset * 60_000)
}

/// Seconds or milliseconds since the epoch, of the years from 2001 to 2100.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
pub fn parse_number(number: f64) -> Option<i64> {
    if (978_307_200.0..4_102_444_800.0).contains(&number) {
        Some((number * 1000.0) as i64)
    } else if (978_307_200_000.0..4_102_444_800_000.0).contains(&number) {
        Some(number as i64)
    } else {
        None
    }
}

/// Formats a time: `2018-08-09T12:30:00Z`.
pub fn print(ms: i64) -> String {
    let (day, time) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000) / 1000);
    format!("{}T{:02}:{:02}:{:02}Z", print_day(day), time / 3600, time / 60 % 60, time % 60)
}

/// Formats a time like another one: the same precision and separators. An offset from UTC is kept, and the time
/// adjusted to it.
pub fn in_form_of(text: &str, ms: i64) -> String {
    // After the minutes, because a date contains dashes too.
    let offset_at = text.get(16..).and_then(|rest| rest.find(['+', '-'])).map(|at| at + 16);
    let offset = offset_at.and_then(|at| parse_text(text).zip(parse_text(&text[..at])));
    let ms = ms + offset.map_or(0, |(utc, local)| local - utc);
    let digits = format!("{}.{:03}000000", &print(ms)[..19], ms.rem_euclid(1000));
    let end = offset_at.unwrap_or(text.len());
    // The digits of the template are replaced one by one; everything else in it stays.
    let moved = text.char_indices().zip(digits.chars().chain(std::iter::repeat('0')));
    moved.map(|((at, own), new)| if at < end && own.is_ascii_digit() { new } else { own }).collect()
}

/// Formats a day counted from the epoch: `2018-08-09`.
pub fn print_day(day: i64) -> String {
    let (year, month, day) = date_of_days(day);
    format!("{year:04}-{month:02}-{day:02}")
}

fn digits(bytes: &[u8]) -> Option<i64> {
    bytes
        .iter()
        .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_their_usual_forms() {
        for (text, ms) in [
            ("1970-01-01", 0),
            ("2018-08-09", 1_533_772_800_000),
            ("2018-08", 1_533_081_600_000),
            ("2000-02-29T12:30", 951_827_400_000),
            ("2018-08-09T01:02:03Z", 1_533_776_523_000),
            ("2018-08-09T01:02:03.4567Z", 1_533_776_523_456),
            ("2018-08-09T03:02:03+02:00", 1_533_776_523_000),
        ] {
            assert_eq!(parse_text(text), Some(ms), "{text}");
        }
        for text in ["", "abc-123", "2018", "2018-13-01", "2018-08-09x", "12345678-1234", "2018-08-0"] {
            assert_eq!(parse_text(text), None, "{text}");
        }
        assert_eq!(print(1_533_776_523_456), "2018-08-09T01:02:03Z");
        assert_eq!(print_day(0), "1970-01-01");
        assert_eq!(parse_number(1_533_776_523.0), Some(1_533_776_523_000));
        assert_eq!(parse_number(1_533_776_523_456.0), Some(1_533_776_523_456));
        assert_eq!(parse_number(42.0), None);
    }
}
