//! Why a command failed: one sentence for the user and an exit code for scripts.

use std::fmt::Display;

pub(crate) struct Failure {
    pub(crate) exit_code: u8,
    /// None if the command's own output already explains the failure.
    pub(crate) message: Option<String>,
    /// The server's answer, shown with --verbose.
    pub(crate) detail: Option<String>,
}

impl Failure {
    /// Not found, in use, not allowed: the request was understood but cannot be carried out.
    pub(crate) fn refused(message: impl Display) -> Self {
        Self { exit_code: 1, message: Some(message.to_string()), detail: None }
    }

    /// The command line, the environment or the configuration file is wrong.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { exit_code: 2, message: Some(message.to_string()), detail: None }
    }

    /// A bug in Orrery, or a failed basic operation of the system.
    pub(crate) fn internal(message: impl Display) -> Self {
        Self { exit_code: 3, message: Some(message.to_string()), detail: None }
    }

    /// Adds the server's answer.
    pub(crate) fn with_detail(self, detail: String) -> Self {
        Self { detail: Some(detail), ..self }
    }

    /// The output already shows what went wrong; only the exit code is left to report.
    pub(crate) fn already_reported() -> Self {
        Self { exit_code: 1, message: None, detail: None }
    }
}
