//! The rules of ORDER BY RANK.

use super::{Checker, Clause, is_call_to};
use crate::ast::{Call, Collection, Expr, ExprKind, Literal, OrderBy, Query, UnaryOperator};

const NOT_A_SCORE: &str =
    "The ORDER BY RANK clause must be followed by a VectorDistance and/or a FullTextScore function call.";
const WEIGHTS: &str = "The last parameter of the RRF function is an optional array of weights. When present, it must be a literal array of numbers, one for each of the component scores used for the RRF function. The length of this array must be the same as the number of the component scores.";

impl Checker<'_> {
    pub(super) fn rank(&mut self, order_by: &OrderBy, query: &Query, top_level: bool) {
        let Some(first) = order_by.items.first() else {
            return;
        };
        let span = first.expr.span;
        if let Some(from) = &query.from {
            let source = &from.sources[0];
            if source.iterate {
                let message =
                    "The FROM clause with the IN operator is not allowed with the ORDER BY RANK clause.";
                self.report(2223, source.span, message);
            }
            if let Some(joined) = from.sources.get(1) {
                self.report(
                    2224,
                    joined.span,
                    "The JOIN operator is not allowed with the ORDER BY RANK clause.",
                );
            }
            if matches!(source.collection, Collection::Subquery(_)) {
                let message = "Subqueries in the FROM clause are not allowed with the ORDER BY RANK clause.";
                self.report(2225, source.span, message);
            }
        }
        if !top_level && self.errors.iter().all(|error| error.code != crate::error::Code::Sc(2228)) {
            self.report(2228, span, "The ORDER BY RANK clause is not supported in subqueries.");
        }
        if order_by.items.len() > 1 {
            self.report(2221, order_by.items[1].expr.span, NOT_A_SCORE);
        }
        if !query.group_by.is_empty() || super::is_grouped(query) {
            self.report_text("Aggregates and 'GROUP BY' are not supported together with 'ORDER BY RANK'.");
        }
    }

    /// Checks the ranking expression itself.
    pub(super) fn rank_expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Call(call) if is_call_to(expr, "RRF") => self.fusion(expr, call),
            ExprKind::Call(call) => self.score(expr, call),
            _ => self.report(2221, expr.span, NOT_A_SCORE),
        }
    }

    fn fusion(&mut self, expr: &Expr, call: &Call) {
        let (scores, weights) = split_weights(call);
        if scores.is_empty() {
            self.report(2050, expr.span, super::arity_message("RRF", 2, crate::functions::UNBOUNDED));
        }
        for score in scores {
            match &score.kind {
                ExprKind::Call(call) => self.score(score, call),
                _ => self.report(2221, score.span, NOT_A_SCORE),
            }
        }
        if let Some(weights) = weights {
            let valid = match &weights.kind {
                ExprKind::Array(items) => items.len() == scores.len() && items.iter().all(is_number),
                _ => false,
            };
            if !valid {
                self.report(2229, weights.span, WEIGHTS);
            }
        }
    }

    fn score(&mut self, expr: &Expr, call: &Call) {
        if is_call_to(expr, "FULLTEXTSCORE") {
            if call.arguments.len() < 2 {
                let message = super::arity_message("FULLTEXTSCORE", 2, crate::functions::UNBOUNDED);
                self.report(2050, expr.span, message);
            }
        } else if is_call_to(expr, "VECTORDISTANCE") {
            self.built_in(expr, call);
        } else {
            self.report(2221, expr.span, NOT_A_SCORE);
        }
        for argument in &call.arguments {
            self.expr(argument, Clause::OrderBy);
        }
    }
}

/// The component scores of RRF, and the last argument if it is not a score.
pub(crate) fn split_weights(call: &Call) -> (&[Expr], Option<&Expr>) {
    match call.arguments.split_last() {
        Some((last, scores)) if !matches!(last.kind, ExprKind::Call(_)) => (scores, Some(last)),
        _ => (&call.arguments, None),
    }
}

fn is_number(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Literal(Literal::Number(_)) => true,
        ExprKind::Unary { operator: UnaryOperator::Minus, operand } => is_number(operand),
        _ => false,
    }
}
