//! Functions that pick one of their arguments.

use super::arguments::{integer, value};
use super::{Evaluated, Function, UNBOUNDED, row_in_context};
use crate::context::Context;
use crate::operand::Operand;

pub(super) static FUNCTIONS: &[Function] =
    &[row_in_context!("CHOOSE", 2..=UNBOUNDED, None, choose), row_in_context!("IIF", 3..=3, None, iif)];

#[expect(clippy::unnecessary_wraps, reason = "the shape of a function body")]
fn choose<'a>(_: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    // Members count from one, and the number itself stands before them.
    let chosen = integer(arguments, 0)
        .filter(|position| *position >= 1)
        .and_then(|position| arguments.get(usize::try_from(position).ok()?))
        .cloned();
    Ok(chosen.flatten())
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of a function body")]
fn iif<'a>(_: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    let holds = value(arguments, 0).and_then(orrery_model::Value::as_bool) == Some(true);
    Ok(arguments.get(if holds { 1 } else { 2 }).cloned().flatten())
}
