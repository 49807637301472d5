//! A request before it is signed, and the response to it, whatever its status.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use orrery_model::{Value, value};

use crate::failure::Failure;
use crate::io::plain;

/// One request. The path and the query string are already escaped.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Request {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, Bytes::new())
    }

    pub(crate) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::new(Method::POST, path, body)
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path, Bytes::new())
    }

    fn new(method: Method, path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method, path: path.into(), query: None, headers: HeaderMap::new(), body: body.into() }
    }

    /// Adds a header. A value that no header can hold is left out; the ones we send are numbers and ASCII.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    pub(crate) fn with_query(mut self, query: &str) -> Self {
        self.query = Some(query.to_owned());
        self
    }
}

/// What the server answered.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(super) fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.header(name)?.trim().parse().ok()
    }

    pub(crate) fn substatus(&self) -> u32 {
        self.number("x-ms-substatus").unwrap_or(0)
    }

    /// The token of the next page, if there is one.
    pub(crate) fn continuation(&self) -> Option<&str> {
        self.header("x-ms-continuation").filter(|token| !token.is_empty())
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The partition range that the request named was split or merged: refresh the ranges.
    pub(crate) fn is_range_gone(&self) -> bool {
        self.status == 410 && self.substatus() == 1002
    }

    pub(crate) fn json(&self) -> Option<Value> {
        value::parse(&self.body).ok()
    }

    /// The server's error message, on one line.
    pub(crate) fn message(&self) -> String {
        let text = self.json().and_then(|body| Some(body.get("message")?.as_str()?.to_owned()));
        // A body that is not JSON at least shows how it begins.
        let text = text.unwrap_or_else(|| String::from_utf8_lossy(&self.body).chars().take(300).collect());
        // The rest identifies the request, which the caller knows.
        let text = text.split("\r\nActivityId").next().unwrap_or_default();
        let text = text.strip_prefix("Message: ").unwrap_or(text);
        // The service puts JSON into its message.
        let sentence = value::parse(text.trim().as_bytes()).ok().and_then(|errors| error_sentences(&errors));
        let text = sentence.as_deref().unwrap_or(text);
        match text.trim() {
            "" => "no reason given".to_owned(),
            text => text.replace(['\r', '\n'], " "),
        }
    }

    /// The response if it is a success, or a failure with the server's reason.
    pub(crate) fn accepted(self) -> Result<Self, Failure> {
        if self.is_success() {
            return Ok(self);
        }
        let failure = Failure::refused(format!("the server refused ({}): {}", self.status, self.message()));
        Err(failure.with_detail(String::from_utf8_lossy(&self.body).into_owned()))
    }
}

/// The sentences of an error list: `{"Errors":["…"]}`, or that of queries,
/// `{"errors":[{"message":"…","code":"SC1001","location":{"start":7,"end":8}}]}`.
fn error_sentences(errors: &Value) -> Option<String> {
    let listed = errors.get("Errors").or_else(|| errors.get("errors"))?.as_array()?;
    let sentence = |error: &Value| {
        if let Some(text) = error.as_str() {
            return Some(text.to_owned());
        }
        let message = error.get("message")?.as_str()?;
        let code = error.get("code").map(plain);
        let start = error.get("location").and_then(|location| location.get("start")).and_then(Value::as_i64);
        let at = start.map(|start| format!("at character {}", start + 1));
        match [code, at].into_iter().flatten().collect::<Vec<_>>().join(" ") {
            place if place.is_empty() => Some(message.to_owned()),
            place => Some(format!("{message} ({place})")),
        }
    };
    let sentences = listed.iter().map(sentence).collect::<Option<Vec<_>>>()?;
    Some(sentences.join(" "))
}

/// A path of segments, each escaped: `path(&["dbs", "a b", "colls"])` is `/dbs/a%20b/colls`.
pub(crate) fn path(segments: &[&str]) -> String {
    let mut out = String::new();
    for segment in segments {
        out.push('/');
        out.extend(percent_encoding::utf8_percent_encode(segment, percent_encoding::NON_ALPHANUMERIC));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_segments_are_escaped() {
        assert_eq!(path(&["dbs", "a b/c", "colls"]), "/dbs/a%20b%2Fc/colls");
    }

    #[test]
    fn error_messages_fit_on_one_line() {
        let response = |body: &str| Response {
            status: 400,
            headers: HeaderMap::new(),
            body: Bytes::from(body.to_owned()),
        };
        let wrapped =
            r#"{"code":"BadRequest","message":"Message: {\"Errors\":[\"Wrong.\"]}\r\nActivityId: 1"}"#;
        assert_eq!(response(wrapped).message(), "Wrong.");
        let syntax = r#"{"code":"BadRequest","message":"{\"errors\":[{\"severity\":\"Error\",\"location\":{\"start\":9,\"end\":13},\"code\":\"SC1001\",\"message\":\"Syntax error, incorrect syntax near 'FORM'.\"}]}"}"#;
        assert_eq!(
            response(syntax).message(),
            "Syntax error, incorrect syntax near 'FORM'. (SC1001 at character 10)"
        );
        assert_eq!(response("").message(), "no reason given");
        assert_eq!(response("<html>\n</html>").message(), "<html> </html>");
    }
}
