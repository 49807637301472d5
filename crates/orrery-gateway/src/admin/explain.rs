//! `/_orrery/explain`: how a query is executed.
//!
//! By POST with `{"database":…,"container":…,"query":…,"parameters":[…],"partitionKey":[…]}`, or by GET with the first
//! three as arguments. One page is executed; `maxItemCount` sets its size, `continuation` its start, and
//! `partitionKeyRangeId` restricts it to one partition.

use std::sync::Arc;

use http::{Method, StatusCode};
use orrery_db::{Database, FeedScope, PageRequest, QueryOptions, QueryRequest, Receipt};
use orrery_model::partition_key::PartitionKey;
use orrery_model::value::{self, Value};
use orrery_model::{Error, Object, Result};

use crate::reply::Reply;

pub(crate) async fn explain(
    database: &Arc<Database>,
    method: &Method,
    query: &str,
    body: &[u8],
) -> Result<Reply> {
    let body = if method == Method::GET {
        from_arguments(query)
    } else {
        value::parse(body).map_err(|error| Error::bad_request(format!("The body is not JSON: {error}.")))?
    };
    let text = |name: &str| {
        let member = body.get(name).and_then(Value::as_str);
        member.ok_or_else(|| orrery_model::ids::missing_properties(&[name]))
    };
    let range_id = match body.get("partitionKeyRangeId") {
        None | Some(Value::Null) => None,
        Some(id) => {
            let id = id.as_str().map_or_else(|| id.to_json(), str::to_owned);
            Some(id.parse().map_err(|_| Error::bad_request(format!("'{id}' is not a partition id.")))?)
        }
    };
    let partition_key = match body.get("partitionKey") {
        None | Some(Value::Null) => None,
        Some(key) => Some(PartitionKey::parse_json(key.to_json().as_bytes())?),
    };
    let options = QueryOptions {
        scope: FeedScope { partition_key, range_id, ..FeedScope::default() },
        page: PageRequest {
            items_max: body.get("maxItemCount").and_then(Value::as_i64),
            continuation: body.get("continuation").and_then(Value::as_str).map(str::to_owned),
        },
        cross_partition: true,
        ..QueryOptions::default()
    };
    let place = (text("database")?, text("container")?);
    // Checked here for the message; the whole body is then read like that of a query.
    text("query")?;
    let request = QueryRequest::parse(body.to_json().as_bytes())?;
    let explained = database.explain_query(&mut Receipt::default(), place, &options, &request).await?;
    Ok(Reply::json(StatusCode::OK, explained.to_json()))
}

fn from_arguments(query: &str) -> Value {
    let mut body = Object::new();
    for (name, text) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        // Form encoding, as pages and curl write it.
        let text = text.replace('+', " ");
        let text = percent_encoding::percent_decode_str(&text).decode_utf8_lossy();
        // A key is JSON; everything else is text.
        let parsed = (name == "partitionKey").then(|| value::parse(text.as_bytes()).ok()).flatten();
        body.set(name, parsed.unwrap_or_else(|| text.into_owned().into()));
    }
    body.into()
}
