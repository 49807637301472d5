//! Functions over arrays, and the one that turns an object into an array.

use std::cmp::Ordering;

use orrery_model::{Object, Value};

use super::arguments::{all_of, any_of, array, compare_primitives, integer, object, optional, string, value};
use super::{Evaluated, Function, UNBOUNDED, row, row_in_context};
use crate::context::Context;
use crate::error::EvalError;
use crate::limits;
use crate::operand::{Operand, owned};
use crate::order;

pub(super) static FUNCTIONS: &[Function] = &[
    row!("ARRAY_AVG", 1..=1, None, average),
    row_in_context!("ARRAY_CONCAT", 2..=UNBOUNDED, None, concat),
    row_in_context!("ARRAY_CONTAINS", 2..=3, Seek, contains),
    row_in_context!("ARRAY_CONTAINS_ALL", 2..=UNBOUNDED, None, contains_all),
    row_in_context!("ARRAY_CONTAINS_ANY", 2..=UNBOUNDED, None, contains_any),
    row!("ARRAY_LENGTH", 1..=1, None, length),
    row!("ARRAY_MAX", 1..=1, None, |arguments| extreme(arguments, Ordering::Greater)),
    row!("ARRAY_MEDIAN", 1..=1, None, median),
    row!("ARRAY_MIN", 1..=1, None, |arguments| extreme(arguments, Ordering::Less)),
    row!("ARRAY_SLICE", 2..=3, None, slice),
    row!("ARRAY_SUM", 1..=1, None, sum),
    row_in_context!("OBJECTTOARRAY", 1..=3, None, from_object),
];

fn concat<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    let arrays = (0..arguments.len()).map(|at| array(arguments, at)).collect::<Option<Vec<_>>>();
    let Some(arrays) = arrays else { return Ok(None) };
    // A short text can name a large array many times.
    let mut size = Size::default();
    for item in arrays.iter().copied().flatten() {
        size.add(context, order::bytes(item))?;
    }
    Ok(owned(arrays.concat()))
}

/// What a function is about to build, counted before it does.
#[derive(Default)]
struct Size(usize);

impl Size {
    fn add(&mut self, context: &Context<'_>, bytes: usize) -> Result<(), EvalError> {
        self.0 = self.0.saturating_add(bytes);
        context.bytes(bytes)?;
        if self.0 > limits::VALUE_BYTES_MAX {
            return Err(EvalError::ValueTooLarge { limit: limits::VALUE_BYTES_MAX });
        }
        Ok(())
    }
}

fn contains<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    if let (Some(items), Some(wanted)) = (array(arguments, 0), value(arguments, 1)) {
        context.steps(search_steps(items, wanted))?;
    }
    Ok(contains_value(arguments).and_then(owned))
}

/// What looking for a value among others takes: numbers are compared in a step, and of others no more than all of the
/// wanted one.
fn search_steps(items: &[Value], wanted: &Value) -> u64 {
    let each = match wanted {
        Value::String(text) => 1 + text.len() as u64 / 64,
        Value::Array(_) | Value::Object(_) => 1 + order::bytes(wanted) as u64 / 16,
        _ => 1,
    };
    (items.len() as u64).saturating_mul(each)
}

fn contains_value(arguments: &[Operand<'_>]) -> Option<bool> {
    let items = array(arguments, 0)?;
    let wanted = value(arguments, 1)?;
    let partial = match arguments.get(2) {
        Some(flag) => flag.as_deref()?.as_bool()?,
        None => false,
    };
    Some(match wanted.as_object() {
        Some(wanted) if partial => items.iter().any(|item| has_members(item, wanted)),
        _ => items.contains(wanted),
    })
}

/// Whether a value is an object with all the wanted members. Nested values are compared whole.
fn has_members(item: &Value, wanted: &Object) -> bool {
    item.as_object().is_some_and(|item| wanted.iter().all(|(name, value)| item.get(name) == Some(value)))
}

fn contains_any<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    let Some(found) = search_each(context, arguments, true)? else { return Ok(None) };
    Ok(any_of(found.into_iter()).and_then(owned))
}

