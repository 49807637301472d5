//! Header names, and parsing of their values.

use http::{HeaderMap, HeaderValue};
use orrery_db::Priority;
use orrery_model::partition_key::{EpkRange, PartitionKey};
use orrery_model::{Error, Result};

pub const IS_QUERY: &str = "x-ms-documentdb-isquery";
pub const IS_QUERY_GO: &str = "x-ms-documentdb-query";
pub const IS_QUERY_PLAN: &str = "x-ms-cosmos-is-query-plan-request";
pub const IS_BATCH: &str = "x-ms-cosmos-is-batch-request";
pub const IS_UPSERT: &str = "x-ms-documentdb-is-upsert";
pub const BATCH_ATOMIC: &str = "x-ms-cosmos-batch-atomic";
pub const BATCH_CONTINUE: &str = "x-ms-cosmos-batch-continue-on-error";
pub const PARTITION_KEY: &str = "x-ms-documentdb-partitionkey";
pub const RANGE_ID: &str = "x-ms-documentdb-partitionkeyrangeid";
pub const START_EPK: &str = "x-ms-start-epk";
pub const END_EPK: &str = "x-ms-end-epk";
pub const READ_KEY_TYPE: &str = "x-ms-read-key-type";
pub const SESSION_TOKEN: &str = "x-ms-session-token";
pub const CONSISTENCY_LEVEL: &str = "x-ms-consistency-level";
pub const READ_CONSISTENCY_STRATEGY: &str = "x-ms-cosmos-read-consistency-strategy";
pub const INTENDED_RID: &str = "x-ms-cosmos-intended-collection-rid";
pub const MAX_ITEM_COUNT: &str = "x-ms-max-item-count";
pub const TOKEN_LIMIT: &str = "x-ms-documentdb-responsecontinuationtokenlimitinkb";
pub const QUERY_FEATURES: &str = "x-ms-cosmos-supported-query-features";
pub const POPULATE_QUERY_METRICS: &str = "x-ms-documentdb-populatequerymetrics";
pub const CHANGE_FEED_FORMAT: &str = "x-ms-cosmos-changefeed-wire-format-version";
pub const POPULATE_INDEX_METRICS: &str = "x-ms-cosmos-populateindexmetrics";
pub const POPULATE_INDEX_METRICS_V2: &str = "x-ms-cosmos-populateindexmetrics-v2";
pub const POPULATE_QUERY_ADVICE: &str = "x-ms-cosmos-populatequeryadvice";
pub const OPTIMISTIC_DIRECT: &str = "x-ms-cosmos-query-optimisticdirectexecute";
pub const ENABLE_CROSS_PARTITION: &str = "x-ms-documentdb-query-enablecrosspartition";
pub const CONTINUATION: &str = "x-ms-continuation";
pub const CONTENT_RESPONSE: &str = "x-ms-cosmos-populate-content-response-on-write";
pub const OFFER_THROUGHPUT: &str = "x-ms-offer-throughput";
pub const OFFER_AUTOSCALE: &str = "x-ms-cosmos-offer-autopilot-settings";
pub const MIGRATE_TO_AUTOSCALE: &str = "x-ms-cosmos-migrate-offer-to-autopilot";
pub const MIGRATE_TO_MANUAL: &str = "x-ms-cosmos-migrate-offer-to-manual-throughput";
pub const TOKEN_SECONDS: &str = "x-ms-documentdb-expiry-seconds";
pub const PRE_TRIGGER: &str = "x-ms-documentdb-pre-trigger-include";
pub const POST_TRIGGER: &str = "x-ms-documentdb-post-trigger-include";
pub const SCRIPT_LOGGING: &str = "x-ms-documentdb-script-enable-logging";
pub const SCRIPT_LOG: &str = "x-ms-documentdb-script-log-results";
pub const INDEXING_DIRECTIVE: &str = "x-ms-indexing-directive";
pub const PRIORITY_LEVEL: &str = "x-ms-cosmos-priority-level";
pub const THROUGHPUT_BUCKET: &str = "x-ms-cosmos-throughput-bucket";
pub const POPULATE_QUOTA: &str = "x-ms-documentdb-populatequotainfo";
pub const POPULATE_STATISTICS: &str = "x-ms-documentdb-populatepartitionstatistics";
pub const ACTIVITY_ID: &str = "x-ms-activity-id";
pub const VERSION: &str = "x-ms-version";
pub const REQUEST_CHARGE: &str = "x-ms-request-charge";
pub const CONTENT_FORMAT: &str = "x-ms-documentdb-content-serialization-format";
pub const SUPPORTED_FORMATS: &str = "x-ms-cosmos-supported-serialization-formats";
pub const SHARE_THROUGHPUT: &str = "x-ms-share-throughput";
pub const RESOURCE_QUOTA: &str = "x-ms-resource-quota";
pub const RESOURCE_USAGE: &str = "x-ms-resource-usage";
pub const SUBSTATUS: &str = "x-ms-substatus";

