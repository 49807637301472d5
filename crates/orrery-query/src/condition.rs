//! Conditions of conditional patches: `FROM c WHERE …`.

use orrery_model::Value;

use crate::ast::{Collection, Query, Source};
use crate::compile::Settings;
use crate::context::{Context, Policies};
use crate::error::QueryError;
use crate::eval::{self, Env};
use crate::operand::borrowed;
use crate::program::{DOCUMENT, Node};
use crate::{check, compile, parser};

/// A predicate over one item.
#[derive(Debug)]
pub struct Condition {
    filter: Option<Node>,
}

/// Parses a condition. Without WHERE it always holds.
pub fn parse_condition(text: &str) -> Result<Condition, Vec<QueryError>> {
    let query: Query = parser::parse_condition(text).map_err(|error| vec![error])?;
    let sources = query.from.as_ref().map_or(&[][..], |from| &from.sources);
    let alias = match sources {
        [] => None,
        [source] if is_item(source) => check::source_alias(source),
        _ => {
            return Err(vec![QueryError::text("The FROM clause of a condition must name the item alone.")]);
        }
    };
    if sources.is_empty() {
        // It can only contain constants then; the star of the synthetic SELECT must not be reported.
        let mut standing = query.clone();
        standing.select.selection = crate::ast::Selection::List(Vec::new());
        check::check(text, &standing)?;
    } else {
        check::check(text, &query)?;
    }
    // A condition sees the item alone: no parameters, no computed properties, no policies.
    let policies = Policies::default();
    let settings = Settings { parameters: &[], computed: &[], policies: &policies };
    let filter = query
        .filter
        .as_ref()
        .map(|filter| compile::document_expression(filter, alias.unwrap_or(""), settings))
        .transpose()?;
    Ok(Condition { filter })
}

fn is_item(source: &Source) -> bool {
    !source.iterate && matches!(&source.collection, Collection::Path { steps, .. } if steps.is_empty())
}

impl Condition {
    /// Whether the item satisfies the condition; false if it fails or is undefined.
    pub fn holds(&self, item: &Value, context: &Context<'_>) -> bool {
        let values = [borrowed(item)];
        let env = Env::default();
        let env = Env::bind(&env, &[DOCUMENT], &values);
        self.filter.as_ref().is_none_or(|filter| eval::is_true(filter, env, context).unwrap_or(false))
    }
}
