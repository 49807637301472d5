//! Merges the partial aggregates of the partitions.

use orrery_model::{Object, Value};
use orrery_query::order::{compare, hash};

use super::plan::item;

/// An aggregate over the partial results of the partitions.
#[derive(Clone, Debug)]
pub(super) enum Merged {
    /// COUNT, COUNTIF and SUM. None once a partition's sum is undefined.
    Sum(Option<f64>),
    /// The sum, which may be undefined, and the count.
    Average(Option<f64>, f64),
    /// The least or greatest value so far.
    Extreme { is_max: bool, value: Option<Value>, is_undefined: bool },
    /// The values of all partitions, or only the distinct ones.
    List { is_set: bool, values: Vec<Value> },
}

impl Merged {
    /// By the planner's name.
    pub(super) fn new(name: &str) -> Option<Self> {
        Some(match name {
            "Count" | "CountIf" | "Sum" => Self::Sum(Some(0.0)),
            "Average" => Self::Average(Some(0.0), 0.0),
            "Min" | "Max" => Self::Extreme { is_max: name == "Max", value: None, is_undefined: false },
            "MakeList" | "MakeSet" => Self::List { is_set: name == "MakeSet", values: Vec::new() },
            _ => return None,
        })
    }

    /// Adds one partition's result, `{"item": …}`.
    pub(super) fn add(&mut self, partial: &Value) {
        let number =
            |value: Option<&Value>| value.and_then(Value::as_number).map(orrery_model::Number::as_f64);
        match self {
            Self::Sum(sum) => *sum = sum.zip(number(item(partial))).map(|(sum, more)| sum + more),
            Self::Average(sum, count) => {
                let more = item(partial);
                *sum = sum.zip(number(more.and_then(|more| more.get("sum")))).map(|(sum, more)| sum + more);
                *count += number(more.and_then(|more| more.get("count"))).unwrap_or(0.0);
            }
            Self::Extreme { is_max, value, is_undefined } => {
                // The form that also counts the values, under `item2` or as `item` itself.
                let composite =
                    partial.get("item2").or_else(|| item(partial).filter(|item| item.get("count").is_some()));
                let seen = composite.and_then(|partial| number(partial.get("count")));
                let name = if *is_max { "max" } else { "min" };
                let found = match composite {
                    Some(partial) => partial.get(name),
                    None => item(partial),
                };
                match found {
                    // A partition without values is ignored; one with incomparable values makes the result undefined.
                    None => *is_undefined |= seen.is_some_and(|count| count > 0.0),
                    Some(found) => {
                        let order = compare(Some(found), value.as_ref());
                        let is_better =
                            value.is_none() || if *is_max { order.is_gt() } else { order.is_lt() };
                        if is_better {
                            *value = Some(found.clone());
                        }
                    }
                }
            }
            Self::List { is_set, values } => {
                for found in item(partial).and_then(Value::as_array).unwrap_or(&[]) {
                    if !*is_set || !values.iter().any(|known| hash(known) == hash(found)) {
                        values.push(found.clone());
                    }
                }
            }
        }
    }

    /// The merged value; none if it is undefined.
    pub(super) fn finish(self) -> Option<Value> {
        match self {
            Self::Sum(sum) => sum.map(number),
            Self::Average(sum, count) => sum.filter(|_| count > 0.0).map(|sum| number(sum / count)),
            Self::Extreme { value, is_undefined, .. } => value.filter(|_| !is_undefined),
            Self::List { values, .. } => Some(values.into()),
        }
    }
}

/// A whole number without a fraction, as the service writes it.
pub(super) fn number(number: f64) -> Value {
    Value::from(number).as_i64().map_or_else(|| Value::from(number), Value::from)
}

/// One output row of a grouped query: keys unchanged, aggregates merged.
#[derive(Debug)]
pub(super) enum MergedGroup {
    /// `SELECT VALUE` of an aggregate or a key.
    Value(Result<Merged, Value>),
    /// By output property, in the order of the SELECT clause.
    Object(Vec<(String, Result<Merged, Option<Value>>)>),
}

impl MergedGroup {
    pub(super) fn add(&mut self, payload: &Value) {
        match self {
            Self::Value(Ok(merged)) => add_listed(merged, payload),
            // A key is the same in all rows of its group.
            Self::Value(Err(_)) => {}
            Self::Object(members) => {
                for (alias, member) in members {
                    if let (Ok(merged), Some(partial)) = (member, payload.get(alias)) {
                        merged.add(partial);
                    }
                }
            }
        }
    }

    pub(super) fn finish(self) -> Option<Value> {
        match self {
            Self::Value(Ok(merged)) => merged.finish(),
            Self::Value(Err(key)) => Some(key),
            Self::Object(members) => {
                let mut object = Object::new();
                for (alias, member) in members {
                    let value = match member {
                        Ok(merged) => merged.finish(),
                        Err(key) => key,
                    };
                    if let Some(value) = value {
                        object.set(alias, value);
                    }
                }
                Some(object.into())
            }
        }
    }
}

/// A value aggregate comes as `[{"item": …}]`.
pub(super) fn add_listed(merged: &mut Merged, payload: &Value) {
    match payload.as_array() {
        Some(partials) => partials.iter().for_each(|partial| merged.add(partial)),
        None => merged.add(payload),
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::value;

    use super::*;

    /// The rows of the service's protocol for partitions without values, and for values that cannot be aggregated.
    #[test]
    fn partial_results_are_merged_as_the_sdks_do() {
        let check = |name: &str, partials: &str, expected: Option<&str>| {
            let mut merged = Merged::new(name).unwrap();
            let partials = value::parse(partials.as_bytes()).unwrap();
            partials.as_array().unwrap().iter().for_each(|partial| merged.add(partial));
            assert_eq!(
                merged.finish().map(|value| value.to_json()).as_deref(),
                expected,
                "{name} {}",
                partials.to_json()
            );
        };
        check("Count", r#"[{"item":2},{"item":0},{"item":3}]"#, Some("5"));
        check("Sum", r#"[{"item":1.5},{"item":2}]"#, Some("3.5"));
        check("Sum", r#"[{"item":1.5},{}]"#, None);
        check("Average", r#"[{"item":{"sum":10,"count":4}},{"item":{"sum":0,"count":0}}]"#, Some("2.5"));
        check("Average", r#"[{"item":{"sum":0,"count":0}}]"#, None);
        check("Average", r#"[{"item":{"sum":1,"count":1}},{"item":{"count":2}}]"#, None);
        check("Min", r#"[{"item":3,"item2":{"min":3,"count":1}},{"item2":{"count":0}}]"#, Some("3"));
        check("Max", r#"[{"item":3},{"item":"a"}]"#, Some("\"a\""));
        check("Max", r#"[{"item":3,"item2":{"max":3,"count":1}},{"item2":{"count":2}}]"#, None);
        check("MakeSet", r#"[{"item":[1,2]},{"item":[2,3]}]"#, Some("[1,2,3]"));
        check("MakeList", r#"[{"item":[1,2]},{"item":[2]}]"#, Some("[1,2,2]"));
    }
}
