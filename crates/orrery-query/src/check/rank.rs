//! ORDER BY, and the rules of ORDER BY RANK.

use super::{Binder, Clause, Place, is_call_to, order};
use crate::ast::{Call, Collection, Expr, ExprKind, Literal, OrderBy, Query, SubqueryKind};
use crate::functions;
use orrery_model::{Number, Value};

const NOT_A_SCORE: &str =
    "The ORDER BY RANK clause must be followed by a VectorDistance and/or a FullTextScore function call.";
const WEIGHTS: &str = "The last parameter of the RRF function is an optional array of weights. When present, it must be a literal array of numbers, one for each of the component scores used for the RRF function. The length of this array must be the same as the number of the component scores.";
const COMBINED_WEIGHTS: &str = "The optional weights argument to COMBINEDSCORE must be a literal array of numbers, with one weight for each component score. The number of weights must match the number of component scores.";
const TERMS: &str = "The second through last arguments of the 'FullTextScore' function must be literals of type string or object specifying the fuzzy search argument containing a 'term' property which is a string and a 'distance' property which is a number between 0 and 2 (inclusive).";

impl<'q> Binder<'q> {
    pub(super) fn order_by(&mut self, query: &'q Query, place: Place) {
        let Some(order_by) = &query.order_by else {
            return;
        };
        if order_by.rank {
            self.level().clause = Clause::Rank;
            self.rank(order_by, place);
            return;
        }
        self.level().clause = Clause::OrderBy;
        if place != Place::Top {
            self.report(2202, order_by.span, "'ORDER BY' is not supported in subqueries.");
        }
        // Without groups, rows are sorted by paths before they are aggregated.
        self.level().sorts_input = query.group_by.is_empty() && order::sorts_input(query);
        for item in &order_by.items {
            self.expr(&item.expr);
            if item.direction.is_some() && is_call_to(&item.expr, "VECTORDISTANCE") {
                let message = "Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported. VectorDistance will always sort in the order of most similar (first) to least similar (last).";
                self.report(2210, item.span, message);
            }
        }
    }

    /// Restrictions of ORDER BY RANK on the FROM clause.
    pub(super) fn ranked_sources(&mut self, query: &'q Query) {
        let sources = query.from.as_ref().map_or(&[][..], |from| &from.sources);
        if let [first, .., last] = sources {
            let message = "The JOIN operator is not allowed with the ORDER BY RANK clause.";
            self.report(2224, first.span.to(last.span), message);
        }
        for source in sources {
            if source.iterate {
                let message =
                    "The FROM clause with the IN operator is not allowed with the ORDER BY RANK clause.";
                self.report(2223, source.span, message);
            }
            if matches!(source.collection, Collection::Subquery(_)) {
                let message = "Subqueries in the FROM clause are not allowed with the ORDER BY RANK clause.";
                self.report(2225, source.path_span, message);
            }
        }
    }

    fn rank(&mut self, order_by: &'q OrderBy, place: Place) {
        let Some(item) = order_by.items.first() else {
            return;
        };
        if place != Place::Top {
            let message = "The ORDER BY RANK clause is not supported in subqueries.";
            self.report(2228, order_by.span, message);
        }
        if item.direction.is_some() {
            let message = "Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause is not allowed.";
            self.report(2222, order_by.span, message);
        }
        let ExprKind::Call(call) = &item.expr.kind else {
            self.report(2221, order_by.span, NOT_A_SCORE);
            return;
        };
        if is_fusion(&item.expr) {
            self.fusion(order_by, call);
        } else {
            self.score(order_by, &item.expr);
        }
    }

    fn fusion(&mut self, order_by: &'q OrderBy, call: &'q Call) {
        let (scores, weights) = split_weights(call);
        let combined = call.name.text.eq_ignore_ascii_case("COMBINEDSCORE");
        self.fused_scores = self.fused_scores.max(call.arguments.len());
        let before = self.errors.len();
        // The last of several arguments is looked at first: it may be the weights.
        if let [_, .., last] = &call.arguments[..] {
            self.expr(last);
        }
        let mut fine = self.errors.len() == before;
        if weights.is_some_and(|weights| !self.are_weights(weights, scores.len())) {
            let (code, message) = if combined { (2230, COMBINED_WEIGHTS) } else { (2229, WEIGHTS) };
            self.report(code, order_by.span, message);
        }
        if scores.len() < 2 {
            let message = "A score fusion function requires at least two component score functions.";
            self.report(2233, order_by.span, message);
        }
        let before = self.errors.len();
        // All but the last argument, which was bound first.
        let left = if call.arguments.len() > 1 { call.arguments.len() - 1 } else { 1 };
        for score in scores.iter().take(left) {
            self.expr(score);
        }
        fine &= self.errors.len() == before;
        if fine && scores.iter().any(|score| !is_score(score)) {
            self.report(2221, order_by.span, NOT_A_SCORE);
        } else if fine && combined && scores.iter().any(|score| !is_call_to(score, "FULLTEXTSCORE")) {
            let message = "The COMBINEDSCORE function only supports FullTextScore component scores.";
            self.report(2231, order_by.span, message);
        }
    }