/// The value as text, if present and valid.
pub fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    // Not `to_str`, which accepts only ASCII: clients send names and keys as UTF-8.
    std::str::from_utf8(headers.get(name)?.as_bytes()).ok()
}

/// The value as text, if present and not empty.
pub fn non_empty<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    text(headers, name).map(str::trim).filter(|text| !text.is_empty())
}

/// Clients write `True` as well as `true`.
pub fn flag(headers: &HeaderMap, name: &str) -> bool {
    text(headers, name).is_some_and(|text| text.trim().eq_ignore_ascii_case("true"))
}

pub fn number(headers: &HeaderMap, name: &str) -> Result<Option<i64>> {
    match non_empty(headers, name) {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| invalid(name, text)),
    }
}

pub fn owned(headers: &HeaderMap, name: &str) -> Option<String> {
    non_empty(headers, name).map(str::to_owned)
}

pub fn invalid(name: &str, value: &str) -> Error {
    // The text comes back in the response, so a long value is cut.
    let shown: String = value.chars().take(128).collect();
    Error::bad_request(format!("One of the input values is invalid. The header {name} cannot be '{shown}'."))
}

pub fn partition_key(headers: &HeaderMap) -> Result<Option<PartitionKey>> {
    headers.get(PARTITION_KEY).map(HeaderValue::as_bytes).map(PartitionKey::parse_json).transpose()
}

/// The range id; some clients put the container's RID and a comma before it.
pub fn range_id(headers: &HeaderMap) -> Result<Option<u32>> {
    let Some(text) = non_empty(headers, RANGE_ID) else { return Ok(None) };
    let id = text.rsplit(',').next().unwrap_or(text).trim();
    id.parse().map(Some).map_err(|_| invalid(RANGE_ID, text))
}

/// The half-open window of effective keys; either bound is optional.
pub fn window(headers: &HeaderMap) -> Result<Option<EpkRange>> {
    let (start, end) = (text(headers, START_EPK), text(headers, END_EPK));
    if start.is_none() && end.is_none() {
        return Ok(None);
    }
    if text(headers, READ_KEY_TYPE) == Some("EffectivePartitionKey") {
        return Err(Error::bad_request("One of the input values is invalid."));
    }
    // A client that queries the empty prefix of a key sends two empty bounds, which the service rejects.
    if start.is_some_and(|start| end.is_some_and(|end| start.trim().eq_ignore_ascii_case(end.trim()))) {
        return Err(Error::bad_request("One of the input values is invalid."));
    }
    // An empty end is the end of the key space.
    let end = end.map(str::trim).filter(|end| !end.is_empty());
    EpkRange::parse(start.unwrap_or("").trim(), end.unwrap_or("FF")).map(Some)
}

/// API versions before partition keys became mandatory. Later ones are not listed, so that future clients are accepted.
const OLD_VERSIONS: [&str; 16] = [
    "2014-08-21",
    "2015-04-08",
    "2015-06-03",
    "2015-08-06",
    "2015-12-16",
    "2016-05-30",
    "2016-07-11",
    "2016-11-14",
    "2017-01-19",
    "2017-02-22",
    "2017-05-03",
    "2017-11-15",
    "2018-06-18",
    "2018-07-20",
    "2018-08-31",
    "2018-09-17",
];
/// The first version in which every container has a partition key.
const PARTITIONED_SINCE: &str = "2018-12-31";

