//! Operators' controls: merging and splitting partitions, explaining charges, moving the clock.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use orrery_db::{
    BatchKind, BatchOperation, Database, MovableClock, QueryOptions, QueryRequest, Receipt, cost,
};
use orrery_model::partition_key::PartitionKey;
use orrery_model::value::{self, Value};
use orrery_model::{Charge, Error, ErrorKind, Object, Result};

use crate::faults::Faults;
use crate::operation::method_not_allowed;
use crate::reply::Reply;

/// Splits the partition named by `{"database":…,"container":…,"partition":"0"}`.
pub(crate) async fn split(database: &Arc<Database>, body: &[u8]) -> Result<Reply> {
    let body = parse(body)?;
    let range_id = partition_id(body.get("partition"), "partition")?;
    let catalog = database.catalog();
    let container = catalog.container(text(&body, "database")?, text(&body, "container")?)?;
    // By RID: a container of the same name that is created meanwhile is not split by mistake.
    let report = database.split_partition(container.rid, range_id).await?;
    let mut object = Object::new();
    object.set("parent", Value::from(report.parent.to_string()));
    let children = report.children.iter().map(|child| Value::from(child.to_string()));
    object.set("children", children.collect::<Vec<_>>().into());
    object.set("at", Value::from(report.at.to_string()));
    Ok(json(object))
}

/// Merges the neighbours named by `{"database":…,"container":…,"partitions":["1","2"]}`.
pub(crate) async fn merge(database: &Arc<Database>, body: &[u8]) -> Result<Reply> {
    let body = parse(body)?;
    let Some([first, second]) = body.get("partitions").and_then(Value::as_array) else {
        return Err(Error::bad_request("The property 'partitions' must name two partitions."));
    };
    let parents = [partition_id(Some(first), "partitions")?, partition_id(Some(second), "partitions")?];
    let catalog = database.catalog();
    let container = catalog.container(text(&body, "database")?, text(&body, "container")?)?;
    let report = database.merge_partitions(container.rid, parents).await?;
    let mut object = Object::new();
    let parents = report.parents.iter().map(|parent| Value::from(parent.to_string()));
    object.set("parents", parents.collect::<Vec<_>>().into());
    object.set("child", Value::from(report.child.to_string()));
    Ok(json(object))
}

/// Itemises what an operation would be charged, without executing it: `{"database":…,"container":…,
/// "operation":"create","item":{…}}`, `{…,"operation":"read","id":…,"partitionKey":[…]}`, likewise `upsert`, `replace`,
/// `patch` (with `patch`, the body of such a request) and `delete`; or a page of a query:
/// `{…,"operation":"query","query":…,"parameters":[…]}`.
pub(crate) async fn explain_charge(database: &Arc<Database>, body: &[u8]) -> Result<Reply> {
    let body = parse(body)?;
    let place = (text(&body, "database")?, text(&body, "container")?);
    let key = body.get("partitionKey").map(|key| PartitionKey::parse_json(key.to_json().as_bytes()));
    let key = key.transpose()?;
    let (charge, parts) = match text(&body, "operation")? {
        "query" => explain_query(database, place, &body, key).await?,
        operation => {
            // The kind, and the member of the request that holds what would be the body.
            let (kind, content) = match operation {
                "create" => (BatchKind::Create, Some("item")),
                "upsert" => (BatchKind::Upsert, Some("item")),
                "replace" => (BatchKind::Replace, Some("item")),
                "patch" => (BatchKind::Patch, Some("patch")),
                "read" => (BatchKind::Read, None),
                "delete" => (BatchKind::Delete, None),
                other => {
                    return Err(Error::bad_request(format!("The operation '{other}' cannot be explained.")));
                }
            };
            let content = match content {
                None => None,
                Some(name) => {
                    let missing = || orrery_model::ids::missing_properties(&[name]);
                    Some(Bytes::from(body.get(name).ok_or_else(missing)?.to_json()))
                }
            };
            let operation = BatchOperation {
                kind,
                id: body.get("id").and_then(Value::as_str).map(str::to_owned),
                body: content,
                if_match: None,
                if_none_match: None,
                partition_key: key,
            };
            let explained = database.explain_charge(place, &operation).await?;
            (explained.charge, explained.parts)
        }
    };
    let parts = parts.iter().map(|part| {
        let mut object = Object::new();
        object.set("what", Value::from(part.what));
        object.set("quantity", Value::from(i64::try_from(part.quantity).unwrap_or(i64::MAX)));
        object.set("charge", Value::from(part.charge.as_f64()));
        Value::from(object)
    });
    let mut object = Object::new();
    object.set("charge", Value::from(charge.as_f64()));
    object.set("parts", parts.collect::<Vec<_>>().into());
    Ok(json(object))
}

