//! Records requests while their container's workload is being recorded.

use orrery_db::{BatchKind, BatchOperation, Database, QueryRequest, Receipt};
use orrery_model::value::{self, Value};
use orrery_model::{Charge, Object, Result};

use crate::dispatch::Call;
use crate::headers;
use crate::operation::Verb;
use crate::path::Path;
use crate::reply::Reply;
use crate::wire::status::wire_status;

/// Longer parameter values are not recorded.
const PARAMETER_BYTES_MAX: usize = 512;

/// What is known of a request before it completes.
pub(crate) struct Noted {
    database: String,
    container: String,
    shape: Object,
    /// The operations of a bulk request, which are recorded individually.
    bulk: Vec<Object>,
}

/// Prepares the record of a request, if its container is being recorded. Of an item body, only the id is recorded.
pub(crate) fn shape(call: &Call<'_>) -> Option<Noted> {
    let at = call.path.container()?;
    if !call.database.recordings().wants(&at.database, &at.container) {
        return None;
    }
    let mut shape = Object::new();
    shape.set("atMs", Value::from(call.database.env().now_ms()));
    let name = match (call.path, call.verb) {
        (Path::Item(..), Verb::Read) => "read",
        (Path::Item(..), Verb::Replace) => "replace",
        (Path::Item(..), Verb::Patch) => "patch",
        (Path::Item(..), Verb::Delete) => "delete",
        (Path::Items(_), Verb::Create) => "create",
        (Path::Items(_), Verb::Upsert) => "upsert",
        (Path::Items(_), Verb::Batch) => "batch",
        (Path::Items(_), Verb::Query) => "query",
        _ => return None,
    };
    shape.set("operation", Value::from(name));
    match (call.path, call.verb) {
        (Path::Item(_, id), _) => shape.set("id", Value::from(id.as_str())),
        (_, Verb::Create | Verb::Upsert) => {
            let item = value::parse(&call.body).ok();
            if let Some(id) = item.as_ref().and_then(|item| item.get("id")).filter(|id| id.as_str().is_some())
            {
                shape.set("id", id.clone());
            }
        }
        (_, Verb::Batch) => {
            let operations = value::parse(&call.body).ok();
            let count = operations.as_ref().and_then(Value::as_array).map_or(1, <[Value]>::len);
            shape.set("items", Value::from(i64::try_from(count).unwrap_or(1)));
        }
        (_, Verb::Query) => {
            // Of a query that a client fans out or pages through, only the first request is recorded.
            let headers = &call.parts.headers;
            let is_later = headers::non_empty(headers, headers::CONTINUATION).is_some();
            if is_later || !is_first_range(call) {
                return None;
            }
            let request: QueryRequest = call.query().ok()?;
            shape.set("query", Value::from(request.text.as_str()));
            let parameters = request.parameters.iter().map(|(name, value)| {
                let mut parameter = Object::new();
                parameter.set("name", Value::from(name.as_str()));
                let is_short = value.as_str().is_none_or(|text| text.len() <= PARAMETER_BYTES_MAX);
                let is_scalar = !matches!(value, Value::Array(_) | Value::Object(_));
                parameter.set("value", if is_short && is_scalar { value.clone() } else { Value::Null });
                Value::from(parameter)
            });
            shape.set("parameters", parameters.collect::<Vec<_>>().into());
        }
        _ => {}
    }
    let bulk = match call.verb {
        Verb::Batch => call.bulk_operations().unwrap_or_default(),
        _ => Vec::new(),
    };
    let bulk = bulk.iter().map(|operation| bulk_shape(operation, &shape)).collect();
    Some(Noted { database: at.database.clone(), container: at.container.clone(), shape, bulk })
}

fn bulk_shape(operation: &BatchOperation, request: &Object) -> Object {
    let mut shape = Object::new();
    shape.set("atMs", request.get("atMs").cloned().unwrap_or_default());
    let name = match operation.kind {
        BatchKind::Create => "create",
        BatchKind::Upsert => "upsert",
        BatchKind::Read => "read",
        BatchKind::Replace => "replace",
        BatchKind::Delete => "delete",
        BatchKind::Patch => "patch",
    };
    shape.set("operation", Value::from(name));
    let body = operation.body.as_ref().and_then(|body| value::parse(body).ok());
    let own = body.as_ref().and_then(|body| body.get("id")).and_then(Value::as_str);
    if let Some(id) = operation.id.as_deref().or(own) {
        shape.set("id", Value::from(id));
    }
    if let Some(key) = &operation.partition_key {
        shape.set("key", key.to_value());
    }
    shape
}

/// Whether the request targets the whole container, a key, or the first partition.
fn is_first_range(call: &Call<'_>) -> bool {
    let Ok(Some(range_id)) = headers::range_id(&call.parts.headers) else { return true };
    let Some(at) = call.path.container() else { return true };
    let catalog = call.database.catalog();
    let Ok(container) = catalog.container(&at.database, &at.container) else { return true };
    let first = container.partitions.iter().min_by(|a, b| a.range.min.cmp(&b.range.min));
    first.is_none_or(|first| first.range_id.to_string() == range_id.to_string())
}

/// Records the request with its outcome.
pub(crate) fn note(noted: Noted, database: &Database, receipt: &Receipt, outcome: &Result<Reply>) {
    let Noted { database: name, container, mut shape, bulk } = noted;
    if let Some(key) = receipt.key.as_ref().and_then(|key| value::parse(key.as_bytes()).ok()) {
        shape.set("key", key);
    }
    let status = match outcome {
        Ok(reply) => reply.status.as_u16(),
        Err(error) => wire_status(error.kind).status,
    };
    // A bulk request without a charge was rejected as a whole and will be retried.
    let status = if !bulk.is_empty() && receipt.charge == Charge::ZERO { 429 } else { status };
    let count = bulk.len();
    for mut operation in bulk {
        operation.set("status", Value::from(i64::from(status)));
        #[expect(clippy::cast_precision_loss, reason = "at most a thousand operations")]
        operation.set("charge", Value::from(receipt.charge.as_f64() / count as f64));
        database.recordings().note(&name, &container, Value::from(operation).to_json());
    }
    if count > 0 {
        return;
    }
    shape.set("status", Value::from(i64::from(status)));
    shape.set("charge", Value::from(receipt.charge.as_f64()));
    database.recordings().note(&name, &container, Value::from(shape).to_json());
}
