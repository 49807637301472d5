//! A moment in UTC and its text form.
//!
//! Read: `YYYY-MM-DD`, then optionally a space or `T` and `hh:mm:ss` with an optional fraction of one to
//! seven digits, then optionally `Z` or an offset from UTC such as `+02:00`. Nothing else is a date-time. Written:
//! always in UTC, with seven digits and the `Z`. Years run from 1601 to 9999. The calendar is the Gregorian one
//! throughout.

use orrery_model::civil;

pub(super) const TICKS_PER_MICROSECOND: i64 = 10;
pub(super) const TICKS_PER_MILLISECOND: i64 = 10_000;
pub(super) const TICKS_PER_SECOND: i64 = 10_000_000;
pub(super) const TICKS_PER_MINUTE: i64 = 60 * TICKS_PER_SECOND;
pub(super) const TICKS_PER_HOUR: i64 = 60 * TICKS_PER_MINUTE;
pub(super) const TICKS_PER_DAY: i64 = 24 * TICKS_PER_HOUR;

/// 100 ns units since the start of 1970, within the years 1601 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(i64);

/// A day of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: i64,
    pub(super) month: i64,
    pub(super) day: i64,
}

/// The first tick of year 1601 and the last of year 9999.
const FIRST_TICK: i64 = -134_774 * TICKS_PER_DAY;
const LAST_TICK: i64 = 2_932_897 * TICKS_PER_DAY - 1;

impl Moment {
    pub(super) const EPOCH: Self = Self(0);

    pub(super) fn from_ticks(ticks: i128) -> Option<Self> {
        let ticks = i64::try_from(ticks).ok()?;
        (FIRST_TICK..=LAST_TICK).contains(&ticks).then_some(Self(ticks))
    }

    pub(super) fn from_parts(
        year: i64,
        month: i64,
        day: i64,
        hour: i64,
        minute: i64,
        second: i64,
        fraction: i64,
    ) -> Option<Self> {
        let date = Date::new(year, month, day)?;
        let in_range = (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..60).contains(&second)
            && (0..TICKS_PER_SECOND).contains(&fraction);
        if !in_range {
            return None;
        }
        let seconds = (hour * 60 + minute) * 60 + second;
        let ticks = date.days_since_epoch() * TICKS_PER_DAY + seconds * TICKS_PER_SECOND + fraction;
        Self::from_ticks(ticks.into())
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut rest = Cursor(text.as_bytes());
        let year = rest.digits(4)?;
        rest.byte(b"-")?;
        let month = rest.digits(2)?;
        rest.byte(b"-")?;
        let day = rest.digits(2)?;
        let mut time = [0; 4];
        if rest.byte(b" T").is_some() {
            time[0] = rest.digits(2)?;
            rest.byte(b":")?;
            time[1] = rest.digits(2)?;
            rest.byte(b":")?;
            time[2] = rest.digits(2)?;
            if rest.byte(b".").is_some() {
                time[3] = rest.fraction()?;
            }
        }
        // Without an offset the time is in UTC.
        let offset = if rest.byte(b"Z").is_some() { 0 } else { rest.offset()? };
        if !rest.0.is_empty() {
            return None;
        }
        let local = Self::from_parts(year, month, day, time[0], time[1], time[2], time[3])?;
        Self::from_ticks(i128::from(local.0) - i128::from(offset * TICKS_PER_MINUTE))
    }

    pub(super) fn to_text(self) -> String {
        let Date { year, month, day } = self.date();
        let [hour, minute, second, fraction] = self.time();
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:07}Z")
    }

    pub(super) fn ticks(self) -> i64 {
        self.0
    }

    pub(super) fn milliseconds(self) -> i64 {
        self.0.div_euclid(TICKS_PER_MILLISECOND)
    }

    pub(super) fn date(self) -> Date {
        // Rounded down, also before 1970.
        Date::from_days_since_epoch(self.0.div_euclid(TICKS_PER_DAY))
    }

    /// Days since the last Sunday.
    pub(super) fn weekday(self) -> i64 {
        // The first day of 1970 was a Thursday.
        (self.0.div_euclid(TICKS_PER_DAY) + 4).rem_euclid(7)
    }

    /// Hour, minute, second and ticks of the second.
    pub(super) fn time(self) -> [i64; 4] {
        let ticks = self.0.rem_euclid(TICKS_PER_DAY);
        [
            ticks / TICKS_PER_HOUR,
            ticks / TICKS_PER_MINUTE % 60,
            ticks / TICKS_PER_SECOND % 60,
            ticks % TICKS_PER_SECOND,
        ]
    }

    /// The same day and time some months later; a day the month lacks becomes its last one.
    pub(super) fn add_months(self, months: i128) -> Option<Self> {
        let Date { year, month, day } = self.date();
        let months = i128::from(year * 12 + month - 1).checked_add(months)?;
        let year = i64::try_from(months.div_euclid(12)).ok()?;
        let month = i64::try_from(months.rem_euclid(12)).ok()? + 1;
        if !(1..=9999).contains(&year) {
            return None;
        }
        let date = Date { year, month, day: day.min(civil::days_in_month(year, month)) };
        let ticks = date.days_since_epoch() * TICKS_PER_DAY + self.0.rem_euclid(TICKS_PER_DAY);
        Self::from_ticks(ticks.into())
    }
}

impl Date {
    fn new(year: i64, month: i64, day: i64) -> Option<Self> {
        let exists = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=civil::days_in_month(year, month)).contains(&day);
        exists.then_some(Self { year, month, day })
    }

    fn days_since_epoch(self) -> i64 {
        civil::days_of_date(self.year, self.month, self.day)
    }

    fn from_days_since_epoch(days: i64) -> Self {
        let (year, month, day) = civil::date_of_days(days);
        Self { year, month, day }
    }
}

/// Bytes not yet read.
struct Cursor<'t>(&'t [u8]);

impl Cursor<'_> {
    /// Reads exactly this many digits.
    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        let value = digits
            .iter()
            .try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))?;
        self.0 = rest;
        Some(value)
    }

    /// Reads one byte if it is among those.
    fn byte(&mut self, among: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        among.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }

    /// Reads an offset from UTC in minutes: `+hh`, `+hhmm` or `+hh:mm`, or nothing, which is none.
    fn offset(&mut self) -> Option<i64> {
        /// No place on Earth is further from UTC.
        const OFFSET_MINUTES_MAX: i64 = 14 * 60;

        let Some(sign) = self.byte(b"+-") else {
            return Some(0);
        };
        let hours = self.digits(2)?;
        let has_minutes = self.byte(b":").is_some() || !self.0.is_empty();
        let minutes = if has_minutes { self.digits(2)? } else { 0 };
        let offset = hours * 60 + minutes;
        if minutes >= 60 || offset > OFFSET_MINUTES_MAX {
            return None;
        }
        Some(if sign == b'-' { -offset } else { offset })
    }

    /// Reads one to seven digits as ticks of a second.
    fn fraction(&mut self) -> Option<i64> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if !(1..=7).contains(&count) {
            return None;
        }
        // `.5` is five tenths: the digits that are missing are zeros.
        let missing = u32::try_from(7 - count).ok()?;
        Some(self.digits(count)? * 10i64.pow(missing))
    }
}
