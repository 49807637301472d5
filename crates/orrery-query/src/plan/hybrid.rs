//! Plans of ORDER BY RANK: statistics over all documents, one query per component, then fusion.

use orrery_model::{Number, Object, Value};

use super::rewrite::{
    aliased, call, conjunction, count, expr, filter_placeholder, first_rows, ordered_selection, payload,
    root_alias,
};
use super::{QueryInfo, count_value};
use crate::ast::{BinaryOperator, Direction, Expr, ExprKind, Literal, OrderBy, OrderItem, Query, Selection};
use crate::check::{is_call_to, is_fusion, split_weights};
use crate::compile::{Parameters, resolve_count};
use crate::limits;
use crate::printer;
use crate::program::{Program, RankComponent};

/// Stands for the score of a row that has no vector.
const WORST_SCORE: f64 = 1.79769e308;

/// The minimum number of rows requested from each component, so that fusion has enough to work with.
const COMPONENT_ROWS_MIN: u64 = 120;

/// The plan of a ranked query.
#[derive(Clone, Debug, PartialEq)]
pub struct HybridSearchInfo {
    pub global_statistics_query: String,
    pub component_queries: Vec<QueryInfo>,
    /// Empty unless the query gives weights.
    pub component_weights: Vec<f64>,
    pub skip: Option<u64>,
    pub take: Option<u64>,
    pub requires_global_statistics: bool,
    /// The properties and terms of the full-text components, as far as they are plain.
    pub full_text_terms: Vec<FullTextTerms>,
    pub combination: Combination,
}

/// What one full-text component looks for.
#[derive(Clone, Debug, PartialEq)]
pub struct FullTextTerms {
    pub path: Vec<Value>,
    pub terms: Vec<Value>,
}

/// How the scores of components become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    Rrf,
    CombinedScore,
}

impl HybridSearchInfo {
    pub fn to_value(&self) -> Value {
        let mut info = Object::new();
        info.set("globalStatisticsQuery", self.global_statistics_query.as_str().into());
        let components: Vec<Value> = self.component_queries.iter().map(QueryInfo::to_value).collect();
        info.set("componentQueryInfos", components.into());
        info.set("componentWithoutPayloadQueryInfos", Vec::new().into());
        info.set("projectionQueryInfo", Value::Null);
        let weights: Vec<Value> = self.component_weights.iter().map(|weight| (*weight).into()).collect();
        info.set("componentWeights", weights.into());
        info.set("skip", count_value(self.skip));
        info.set("take", count_value(self.take));
        info.set("requiresGlobalStatistics", self.requires_global_statistics.into());
        let searched = self.full_text_terms.iter().map(|searched| {
            let mut entry = Object::new();
            entry.set("path", searched.path.clone().into());
            entry.set("terms", searched.terms.clone().into());
            Value::from(entry)
        });
        info.set("fullTextSearchTerms", searched.collect::<Vec<_>>().into());
        let combination = match self.combination {
            Combination::Rrf => "Rrf",
            Combination::CombinedScore => "CombinedScore",
        };
        info.set("scoreCombinationKind", combination.into());
        info.into()
    }
}

/// One component: the score as text, and the score where a row has none.
struct Component {
    score: Expr,
    direction: Direction,
    fallback: Number,
    /// Written in the text; refused there for vector distances.
    written_direction: Option<Direction>,
    /// The text and terms, if this is a full-text component.
    full_text: Option<(Expr, Vec<Expr>)>,
}

pub(super) fn info(query: &Query, program: &Program, parameters: &Parameters) -> HybridSearchInfo {
    let ranked = query.order_by.as_ref().and_then(|order_by| order_by.items.first());
    // As in the compiler, a single score is a fusion of one.
    let (scores, weights): (&[Expr], Option<&Expr>) = match ranked.map(|item| &item.expr) {
        Some(whole) => match &whole.kind {
            ExprKind::Call(fusion) if is_fusion(whole) => split_weights(fusion),
            _ => (std::slice::from_ref(whole), None),
        },
        None => (&[], None),
    };
    let ranking = program.rank.as_ref();
    let components: Vec<Component> = scores
        .iter()
        .zip(ranking.map_or(&[][..], |ranking| &ranking.components))
        // The full-text components are numbered among themselves: their placeholders name the number.
        .scan(0, |texts, (score, compiled)| Some(component(score, compiled, texts, parameters)))
        .collect();
    let top = query.select.top.as_ref().and_then(|top| resolve_count(top, parameters));
    let window = query.offset_limit.as_ref();
    let skip = window.and_then(|clause| resolve_count(&clause.offset, parameters));
    let take = top.or_else(|| window.and_then(|clause| resolve_count(&clause.limit, parameters)));
    let requires_global_statistics = components.iter().any(|component| component.full_text.is_some());
    HybridSearchInfo {
        global_statistics_query: statistics(query, &components),
        component_queries: (0..components.len())
            .map(|index| component_query(query, &components, index, skip, take))
            .collect(),
        component_weights: match (weights.map(|weights| &weights.kind), ranking) {
            (Some(ExprKind::Array(_) | ExprKind::Parameter(_)), Some(ranking)) => ranking.weights.clone(),
            _ => Vec::new(),
        },
        // All or none: if one component is not plain, the client gets no terms.
        full_text_terms: components
            .iter()
            .filter_map(|component| component.full_text.as_ref())
            .map(|(text, terms)| searched(text, terms, parameters))
            .collect::<Option<_>>()
            .unwrap_or_default(),
        combination: match ranked {
            Some(item) if is_call_to(&item.expr, "COMBINEDSCORE") => Combination::CombinedScore,
            _ => Combination::Rrf,
        },
        skip,
        take,
        requires_global_statistics,
    }
}

