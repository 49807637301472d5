//! `VectorDistance`: exact comparison of two vectors.

use orrery_model::container::DistanceFunction;
use orrery_model::{Number, Object, Value};

use super::arguments::{array, flag, object, optional};
use super::{Evaluated, Function, row_in_context};
use crate::context::Context;
use crate::error::EvalError;
use crate::operand::{Operand, owned};

pub(super) static FUNCTIONS: &[Function] = &[row_in_context!("VECTORDISTANCE", 2..=4, None, distance)];

const DATA_TYPES: [&str; 4] = ["float32", "float16", "int8", "uint8"];

fn distance<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    let Some(options) = optional(arguments, 3, object) else { return Ok(None) };
    if let Some(options) = options {
        check_search_list(options)?;
    }
    Ok(compare(context, arguments, options).and_then(owned))
}

fn compare(context: &Context<'_>, arguments: &[Operand<'_>], options: Option<&Object>) -> Option<f64> {
    // Whether a vector index may be used is the planner's business; the flag must be a boolean.
    flag(arguments, 2)?;
    let function = distance_function(options)?.unwrap_or(context.distance);
    let (left, right) = (array(arguments, 0)?, array(arguments, 1)?);
    if left.len() != right.len() || left.is_empty() {
        return None;
    }
    let mut dot = 0.0;
    let mut squares = (0.0, 0.0);
    let mut gap = 0.0;
    for (left, right) in left.iter().zip(right) {
        let (left, right) = (left.as_number()?.as_f64(), right.as_number()?.as_f64());
        dot += left * right;
        squares = (squares.0 + left * left, squares.1 + right * right);
        gap += (left - right) * (left - right);
    }
    Some(match function {
        DistanceFunction::DotProduct => dot,
        DistanceFunction::Euclidean => f64::sqrt(gap),
        // A vector of zeros has no direction: it resembles nothing.
        DistanceFunction::Cosine if squares.0 == 0.0 || squares.1 == 0.0 => 0.0,
        // Rounding must not carry a similarity out of its range.
        DistanceFunction::Cosine => (dot / (squares.0 * squares.1).sqrt()).clamp(-1.0, 1.0),
    })
}

/// The metric that options name; undefined altogether if they hold something that is no option value.
#[expect(clippy::option_option, reason = "not named and named wrongly are different answers")]
fn distance_function(options: Option<&Object>) -> Option<Option<DistanceFunction>> {
    let Some(options) = options else { return Some(None) };
    if let Some(data_type) = member(options, "dataType") {
        let name = data_type.as_str()?;
        DATA_TYPES.iter().find(|known| known.eq_ignore_ascii_case(name))?;
    }
    match member(options, "distanceFunction") {
        Some(name) => Some(Some(DistanceFunction::parse(name.as_str()?)?)),
        None => Some(None),
    }
}

fn check_search_list(options: &Object) -> Result<(), EvalError> {
    let Some(multiplier) = member(options, "searchListSizeMultiplier").and_then(Value::as_number) else {
        return Ok(());
    };
    if (1.0..=100.0).contains(&multiplier.as_f64()) {
        return Ok(());
    }
    let shown = Value::Number(Number::Double(multiplier.as_f64())).to_json();
    Err(EvalError::Message(format!(
        "The 'searchListSizeMultiplier' value {shown} specified in the VectorDistance function is outside the \
         supported range. The value must be between 1 and 100."
    )))
}

/// Option names are matched as written first, then in any case.
fn member<'o>(options: &'o Object, name: &str) -> Option<&'o Value> {
    let in_any_case = || options.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    options.get(name).or_else(|| in_any_case().map(|(_, value)| value))
}
