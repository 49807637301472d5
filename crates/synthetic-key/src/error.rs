//! Errors, each with a stable code that the ports and the shared vectors use as well.

/// An invalid definition, and the place of the error in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {message}")]
pub struct DefinitionError {
    /// The place inside the definition, such as `versions[0].suffix.count`.
    pub at: String,
    pub message: String,
}

/// A key that cannot be built, or an item whose existing key does not match.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum KeyError {
    #[error("the item has no property {path}, which its key is built from")]
    Missing { path: String },
    #[error("the property {path}, which the key is built from, is null")]
    Null { path: String },
    #[error("the property {path}, which the key is built from, is an object or an array")]
    NonScalar { path: String },
    #[error("the property {path} does not fit its format: {message}")]
    Format { path: String, message: String },
    #[error("the property {path} has different values under its current and earlier names")]
    Ambiguous { path: String },
    #[error("the key is longer than {} bytes", crate::KEY_BYTES_MAX)]
    TooLong,
    #[error("{path} names version {found}, which the definition does not record as in use")]
    Version { path: String, found: String },
    #[error("the filter says nothing about {path}, so the item may have any key")]
    Undetermined { path: String },
    #[error("the read would visit more than {} keys", crate::KEYS_MAX)]
    TooMany,
    #[error("{path} is {found}, but the definition yields {expected} for this item")]
    Contradiction { path: String, found: String, expected: String },
    #[error("{path} cannot be stored: {message}")]
    Place { path: String, message: String },
}

impl KeyError {
    /// The error code, the same in every language.
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
