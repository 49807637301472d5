//! Computed properties: named expressions over the item.
//!
//! Queries see them like stored properties, `SELECT *` does not show them, and they hide a stored
//! property of the same name.

use crate::ast::{Collection, Expr, ExprKind, Query, Selection};
use crate::check::{self, aggregate_of, is_grouped, source_alias};
use crate::error::QueryError;
use crate::functions::NOT_DETERMINISTIC;

/// Computed properties a container may have.
pub const COMPUTED_PROPERTIES_MAX: usize = 20;

/// Reserved names.
pub(crate) const SYSTEM_NAMES: [&str; 7] = ["id", "_rid", "_ts", "_self", "_etag", "_attachments", "_lsn"];

/// A property that queries see although items do not store it.
#[derive(Clone, Debug)]
pub struct ComputedProperty {
    pub name: String,
    pub query: Query,
}

impl ComputedProperty {
    /// Parses and validates a definition.
    pub fn parse(name: &str, text: &str) -> Result<Self, Vec<QueryError>> {
        let refuse = |reason: &str| {
            vec![QueryError::text(format!("The computed property '{name}' is invalid: {reason}."))]
        };
        if name.is_empty() || SYSTEM_NAMES.contains(&name) {
            return Err(refuse("its name is reserved or empty"));
        }
        let query = check::parse(text)?;
        let Selection::Value(expr) = &query.select.selection else {
            return Err(refuse("its query must use SELECT VALUE"));
        };
        let sources = query.from.as_ref().map_or(&[][..], |from| &from.sources);
        let over_root = match sources {
            [source] => {
                !source.iterate
                    && matches!(&source.collection, Collection::Path { steps, .. } if steps.is_empty())
            }
            _ => false,
        };
        if !over_root {
            return Err(refuse("its query must read from the root of the item alone"));
        }
        let only_select = query.filter.is_none()
            && query.order_by.is_none()
            && query.offset_limit.is_none()
            && query.select.top.is_none()
            && !query.select.distinct
            && !is_grouped(&query);
        if !only_select {
            return Err(refuse("its query may have no clauses but SELECT VALUE and FROM, and no aggregates"));
        }
        if let Some(reason) = forbidden(expr) {
            return Err(refuse(reason));
        }
        Ok(Self { name: name.to_owned(), query })
    }
}

/// Checks the definitions of one container against each other.
pub fn check_all(properties: &[ComputedProperty]) -> Result<(), QueryError> {
    if properties.len() > COMPUTED_PROPERTIES_MAX {
        return Err(QueryError::text(format!(
            "A container may have at most {COMPUTED_PROPERTIES_MAX} computed properties."
        )));
    }
    for (index, property) in properties.iter().enumerate() {
        if properties[..index].iter().any(|earlier| earlier.name == property.name) {
            return Err(QueryError::text(format!(
                "The computed property '{}' is defined more than once.",
                property.name
            )));
        }
        let alias = property.query.from.as_ref().and_then(|from| from.sources.first()).and_then(source_alias);
        // Also to itself, and to properties that are defined later.
        if let (Some(alias), Selection::Value(expr)) = (alias, &property.query.select.selection)
            && properties.iter().any(|other| refers_to(expr, alias, &other.name))
        {
            return Err(QueryError::text(format!(
                "The computed property '{}' is invalid: it refers to a computed property.",
                property.name
            )));
        }
    }
    Ok(())
}

/// Why an expression is not allowed in a computed property.
fn forbidden(expr: &Expr) -> Option<&'static str> {
    let own = match &expr.kind {
        ExprKind::Subquery { .. } => Some("subqueries are not allowed"),
        ExprKind::Parameter(_) => Some("parameters are not allowed"),
        ExprKind::Call(call) if call.udf => Some("user-defined functions are not allowed"),
        ExprKind::Call(call) if aggregate_of(call).is_some() => Some("aggregates are not allowed"),
        ExprKind::Call(call) => {
            let name = call.name.text.to_ascii_uppercase();
            if name.starts_with("ST_") {
                Some("spatial functions are not allowed")
            } else if NOT_DETERMINISTIC.contains(&name.as_str()) {
                Some("functions that are not deterministic are not allowed")
            } else {
                None
            }
        }
        _ => None,
    };
    own.or_else(|| expr.children().into_iter().find_map(forbidden))
}

/// Whether the expression names the property `name` of the item.
fn refers_to(expr: &Expr, alias: &str, name: &str) -> bool {
    let own = match &expr.kind {
        ExprKind::Member { base, name: member, .. } => {
            &*member.text == name && matches!(&base.kind, ExprKind::Identifier(root) if &**root == alias)
        }
        _ => false,
    };
    own || expr.children().into_iter().any(|child| refers_to(child, alias, name))
}
