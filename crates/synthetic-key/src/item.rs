//! Access to the properties of items. Implemented for `serde_json::Value`; an application with its own
//! JSON type implements it for that.

use crate::Path;
use serde_json::Value;

/// The value at a path of an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Property<'a> {
    Missing,
    Null,
    Bool(bool),
    Number(f64),
    Text(&'a str),
    /// An object or an array.
    NonScalar,
}

/// Anything that has properties at paths.
pub trait Item {
    fn property(&self, path: &Path) -> Property<'_>;
}

impl Item for Value {
    fn property(&self, path: &Path) -> Property<'_> {
        let mut value = self;
        for name in path.names() {
            match value.as_object().and_then(|object| object.get(name)) {
                Some(inner) => value = inner,
                None => return Property::Missing,
            }
        }
        match value {
            Self::Null => Property::Null,
            Self::Bool(flag) => Property::Bool(*flag),
            // What is no double is rejected later, like everything that is not finite.
            Self::Number(number) => Property::Number(number.as_f64().unwrap_or(f64::NAN)),
            Self::String(text) => Property::Text(text),
            Self::Array(_) | Self::Object(_) => Property::NonScalar,
        }
    }
}

impl<T: Item + ?Sized> Item for &T {
    fn property(&self, path: &Path) -> Property<'_> {
        (**self).property(path)
    }
}
