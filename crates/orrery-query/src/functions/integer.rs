//! Arithmetic on 64-bit integers: both arguments exact integers, results wrap around.

use super::arguments::integer;
use super::{Function, row};
use crate::operand::Operand;

pub(super) static FUNCTIONS: &[Function] = &[
    row!("INTADD", 2..=2, None, |a| binary(a, |x, y| Some(x.wrapping_add(y)))),
    row!("INTBITAND", 2..=2, None, |a| binary(a, |x, y| Some(x & y))),
    row!("INTBITLEFTSHIFT", 2..=2, None, |a| binary(a, |x, y| Some(x << distance(y)))),
    row!("INTBITNOT", 1..=1, None, |a| integer(a, 0).map(|x| !x)),
    row!("INTBITOR", 2..=2, None, |a| binary(a, |x, y| Some(x | y))),
    row!("INTBITRIGHTSHIFT", 2..=2, None, |a| binary(a, |x, y| Some(x >> distance(y)))),
    row!("INTBITXOR", 2..=2, None, |a| binary(a, |x, y| Some(x ^ y))),
    row!("INTDIV", 2..=2, None, |a| binary(a, |x, y| (y != 0).then(|| x.wrapping_div(y)))),
    row!("INTMOD", 2..=2, None, |a| binary(a, |x, y| (y != 0).then(|| x.wrapping_rem(y)))),
    row!("INTMUL", 2..=2, None, |a| binary(a, |x, y| Some(x.wrapping_mul(y)))),
    row!("INTSUB", 2..=2, None, |a| binary(a, |x, y| Some(x.wrapping_sub(y)))),
];

fn binary(arguments: &[Operand<'_>], compute: fn(i64, i64) -> Option<i64>) -> Option<i64> {
    compute(integer(arguments, 0)?, integer(arguments, 1)?)
}

/// A shift counts modulo 64, as the instruction of common processors does.
fn distance(count: i64) -> u32 {
    u32::try_from(count.rem_euclid(64)).unwrap_or_default()
}
