//! Databases, containers and offers of an account, listed page by page.

use orrery_env::SystemEnv;
use orrery_model::Value;

use super::{Client, Request, path};
use crate::failure::Failure;

impl Client {
    /// The resources of a feed, all pages. `member` is the name of the array in the answer.
    pub(crate) async fn list(&self, feed: &str, member: &str) -> Result<Vec<Value>, Failure> {
        let mut all = Vec::new();
        let mut continuation: Option<String> = None;
        loop {
            let mut request = Request::get(feed);
            if let Some(token) = &continuation {
                request = request.with("x-ms-continuation", token);
            }
            let response = self.send(&SystemEnv, &request).await?.accepted()?;
            let body = response.json().unwrap_or_default();
            all.extend_from_slice(body.get(member).and_then(Value::as_array).unwrap_or(&[]));
            continuation = response.continuation().map(str::to_owned);
            if continuation.is_none() {
                return Ok(all);
            }
        }
    }

    pub(crate) async fn list_databases(&self) -> Result<Vec<Value>, Failure> {
        self.list("/dbs", "Databases").await
    }

    pub(crate) async fn list_containers(&self, database: &str) -> Result<Vec<Value>, Failure> {
        self.list(&path(&["dbs", database, "colls"]), "DocumentCollections").await
    }
}

/// The id of a resource.
pub(crate) fn id_of(resource: &Value) -> String {
    resource.get("id").and_then(Value::as_str).unwrap_or_default().to_owned()
}
