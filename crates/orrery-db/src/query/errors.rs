//! Query errors in the service's format.

use orrery_model::{Error, ErrorKind};
use orrery_query::error::errors_to_value;
use orrery_query::{EvalError, QueryError};

/// The error whose message is the service's JSON of query errors.
pub(super) fn invalid_query(errors: &[QueryError]) -> Error {
    Error::new(ErrorKind::InvalidQuery, errors_to_value(errors).to_json())
}

/// The sub-status of a user-defined function that threw.
const UDF_THREW: u16 = 32766;

/// The error of a query that failed while it ran.
pub(super) fn evaluation_failure(error: EvalError) -> Error {
    match error {
        EvalError::UdfFailed(text) => Error::new(ErrorKind::Script { code: UDF_THREW }, text),
        EvalError::UdfTimedOut => crate::failure::script_timed_out(),
        EvalError::TimedOut | EvalError::Cancelled => {
            Error::new(ErrorKind::Timeout, "The query took longer than a request may take.")
        }
        EvalError::NoMemory => crate::failure::no_memory(),
        error => Error::bad_request(error.to_string()),
    }
}