fn component(
    score: &Expr,
    compiled: &RankComponent,
    texts: &mut usize,
    parameters: &Parameters,
) -> Component {
    let arguments = match &score.kind {
        ExprKind::Call(call) => &call.arguments[..],
        _ => &[],
    };
    match (compiled, arguments) {
        (RankComponent::FullText { .. }, [text, listed @ ..]) => {
            let index = *texts;
            *texts += 1;
            let terms = terms(listed, parameters);
            let placeholder = |name: &str| {
                expr(ExprKind::Placeholder(
                    format!("{{documentdb-formattablehybridsearchquery-{name}}}").into(),
                ))
            };
            // Clients replace the placeholders by results of the statistics query.
            let score = call(
                "_FullTextScore",
                vec![
                    text.clone(),
                    expr(ExprKind::Array(terms.clone())),
                    placeholder("totaldocumentcount"),
                    placeholder(&format!("totalwordcount-{index}")),
                    placeholder(&format!("hitcountsarray-{index}")),
                ],
            );
            Component {
                score,
                direction: Direction::Descending,
                // Less than any score, for rows whose text cannot be scored.
                fallback: Number::Int(-1),
                written_direction: Some(Direction::Descending),
                full_text: Some((text.clone(), terms)),
            }
        }
        (compiled, _) => {
            let direction = match compiled {
                RankComponent::Vector { direction, .. } => *direction,
                RankComponent::FullText { .. } => Direction::Descending,
            };
            // The worst possible score of either order, nearly.
            let worst = if direction == Direction::Ascending { WORST_SCORE } else { -WORST_SCORE };
            let fallback = Number::Double(worst);
            let score = call("_VectorScore", arguments.to_vec());
            Component { score, direction, fallback, written_direction: None, full_text: None }
        }
    }
}

/// The search terms, one by one, whether they were given as arguments or as one array.
fn terms(listed: &[Expr], parameters: &Parameters) -> Vec<Expr> {
    let mut terms = Vec::new();
    for term in listed {
        match &term.kind {
            ExprKind::Array(items) => terms.extend(items.iter().cloned()),
            // A parameter may hold all terms in one array.
            ExprKind::Parameter(name) => {
                let value =
                    parameters.iter().find(|(known, _)| known.as_str() == &**name).map(|(_, value)| value);
                match value {
                    Some(Value::Array(items)) => terms.extend(items.iter().map(literal)),
                    _ => terms.push(term.clone()),
                }
            }
            _ => terms.push(term.clone()),
        }
    }
    terms
}

fn literal(value: &Value) -> Expr {
    expr(match value {
        Value::Null => ExprKind::Literal(Literal::Null),
        Value::Bool(flag) => ExprKind::Literal(Literal::Bool(*flag)),
        Value::Number(number) => ExprKind::Literal(Literal::Number(*number)),
        Value::String(text) => ExprKind::Literal(Literal::String(text.clone())),
        Value::Array(items) => ExprKind::Array(items.iter().map(literal).collect()),
        Value::Object(object) => {
            ExprKind::Object(object.iter().map(|(name, value)| (name.into(), literal(value))).collect())
        }
    })
}

