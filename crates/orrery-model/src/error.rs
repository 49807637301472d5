//! The error type of the database: a kind for the caller to act on, and a message for the client. Status codes and wire
//! wording belong to the gateway.

use std::fmt;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    /// Text for the client. Details for the log are logged where they are known.
    pub message: String,
}

/// The kinds of errors that callers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is malformed or asks for something invalid.
    BadRequest,
    /// The partition key in the request differs from the item's.
    PartitionKeyMismatch,
    /// The container was deleted and created again since the client cached it.
    ContainerRecreated,
    /// The name now refers to another container than the one cached by the client: refresh, then retry.
    NameCacheStale,
    /// The query needs a plan and a merge by the client.
    CrossPartitionQuery,
    /// A query has errors; the message is their JSON.
    InvalidQuery,
    /// The credentials are missing, malformed or do not match.
    Unauthorized,
    /// The credentials are valid but do not allow this.
    Forbidden,
    /// A quota of the account, database or container is exhausted.
    QuotaExceeded,
    /// The logical partition has reached its size limit.
    LogicalPartitionFull,
    /// The addressed resource does not exist.
    NotFound,
    /// The database or container that should hold the resource does not exist.
    OwnerNotFound,
    /// The session token is ahead of what this partition has.
    ReadSessionNotAvailable,
    /// The resource has no such operation.
    UnsupportedOperation,
    /// A resource with this id, or with this unique key, exists.
    Conflict,
    /// Two keys with the same hash use the same item id.
    KeyHashCollision,
    /// The partition was split or moved: refresh the routing map, then retry.
    PartitionGone,
    /// The partition is being split: retry.
    PartitionSplitting,
    /// An etag or a condition did not hold.
    PreconditionFailed,
    /// The request or the item is larger than allowed.
    TooLarge,
    /// Another change of the same offer is in progress.
    Locked,
    /// The budget for this second is spent. Retry after the delay.
    TooManyRequests { retry_after_ms: u32 },
    /// A concurrent write won; retry.
    RetryWith,
    /// A script threw an error, with the number it gave (0 = none), or is not JavaScript (65535).
    Script { code: u16 },
    /// A script exceeded its time limit.
    Timeout,
    /// Not supported by Orrery. Never retried.
    NotImplemented,
    /// The store cannot answer right now.
    Unavailable,
    /// The disk has no space for this write; deletions are still accepted.
    StorageFull,
    /// An internal error.
    Internal,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::BadRequest, message)
    }

    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotImplemented, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
