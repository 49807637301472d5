//! What a failing store means to a client.

use orrery_model::{Error, ErrorKind};
use orrery_storage::{CommitError, StoreError};

pub(crate) fn commit_failure(error: CommitError) -> Error {
    match error {
        CommitError::Fenced => partition_gone(),
        CommitError::Busy => Error::new(
            ErrorKind::TooManyRequests { retry_after_ms: 20 },
            "Too many writes wait for this partition. Please retry after the given time.",
        ),
        CommitError::TooLarge(detail) => {
            tracing::warn!(detail, "a write was larger than the store accepts");
            Error::new(ErrorKind::TooLarge, "Request size is too large")
        }
        CommitError::Failed(detail) => {
            tracing::error!(detail, "an operation failed inside the store");
            Error::internal("The operation failed by a fault of the server.")
        }
        CommitError::Unavailable(detail) | CommitError::Unknown(detail) => {
            tracing::error!(detail, "the store could not commit");
            unavailable()
        }
    }
}

pub(crate) fn store_failure(error: StoreError) -> Error {
    match error {
        StoreError::Fenced => partition_gone(),
        StoreError::SnapshotExpired => Error::new(
            ErrorKind::Unavailable,
            "The read took longer than the store keeps its view. Please retry.",
        ),
        StoreError::Damaged { place, detail } => {
            tracing::error!(place, detail, "the store found damaged data");
            Error::internal(format!("The stored data is damaged in {place}."))
        }
        StoreError::TooLarge(detail) => {
            tracing::warn!(detail, "an entry was larger than the store accepts");
            Error::new(ErrorKind::TooLarge, "Request size is too large")
        }
        StoreError::Unavailable(detail) => {
            tracing::error!(detail, "the store could not read");
            unavailable()
        }
    }
}

fn partition_gone() -> Error {
    Error::new(
        ErrorKind::PartitionGone,
        "The partition key range was split or moved. Please refresh and retry.",
    )
}

fn unavailable() -> Error {
    Error::new(ErrorKind::Unavailable, "The store is not available. Please retry.")
}
