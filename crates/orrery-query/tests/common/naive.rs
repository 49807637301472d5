//! Queries evaluated from their trees, as plainly as possible: no slots, no folding, no pipeline, no plan. Only the
//! bodies of functions are shared with what is tested.

use std::borrow::Cow;
use std::cmp::Ordering;

use orrery_model::{Number, Object, Value};
use orrery_query::aggregate::Aggregate;
use orrery_query::ast::{
    BinaryOperator, Call, Collection, Direction, Expr, ExprKind, Literal, LogicalOperator, Query, Selection,
    Source, Step, SubqueryKind, UnaryOperator, column_names,
};
use orrery_query::context::Context;
use orrery_query::error::EvalError;
use orrery_query::like::Pattern;
use orrery_query::{functions, order};

/// Why there is no answer.
#[derive(Debug)]
pub enum Stop {
    /// This evaluator does not know it.
    Unknown,
    Eval(EvalError),
    /// A scalar subquery has several rows.
    Several,
}

type Answer<T> = Result<T, Stop>;

/// Names and their values, inner ones last.
type Scope = Vec<(String, Option<Value>)>;

pub struct Naive<'n> {
    pub documents: &'n [Value],
    pub parameters: &'n [(String, Value)],
    pub context: &'n Context<'n>,
}

/// Whether an answer depends on more than the documents, or on policies.
fn is_unknown(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    [
        "RAND",
        "GETCURRENT",
        "NOW",
        "AGO",
        "VECTORDISTANCE",
        "_VECTORSCORE",
        "FULLTEXTSCORE",
        "_FULLTEXT",
        "RRF",
    ]
    .iter()
    .any(|known| name.starts_with(known))
}

