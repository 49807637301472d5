//! The body of a query request.

use orrery_model::Value;

/// A query text with its parameters, as clients send it.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryRequest {
    pub text: String,
    /// By name, with the leading `@`.
    pub parameters: Vec<(String, Value)>,
    /// Where a sorted range goes on; read by [`crate::pipeline::ResumePoint::parse`].
    pub resume_filter: Option<Value>,
}

/// Why a body is not a query request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    #[error("the request has no query text")]
    NoText,
    #[error("the parameters of a query must be a list of objects with a name and a value")]
    Parameters,
}

impl QueryRequest {
    pub fn parse(body: &Value) -> Result<Self, InvalidRequest> {
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
}
