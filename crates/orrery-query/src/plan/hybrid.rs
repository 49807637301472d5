//! Plans of ORDER BY RANK: statistics over all documents, one query per component, then fusion.

use orrery_model::{Number, Object, Value};

use super::rewrite::{
    aliased, call, conjunction, count, expr, filter_placeholder, first_rows, ordered_selection, payload,
    root_alias,
};
use super::{QueryInfo, count_value};
use crate::ast::{BinaryOperator, Direction, Expr, ExprKind, Literal, OrderBy, OrderItem, Query, Selection};
use crate::check::{is_call_to, split_weights};
use crate::compile::{Parameters, resolve_count};
use crate::limits;
use crate::printer;
use crate::program::{Program, RankComponent};

/// A component is asked for at least so many rows, so that fusion has enough to work with.
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
    let (scores, weights): (&[Expr], Option<&Expr>) = match ranked.map(|item| &item.expr) {
        Some(whole) => match &whole.kind {
            ExprKind::Call(rrf) if is_call_to(whole, "RRF") => split_weights(rrf),
            _ => (std::slice::from_ref(whole), None),
        },
        None => (&[], None),
    };
    let ranking = program.rank.as_ref();
    let components: Vec<Component> = scores
        .iter()
        .zip(ranking.map_or(&[][..], |ranking| &ranking.components))
        .scan(0, |texts, (score, compiled)| Some(component(score, compiled, texts, parameters)))
        .collect();
    let top = query.select.top.as_ref().and_then(|top| resolve_count(top, parameters));
    let window = query.offset_limit.as_ref();
    let skip = window.and_then(|clause| resolve_count(&clause.offset, parameters));
    let take = top.or_else(|| window.and_then(|clause| resolve_count(&clause.limit, parameters)));
    let requires_global_statistics = components.iter().any(|component| component.full_text.is_some());
    HybridSearchInfo {
        global_statistics_query: if requires_global_statistics {
            statistics(query, &components)
        } else {
            String::new()
        },
        component_queries: (0..components.len())
            .map(|index| component_query(query, &components, index, skip, take))
            .collect(),
        component_weights: match (weights, ranking) {
            (Some(_), Some(ranking)) => ranking.weights.clone(),
            _ => Vec::new(),
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
            // The worst possible score of either order.
            let worst = if direction == Direction::Ascending { f64::MAX } else { f64::MIN };
            let fallback = Number::Double(worst);
            Component { score: score.clone(), direction, fallback, written_direction: None, full_text: None }
        }
    }
}

/// The search terms, one by one, whether they were given as arguments or as one array.
fn terms(listed: &[Expr], parameters: &Parameters) -> Vec<Expr> {
    let mut terms = Vec::new();
    for term in listed {
        match &term.kind {
            ExprKind::Array(items) => terms.extend(items.iter().cloned()),
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

/// Counts documents, words and hits over all documents the filter keeps.
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
    let mut counting = query.clone();
    counting.select.distinct = false;
    counting.select.top = None;
    counting.select.selection = Selection::List(vec![
        aliased(call("COUNT", vec![one]), "documentCount"),
        aliased(expr(ExprKind::Array(entries.collect())), "fullTextStatistics"),
    ]);
    counting.order_by = None;
    counting.offset_limit = None;
    printer::query(&counting)
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
        let wanted = skip.unwrap_or(0).saturating_add(take).saturating_mul(2);
        wanted.clamp(COMPONENT_ROWS_MIN, limits::COUNT_MAX)
    });
    let root = root_alias(query);
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
    let item = OrderItem { expr: component.score.clone(), direction: component.written_direction };
    rewritten.order_by = Some(OrderBy { rank: false, items: vec![item] });
    info.rewritten_query = printer::query(&rewritten);
    info
}
