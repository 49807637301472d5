//! Maps store and script failures to client errors.

use orrery_model::{Error, ErrorKind};
use orrery_script::ScriptError;
use orrery_storage::{CommitError, StoreError};

pub(crate) fn commit_failure(error: CommitError) -> Error {
    match error {
        CommitError::Fenced => partition_gone(),
        CommitError::Busy => Error::new(
            // Soon: a queue that is full empties within a few groups.
            ErrorKind::TooManyRequests { retry_after_ms: 20 },
            "Too many writes are waiting for this partition. Please retry after the given time.",
        ),
        CommitError::TooLarge(detail) => {
            tracing::warn!(detail, "a write was larger than the store accepts");
            Error::new(ErrorKind::TooLarge, "Request size is too large")
        }
        CommitError::Failed(detail) => {
            tracing::error!(detail, "an operation failed inside the store");
            Error::internal("The operation failed because of an internal error.")
        }
        // Logged once, when the partition is taken offline.
        CommitError::Inconsistent(detail) => {
            tracing::debug!(detail, "a write was rejected because the partition's writes are offline");
            Error::new(
                ErrorKind::Unavailable,
                "Writes to this partition are offline because its stored data is inconsistent. Reads are still served.",
            )
        }
        CommitError::Full(detail) => storage_full(&detail),
        // The wire has no answer for an unknown outcome. 503 makes clients retry.
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
            "The read took longer than the lifetime of its snapshot. Please retry.",
        ),
        StoreError::Damaged { place, detail } => {
            tracing::error!(place, detail, "the store found damaged data");
            // The place is named on purpose: the operator has to repair or restore this file.
            Error::internal(format!("The stored data is damaged in {place}."))
        }
        StoreError::TooLarge(detail) => {
            tracing::warn!(detail, "an entry was larger than the store accepts");
            Error::new(ErrorKind::TooLarge, "Request size is too large")
        }
        StoreError::Full(detail) => storage_full(&detail),
        StoreError::Unavailable(detail) => {
            tracing::error!(detail, "the store could not read");
            unavailable()
        }
    }
}

/// A query's state does not fit into the memory budget of all queries.
pub(crate) fn no_memory() -> Error {
    Error::new(
        ErrorKind::TooManyRequests { retry_after_ms: 1000 },
        "The server has no memory left for the rows that this query sorts, groups or collects. Please retry after the \
         given time.",
    )
}

fn partition_gone() -> Error {
    Error::new(
        ErrorKind::PartitionGone,
        "The partition key range was split or moved. Please refresh and retry.",
    )
}

/// The store logs the start and end of this state, not every write.
fn storage_full(detail: &str) -> Error {
    tracing::debug!(detail, "a write was rejected because the disk is full");
    Error::new(
        ErrorKind::StorageFull,
        "The disk of the server is full. Reads and deletes are still accepted. Free some space, then retry.",
    )
}

fn unavailable() -> Error {
    Error::new(ErrorKind::Unavailable, "The store is not available. Please retry.")
}

/// A script's failure as clients see it.
pub(crate) fn script_failure(error: ScriptError) -> Error {
    match error {
        ScriptError::Compile(text) => Error::new(
            ErrorKind::Script { code: u16::MAX },
            format!("Encountered exception while compiling Javascript. Exception = {text}"),
        ),
        ScriptError::Thrown { text, stack, number } => {
            // The service repeats the text as the first line of its stack trace.
            let mut message = format!(
                "Encountered exception while executing function. Exception = {text}\r\nStack trace: {text}"
            );
            if !stack.is_empty() {
                message.push('\n');
                message.push_str(&stack);
            }
            Error::new(ErrorKind::Script { code: number }, message)
        }
        ScriptError::TimedOut | ScriptError::Cancelled => script_timed_out(),
        ScriptError::Engine(detail) => {
            tracing::error!(detail, "the script engine failed");
            Error::internal("The script engine failed.")
        }
    }
}

/// The service's message for a script that exceeded its time.
pub(crate) fn script_timed_out() -> Error {
    Error::new(
        ErrorKind::Timeout,
        "The requested operation exceeded maximum alloted time. Learn more: https://aka.ms/cosmosdb-tsg-service-request-timeout",
    )
}
