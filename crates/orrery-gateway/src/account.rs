//! The account document, which every client reads first.

use http::Uri;
use orrery_db::query_limits;
use orrery_model::{Object, Value};

use crate::consistency::AccountConsistency;
use crate::options::PortEndpoint;

/// Properties of the query engine for clients, apart from its limits.
const QUERY_ENGINE: &str = r#""queryMaxInMemorySortDocumentCount":-1000,"queryEnableFullText":true,"queryEnableFullTextPreviewFeatures":false,"clientDisableOptimisticDirectExecution":false,"sqlQueryILDisableOptimizationFlags":0,"maxQueryRequestTimeoutFraction":0.9,"sqlAllowNonFiniteNumbers":false,"sqlAllowAggregateFunctions":true,"sqlAllowSubQuery":true,"sqlAllowScalarSubQuery":true,"allowNewKeywords":true,"sqlAllowLike":true,"sqlAllowGroupByClause":true,"maxSpatialQueryCells":2147483647,"spatialMaxGeometryPointCount":256,"sqlDisableOptimizationFlags":0,"sqlAllowTop":true,"enableSpatialIndexing":true"#;

/// The id must not be `localhost`: the JavaScript client would then read the account before every operation.
const ACCOUNT_ID: &str = "orrery";
const REGION: &str = "Local";

/// The base address of another port, for a client that reaches the gateway at this one.
pub(crate) fn endpoint_of(port: &PortEndpoint, gateway: &str) -> Option<String> {
    let gateway: Uri = gateway.parse().ok()?;
    Some(format!("{}://{}/", gateway.scheme_str()?, port.authority(gateway.authority()?.as_str())))
}

/// The document for a client that reached the server at this base address, which ends with a slash; with the address of
/// Gateway 2.0 if it is served.
pub(crate) fn document(endpoint: &str, consistency: AccountConsistency, gateway_v2: Option<&str>) -> Value {
    let location = |endpoint: &str| {
        let mut object = Object::new();
        object.set("name", Value::from(REGION));
        object.set("databaseAccountEndpoint", Value::from(endpoint));
        Value::from(vec![Value::from(object)])
    };
    let mut account = Object::new();
    account.set("_self", Value::from(""));
    account.set("id", Value::from(ACCOUNT_ID));
    account.set("_rid", Value::from("orrery.sql.cosmos.azure.com"));
    account.set("media", Value::from("//media/"));
    account.set("addresses", Value::from("//addresses/"));
    account.set("_dbs", Value::from("//dbs/"));
    account.set("writableLocations", location(endpoint));
    account.set("readableLocations", location(endpoint));
    if let Some(gateway_v2) = gateway_v2 {
        account.set("thinClientWritableLocations", location(gateway_v2));
        account.set("thinClientReadableLocations", location(gateway_v2));
    }
    for name in [
        "enableMultipleWriteLocations",
        "continuousBackupEnabled",
        "enableNRegionSynchronousCommit",
        "enablePerPartitionFailoverBehavior",
    ] {
        account.set(name, Value::from(false));
    }
    let numbers = |pairs: &[(&str, i64)]| {
        let members = pairs.iter().map(|(name, number)| ((*name).into(), Value::from(*number)));
        Value::from(Object::from_members(members.collect()))
    };
    // One member in each replica set: clients in direct mode then ask one replica and compare nothing.
    let mut replication = Object::new();
    replication.set("asyncReplication", Value::from(false));
    replication.set("minReplicaSetSize", Value::from(1));
    replication.set("maxReplicasetSize", Value::from(1));
    account.set("userReplicationPolicy", replication.into());
    account.set("userConsistencyPolicy", consistency.to_value());
    account.set("systemReplicationPolicy", numbers(&[("minReplicaSetSize", 1), ("maxReplicasetSize", 1)]));
    account.set("readPolicy", numbers(&[("primaryReadCoefficient", 1), ("secondaryReadCoefficient", 1)]));
    // JSON within a string, as in the service; clients parse it once more.
    account.set("queryEngineConfiguration", Value::from(query_engine()));
    account.into()
}

/// The query engine configuration as JSON text, with the limits that are actually enforced.
fn query_engine() -> String {
    let limits = [
        ("maxSqlQueryInputLength", query_limits::TEXT_UNITS_MAX),
        ("maxJoinsPerSqlQuery", query_limits::JOINS_MAX),
        ("maxLogicalAndPerSqlQuery", query_limits::LOGICAL_TERMS_MAX),
        ("maxLogicalOrPerSqlQuery", query_limits::LOGICAL_TERMS_MAX),
        ("maxUdfRefPerSqlQuery", query_limits::UDF_CALLS_MAX),
        ("maxInExpressionItemsCount", query_limits::IN_MEMBERS_MAX),
        ("queryMaxGroupByTableCellCount", query_limits::STATE_CELLS_MAX),
        ("queryMaxFullTextScoreSearchTerms", query_limits::SEARCH_TERMS_MAX),
        ("queryMaxRrfArgumentCount", query_limits::FUSED_SCORES_MAX),
    ];
    let limits: Vec<String> = limits.iter().map(|(name, limit)| format!("\"{name}\":{limit}")).collect();
    format!("{{{},{QUERY_ENGINE}}}", limits.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What accounts of the service published in 2025. Clients that plan queries themselves go by it: without
    /// `queryEnableFullText` they refuse all full-text functions.
    const PUBLISHED: &str = r#"{"allowNewKeywords":true,"maxJoinsPerSqlQuery":10,"maxQueryRequestTimeoutFraction":0.9,"maxSqlQueryInputLength":524288,"maxUdfRefPerSqlQuery":10,"queryMaxInMemorySortDocumentCount":-1000,"spatialMaxGeometryPointCount":256,"sqlAllowNonFiniteNumbers":false,"sqlDisableOptimizationFlags":0,"sqlQueryILDisableOptimizationFlags":0,"clientDisableOptimisticDirectExecution":false,"queryEnableFullText":true,"queryEnableFullTextPreviewFeatures":false,"queryMaxFullTextScoreSearchTerms":5,"queryMaxRrfArgumentCount":100,"enableSpatialIndexing":true,"maxInExpressionItemsCount":2147483647,"maxLogicalAndPerSqlQuery":2147483647,"maxLogicalOrPerSqlQuery":2147483647,"maxSpatialQueryCells":2147483647,"sqlAllowAggregateFunctions":true,"sqlAllowGroupByClause":true,"sqlAllowLike":true,"sqlAllowSubQuery":true,"sqlAllowScalarSubQuery":true,"sqlAllowTop":true}"#;

    #[test]
    fn the_query_engine_is_configured_as_in_the_service() {
        let parse = |text: &str| orrery_model::value::parse(text.as_bytes()).unwrap();
        let (published, own) = (parse(PUBLISHED), parse(&query_engine()));
        // Where the service has no limit there is one here, and clients may know it.
        let limited = ["maxInExpressionItemsCount", "maxLogicalAndPerSqlQuery", "maxLogicalOrPerSqlQuery"];
        for (name, value) in published.as_object().unwrap().iter() {
            let found = own.get(name).unwrap_or_else(|| panic!("{name} is missing"));
            if limited.contains(&name) {
                assert!(found.as_i64() < value.as_i64(), "{name}");
            } else {
                assert_eq!(found, value, "{name}");
            }
        }
        let more: Vec<&str> = own
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, _)| name)
            .filter(|name| published.get(name).is_none())
            .collect();
        assert_eq!(more, ["queryMaxGroupByTableCellCount"]);
    }
}
