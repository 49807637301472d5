//! Functions over doubles. NaN and infinities are ordinary inputs and outputs here; only a query
//! result may not hold them.

use std::f64::consts::PI;

use orrery_model::{Number, Value};

use super::arguments::{double, integer, number, optional};
use super::{Function, row, row_in_context};
use crate::operand::{Operand, owned};

pub(super) static FUNCTIONS: &[Function] = &[
    row!("ABS", 1..=1, PreciseScan, absolute),
    row!("ACOS", 1..=1, None, |a| unary(a, f64::acos)),
    row!("ASIN", 1..=1, None, |a| unary(a, f64::asin)),
    row!("ATAN", 1..=1, None, |a| unary(a, f64::atan)),
    row!("ATN2", 2..=2, None, |a| Some(double(a, 0)?.atan2(double(a, 1)?))),
    row!("CEILING", 1..=1, PreciseScan, |a| to_integral(a, f64::ceil)),
    row!("COS", 1..=1, None, |a| unary(a, f64::cos)),
    row!("COT", 1..=1, None, |a| unary(a, |x| 1.0 / x.tan())),
    row!("DEGREES", 1..=1, None, |a| unary(a, |x| x * (180.0 / PI))),
    row!("EXP", 1..=1, None, |a| unary(a, f64::exp)),
    row!("FLOOR", 1..=1, PreciseScan, |a| to_integral(a, f64::floor)),
    row!("LOG", 1..=2, None, logarithm),
    row!("LOG10", 1..=1, None, |a| unary(a, f64::log10)),
    row!("NUMBERBIN", 1..=2, None, bin),
    row!("PI", 0..=0, None, |_: &[Operand<'_>]| Some(PI)),
    row!("POWER", 2..=2, None, |a| Some(double(a, 0)?.powf(double(a, 1)?))),
    row!("RADIANS", 1..=1, None, |a| unary(a, |x| PI * x / 180.0)),
    row_in_context!("RAND", 0..=0, None, |context, _| Ok(owned(context.random.next()))),
    row!("ROUND", 1..=2, PreciseScan, round),
    row!("SIGN", 1..=1, None, |a| unary(a, sign)),
    row!("SIN", 1..=1, None, |a| unary(a, f64::sin)),
    row!("SQRT", 1..=1, None, |a| unary(a, f64::sqrt)),
    row!("SQUARE", 1..=1, None, |a| unary(a, |x| x * x)),
    row!("TAN", 1..=1, None, |a| unary(a, f64::tan)),
    row!("TRUNC", 1..=1, PreciseScan, |a| to_integral(a, f64::trunc)),
];

fn unary(arguments: &[Operand<'_>], compute: fn(f64) -> f64) -> Option<f64> {
    double(arguments, 0).map(compute)
}

fn absolute(arguments: &[Operand<'_>]) -> Option<Value> {
    Some(match number(arguments, 0)? {
        Number::Int(value) => {
            // The lowest integer has no positive counterpart, so its magnitude is a double.
            value.checked_abs().map_or_else(|| 9_223_372_036_854_775_808.0.into(), Value::from)
        }
        Number::Double(value) => value.abs().into(),
    })
}

/// Rounds a double; a 64-bit integer is already where it would go and keeps all its digits.
fn to_integral(arguments: &[Operand<'_>], round: fn(f64) -> f64) -> Option<Value> {
    Some(match number(arguments, 0)? {
        Number::Int(value) => value.into(),
        // Adding zero turns -0, which would print as such in some clients, into 0.
        Number::Double(value) => (round(value) + 0.0).into(),
    })
}

fn round(arguments: &[Operand<'_>]) -> Option<Value> {
    let Some(digits) = optional(arguments, 1, integer)? else {
        return to_integral(arguments, f64::round);
    };
    let x = double(arguments, 0)?;
    // No double has a decimal beyond 323 places, and none reaches 309 places before the point.
    if digits > 323 || !x.is_finite() {
        return Some(x.into());
    }
    if digits < -308 {
        return Some(0.0.into());
    }
    let scale = 10f64.powi(i32::try_from(digits.abs()).ok()?);
    let rounded = if digits >= 0 { (x * scale).round() / scale } else { (x / scale).round() * scale };
    // Scaling overflows only where the number has no digits that far down.
    Some(if rounded.is_finite() { (rounded + 0.0).into() } else { x.into() })
}

fn logarithm(arguments: &[Operand<'_>]) -> Option<f64> {
    let x = double(arguments, 0)?;
    let base = optional(arguments, 1, double)?;
    Some(match base {
        None => x.ln(),
        // The dedicated functions are exact where a quotient of logarithms is not.
        Some(10.0) => x.log10(),
        Some(2.0) => x.log2(),
        Some(base) => x.ln() / base.ln(),
    })
}

fn bin(arguments: &[Operand<'_>]) -> Option<f64> {
    let x = double(arguments, 0)?;
    let size = optional(arguments, 1, double)?.unwrap_or(1.0);
    (size != 0.0).then(|| (x / size).floor() * size + 0.0)
}

fn sign(x: f64) -> f64 {
    // `signum` has no zero, and NaN has no sign.
    if x == 0.0 || x.is_nan() { x.abs() } else { x.signum() }
}