fn contains_all<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    let Some(found) = search_each(context, arguments, false)? else { return Ok(None) };
    Ok(all_of(found.into_iter()).and_then(owned))
}

/// Whether each of the values after the array is in it, up to the first answer that decides.
fn search_each(
    context: &Context<'_>,
    arguments: &[Operand<'_>],
    deciding: bool,
) -> Result<Option<Vec<Option<bool>>>, EvalError> {
    let Some(items) = array(arguments, 0) else { return Ok(None) };
    let mut found = Vec::with_capacity(arguments.len() - 1);
    for wanted in &arguments[1..] {
        let is_found = match wanted.as_deref() {
            // What is undefined is neither found nor missing.
            None => None,
            Some(wanted) => {
                context.steps(search_steps(items, wanted))?;
                Some(items.contains(wanted))
            }
        };
        found.push(is_found);
        if is_found == Some(deciding) {
            break;
        }
    }
    Ok(Some(found))
}

fn length(arguments: &[Operand<'_>]) -> Option<i64> {
    i64::try_from(array(arguments, 0)?.len()).ok()
}

fn slice(arguments: &[Operand<'_>]) -> Option<Vec<Value>> {
    let items = array(arguments, 0)?;
    let start = integer(arguments, 1)?;
    let count_max = optional(arguments, 2, integer)?.unwrap_or(i64::MAX);
    let length = i64::try_from(items.len()).ok()?;
    // A negative start counts from the end.
    let start = if start < 0 { length.saturating_add(start).max(0) } else { start.min(length) };
    let end = start.saturating_add(count_max.max(0)).min(length);
    Some(items[usize::try_from(start).ok()?..usize::try_from(end).ok()?].to_vec())
}

/// The elements as doubles, if all are numbers.
fn doubles(arguments: &[Operand<'_>]) -> Option<Vec<f64>> {
    array(arguments, 0)?.iter().map(|item| Some(item.as_number()?.as_f64())).collect()
}

fn sum(arguments: &[Operand<'_>]) -> Option<f64> {
    // The sum of an empty array is undefined.
    doubles(arguments)?.into_iter().reduce(|total, item| total + item)
}

#[expect(clippy::cast_precision_loss, reason = "arrays are far shorter than 2^53")]
fn average(arguments: &[Operand<'_>]) -> Option<f64> {
    let items = doubles(arguments)?;
    (!items.is_empty()).then(|| items.iter().sum::<f64>() / items.len() as f64)
}

fn median(arguments: &[Operand<'_>]) -> Option<f64> {
    let mut items = doubles(arguments)?;
    items.sort_unstable_by(f64::total_cmp);
    let upper = *items.get(items.len() / 2)?;
    if items.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(items[items.len() / 2 - 1], upper))
}

fn extreme(arguments: &[Operand<'_>], side: Ordering) -> Option<Value> {
    let (first, rest) = array(arguments, 0)?.split_first()?;
    // Comparing the first with itself refuses an array or object that stands alone.
    compare_primitives(first, first)?;
    let mut best = first;
    for item in rest {
        // One array or object makes the whole result undefined.
        if compare_primitives(item, best)? == side {
            best = item;
        }
    }
    Some(best.clone())
}

fn from_object<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    let (Some(members), Some(key_name), Some(value_name)) =
        (object(arguments, 0), optional(arguments, 1, string), optional(arguments, 2, string))
    else {
        return Ok(None);
    };
    let (key_name, value_name) = (key_name.unwrap_or("k"), value_name.unwrap_or("v"));
    // Every pair has both names in full.
    let mut size = Size::default();
    for (name, value) in members.iter() {
        size.add(context, key_name.len() + value_name.len() + name.len() + order::bytes(value))?;
    }
    let pair = |(name, value): (&str, &Value)| {
        Value::from(Object::from_members(vec![
            (key_name.into(), name.into()),
            (value_name.into(), value.clone()),
        ]))
    };
    Ok(owned(members.iter().map(pair).collect::<Vec<Value>>()))
}
