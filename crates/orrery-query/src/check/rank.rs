//! ORDER BY, and the rules of ORDER BY RANK.

use super::{Binder, Clause, Place, is_call_to, order};
use crate::ast::{Call, Collection, Expr, ExprKind, Literal, OrderBy, Query};
use crate::functions;

const NOT_A_SCORE: &str =
    "The ORDER BY RANK clause must be followed by a VectorDistance and/or a FullTextScore function call.";
const WEIGHTS: &str = "The last parameter of the RRF function is an optional array of weights. When present, it must be a literal array of numbers, one for each of the component scores used for the RRF function. The length of this array must be the same as the number of the component scores.";
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
        let before = self.errors.len();
        let (scores, weights) = split_weights(call);
        if call.arguments.len() < 2 {
            let message = "A score fusion function requires at least two component score functions.";
            self.report(2233, order_by.span, message);
        }
        self.fused_scores = self.fused_scores.max(call.arguments.len());
        let fine = self.errors.len();
        // The last argument is looked at first: it may be the weights.
        if let Some((last, others)) = call.arguments.split_last() {
            self.expr(last);
            for argument in others {
                self.expr(argument);
            }
        }
        if self.errors.len() > fine {
            return;
        }
        if scores.iter().any(|score| !is_score(score)) {
            self.report(2221, order_by.span, NOT_A_SCORE);
        } else if call.name.text.eq_ignore_ascii_case("COMBINEDSCORE")
            && scores.iter().any(|score| !is_call_to(score, "FULLTEXTSCORE"))
        {
            let message = "The COMBINEDSCORE function only supports FullTextScore component scores.";
            self.report(2231, order_by.span, message);
        }
        if self.errors.len() > before {
            return;
        }
        if let Some(ExprKind::Array(items)) = weights.map(|weights| &weights.kind)
            && (items.len() != scores.len() || !items.iter().all(is_number))
        {
            self.report(2229, order_by.span, WEIGHTS);
        }
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
        for term in call.arguments.iter().skip(1) {
            if !self.is_search_term(term) {
                self.report(2241, term.span, TERMS);
                return;
            }
        }
    }

    fn is_search_term(&self, term: &Expr) -> bool {
        match &term.kind {
            ExprKind::Literal(Literal::String(_)) => true,
            ExprKind::Object(_) => fuzzy_term(term),
            ExprKind::Parameter(name) => self.parameters.is_none_or(|parameters| {
                let found = parameters.iter().find(|(known, _)| known.as_str() == &**name);
                found.is_some_and(|(_, value)| {
                    value.as_str().is_some() || value.as_array().is_some() || value.as_object().is_some()
                })
            }),
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
        Some(ExprKind::Literal(Literal::Number(number))) => (0.0..=2.0).contains(&number.as_f64()),
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

/// The component scores of a fusion, and what follows two or more of them without being a score.
pub(crate) fn split_weights(call: &Call) -> (&[Expr], Option<&Expr>) {
    match call.arguments.split_last() {
        Some((last, scores)) if scores.len() > 1 && !matches!(last.kind, ExprKind::Call(_)) => {
            (scores, Some(last))
        }
        _ => (&call.arguments, None),
    }
}

fn is_number(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Literal(Literal::Number(_)))
}

/// The functions that exist only as the call behind ORDER BY RANK.
pub(super) fn is_rank_only(function: &functions::Function) -> bool {
    matches!(function.name, "RRF" | "COMBINEDSCORE")
}
