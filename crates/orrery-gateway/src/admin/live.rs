//! Live load for pages and tools that poll every second, and the partition of a key.

use std::sync::Arc;

use http::StatusCode;
use orrery_db::{Database, LEDGER_MINUTES};
use orrery_model::partition_key::PartitionKey;
use orrery_model::value::Value;
use orrery_model::{Error, Object, Result};

use super::{place_in, query_argument};
use crate::reply::Reply;

/// The default number of hottest keys per partition (`keys`).
const KEYS_USUAL: usize = 3;
/// The default number of listed logical partitions (`keys`).
const LISTED_KEYS_USUAL: usize = 100;
/// The default number of logical partitions of a page (`pageSize`).
const PAGE_KEYS_USUAL: usize = 1000;

/// The load of the partitions of `?database=…&container=…` over the last `seconds`, with `keys` of each one's hottest.
pub(crate) fn heat(database: &Arc<Database>, query: &str) -> Result<Reply> {
    let (name, container) = place_in(query)?;
    let (seconds, keys) = (number_in(query, "seconds", 1)?, number_in(query, "keys", KEYS_USUAL)?);
    let view = database.container_heat(&name, &container, seconds, keys)?;
    Ok(Reply::json(StatusCode::OK, view.to_value().to_json()))
}

/// The number that an argument asks for, or the usual one.
fn number_in(query: &str, name: &str, usual: usize) -> Result<usize> {
    let Some(text) = query_argument(query, name) else { return Ok(usual) };
    text.parse().map_err(|_| Error::bad_request(format!("'{name}' must be a number, but got '{text}'.")))
}

/// The logical partitions of `?database=…&container=…`: with `partition`, those of one partition by size, at most `keys`
/// of them by name; without, all of them page by page, each with its usage over the last `minutes`.
pub(crate) async fn keys(database: &Arc<Database>, query: &str) -> Result<Reply> {
    let (name, container) = place_in(query)?;
    let Some(partition) = query_argument(query, "partition") else {
        let (keys_max, minutes) =
            (number_in(query, "pageSize", PAGE_KEYS_USUAL)?, number_in(query, "minutes", LEDGER_MINUTES)?);
        let continuation = query_argument(query, "continuation").filter(|text| !text.is_empty());
        let page = database.key_ledger((&name, &container), continuation.as_deref(), keys_max, minutes);
        return Ok(Reply::json(StatusCode::OK, page.await?.to_value().to_json()));
    };
    let partition =
        partition.parse().map_err(|_| Error::bad_request(format!("'{partition}' is not a partition id.")))?;
    let keys_max = number_in(query, "keys", LISTED_KEYS_USUAL)?;
    let keys = database.partition_keys((&name, &container), partition, keys_max).await?;
    Ok(Reply::json(StatusCode::OK, keys.to_value().to_json()))
}

/// Where the value `partitionKey` (a JSON array, one member for each path) lands in `?database=…&container=…`.
pub(crate) fn locate(database: &Arc<Database>, query: &str) -> Result<Reply> {
    let (name, container) = place_in(query)?;
    let key = query_argument(query, "partitionKey");
    let key = key.ok_or_else(|| orrery_model::ids::missing_properties(&["partitionKey"]))?;
    let catalog = database.catalog();
    let container = catalog.container(&name, &container)?;
    let definition = &container.definition.partition_key;
    // The way of a request's key, so the result is where a request would go.
    let key = definition.check_full(&PartitionKey::parse_json(key.as_bytes())?)?;
    let effective = definition.effective_key(&key);
    let partition = container.partition_of(&effective);
    let mut object = Object::new();
    object.set("partitionKey", Value::from(key.to_json()));
    object.set("effectiveKey", Value::from(effective.to_string()));
    object.set("partition", Value::from(partition.range_id.to_string()));
    Ok(Reply::json(StatusCode::OK, Value::from(object).to_json()))
}
