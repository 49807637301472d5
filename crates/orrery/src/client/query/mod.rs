//! Running a query on any endpoint, page by page.
//!
//! A query is first sent unchanged. The service rejects queries that sort, group, aggregate or limit rows of several
//! partitions (400 with sub-status 1004) and leaves the merge to its clients; the query is then planned and merged here
//! (`merge`). Orrery and most emulators merge themselves.

mod aggregate;
mod merge;
mod plan;

use orrery_env::SystemEnv;
use orrery_model::{Object, Value, value};
use orrery_query::lexer::{TokenKind, tokens};

use self::merge::MergedRows;
use super::{Client, ContainerPath, Request, Response, ascii_json};
use crate::failure::Failure;

/// Rows requested per page.
const PAGE_ROWS: u32 = 100;

/// A query text with the values of its parameters.
#[derive(Clone, Debug)]
pub(crate) struct QueryText {
    pub(crate) text: String,
    /// By name, with the leading `@`.
    pub(crate) parameters: Vec<(String, Value)>,
}

impl QueryText {
    /// Reads parameters of the form `@NAME=JSON`. Every parameter that the text uses must be given, because the service
    /// treats a missing one as undefined, and the query then finds nothing.
    pub(crate) fn new(text: &str, parameters: &[String]) -> Result<Self, Failure> {
        let mut parsed = Vec::new();
        for pair in parameters {
            let (name, json) = pair
                .split_once('=')
                .filter(|(name, _)| name.starts_with('@'))
                .ok_or_else(|| Failure::usage(format!("a parameter must be @NAME=JSON, but got `{pair}`")))?;
            let value = value::parse(json.as_bytes()).map_err(|error| {
                Failure::usage(format!("{name} is not valid JSON (a string needs double quotes): {error}"))
            })?;
            parsed.push((name.to_owned(), value));
        }
        let query = Self { text: text.to_owned(), parameters: parsed };
        match query.missing_parameter() {
            Some(name) => Err(Failure::usage(format!(
                "the query uses {name}, which has no value: pass --parameter '{name}=JSON'"
            ))),
            None => Ok(query),
        }
    }

    fn missing_parameter(&self) -> Option<&str> {
        // By the lexer, so that an @ in a string or comment does not count.
        let used = tokens(&self.text).into_iter().filter(|token| token.kind == TokenKind::Parameter);
        let mut names = used.map(|token| token.span.of(&self.text));
        names.find(|name| !self.parameters.iter().any(|(known, _)| known == name))
    }

    /// The parameters in the form of a request.
    pub(crate) fn parameters_value(&self) -> Value {
        let parameter = |(name, value): &(String, Value)| {
            let mut object = Object::new();
            object.set("name", name.as_str().into());
            object.set("value", value.clone());
            Value::from(object)
        };
        self.parameters.iter().map(parameter).collect::<Vec<_>>().into()
    }

    fn body(&self) -> String {
        let mut body = Object::new();
        body.set("query", self.text.as_str().into());
        body.set("parameters", self.parameters_value());
        Value::from(body).to_exact_json()
    }

    /// A request for this query; the caller adds its restrictions.
    pub(crate) fn request(&self, container: &ContainerPath) -> Request {
        Request::post(container.items_path(), self.body())
            .with("content-type", "application/query+json")
            .with("x-ms-documentdb-isquery", "True")
            .with("x-ms-documentdb-query-enablecrosspartition", "True")
            .with("x-ms-max-item-count", &PAGE_ROWS.to_string())
    }
}

/// The pages of a query.
pub(crate) struct QueryPages<'a> {
    client: &'a Client,
    container: &'a ContainerPath,
    query: QueryText,
    /// Restricts the query to one partition key value, a JSON array.
    partition_key: Option<String>,
    state: State,
}

enum State {
    Start,
    /// The server merges. The token of the next page.
    Next(String),
    Merging(Box<MergedRows>),
    Ended,
}

impl<'a> QueryPages<'a> {
    pub(crate) fn new(
        client: &'a Client,
        container: &'a ContainerPath,
        query: QueryText,
        partition_key: Option<String>,
    ) -> Self {
        Self { client, container, query, partition_key, state: State::Start }
    }

    /// The rows of the next page, which may be none; None after the last page.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Value>>, Failure> {
        let token = match &mut self.state {
            State::Ended => return Ok(None),
            State::Merging(rows) => {
                let page = rows.next_page(self.client, self.container).await?;
                if page.is_none() {
                    self.state = State::Ended;
                }
                return Ok(page);
            }
            State::Start => None,
            State::Next(token) => Some(std::mem::take(token)),
        };
        let mut request = self.query.request(self.container);
        if let Some(key) = &self.partition_key {
            // Headers are ASCII.
            request = request.with("x-ms-documentdb-partitionkey", &ascii_json(key));
        }
        if let Some(token) = &token {
            request = request.with("x-ms-continuation", token);
        }
        let response = self.client.send(&SystemEnv, &request).await?;
        // This is refused before the first row, so nothing was returned yet.
        if response.status == 400 && response.substatus() == 1004 && token.is_none() {
            let plan = plan::QueryPlan::request(self.client, self.container, &self.query).await?;
            self.state =
                State::Merging(Box::new(MergedRows::start(self.client, self.container, plan).await?));
            // The merged rows begin with the next page.
            return Ok(Some(Vec::new()));
        }
        if response.status == 404 {
            let failure = Failure::refused(format!("there is no container {}", self.container));
            return Err(failure.with_detail(String::from_utf8_lossy(&response.body).into_owned()));
        }
        let response = response.accepted()?;
        let rows = rows_of(&response)?;
        self.state = match response.continuation() {
            Some(token) => State::Next(token.to_owned()),
            None => State::Ended,
        };
        Ok(Some(rows))
    }

    /// All rows, up to a maximum.
    pub(crate) async fn collect(mut self, rows_max: usize) -> Result<Vec<Value>, Failure> {
        let mut rows = Vec::new();
        while rows.len() < rows_max
            && let Some(page) = self.next().await?
        {
            rows.extend(page);
        }
        rows.truncate(rows_max);
        Ok(rows)
    }
}

fn rows_of(response: &Response) -> Result<Vec<Value>, Failure> {
    let mut body = response
        .json()
        .ok_or_else(|| Failure::refused("the server returned a page that is not valid JSON"))?;
    match body.as_object_mut().and_then(|body| body.remove("Documents")) {
        Some(Value::Array(rows)) => Ok(rows.into_iter().collect()),
        _ => Err(Failure::refused("the server returned a page without rows")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_needs_a_value() {
        let new = |text: &str, parameters: &[&str]| {
            let parameters: Vec<String> = parameters.iter().map(|text| (*text).to_owned()).collect();
            QueryText::new(text, &parameters).map_err(|failure| failure.message.unwrap())
        };
        assert!(new("SELECT * FROM c WHERE c.a = '@no' AND c.b = @b", &["@b={\"x\":1}"]).is_ok());
        assert!(new("SELECT @a", &[]).unwrap_err().contains("@a, which has no value"));
        assert!(new("SELECT @a", &["@a=x"]).unwrap_err().contains("@a is not valid JSON"));
        assert!(new("SELECT 1", &["a=1"]).unwrap_err().contains("`a=1`"));
    }
}
