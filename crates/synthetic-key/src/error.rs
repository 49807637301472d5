//! What can go wrong, with a stable code for each fault: the ports and the shared vectors use the
//! same codes.

/// A definition that cannot be used, and where in it the fault is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {message}")]
pub struct DefinitionError {
    /// The place inside the definition, such as `versions[0].suffix.count`.
    pub at: String,
    pub message: String,
}

/// A key that cannot be made, or an item that cannot have the key it carries.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum KeyError {
    #[error("the item has no property {path}, which its key is made of")]
    Missing { path: String },
    #[error("the property {path}, which the key is made of, is null")]
    Null { path: String },
    #[error("the property {path}, which the key is made of, is an object or an array")]
    NonScalar { path: String },
    #[error("the property {path} does not fit its format: {message}")]
    Format { path: String, message: String },
    #[error("the property {path} has different values under its names")]
    Ambiguous { path: String },
    #[error("the key is longer than {} bytes", crate::KEY_BYTES_MAX)]
    TooLong,
    #[error("{path} names version {found}, which the definition does not record as in use")]
    Version { path: String, found: String },
    #[error("the filter says nothing about {path}, so the item may have any key")]
    Undetermined { path: String },
    #[error("the read would visit more than {} keys", crate::KEYS_MAX)]
    TooMany,
    #[error("{path} is {found}, but the definition makes {expected} of this item")]
    Contradiction { path: String, found: String, expected: String },
    #[error("{path} cannot be stored: {message}")]
    Place { path: String, message: String },
}

impl KeyError {
    /// The name of the fault, the same in every language.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing",
            Self::Null { .. } => "null",
            Self::NonScalar { .. } => "nonScalar",
            Self::Format { .. } => "format",
            Self::Ambiguous { .. } => "ambiguous",
            Self::TooLong => "tooLong",
            Self::Version { .. } => "version",
            Self::Undetermined { .. } => "undetermined",
            Self::TooMany => "tooMany",
            Self::Contradiction { .. } => "contradiction",
            Self::Place { .. } => "place",
        }
    }
}
