//! Formats numbers. A number is a double, as in JavaScript; its text is the shortest one that parses
//! back to the same double, in ECMAScript notation.

use crate::NumberFormat;

/// Integers up to here are exact in a double.
const EXACT: f64 = 9_007_199_254_740_991.0;

/// Formats a number without a format specification.
pub(crate) fn plain(number: f64) -> Result<String, String> {
    if !number.is_finite() {
        return Err("the number is not finite".to_owned());
    }
    if number == 0.0 {
        return Ok("0".to_owned());
    }
    // The shortest digits that read back the same; only their layout differs from ECMAScript's.
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the format has a whole exponent");
    let sign = if number < 0.0 { "-" } else { "" };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let count = i32::try_from(digits.len()).expect("a double has few digits");
    // Position of the decimal point, in digits.
    let point = exponent + 1;
    // The four layouts of ECMAScript's `Number::toString`: whole, with a fraction, below one, scientific.
    let text = if (count..=21).contains(&point) {
        format!("{sign}{digits}{}", "0".repeat(usize::try_from(point - count).expect("not negative")))
    } else if (1..=21).contains(&point) {
        let (whole, fraction) = digits.split_at(usize::try_from(point).expect("positive"));
        format!("{sign}{whole}.{fraction}")
    } else if (-5..=0).contains(&point) {
        format!("{sign}0.{}{digits}", "0".repeat(usize::try_from(-point).expect("not negative")))
    } else {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        format!("{sign}{first}{dot}{rest}e{}{}", if exponent < 0 { "-" } else { "+" }, exponent.abs())
    };
    Ok(text)
}

/// Formats a number. Fixed decimals are rounded half to even on the exact value.
pub(crate) fn formatted(number: f64, format: NumberFormat) -> Result<String, String> {
    if !number.is_finite() || number.abs() > EXACT {
        return Err("the number is beyond the exact range of doubles".to_owned());
    }
    // Buckets first, so that the digits are those of the bucket.
    let number = match format.bucket {
        Some(bucket) => (number / f64::from(bucket)).floor() * f64::from(bucket),
        None => number,
    };
    // Of the magnitude: whether a sign remains is known only after rounding.
    let text = match format.decimals {
        Some(decimals) => format!("{:.*}", usize::from(decimals), number.abs()),
        None if format.width > 0 && number.fract() != 0.0 => {
            return Err("expected a whole number; set decimals for fractions".to_owned());
        }
        None => plain(number.abs())?,
    };
    let whole = text.find('.').unwrap_or(text.len());
    let zeros = "0".repeat(usize::from(format.width).saturating_sub(whole));
    // A number that was rounded to zero loses its sign.
    let negative = number < 0.0 && text.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    Ok(format!("{}{zeros}{text}", if negative { "-" } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::{formatted, plain};
    use crate::NumberFormat;

    /// The results of `String(number)` in JavaScript.
    #[test]
    fn numbers_read_as_in_javascript() {
        for (number, text) in [
            (2018.0, "2018"),
            (-0.0, "0"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (1e21, "1e+21"),
            (1e20, "100000000000000000000"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (1.25e-9, "1.25e-9"),
            (123_456_789_012_345_680_000.0, "123456789012345680000"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
        ] {
            assert_eq!(plain(number).unwrap(), text);
        }
    }

    #[test]
    fn decimals_round_half_to_even() {
        let format = NumberFormat { decimals: Some(0), width: 0, bucket: None };
        for (number, text) in [(0.5, "0"), (1.5, "2"), (2.5, "2"), (-0.4, "0"), (-1.6, "-2")] {
            assert_eq!(formatted(number, format).unwrap(), text);
        }
        let format = NumberFormat { decimals: Some(2), width: 4, bucket: None };
        for (number, text) in
            [(0.125, "0000.12"), (0.375, "0000.38"), (-12.5, "-0012.50"), (1.005, "0001.00")]
        {
            assert_eq!(formatted(number, format).unwrap(), text);
        }
        let format = NumberFormat { decimals: None, width: 3, bucket: Some(100) };
        assert_eq!(formatted(-1.0, format).unwrap(), "-100");
        assert_eq!(formatted(99.5, format).unwrap(), "000");
    }
}
