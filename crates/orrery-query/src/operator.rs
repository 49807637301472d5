//! The operators, by the types of their operands.

use std::cmp::Ordering;

use orrery_model::{Number, Value};

use crate::ast::{BinaryOperator, UnaryOperator};

pub(crate) fn unary(operator: UnaryOperator, operand: Option<&Value>) -> Option<Value> {
    match (operator, operand?) {
        (UnaryOperator::Not, Value::Bool(flag)) => Some((!flag).into()),
        (UnaryOperator::Minus, Value::Number(number)) => Some((-number.as_f64()).into()),
        (UnaryOperator::Plus, Value::Number(number)) => Some(Value::Number(*number)),
        (UnaryOperator::BitNot, Value::Number(number)) => Some(i64::from(!to_int32(*number)).into()),
        _ => None,
    }
}

pub(crate) fn binary(operator: BinaryOperator, left: &Value, right: &Value) -> Option<Value> {
    use BinaryOperator as B;
    match operator {
        // Across types equality is false, not undefined: filters such as `c.x != null` rely on it.
        B::Equal => Some((left == right).into()),
        B::NotEqual => Some((left != right).into()),
        B::Less => relation(left, right, Ordering::is_lt),
        B::LessOrEqual => relation(left, right, Ordering::is_le),
        B::Greater => relation(left, right, Ordering::is_gt),
        B::GreaterOrEqual => relation(left, right, Ordering::is_ge),
        B::Concat => match (left, right) {
            (Value::String(left), Value::String(right)) => Some([&**left, &**right].concat().into()),
            _ => None,
        },
        // The evaluator handles undefined operands, so here the left one has a value.
        B::Coalesce => Some(left.clone()),
        _ => match (left, right) {
            (Value::Number(left), Value::Number(right)) => Some(arithmetic(operator, *left, *right)),
            _ => None,
        },
    }
}

/// Compares two values of the same scalar type; anything else is undefined. NaN is unordered.
fn relation(left: &Value, right: &Value, holds: fn(Ordering) -> bool) -> Option<Value> {
    compare(left, right, holds).map(Value::from)
}

pub(crate) fn compare(left: &Value, right: &Value, holds: fn(Ordering) -> bool) -> Option<bool> {
    match (left, right) {
        (Value::Null, Value::Null) => Some(holds(Ordering::Equal)),
        (Value::Bool(left), Value::Bool(right)) => Some(holds(left.cmp(right))),
        (Value::Number(left), Value::Number(right)) => Some(left.partial_cmp(right).is_some_and(holds)),
        (Value::String(left), Value::String(right)) => Some(holds(left.cmp(right))),
        _ => None,
    }
}

fn arithmetic(operator: BinaryOperator, left: Number, right: Number) -> Value {
    use BinaryOperator as B;
    let (a, b) = (left.as_f64(), right.as_f64());
    match operator {
        B::Add => (a + b).into(),
        B::Subtract => (a - b).into(),
        B::Multiply => (a * b).into(),
        B::Divide => (a / b).into(),
        // Integers keep precision beyond that of doubles.
        B::Modulo => match (left, right) {
            // Wrapping, because the lowest integer modulo -1 overflows.
            (Number::Int(a), Number::Int(b)) if b != 0 => a.wrapping_rem(b).into(),
            _ => (a % b).into(),
        },
        B::BitAnd => i64::from(to_int32(left) & to_int32(right)).into(),
        B::BitOr => i64::from(to_int32(left) | to_int32(right)).into(),
        B::BitXor => i64::from(to_int32(left) ^ to_int32(right)).into(),
        B::ShiftLeft => i64::from(to_int32(left).wrapping_shl(shift_count(right))).into(),
        B::ShiftRight => i64::from(to_int32(left).wrapping_shr(shift_count(right))).into(),
        _ => i64::from(to_int32(left).cast_unsigned().wrapping_shr(shift_count(right))).into(),
    }
}

/// The shift count: only its low five bits matter.
fn shift_count(number: Number) -> u32 {
    to_int32(number).cast_unsigned() & 31
}

/// The low 32 bits of the truncated number, as JavaScript converts for bit operators.
#[expect(clippy::cast_possible_truncation, reason = "the value was reduced modulo 2^32")]
#[expect(clippy::cast_sign_loss, reason = "rem_euclid gives nothing negative")]
fn to_int32(number: Number) -> i32 {
    let value = number.as_f64();
    if !value.is_finite() {
        return 0;
    }
    (value.trunc().rem_euclid(4_294_967_296.0) as u64 as u32).cast_signed()
}