impl Naive<'_> {
    pub fn run(&self, query: &Query) -> Answer<Vec<Value>> {
        if query.order_by.as_ref().is_some_and(|order_by| order_by.rank) {
            return Err(Stop::Unknown);
        }
        self.rows(query, &Vec::new(), true)
    }

    fn rows(&self, query: &Query, outer: &Scope, reads_root: bool) -> Answer<Vec<Value>> {
        let mut scopes = vec![(outer.clone(), None)];
        let sources = query.from.as_ref().map_or(&[][..], |from| &from.sources);
        for (place, source) in sources.iter().enumerate() {
            let mut joined = Vec::new();
            for (scope, row) in scopes {
                let known = |name: &str| scope.iter().any(|(known, _)| known == name);
                // A row under its own name binds nothing new.
                let repeats = match &source.collection {
                    Collection::Path { root, steps } => {
                        steps.is_empty() && !source.iterate && known(&root.text) && row.is_some()
                    }
                    Collection::Subquery(_) => false,
                };
                for value in self.source(source, &scope, reads_root && place == 0)? {
                    let mut scope = scope.clone();
                    if let Some(name) = name_of(source) {
                        scope.push((name, Some(value.clone())));
                    }
                    joined.push((scope, if repeats { row.clone() } else { Some(value) }));
                }
            }
            scopes = joined;
        }
        let mut kept = Vec::new();
        for (scope, row) in scopes {
            let holds = match &query.filter {
                Some(filter) => self.value(filter, &scope, None)? == Some(Value::Bool(true)),
                None => true,
            };
            if holds {
                kept.push((scope, row));
            }
        }
        let sorted = query.order_by.as_ref().map_or(&[][..], |order_by| &order_by.items);
        let grouped = !query.group_by.is_empty()
            || selected(query).into_iter().chain(sorted.iter().map(|item| &item.expr)).any(has_aggregate);
        // Each output row: what names mean, the row of `SELECT *`, the group.
        let mut outputs: Vec<(Scope, Option<Value>, Option<Vec<Scope>>)> = Vec::new();
        if grouped {
            let mut keys: Vec<Vec<Option<Value>>> = Vec::new();
            if query.group_by.is_empty() {
                keys.push(Vec::new());
                outputs.push((outer.clone(), None, Some(Vec::new())));
            }
            for (scope, row) in kept {
                let key = query
                    .group_by
                    .iter()
                    .map(|key| self.value(key, &scope, None))
                    .collect::<Answer<Vec<_>>>()?;
                let group = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
                    keys.push(key);
                    outputs.push((scope.clone(), row.clone(), Some(Vec::new())));
                    outputs.len() - 1
                });
                let (first, first_row, members) = &mut outputs[group];
                if members.as_ref().unwrap().is_empty() {
                    (*first, *first_row) = (scope.clone(), row);
                }
                members.as_mut().unwrap().push(scope);
            }
        } else {
            outputs.extend(kept.into_iter().map(|(scope, row)| (scope, row, None)));
        }
        let mut listed: Vec<(Vec<Option<Value>>, Value)> = Vec::new();
        for (scope, row, group) in outputs {
            let group = group.as_deref();
            let keys = sorted
                .iter()
                .map(|item| self.value(&item.expr, &scope, group))
                .collect::<Answer<Vec<_>>>()?;
            let value = match &query.select.selection {
                Selection::Star(_) => row,
                Selection::Value(value) => self.value(value, &scope, group)?,
                Selection::List(items) => {
                    let mut object = Object::new();
                    for (name, item) in column_names(items).into_iter().zip(items) {
                        if let Some(value) = self.value(&item.expr, &scope, group)? {
                            object.set(name.as_str(), value);
                        }
                    }
                    Some(object.into())
                }
            };
            listed.extend(value.map(|value| (keys, value)));
        }
        listed.sort_by(|(a, _), (b, _)| {
            let each = a.iter().zip(b).zip(sorted).map(|((a, b), item)| {
                let ordering = order::compare(a.as_ref(), b.as_ref());
                if item.direction == Some(Direction::Descending) { ordering.reverse() } else { ordering }
            });
            each.fold(Ordering::Equal, Ordering::then)
        });
        let mut rows: Vec<Value> = Vec::new();
        for (_, value) in listed {
            if !query.select.distinct || !rows.contains(&value) {
                rows.push(value);
            }
        }
        Ok(rows)
    }

    fn source(&self, source: &Source, scope: &Scope, reads_root: bool) -> Answer<Vec<Value>> {
        let values: Vec<Value> = match &source.collection {
            Collection::Path { root, steps } => {
                let known = scope.iter().rev().find(|(name, _)| **name == *root.text);
                let roots: Vec<Value> = match known {
                    Some((_, value)) => value.iter().cloned().collect(),
                    None if reads_root => self.documents.to_vec(),
                    None => return Err(Stop::Unknown),
                };
                let walk = |value: Value| steps.iter().try_fold(value, |value, step| step_into(&value, step));
                roots.into_iter().filter_map(walk).collect()
            }
            Collection::Subquery(query) => self.rows(query, scope, reads_root)?,
        };
        if !source.iterate {
            return Ok(values);
        }
        Ok(values.iter().filter_map(Value::as_array).flatten().cloned().collect())
    }

    /// The value of an expression over one row, or over a group of rows.
    fn value(&self, expr: &Expr, scope: &Scope, group: Option<&[Scope]>) -> Answer<Option<Value>> {
        let of = |expr: &Expr| self.value(expr, scope, group);
        Ok(match &expr.kind {
            ExprKind::Literal(literal) => match literal {
                Literal::Undefined => None,
                Literal::Null => Some(Value::Null),
                Literal::Bool(flag) => Some((*flag).into()),
                Literal::Number(number) => Some(Value::Number(*number)),
                Literal::String(text) => Some(Value::String(text.clone())),
            },
            ExprKind::Identifier(name) => {
                scope.iter().rev().find(|(known, _)| **known == **name).and_then(|(_, value)| value.clone())
            }
            ExprKind::Parameter(name) => {
                self.parameters.iter().find(|(known, _)| **known == **name).map(|(_, value)| value.clone())
            }
            ExprKind::Member { base, name, .. } => of(base)?.and_then(|base| base.get(&name.text).cloned()),
            ExprKind::Index { base, index } => match (of(base)?, of(index)?) {
                (Some(base), Some(Value::String(name))) => base.get(&name).cloned(),
                (Some(base), Some(Value::Number(number))) => step_into(&base, &Step::Index(number)),
                _ => None,
            },
            ExprKind::Array(items) => {
                let values = items.iter().map(of).collect::<Answer<Vec<_>>>()?;
                Some(Value::Array(values.into_iter().flatten().collect()))
            }
            ExprKind::Object(members) => {
                let mut object = Object::new();
                for (name, value) in members {
                    if let Some(value) = of(value)? {
                        object.set(&*name.text, value);
                    }
                }
                Some(object.into())
            }
            ExprKind::Unary { operator, operand } => match (operator, of(operand)?) {
                (UnaryOperator::Not, Some(Value::Bool(flag))) => Some((!flag).into()),
                (UnaryOperator::Minus, Some(Value::Number(number))) => Some((-number.as_f64()).into()),
                (UnaryOperator::Plus, Some(Value::Number(number))) => Some(Value::Number(number)),
                (UnaryOperator::BitNot, Some(Value::Number(number))) => Some(i64::from(!bits(number)).into()),
                _ => None,
            },
            ExprKind::Binary { operator: BinaryOperator::Coalesce, left, right } => match of(left)? {
                Some(value) => Some(value),
                None => of(right)?,
            },
            ExprKind::Binary { operator, left, right } => match (of(left)?, of(right)?) {
                (Some(left), Some(right)) => binary(*operator, &left, &right),
                _ => None,
            },
            ExprKind::Logical { operator, operands } => {
                let deciding = *operator == LogicalOperator::Or;
                let mut all_known = true;
                for operand in operands {
                    match of(operand)? {
                        Some(Value::Bool(flag)) if flag == deciding => return Ok(Some(deciding.into())),
                        Some(Value::Bool(_)) => {}
                        _ => all_known = false,
                    }
                }
                all_known.then(|| (!deciding).into())
            }
            ExprKind::Conditional(parts) => {
                let holds = of(&parts[0])? == Some(Value::Bool(true));
                of(&parts[if holds { 1 } else { 2 }])?
            }
            ExprKind::Between { not, operands } => {
                let [value, low, high] = [of(&operands[0])?, of(&operands[1])?, of(&operands[2])?];
                let part = |operator, bound: &Option<Value>| {
                    value
                        .as_ref()
                        .zip(bound.as_ref())
                        .and_then(|(value, bound)| binary(operator, value, bound))
                };
                let from = part(BinaryOperator::GreaterOrEqual, &low);
                let to = part(BinaryOperator::LessOrEqual, &high);
                let inside = match (from, to) {
                    (Some(Value::Bool(false)), _) | (_, Some(Value::Bool(false))) => Some(false),
                    (Some(_), Some(_)) => Some(true),
                    _ => None,
                };
                inside.map(|inside| (inside != *not).into())
            }
            ExprKind::In { not, operand, members } => match of(operand)? {
                Some(value) => {
                    let mut found = false;
                    for member in members {
                        found |= of(member)?.is_some_and(|member| member == value);
                    }
                    Some((found != *not).into())
                }
                None => None,
            },
            ExprKind::Like { not, operands, escape } => match (of(&operands[0])?, of(&operands[1])?) {
                (Some(Value::String(text)), Some(Value::String(pattern))) => {
                    let escape = escape.as_ref().and_then(|escape| escape.text.chars().next());
                    let pattern = Pattern::parse(&pattern, escape);
                    let found = pattern.matches(&text, usize::MAX, &mut |_| Ok(())).map_err(Stop::Eval)?;
                    found.map(|found| (found != *not).into())
                }
                _ => None,
            },
            ExprKind::Let { name, value, body } => {
                let mut inner = scope.clone();
                inner.push((name.text.to_string(), of(value)?));
                self.value(body, &inner, group)?
            }
            ExprKind::Call(call) => return self.call(call, scope, group),
            ExprKind::Subquery { kind, query } => return self.subquery(*kind, query, scope),
            ExprKind::Placeholder(_) => return Err(Stop::Unknown),
        })
    }

    fn call(&self, call: &Call, scope: &Scope, group: Option<&[Scope]>) -> Answer<Option<Value>> {
        if call.udf || is_unknown(&call.name.text) {
            return Err(Stop::Unknown);
        }
        if let Some(aggregate) = Aggregate::find(&call.name.text) {
            // Outside groups there is one row.
            let own = [scope.clone()];
            let mut values = Vec::new();
            for scope in group.unwrap_or(&own) {
                values.extend(self.value(&call.arguments[0], scope, None)?);
            }
            return Ok(aggregated(aggregate, values));
        }
        let function = functions::lookup(&call.name.text).ok_or(Stop::Unknown)?;
        let mut values = Vec::new();
        for argument in &call.arguments {
            values.push(self.value(argument, scope, group)?.map(Cow::Owned));
        }
        let result = (function.body)(self.context, &values).map_err(Stop::Eval)?;
        Ok(result.map(Cow::into_owned))
    }

    fn subquery(&self, kind: SubqueryKind, query: &Query, scope: &Scope) -> Answer<Option<Value>> {
        if kind == SubqueryKind::All {
            // No row for which the filter is false.
            let mut negated = query.clone();
            negated.select.selection =
                Selection::Value(Expr::new(ExprKind::Literal(Literal::Null), query.span));
            let Some(filter) = negated.filter.take() else { return Ok(Some(true.into())) };
            let operand = Box::new(filter);
            let not = ExprKind::Unary { operator: UnaryOperator::Not, operand };
            negated.filter = Some(Expr::new(not, query.span));
            return Ok(Some(self.rows(&negated, scope, false)?.is_empty().into()));
        }
        let mut rows = self.rows(query, scope, false)?;
        Ok(match kind {
            SubqueryKind::Exists => Some((!rows.is_empty()).into()),
            SubqueryKind::Array => Some(rows.into()),
            SubqueryKind::Last => rows.pop(),
            SubqueryKind::Scalar if rows.len() > 1 => return Err(Stop::Several),
            _ => rows.into_iter().next(),
        })
    }
}

