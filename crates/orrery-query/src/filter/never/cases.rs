//! What a filter says of its terms, as a list of alternatives.
//!
//! An alternative ([`Case`]) gives each term the set of values it may have. Alternatives are joined by [`either`] and
//! intersected by [`both`], which drops the impossible ones. Both widen rather than grow without bound: the analysis may
//! overlook a contradiction but never invents one.

use std::collections::BTreeMap;

use orrery_model::Value;

use super::super::types::{ARRAY, OBJECT};
use super::super::values::Values;
use super::terms::{is_long, path_step, path_term};
use crate::program::Step;

/// The maximum number of alternatives; beyond that a filter counts as possible.
const ALTERNATIVES_MAX: usize = 128;

/// One alternative: the values that each term may have. A term it does not mention may have any.
pub(super) type Case = BTreeMap<String, Values>;

/// No restriction: one alternative that mentions no term.
pub(super) fn anything() -> Vec<Case> {
    vec![Case::new()]
}

/// A contradiction: no alternative is left.
pub(super) fn nothing() -> Vec<Case> {
    Vec::new()
}

/// The cases in which both hold.
pub(super) fn both(mut left: Vec<Case>, right: &[Case]) -> Vec<Case> {
    // Conditions joined by AND give one alternative each, by far the most: it is extended where it is.
    if let ([only], [further]) = (left.as_mut_slice(), right) {
        return if restrict(only, further) { left } else { nothing() };
    }
    if let [only] = right
        && only.is_empty()
    {
        return left;
    }
    let mut combined = Vec::new();
    for a in &left {
        for b in right {
            let mut case = a.clone();
            if !restrict(&mut case, b) {
                continue;
            }
            combined.push(case);
            if combined.len() > ALTERNATIVES_MAX {
                // One side alone is still a necessary condition.
                return left;
            }
        }
    }
    combined
}

/// Adds the restrictions of another alternative; false if no value is left for some term, so that both cannot hold.
fn restrict(case: &mut Case, further: &Case) -> bool {
    further.iter().all(|(term, values)| {
        if let Some(known) = case.get_mut(term) {
            *known = known.meet(values);
            return !known.is_empty();
        }
        case.insert(term.clone(), values.clone());
        !values.is_empty()
    })
}

/// The cases in which one of them holds. An alternative without restrictions makes the others irrelevant.
pub(super) fn either(mut left: Vec<Case>, right: Vec<Case>) -> Vec<Case> {
    left.extend(right);
    if left.len() > ALTERNATIVES_MAX || left.iter().any(BTreeMap::is_empty) { anything() } else { left }
}

/// The cases in which the value at a path is one of these. A value there implies an object at the parent of each
/// property and an array at the parent of each element.
pub(super) fn path_cases(slot: usize, steps: &[Step], values: Values, defined: bool) -> Vec<Case> {
    let mut cases = vec![Case::from([(path_term(slot, steps), values)])];
    if defined {
        for (count, step) in steps.iter().enumerate() {
            let kind = if matches!(step, Step::Name(_)) { OBJECT } else { ARRAY };
            let base = Case::from([(path_term(slot, &steps[..count]), Values::of_types(kind))]);
            cases = both(cases, &[base]);
        }
    }
    cases
}

/// Whether the values of an array or object agree with those of its own elements and members: `c.a = {"b": 1} AND
/// c.a.b = 2` is a contradiction between two terms.
pub(super) fn is_consistent(case: &Case) -> bool {
    case.iter().all(|(term, values)| {
        let Some(listed) = values.only_containers() else {
            return true;
        };
        let parts: Vec<(&str, &Values)> = case
            .iter()
            .filter_map(|(other, values)| Some((other.strip_prefix(term.as_str())?, values)))
            .filter(|(step, _)| !step.is_empty())
            .collect();
        parts.is_empty()
            || listed.iter().any(|value| parts.iter().all(|(step, wanted)| fits(value, step, wanted)))
    })
}

/// Whether the part of a value under one step may be among these. Longer paths are not followed.
fn fits(value: &Value, step: &str, wanted: &Values) -> bool {
    let part = match value {
        Value::Object(object) if step.starts_with('.') => {
            object.iter().find_map(|(name, value)| (path_step(name) == step).then_some(value))
        }
        Value::Array(items) if step.starts_with('[') => {
            let index = step[1..].strip_suffix(']').and_then(|index| index.parse::<usize>().ok());
            match index {
                Some(index) => items.get(index),
                // Not a single index: nothing is known of it.
                None => return true,
            }
        }
        _ => None,
    };
    match part {
        Some(part) => !wanted.meet(&Values::one_of(std::iter::once(part))).is_empty(),
        None => wanted.has_undefined() || is_long(step),
    }
}
