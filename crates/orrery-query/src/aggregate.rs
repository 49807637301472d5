//! Aggregates: many values in, one out.
//!
//! Undefined inputs are ignored by all of them. SUM and AVG become undefined at the first value that
//! is not a number; MIN and MAX at the first array or object.

use std::collections::HashMap;
use std::convert::Infallible;

use orrery_model::{Number, Value};

use crate::context::{Context, Held};
use crate::error::EvalError;
use crate::limits;
use crate::order;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    Average,
    Count,
    CountIf,
    MakeList,
    MakeSet,
    Max,
    Min,
    Sum,
}

const NAMES: [(&str, Aggregate); 8] = [
    ("AVG", Aggregate::Average),
    ("COUNT", Aggregate::Count),
    ("COUNTIF", Aggregate::CountIf),
    ("MAKELIST", Aggregate::MakeList),
    ("MAKESET", Aggregate::MakeSet),
    ("MAX", Aggregate::Max),
    ("MIN", Aggregate::Min),
    ("SUM", Aggregate::Sum),
];

impl Aggregate {
    /// The aggregate of this name, in any case.
    pub fn find(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, aggregate)| *aggregate)
    }

    /// The name in queries.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, aggregate)| *aggregate == self).map_or("", |(name, _)| name)
    }

    /// The name in query plans.
    pub fn plan_name(self) -> &'static str {
        match self {
            Self::Average => "Average",
            Self::Count => "Count",
            Self::CountIf => "CountIf",
            Self::MakeList => "MakeList",
            Self::MakeSet => "MakeSet",
            Self::Max => "Max",
            Self::Min => "Min",
            Self::Sum => "Sum",
        }
    }

    pub(crate) fn start(self) -> Accumulator {
        match self {
            Self::Count | Self::CountIf => Accumulator::Count { only_true: self == Self::CountIf, count: 0 },
            Self::Sum | Self::Average => {
                Accumulator::Sum { average: self == Self::Average, sum: Some(0.0), count: 0, magnitude: 0.0 }
            }
            Self::Min | Self::Max => Accumulator::Extreme { max: self == Self::Max, best: None, valid: true },
            Self::MakeList => Accumulator::List(Vec::new()),
            Self::MakeSet => Accumulator::Set(DistinctValues::default()),
        }
    }
}

/// 2^53: larger integers are rounded.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// The state of one aggregate over one group.
#[derive(Debug)]
pub(crate) enum Accumulator {
    Count {
        only_true: bool,
        count: i64,
    },
    Sum {
        average: bool,
        sum: Option<f64>,
        count: i64,
        /// The sum of the absolute values; infinite once there was a fraction. Below 2^53 no addition has rounded.
        magnitude: f64,
    },
    Extreme {
        max: bool,
        best: Option<Value>,
        valid: bool,
    },
    List(Vec<Value>),
    Set(DistinctValues),
}

