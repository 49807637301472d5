//! Full-text search over one property: words of documents and search terms, analysed alike.

mod analyzer;
mod edit_distance;
mod score;
mod term;

use orrery_model::Value;

pub use self::analyzer::Analyzer;
pub use self::score::Bm25;
use self::term::Term;
use super::arguments::{array, double, string};
use super::{Evaluated, Function, UNBOUNDED, row_in_context};
use crate::context::Context;
use crate::error::EvalError;
use crate::operand::{Operand, owned};

pub(super) static FUNCTIONS: &[Function] = &[
    row_in_context!("FULLTEXTCONTAINS", 2..=2, None, contains_all),
    row_in_context!("FULLTEXTCONTAINSALL", 2..=UNBOUNDED, None, contains_all),
    row_in_context!("FULLTEXTCONTAINSANY", 2..=UNBOUNDED, None, contains_any),
    row_in_context!("FULLTEXTSCORE", 2..=UNBOUNDED, None, score_without_statistics),
    row_in_context!("_FULLTEXTSCORE", 5..=5, None, score),
    row_in_context!("_FULLTEXTWORDCOUNT", 1..=1, None, word_count),
];

fn contains_all<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    contains(context, arguments, true)
}

fn contains_any<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    contains(context, arguments, false)
}

fn contains<'a>(context: &Context<'_>, arguments: &[Operand<'_>], require_all: bool) -> Evaluated<'a> {
    let analyzer = Analyzer::new(context.language);
    let Some(text) = string(arguments, 0) else { return Ok(None) };
    let terms = arguments[1..].iter().map(|term| Term::read(&analyzer, term.as_deref()?));
    let Some(terms) = terms.collect::<Option<Vec<Term>>>() else { return Ok(None) };
    let words = analyzer.words(text);
    for term in &terms {
        context.steps(term.steps_in(&words))?;
        // The first term that decides ends the search.
        if (term.count_in(&words) > 0) != require_all {
            return Ok(owned(!require_all));
        }
    }
    Ok(owned(require_all))
}

/// Scores need statistics over all documents, so the planner rewrites this function; one that is
/// evaluated stood where it may not.
fn score_without_statistics<'a>(_: &Context<'_>, _: &[Operand<'a>]) -> Evaluated<'a> {
    Err(EvalError::Message("The FullTextScore function is only allowed in the ORDER BY RANK clause.".into()))
}

fn score<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    if let (Some(text), Some(terms)) = (string(arguments, 0), array(arguments, 1)) {
        context.steps(terms.len() as u64 * (text.len() as u64 / 16))?;
    }
    Ok(scored(context, arguments).and_then(owned))
}

/// `_FullTextScore(text, [terms], documents, words, [documents with each term])`.
fn scored(context: &Context<'_>, arguments: &[Operand<'_>]) -> Option<f64> {
    let analyzer = Analyzer::new(context.language);
    let text = string(arguments, 0)?;
    let terms: Vec<Term> =
        array(arguments, 1)?.iter().map(|term| Term::read(&analyzer, term)).collect::<Option<_>>()?;
    let model = Bm25 { documents: double(arguments, 2)?, words: double(arguments, 3)? };
    let hits: Vec<f64> = array(arguments, 4)?
        .iter()
        .map(|hits| Value::as_number(hits).map(orrery_model::Number::as_f64))
        .collect::<Option<_>>()?;
    // The statistics are about other terms.
    if hits.len() != terms.len() {
        return None;
    }
    let words = analyzer.words(text);
    let score = |(term, hits): (&Term, f64)| model.score(term.count_in(&words), words.len(), hits);
    // A fold, because an empty sum of doubles is -0.
    Some(terms.iter().zip(hits).map(score).fold(0.0, |total, score| total + score))
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of a function body")]
fn word_count<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    let count = string(arguments, 0).map(|text| Analyzer::new(context.language).words(text).len());
    Ok(count.and_then(|count| owned(i64::try_from(count).ok()?)))
}
