//! Computed properties: named expressions over an item. Only the query texts are stored here; the query engine compiles
//! them.

use super::fields;
use crate::error::{Error, Result};
use crate::value::Object;

const PROPERTIES_MAX: usize = 20;
const SYSTEM_NAMES: [&str; 7] = ["id", "_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputedProperty {
    pub name: Box<str>,
    /// `SELECT VALUE … FROM c`.
    pub query: Box<str>,
}

pub(super) fn parse(container: &Object) -> Result<Vec<ComputedProperty>> {
    let listed = fields::array(container, "computedProperties")?;
    if listed.len() > PROPERTIES_MAX {
        return Err(invalid(&format!("a container has at most {PROPERTIES_MAX} computed properties")));
    }
    let mut properties: Vec<ComputedProperty> = Vec::with_capacity(listed.len());
    for entry in listed {
        let entry = entry.as_object().ok_or_else(|| invalid("a computed property is not an object"))?;
        // The sentences are the service's (`ContainerNegativeComputedPropertyTest` of the .NET client).
        let text = |name: &str| match fields::optional_str(entry, name)? {
            None => Err(Error::bad_request("One of the specified inputs is invalid")),
            Some(text) if text.trim().is_empty() => {
                Err(Error::bad_request(format!("Computed property '{name}' is either empty or unspecified.")))
            }
            Some(text) => Ok(text),
        };
        let (name, query) = (text("name")?, text("query")?);
        if SYSTEM_NAMES.contains(&name) {
            return Err(Error::bad_request(format!(
                "The system property name '{name}' cannot be used as a computed property name."
            )));
        }
        // Policies and queries refer to it by a path of one segment.
        if name.contains('/') {
            return Err(invalid(&format!("the name '{name}' cannot be a computed property")));
        }
        if properties.iter().any(|earlier| earlier.name.as_ref() == name) {
            return Err(Error::bad_request(format!(
                "Computed property name '{name}' cannot be used in multiple definitions."
            )));
        }
        properties.push(ComputedProperty { name: name.into(), query: query.into() });
    }
    Ok(properties)
}

fn invalid(why: &str) -> Error {
    Error::bad_request(format!("One of the specified inputs is invalid: {why}."))
}
