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
    // The common case: no recording, and nothing is parsed.
    if !call.database.recordings().wants(&at.database, &at.container) {
        return None;
    }
    let mut shape = Object::new();
    shape.set("atMs", Value::from(call.database.env().now_ms()));
    // What the advisor does not model (feeds, scripts, plans) is not recorded.
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
    if matches!(call.verb, Verb::Create | Verb::Upsert | Verb::Replace) {
        shape.set("bytes", length_of(&call.body));
    }
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
            if headers::non_empty(headers, headers::CONTINUATION).is_some() {
                return None;
            }
            let request: QueryRequest = call.query().ok()?;
            set_partitions(call, &request, &mut shape)?;
            shape.set("query", Value::from(request.text.as_str()));
            let parameters = request.parameters.iter().map(|(name, value)| {
                let mut parameter = Object::new();
                parameter.set("name", Value::from(name.as_str()));
                let is_short = value.as_str().is_none_or(|text| text.len() <= PARAMETER_BYTES_MAX);
                let is_scalar = !matches!(value, Value::Array(_) | Value::Object(_));
                // Long values and structures would bloat a recording; keys are nearly always short scalars.
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
    if matches!(operation.kind, BatchKind::Create | BatchKind::Upsert | BatchKind::Replace)
        && let Some(body) = &operation.body
    {
        shape.set("bytes", length_of(body));
    }
    let body = operation.body.as_ref().and_then(|body| value::parse(body).ok());
    // Creates and upserts name the item only in its body.
    let own = body.as_ref().and_then(|body| body.get("id")).and_then(Value::as_str);
    if let Some(id) = operation.id.as_deref().or(own) {
        shape.set("id", Value::from(id));
    }
    if let Some(key) = &operation.partition_key {
        shape.set("key", key.to_value());
    }
    shape
}

/// How many partitions the query visits. None for a request to another than the first of them: of a query that a client
/// fans out, each request would be the same query.
fn set_partitions(call: &Call<'_>, request: &QueryRequest, shape: &mut Object) -> Option<()> {
    let headers = &call.parts.headers;
    let at = call.path.container()?;
    let has_key = headers::non_empty(headers, headers::PARTITION_KEY).is_some();
    // An invalid query is recorded with its status.
    let visited = call.database.query_partitions(at.pair(), request).unwrap_or_default();
    if !has_key && let Ok(Some(range_id)) = headers::range_id(headers) {
        if visited.first().is_some_and(|first| first.to_string() != range_id.to_string()) {
            return None;
        }
        // The charge is that of this part.
        if visited.len() > 1 {
            shape.set("isPart", Value::from(true));
        }
    }
    let partitions = if has_key { 1 } else { visited.len() };
    if partitions > 0 {
        shape.set("partitions", Value::from(i64::try_from(partitions).unwrap_or(i64::MAX)));
    }
    Some(())
}

fn length_of(body: &[u8]) -> Value {
    Value::from(i64::try_from(body.len()).unwrap_or(i64::MAX))
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
        // The receipt has one sum for all; the advisor only adds the shares up again.
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