fn name_of(source: &Source) -> Option<String> {
    if let Some(alias) = &source.alias {
        return Some(alias.text.to_string());
    }
    match &source.collection {
        Collection::Path { root, steps } => match steps.last() {
            None => Some(root.text.to_string()),
            Some(Step::Name(name) | Step::Quoted(name)) => Some(name.text.to_string()),
            Some(Step::Index(_)) => None,
        },
        Collection::Subquery(_) => None,
    }
}

fn step_into(value: &Value, step: &Step) -> Option<Value> {
    match step {
        Step::Name(name) | Step::Quoted(name) => value.get(&name.text).cloned(),
        Step::Index(number) => {
            let place = usize::try_from(number.as_i64()?).ok()?;
            value.as_array()?.get(place).cloned()
        }
    }
}

fn selected(query: &Query) -> Vec<&Expr> {
    match &query.select.selection {
        Selection::Star(_) => Vec::new(),
        Selection::Value(value) => vec![value],
        Selection::List(items) => items.iter().map(|item| &item.expr).collect(),
    }
}

pub fn has_aggregate(expr: &Expr) -> bool {
    let own =
        matches!(&expr.kind, ExprKind::Call(call) if !call.udf && Aggregate::find(&call.name.text).is_some());
    own || expr.children().into_iter().any(has_aggregate)
}