async fn explain_query(
    database: &Arc<Database>,
    place: (&str, &str),
    body: &Value,
    key: Option<PartitionKey>,
) -> Result<(Charge, Vec<cost::Part>)> {
    let mut spec = Object::new();
    spec.set("query", Value::from(text(body, "query")?));
    if let Some(parameters) = body.get("parameters") {
        spec.set("parameters", parameters.clone());
    }
    let request = QueryRequest::parse(Value::from(spec).to_json().as_bytes())?;
    // The header that permits it guards against surprising charges, and here nothing is charged.
    let mut options = QueryOptions { cross_partition: true, ..QueryOptions::default() };
    options.scope.partition_key = key;
    // Never settled, so explaining spends nothing of the partitions' budgets.
    let mut receipt = Receipt::default();
    let page = database.query_items(&mut receipt, place, &options, &request).await?;
    let parts = cost::query_parts(&cost::QueryWork {
        partitions: receipt.served.len() as u64,
        index_entries: page.metrics.entries_read,
        items: page.metrics.items_read,
        item_bytes: page.metrics.bytes_read,
        output_bytes: page.metrics.output_bytes,
    });
    Ok((receipt.charge, parts.to_vec()))
}

/// Returns the clock, or moves it: `{"offsetMs":…}`, `{"advanceMs":…}`, `{"freeze":true}`, or several at once.
pub(crate) fn clock(
    database: &Database,
    clock: Option<&Arc<MovableClock>>,
    method: &Method,
    body: &[u8],
) -> Result<Reply> {
    let clock = clock.ok_or_else(|| {
        Error::new(
            ErrorKind::Forbidden,
            "The clock of this server cannot be moved. Start it with --test-controls.",
        )
    })?;
    if method == Method::POST {
        let body = parse(body)?;
        let known = ["offsetMs", "advanceMs", "freeze"];
        let members = body.as_object().ok_or_else(|| Error::bad_request("The body is not a JSON object."))?;
        // A misspelt member would silently leave the clock where it is.
        if let Some((unknown, _)) = members.iter().find(|(name, _)| !known.contains(name)) {
            return Err(Error::bad_request(format!(
                "Unknown property '{unknown}'. Expected {}.",
                known.join(", ")
            )));
        }
        let number = |name: &str| match body.get(name) {
            None => Ok(None),
            Some(value) => value
                .as_i64()
                .filter(|number| number.abs() <= CLOCK_MS_MAX)
                .map(Some)
                .ok_or_else(|| Error::bad_request(format!("'{name}' must be a number of milliseconds."))),
        };
        // Everything is checked before anything is changed.
        let (offset_ms, advance_ms) = (number("offsetMs")?, number("advanceMs")?);
        let freeze = match body.get("freeze") {
            None => None,
            Some(value) => {
                Some(value.as_bool().ok_or_else(|| Error::bad_request("'freeze' must be true or false."))?)
            }
        };
        if let Some(freeze) = freeze {
            clock.freeze(freeze);
        }
        if let Some(offset_ms) = offset_ms {
            clock.set_offset(offset_ms);
        }
        if let Some(advance_ms) = advance_ms {
            clock.advance(advance_ms);
        }
        // Wakes the background work that may be due by the new time, such as expiry.
        database.clock_was_moved();
    }
    let reading = clock.read();
    let mut object = Object::new();
    object.set("nowMs", Value::from(reading.now_ms));
    object.set("offsetMs", Value::from(reading.offset_ms));
    object.set("frozen", Value::from(reading.frozen));
    Ok(json(object))
}

/// Lists, adds (POST) and removes (DELETE, one or all) fault injection rules.
pub(crate) fn faults(
    database: &Database,
    faults: &Faults,
    is_allowed: bool,
    method: &Method,
    path: &str,
    body: &[u8],
) -> Result<Reply> {
    if !is_allowed {
        return Err(Error::new(
            ErrorKind::Forbidden,
            "Fault injection is disabled on this server. Start it with --test-controls.",
        ));
    }
    let id = path.strip_prefix("/_orrery/faults/");
    match (method, id) {
        (&Method::GET, None) => Ok(faults.list(database.env())),
        (&Method::POST, None) => faults.add(database.env(), body),
        (&Method::DELETE, id) => faults.remove(id),
        _ => Err(method_not_allowed()),
    }
}

/// The clock can be moved by at most ten years.
const CLOCK_MS_MAX: i64 = 10 * 366 * 24 * 3_600_000;

fn parse(body: &[u8]) -> Result<Value> {
    value::parse(body).map_err(|error| Error::bad_request(format!("The body is not JSON: {error}.")))
}

fn text<'v>(body: &'v Value, name: &str) -> Result<&'v str> {
    body.get(name).and_then(Value::as_str).ok_or_else(|| orrery_model::ids::missing_properties(&[name]))
}

fn partition_id(value: Option<&Value>, name: &str) -> Result<u32> {
    let id = value.ok_or_else(|| orrery_model::ids::missing_properties(&[name]))?;
    // Ids of ranges are texts on the wire, but people write numbers.
    let number = match id {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64().and_then(|number| u32::try_from(number).ok()),
    };
    number.ok_or_else(|| Error::bad_request(format!("{} is not a partition id.", id.to_json())))
}

fn json(object: Object) -> Reply {
    Reply::json(StatusCode::OK, Value::from(object).to_json())
}
