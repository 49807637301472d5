//! Evaluates expressions over bound rows.
//!
//! Document values are borrowed throughout: a filter allocates nothing unless it computes strings or containers. Only
//! what the language defines as an error is one; wrong types yield undefined.

pub(crate) mod group;
pub(crate) mod subquery;

use std::borrow::Cow;
use std::cmp::Ordering;

use orrery_model::{Object, Value};

use crate::ast::{BinaryOperator, LogicalOperator};
use crate::context::Context;
use crate::error::EvalError;
use crate::like::Pattern;
use crate::limits;
use crate::operand::{Operand, borrowed, owned};
use crate::operator;
use crate::order;
use crate::program::{FunctionCall, Members, Node, Projection, Step};

/// The values bound to slots, innermost first.
#[derive(Clone, Copy, Default)]
pub(crate) struct Env<'e> {
    parent: Option<&'e Env<'e>>,
    slots: &'e [usize],
    values: &'e [Operand<'e>],
}

impl<'e> Env<'e> {
    /// Binds more slots on top of another environment.
    pub(crate) fn bind(parent: &'e Env<'e>, slots: &'e [usize], values: &'e [Operand<'e>]) -> Self {
        Self { parent: Some(parent), slots, values }
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&'e Value> {
        let mut env = *self;
        loop {
            // Few slots are bound at each level, so they are simply searched.
            if let Some(place) = env.slots.iter().position(|known| *known == slot) {
                return env.values.get(place).and_then(Option::as_deref);
            }
            env = *env.parent?;
        }
    }
}

type Evaluated<'e> = Result<Operand<'e>, EvalError>;

/// The value of an expression.
pub(crate) fn evaluate<'e>(node: &'e Node, env: Env<'e>, context: &Context<'_>) -> Evaluated<'e> {
    match node {
        Node::Constant(value) => Ok(value.as_ref().map(Cow::Borrowed)),
        Node::Slot(slot) => Ok(env.get(*slot).map(Cow::Borrowed)),
        Node::Path { slot, steps } => match env.get(*slot) {
            Some(value) => Ok(walk(value, steps, context)?.map(Cow::Borrowed)),
            None => Ok(None),
        },
        Node::Member { .. } | Node::Element { .. } => member(node, env, context),
        Node::Array(items) => array(items, env, context),
        Node::Object(members) => object(members, env, context).map(owned),
        Node::Unary { operator, operand } => {
            let operand = evaluate(operand, env, context)?;
            Ok(operator::unary(*operator, operand.as_deref()).map(Cow::Owned))
        }
        Node::Binary { operator, left, right } => binary(*operator, left, right, env, context),
        Node::Logical { operator, operands } => logical(*operator, operands, env, context),
        Node::Conditional(parts) => {
            // Anything but true takes the second branch, undefined included.
            let chosen = usize::from(!is_true(&parts[0], env, context)?) + 1;
            evaluate(&parts[chosen], env, context)
        }
        Node::Between { not, operands } => between(*not, operands, env, context),
        Node::In { not, operand, members } => membership(*not, operand, members, env, context),
        Node::Like { not, operands, escape, pattern } => {
            like(*not, operands, *escape, pattern.as_ref(), env, context)
        }
        Node::Call(call) => function(call, env, context),
        Node::Udf { name, arguments } => udf(name, arguments, env, context),
        Node::Subquery { kind, block } => Ok(subquery::evaluate(*kind, block, env, context)?.map(Cow::Owned)),
        Node::Let { slot, value, body } => binding(*slot, value, body, env, context),
    }
}

/// `(LET name = value IN body)`. The result may borrow from the value, so it is copied.
#[inline(never)]
fn binding<'e>(
    slot: usize,
    value: &'e Node,
    body: &'e Node,
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    let (slots, values) = ([slot], [evaluate(value, env, context)?]);
    let result = evaluate(body, Env::bind(&env, &slots, &values), context)?;
    Ok(result.map(|value| Cow::Owned(value.into_owned())))
}

/// Whether an expression is exactly `true`.
pub(crate) fn is_true(node: &Node, env: Env<'_>, context: &Context<'_>) -> Result<bool, EvalError> {
    Ok(matches!(evaluate(node, env, context)?.as_deref(), Some(Value::Bool(true))))
}

