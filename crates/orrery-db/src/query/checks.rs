//! What a query needs from its container: an index to sort by.
//!
//! The service rejects an ORDER BY that no index serves, although sorting without one would be possible; clients rely
//! on the error. The container's newest policy counts, even while its index is being built: until then such a query is
//! sorted without it.

use orrery_model::Result;
use orrery_model::container::{ContainerDefinition, IndexStep, IndexingMode, PolicyPath};
use orrery_query::QueryError;
use orrery_query::ast::{Direction, Query};
use orrery_query::check::indexes::{self, CompositePath};
use orrery_query::computed::{self, ComputedProperty};

use super::errors::invalid_query;

/// Rejects a query that the container cannot serve.
pub(crate) fn check(query: &Query, definition: &ContainerDefinition) -> Result<()> {
    check_order(query, definition)
}

/// Rejects computed properties that queries could not use.
pub(crate) fn check_computed_properties(definition: &ContainerDefinition) -> Result<()> {
    let parsed = definition.computed_properties.iter().map(|property| {
        ComputedProperty::parse(&property.name, &property.query).map_err(|errors| invalid_query(&errors))
    });
    let parsed = parsed.collect::<Result<Vec<_>>>()?;
    computed::check_all(&parsed).map_err(|error| invalid_query(&[error]))
}

fn check_order(query: &Query, definition: &ContainerDefinition) -> Result<()> {
    let composites: Vec<Vec<CompositePath>> = definition
        .indexing
        .composite
        .iter()
        .map(|paths| {
            let path = |path: &orrery_model::container::CompositePath| {
                let direction = if path.descending { Direction::Descending } else { Direction::Ascending };
                (path.as_str().to_owned(), direction)
            };
            paths.iter().map(path).collect()
        })
        .collect();
    // Several sort items need a composite index in their order, as in the service.
    indexes::check_composite_order(query, &composites).map_err(|error| invalid_query(&[error]))?;
    let Some(keys) = indexes::order_paths(query) else { return Ok(()) };
    // More than one: the check above has decided.
    let [(path, _)] = keys.as_slice() else { return Ok(()) };
    if path.is_empty() || is_sortable(path, definition) {
        return Ok(());
    }
    let text = "The index path corresponding to the specified order-by item is excluded.";
    Err(invalid_query(&[QueryError::text(text)]))
}

/// Whether the policy covers a path that a query is sorted by.
fn is_sortable(path: &str, definition: &ContainerDefinition) -> bool {
    let policy = &definition.indexing;
    let Ok(path) = PolicyPath::parse(&format!("{path}/?")) else { return false };
    if policy.mode == IndexingMode::None {
        return false;
    }
    let first = path.steps.first();
    let is_computed = definition
        .computed_properties
        .iter()
        .any(|property| matches!(first, Some(IndexStep::Property(name)) if **name == *property.name));
    if is_computed {
        // A computed property is indexed only if it is listed explicitly; `/*` does not include it.
        return policy.included.iter().any(|included| included.steps.first() == first);
    }
    policy.indexes(&path.steps)
}