fn aggregated(aggregate: Aggregate, values: Vec<Value>) -> Option<Value> {
    let numbers = || values.iter().map(Value::as_number).collect::<Option<Vec<Number>>>();
    let sum = || numbers().map(|numbers| numbers.iter().fold(0.0, |sum, number| sum + number.as_f64()));
    let extreme = |wanted: Ordering| {
        if values.iter().any(|value| matches!(value, Value::Array(_) | Value::Object(_))) {
            return None;
        }
        values.iter().cloned().reduce(|best, value| {
            if order::compare(Some(&value), Some(&best)) == wanted { value } else { best }
        })
    };
    match aggregate {
        Aggregate::Count => Some(Value::from(values.len() as i64)),
        Aggregate::CountIf => {
            Some(Value::from(values.iter().filter(|value| **value == Value::Bool(true)).count() as i64))
        }
        Aggregate::Sum => sum().map(Value::from),
        Aggregate::Average if values.is_empty() => None,
        Aggregate::Average => sum().map(|sum| Value::from(sum / values.len() as f64)),
        Aggregate::Min => extreme(Ordering::Less),
        Aggregate::Max => extreme(Ordering::Greater),
        Aggregate::MakeList => Some(values.into()),
        Aggregate::MakeSet => {
            let mut distinct: Vec<Value> = Vec::new();
            for value in values {
                if !distinct.contains(&value) {
                    distinct.push(value);
                }
            }
            Some(distinct.into())
        }
    }
}

