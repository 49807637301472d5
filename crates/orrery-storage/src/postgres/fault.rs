//! What a failed statement means: whether trying again helps, and whether the connection is gone.

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::Error;

use super::options::explain;

/// A failure of the server or of the way to it.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// A conflict or a limit in time: nothing has happened, and trying again may help.
    Conflict(String),
    /// The connection is gone, or the server is starting, stopping, or full. What the last statement did is
    /// not known from this alone.
    Lost(String),
    /// Trying again gives the same.
    Definite(String),
}

impl Fault {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Conflict(text) | Self::Lost(text) | Self::Definite(text) => text,
        }
    }

    pub(super) fn may_pass(&self) -> bool {
        !matches!(self, Self::Definite(_))
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let Some(server) = error.as_db_error() else {
            return Self::Lost(explain(&error));
        };
        let code = server.code().code();
        let text = match code {
            "25006" => "the server is a read-only standby".to_owned(),
            "53300" => "the server has no connection left for us (max_connections)".to_owned(),
            "42501" => format!("the user lacks a right: {}", server.message()),
            "42P01" | "3F000" => "the schema is not there: create it with \"orrery store init\"".to_owned(),
            _ => format!("{} (SQLSTATE {code})", server.message()),
        };
        match code {
            // Conflicts, deadlocks, locks that took too long, statements that were cancelled, and statements
            // after a failed one.
            "40001" | "40P01" | "55P03" | "57014" | "25P02" => Self::Conflict(text),
            // Standbys may become primaries, servers come back, transactions of silent clients are ended.
            // "XX000" is what servers say whose postmaster has died, and nodes of a cluster that lost another one.
            "25006" | "53300" | "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "XX000" => Self::Lost(text),
            _ if code.starts_with("08") => Self::Lost(text),
            _ => Self::Definite(text),
        }
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            PoolError::Timeout(TimeoutType::Create) => {
                Self::Lost("the server did not take a connection in time".to_owned())
            }
            PoolError::Timeout(_) => Self::Lost(
                "no connection became free in time: raise pool_max, or look for a slow server".to_owned(),
            ),
            PoolError::Closed => Self::Definite("it was closed".to_owned()),
            other => Self::Definite(explain(&other)),
        }
    }
}

/// Whether a COMMIT that failed so may have happened all the same. Only a conflict or a broken rule says that it
/// has not; a node of a cluster that commits on another one reports whatever went wrong there as a fault of its
/// own.
pub(super) fn leaves_doubt(error: &Error) -> bool {
    error.as_db_error().is_none_or(|server| {
        let code = server.code().code();
        !(code.starts_with("40") || code.starts_with("23") || code == "25P02")
    })
}