/// The row of a projection; undefined yields none.
pub(crate) fn project(
    projection: &Projection,
    env: Env<'_>,
    context: &Context<'_>,
) -> Result<Option<Value>, EvalError> {
    match projection {
        Projection::Row(slot) => env.get(*slot).map(|value| copied(value, context)).transpose(),
        Projection::Value(node) => match evaluate(node, env, context)? {
            // What was computed has been counted while it was built. What is borrowed from the row is copied
            // only here.
            Some(Cow::Borrowed(value)) => copied(value, context).map(Some),
            value => Ok(value.map(Cow::into_owned)),
        },
        Projection::Columns(columns) => object(columns, env, context).map(|object| Some(object.into())),
    }
}

/// Copies a value, counting its size as work.
fn copied(value: &Value, context: &Context<'_>) -> Result<Value, EvalError> {
    context.bytes(order::bytes(value))?;
    Ok(value.clone())
}

/// Whether a projection yields a row, without building it.
pub(crate) fn projects(
    projection: &Projection,
    env: Env<'_>,
    context: &Context<'_>,
) -> Result<bool, EvalError> {
    match projection {
        Projection::Row(slot) => Ok(env.get(*slot).is_some()),
        Projection::Value(node) => Ok(evaluate(node, env, context)?.is_some()),
        Projection::Columns(_) => Ok(true),
    }
}

fn walk<'v>(
    mut value: &'v Value,
    steps: &[Step],
    context: &Context<'_>,
) -> Result<Option<&'v Value>, EvalError> {
    /// Up to this many members, finding a name is not counted as work.
    const FEW_MEMBERS: usize = 64;
    for step in steps {
        let next = match (step, value) {
            (Step::Name(name), Value::Object(object)) => {
                if object.len() > FEW_MEMBERS {
                    context.steps(object.len() as u64 / 4)?;
                }
                object.get(name)
            }
            (Step::Index(index), Value::Array(items)) => items.get(*index),
            _ => None,
        };
        let Some(next) = next else { return Ok(None) };
        value = next;
    }
    Ok(Some(value))
}

#[inline(never)]
fn member<'e>(node: &'e Node, env: Env<'e>, context: &Context<'_>) -> Evaluated<'e> {
    let (base, step) = match node {
        Node::Member { base, name } => (base, Step::Name(name.clone())),
        Node::Element { base, index } => (base, Step::Index(*index)),
        _ => return Ok(None),
    };
    Ok(match evaluate(base, env, context)? {
        Some(Cow::Borrowed(value)) => walk(value, std::slice::from_ref(&step), context)?.map(Cow::Borrowed),
        // A computed value is taken apart instead of copied.
        Some(Cow::Owned(value)) => match (value, step) {
            (Value::Object(mut object), Step::Name(name)) => object.remove(&name).map(Cow::Owned),
            (Value::Array(mut items), Step::Index(index)) if index < items.len() => {
                // The rest of the array is dropped, so its order does not matter.
                Some(Cow::Owned(items.swap_remove(index)))
            }
            _ => None,
        },
        None => None,
    })
}

#[inline(never)]
fn array<'e>(items: &'e [Node], env: Env<'e>, context: &Context<'_>) -> Evaluated<'e> {
    let mut values = Vec::with_capacity(items.len());
    let mut size = Size::default();
    for item in items {
        // Undefined items are left out, like undefined members of an object.
        if let Some(value) = evaluate(item, env, context)? {
            context.bytes(size.add(&value)?)?;
            values.push(value.into_owned());
        }
    }
    Ok(owned(values))
}

#[inline(never)]
fn object(members: &[(Box<str>, Node)], env: Env<'_>, context: &Context<'_>) -> Result<Object, EvalError> {
    let mut values = Vec::with_capacity(members.len());
    let mut size = Size::default();
    for (name, node) in members {
        if let Some(value) = evaluate(node, env, context)? {
            context.bytes(size.add(&value)?)?;
            values.push((name.clone(), value.into_owned()));
        }
    }
    Ok(Object::from_members(values))
}

/// Sums what a constructor copies. A short query can repeat a large property many times, and nest that: without a limit
/// this would exhaust memory.
#[derive(Default)]
struct Size(usize);