fn binary(operator: BinaryOperator, left: &Value, right: &Value) -> Option<Value> {
    use BinaryOperator as B;
    let ordering = match (left, right) {
        (Value::Null, Value::Null) => Some(Some(Ordering::Equal)),
        (Value::Bool(a), Value::Bool(b)) => Some(Some(a.cmp(b))),
        (Value::Number(a), Value::Number(b)) => Some(a.as_f64().partial_cmp(&b.as_f64())),
        (Value::String(a), Value::String(b)) => Some(Some(a.cmp(b))),
        _ => None,
    };
    let ordered =
        |holds: fn(Ordering) -> bool| ordering.map(|ordering| Value::Bool(ordering.is_some_and(holds)));
    match operator {
        B::Equal => return Some((left == right).into()),
        B::NotEqual => return Some((left != right).into()),
        B::Less => return ordered(Ordering::is_lt),
        B::LessOrEqual => return ordered(Ordering::is_le),
        B::Greater => return ordered(Ordering::is_gt),
        B::GreaterOrEqual => return ordered(Ordering::is_ge),
        B::Concat => {
            let joined = left.as_str().zip(right.as_str()).map(|(left, right)| format!("{left}{right}"));
            return joined.map(|text| text.as_str().into());
        }
        _ => {}
    }
    let (left, right) = (left.as_number()?, right.as_number()?);
    let (a, b) = (left.as_f64(), right.as_f64());
    let shift = (bits(right) & 31) as u32;
    Some(match operator {
        B::Add => (a + b).into(),
        B::Subtract => (a - b).into(),
        B::Multiply => (a * b).into(),
        B::Divide => (a / b).into(),
        B::Modulo => (a % b).into(),
        B::BitAnd => i64::from(bits(left) & bits(right)).into(),
        B::BitOr => i64::from(bits(left) | bits(right)).into(),
        B::BitXor => i64::from(bits(left) ^ bits(right)).into(),
        B::ShiftLeft => i64::from(bits(left) << shift).into(),
        B::ShiftRight => i64::from(bits(left) >> shift).into(),
        _ => i64::from((bits(left) as u32) >> shift).into(),
    })
}

/// The low 32 bits of a whole number.
fn bits(number: Number) -> i32 {
    let value = number.as_f64();
    if value.is_finite() { (value.trunc() % 4_294_967_296.0) as i64 as i32 } else { 0 }
}
