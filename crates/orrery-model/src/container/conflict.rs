//! Conflict resolution. There is one write region, so conflicts never arise; the policy is validated and returned as
//! clients expect.

use super::fields;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::value::{Object, Value};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictResolution {
    /// The version with the greatest value at this top-level path wins.
    LastWriterWins { path: KeyPath },
    /// A stored procedure decides; without one, conflicts wait in the feed.
    Custom { procedure: Option<Box<str>> },
}

impl Default for ConflictResolution {
    fn default() -> Self {
        Self::LastWriterWins { path: KeyPath::property("_ts") }
    }
}

impl ConflictResolution {
    /// The policy of a container, or `None` if it has none.
    pub(super) fn parse(container: &Object) -> Result<Option<Self>> {
        let Some(policy) = fields::optional_object(container, "conflictResolutionPolicy")? else {
            return Ok(None);
        };
        let mode = fields::optional_str(policy, "mode")?.unwrap_or("LastWriterWins");
        // Clients send back the empty texts of the service's own form, which mean that there is none.
        let path = fields::optional_str(policy, "conflictResolutionPath")?.filter(|text| !text.is_empty());
        let procedure =
            fields::optional_str(policy, "conflictResolutionProcedure")?.filter(|text| !text.is_empty());
        if mode.eq_ignore_ascii_case("LastWriterWins") {
            if procedure.is_some() {
                return Err(Error::bad_request(
                    "The conflict resolution mode 'LastWriterWins' does not allow a conflict resolution procedure.",
                ));
            }
            let text = path.unwrap_or("/_ts");
            let path = KeyPath::parse(text).ok().filter(|path| path.segments().len() == 1);
            let path = path.ok_or_else(|| {
                Error::bad_request(format!("Invalid path '{text}' for last writer wins conflict resolution"))
            })?;
            return Ok(Some(Self::LastWriterWins { path }));
        }
        if mode.eq_ignore_ascii_case("Custom") {
            if path.is_some() {
                return Err(Error::bad_request(
                    "The conflict resolution mode 'Custom' does not allow a conflict resolution path.",
                ));
            }
            return Ok(Some(Self::Custom { procedure: procedure.map(Into::into) }));
        }
        Err(Error::bad_request(format!(
            "The conflict resolution mode '{mode}' is invalid. Valid modes are 'LastWriterWins' and 'Custom'."
        )))
    }

    pub(super) fn to_value(&self) -> Value {
        let mut object = Object::new();
        let (mode, path, procedure) = match self {
            Self::LastWriterWins { path } => ("LastWriterWins", path.as_str(), ""),
            Self::Custom { procedure } => ("Custom", "", procedure.as_deref().unwrap_or("")),
        };
        object.set("mode", Value::from(mode));
        object.set("conflictResolutionPath", Value::from(path));
        object.set("conflictResolutionProcedure", Value::from(procedure));
        Value::Object(object)
    }
}
