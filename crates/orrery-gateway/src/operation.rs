//! The operation of a request, determined once from method, path and headers. Handlers do not look at these again.

use http::{HeaderMap, Method};
use orrery_model::{Error, ErrorKind, Result};

use crate::headers;
use crate::path::Path;

/// What to do with the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Create,
    Upsert,
    Read,
    List,
    Replace,
    Patch,
    Delete,
    Query,
    PlanQuery,
    Batch,
    Execute,
}

impl Verb {
    /// Every verb, for fault rules and messages.
    pub const ALL: [Self; 11] = [
        Self::Create,
        Self::Upsert,
        Self::Read,
        Self::List,
        Self::Replace,
        Self::Patch,
        Self::Delete,
        Self::Query,
        Self::PlanQuery,
        Self::Batch,
        Self::Execute,
    ];

    /// Determines the verb. The same URL and method can mean up to five, distinguished by headers in this order.
    pub fn decide(method: &Method, path: &Path, headers: &HeaderMap) -> Result<Self> {
        let unreadable = match path {
            Path::Malformed => Some(ErrorKind::BadRequest),
            Path::Unknown => Some(ErrorKind::NotFound),
            _ => None,
        };
        if let Some(kind) = unreadable {
            return Err(Error::new(kind, "Server could not parse the Url."));
        }
        let flag = |name| headers::flag(headers, name);
        // Query plan before query: a request for a plan carries the headers of a query as well.
        let verb = match (method, path.is_feed()) {
            (&Method::GET | &Method::HEAD, true) => Self::List,
            (&Method::POST, true) if flag(headers::IS_QUERY_PLAN) => Self::PlanQuery,
            (&Method::POST, true) if is_query(headers) => Self::Query,
            (&Method::POST, true) if flag(headers::IS_BATCH) => Self::Batch,
            (&Method::POST, true) if flag(headers::IS_UPSERT) => Self::Upsert,
            (&Method::POST, true) => Self::Create,
            (&Method::GET | &Method::HEAD, false) => Self::Read,
            (&Method::PUT, false) => Self::Replace,
            (&Method::PATCH, false) => Self::Patch,
            (&Method::DELETE, false) => Self::Delete,
            // POST to a single resource runs a stored procedure, or an operation such as the deletion of a
            // partition key.
            (&Method::POST, false) => Self::Execute,
            _ => return Err(method_not_allowed()),
        };
        Ok(verb)
    }

    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::List | Self::Query | Self::PlanQuery)
    }

    /// Whether the response is a page of rows.
    pub fn makes_pages(self) -> bool {
        matches!(self, Self::List | Self::Query)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Upsert => "upsert",
            Self::Read => "read",
            Self::List => "list",
            Self::Replace => "replace",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Query => "query",
            Self::PlanQuery => "plan_query",
            Self::Batch => "batch",
            Self::Execute => "execute",
        }
    }
}

fn is_query(headers: &HeaderMap) -> bool {
    let content_type = headers::text(headers, "content-type").unwrap_or_default();
    headers::flag(headers, headers::IS_QUERY)
        || headers::flag(headers, headers::IS_QUERY_GO)
        || content_type.to_ascii_lowercase().starts_with("application/query+json")
        || content_type.to_ascii_lowercase().starts_with("application/sql")
}

/// The error for a method that a path does not support.
pub fn method_not_allowed() -> Error {
    Error::new(ErrorKind::UnsupportedOperation, "The requested verb is not supported on this resource.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(method: &Method, path: &str, pairs: &[(&'static str, &str)]) -> Result<Verb> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        Verb::decide(method, &Path::parse(path), &headers)
    }

    #[test]
    fn one_url_carries_many_operations() {
        let docs = "/dbs/d/colls/c/docs";
        let check = |pairs: &[(&'static str, &str)], verb| {
            assert_eq!(decide(&Method::POST, docs, pairs), Ok(verb), "{pairs:?}");
        };
        check(&[], Verb::Create);
        check(&[("x-ms-documentdb-is-upsert", "True")], Verb::Upsert);
        check(&[("x-ms-cosmos-is-batch-request", "true")], Verb::Batch);
        check(&[("x-ms-documentdb-isquery", "True")], Verb::Query);
        check(&[("x-ms-documentdb-query", "True")], Verb::Query);
        check(&[("content-type", "application/query+json; charset=utf-8")], Verb::Query);
        check(
            &[("x-ms-cosmos-is-query-plan-request", "True"), ("x-ms-documentdb-isquery", "true")],
            Verb::PlanQuery,
        );
        check(&[("x-ms-documentdb-isquery", "false")], Verb::Create);
    }

    #[test]
    fn wrong_methods_and_paths_are_refused() {
        assert_eq!(decide(&Method::PATCH, "/dbs", &[]).unwrap_err().kind, ErrorKind::UnsupportedOperation);
        assert_eq!(
            decide(&Method::OPTIONS, "/dbs/d", &[]).unwrap_err().kind,
            ErrorKind::UnsupportedOperation
        );
        assert_eq!(decide(&Method::GET, "/else", &[]).unwrap_err().kind, ErrorKind::NotFound);
    }
}