impl Accumulator {
    /// Adds an input as often as it occurs. Returns by how many cells the state grew.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    pub(crate) fn add(
        &mut self,
        input: Option<&Value>,
        times: i64,
        context: &Context<'_>,
    ) -> Result<usize, EvalError> {
        let Some(value) = input else {
            return Ok(0);
        };
        match self {
            Self::Count { only_true, count } => {
                if !*only_true || matches!(value, Value::Bool(true)) {
                    *count += times;
                }
            }
            Self::Sum { sum, count, magnitude, .. } => {
                *count += times;
                *sum = match (*sum, value) {
                    (Some(sum), Value::Number(number)) => {
                        let (number, times) = (number.as_f64(), times as f64);
                        *magnitude +=
                            if number.fract() == 0.0 { number.abs() * times } else { f64::INFINITY };
                        Some(sum + number * times)
                    }
                    _ => None,
                };
            }
            Self::Extreme { max, best, valid } => match value {
                Value::Array(_) | Value::Object(_) => *valid = false,
                _ => {
                    // Strings can be long, and each is compared with the best one so far.
                    context.bytes(value.as_str().map_or(0, str::len))?;
                    let ordering = order::compare(Some(value), best.as_ref());
                    if best.is_none() || (*max && ordering.is_gt()) || (!*max && ordering.is_lt()) {
                        *best = Some(value.clone());
                    }
                }
            },
            Self::List(items) => {
                items.push(value.clone());
                let cells = order::cells(value);
                context.steps(cells as u64)?;
                return Ok(cells);
            }
            Self::Set(set) => {
                if set.insert(value, context)? {
                    return Ok(order::cells(value));
                }
            }
        }
        Ok(0)
    }

    /// Whether the result may depend on the order of the inputs.
    pub(crate) fn depends_on_order(&self) -> bool {
        match self {
            Self::Sum { magnitude, sum, .. } => *magnitude >= EXACT_INTEGER_MAX && sum.is_some(),
            Self::List(_) | Self::Set(_) => true,
            Self::Count { .. } | Self::Extreme { .. } => false,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    pub(crate) fn finish(self) -> Option<Value> {
        match self {
            Self::Count { count, .. } => Some(count.into()),
            // The average of nothing is undefined, while its sum is 0.
            Self::Sum { average: true, count: 0, .. } => None,
            Self::Sum { average: true, sum, count, .. } => sum.map(|sum| (sum / count as f64).into()),
            Self::Sum { sum, .. } => sum.map(|sum| Value::Number(Number::Double(sum))),
            Self::Extreme { best, valid, .. } => best.filter(|_| valid),
            Self::List(items) => Some(items.into()),
            Self::Set(set) => Some(set.values.into()),
        }
    }
}

/// Distinct values, in order of first appearance.
#[derive(Debug, Default)]
pub(crate) struct DistinctValues {
    places: HashMap<u128, Vec<usize>>,
    values: Vec<Value>,
}

impl DistinctValues {
    /// Whether a value of the query's own text is new.
    pub(crate) fn insert_constant(&mut self, value: &Value) -> bool {
        let Ok(is_new) = self.insert_counting(value, |_| Ok::<(), Infallible>(()));
        is_new
    }

    /// Whether the value is new.
    pub(crate) fn insert(&mut self, value: &Value, context: &Context<'_>) -> Result<bool, EvalError> {
        self.insert_counting(value, |bytes| context.bytes(bytes))
    }

    fn insert_counting<E>(
        &mut self,
        value: &Value,
        count: impl Fn(usize) -> Result<(), E>,
    ) -> Result<bool, E> {
        let bytes = order::bytes(value);
        count(bytes)?;
        let places = self.places.entry(order::hash(value)).or_default();
        // Hash collisions can be provoked, and each colliding value is compared.
        for &place in places.iter() {
            count(bytes)?;
            if &self.values[place] == value {
                return Ok(false);
            }
        }
        places.push(self.values.len());
        self.values.push(value.clone());
        Ok(true)
    }

    pub(crate) fn into_values(self) -> Vec<Value> {
        self.values
    }

    pub(crate) fn contains(&self, value: &Value) -> bool {
        let places = self.places.get(&order::hash(value));
        places.is_some_and(|places| places.iter().any(|&place| &self.values[place] == value))
    }
}

/// Counts the cells a query holds and enforces the limit.
#[derive(Debug, Default)]
pub(crate) struct CellMeter {
    cells: usize,
    held: Held,
}

/// The approximate size of a cell: a value, and a part of a string.
const CELL_BYTES: usize = 128;

impl CellMeter {
    pub(crate) fn add(&mut self, cells: usize, context: &Context<'_>) -> Result<(), EvalError> {
        self.cells += cells;
        if self.cells > limits::STATE_CELLS_MAX {
            return Err(EvalError::StateTooLarge { limit: limits::STATE_CELLS_MAX });
        }
        self.held.grow_to(self.cells * CELL_BYTES, context)
    }

    /// Releases the memory once the state is dropped.
    pub(crate) fn give_back(self, context: &Context<'_>) {
        self.held.give_back(context);
    }
}
