//! Runs a nested block: the rows of its sources, its groups, and the subquery operators.

use orrery_model::Value;

use crate::aggregate::{CellMeter, DistinctValues};
use crate::ast::SubqueryKind;
use crate::context::{Context, Held};
use crate::error::EvalError;
use crate::eval::group::GroupTable;
use crate::eval::{self, Env, for_each_row, is_true, project, projects};
use crate::limits;
use crate::operand::{Operand, borrowed};
use crate::order;
use crate::program::{Block, Node, Source, SourceRows};

/// Called for each row; false stops.
type Visit<'v> = dyn FnMut(Env<'_>) -> Result<bool, EvalError> + 'v;

pub(crate) fn evaluate(
    kind: SubqueryKind,
    block: &Block,
    env: Env<'_>,
    context: &Context<'_>,
) -> Result<Option<Value>, EvalError> {
    match kind {
        SubqueryKind::Exists => exists(block, env, context).map(|found| Some(found.into())),
        SubqueryKind::All => all(block, env, context).map(|holds| Some(holds.into())),
        SubqueryKind::Array => {
            Ok(Some(rows_at_most(block, env, context, usize::MAX)?.release(context).into()))
        }
        SubqueryKind::Scalar => {
            // Two rows suffice to know that there are too many.
            let mut rows = rows_at_most(block, env, context, 2)?.release(context).into_iter();
            let first = rows.next();
            if rows.next().is_some() {
                return Err(EvalError::ScalarCardinality);
            }
            Ok(first)
        }
        SubqueryKind::First => Ok(rows_at_most(block, env, context, 1)?.release(context).pop()),
        SubqueryKind::Last => Ok(rows_at_most(block, env, context, usize::MAX)?.release(context).pop()),
    }
}

fn exists(block: &Block, env: Env<'_>, context: &Context<'_>) -> Result<bool, EvalError> {
    // Groups are known only after all rows.
    if block.grouping.is_some() {
        return Ok(!rows_at_most(block, env, context, 1)?.release(context).is_empty());
    }
    let mut found = false;
    for_each_match(block, env, context, &mut |env| {
        // A row whose projection is undefined does not exist.
        found = projects(&block.projection, env, context)?;
        Ok(!found)
    })?;
    Ok(found)
}

/// True unless the filter is false for some row: `NOT EXISTS` with the filter negated.
fn all(block: &Block, env: Env<'_>, context: &Context<'_>) -> Result<bool, EvalError> {
    let Some(filter) = &block.filter else {
        return Ok(true);
    };
    let mut holds = true;
    bind(&block.sources, env, context, &mut |env| {
        // Only false fails. Undefined does not, because its negation would not be true either.
        let failed = matches!(eval::evaluate(filter, env, context)?.as_deref(), Some(Value::Bool(false)));
        holds = !failed;
        Ok(holds)
    })?;
    Ok(holds)
}

/// The rows of a block, and the memory reserved for them.
struct Rows {
    values: Vec<Value>,
    held: Held,
}

impl Rows {
    /// The rows without their reservation: they become part of a value, which has its own limit.
    fn release(self, context: &Context<'_>) -> Vec<Value> {
        self.held.give_back(context);
        self.values
    }
}

fn rows_at_most(
    block: &Block,
    env: Env<'_>,
    context: &Context<'_>,
    count_max: usize,
) -> Result<Rows, EvalError> {
    let mut rows = Vec::new();
    let (mut bytes, mut held) = (0, Held::default());
    let mut seen = DistinctValues::default();
    let mut take = |row: Option<Value>| -> Result<bool, EvalError> {
        if let Some(row) = row
            && (!block.distinct || seen.insert(&row, context)?)
        {
            // A row may be the whole document, once for each element of its arrays.
            bytes += order::bytes(&row);
            if bytes > limits::VALUE_BYTES_MAX {
                return Err(EvalError::ValueTooLarge { limit: limits::VALUE_BYTES_MAX });
            }
            // Reserved before the row is kept.
            held.grow_to(bytes, context)?;
            rows.push(row);
            if rows.len() > limits::SUBQUERY_ROWS_MAX {
                return Err(EvalError::StateTooLarge { limit: limits::SUBQUERY_ROWS_MAX });
            }
        }
        Ok(rows.len() < count_max)
    };
    if let Some(grouping) = &block.grouping {
        let mut table = GroupTable::new(grouping);
        let mut meter = CellMeter::default();
        for_each_match(block, env, context, &mut |env| {
            table.add(grouping, env, 1, context, &mut meter)?;
            Ok(true)
        })?;
        table.finish(grouping, &block.projection, env, context, &mut take)?;
        // After an error nothing is given back here: the query ends, and its reservations with it.
        meter.give_back(context);
    } else {
        for_each_match(block, env, context, &mut |env| take(project(&block.projection, env, context)?))?;
    }
    Ok(Rows { values: rows, held })
}

/// Visits the rows of the sources that pass the block's filter.
pub(crate) fn for_each_match(
    block: &Block,
    env: Env<'_>,
    context: &Context<'_>,
    visit: &mut Visit<'_>,
) -> Result<bool, EvalError> {
    for_each_filtered(block, block.filter.as_ref(), env, context, visit)
}

/// Visits the rows of the sources that pass this filter.
pub(crate) fn for_each_filtered(
    block: &Block,
    filter: Option<&Node>,
    env: Env<'_>,
    context: &Context<'_>,
    visit: &mut Visit<'_>,
) -> Result<bool, EvalError> {
    bind(&block.sources, env, context, &mut |env| {
        // Combinations that the filter rejects count too: it is joins that multiply them.
        context.spend()?;
        match filter {
            Some(filter) if !is_true(filter, env, context)? => Ok(true),
            _ => visit(env),
        }
    })
}

/// Binds the sources one after the other, visiting every combination.
pub(crate) fn bind(
    sources: &[Source],
    env: Env<'_>,
    context: &Context<'_>,
    visit: &mut Visit<'_>,
) -> Result<bool, EvalError> {
    let Some((source, rest)) = sources.split_first() else {
        return visit(env);
    };
    match &source.rows {
        SourceRows::Value(node) => {
            let operand = eval::evaluate(node, env, context)?;
            bind_rows(source, operand, rest, env, context, visit)
        }
        SourceRows::Subquery(block) => {
            // The subquery may refer to the sources before it, so it runs again for each of their rows.
            let rows = rows_at_most(block, env, context, usize::MAX)?;
            let mut goes_on = true;
            for row in &rows.values {
                goes_on = bind_rows(source, borrowed(row), rest, env, context, visit)?;
                if !goes_on {
                    break;
                }
            }
            rows.held.give_back(context);
            Ok(goes_on)
        }
    }
}

/// Binds the rows of one source, then the sources after it.
pub(crate) fn bind_rows(
    source: &Source,
    operand: Operand<'_>,
    rest: &[Source],
    env: Env<'_>,
    context: &Context<'_>,
    visit: &mut Visit<'_>,
) -> Result<bool, EvalError> {
    for_each_row(operand, source.iterate, &mut |row| {
        context.spend()?;
        let values = [row];
        let slots = [source.slot];
        bind(rest, Env::bind(&env, &slots, &values), context, visit)
    })
}
