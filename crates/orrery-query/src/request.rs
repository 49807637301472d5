//! The body of a query request, `{"query": …, "parameters": […]}`, or the bare text.

use orrery_model::document::parse_object;
use orrery_model::{Error, Value, ids};

use crate::limits;

/// A query as a client sends it.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryRequest {
    /// The text in the query language.
    pub text: String,
    /// By name, with the leading `@`.
    pub parameters: Vec<(String, Value)>,
    /// Where a client that merges wants a sorted range to continue; read by [`crate::pipeline::ResumePoint::parse`].
    pub resume_filter: Option<Value>,
}

/// Why a body is not a query request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// There is no `query`, or it is not a string.
    #[error("the request has no query text")]
    NoText,
    /// `parameters` is malformed.
    #[error("the parameters of a query must be a list of objects with a name and a value")]
    Parameters,
}

impl InvalidRequest {
    /// The error message for the client.
    fn into_error(self) -> Error {
        match self {
            Self::NoText => ids::missing_properties(&["query"]),
            Self::Parameters => {
                Error::bad_request("The query's parameters must be a list of objects with name and value.")
            }
        }
    }
}

impl QueryRequest {
    /// Reads a request body.
    pub fn parse(body: &[u8]) -> Result<Self, Error> {
        Self::from_value(&parse_object(body)?).map_err(InvalidRequest::into_error)?.checked()
    }

    /// Reads a body that is the bare text of the query.
    pub fn from_text(body: &[u8]) -> Result<Self, Error> {
        let text =
            std::str::from_utf8(body).map_err(|_| Error::bad_request("The query is not valid UTF-8."))?;
        Self { text: text.to_owned(), parameters: Vec::new(), resume_filter: None }.checked()
    }

    /// Reads a request body that is parsed already.
    pub fn from_value(body: &Value) -> Result<Self, InvalidRequest> {
        let text = body.get("query").and_then(Value::as_str).ok_or(InvalidRequest::NoText)?.to_owned();
        let parameters = match body.get("parameters") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(listed)) => {
                let parameter = |entry: &Value| {
                    let name = entry.get("name")?.as_str()?.to_owned();
                    // A parameter without a value is undefined, like one that is not listed.
                    Some(entry.get("value").map(|value| (name, value.clone())))
                };
                let all = listed.iter().map(parameter).collect::<Option<Vec<_>>>();
                all.ok_or(InvalidRequest::Parameters)?.into_iter().flatten().collect()
            }
            Some(_) => return Err(InvalidRequest::Parameters),
        };
        let resume_filter = body.get("resumeFilter").filter(|filter| !matches!(filter, Value::Null)).cloned();
        Ok(Self { text, parameters, resume_filter })
    }

    fn checked(self) -> Result<Self, Error> {
        if !limits::is_too_long(&self.text) {
            return Ok(self);
        }
        Err(Error::bad_request(format!(
            "The SQL query text exceeded the maximum limit of {} characters.",
            limits::TEXT_UNITS_MAX
        )))
    }
}