/// The path and terms of a full-text component, as clients may use them.
fn searched(text: &Expr, terms: &[Expr], parameters: &Parameters) -> Option<FullTextTerms> {
    // An array's place is padded to the width of the service's buffer.
    let place = |number: Number| Value::from(format!("[{:>64}]", number.as_f64()).as_str());
    let mut path = Vec::new();
    let mut part = text;
    loop {
        part = match &part.kind {
            ExprKind::Member { base, name, .. } => {
                path.push(Value::String(name.text.clone()));
                base
            }
            ExprKind::Index { base, index } => {
                if let ExprKind::Literal(Literal::Number(number)) = &index.kind {
                    path.push(place(*number));
                }
                base
            }
            ExprKind::Identifier(_) => break,
            _ => return None,
        };
    }
    if path.is_empty() {
        return None;
    }
    path.reverse();
    let term = |term: &Expr| {
        let mut entry = Object::new();
        match &term.kind {
            ExprKind::Literal(Literal::String(text)) => entry.set("term", Value::String(text.clone())),
            ExprKind::Object(members) => {
                for (name, value) in members {
                    let value = match &value.kind {
                        ExprKind::Literal(Literal::String(text)) => Value::String(text.clone()),
                        ExprKind::Literal(Literal::Number(number)) => Value::Number(*number),
                        _ => continue,
                    };
                    entry.set(&*name.text, value);
                }
            }
            ExprKind::Parameter(name) => {
                let found = parameters.iter().find(|(known, _)| known.as_str() == &**name);
                match found.map(|(_, value)| value) {
                    Some(Value::Object(object)) => entry = object.clone(),
                    Some(value) => entry.set("term", value.clone()),
                    None => {}
                }
            }
            _ => {}
        }
        Value::from(entry)
    };
    Some(FullTextTerms { path, terms: terms.iter().map(term).collect() })
}

/// Counts documents, words and hits over all documents.
fn statistics(query: &Query, components: &[Component]) -> String {
    let entries =
        components.iter().filter_map(|component| component.full_text.as_ref()).map(|(text, terms)| {
            let words = call("SUM", vec![call("_FullTextWordCount", vec![text.clone()])]);
            let hits = terms.iter().map(|term| {
                call("COUNTIF", vec![call("FullTextContains", vec![text.clone(), term.clone()])])
            });
            let hits = expr(ExprKind::Array(hits.collect()));
            expr(ExprKind::Object(vec![("totalWordCount".into(), words), ("hitCounts".into(), hits)]))
        });
    let one = expr(ExprKind::Literal(Literal::Number(Number::Int(1))));
    // Statistics are about all documents, whatever the query filters, sorts or limits.
    let mut counting = query.clone();
    counting.select.distinct = false;
    counting.select.top = None;
    counting.select.selection = Selection::List(vec![
        aliased(call("COUNT", vec![one]), "documentCount"),
        aliased(expr(ExprKind::Array(entries.collect())), "fullTextStatistics"),
    ]);
    counting.filter = None;
    counting.order_by = None;
    counting.offset_limit = None;
    printer::planned(&counting)
}

fn component_query(
    query: &Query,
    components: &[Component],
    index: usize,
    skip: Option<u64>,
    take: Option<u64>,
) -> QueryInfo {
    let component = &components[index];
    let rows = take.map(|take| {
        // More than the rows wanted: one that is among the best overall need not be so in every component.
        let wanted = skip.unwrap_or(0).saturating_add(take).saturating_mul(2);
        wanted.clamp(COMPONENT_ROWS_MIN, limits::COUNT_MAX)
    });
    let root = root_alias(query);
    // Each row carries its scores in all components, so a client can rank it in each of them.
    let scores = components.iter().map(|component| {
        expr(ExprKind::Binary {
            operator: BinaryOperator::Coalesce,
            left: Box::new(component.score.clone()),
            right: Box::new(expr(ExprKind::Literal(Literal::Number(component.fallback)))),
        })
    });
    let payload = expr(ExprKind::Object(vec![
        ("payload".into(), payload(&query.select.selection, &root)),
        ("componentScores".into(), expr(ExprKind::Array(scores.collect()))),
    ]));
    let mut rewritten = query.clone();
    rewritten.select.distinct = false;
    rewritten.select.top = None;
    rewritten.offset_limit = None;
    let mut info = QueryInfo {
        order_by: vec![component.direction],
        order_by_expressions: vec![printer::expression(&component.score)],
        has_non_streaming_order_by: true,
        ..QueryInfo::default()
    };
    // In the form of the query: clients read the count from the same member.
    match rows {
        Some(rows) if query.offset_limit.is_some() => {
            rewritten.offset_limit = Some(first_rows(rows));
            info.offset = Some(0);
            info.limit = Some(rows);
        }
        Some(rows) => {
            rewritten.select.top = Some(count(rows));
            info.top = Some(rows);
        }
        None => {}
    }
    rewritten.select.selection = ordered_selection(&root, std::slice::from_ref(&component.score), payload);
    let mut conditions: Vec<Expr> = query.filter.clone().into_iter().collect();
    conditions.push(filter_placeholder());
    rewritten.filter = Some(conjunction(conditions));
    let span = crate::ast::Span::default();
    let item = OrderItem { expr: component.score.clone(), direction: component.written_direction, span };
    rewritten.order_by = Some(OrderBy { rank: false, items: vec![item], span });
    info.rewritten_query = printer::planned(&rewritten);
    info
}
