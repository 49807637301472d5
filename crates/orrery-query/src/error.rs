//! Query errors: in the text, or at run time.
//!
//! A [`QueryError`] has the service's code and a span of the text, in UTF-16 code units, as clients count. An
//! [`EvalError`] has no location.

use orrery_model::{Object, Value};

/// The code of a query error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Printed as `SC` and four digits.
    Sc(u16),
    /// Printed as a bare number.
    Number(u16),
    /// Errors found after parsing, reported by message only.
    None,
}

/// A range of the query text in UTF-16 code units; the end is exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location {
    pub start: u32,
    pub end: u32,
}

/// One error in a query text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    pub code: Code,
    pub location: Option<Location>,
    pub message: String,
}

impl QueryError {
    pub fn new(code: Code, location: Option<Location>, message: impl Into<String>) -> Self {
        Self { code, location, message: message.into() }
    }

    /// An error with only a message.
    pub fn text(message: impl Into<String>) -> Self {
        Self::new(Code::None, None, message)
    }
}

/// The service's JSON document for these errors.
///
/// Located errors yield `{"errors":[…]}`, errors with only a message `{"Errors":["…"]}`.
pub fn errors_to_value(errors: &[QueryError]) -> Value {
    let mut document = Object::new();
    if errors.iter().any(|error| error.code != Code::None) {
        document.set("errors", errors.iter().map(error_to_value).collect::<Vec<_>>().into());
    } else {
        let texts: Vec<Value> = errors.iter().map(|error| error.message.as_str().into()).collect();
        document.set("Errors", texts.into());
    }
    document.into()
}

fn error_to_value(error: &QueryError) -> Value {
    let mut entry = Object::new();
    entry.set("severity", "Error".into());
    if let Some(location) = error.location {
        let mut span = Object::new();
        span.set("start", i64::from(location.start).into());
        span.set("end", i64::from(location.end).into());
        entry.set("location", span.into());
    }
    match error.code {
        Code::Sc(code) => entry.set("code", format!("SC{code:04}").into()),
        Code::Number(code) => entry.set("code", i64::from(code).into()),
        Code::None => {}
    }
    entry.set("message", error.message.as_str().into());
    entry.into()
}

/// Why a query failed at run time.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EvalError {
    /// An error with this message for the client.
    #[error("{0}")]
    Message(String),
    /// NaN or an infinity reached a result; the service's code for it is 4001.
    #[error(
        "The response content contains a numeric value that cannot be represented in JSON (e.g. Infinity and NaN)."
    )]
    NotFinite,
    /// A user-defined function threw, exceeded its limits or does not exist.
    #[error("{0}")]
    UdfFailed(String),
    /// The user-defined functions of a page exceeded their time limit.
    #[error("the user-defined functions of the query took too long")]
    UdfTimedOut,
    /// The query uses a user-defined function but nothing can run one here.
    #[error("user-defined functions cannot be called here")]
    UdfUnavailable,
    /// A scalar subquery returned more than one row.
    #[error("The cardinality of a scalar subquery result set cannot be greater than one.")]
    ScalarCardinality,
    /// Grouping, sorting or distinct rows need more memory than a query may use.
    #[error("the query needs to hold more than {limit} cells, which is more than allowed")]
    StateTooLarge { limit: usize },
    /// An expression builds a value larger than allowed.
    #[error(
        "an expression of the query makes a value of more than {limit} bytes, which is more than allowed"
    )]
    ValueTooLarge { limit: usize },
    /// The shared memory budget is exhausted.
    #[error("the server has no memory left for the state of the query")]
    NoMemory,
    /// The page's time is up.
    #[error("the query took longer than a request may take")]
    TimedOut,
    /// The query was cancelled.
    #[error("the query was given up")]
    Cancelled,
    /// One page of the query took more rows of work than allowed.
    #[error("the query takes more work than one request may use")]
    WorkExceeded,
}
