//! A container's synthetic key policy: the property `orrerySyntheticKey` of its definition.
//!
//! An item without its key property gets it when it is written (`items/fill.rs`). An item whose key does not follow
//! from its other properties is rejected, whatever writes it, because the transaction itself performs this check. So a
//! query that filters by the source properties can be routed to the few keys they yield (`query/synthetic_routing.rs`),
//! once all items are known to match the definition (`resources/synthetic.rs`).

use std::sync::Arc;

use orrery_env::Env;
use orrery_model::container::ContainerDefinition;
use orrery_model::partition_key::{KeyPart, PartitionKey};
use orrery_model::{Error, Result, Value};
use synthetic_key::{Component, Definition, Fixed, Item, Key, KeyError, Path, Property, Randomness};

pub use orrery_model::container::SYNTHETIC_KEY;

/// A container's synthetic key.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticPolicy {
    pub definition: Definition,
    /// Every item is known to match the definition, so queries may be routed by it.
    pub routes: bool,
}

impl SyntheticPolicy {
    /// Parses and validates the policy in a container's definition, if it has one.
    pub(crate) fn of(container: &ContainerDefinition, routes: bool) -> Result<Option<Arc<Self>>> {
        let value = container.to_value();
        let Some(source) = value.get(SYNTHETIC_KEY) else { return Ok(None) };
        let invalid = |message: String| {
            Error::bad_request(format!("The container's {SYNTHETIC_KEY} is invalid: {message}."))
        };
        let source = serde_json::from_str(&source.to_json()).map_err(|error| invalid(error.to_string()))?;
        let definition = Definition::from_json(&source).map_err(|error| invalid(error.to_string()))?;
        let made = definition.key_paths();
        let paths = container.partition_key.paths();
        let same = |(path, made): (&orrery_model::path::KeyPath, &&Path)| {
            path.segments().iter().map(AsRef::as_ref).eq(made.names().iter().map(String::as_str))
        };
        // Checked when the definition is set: otherwise every single write would fail.
        if paths.len() != made.len() || !paths.iter().zip(&made).all(same) {
            let made: Vec<String> = made.iter().map(ToString::to_string).collect();
            let paths: Vec<&str> = paths.iter().map(orrery_model::path::KeyPath::as_str).collect();
            let (made, paths) = (made.join(", "), paths.join(", "));
            return Err(invalid(format!("it produces {made}, but the container's partition key is {paths}")));
        }
        Ok(Some(Arc::new(Self { definition, routes })))
    }

    /// Rejects an item whose key does not follow from its properties.
    pub(crate) fn check(&self, value: &Value, key: &PartitionKey) -> Result<()> {
        let made =
            // Not random here: an item that carries its key needs none, and a decision
            // must come out the same each time.
            self.definition.key_of(&Properties(value), &mut Fixed(0)).map_err(|error| refused(&error))?;
        if parts(&made) == key.0 {
            return Ok(());
        }
        let made = PartitionKey(parts(&made));
        Err(Error::bad_request(format!(
            "The item contradicts the container's synthetic key: its key is {key}, but its properties yield {made}."
        )))
    }
}

pub(crate) fn refused(error: &KeyError) -> Error {
    Error::bad_request(match error {
        KeyError::Contradiction { .. } => {
            format!("The item contradicts the container's synthetic key: {error}.")
        }
        _ => format!("The container's synthetic key cannot be built for this item: {error}."),
    })
}

/// The parts of a key, for the partition key that it is.
pub(crate) fn parts(key: &Key) -> Vec<KeyPart> {
    let part = |component: &Component| match component {
        Component::Null => KeyPart::Null,
        Component::Bool(flag) => KeyPart::Bool(*flag),
        Component::Number(number) => KeyPart::Number(*number),
        Component::Text(text) => KeyPart::from(text.as_str()),
    };
    key.components.iter().map(part).collect()
}

/// An item of ours as the key library reads it.
pub(crate) struct Properties<'a>(pub(crate) &'a Value);

impl Item for Properties<'_> {
    fn property(&self, path: &Path) -> Property<'_> {
        match self.0.at_path(path.names()) {
            None => Property::Missing,
            Some(Value::Null) => Property::Null,
            Some(Value::Bool(flag)) => Property::Bool(*flag),
            Some(Value::Number(number)) => Property::Number(number.as_f64()),
            Some(Value::String(text)) => Property::Text(text),
            // Told apart from a missing value, since it makes the item invalid rather than incomplete.
            Some(Value::Array(_) | Value::Object(_)) => Property::NonScalar,
        }
    }
}

/// Randomness from the database's `Env`.
pub(crate) struct EnvRandom<'a>(pub(crate) &'a dyn Env);

impl Randomness for EnvRandom<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        let bound = u64::from(bound.max(1));
        // 64 bits reduced to at most 17: the bias is below 10^-14.
        u32::try_from(self.0.random_u64() % bound).expect("below a 32-bit bound")
    }
}
