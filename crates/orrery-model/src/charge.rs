//! Request units, in hundredths, so that sums are exact and print with two decimals.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// An amount of request units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Charge(u64);

impl Charge {
    pub const ZERO: Self = Self(0);

    pub const fn from_hundredths(hundredths: u64) -> Self {
        Self(hundredths)
    }

    pub const fn hundredths(self) -> u64 {
        self.0
    }

    #[expect(clippy::cast_precision_loss, reason = "a charge is far below 2^53 hundredths")]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 100.0
    }
}

impl Add for Charge {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        // A sum that is off the scale is still the largest, while one that wrapped would be cheap.
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Charge {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Charge {
    fn sum<I: Iterator<Item = Self>>(charges: I) -> Self {
        charges.fold(Self::ZERO, Add::add)
    }
}

/// Decimal text without trailing zeros, as responses carry it: `1`, `2.83`.
impl fmt::Display for Charge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 100, self.0 % 100);
        match rest {
            0 => write!(formatter, "{whole}"),
            _ if rest % 10 == 0 => write!(formatter, "{whole}.{}", rest / 10),
            _ => write!(formatter, "{whole}.{rest:02}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_print_as_responses_carry_them() {
        for (hundredths, text) in [(0, "0"), (100, "1"), (283, "2.83"), (1230, "12.3"), (105, "1.05")] {
            assert_eq!(Charge::from_hundredths(hundredths).to_string(), text);
        }
    }
}
