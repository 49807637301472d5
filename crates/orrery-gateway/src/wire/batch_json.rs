//! Batches as JSON arrays, the format of every client but .NET.

use bytes::Bytes;
use orrery_db::{BatchKind, BatchOperation};
use orrery_model::partition_key::PartitionKey;
use orrery_model::value::{self, Value};
use orrery_model::{Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Operation<'a> {
    #[serde(rename = "operationType")]
    kind: String,
    id: Option<String>,
    /// The original text, so that an item is stored as written.
    #[serde(borrow)]
    resource_body: Option<&'a RawValue>,
    if_match: Option<String>,
    if_none_match: Option<String>,
    partition_key: Option<KeyText>,
    #[serde(default)]
    minimal_return_preference: bool,
    time_to_live_in_seconds: Option<i64>,
    indexing_directive: Option<String>,
}

/// A partition key as a string containing a JSON array, or as the array itself.
struct KeyText(String);

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
        match value::parse(raw.get().as_bytes()) {
            Ok(Value::String(text)) => Ok(Self(text.into())),
            _ => Ok(Self(raw.get().to_owned())),
        }
    }
}

/// An operation, and whether its result should omit the item.
pub struct ParsedOperation {
    pub operation: BatchOperation,
    pub minimal: bool,
}

pub fn parse(body: &Bytes) -> Result<Vec<ParsedOperation>> {
    let malformed = |error: serde_json::Error| {
        Error::bad_request(format!("The input content is invalid because the batch cannot be read: {error}."))
    };
    let operations: Vec<Operation<'_>> = serde_json::from_slice(body).map_err(malformed)?;
    operations.into_iter().map(|operation| convert(body, operation)).collect()
}

/// A directive is checked and changes nothing, as in the service: a query finds an item that was to be left out by its
/// properties (`ValidateIndexingDirectives` of the .NET client's suite).
pub fn check_directive(directive: &str) -> Result<()> {
    if ["Include", "Default", "Exclude"].iter().any(|known| directive.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    let shown: String = directive.chars().take(128).collect();
    Err(Error::bad_request(format!(
        "One of the input values is invalid. The indexing directive cannot be '{shown}'."
    )))
}

/// Ignoring it would keep an item that its writer expects to expire.
pub fn lifetime_beside_item() -> Error {
    Error::not_implemented("A lifetime beside the item in a batch is not supported. Items may carry 'ttl'.")
}

fn convert(body: &Bytes, operation: Operation<'_>) -> Result<ParsedOperation> {
    let kind = match operation.kind.as_str() {
        "Create" => BatchKind::Create,
        "Upsert" => BatchKind::Upsert,
        "Read" => BatchKind::Read,
        "Replace" => BatchKind::Replace,
        "Delete" => BatchKind::Delete,
        "Patch" => BatchKind::Patch,
        other => return Err(Error::bad_request(format!("The batch operation type '{other}' is not known."))),
    };
    operation.indexing_directive.as_deref().map(check_directive).transpose()?;
    // Refused rather than ignored: an item that never expires is noticed too late.
    if operation.time_to_live_in_seconds.is_some() {
        return Err(lifetime_beside_item());
    }
    let key = operation.partition_key.as_ref();
    let partition_key = key.map(|KeyText(text)| PartitionKey::parse_json(text.as_bytes())).transpose()?;
    // Shares the request's memory: a batch of 2 MB is not copied per operation.
    let operation_body = operation.resource_body.map(|raw| body.slice_ref(raw.get().as_bytes()));
    Ok(ParsedOperation {
        operation: BatchOperation {
            kind,
            id: operation.id,
            body: operation_body,
            if_match: operation.if_match,
            if_none_match: operation.if_none_match,
            partition_key,
        },
        minimal: operation.minimal_return_preference,
    })
}
