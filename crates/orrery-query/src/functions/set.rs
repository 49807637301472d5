//! Arrays as sets: deep equality, each value once.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use orrery_model::Value;

use super::arguments::array;
use super::{Evaluated, Function, computed, row_in_context};
use crate::context::Context;
use crate::operand::Operand;
use crate::order;

pub(super) static FUNCTIONS: &[Function] = &[
    row_in_context!("SETDIFFERENCE", 2..=2, None, |context, arguments| metered(
        context, arguments, difference
    )),
    row_in_context!("SETEQUAL", 2..=2, None, |context, arguments| metered(context, arguments, equal)),
    row_in_context!("SETINTERSECT", 2..=2, None, |context, arguments| metered(context, arguments, intersect)),
    row_in_context!("SETUNION", 2..=2, None, |context, arguments| metered(context, arguments, union)),
];

/// Every element is hashed to its depths, and compared once more where it is found.
fn metered<'a, T: Into<Value>>(
    context: &Context<'_>,
    arguments: &[Operand<'a>],
    run: fn(&[Operand<'_>]) -> Option<T>,
) -> Evaluated<'a> {
    for argument in arguments.iter().flatten() {
        context.steps(order::bytes(argument) as u64 / 4)?;
    }
    Ok(computed(run(arguments)))
}

fn union(arguments: &[Operand<'_>]) -> Option<Vec<Value>> {
    let (left, right) = (array(arguments, 0)?, array(arguments, 1)?);
    let mut seen = ValueSet::default();
    Some(left.iter().chain(right).filter(|item| seen.insert(item)).cloned().collect())
}

/// In the order of the shorter array, as in the service.
fn intersect(arguments: &[Operand<'_>]) -> Option<Vec<Value>> {
    let (left, right) = (array(arguments, 0)?, array(arguments, 1)?);
    let (kept, other) = if right.len() < left.len() { (right, left) } else { (left, right) };
    let (other, mut seen) = (ValueSet::of(other), ValueSet::default());
    Some(kept.iter().filter(|item| other.contains(item) && seen.insert(item)).cloned().collect())
}

fn difference(arguments: &[Operand<'_>]) -> Option<Vec<Value>> {
    let (left, right) = (array(arguments, 0)?, ValueSet::of(array(arguments, 1)?));
    let mut seen = ValueSet::default();
    Some(left.iter().filter(|item| !right.contains(item) && seen.insert(item)).cloned().collect())
}

fn equal(arguments: &[Operand<'_>]) -> Option<bool> {
    let (left, right) = (array(arguments, 0)?, array(arguments, 1)?);
    let (left_set, right_set) = (ValueSet::of(left), ValueSet::of(right));
    Some(left.iter().all(|item| right_set.contains(item)) && right.iter().all(|item| left_set.contains(item)))
}

/// Borrowed values by deep equality. Hashed, because arrays may be as long as an item allows.
#[derive(Default)]
struct ValueSet<'v> {
    buckets: HashMap<u64, Vec<&'v Value>>,
    // Seeded at random, so that clients cannot provoke collisions.
    hashing: RandomState,
}

impl<'v> ValueSet<'v> {
    fn of(values: &'v [Value]) -> Self {
        let mut set = Self::default();
        for value in values {
            set.insert(value);
        }
        set
    }

    fn contains(&self, value: &Value) -> bool {
        self.buckets.get(&self.hash(value)).is_some_and(|bucket| bucket.contains(&value))
    }

    fn insert(&mut self, value: &'v Value) -> bool {
        let bucket = self.buckets.entry(hash(&self.hashing, value)).or_default();
        let is_new = !bucket.contains(&value);
        if is_new {
            bucket.push(value);
        }
        is_new
    }

    fn hash(&self, value: &Value) -> u64 {
        hash(&self.hashing, value)
    }
}

/// Equal values hash alike: numbers as doubles, objects whatever the order of their members.
fn hash(hashing: &RandomState, value: &Value) -> u64 {
    let mut hasher = hashing.build_hasher();
    match value {
        Value::Null => hasher.write_u8(0),
        Value::Bool(flag) => hasher.write_u8(1 + u8::from(*flag)),
        Value::Number(number) => {
            hasher.write_u8(3);
            // Adding zero makes one zero of the two.
            hasher.write_u64((number.as_f64() + 0.0).to_bits());
        }
        Value::String(text) => {
            hasher.write_u8(4);
            hasher.write(text.as_bytes());
        }
        Value::Array(items) => {
            hasher.write_u8(5);
            for item in items {
                hasher.write_u64(hash(hashing, item));
            }
        }
        Value::Object(members) => {
            hasher.write_u8(6);
            // A sum does not depend on the order of the members.
            let sum = members.iter().fold(0u64, |sum, (name, value)| {
                sum.wrapping_add(hashing.hash_one((name, hash(hashing, value))))
            });
            hasher.write_u64(sum);
        }
    }
    hasher.finish()
}
