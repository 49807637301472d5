//! ORDER BY RANK: the components and their weights.

use orrery_model::Value;

use super::Compiler;
use super::expression::{policy_path, vector_direction};
use crate::ast::{Expr, ExprKind, Query};
use crate::check::{is_call_to, is_fusion, split_weights};
use crate::error::QueryError;
use crate::program::{Node, RankComponent, Ranking};

impl Compiler<'_> {
    /// Compiles the ranking in the scope that [`Self::block`] left open for it.
    pub(super) fn ranking(&mut self, query: &Query) -> Option<Ranking> {
        let order_by = query.order_by.as_ref().filter(|order_by| order_by.rank)?;
        let item = order_by.items.first()?;
        // RRF fuses several scores; a single score is treated as a fusion of one.
        let (scores, weights): (&[Expr], Option<&Expr>) = match &item.expr.kind {
            ExprKind::Call(call) if is_fusion(&item.expr) => split_weights(call),
            _ => (std::slice::from_ref(&item.expr), None),
        };
        let components: Vec<RankComponent> =
            scores.iter().filter_map(|score| self.rank_component(score)).collect();
        let weights = match weights.map(|weights| self.expr(weights)) {
            Some(Node::Constant(Some(Value::Array(weights)))) => {
                weights.iter().filter_map(Value::as_number).map(orrery_model::Number::as_f64).collect()
            }
            // Without weights all components count alike.
            _ => vec![1.0; components.len()],
        };
        Some(Ranking { components, weights })
    }

    fn rank_component(&mut self, score: &Expr) -> Option<RankComponent> {
        let ExprKind::Call(call) = &score.kind else {
            return None;
        };
        if !is_call_to(score, "FULLTEXTSCORE") {
            let score = self.expr(score);
            let direction = vector_direction(&score);
            return Some(RankComponent::Vector { score, direction });
        }
        let (text, terms) = call.arguments.split_first()?;
        let text = self.expr(text);
        let path = policy_path(&text);
        let mut values = Vec::new();
        for term in terms {
            match self.expr(term) {
                // The preview form: one array of terms.
                Node::Constant(Some(Value::Array(listed))) => values.extend(listed),
                Node::Constant(Some(value)) => values.push(value),
                _ => self.errors.push(QueryError::text(
                    "The search terms of the FullTextScore function must be literals or parameters.",
                )),
            }
        }
        Some(RankComponent::FullText { text, terms: values, path })
    }
}
