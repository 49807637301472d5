//! Dates of the Gregorian calendar as days since 1970-01-01, the one implementation of the workspace.
//!
//! The calendar holds for all years, before its introduction too. Years are counted from March, so that the leap day comes
//! last and the months have a regular pattern of lengths; 400 years are 146,097 days. That is all there is to it, so a date
//! library with ranges and time zones of its own would not pay.

/// The number of days in a month, 1 to 12.
pub fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a year, month and day.
pub fn days_of_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    // From March on, five months always have 153 days together: the formula yields the days before each month.
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468
}

/// The year, month and day that lie this many days after 1970-01-01.
pub fn date_of_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    // The leap days of 4, 100 and 400 years taken out, every year has 365 days.
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // The inverse of the formula for months.
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    // January and February belong to the next year.
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_inverse() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (-719_468, (0, 3, 1)),
            (2_932_896, (9999, 12, 31)),
        ] {
            assert_eq!(date_of_days(days), date);
            assert_eq!(days_of_date(date.0, date.1, date.2), days);
        }
        let mut expected = (1899, 12, 31);
        for days in days_of_date(1900, 1, 1)..days_of_date(2101, 1, 1) {
            let (year, month, day) = expected;
            expected = match (day < days_in_month(year, month), month < 12) {
                (true, _) => (year, month, day + 1),
                (false, true) => (year, month + 1, 1),
                (false, false) => (year + 1, 1, 1),
            };
            assert_eq!(date_of_days(days), expected);
            assert_eq!(days_of_date(expected.0, expected.1, expected.2), days);
        }
    }
}
