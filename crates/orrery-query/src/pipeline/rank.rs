//! ORDER BY RANK inside the server: scores, ranks and their fusion.
//!
//! Each component orders the rows on its own; equal scores share a rank. A row's fused score is the
//! sum of `weight / (60 + rank)`. Text that cannot be scored ranks last but takes part.

use std::cmp::Ordering;

use orrery_model::{Number, Value};

use crate::ast::Direction;
use crate::context::{Context, Held};
use crate::error::EvalError;
use crate::eval::{self, Env, project};
use crate::functions::{self, Function};
use crate::limits;
use crate::operand::{Operand, borrowed, owned};
use crate::order;
use crate::program::{Block, RankComponent, Ranking};

/// The constant of reciprocal rank fusion.
const RANK_OFFSET: f64 = 60.0;

struct Candidate {
    value: Value,
    ordinal: u64,
    /// What each component needs: a score, or the text to be scored when all is known.
    inputs: Vec<Option<Value>>,
}

pub(super) struct RankedRows {
    candidates: Vec<Candidate>,
    statistics: Vec<Statistics>,
    /// About what the candidates take in memory.
    bytes: usize,
    held: Held,
}

/// What BM25 needs to know about all documents together.
struct Statistics {
    words: f64,
    hits: Vec<i64>,
}

impl RankedRows {
    pub(super) fn new(ranking: &Ranking) -> Self {
        let statistics = ranking.components.iter().map(|component| {
            let terms = match component {
                RankComponent::FullText { terms, .. } => terms.len(),
                RankComponent::Vector { .. } => 0,
            };
            Statistics { words: 0.0, hits: vec![0; terms] }
        });
        Self { candidates: Vec::new(), statistics: statistics.collect(), bytes: 0, held: Held::default() }
    }

    pub(super) fn add(
        &mut self,
        ranking: &Ranking,
        block: &Block,
        env: Env<'_>,
        context: &Context<'_>,
        ordinal: u64,
    ) -> Result<(), EvalError> {
        let mut inputs = Vec::with_capacity(ranking.components.len());
        for (component, statistics) in ranking.components.iter().zip(&mut self.statistics) {
            inputs.push(match component {
                RankComponent::Vector { score, .. } => {
                    crate::operand::into_value(eval::evaluate(score, env, context)?)
                }
                RankComponent::FullText { text, terms, path } => {
                    // What is not a string cannot be scored: it ranks last.
                    let text = eval::evaluate(text, env, context)?.filter(|text| text.as_str().is_some());
                    if let Some(text) = &text {
                        statistics.add(text, terms, &in_language(context, path.as_deref()))?;
                    }
                    crate::operand::into_value(text)
                }
            });
        }
        let Some(value) = project(&block.projection, env, context)? else {
            return Ok(());
        };
        self.bytes += order::bytes(&value) + inputs.iter().flatten().map(order::bytes).sum::<usize>();
        self.candidates.push(Candidate { value, ordinal, inputs });
        if self.candidates.len() > limits::SORT_ROWS_MAX || self.bytes > limits::SORT_BYTES_MAX {
            return Err(EvalError::StateTooLarge { limit: limits::SORT_ROWS_MAX });
        }
        self.held.grow_to(self.bytes, context)
    }

    /// The rows, best first.
    pub(super) fn finish(self, ranking: &Ranking, context: &Context<'_>) -> Result<Vec<Value>, EvalError> {
        let mut fused = vec![0.0; self.candidates.len()];
        for (index, component) in ranking.components.iter().enumerate() {
            let scores = self.scores(index, component, context)?;
            let weight = ranking.weights.get(index).copied().unwrap_or(1.0);
            for (candidate, rank) in ranks(&scores, component.direction()).into_iter().enumerate() {
                fused[candidate] += weight / (RANK_OFFSET + rank);
            }
        }
        let mut rows: Vec<(f64, Candidate)> = fused.into_iter().zip(self.candidates).collect();
        // Equal scores in the order of ordinals, so that every page ranks alike.
        rows.sort_by(|(a, left), (b, right)| b.total_cmp(a).then(left.ordinal.cmp(&right.ordinal)));
        Ok(rows.into_iter().map(|(_, candidate)| candidate.value).collect())
    }