    /// Whether this is a number for each score. What is no list does not count.
    fn are_weights(&self, weights: &Expr, scores: usize) -> bool {
        match &weights.kind {
            ExprKind::Array(items) => {
                let is_weight = |item: &Expr| match &item.kind {
                    ExprKind::Parameter(name) => {
                        self.parameter(name).is_none_or(|value| value.as_number().is_some())
                    }
                    kind => matches!(kind, ExprKind::Literal(Literal::Number(_))),
                };
                items.len() == scores && items.iter().all(is_weight)
            }
            ExprKind::Parameter(name) => match self.parameter(name) {
                Some(Value::Array(items)) => {
                    items.len() == scores && items.iter().all(|item| item.as_number().is_some())
                }
                _ => true,
            },
            _ => true,
        }
    }

    /// The value of a parameter, if it has one and it is known.
    fn parameter(&self, name: &str) -> Option<&'q Value> {
        self.parameters?.iter().find(|(known, _)| known.as_str() == name).map(|(_, value)| value)
    }

    fn score(&mut self, order_by: &'q OrderBy, expr: &'q Expr) {
        let before = self.errors.len();
        self.expr(expr);
        if self.errors.len() == before && !is_score(expr) {
            self.report(2221, order_by.span, NOT_A_SCORE);
        }
    }

    /// A call of FullTextScore with enough arguments.
    pub(super) fn full_text_score(&mut self, expr: &Expr, call: &Call) {
        if self.level().clause != Clause::Rank {
            let message = "The FullTextScore function is only allowed in the ORDER BY RANK clause.";
            self.report(2240, expr.span, message);
            return;
        }
        self.search_terms = self.search_terms.max(call.arguments.len().saturating_sub(1));
        // Whichever it is, the service points at the first.
        if let [_, terms @ ..] = &call.arguments[..]
            && let [first, ..] = terms
            && !terms.iter().all(|term| self.is_search_term(term))
        {
            self.report(2241, first.span, TERMS);
        }
    }

    /// The score of a plan's component query, with the statistics filled in: terms and hits must be lists.
    pub(super) fn rewritten_score(&mut self, expr: &Expr, call: &Call) {
        let listed =
            [1, 4].iter().all(|place| call.arguments.get(*place).is_some_and(|list| self.is_list(list)));
        if !listed {
            let message = "One or more arguments provided by the rewritten full text query are invalid.";
            self.report(2242, expr.span, message);
            // To the service the function is then unknown as well, and it reports both.
            self.unknown_function(call);
        }
    }

    fn is_list(&self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Array(_) | ExprKind::Subquery { kind: SubqueryKind::Array, .. } => true,
            ExprKind::Parameter(name) => {
                self.parameters.is_none()
                    || self.parameter(name).is_some_and(|value| value.as_array().is_some())
            }
            _ => false,
        }
    }

    /// Whether a call here can be to this function: fusions stand only behind ORDER BY RANK, scores of component
    /// queries anywhere else.
    pub(super) fn is_callable(&mut self, function: &functions::Function) -> bool {
        match function.name {
            "RRF" | "COMBINEDSCORE" => false,
            "_FULLTEXTSCORE" => self.level().clause != Clause::Rank,
            _ => true,
        }
    }

    fn is_search_term(&self, term: &Expr) -> bool {
        match &term.kind {
            ExprKind::Literal(Literal::String(_)) => true,
            ExprKind::Object(_) => fuzzy_term(term),
            ExprKind::Parameter(name) => {
                self.parameters.is_none()
                    || self.parameter(name).is_some_and(|value| {
                        matches!(value, Value::String(_) | Value::Array(_) | Value::Object(_))
                    })
            }
            _ => false,
        }
    }
}

/// `{"term": "text", "distance": 0..2}`
fn fuzzy_term(expr: &Expr) -> bool {
    let ExprKind::Object(members) = &expr.kind else {
        return false;
    };
    let member = |wanted: &str| members.iter().find(|(name, _)| &*name.text == wanted).map(|(_, e)| &e.kind);
    let term = matches!(member("term"), Some(ExprKind::Literal(Literal::String(_))));
    let distance = match member("distance") {
        Some(ExprKind::Literal(Literal::Number(Number::Int(distance)))) => (0..=2).contains(distance),
        _ => false,
    };
    term && distance && members.len() == 2
}

fn is_score(expr: &Expr) -> bool {
    is_call_to(expr, "FULLTEXTSCORE") || is_call_to(expr, "VECTORDISTANCE")
}

/// Whether the call fuses several scores.
pub(crate) fn is_fusion(expr: &Expr) -> bool {
    is_call_to(expr, "RRF") || is_call_to(expr, "COMBINEDSCORE")
}

/// The component scores of a fusion, and the constant that may follow them: their weights.
pub(crate) fn split_weights(call: &Call) -> (&[Expr], Option<&Expr>) {
    match call.arguments.split_last() {
        Some((last, scores))
            if !scores.is_empty()
                && matches!(
                    last.kind,
                    ExprKind::Array(_) | ExprKind::Literal(_) | ExprKind::Parameter(_)
                ) =>
        {
            (scores, Some(last))
        }
        _ => (&call.arguments, None),
    }
}
