//! Date parts and the arithmetic by them.

use super::moment::{
    Moment, TICKS_PER_DAY, TICKS_PER_HOUR, TICKS_PER_MICROSECOND, TICKS_PER_MILLISECOND, TICKS_PER_MINUTE,
    TICKS_PER_SECOND,
};

/// A unit of the calendar or the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

const NAMES: &[(Part, &[&str])] = &[
    (Part::Year, &["year", "yyyy", "yy"]),
    (Part::Month, &["month", "mm", "m"]),
    (Part::Day, &["day", "dd", "d"]),
    (Part::Hour, &["hour", "hh"]),
    (Part::Minute, &["minute", "mi", "n"]),
    (Part::Second, &["second", "ss", "s"]),
    (Part::Millisecond, &["millisecond", "ms"]),
    (Part::Microsecond, &["microsecond", "mcs"]),
    (Part::Nanosecond, &["nanosecond", "ns"]),
];

const NANOSECONDS_PER_TICK: i64 = 100;

impl Part {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let named = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(text));
        NAMES.iter().find_map(|(part, names)| named(names).then_some(*part))
    }

    /// The value of this part. Parts below the second count the whole fraction of the second.
    pub(super) fn of(self, moment: Moment) -> i64 {
        let [hour, minute, second, fraction] = moment.time();
        match self {
            Self::Year => moment.date().year,
            Self::Month => moment.date().month,
            Self::Day => moment.date().day,
            Self::Hour => hour,
            Self::Minute => minute,
            Self::Second => second,
            Self::Millisecond => fraction / TICKS_PER_MILLISECOND,
            Self::Microsecond => fraction / TICKS_PER_MICROSECOND,
            Self::Nanosecond => fraction * NANOSECONDS_PER_TICK,
        }
    }

    /// Moves by a count of parts, to the nearest tick.
    pub(super) fn add(self, moment: Moment, count: i128) -> Option<Moment> {
        match self {
            Self::Year => moment.add_months(count.checked_mul(12)?),
            Self::Month => moment.add_months(count),
            _ => {
                let nanoseconds = self.nanoseconds().checked_mul(count)?;
                // Half a tick is rounded away from zero.
                let half = i128::from(NANOSECONDS_PER_TICK) / 2 * nanoseconds.signum();
                let ticks = nanoseconds.checked_add(half)? / i128::from(NANOSECONDS_PER_TICK);
                Moment::from_ticks(ticks.checked_add(moment.ticks().into())?)
            }
        }
    }

    /// How many starts of this part lie between two moments, negative if the second is earlier.
    pub(super) fn boundaries_between(self, from: Moment, to: Moment) -> i128 {
        let ordinal = |moment: Moment| match self {
            // Years and months differ in length, so their numbers are compared.
            Self::Year => i128::from(moment.date().year),
            Self::Month => i128::from(moment.date().year * 12 + moment.date().month),
            _ => nanoseconds_since_epoch(moment).div_euclid(self.nanoseconds()),
        };
        ordinal(to) - ordinal(from)
    }

    /// The start of the bin of `size` parts, counted from `start`, that holds a moment. Years and months, which differ in
    /// length, have no bins, nor have sizes below a tick.
    pub(super) fn bin(self, moment: Moment, size: i128, start: Moment) -> Option<Moment> {
        if matches!(self, Self::Year | Self::Month) {
            return None;
        }
        let nanoseconds = self.nanoseconds().checked_mul(size)?;
        let size = nanoseconds / i128::from(NANOSECONDS_PER_TICK);
        if size == 0 {
            return None;
        }
        let (moment, start) = (i128::from(moment.ticks()), i128::from(start.ticks()));
        // Rounded down, so that moments before the start have bins too.
        Moment::from_ticks((moment - start).div_euclid(size) * size + start)
    }

    /// The length of a part that always has the same.
    fn nanoseconds(self) -> i128 {
        let ticks = match self {
            Self::Nanosecond => return 1,
            Self::Microsecond => TICKS_PER_MICROSECOND,
            Self::Millisecond => TICKS_PER_MILLISECOND,
            Self::Second => TICKS_PER_SECOND,
            Self::Minute => TICKS_PER_MINUTE,
            Self::Hour => TICKS_PER_HOUR,
            // Years and months never ask.
            Self::Day | Self::Month | Self::Year => TICKS_PER_DAY,
        };
        i128::from(ticks) * i128::from(NANOSECONDS_PER_TICK)
    }
}

fn nanoseconds_since_epoch(moment: Moment) -> i128 {
    i128::from(moment.ticks()) * i128::from(NANOSECONDS_PER_TICK)
}