    fn scores(
        &self,
        index: usize,
        component: &RankComponent,
        context: &Context<'_>,
    ) -> Result<Vec<Option<f64>>, EvalError> {
        let number = |value: &Value| value.as_number().map(Number::as_f64);
        let inputs = self.candidates.iter().map(|candidate| candidate.inputs[index].as_ref());
        match component {
            RankComponent::Vector { .. } => Ok(inputs.map(|input| input.and_then(number)).collect()),
            RankComponent::FullText { terms, path, .. } => {
                let statistics = &self.statistics[index];
                let documents = i64::try_from(self.candidates.len()).unwrap_or(i64::MAX);
                let hits: Vec<Value> = statistics.hits.iter().map(|hits| Value::from(*hits)).collect();
                let (terms, hits) = (Value::from(terms.clone()), Value::from(hits));
                let context = in_language(context, path.as_deref());
                inputs
                    .map(|text| {
                        let operands = [
                            text.and_then(borrowed),
                            borrowed(&terms),
                            owned(documents),
                            owned(statistics.words),
                            borrowed(&hits),
                        ];
                        // The function that a client's component queries call, so both ways of ranking score
                        // alike.
                        let score = call("_FULLTEXTSCORE", &operands, &context)?;
                        Ok(score.as_deref().and_then(number))
                    })
                    .collect()
            }
        }
    }
}

impl RankComponent {
    fn direction(&self) -> Direction {
        match self {
            Self::FullText { .. } => Direction::Descending,
            Self::Vector { direction, .. } => *direction,
        }
    }
}

impl Statistics {
    fn add(&mut self, text: &Value, terms: &[Value], context: &Context<'_>) -> Result<(), EvalError> {
        let words = call("_FULLTEXTWORDCOUNT", &[borrowed(text)], context)?;
        self.words += words.as_deref().and_then(Value::as_number).map_or(0.0, Number::as_f64);
        for (term, hits) in terms.iter().zip(&mut self.hits) {
            let found = call("FULLTEXTCONTAINS", &[borrowed(text), borrowed(term)], context)?;
            *hits += i64::from(matches!(found.as_deref(), Some(Value::Bool(true))));
        }
        Ok(())
    }
}

fn in_language<'c>(context: &Context<'c>, path: Option<&str>) -> Context<'c> {
    let language = path.map_or(context.language, |path| context.policies.language(path));
    Context { language, ..*context }
}

fn call<'a>(name: &str, operands: &[Operand<'a>], context: &Context<'_>) -> Result<Operand<'a>, EvalError> {
    let function: &Function = functions::lookup(name)
        .ok_or_else(|| EvalError::Message(format!("the function {name} is not available")))?;
    (function.body)(context, operands)
}

/// The rank of each candidate, from 1; equal scores share one.
fn ranks(scores: &[Option<f64>], direction: Direction) -> Vec<f64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let compare = |a: usize, b: usize| match (scores[a], scores[b]) {
        (Some(a), Some(b)) if direction == Direction::Ascending => a.total_cmp(&b),
        (Some(a), Some(b)) => b.total_cmp(&a),
        // Without a score comes last.
        (a, b) => a.is_none().cmp(&b.is_none()),
    };
    order.sort_by(|&a, &b| compare(a, b));
    let mut ranks = vec![0.0; scores.len()];
    let mut rank = 1.0;
    for (index, &candidate) in order.iter().enumerate() {
        if index > 0 && compare(order[index - 1], candidate) != Ordering::Equal {
            // Dense ranks: rows with equal scores share one, and the next score has the next.
            rank += 1.0;
        }
        ranks[candidate] = rank;
    }
    ranks
}