impl Size {
    /// Returns the size of the value.
    fn add(&mut self, value: &Value) -> Result<usize, EvalError> {
        let bytes = order::bytes(value);
        self.0 += bytes;
        if self.0 > limits::VALUE_BYTES_MAX {
            return Err(EvalError::ValueTooLarge { limit: limits::VALUE_BYTES_MAX });
        }
        Ok(bytes)
    }
}

#[inline(never)]
fn binary<'e>(
    operator: BinaryOperator,
    left: &'e Node,
    right: &'e Node,
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    context.steps(1)?;
    let left = evaluate(left, env, context)?;
    // The right side is evaluated only if it is needed: it may be expensive, or fail.
    if operator == BinaryOperator::Coalesce {
        return if left.is_some() { Ok(left) } else { evaluate(right, env, context) };
    }
    let right = evaluate(right, env, context)?;
    if let (BinaryOperator::Concat, Some(Value::String(left)), Some(Value::String(right))) =
        (operator, left.as_deref(), right.as_deref())
    {
        // Checked before the string is built: nested concatenations double its size each time.
        context.bytes(left.len() + right.len())?;
        if left.len() + right.len() > limits::VALUE_BYTES_MAX {
            return Err(EvalError::ValueTooLarge { limit: limits::VALUE_BYTES_MAX });
        }
    }
    if let (Some(left), Some(right)) = (left.as_deref(), right.as_deref()) {
        // Counted beforehand, because the comparison itself cannot be interrupted.
        context.steps(compared(left, right))?;
    }
    Ok(match (left.as_deref(), right.as_deref()) {
        (Some(left), Some(right)) => operator::binary(operator, left, right).map(Cow::Owned),
        _ => None,
    })
}

/// Three-valued AND and OR: the deciding value wins in any position.
#[inline(never)]
fn logical<'e>(
    operator: LogicalOperator,
    operands: &'e [Node],
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    context.steps(1)?;
    let deciding = operator == LogicalOperator::Or;
    let mut known = true;
    for operand in operands {
        match evaluate(operand, env, context)?.as_deref() {
            // The operands after a deciding one, and their errors, are not reached.
            Some(Value::Bool(flag)) if *flag == deciding => return Ok(owned(deciding)),
            Some(Value::Bool(_)) => {}
            // Undefined, or not Boolean: only a deciding operand further on gives a result.
            _ => known = false,
        }
    }
    Ok(if known { owned(!deciding) } else { None })
}

#[inline(never)]
fn between<'e>(not: bool, operands: &'e [Node; 3], env: Env<'e>, context: &Context<'_>) -> Evaluated<'e> {
    let value = evaluate(&operands[0], env, context)?;
    let low = evaluate(&operands[1], env, context)?;
    let high = evaluate(&operands[2], env, context)?;
    for bound in [&low, &high] {
        if let (Some(value), Some(bound)) = (value.as_deref(), bound.as_deref()) {
            context.steps(1 + compared(value, bound))?;
        }
    }
    let holds = |bound: Operand<'_>, holds: fn(Ordering) -> bool| {
        operator::compare(value.as_deref()?, bound.as_deref()?, holds)
    };
    // Like an AND of two comparisons: one that is false decides, even if the other is undefined.
    let inside = match (holds(low, Ordering::is_ge), holds(high, Ordering::is_le)) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    };
    Ok(inside.and_then(|inside| owned(inside != not)))
}

#[inline(never)]
fn membership<'e>(
    not: bool,
    operand: &'e Node,
    members: &'e Members,
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    /// Fewer members than this are compared one by one.
    const LINEAR_MAX: usize = 8;
    let Some(value) = evaluate(operand, env, context)? else {
        // NOT IN over undefined is undefined, not true.
        return Ok(None);
    };
    context.bytes(order::bytes(&value))?;
    let found = match members {
        Members::Constant { values, .. } if values.len() <= LINEAR_MAX => values.contains(&*value),
        Members::Constant { set, .. } => set.contains(&value),
        Members::Computed(nodes) => {
            let mut found = false;
            for node in nodes {
                let member = evaluate(node, env, context)?;
                context.steps(1 + member.as_deref().map_or(0, |member| compared(member, &value)))?;
                if member.as_deref() == Some(&*value) {
                    found = true;
                    break;
                }
            }
            found
        }
    };
    Ok(owned(found != not))
}

