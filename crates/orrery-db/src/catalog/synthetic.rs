//! The policy by which a container makes its partition keys: a synthetic key definition in the container's
//! definition, under `orrerySyntheticKey`.
//!
//! An item without its key property gets it when it is written (`items/fill.rs`); one whose property does not follow
//! from its other properties is refused, whatever writes it, because the transaction itself checks it here. So a query
//! that names those other properties can be sent to the few keys that they make (`query/synthetic_routing.rs`), once it
//! is certain that all items follow the definition (`resources/synthetic.rs`).

use std::sync::Arc;

use orrery_env::Env;
use orrery_model::container::ContainerDefinition;
use orrery_model::partition_key::{KeyPart, PartitionKey};
use orrery_model::{Error, Result, Value};
use synthetic_key::{Component, Definition, Fixed, Item, Key, KeyError, Path, Property, Randomness};

pub use orrery_model::container::SYNTHETIC_KEY;

/// How a container makes keys.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticPolicy {
    pub definition: Definition,
    /// Every item is known to follow the definition, so queries may be sent by it.
    pub routes: bool,
}

impl SyntheticPolicy {
    /// Reads and checks the policy in a container's definition, if it has one.
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
        if paths.len() != made.len() || !paths.iter().zip(&made).all(same) {
            let made: Vec<String> = made.iter().map(ToString::to_string).collect();
            let paths: Vec<&str> = paths.iter().map(orrery_model::path::KeyPath::as_str).collect();
            let (made, paths) = (made.join(", "), paths.join(", "));
            return Err(invalid(format!("it makes {made}, but the container's partition key is {paths}")));
        }
        Ok(Some(Arc::new(Self { definition, routes })))
    }

    /// Refuses an item whose key does not follow from it.
    pub(crate) fn check(&self, value: &Value, key: &PartitionKey) -> Result<()> {
        let made =
            self.definition.key_of(&Properties(value), &mut Fixed(0)).map_err(|error| refused(&error))?;
        if parts(&made) == key.0 {
            return Ok(());
        }
        let made = PartitionKey(parts(&made));
        Err(Error::bad_request(format!(
            "The item contradicts the container's synthetic key: it lies under {key}, but {made} follows from it."
        )))
    }
}

pub(crate) fn refused(error: &KeyError) -> Error {
    Error::bad_request(match error {
        KeyError::Contradiction { .. } => {
            format!("The item contradicts the container's synthetic key: {error}.")
        }
        _ => format!("The container's synthetic key cannot be made for this item: {error}."),
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
            Some(Value::Array(_) | Value::Object(_)) => Property::NonScalar,
        }
    }
}

/// Randomness of the database's surroundings.
pub(crate) struct EnvRandom<'a>(pub(crate) &'a dyn Env);

impl Randomness for EnvRandom<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        let bound = u64::from(bound.max(1));
        // 64 bits over at most 17: the first choices are likelier by less than one in 10^14.
        u32::try_from(self.0.random_u64() % bound).expect("below a 32-bit bound")
    }
}
