//! Classifies errors: whether a retry helps, and whether the connection is lost.

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::Error;

use super::options::explain;

/// An error of the server or of the connection to it.
#[derive(Clone, Debug)]
pub(super) enum ServerError {
    /// A conflict or a timeout on the server: nothing was changed, and a retry may succeed.
    Conflict(String),
    /// The connection is lost, or the server is starting, stopping, or out of connections. The effect of the last
    /// statement is unknown.
    Lost(String),
    /// A retry would fail in the same way.
    Permanent(String),
}

impl ServerError {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Conflict(text) | Self::Lost(text) | Self::Permanent(text) => text,
        }
    }

    pub(super) fn is_retryable(&self) -> bool {
        !matches!(self, Self::Permanent(_))
    }
}

impl From<Error> for ServerError {
    fn from(error: Error) -> Self {
        // Not from the server: the connection broke, and what it was doing is unknown.
        let Some(server) = error.as_db_error() else {
            return Self::Lost(explain(&error));
        };
        let code = server.code().code();
        let text = match code {
            "25006" => "the server is a read-only standby".to_owned(),
            "53300" => "the server has no free connection (max_connections)".to_owned(),
            "42501" => format!("the user lacks a privilege: {}", server.message()),
            "42P01" | "3F000" => "the schema does not exist: create it with \"orrery store init\"".to_owned(),
            _ => format!("{} (SQLSTATE {code})", server.message()),
        };
        match code {
            // Serialisation failures, deadlocks, lock timeouts, cancelled statements, and statements after a failed one.
            "40001" | "40P01" | "55P03" | "57014" | "25P02" => Self::Conflict(text),
            // A standby may be promoted, a server may come back, the transaction of an idle client is ended. "XX000" is
            // what a server reports whose postmaster has died, and a cluster node that has lost another one.
            "25006" | "53300" | "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "XX000" => Self::Lost(text),
            // Class 08: connection exceptions.
            _ if code.starts_with("08") => Self::Lost(text),
            _ => Self::Permanent(text),
        }
    }
}

impl From<PoolError> for ServerError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            PoolError::Timeout(TimeoutType::Create) => {
                Self::Lost("the server did not accept a connection in time".to_owned())
            }
            // Retried like a lost connection: a connection may become free.
            PoolError::Timeout(_) => Self::Lost(
                "no connection became free in time: raise pool_max, or check why the server is slow"
                    .to_owned(),
            ),
            PoolError::Closed => Self::Permanent("it is closed".to_owned()),
            other => Self::Permanent(explain(&other)),
        }
    }
}

/// Whether a COMMIT that failed with this error may have taken effect. Only a conflict or a constraint violation proves
/// that it has not; a cluster node that commits on another one reports any error from there as its own.
pub(super) fn leaves_doubt(error: &Error) -> bool {
    error.as_db_error().is_none_or(|server| {
        let code = server.code().code();
        !(code.starts_with("40") || code.starts_with("23") || code == "25P02")
    })
}