#[inline(never)]
fn like<'e>(
    not: bool,
    operands: &'e [Node; 2],
    escape: Option<char>,
    pattern: Option<&Pattern>,
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    let text = evaluate(&operands[0], env, context)?;
    let Some(text) = text.as_deref().and_then(Value::as_str) else {
        return Ok(None);
    };
    if let Some(pattern) = pattern {
        // Parsed when the query was compiled.
        return matched(pattern, text, not, context);
    }
    let pattern = evaluate(&operands[1], env, context)?;
    let Some(pattern) = pattern.as_deref().and_then(Value::as_str) else {
        return Ok(None);
    };
    context.bytes(pattern.len())?;
    matched(&Pattern::parse(pattern, escape), text, not, context)
}

fn matched<'e>(pattern: &Pattern, text: &str, not: bool, context: &Context<'_>) -> Evaluated<'e> {
    let matched = pattern.matches(text, limits::LIKE_STEPS_MAX, &mut |steps| context.steps(steps))?;
    Ok(owned(matched.ok_or(EvalError::WorkExceeded)? != not))
}

#[inline(never)]
fn function<'e>(call: &'e FunctionCall, env: Env<'e>, context: &Context<'_>) -> Evaluated<'e> {
    let mut operands = Vec::with_capacity(call.arguments.len());
    // Undefined arguments are passed on: some functions are about them.
    for argument in &call.arguments {
        operands.push(evaluate(argument, env, context)?);
    }
    context.steps(1 + operands.iter().flatten().map(|operand| weight(operand)).sum::<u64>())?;
    let mut narrowed = *context;
    if let Some(distance) = call.distance {
        narrowed.distance = distance;
    }
    if let Some(path) = &call.path {
        narrowed.language = context.policies.language(path);
    }
    // The operands were weighed before the call, but a short call can have a long result.
    let result = (call.function.body)(&narrowed, &operands)?;
    if let Some(Cow::Owned(value)) = &result {
        context.bytes(Size::default().add(value)?)?;
    }
    Ok(result)
}

/// The approximate work of a function that reads a whole operand: by bytes for strings, by members for arrays and
/// objects. Functions with superlinear work count the rest themselves.
fn weight(operand: &Value) -> u64 {
    match operand {
        Value::String(text) => text.len() as u64 / 32,
        Value::Array(items) => items.len() as u64 / 2,
        Value::Object(members) => members.len() as u64 / 2,
        _ => 0,
    }
}

/// An upper bound of the work of comparing two values beyond one step: only values of the same type are compared
/// deeply.
fn compared(left: &Value, right: &Value) -> u64 {
    match (left, right) {
        (Value::String(left), Value::String(right)) => left.len().min(right.len()) as u64 / 64,
        (Value::Array(left), Value::Array(right)) => {
            left.iter().zip(right).map(|(left, right)| 1 + compared(left, right)).sum()
        }
        // Members are found by hashing their names, where they are not in the same order.
        (Value::Object(left), Value::Object(right)) if left.len() == right.len() => left
            .iter()
            .zip(right.iter())
            .map(|((name, left), (_, right))| {
                4 + name.len() as u64 / 16 + compared(left, right).max(weight(left))
            })
            .sum(),
        _ => 0,
    }
}

#[inline(never)]
fn udf<'e>(name: &str, arguments: &'e [Node], env: Env<'e>, context: &Context<'_>) -> Evaluated<'e> {
    let caller = context.udf.ok_or(EvalError::UdfUnavailable)?;
    let mut values = Vec::with_capacity(arguments.len());
    for argument in arguments {
        // Documented: with an undefined argument the function is not called.
        let Some(value) = evaluate(argument, env, context)? else {
            return Ok(None);
        };
        values.push(value.into_owned());
    }
    Ok(caller.call(name, &values)?.map(Cow::Owned))
}

/// Iterates the elements of an array operand, or yields the operand itself once.
pub(crate) fn for_each_row(
    operand: Operand<'_>,
    iterate: bool,
    visit: &mut dyn FnMut(Operand<'_>) -> Result<bool, EvalError>,
) -> Result<bool, EvalError> {
    let Some(value) = operand else {
        // A source without a value has no rows, iterated or not.
        return Ok(true);
    };
    if !iterate {
        return visit(Some(value));
    }
    // Values other than arrays have no elements.
    for item in value.as_array().unwrap_or(&[]) {
        if !visit(borrowed(item))? {
            return Ok(false);
        }
    }
    Ok(true)
}
