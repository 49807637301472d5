//! Groups of rows and their aggregates.

use std::collections::HashMap;

use orrery_model::Value;

use crate::aggregate::{Accumulator, CellMeter};
use crate::ast::Direction;
use crate::context::Context;
use crate::error::EvalError;
use crate::eval::{self, Env, project};
use crate::operand::{Operand, borrowed};
use crate::order;
use crate::program::{Grouping, Projection};

/// The groups so far, in order of their first row.
#[derive(Debug)]
pub(crate) struct GroupTable {
    places: HashMap<u128, Vec<usize>>,
    groups: Vec<Group>,
    depends_on_order: bool,
}

#[derive(Debug)]
struct Group {
    keys: Vec<Option<Value>>,
    accumulators: Vec<Accumulator>,
    kept: Vec<Option<Value>>,
}

impl Group {
    fn new(keys: Vec<Option<Value>>, grouping: &Grouping) -> Self {
        let accumulators = grouping.aggregates.iter().map(|(aggregate, _)| aggregate.start()).collect();
        Self { keys, accumulators, kept: vec![None; grouping.kept.len()] }
    }
}

impl GroupTable {
    pub(crate) fn new(grouping: &Grouping) -> Self {
        let mut table = Self { places: HashMap::new(), groups: Vec::new(), depends_on_order: false };
        if grouping.keys.is_empty() {
            // Aggregates without GROUP BY return one row even without input.
            table.groups.push(Group::new(Vec::new(), grouping));
        }
        table
    }

    /// Adds the row bound in `env` to its group, as often as it occurs.
    pub(crate) fn add(
        &mut self,
        grouping: &Grouping,
        env: Env<'_>,
        times: i64,
        context: &Context<'_>,
        meter: &mut CellMeter,
    ) -> Result<(), EvalError> {
        let place = self.place(grouping, env, context, meter)?;
        let group = &mut self.groups[place];
        for ((_, argument), accumulator) in grouping.aggregates.iter().zip(&mut group.accumulators) {
            let input = eval::evaluate(argument, env, context)?;
            let cells = accumulator.add(input.as_deref(), times, context)?;
            meter.add(cells, context)?;
            self.depends_on_order |= accumulator.depends_on_order();
        }
        // Values are kept only where there is at most one row, so they are those of the whole group.
        for (slot, kept) in grouping.kept.iter().zip(&mut group.kept) {
            *kept = env.get(*slot).cloned();
            meter.add(kept.as_ref().map_or(0, order::cells), context)?;
        }
        Ok(())
    }

    fn place(
        &mut self,
        grouping: &Grouping,
        env: Env<'_>,
        context: &Context<'_>,
        meter: &mut CellMeter,
    ) -> Result<usize, EvalError> {
        // The only group was created with the table.
        if grouping.keys.is_empty() {
            return Ok(0);
        }
        let mut keys: Vec<Operand<'_>> = Vec::with_capacity(grouping.keys.len());
        for key in &grouping.keys {
            keys.push(eval::evaluate(key, env, context)?);
        }
        let bytes = keys.iter().flatten().map(|key| order::bytes(key)).sum();
        // Hashing reads every byte of the keys.
        context.bytes(bytes)?;
        let hash = order::hash_operands(keys.iter().map(Option::as_deref));
        let places = self.places.entry(hash).or_default();
        let same =
            |group: &Group| group.keys.iter().zip(&keys).all(|(known, key)| known.as_ref() == key.as_deref());
        // Hash collisions can be provoked, and each colliding key is compared.
        for place in places.iter() {
            context.bytes(bytes)?;
            if same(&self.groups[*place]) {
                return Ok(*place);
            }
        }
        let keys: Vec<Option<Value>> = keys.into_iter().map(crate::operand::into_value).collect();
        let cells: usize = keys.iter().flatten().map(order::cells).sum();
        // One cell for each aggregate and one for the group itself, in addition to its keys.
        meter.add(cells + grouping.aggregates.len() + 1, context)?;
        places.push(self.groups.len());
        self.groups.push(Group::new(keys, grouping));
        Ok(self.groups.len() - 1)
    }

    /// Whether the groups may depend on the order in which rows were added.
    pub(crate) fn depends_on_order(&self) -> bool {
        self.depends_on_order
    }

    /// Projects every group; `take` returns false to stop.
    pub(crate) fn finish(
        self,
        grouping: &Grouping,
        projection: &Projection,
        env: Env<'_>,
        context: &Context<'_>,
        take: &mut dyn FnMut(Option<Value>) -> Result<bool, EvalError>,
    ) -> Result<(), EvalError> {
        let finished = self.groups.into_iter().map(|group| {
            let results = group.accumulators.into_iter().map(Accumulator::finish);
            // The order of `Grouping::slots`.
            group.keys.into_iter().chain(results).chain(group.kept).collect::<Vec<Option<Value>>>()
        });
        let groups: Vec<Vec<Option<Value>>> = finished.collect();
        for place in sorted(grouping, &groups, env, context)? {
            let operands = operands(&groups[place]);
            let bound = Env::bind(&env, &grouping.slots, &operands);
            if !take(project(projection, bound, context)?)? {
                break;
            }
        }
        Ok(())
    }
}

fn operands(values: &[Option<Value>]) -> Vec<Operand<'_>> {
    values.iter().map(|value| value.as_ref().and_then(borrowed)).collect()
}

/// The indexes of the groups in the requested order, otherwise, and where that leaves them equal, in key order.
fn sorted(
    grouping: &Grouping,
    groups: &[Vec<Option<Value>>],
    env: Env<'_>,
    context: &Context<'_>,
) -> Result<Vec<usize>, EvalError> {
    let mut places: Vec<usize> = (0..groups.len()).collect();
    // The service returns groups in key order.
    let keys = |place: usize| &groups[place][..grouping.keys.len()];
    places.sort_by(|a, b| {
        let each = keys(*a).iter().zip(keys(*b));
        let each = each.map(|(a, b)| order::compare(a.as_ref(), b.as_ref()));
        each.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    });
    if grouping.order.is_empty() {
        return Ok(places);
    }
    // Sort expressions are evaluated once per group, not once per comparison.
    let mut keys = Vec::with_capacity(groups.len());
    for values in groups {
        let operands = operands(values);
        let bound = Env::bind(&env, &grouping.slots, &operands);
        let mut key = Vec::with_capacity(grouping.order.len());
        for (node, _) in &grouping.order {
            key.push(crate::operand::into_value(eval::evaluate(node, bound, context)?));
        }
        keys.push(key);
    }
    // The sort is stable, so groups that sort alike stay in key order.
    places.sort_by(|a, b| {
        let each = keys[*a].iter().zip(&keys[*b]).zip(&grouping.order).map(|((a, b), (_, direction))| {
            let ordering = order::compare(a.as_ref(), b.as_ref());
            if *direction == Direction::Descending { ordering.reverse() } else { ordering }
        });
        each.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    });
    Ok(places)
}
