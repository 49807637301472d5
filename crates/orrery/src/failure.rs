//! Why the command ends, in one sentence.

use std::fmt::Display;

pub(crate) struct Failure {
    pub(crate) exit_code: u8,
    /// None when everything was said already.
    pub(crate) message: Option<String>,
}

impl Failure {
    /// Not found, in use, not allowed: the world is not as it would have to be.
    pub(crate) fn refused(message: impl Display) -> Self {
        Self { exit_code: 1, message: Some(message.to_string()) }
    }

    /// The command line, the environment or the configuration file is wrong.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { exit_code: 2, message: Some(message.to_string()) }
    }

    /// A fault of ours or of the system.
    pub(crate) fn internal(message: impl Display) -> Self {
        Self { exit_code: 3, message: Some(message.to_string()) }
    }

    /// The output already shows what went wrong.
    pub(crate) fn already_told() -> Self {
        Self { exit_code: 1, message: None }
    }
}
