//! Computed properties that an index holds: their values are part of each item's entries.
//!
//! A computed property is indexed if the policy names it; "everything" does not include it. A generation keeps the
//! definitions that it was filled with, so that a changed one makes a new generation, and queries use an index only for
//! the definition that they see.

use std::borrow::Cow;

use orrery_model::Value;
use orrery_model::container::{ComputedProperty, ContainerDefinition, IndexStep, IndexingPolicy};
use orrery_query::computed;
use orrery_query::formula::Formula;

/// The computed properties of a generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct ComputedIndex {
    properties: Vec<(ComputedProperty, Formula)>,
}

impl ComputedIndex {
    /// Those of a container's properties that the policy names and that can be computed when an item is written.
    pub(crate) fn of(properties: &[ComputedProperty], policy: &IndexingPolicy) -> Self {
        let is_named = |property: &ComputedProperty| {
            let included = policy.included.iter().map(|path| &path.steps);
            let composite = policy.composite.iter().flatten().map(|path| &path.steps);
            included.chain(composite).any(
                |steps| matches!(steps.first(), Some(IndexStep::Property(name)) if *name == property.name),
            )
        };
        // One that cannot be computed from the item alone is not indexed; queries then evaluate it.
        let compiled = properties.iter().filter(|property| is_named(property)).filter_map(|property| {
            let parsed = computed::ComputedProperty::parse(&property.name, &property.query).ok()?;
            Some((property.clone(), Formula::compile(&parsed)?))
        });
        Self { properties: compiled.collect() }
    }

    pub(crate) fn definitions(&self) -> impl Iterator<Item = &ComputedProperty> {
        self.properties.iter().map(|(property, _)| property)
    }

    /// Whether the index holds the property of this name as the container defines it now.
    pub(crate) fn holds(&self, definition: &ContainerDefinition, name: &str) -> bool {
        let mut defined = definition.computed_properties.iter().filter(|property| *property.name == *name);
        defined.any(|property| self.definitions().any(|held| held == property))
    }

    /// The item with the values that are indexed. They hide stored ones of the same name.
    pub(crate) fn apply<'v>(&self, item: &'v Value) -> Cow<'v, Value> {
        if self.properties.is_empty() {
            return Cow::Borrowed(item);
        }
        // Copied only where something is added; the stored item stays as the client wrote it.
        let mut extended = item.clone();
        if let Some(object) = extended.as_object_mut() {
            for (property, formula) in &self.properties {
                match formula.value(item) {
                    Some(value) => object.set(property.name.clone(), value),
                    // Undefined, so a stored property of this name must not take its place.
                    None => drop(object.remove(&property.name)),
                }
            }
        }
        Cow::Owned(extended)
    }
}

impl PartialEq for ComputedIndex {
    fn eq(&self, other: &Self) -> bool {
        self.definitions().eq(other.definitions())
    }
}