/// Rejects an API version that never existed.
pub fn check_version(headers: &HeaderMap) -> Result<()> {
    let Some(version) = non_empty(headers, VERSION) else { return Ok(()) };
    // Dates of this form sort as text.
    let is_date = version.len() == 10
        && version.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if is_date && version >= PARTITIONED_SINCE || OLD_VERSIONS.contains(&version) {
        return Ok(());
    }
    Err(Error::bad_request(
        "Invalid API version. Ensure a valid x-ms-version header value is passed. Please update to the latest version of Azure Cosmos DB SDK.",
    ))
}

/// Whether the API version predates mandatory partition keys.
pub fn predates_partition_keys(headers: &HeaderMap) -> bool {
    non_empty(headers, VERSION).is_some_and(|version| version < PARTITIONED_SINCE)
}

/// The JSON format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonFormat {
    Text,
    Binary,
}

/// The explicitly requested format. HybridRow is for batches, whose responses use the format of the request.
pub fn demanded_format(headers: &HeaderMap) -> Result<Option<JsonFormat>> {
    match non_empty(headers, CONTENT_FORMAT) {
        None => Ok(None),
        Some(text) if text.eq_ignore_ascii_case("CosmosBinary") => Ok(Some(JsonFormat::Binary)),
        Some(text) if text.eq_ignore_ascii_case("JsonText") || text.eq_ignore_ascii_case("HybridRow") => {
            Ok(Some(JsonFormat::Text))
        }
        Some(text) => Err(invalid(CONTENT_FORMAT, text)),
    }
}

/// The format for a client that lists what it supports. The service prefers binary, and treats an invalid list as text
/// (`ValidateSupportedSerializationFormatsGateway` of the .NET client).
pub fn accepted_format(headers: &HeaderMap) -> JsonFormat {
    let listed = non_empty(headers, SUPPORTED_FORMATS).unwrap_or_default();
    let is = |name: &str, known: &str| name.trim().eq_ignore_ascii_case(known);
    // One unknown name makes the whole list invalid.
    let is_known = |name: &str| ["JsonText", "CosmosBinary", "HybridRow"].iter().any(|known| is(name, known));
    if listed.split(',').all(is_known) && listed.split(',').any(|name| is(name, "CosmosBinary")) {
        JsonFormat::Binary
    } else {
        JsonFormat::Text
    }
}

/// The request's priority; an invalid value is rejected for item requests.
pub fn priority(headers: &HeaderMap) -> Priority {
    match non_empty(headers, PRIORITY_LEVEL) {
        Some(text) if text.eq_ignore_ascii_case("low") => Priority::Low,
        _ => Priority::High,
    }
}

/// The request's throughput bucket, from 1 to 5.
pub fn throughput_bucket(headers: &HeaderMap) -> Result<Option<u8>> {
    let Some(text) = non_empty(headers, THROUGHPUT_BUCKET) else { return Ok(None) };
    let number = text.parse().ok().filter(|number| (1..=5).contains(number));
    number.map(Some).ok_or_else(|| invalid(THROUGHPUT_BUCKET, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn values_are_read_leniently_and_refused_clearly() {
        assert!(flag(&headers(&[(IS_UPSERT, " True ")]), IS_UPSERT));
        assert_eq!(range_id(&headers(&[(RANGE_ID, "hLEEAI1YjgA=,3")])), Ok(Some(3)));
        assert!(range_id(&headers(&[(RANGE_ID, "x")])).is_err());
        assert_eq!(number(&headers(&[(MAX_ITEM_COUNT, "-1")]), MAX_ITEM_COUNT), Ok(Some(-1)));
        assert!(number(&headers(&[(MAX_ITEM_COUNT, "many")]), MAX_ITEM_COUNT).is_err());
        assert_eq!(
            window(&headers(&[(START_EPK, ""), (END_EPK, "3f")])).unwrap().unwrap().max.to_string(),
            "3F"
        );
        assert!(window(&headers(&[(START_EPK, "xyz")])).is_err());
    }
}
